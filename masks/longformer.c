/* longformer: a two-sided window, and marked tokens that see everything and are seen by all.
 * Convention: Longformer and attention-gym's global sliding window: |q - kv| <= window, inclusive (Longformer's own
 * attention_window is 2 window). is_global: uint8 [n], not 0 for a global token. For decoders combine with causal. */
#include <flymask/mask.h>

FLY_PARAM(int, window, 256);
FLY_BUFFER(uint8_t, is_global, 1);

bool mask(int b, int h, int q, int kv) {
  (void)b, (void)h;
  bool global = (is_global[q] | is_global[kv]) != 0;
  return global || fly_abs(q - kv) <= window;
}
