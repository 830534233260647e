/* sliding_window: a query sees `left` keys before it and `right` behind it, both inclusive; -1 is unbounded.
 * Convention: flash-attn's window_size = (left, right), which aligns bottom-right: give q_offset = len_kv - len_q
 * for that. A window of W keys as in Mistral, Gemma and gpt-oss is left = W - 1, right = 0. */
#include <flymask/mask.h>

FLY_PARAM(int, left, 255);
FLY_PARAM(int, right, 0);

bool mask(int b, int h, int q, int kv) {
  (void)b, (void)h;
  return (left < 0 || q - kv <= left) && (right < 0 || kv - q <= right);
}
