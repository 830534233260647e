// 4:3: a mask cannot use atomic operations
#include <flymask/mask.h>
bool mask(int b, int h, int q, int kv) {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  return q > kv;
}
