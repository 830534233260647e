/* Scores in local arrays and structs, written and read at indices that the data decides, copied whole. */
#include <flymask/score.h>

struct pair {
  float x;
  int n;
  double y;
};

static struct pair make(float s, int n) {
  struct pair p = {s * 2, n, s * s};
  return p;
}

float score(float s, int b, int h, int q, int kv) {
  (void)b, (void)h;
  float a[8] = {1, 2, s, s * s}, c[8];
  a[(q + 1) & 7] = s * 3;
  a[(kv + 3) & 7] = 5;
  for (int i = 0; i < 8; i++) c[i] = a[i];
  c[q & 3] += a[kv & 7];
  struct pair p = make(c[kv & 7], q), r = p;
  r.x = r.x + c[5] + (float)r.n * 0.01f;
  return r.x + (float)r.y * 0.5f + c[(q + kv) & 7];
}
