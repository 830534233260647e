// 4:12: a mask cannot have a variable-length array: give it a constant length
#include <flymask/mask.h>
bool mask(int b, int h, int q, int kv) {
  int *a = __builtin_alloca(q);
  a[0] = q;
  return a[0] > kv;
}
