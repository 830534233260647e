// 3:1: the name of a parameter or buffer must have at most 64 ASCII letters, digits and _
#include <flymask/mask.h>
FLY_PARAM(int, größe, 1);
bool mask(int b, int h, int q, int kv) { return q > größe; }
