/* launch_rows.h: what the host shares with the kernels that no mask is joined with (merge_ptx.c, gate_ptx.c): they work
 * row by row, are compiled to PTX when the library is built, and take types and dimensions as arguments. Plain C, no
 * library. Each kernel has one struct as its argument, by value, FLYI_ROWS_THREADS threads a block, a warp a row. */
#ifndef FLYMASK_LAUNCH_ROWS_H
#define FLYMASK_LAUNCH_ROWS_H

#include "launch_cuda.h"

enum { FLYI_ROWS_THREADS = 128, FLYI_ROWS_WARPS = 4 };

/* Row r of the merged output is row rows[b * stride + h * stride + r] of a partial one, -1: none; rows 0: row r. */
typedef struct flyi_cuda_partial {
  flyi_cuda_tensor out, lse, d_out, d_lse; /* the last two: backward only; data 0: not wanted */
  uint64_t rows;                           /* int32 */
  int64_t rows_stride_b, rows_stride_h;
  int32_t type, reserved;
} flyi_cuda_partial;

/* fly_merge_rows, fly_merge_rows_backward. Row i of the grid is row i % rows of (b, h). */
typedef struct flyi_cuda_merge {
  uint64_t partials;                     /* flyi_cuda_partial [count]; 0: they differ from `first` by steps alone */
  flyi_cuda_partial first;
  int64_t out_step, lse_step, rows_step; /* elements from a partial to the next */
  flyi_cuda_tensor out, lse;             /* forward: written. backward: d_out and d_lse. lse.data 0: there is none */
  uint64_t out_rows, cu;                 /* int32, forward: where rows go, as flyi_cuda_call; 0: the identity */
  int64_t out_rows_stride_b, out_rows_stride_h;
  int64_t total;                         /* batch * heads * rows */
  int32_t count, type, dim, rows, heads, reserved;
} flyi_cuda_merge;

/* fly_gate_rows, fly_gate_rows_backward, fly_zero_rows. */
typedef struct flyi_cuda_gate {
  flyi_cuda_tensor logits, out;    /* out: what the part alone makes */
  flyi_cuda_tensor d_logits, d_out; /* backward: written; data 0: not wanted */
  int32_t logits_type, channels;   /* 1, or the output's dim */
} flyi_cuda_gate;

typedef struct flyi_cuda_gated {
  flyi_cuda_tensor out; /* forward: written. backward: d_out, and the first part is the one. zero: written */
  int64_t total;        /* batch * heads * rows */
  int32_t count, type, dim, rows, heads, reserved;
  flyi_cuda_gate parts[FLYI_GATE_PARTS];
} flyi_cuda_gated;

#endif
