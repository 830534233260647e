// 3:49: a mask cannot use a floating-point type other than float and double
#include <flymask/mask.h>
bool mask(int b, int h, int q, int kv) { return (long double)q * 0.1L > kv; }
