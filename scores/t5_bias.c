/* t5_bias: a learned bias for buckets of distances, exact ones, then logarithmic ones (T5, Raffel et al., arXiv
 * 1910.10683). bias: f32 [buckets, heads]. Half of the buckets hold one distance each, the rest grow up to
 * max_distance.
 * Convention: as Hugging Face's T5Attention._relative_position_bucket; bidirectional: keys behind the query have the
 * upper half of the buckets. */
#include <flymask/score.h>

FLY_PARAM(bool, bidirectional, true);
FLY_PARAM(int, max_distance, 128);
FLY_BUFFER(float, bias, 2);

float score(float s, int b, int h, int q, int kv) {
  (void)b;
  int buckets = (int)fly_dim(bias, 0), distance = kv - q, bucket = 0;
  if (bidirectional) {
    buckets /= 2;
    bucket = distance > 0 ? buckets : 0;
    distance = fly_abs(distance);
  } else {
    distance = fly_max(-distance, 0);
  }
  int exact = buckets / 2;
  float ratio = logf((float)fly_max(distance, 1) / (float)exact) / logf((float)max_distance / (float)exact);
  int far = fly_min(exact + (int)(ratio * (float)(buckets - exact)), buckets - 1);
  return s + fly_at2(bias, bucket + (distance < exact ? distance : far), h);
}
