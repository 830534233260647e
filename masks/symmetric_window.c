/* symmetric_window: a query sees the keys at most `radius` away, before and behind it.
 * Convention: Hugging Face's bidirectional sliding window, inclusive: |q - kv| <= radius, 2 radius + 1 keys.
 * llama.cpp's symmetric window of n_swa is radius = n_swa / 2. */
#include <flymask/mask.h>

FLY_PARAM(int, radius, 128);

bool mask(int b, int h, int q, int kv) {
  (void)b, (void)h;
  return fly_abs(q - kv) <= radius;
}
