// 3:49: a mask cannot use an integer of 128 bits
#include <flymask/mask.h>
bool mask(int b, int h, int q, int kv) { return (__int128)q * q > kv; }
