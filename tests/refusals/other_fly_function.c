// 4:49: 'fly_len_q' is declared differently: include <flymask/mask.h>
#include <stdbool.h>
long fly_len_q(long b);
bool mask(int b, int h, int q, int kv) { return fly_len_q(b) > q; }
