// 4:59: a mask cannot divide by zero, shift by too much or convert a float that does not fit in a constant expression
#include <flymask/mask.h>
#pragma clang diagnostic ignored "-Wshift-count-overflow"
bool mask(int b, int h, int q, int kv) { return (1 << 40) + q > kv; }
