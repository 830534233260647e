/* kerple: a bias that falls with the logarithm of distance (Kerple, Chi et al., arXiv 2205.09921). r1, r2: f32 [heads],
 * positive.
 * Convention: the paper's logarithmic variant, s - r1[h] log(1 + r2[h] |q - kv|). */
#include <flymask/score.h>

FLY_BUFFER(float, r1, 1);
FLY_BUFFER(float, r2, 1);

float score(float s, int b, int h, int q, int kv) {
  (void)b;
  return s - r1[h] * log1pf(r2[h] * (float)fly_abs(q - kv));
}
