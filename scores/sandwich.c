/* sandwich: a bias that decays with distance in waves (Sandwich, Chi et al., arXiv 2212.10356). It is the inner product
 * of sinusoidal position embeddings, tabulated by the caller: bias[h, |q - kv|] (f32 [heads or 1, distances]).
 * Convention: for channels d, the sum over i = 1 .. d / 2 of cos(m / 10000^(2 i / d)) at distance m, less d / 2, times
 * the head's compression ratio; distances beyond the table take its last column. */
#include <flymask/score.h>

FLY_BUFFER(float, bias, 2);

float score(float s, int b, int h, int q, int kv) {
  (void)b;
  int last = (int)fly_dim(bias, 1) - 1, row = fly_min(h, (int)fly_dim(bias, 0) - 1);
  return s + fly_at2(bias, row, fly_min(fly_abs(q - kv), last));
}
