/* gated.h: a gated call on its way from the caller's struct to the kernels. */
#ifndef FLYMASK_GATED_H
#define FLYMASK_GATED_H

#include "call.h"

enum { FLYI_GATE_ROWS = 64 /* of a tile */ };

const flyi_gate_code *flyi_gate_code_of(flyi_isa isa);

/* ---- a checked call (gated_check.c) ------------------------------------------------------------------------------ */

/* The caller's struct and parts, complete. */
typedef struct flyi_gated {
  fly_gated_call c;
  fly_gated_part *parts; /* [c.count]; attention has the call's tensors, but for out and lse */
  const flyi_gate_code *code;
  flyi_threads threads;
  int64_t batch, heads, rows, value_dim; /* of out */
  bool projects;                         /* some gate is projected */
} flyi_gated;

/* The caller frees `parts`, also after a failure. */
fly_status flyi_gated_check(const fly_gated_call *call, bool backward, flyi_gated *out, fly_error *error);
/* Whether a part writes every row of its output: a row map has no row twice. */
bool flyi_gated_covers(const flyi_gated *g, int part);
static inline bool flyi_gate_projected(const fly_gate *gate) { return !gate->logits.data; }

/* A checked call whose kernels are for GPUs (cuda_gated.c). */
fly_status flyi_cuda_gated_call(const flyi_gated *g, bool backward, fly_error *error);

/* ---- projected gates (gated_project.c) --------------------------------------------------------------------------- */

/* Logits of one part, token by token: [batch][tiles of 64 rows][stride], channel c of head h at h * channels + c. */
typedef struct flyi_logits {
  float *data;     /* NULL: not projected */
  int64_t columns; /* heads * channels */
  int64_t stride;  /* padded to vectors */
  float *weight;   /* [columns][stride of x] */
  float *bias;     /* [columns] */
  float *panels;   /* backward: the weights in panels of 64 channels of x: [columns][64] each */
} flyi_logits;

typedef struct flyi_projection {
  const flyi_gated *g;
  flyi_logits *part;
  int64_t tiles;  /* of 64 rows, of a batch entry */
  int64_t width;  /* of x */
  int64_t stride; /* of a row of x, with a channel that is 1, padded */
  float *scratch; /* [workers]: two tiles of x */
  int64_t scratch_floats;
  void *memory;
} flyi_projection;

/* Packs the weights and makes the logits. */
fly_status flyi_projection_create(const flyi_gated *g, bool backward, flyi_projection *out, fly_error *error);
/* From logits that have become their gradients: d_x, d_weight, d_bias, where wanted. */
void flyi_projection_backward(flyi_projection *p);
void flyi_projection_free(flyi_projection *p);

#endif
