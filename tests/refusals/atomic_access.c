// 5:5: a mask cannot use atomic operations
#include <flymask/mask.h>
bool mask(int b, int h, int q, int kv) {
  _Atomic int x = q;
  x += 1;
  return x > kv;
}
