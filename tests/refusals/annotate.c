// 4:3: a mask cannot use this builtin of the compiler (llvm.var.annotation.p0.p0)
#include <flymask/mask.h>
bool mask(int b, int h, int q, int kv) {
  __attribute__((annotate("x"))) int x = q;
  return x > kv;
}
