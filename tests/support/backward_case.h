/* backward_case.h: backward calls for tests: a call_case whose out and LSE are the oracle's, with gradients in
 * guarded memory. */
#ifndef TEST_BACKWARD_CASE_H
#define TEST_BACKWARD_CASE_H

#include "call_case.h"
#include "oracle_backward.h"

typedef struct backward_spec {
  call_spec call;
  bool d_lse;                  /* with a gradient of LSE */
  bool no_d_q, no_d_k, no_d_v; /* not wanted */
} backward_spec;

typedef struct backward_case {
  call_case base; /* base.call is the whole call */
  void *memory[5];
} backward_case;

void backward_init(backward_case *t, const backward_spec *spec, oracle_predicate *see, void *context);
void backward_run(backward_case *t);   /* the call has to succeed */
void backward_reset(backward_case *t); /* fills the gradients with what no test expects */
void backward_free(backward_case *t);

/* Initialises, runs, compares with the oracle, frees. */
void backward_test(const backward_spec *spec, oracle_predicate *see, void *context);

/* A 64-bit digest of all gradients: equal bits, equal digest. */
uint64_t backward_digest(const backward_case *t);

#endif
