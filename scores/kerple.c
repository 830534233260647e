/* kerple: a logarithmic bias by distance with two numbers for each head (Kerple, Chi et al., arXiv 2205.09921):
 * s - r1[h] log(1 + r2[h] |q - kv|). r1, r2: f32 [heads], positive.
 * Convention: the paper's logarithmic variant. */
#include <flymask/score.h>

FLY_BUFFER(float, r1, 1);
FLY_BUFFER(float, r2, 1);

float score(float s, int b, int h, int q, int kv) {
  (void)b;
  return s - r1[h] * log1pf(r2[h] * (float)fly_abs(q - kv));
}
