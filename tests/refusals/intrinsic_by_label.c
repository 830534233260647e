// 0:0: a mask cannot declare functions or variables of LLVM's own: ...
#include <flymask/mask.h>
int f(int x) __asm__("llvm.ctpop.i32");
int f(int x) { return x; }
bool mask(int b, int h, int q, int kv) { return f(q) > kv; }
