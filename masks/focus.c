/* focus: causal, the last `window` keys, and earlier keys that share a group with the query.
 * Convention: Focus (arXiv 2604.03260), hard form: kv <= q and (q - kv < window or groups[q] & groups[kv]). groups:
 * uint32 [n], bit g of groups[i] is set if position i is in group g. */
#include <flymask/mask.h>

FLY_PARAM(int, window, 256);
FLY_BUFFER(uint32_t, groups, 1);

bool mask(int b, int h, int q, int kv) {
  (void)b, (void)h;
  bool shared = (groups[q] & groups[kv]) != 0;
  return kv <= q && (q - kv < window || shared);
}
