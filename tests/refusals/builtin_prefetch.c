// 5:3: a mask cannot use this builtin of the compiler (llvm.prefetch.p0)
#include <flymask/mask.h>
FLY_BUFFER(int32_t, doc, 1);
bool mask(int b, int h, int q, int kv) {
  __builtin_prefetch(&doc[q]);
  return q > kv;
}
