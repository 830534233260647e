// 3:49: a mask cannot convert between pointers and integers
#include <flymask/mask.h>
bool mask(int b, int h, int q, int kv) { return *(const int *)0x1000 > q; }
