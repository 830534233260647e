// 3:1: a mask cannot have variables that live on ('counter'): make it const, or a parameter by FLY_PARAM
#include <flymask/mask.h>
static int counter;
bool mask(int b, int h, int q, int kv) { return counter++ < q; }
