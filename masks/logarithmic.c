/* logarithmic: causal, the last `window` keys, then keys at distances that are powers of two.
 * Convention: LogSparse Transformer (arXiv 1907.00235) with a local window: q - kv < window, or q - kv is 1, 2, 4,
 * 8, ...; the query always sees itself. */
#include <flymask/mask.h>

FLY_PARAM(int, window, 64);

bool mask(int b, int h, int q, int kv) {
  (void)b, (void)h;
  int distance = q - kv;
  return distance >= 0 && (distance < window || (distance & (distance - 1)) == 0);
}
