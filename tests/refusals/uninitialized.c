// 5:10: variable 'x' is uninitialized when used here
#include <flymask/mask.h>
bool mask(int b, int h, int q, int kv) {
  int x;
  return x > q;
}
