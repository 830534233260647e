// 3:49: a mask cannot use a pointer into an address space
#include <flymask/mask.h>
bool mask(int b, int h, int q, int kv) { return *(const __attribute__((address_space(256))) int *)0 > q; }
