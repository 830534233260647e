// 5:7: variable 'x' is used uninitialized whenever 'if' condition is false
#include <flymask/mask.h>
bool mask(int b, int h, int q, int kv) {
  int x;
  if (q > kv) x = 1;
  return x;
}
