// 3:10: 'immintrin.h' file not found; a mask may include <flymask/mask.h>, <stdint.h>, <stddef.h>, <stdbool.h>, <limits.h>, <float.h>, <iso646.h>, and nothing else
#include <flymask/mask.h>
#include <immintrin.h>
bool mask(int b, int h, int q, int kv) { return q > kv; }
