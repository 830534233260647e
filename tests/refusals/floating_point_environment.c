// 4:49: a mask cannot use this builtin of the compiler (llvm.experimental.constrained.sitofp.f32.i32)
#include <flymask/mask.h>
#pragma STDC FENV_ACCESS ON
bool mask(int b, int h, int q, int kv) { return q * 0.5f > kv; }
