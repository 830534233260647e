/* stochastic: a window over randomly permuted tokens (Stochastic Attention, Jin and Sui, arXiv 2604.00754). The
 * permutation is the call's row map; q and kv count in the permuted order. left and right are inclusive, -1 is
 * unbounded. causal: 0 none; 1 by token: no token sees a later one (the paper leaves it open; permuted order alone
 * would leak the future); 2 by permuted position; 3 both.
 * Convention: the paper's window of expected size w is left = right = w / 2. */
#include <flymask/mask.h>

FLY_PARAM(int, left, 128);
FLY_PARAM(int, right, 128);
FLY_PARAM(int, causal, 1);

bool mask(int b, int h, int q, int kv) {
  bool near = (left < 0 || q - kv <= left) && (right < 0 || kv - q <= right);
  bool by_token = (causal & 1) == 0 || fly_token_kv(b, h, kv) <= fly_token_q(b, h, q);
  bool by_position = (causal & 2) == 0 || kv <= q;
  return near && by_token && by_position;
}
