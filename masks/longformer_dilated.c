/* longformer_dilated: every `dilation`-th key, up to `window` on each side; marked tokens see all and are seen by all.
 * Convention: Longformer's dilated heads: |q - kv| <= window dilation and (q - kv) % dilation == 0, or a global
 * token. is_global: uint8 [n], not 0 for a global token. */
#include <flymask/mask.h>

FLY_PARAM(int, window, 128);
FLY_PARAM(int, dilation, 2);
FLY_BUFFER(uint8_t, is_global, 1);

bool mask(int b, int h, int q, int kv) {
  (void)b, (void)h;
  bool global = (is_global[q] | is_global[kv]) != 0;
  int distance = fly_abs(q - kv);
  return global || (distance % dilation == 0 && distance <= (int64_t)window * dilation);
}
