// 4:55: a mask cannot divide by zero or shift by too much in a constant expression
#include <flymask/mask.h>
#pragma clang diagnostic ignored "-Wdivision-by-zero"
bool mask(int b, int h, int q, int kv) { return 1 / 0 + q > kv; }
