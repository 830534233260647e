// 4:3: a mask cannot have a variable-length array: give it a constant length
#include <flymask/mask.h>
bool mask(int b, int h, int q, int kv) {
  int n = q & 7, a[n + 1];
  for (int i = 0; i <= n; i++) a[i] = i;
  return a[n] > kv;
}
