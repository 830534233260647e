/* Branches on the score and on positions, early returns, a switch. */
#include <flymask/score.h>

static float piece(float s, int kind) {
  switch (kind) {
  case 0:
    return s * 2;
  case 1:
    return -s;
  case 2:
    if (s > 0.5f) return s * s;
    return s * 0.5f;
  default:
    return 1;
  }
}

float score(float s, int b, int h, int q, int kv) {
  (void)b;
  if (q < kv && h == 1) return s / 3;
  float t = piece(s, (q + kv) & 3);
  if (t > 1 && s < 2) t = t * t - piece(t, q & 1);
  return (kv & 1 ? t : s) + 0.125f * s;
}
