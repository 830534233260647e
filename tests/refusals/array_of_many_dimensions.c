// 0:0: a mask cannot have arrays, structs or initializers nested more than 32 deep
#include <flymask/mask.h>
static const int x[1][1][1][1][1][1][1][1][1][1][1][1][1][1][1][1][1][1][1][1][1][1][1][1][1][1][1][1][1][1][1][1][1][1][1][1][1][1][1][1];
bool mask(int b, int h, int q, int kv) { return *(const int *)&x > q; }
