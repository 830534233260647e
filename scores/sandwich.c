/* sandwich: a bias that decays with distance in waves (Sandwich, Chi et al., arXiv 2212.10356). It is the inner product
 * of two sinusoidal position embeddings of `d` channels, which depends on the distance m alone: waves[m] (f32
 * [distances]) is the sum over i = 1 .. d / 2 of cos(m / 10000^(2 i / d)), tabulated by the caller.
 * Convention: (waves[m] - d / 2) / r, 0 at distance 0, with the compression ratio r = 8 (h + 1) / heads of the head;
 * waves[0] is d / 2. Distances beyond the table take its last entry.
 * The table is f32: at d = 128 its values are off by up to 2e-6, and the bias by up to 5e-6 / r. */
#include <flymask/score.h>

FLY_PARAM(int, heads, 8);
FLY_BUFFER(float, waves, 1);

float score(float s, int b, int h, int q, int kv) {
  (void)b;
  float ratio = 8.f * (float)(h + 1) / (float)heads;
  return s + (waves[fly_min(fly_abs(q - kv), (int)fly_dim(waves, 0) - 1)] - waves[0]) / ratio;
}
