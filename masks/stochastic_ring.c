/* stochastic_ring: as stochastic, but the window closes into a ring over the ends of the permuted sequence.
 * Convention: the circular variant of Stochastic Attention (arXiv 2604.00754): every query has as many neighbours.
 * The ring is as long as the keys; a query sees `left` positions before it and `right` behind it, inclusive, -1 is
 * everything. Without a row map and with causal = 0 a plain circular window. causal: 0 none, 1 by token, 2 by
 * permuted position, 3 both. */
#include <flymask/mask.h>

FLY_PARAM(int, left, 128);
FLY_PARAM(int, right, 128);
FLY_PARAM(int, causal, 1);

bool mask(int b, int h, int q, int kv) {
  int n = fly_len_kv(b), around = q % n, ahead = kv - (around < 0 ? around + n : around);
  bool window = -ahead <= left && ahead <= right, over_ends = ahead >= n - left || ahead <= right - n;
  bool near = left < 0 || right < 0 || window || over_ends;
  bool by_token = (causal & 1) == 0 || fly_token_kv(b, h, kv) <= fly_token_q(b, h, q);
  bool by_position = (causal & 2) == 0 || kv <= q;
  return near && by_token && by_position;
}
