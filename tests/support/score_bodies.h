/* score_bodies.h: score modifiers that try the language's corners, as sources and as formulas in double precision. */
#ifndef TEST_SCORE_BODIES_H
#define TEST_SCORE_BODIES_H

#include "oracle_score.h"

typedef struct score_body {
  const char *body;         /* of float score(float s, int b, int h, int q, int kv) */
  oracle_modifier *formula; /* its context is the call */
} score_body;

/* SCORE_WAVE gives garbage where a causal mask hides; SCORE_HOLES hides every fifth diagonal. */
enum { SCORE_ALIBI, SCORE_SOFTCAP, SCORE_WAVE, SCORE_HOLES, SCORE_TOKENS, SCORE_LOOP, SCORE_BODIES };
extern const score_body score_bodies[SCORE_BODIES];

#endif
