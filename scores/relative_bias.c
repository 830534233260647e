/* relative_bias: a learned bias for each relative position: bias[h, kv - q + centre].
 * Convention: bias is f32 [heads or 1, distances]; centre is its middle column, (distances - 1) / 2; distances beyond
 * the table take its first or last column (Shaw et al., arXiv 1803.02155, clipped; 2 n - 1 columns never clip). */
#include <flymask/score.h>

FLY_BUFFER(float, bias, 2);

float score(float s, int b, int h, int q, int kv) {
  (void)b;
  int last = (int)fly_dim(bias, 1) - 1, row = fly_min(h, (int)fly_dim(bias, 0) - 1);
  return s + fly_at2(bias, row, fly_clamp(kv - q + last / 2, 0, last));
}
