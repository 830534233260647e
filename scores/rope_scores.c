/* rope_scores: a second product added to the score: the rotary part of multi-head latent attention (DeepSeek-V2, arXiv
 * 2405.04434). s + scale <q_rope[b, h, q], k_rope[b, kv]>; q_rope: f32 [batch, heads, queries, dim] and k_rope: f32
 * [batch, keys, dim], already rotated.
 * Convention: scale is the call's, 1 / sqrt(nope_dim + rope_dim), given again here; q counts without q_offset. No
 * gradient flows to q_rope and k_rope; where all is trained, concatenate instead: head_dim = nope_dim + rope_dim. */
#include <flymask/score.h>

FLY_PARAM(float, scale, 0.125f);
FLY_PARAM(int, q_offset, 0);
FLY_BUFFER(float, q_rope, 4);
FLY_BUFFER(float, k_rope, 3);

float score(float s, int b, int h, int q, int kv) {
  float sum = 0;
  for (int i = 0; i < fly_dim(q_rope, 3); i++)
    sum += fly_at4(q_rope, b, h, q - q_offset, i) * fly_at3(k_rope, b, kv, i);
  return s + scale * sum;
}
