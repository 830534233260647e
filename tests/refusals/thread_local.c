// 3:1: a mask cannot have thread-local variables ('state')
#include <flymask/mask.h>
static _Thread_local int state = 3;
bool mask(int b, int h, int q, int kv) { return q > state; }
