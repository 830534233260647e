/* alibi_slopes: as alibi, with captured slopes: slopes[h] (f32).
 * Convention: as FlashAttention's alibi_slopes: s - slopes[h] |q - kv|; q_offset = len_kv - len_q aligns queries at
 * the bottom right, as there. */
#include <flymask/score.h>

FLY_BUFFER(float, slopes, 1);

float score(float s, int b, int h, int q, int kv) {
  (void)b;
  return s - slopes[h] * (float)fly_abs(q - kv);
}
