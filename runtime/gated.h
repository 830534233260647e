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

/* The gates of all parts as columns, channel c of head h of part i at first[i] + h * channels + c. Tokens are in tiles
 * of 64: tile t of batch entry b is item b * tiles + t. */
typedef struct flyi_projection {
  const flyi_gated *g;
  int64_t first[FLYI_GATE_PARTS + 1];
  int64_t tiles;  /* of a batch entry */
  int64_t width;  /* of x */
  int64_t row;    /* columns, padded to fours */
  int64_t stride; /* of a row of weights: width, padded to vectors, and one vector more */
  int64_t ranges; /* backward: of items, for which sums over tokens are made; 0: many gates, some at a time */
  float *logits;  /* [items][64][row], later their gradients */
  float *weight;  /* [row][stride] */
  float *bias;    /* [row] */
  float *sums;    /* backward: [ranges, or 1][row][stride], d_weight and behind it d_bias */
  float *scratch; /* [workers]: a tile of x, four rows of d_x */
  int64_t scratch_floats;
} flyi_projection;

/* The sizes, and the bytes of memory that it works in, 0 if all gates are given. False: more than can be counted. */
bool flyi_projection_plan(flyi_projection *out, const flyi_gated *g, bool backward, size_t *bytes);
/* Packs the weights and makes the logits. */
void flyi_projection_create(flyi_projection *p, bool backward, void *memory);
/* Where rows from `row` on of a projected part have their logits, which their gradients may replace. Rows of several
 * tiles follow each other. */
void flyi_projection_place(const flyi_projection *p, int part, int64_t b, int64_t h, int64_t row, flyi_gate_cpu *out);
/* From logits that have become their gradients: d_x, d_weight, d_bias, where wanted. */
void flyi_projection_backward(flyi_projection *p);

#endif
