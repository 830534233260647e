/* temperature: scores that grow with the query's position, for lengths beyond `train` (log-n scaling).
 * Convention: s log(q + 1) / log(train), never below s; q counts from 0. */
#include <flymask/score.h>

FLY_PARAM(int, train, 2048);

float score(float s, int b, int h, int q, int kv) {
  (void)b, (void)h, (void)kv;
  return s * fmaxf(1, logf((float)(q + 1)) / logf((float)train));
}
