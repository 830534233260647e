// 4:1: the default of parameter 'place' is not a number
#include <flymask/mask.h>
static const int table[2] = {1, 2};
FLY_PARAM(int64_t, place, (int64_t)&table);
bool mask(int b, int h, int q, int kv) { return q > place; }
