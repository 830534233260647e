// 3:24: '/etc/passwd' file not found; a mask may include <flymask/mask.h>, <stdint.h>, <stddef.h>, <stdbool.h>, <limits.h>, <float.h>, <iso646.h>, and nothing else
#include <flymask/mask.h>
#pragma GCC dependency "/etc/passwd"
bool mask(int b, int h, int q, int kv) { return q > kv; }
