// 7:5: the loop is entered at several places, by goto or switch: write it as for or while
#include <flymask/mask.h>
bool mask(int b, int h, int q, int kv) {
  int i = b;
  if (q > kv) goto middle;
  while (i < q) {
    i += h;
  middle:
    i++;
  }
  return i == kv;
}
