// 3:1: a mask cannot define 'fly_len_q', which is Flymask's own
#include <flymask/mask.h>
int fly_len_q(int b) { return b; }
bool mask(int b, int h, int q, int kv) { return fly_len_q(b) > q; }
