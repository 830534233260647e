/* careless_score: one of everything that `flymask check --score` finds in operations and conditions. */
#include <flymask/score.h>

FLY_PARAM(int, period, 0);
FLY_BUFFER(float, bias, 1);

float score(float s, int b, int h, int q, int kv) {
  (void)b, (void)h;
  int behind = (kv - q) / 4, far = q * 100000 - kv;
  float by_score = bias[(int)s], by_place = bias[q - kv];
  float wave = kv % period == 0 ? 1.f : logf((float)(kv - q));
  if (kv > q && kv < 0) return 0;
  if (s > 20 && kv > 50) wave += (float)(100 / (int)(s - 30));
  return by_score + by_place + wave + (float)(behind + (far >> (q / 8)));
}
