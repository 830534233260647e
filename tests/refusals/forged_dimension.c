// 3:1: 'left_dim0' is in a section of Flymask's own: declare buffers with FLY_BUFFER
#include <flymask/mask.h>
__attribute__((section("fly.dim"), used)) int64_t left_dim0;
bool mask(int b, int h, int q, int kv) { return q > left_dim0; }
