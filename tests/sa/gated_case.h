/* gated_case.h: a gated sum with everything that it takes: parts 0 and 2 are permuted windows, part 1 is a plain one. */
#ifndef TEST_GATED_CASE_H
#define TEST_GATED_CASE_H

#include "scene.h"

enum { PARTS = 3 };

typedef enum gate_kind { GIVEN, PROJECTED, PROJECTED_WITHOUT_BIAS, GATE_KINDS } gate_kind;

typedef struct gated_spec {
  fly_type type, gate_type; /* 0: f32 */
  int64_t batch, heads, kv_heads, n, width;
  int dim, value_dim, parts, threads;
  gate_kind kind;
  bool by_channel, forget; /* forget: no outputs of the parts' own */
} gated_spec;

typedef struct gated_case {
  gated_spec spec;
  fly_mask *mask[2];
  fly_kernel *kernel[2];
  fly_sa *sa[PARTS];
  fly_bound *window;
  fly_gated_part parts[PARTS];
  fly_gated_call call;
} gated_case;

/* What the spec leaves at 0 is f32, two parts, OpenMP's threads; gradients are there, unwritten. */
void gated_case_init(gated_case *t, const gated_spec *spec);
void gated_case_free(gated_case *t);
void gated_case_forward(const gated_case *t);
void gated_case_backward(const gated_case *t);

/* In double precision: the logit of part i's gate for a token and a channel, and what opens it. */
double gated_case_logit(const gated_case *t, int i, int64_t b, int64_t h, int64_t s, int64_t d);
double sigmoid(double x);

#endif
