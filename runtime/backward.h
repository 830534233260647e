/* backward.h: a backward call on its way from the checked call to the kernels. */
#ifndef FLYMASK_BACKWARD_H
#define FLYMASK_BACKWARD_H

#include "call.h"

/* ---- checks (backward_check.c) ----------------------------------------------------------------------------------- */

/* flyi_call_check and all that concerns the gradients. */
fly_status flyi_backward_check(const fly_attention *call, flyi_call *out, fly_error *error);

/* ---- rows of gradients (backward_rows.c) ------------------------------------------------------------------------- */

/* The queries' or the keys' side of a call: where gradients of its rows go. */
typedef struct flyi_side {
  bool queries;
  bool repeats;   /* some row of the tensor is several rows of the call: gradients wait in `sums` until all are there */
  bool sweeps;    /* rows are left to look at in the end: repeated ones, or such that the call does not read */
  bool streams;   /* finished rows are whole lines of the cache, and more than it holds: they go past it */
  int64_t rows;   /* of the tensor */
  int64_t blocks; /* of 64 rows, of the longest entry */
  int count;      /* tensors of gradients: dQ, or dK and dV */
  fly_tensor *gradient[2];
  int32_t width[2]; /* their padded dimensions */
  /* The workspace: */
  float *sums[2]; /* where rows repeat: [groups * heads of the side][blocks * 64][width] */
  int64_t *first; /* [planes][rows]: the first row of the call behind a row of the tensor, -1: none */
  int64_t *next;  /* where rows repeat, [groups * ...][blocks * 64]: the next one */
} flyi_side;

struct flyi_backward;
/* Fills in a side, without the workspace. */
fly_status flyi_side_plan(const struct flyi_backward *b, bool queries, flyi_side *side, fly_error *error);
/* The sums of a row of (batch entry, query head), where rows repeat. */
float *flyi_side_sums(const struct flyi_backward *b, const flyi_side *side, int which, int64_t entry, int64_t h,
                      int64_t row);
/* Up to 64 finished rows from `row` of (batch entry, query head) to where they go; sums null: zeros. */
void flyi_side_store(const struct flyi_backward *b, const flyi_side *side, int which, int64_t entry, int64_t h,
                     int64_t row, int count, const float *sums, int64_t stride);
/* What is left when all else is done. */
void flyi_side_finish(const struct flyi_backward *b, const flyi_side *side);

/* ---- sinks (sink.c) ---------------------------------------------------------------------------------------------- */

/* Writes d_sink, where it is wanted. */
void flyi_sink_gradient(const struct flyi_backward *b);

/* ---- the whole (backward.c) -------------------------------------------------------------------------------------- */

/* A tile of keys: what one item of work takes through all queries that see them, in blocks of 64 keys. */
enum { FLYI_TILE_BLOCKS = 4 /* at most */, FLYI_CACHE_BYTES = 768 << 10 /* of a core's second-level cache */ };

typedef struct flyi_backward {
  const flyi_call *call;
  const fly_map *map;
  const flyi_backward_code *code;
  flyi_threads threads;
  int workers;
  int32_t k_width, v_width; /* padded head_dim, value_dim */
  int64_t groups, group_heads, phase_groups;
  int64_t query_blocks, key_tiles;                           /* of the longest entry */
  int tile_blocks;                                           /* of a tile of keys */
  bool q_in_place, d_out_in_place, k_in_place, d_q_in_place; /* whole blocks of 64 rows */
  flyi_side queries, keys;
  int64_t key_bytes, scratch_bytes, bytes;
  int64_t first, phase; /* first group of the current phase, and how many */
  /* The workspace: of a phase, as many places as there are query blocks of all heads, unless they are in place: then
   * one for each head, for the rest of its rows that is no whole block. */
  float *q, *d_out, *d_q;
  flyi_places *places;
  atomic_uint *after;         /* [places]: 1 + the next one of those that are free; 0: none */
  int32_t *place;             /* [phase_groups, group_heads, query_blocks]: where a block's rows are */
  float *neg_lse, *neg_delta; /* [phase_groups, group_heads, query_blocks, 64] */
  uint8_t *special;           /* [phase_groups, group_heads, query_blocks] */
  atomic_int *turn;           /* likewise: the tile of keys that may add to dQ next */
  char *scratch;              /* [workers] */
  flyi_fetch_cpu *fetch;      /* likewise */
} flyi_backward;

/* ---- rows that are needed soon (backward_fetch.c) ---------------------------------------------------------------- */

/* `count` rows of a plane, from `row` or as `rows` says. More than there is room for is forgotten. */
void flyi_fetch_add(flyi_fetch_cpu *f, const fly_tensor *t, int64_t b, int64_t h, int64_t row, const int32_t *rows,
                    int count);
/* 64 rows of `width` floats; null: none. */
void flyi_fetch_add_block(flyi_fetch_cpu *f, const float *rows, int width);

/* ---- blocks of queries (backward_queries.c) ---------------------------------------------------------------------- */

/* 64 queries of a head of a group. */
typedef struct flyi_queries {
  flyi_group group;
  int64_t h, plane, slot, row, first_row; /* plane and slot of the phase; row of the entry, with its sequence's start */
  int count;
  bool first; /* the tile at hand is the first that meets them */
  bool q_in_place, d_out_in_place, d_q_in_place;
  float *q, *d_out, *d_q; /* where they are ready; d_q null: not wanted */
} flyi_queries;

flyi_queries flyi_queries_at(const flyi_backward *b, int64_t g, flyi_group group, int64_t head, int64_t block);
/* Before the tiles of a phase: an item of flyi_queries_items. */
void flyi_queries_begin(void *backward, int64_t item, int worker);
int64_t flyi_queries_items(const flyi_backward *b);
/* Tile `tile` meets the queries: when this returns they are ready. */
void flyi_queries_open(const flyi_backward *b, flyi_queries *x, int tile, flyi_fetch_cpu *fetch);
/* Asks for what an earlier tile has made ready. */
void flyi_queries_fetch(const flyi_backward *b, flyi_queries *x, flyi_fetch_cpu *fetch);
/* Adds the tile's part of dQ, `count` blocks of pairs, in its turn. */
void flyi_queries_add(const flyi_backward *b, const flyi_queries *x, int tile, const flyi_backward_cpu *pairs,
                      int count);

/* ---- tiles of keys (backward_tiles.c) ---------------------------------------------------------------------------- */

void flyi_backward_tile(void *backward, int64_t item, int worker);

/* Bytes that 64 keys take in a worker's scratch memory. */
int64_t flyi_backward_key_bytes(const flyi_backward *b);

#endif
