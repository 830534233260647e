// 7:3: the loop is entered at several places, by goto or switch: write it as for or while
#include <flymask/mask.h>
bool mask(int b, int h, int q, int kv) {
  int i = 0;
  if (q > kv) goto inside;
outside:
  i += 2;
inside:
  i++;
  if (i < kv) goto outside;
  if (i < q) goto inside;
  return i > 100;
}
