// 4:49: a mask cannot read 'scale' as something else than it is
#include <flymask/mask.h>
FLY_PARAM(float, scale, 1.5f);
bool mask(int b, int h, int q, int kv) { return *(const int *)&scale > q; }
