// 3:63: a mask cannot use this builtin of the compiler (llvm.frameaddress.p0)
#include <flymask/mask.h>
bool mask(int b, int h, int q, int kv) { return *(const int *)__builtin_frame_address(0) > q; }
