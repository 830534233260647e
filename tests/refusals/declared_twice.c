// 4:16: redefinition of 'left'
#include <flymask/mask.h>
FLY_PARAM(int, left, 1);
FLY_PARAM(int, left, 2);
bool mask(int b, int h, int q, int kv) { return q > left; }
