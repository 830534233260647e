/* oracle_score.h: attention with a score modifier and sinks in double precision, pair by pair, forward and backward:
 * an extension of oracle.h and oracle_backward.h. The modifier's derivative is taken by central differences. Shares no
 * code with the library. */
#ifndef TEST_ORACLE_SCORE_H
#define TEST_ORACLE_SCORE_H

#include "oracle.h"

/* s' for a score in natural units. A result of -infinity hides the pair, a NaN makes the row NaN. */
typedef double oracle_modifier(void *context, double s, int b, int h, int q, int kv);

typedef struct oracle_scored {
  const fly_attention *call; /* complete geometry; sink as in the call */
  oracle_predicate *see;
  void *see_context;
  oracle_modifier *modify; /* NULL: none */
  void *modify_context;
  double operands; /* what a kernel for 16 bits rounds P and dS by, relatively; 0: it does not */
} oracle_scored;

/* Writes out and lse of the call, rounded once. */
void oracle_scored_forward(const oracle_scored *o);
/* Compares out and lse, rows of the call alone. */
void oracle_scored_check(const oracle_scored *o, const char *what);
/* Compares d_q, d_k, d_v and d_sink where they are wanted. */
void oracle_scored_check_backward(const oracle_scored *o, const char *what);

#endif
