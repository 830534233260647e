/* score_case.h: score modifiers compiled without a cache, and what they make of a block of scores, for tests. The code
 * is loaded twice, by ORC and by the runtime's own loader; both must give the same bits. */
#ifndef TEST_SCORE_CASE_H
#define TEST_SCORE_CASE_H

#include "support.h"

#include "runtime/runtime.h"

typedef struct score_case {
  fly_score *score;
  flyi_code loaded;
  fly_bound *bound;
  flyi_mask_args *args;
} score_case;

/* Of a modifier, whose reference is taken over. geometry NULL: 4 heads, 200 queries, 300 keys. */
score_case score_case_of(fly_score *score, const fly_arg *values, int count, const fly_geometry *geometry);
/* From a source or the file of a modifier; target NULL: the best. */
score_case score_case_from(const char *source, const char *target, const fly_arg *values, int count,
                           const fly_geometry *geometry);
score_case score_case_file(const char *path, const char *target, const fly_arg *values, int count,
                           const fly_geometry *geometry);
void score_case_free(score_case *c);

/* s[64][64] becomes modified scores, and slope their derivatives, in guarded memory; the forward entry must agree with
 * the backward one. bits NULL: all pairs. */
void score_case_run(const score_case *c, int b, int h, int q0, int kv0, int rows, const uint64_t *bits, float *s,
                    float *slope);

#endif
