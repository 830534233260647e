// 4:10: '/proc/self/environ' file not found; a mask may include <flymask/mask.h>, <stdint.h>, <stddef.h>, <stdbool.h>, <limits.h>, <float.h>, <iso646.h>, and nothing else
#include <flymask/mask.h>
#define FILE "/proc/self/environ"
#include FILE
bool mask(int b, int h, int q, int kv) { return q > kv; }
