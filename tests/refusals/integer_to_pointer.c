// 3:50: a mask cannot convert between pointers and integers
#include <flymask/mask.h>
bool mask(int b, int h, int q, int kv) { return *(const int *)(uintptr_t)(q + 4096); }
