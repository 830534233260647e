/* head_window: causal, with a window of its own for each head: head h sees the last window[h] keys.
 * Convention: as causal_window, itself among the keys; 0 sees nothing. window: int32 [heads]; heads behind its end
 * have the last entry's window. */
#include <flymask/mask.h>

FLY_BUFFER(int32_t, window, 1);

bool mask(int b, int h, int q, int kv) {
  (void)b;
  return kv <= q && q - kv < window[h];
}
