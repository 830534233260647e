/* deaf_score: the products of queries and keys get lost. */
#include <flymask/score.h>

float score(float s, int b, int h, int q, int kv) {
  (void)s, (void)b, (void)h;
  return -(float)(q - kv);
}
