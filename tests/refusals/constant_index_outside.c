// 4:49: array index 4 is past the end of the array...
#include <flymask/mask.h>
static const int table[4] = {1, 2, 3, 4};
bool mask(int b, int h, int q, int kv) { return table[4] > kv; }
