// 3:1: 'left' is in a section of Flymask's own: declare it with FLY_PARAM or FLY_BUFFER
#include <flymask/mask.h>
__attribute__((section("fly.param"), used)) int left = 3;
bool mask(int b, int h, int q, int kv) { return q > left; }
