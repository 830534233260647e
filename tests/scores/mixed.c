/* Double precision inside, integers in between, tokens and lengths. */
#include <flymask/score.h>

FLY_BUFFER(int32_t, weight, 1);

float score(float s, int b, int h, int q, int kv) {
  double x = (double)s * 1.25 + weight[kv] * 0.001, y = x / (1 + x * x);
  float z = (float)(y * x) - (float)(int)(s * 100) * 1e-9f;
  return z + (float)(fly_token_q(b, h, q) - fly_token_kv(b, h, kv)) * 0.001f * s + (float)fly_len_kv(b) * 1e-3f;
}
