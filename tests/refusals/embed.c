// 4:8: '/etc/passwd' file not found; a mask may include <flymask/mask.h>, <stdint.h>, <stddef.h>, <stdbool.h>, <limits.h>, <float.h>, <iso646.h>, and nothing else
#include <flymask/mask.h>
static const unsigned char table[] = {
#embed "/etc/passwd" limit(16)
};
bool mask(int b, int h, int q, int kv) { return table[q & 15] > kv; }
