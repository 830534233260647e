/* causal_window: a query sees the last `window` keys, itself among them.
 * Convention: Mistral, Gemma 2 and 3, gpt-oss and Hugging Face's sliding_window: kv <= q and q - kv < window,
 * `window` keys in all. attention-gym's window_size = W sees W + 1 keys: give W + 1; llama.cpp's n_swa is this
 * `window`. */
#include <flymask/mask.h>

FLY_PARAM(int, window, 256);

bool mask(int b, int h, int q, int kv) {
  (void)b, (void)h;
  return kv <= q && q - kv < window;
}
