// 4:59: a mask cannot divide by zero or shift by too much in a constant expression
#include <flymask/mask.h>
#pragma clang diagnostic ignored "-Wshift-count-overflow"
bool mask(int b, int h, int q, int kv) { return (1 << 40) + q > kv; }
