// 2:15: 'stdlib.h' file not found; a mask may include <flymask/mask.h>, <stdint.h>, <stddef.h>, <stdbool.h>, <limits.h>, <float.h>, <iso646.h>, and nothing else
#include_next <stdlib.h>
#include <flymask/mask.h>
bool mask(int b, int h, int q, int kv) { return q > kv; }
