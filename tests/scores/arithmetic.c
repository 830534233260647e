/* Sums, products and quotients, in which the score stands on every side. */
#include <flymask/score.h>

FLY_PARAM(float, a, 0.75f);

float score(float s, int b, int h, int q, int kv) {
  float x = a * s - (float)(q - kv) * 0.01f, y = s * s + 2 + (float)b, z = x / y - y / (1.5f + x * x);
  return -z * x + (float)h / (3 + y) - s;
}
