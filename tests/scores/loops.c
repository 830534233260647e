/* Loops that carry the score: one with constant bounds, one that the data ends. */
#include <flymask/score.h>

float score(float s, int b, int h, int q, int kv) {
  (void)b, (void)h;
  float x = s, sum = 0;
  for (int i = 1; i <= 4; i++) {
    x = x * s * 0.25f + 1 / (float)i;
    sum += x;
  }
  int rounds = (q + kv) % 7;
  while (rounds-- > 0) {
    if (rounds == 3) continue;
    sum = sum * 0.5f + s * x;
  }
  return sum;
}
