// 5:3: a mask cannot use this builtin of the compiler (llvm.clear_cache)
#include <flymask/mask.h>
bool mask(int b, int h, int q, int kv) {
  char code[16] = {0};
  __builtin___clear_cache(code, code + 16);
  return q > kv;
}
