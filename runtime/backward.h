/* backward.h: a backward call on its way from the checked call to the kernels. */
#ifndef FLYMASK_BACKWARD_H
#define FLYMASK_BACKWARD_H

#include "call.h"

/* ---- checks (backward_check.c) ------------------------------------------------------------------------------------------ */

/* flyi_call_check and all that concerns the gradients. */
fly_status flyi_backward_check(const fly_attention *call, flyi_call *out, fly_error *error);

/* ---- rows of gradients (backward_rows.c) --------------------------------------------------------------------------------- */

/* The queries' or the keys' side of a call: where gradients of its rows go. */
typedef struct flyi_side {
  bool queries;
  bool repeats;       /* some row of the tensor is several rows of the call: gradients wait in `sums` until all are there */
  bool sweeps;        /* rows of the tensor are left to look at in the end: repeated ones, or such that the call does not read */
  int64_t rows;       /* of the tensor */
  int64_t blocks;     /* of 64 rows, of the longest entry */
  int count;          /* tensors of gradients: dQ, or dK and dV */
  fly_tensor *gradient[2];
  int32_t width[2];   /* their padded dimensions */
  /* The workspace: */
  float *sums[2];     /* where rows repeat: [groups * heads of the side][blocks * 64][width] */
  int64_t *first;     /* [planes][rows]: the first row of the call behind a row of the tensor, -1: none */
  int64_t *next;      /* where rows repeat, [groups * ...][blocks * 64]: the next one */
} flyi_side;

struct flyi_backward;
/* Fills in a side, without the workspace. */
fly_status flyi_side_plan(const struct flyi_backward *b, bool queries, flyi_side *side, fly_error *error);
/* The sums of a row of (batch entry, query head), where rows repeat. */
float *flyi_side_sums(const struct flyi_backward *b, const flyi_side *side, int which, int64_t entry, int64_t h, int64_t row);
/* Up to 64 finished rows from `row` of (batch entry, query head) to where they go; sums null: zeros. */
void flyi_side_store(const struct flyi_backward *b, const flyi_side *side, int which, int64_t entry, int64_t h, int64_t row,
                     int count, const float *sums, int64_t stride);
/* What is left when all else is done. */
void flyi_side_finish(const struct flyi_backward *b, const flyi_side *side);

/* ---- the whole (backward.c), its tiles (backward_tiles.c) ------------------------------------------------------------------ */

/* A tile of keys: what one item of work takes through all queries that see them. */
enum { FLYI_TILE_BLOCKS = 2 /* of 64 keys, at most */ };

typedef struct flyi_backward {
  const flyi_call *call;
  const fly_map *map;
  const flyi_backward_code *code;
  flyi_threads threads;
  int workers, tile_blocks;
  int32_t k_width, v_width; /* padded head_dim, value_dim */
  int64_t groups, group_heads, phase_groups;
  int64_t query_blocks, key_tiles; /* of the longest entry */
  bool q_in_place, d_out_in_place, k_in_place, d_q_in_place; /* whole blocks of 64 rows */
  flyi_side queries, keys;
  int64_t key_bytes, scratch_bytes, bytes;
  int64_t first, phase; /* first group of the current phase, and how many */
  /* The workspace: of a phase, for each query block of each head, unless it is in place: then one for each head, for the rest
   * of its rows that is no whole block. */
  float *q, *d_out, *d_q;
  float *neg_lse, *neg_delta; /* [phase_groups, group_heads, query_blocks, 64] */
  uint8_t *special;           /* [phase_groups, group_heads, query_blocks] */
  atomic_int *turn;           /* likewise: the tile of keys that may add to dQ next; -1: all have */
  char *scratch;              /* [workers] */
} flyi_backward;

/* Prepares the phase's item: some blocks of queries. */
void flyi_backward_prepare(void *backward, int64_t item, int worker);
int64_t flyi_backward_prepare_items(const flyi_backward *b);
/* A tile of keys. */
void flyi_backward_tile(void *backward, int64_t item, int worker);

/* Bytes that a tile's block of 64 keys takes in a worker's scratch memory. */
int64_t flyi_backward_key_bytes(const flyi_backward *b);

#endif
