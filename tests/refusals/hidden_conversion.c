// 4:67: a mask cannot divide by zero, shift by too much or convert a float that does not fit in a constant expression
#include <flymask/mask.h>
#pragma clang diagnostic ignored "-Wdiv-by-zero"
bool mask(int b, int h, int q, int kv) { return (int)(-3.f / 0.f) + q > kv; }
