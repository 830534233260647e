/* softcap: scores bounded smoothly by a tanh (Gemma 2, arXiv 2408.00118; FlashAttention's softcap).
 * Convention: cap * tanh(s / cap), before the mask, on scaled scores. */
#include <flymask/score.h>

FLY_PARAM(float, cap, 50);

float score(float s, int b, int h, int q, int kv) {
  (void)b, (void)h, (void)q, (void)kv;
  float inverse = 1 / cap; // once for all pairs
  return cap * tanhf(s * inverse);
}
