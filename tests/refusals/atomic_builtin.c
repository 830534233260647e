// 5:10: a mask cannot use atomic objects
#include <flymask/mask.h>
bool mask(int b, int h, int q, int kv) {
  int x = q;
  return __atomic_load_n(&x, __ATOMIC_SEQ_CST) > kv;
}
