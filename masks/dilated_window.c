/* dilated_window: a query sees every `dilation`-th key, up to `window` of them on each side.
 * Convention: Longformer's dilated window: |q - kv| <= window dilation and (q - kv) % dilation == 0. attention-gym
 * counts its window_size in positions: that is window = window_size / dilation. A dilation of 0 leaves the query
 * itself. */
#include <flymask/mask.h>

FLY_PARAM(int, window, 128);
FLY_PARAM(int, dilation, 2);

bool mask(int b, int h, int q, int kv) {
  (void)b, (void)h;
  int distance = fly_abs(q - kv);
  return distance <= (int64_t)window * dilation && distance % dilation == 0;
}
