/* launch_rows.h: what the host shares with the kernels that no mask is joined with (merge_ptx.c, gate_ptx.c,
 * project_ptx.c, choose_ptx.c): they are compiled to PTX when the library is built, and take types and dimensions as
 * arguments. Plain C, no library. Each kernel has one struct as its argument, by value, and FLYI_ROWS_THREADS threads a
 * block; merging and gates work row by row, a warp a row. */
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
  int64_t out_step, lse_step, rows_step; /* elements from a partial to the next; without rows rows_step is 0 */
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

/* ---- projected gates: products of matrices ----------------------------------------------------------------------- */

/* A block has TILE x TILE elements of a product, STEP of the depth at a time. */
enum { FLYI_PRODUCT_TILE = 64, FLYI_PRODUCT_STEP = 16, FLYI_PRODUCT_PITCH = FLYI_PRODUCT_TILE + 4,
       FLYI_PRODUCT_SHARED = 2 * FLYI_PRODUCT_STEP * FLYI_PRODUCT_PITCH * 4 /* bytes */ };

/* Where index i is: at element i / each * outer + i % each * inner. */
typedef struct flyi_cuda_axis {
  int64_t outer, inner;
  int32_t each, reserved;
} flyi_cuda_axis;

typedef struct flyi_cuda_matrix {
  uint64_t data;
  flyi_cuda_axis row, column;
  int32_t type;
  int32_t rows;       /* rows from here on are all ones; INT32_MAX: none is */
  int32_t rows_first; /* neighbours in memory are those of a column */
  int32_t reserved;
} flyi_cuda_matrix;

typedef struct flyi_cuda_factors {
  flyi_cuda_matrix a, b;
  int32_t depth, reserved;
} flyi_cuda_factors;

/* fly_gate_product: out(i, j) = sum over factors and k of a(i, k) b(j, k). Block x is the tile (x / across % down, x %
 * across), across and down tiles of columns and rows, of slice x / across / down, which has slice_depth of each depth
 * and writes slice_step elements behind the one before. */
typedef struct flyi_cuda_products {
  flyi_cuda_factors factors[FLYI_GATE_PARTS];
  flyi_cuda_matrix out; /* written; its rows and rows_first are not used */
  int64_t slice_step;
  int32_t count, rows, columns, slice_depth;
} flyi_cuda_products;

/* fly_gate_slices: from[slices][rows][width + 1], the last column for the bias, summed in order. */
typedef struct flyi_cuda_slices {
  uint64_t from;                     /* f32 */
  flyi_cuda_tensor d_weight, d_bias; /* row r is row r % channels of head r / channels; data 0: not wanted */
  int32_t weight_type, bias_type, slices, rows, width, channels;
} flyi_cuda_slices;

/* ---- MoBA's choice ----------------------------------------------------------------------------------------------- */

/* fly_block_means (kv_planes * blocks warps), then fly_choose_blocks (`warps` of them, a multiple of
 * FLYI_ROWS_WARPS). */
typedef struct flyi_cuda_choice {
  flyi_cuda_tensor q, k;
  uint64_t means;    /* f32 [kv_planes][blocks][dim] */
  uint64_t scores;   /* f32 [warps][blocks] */
  uint64_t lists;    /* int32 [total][top]: the own block, the earlier ones best first; -1: none */
  int64_t kv_planes; /* batch * heads / group */
  int64_t total;     /* batch * heads * rows */
  int64_t q_offset;
  int32_t type, dim, rows, heads, group, block, top, warps;
  int32_t blocks;    /* whole blocks of keys: any that is earlier than some query's own is one */
  int32_t reserved;
} flyi_cuda_choice;

#endif
