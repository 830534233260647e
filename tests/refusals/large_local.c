// 3:1: the locals of a function take more than 16384 bytes
#include <flymask/mask.h>
bool mask(int b, int h, int q, int kv) {
  int a[5000] = {0};
  a[q] = kv;
  return a[kv] > q;
}
