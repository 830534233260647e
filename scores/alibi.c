/* alibi: a bias that falls linearly with distance, by a slope for each head (ALiBi, Press et al., arXiv 2108.12409).
 * Convention: the paper's slopes for a power of two `heads`: 2^(-8 (h + 1) / heads). Causal masks never see kv > q;
 * without one the distance counts on both sides. */
#include <flymask/score.h>

FLY_PARAM(int, heads, 8);

float score(float s, int b, int h, int q, int kv) {
  (void)b;
  return s - exp2f(-8.f * (float)(h + 1) / (float)heads) * (float)fly_abs(q - kv);
}
