/* temperature: scores that grow with the query's position, log(q + 1) / log(train) (log-n scaling, Su; used for
 * lengths beyond `train`; 1 up to there).
 * Convention: never below 1; q counts from 0. */
#include <flymask/score.h>

FLY_PARAM(int, train, 2048);

float score(float s, int b, int h, int q, int kv) {
  (void)b, (void)h, (void)kv;
  return s * fmaxf(1, logf((float)(q + 1)) / logf((float)train));
}
