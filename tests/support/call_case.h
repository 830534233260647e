/* call_case.h: forward calls for tests: random tensors in guarded memory, any layout, row maps, ragged batches, with
 * a handmade mask. */
#ifndef TEST_CALL_CASE_H
#define TEST_CALL_CASE_H

#include "handmade.h"

typedef enum call_layout {
  LAYOUT_BHSD,      /* dense */
  LAYOUT_BSHD,      /* dense, heads inside of rows */
  LAYOUT_PADDED,    /* rows an odd number of elements apart */
  LAYOUT_BROADCAST, /* K and V: strides of 0 over batch and heads; the rest dense */
  LAYOUTS
} call_layout;

/* What is 0 or NULL has a default: f32, 1 batch entry, 1 head, kv_heads as heads, tiles of 128, amplitude 1, scale
 * 1/sqrt(D). */
typedef struct call_spec {
  fly_type type;
  int dim, value_dim;
  const char *target;
  int64_t batch, heads, kv_heads, len_q, len_kv, q_offset;
  const int32_t *cu_q, *cu_kv; /* ragged; len_q and len_kv are then unused */
  call_layout layout;
  int q_rows, kv_rows, out_rows; /* 1: one map for all, 2: one for each (batch, head), 3: q and kv with duplicates */
  int tile_q, tile_kv, demote, threads, seed;
  bool no_lse;
  float amplitude, scale;
  flyi_tile_fn *tile;
} call_spec;

enum { CALL_MAPS = 3 };

typedef struct call_case {
  call_spec spec;
  fly_attention call;
  handmade made;
  void *memory[8];
  int32_t *rows[CALL_MAPS];
} call_case;

#define CALL_UNTOUCHED (-77.0) /* what out and lse hold before the call; exact in every type */

void call_init(call_case *t, const call_spec *spec, oracle_predicate *see, void *context);
void call_run(call_case *t);   /* the call has to succeed */
void call_reset(call_case *t); /* out and lse as before the call */
void call_free(call_case *t);

/* Initialises, runs, compares with the oracle, frees. With FLYMASK_TEST_SHARE = n in the environment a test does so for
 * its first call and about one in n of the others, always the same ones: for emulated machines and sanitizers. */
void call_test(const call_spec *spec, oracle_predicate *see, void *context);

bool call_is_chosen(const call_spec *spec); /* by FLYMASK_TEST_SHARE */

/* Predicates. context: a window's left and right (int[2], -1 unbounded); a share of 256 (int). */
bool see_all(void *context, int b, int h, int q, int kv);
bool see_none(void *context, int b, int h, int q, int kv);
bool see_causal(void *context, int b, int h, int q, int kv);
bool see_window(void *context, int b, int h, int q, int kv);
bool see_random(void *context, int b, int h, int q, int kv);

/* The targets to test on this machine, NULL-terminated. */
#define CALL_FOR_TARGETS(target) for (const char *const *at_ = fly_cpu_targets(), *target; (target = *at_); at_++)

#endif
