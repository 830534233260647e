/* natten_1d: the `kernel` nearest keys; at the ends the window is moved inwards and keeps its size.
 * Convention: NATTEN's 1-D neighbourhood over the call's keys: the window begins at q - kernel / 2 (an even kernel
 * sees one more key before the query than behind), clamped into the sequence. A kernel longer than the sequence sees
 * all of it. */
#include <flymask/mask.h>

FLY_PARAM(int, kernel, 129);

bool mask(int b, int h, int q, int kv) {
  (void)h;
  int before = kernel / 2, behind = kernel - 1 - before;
  int centre = fly_clamp(q, before, fly_len_kv(b) - 1 - behind);
  return centre - kv <= before && kv - centre <= behind;
}
