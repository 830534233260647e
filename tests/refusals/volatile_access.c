// 4:16: a mask cannot use volatile objects
#include <flymask/mask.h>
bool mask(int b, int h, int q, int kv) {
  volatile int x = q;
  return x > kv;
}
