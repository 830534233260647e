// 4:22: initializer element is not a compile-time constant
#include <flymask/mask.h>
static int one(void) { return 1; }
FLY_PARAM(int, left, one());
bool mask(int b, int h, int q, int kv) { return q > left; }
