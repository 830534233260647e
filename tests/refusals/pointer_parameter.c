// 3:1: parameter 'p' must be an integer, bool, float or double
#include <flymask/mask.h>
FLY_PARAM(int *, p, 0);
bool mask(int b, int h, int q, int kv) { return p != 0 && q > kv; }
