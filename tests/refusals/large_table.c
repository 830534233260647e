// 3:1: the constant tables take more than 1048576 bytes; capture a buffer by FLY_BUFFER instead
#include <flymask/mask.h>
static const char table[2000000] = {1};
bool mask(int b, int h, int q, int kv) { return table[q] > kv; }
