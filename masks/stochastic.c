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
  int first = left < 0 ? INT32_MIN : -left, last = right < 0 ? INT32_MAX : right; /* of kv - q */
  if (causal & 2) last = fly_min(last, 0);
  int latest = causal & 1 ? fly_token_q(b, h, q) : INT32_MAX;
  return kv - q >= first && kv - q <= last && fly_token_kv(b, h, kv) <= latest;
}
