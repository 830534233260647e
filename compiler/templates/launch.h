/* launch.h: the structs that the host and compiled code share. Plain C, no library; 64-bit strides throughout. */
#ifndef FLYMASK_LAUNCH_H
#define FLYMASK_LAUNCH_H

#include <stdint.h>

/* What a compiled mask reads beside b, h, q, kv: the call, and one 8-byte slot for each global of its source.
 * Slots, in order: the parameters (integers sign- or zero-extended, f32 in the low 4 bytes), then for each buffer
 * FLYI_BUFFER_SLOTS: pointer, element count, dim0 .. dim3. */
typedef struct flyi_mask_args {
  int64_t batch, heads;
  int64_t len_q, len_kv;   /* of every entry, where cu_* are null */
  int64_t q_offset;
  const int32_t *cu_q, *cu_kv;
  const int32_t *q_rows, *kv_rows; /* not null where the mask reads tokens: the host passes the identity then */
  int64_t q_stride_b, q_stride_h, kv_stride_b, kv_stride_h;
  uint64_t slots[];
} flyi_mask_args;

enum { FLYI_BUFFER_SLOTS = 6 };

/* Pairs are evaluated in blocks of 64 x 64. */
enum { FLYI_BLOCK = 64, FLYI_MAX_DIM = 512 /* of head_dim and value_dim */ };

/* Bit j of bits[r] is mask(b, h, q0 + r, kv0 + j). q0 has the offset added. The block may reach beyond the lengths: the
 * caller ignores those bits. */
typedef void flyi_tile_fn(const flyi_mask_args *args, int32_t b, int32_t h, int32_t q0, int32_t kv0,
                          uint64_t bits[FLYI_BLOCK]);

/* Inside compiled code: values that depend on the query row alone, and on the key alone, one slot of 8 bytes each; a
 * column slot holds 64 values side by side, each as wide as its type. */
enum { FLYI_ROW_SLOTS = 64, FLYI_COLUMN_SLOTS = 16 };
typedef struct flyi_row {
  uint64_t slot[FLYI_ROW_SLOTS];
} flyi_row;
typedef struct flyi_columns {
  uint64_t slot[FLYI_COLUMN_SLOTS][FLYI_BLOCK];
} flyi_columns;

#define FLYI_TILE_SYMBOL "fly_tile_bits"

/* s[64][64] holds the scores of a block, scaled, in natural units: its first `rows` rows become the modifier's results,
 * and slope[64][64] their derivatives by s. 16 keys of a row (from 0, 16, 32, 48) that bits[row] has none of may stay
 * as they are; bits null: all are wanted. The block may reach beyond the lengths, as above. */
typedef void flyi_score_fn(const flyi_mask_args *args, int32_t b, int32_t h, int32_t q0, int32_t kv0, int32_t rows,
                           const uint64_t *bits, float *s);
typedef void flyi_slope_fn(const flyi_mask_args *args, int32_t b, int32_t h, int32_t q0, int32_t kv0, int32_t rows,
                           const uint64_t *bits, float *s, float *slope);

#define FLYI_SCORE_SYMBOL "fly_score_tile"
#define FLYI_SLOPE_SYMBOL "fly_score_slope_tile"

/* ---- rows that kernels on the CPU ask for ahead ----------------------------------------------------------------- */

/* Rows that are needed soon: row i is at rows[i] * step bytes, or i * step where rows is null. */
typedef struct flyi_fetch_part {
  const char *plane;
  const int32_t *rows;
  int64_t step;
  int32_t count, bytes; /* of a row */
  uint8_t far;          /* rows of a map, in a plane of more than FLYI_FAR_BYTES */
} flyi_fetch_part;

/* What the pages reach that a core remembers: small ones, some thousands. */
enum { FLYI_FAR_BYTES = 16 << 20 };

/* ---- forward attention on the CPU (attn_fwd_cpu.c) ------------------------------------------------------------------
 *
 * Keys and values are packed 64 at a time: K as [dim rounded up to 4][64 keys], V as [64 keys][value_dim rounded up to
 * the target's lanes], both f32 and padded with zeros. A build that multiplies pairs (flyi_forward_code) has words of
 * two bf16 in their place: K as [half the dim, likewise][64 keys], V as [32 pairs of keys][value_dim, likewise]. A
 * block is packed by whoever needs it first, when it does: it is then used while it is in that core's cache. Up to 128
 * queries at a time walk their row of the block map. Row i of a tensor's plane begins at element rows[i] * stride, or
 * i * stride where rows is null. */
struct fly_run;
enum { FLYI_ITEM_QUERIES = 128 }; /* at most, in one launch */
/* Of a block. SPECIAL: it is packed, and V holds an infinity or a NaN. */
enum { FLYI_UNPACKED, FLYI_PACKING, FLYI_PACKED, FLYI_SPECIAL };
enum { FLYI_NOWHERE = -1, FLYI_CLAIMED = -2 }; /* places of a block that has none, or is just being given one */

/* The keys and values of a (batch, head), and what becomes of them. */
typedef struct flyi_pack_cpu {
  const void *k, *v; /* at the first row where rows is null */
  int64_t k_stride, v_stride, len_kv;
  int64_t k_bytes, v_bytes; /* of a plane */
  const int32_t *rows;
  int32_t type, dim, value_dim;
  float *packed_k, *packed_v; /* [places]; packed_v null: V stays where it is and is only looked at */
  /* [blocks]: where a block is packed; atomic. Those of a launch's runs have a place as long as it runs; of others it
   * may be another block's by now, and is good for requests alone. */
  const int32_t *place;
  uint8_t *state;             /* [blocks]: atomic, for threads that need a block at the same time */
} flyi_pack_cpu;

/* Rows of other tensors, one for each query: what follows a launch reads or writes them. */
enum { FLYI_BESIDE = 4 /* tensors, at most */ };

typedef struct flyi_beside_cpu {
  const char *rows;
  int64_t stride; /* bytes, as `row` */
  int32_t row, count;
} flyi_beside_cpu;

typedef struct flyi_forward_cpu {
  const void *q; /* of (b, h); q, out and lse at the first row where their rows are null */
  void *out;
  float *lse;    /* may be null */
  int64_t q_stride, out_stride, lse_stride;
  const int32_t *q_rows, *out_rows;
  int32_t count; /* queries, 1 to FLYI_ITEM_QUERIES, of one map tile */
  int32_t type, out_type, dim, value_dim;
  float scale;   /* times log2(e) */
  int32_t b, h, q0; /* what the mask is told about the first query */
  const flyi_pack_cpu *keys;
  const float *v; /* key block i, packed ones at their place: v + i * 64 * v_stride */
  int64_t v_stride;
  const struct fly_run *runs; /* of the queries' map tile */
  int64_t run_count;
  int32_t run_blocks;   /* blocks of 64 keys that a map tile is wide */
  flyi_tile_fn *tile;
  const flyi_mask_args *args;
  flyi_score_fn *score; /* null: no modifier, or one that changes the scores; `scale` is then without log2(e) */
  const flyi_mask_args *score_args;
  const float *sink;    /* a logit of the softmax's denominator alone; null: none */
  void *scratch;        /* aligned to 64, one for each thread */
  int64_t q_bytes, out_bytes; /* of a plane */
  const void *next_q;   /* rows that this thread most likely takes next: asked for in passing. null: none */
  void *next_out;
  const int32_t *next_rows; /* of next_q */
  int32_t next_count;
  const flyi_beside_cpu *beside; /* likewise asked for, one in each block from the second on */
  int32_t beside_count;
  uint8_t stream;       /* rows of out are whole lines of 64 bytes of stream_type that go past the cache */
} flyi_forward_cpu;

/* What a build of the template offers. */
typedef struct flyi_forward_code {
  int32_t lanes;
  int32_t pair; /* elements of packed K and V in 4 bytes: 2 for bf16 that stays bf16, else 1 */
  int32_t stream_type; /* of rows that can go past the cache; FLY_TYPE_NONE: of none */
  int64_t (*scratch_size)(int32_t dim, int32_t value_dim);
  void (*pack)(const flyi_pack_cpu *keys, int64_t block); /* ahead of its use */
  void (*forward)(const flyi_forward_cpu *call);
} flyi_forward_code;

/* ---- few queries and many keys on the CPU (attn_split_cpu.c) --------------------------------------------------------
 *
 * The queries of all heads of a group pass together over a range of its keys: a row is a query of a head, head by head.
 * What they make of it is a partial attention, and those of all ranges are joined. */
enum { FLYI_SPLIT_ROWS = 16 /* at most */, FLYI_SPLIT_KEYS = 2048 /* of a range */ };

typedef struct flyi_split_cpu {
  const void *q[FLYI_SPLIT_ROWS];
  const void *k, *v; /* of the group; at the entry's first row where rows is null */
  int64_t k_stride, v_stride;
  const int32_t *rows;
  int32_t heads, queries; /* of the group, of a head */
  int32_t type, dim, value_dim;
  float scale;      /* times log2(e) */
  int32_t b, h, q0; /* what the mask is told about the first query of the first head */
  int64_t first, last, len_kv; /* keys [first, last); first is a multiple of 64 */
  const struct fly_run *runs[FLYI_SPLIT_ROWS]; /* of each head's map tile */
  int64_t run_count[FLYI_SPLIT_ROWS];
  int32_t run_blocks;
  uint8_t one_mask; /* all heads see the same */
  uint8_t in_place; /* V is f32 in whole vectors and may be read where it is */
  flyi_tile_fn *tile;
  const flyi_mask_args *args;
  void *scratch;    /* aligned to 64, one for each thread */
  float *out;       /* [rows][width], width: value_dim rounded up to the lanes; not divided by the sum */
  float *state;     /* [rows][2]: the maximum of the scores, in base 2, and the sum of 2^(score - maximum) */
} flyi_split_cpu;

/* One row of the result. */
typedef struct flyi_join_cpu {
  const float *out, *state; /* of the row in the first range */
  int64_t out_step, state_step, count; /* to the next range; ranges */
  void *to;
  float *lse; /* may be null */
  int32_t type, value_dim;
} flyi_join_cpu;

/* What a build of the template offers. */
typedef struct flyi_split_code {
  int32_t lanes;
  int64_t (*scratch_size)(int32_t dim, int32_t value_dim);
  void (*split)(const flyi_split_cpu *call);
  void (*join)(const flyi_join_cpu *row);
} flyi_split_code;

/* ---- backward attention on the CPU (attn_bwd_cpu.c) -----------------------------------------------------------------
 *
 * In blocks of 64 rows of a (batch, head): Q, dO, K and the gradients as f32 [row][dim padded to the target's lanes], K
 * and V also transposed as [dim][64 keys]. The build for bf16 that stays bf16 puts words of two bf16 into the same
 * memory (attn_bwd_cpu.c); its gradients are f32. */

/* 64 queries made ready. Row i of a tensor is at rows[i] * stride elements, or i * stride where rows is null. */
typedef struct flyi_queries_cpu {
  const void *q, *out, *d_out;
  const float *lse, *d_lse; /* d_lse may be null */
  int64_t q_stride, out_stride, d_out_stride, lse_stride, d_lse_stride;
  const int32_t *q_rows, *out_rows; /* out_rows: of out, d_out, lse and d_lse */
  int32_t count, type, dim, value_dim;
  float scale;
  float *packed_q, *packed_d_out; /* 64 rows, padded with zeros; null: f32 that stays where it is, or rows not wanted */
  float *neg_lse, *neg_delta;     /* [64]: -lse in base 2; scale * (dlse - sum(dO * O)) */
} flyi_queries_cpu;

/* 64 keys made ready. */
typedef struct flyi_keys_cpu {
  const void *k, *v;
  int64_t k_stride, v_stride;
  const int32_t *rows;
  int32_t count, type, dim, value_dim;
  float scale;
  uint8_t natural;     /* scores are wanted in natural units: without log2(e) */
  float *k_transposed; /* [dim][64], times scale * log2(e) */
  float *v_transposed; /* [value_dim][64], times scale */
  float *packed_k;     /* as packed_q */
} flyi_keys_cpu;

/* They are asked for in passing, FLYI_FETCHES times with a block of pairs. */
enum { FLYI_FETCH_PARTS = 64, FLYI_FETCHES = 80 };
typedef struct flyi_fetch_cpu {
  flyi_fetch_part part[FLYI_FETCH_PARTS]; /* a ring */
  int32_t first, count; /* of the parts that are left */
  int32_t row;          /* of the first one, the next */
  int32_t rows;         /* at a time */
} flyi_fetch_cpu;

/* A block of pairs. */
typedef struct flyi_backward_cpu {
  const float *q, *d_out; /* [queries][...] */
  int64_t q_stride, d_out_stride;
  const float *neg_lse, *neg_delta;
  const float *k, *k_transposed, *v_transposed;
  int64_t k_stride;
  float *d_q;          /* [64][padded dim], with a stride: it may be the caller's */
  float *d_k, *d_v;    /* [64][padded dim]; either may be null: not wanted */
  int64_t d_q_stride;
  int32_t queries, keys; /* 1 to 64 */
  int32_t dim, value_dim;
  int32_t b, h, q0, kv0; /* what the mask is told */
  float scale;
  uint8_t full;    /* every pair is visible */
  uint8_t special; /* Q, dO or K holds an infinity or a NaN */
  flyi_tile_fn *tile;
  const flyi_mask_args *args;
  flyi_slope_fn *slope; /* of a score modifier, null: none; k_transposed is then times the scale alone */
  const flyi_mask_args *score_args;
  void *scratch;   /* aligned to 64; carries P and G from `block` to `add_queries` */
  flyi_fetch_cpu *fetch;
} flyi_backward_cpu;

/* f32 rows to rows of a tensor. */
typedef struct flyi_store_cpu {
  const float *in; /* null: zeros */
  int64_t in_stride, out_stride;
  void *out;
  const int32_t *rows;
  int32_t count, type, dim;
  uint8_t add;    /* to what the rows hold */
  uint8_t stream; /* rows, f32 or words, are whole lines of 64 bytes that go past the cache; `in` is there */
} flyi_store_cpu;

/* What a build of the template offers. */
typedef struct flyi_backward_code {
  int32_t lanes;
  int32_t stream_type; /* of rows that `store` can bring past the cache; FLY_TYPE_NONE: of none */
  int64_t scratch_size;
  int (*pack_queries)(const flyi_queries_cpu *queries); /* not 0: Q or dO holds an infinity or a NaN */
  int (*pack_keys)(const flyi_keys_cpu *keys);          /* not 0: K does */
  void (*block)(const flyi_backward_cpu *block);        /* P and G of the block; dV += P' dO, dK += G' Q */
  void (*add_queries)(const flyi_backward_cpu *block);  /* dQ += G K, after `block` */
  void (*store)(const flyi_store_cpu *store);
} flyi_backward_code;

/* ---- merging partial attentions on the CPU (merge_cpu.c) ------------------------------------------------------------
 *
 * Rows of one (batch, head). Row r of a tensor is at r * stride elements, of a partial one at rows[r] * stride where
 * rows is not null; rows[r] < 0: there is none. */
typedef struct flyi_partial_cpu {
  const void *out;
  const float *lse;
  const int32_t *rows;
  void *d_out;  /* may be null, as d_lse */
  float *d_lse;
  int64_t out_stride, lse_stride, d_out_stride, d_lse_stride;
  int32_t type;
} flyi_partial_cpu;

typedef struct flyi_merge_cpu {
  const flyi_partial_cpu *partials;
  int32_t count, rows, dim, type; /* type: of out and d_out */
  void *out;    /* null: backward */
  float *lse;   /* may be null, as d_lse */
  const void *d_out;
  const float *d_lse;
  int64_t out_stride, lse_stride, d_out_stride, d_lse_stride;
  double *scratch; /* [2 * count] */
} flyi_merge_cpu;

typedef struct flyi_merge_code {
  void (*forward)(const flyi_merge_cpu *call);
  void (*backward)(const flyi_merge_cpu *call);
} flyi_merge_code;

/* ---- gates on the CPU (gate_cpu.c) ----------------------------------------------------------------------------------
 *
 * Rows of one (batch, head); row r of a tensor is at r * stride elements. */
enum { FLYI_GATE_PARTS = 16 /* of a sum, at most */ };

typedef struct flyi_gate_cpu {
  const void *logits;
  int64_t logits_stride;
  int32_t logits_type, channels; /* 1, or the output's dim */
  const void *out;               /* what the part alone makes; backward: read for d_logits alone */
  int64_t out_stride;
  /* backward: */
  void *d_logits; /* may be null; may be logits itself */
  void *d_out;    /* may be null: the part's share of d_out */
  int64_t d_logits_stride, d_out_stride;
} flyi_gate_cpu;

typedef struct flyi_gated_cpu {
  const flyi_gate_cpu *parts;
  int32_t count, rows, dim, type; /* type: of out, d_out and the parts' */
  void *out;                      /* may be a part's out */
  const void *d_out;
  int64_t out_stride, d_out_stride;
} flyi_gated_cpu;

/* out[rows][width] = sum over i < depth of a[i * a_step + row * a_row] * b[i * b_step + ...], or added to what is
 * there. rows: 2, 4 or 8. width: whole vectors. ahead: bytes that are soon read or written, asked for in passing. */
typedef struct flyi_product_cpu {
  float *out;
  const float *a, *b;
  int64_t out_row, a_step, a_row, b_step;
  const char *ahead;
  int64_t ahead_bytes;
  int32_t rows, width, depth, add;
} flyi_product_cpu;

/* out[r][c] = bias[c] + sum over i < depth of a[r][i] * b[c][i]. columns: a multiple of 4. */
typedef struct flyi_dots_cpu {
  float *out;
  const float *a, *b, *bias;
  int64_t out_row, a_row, b_row, columns;
  int32_t rows, depth;
} flyi_dots_cpu;

typedef struct flyi_gate_code {
  int32_t lanes;
  void (*forward)(const flyi_gated_cpu *call);
  void (*backward)(const flyi_gated_cpu *call); /* of one part */
  void (*product)(const flyi_product_cpu *product);
  void (*dots)(const flyi_dots_cpu *dots);
  /* Rows as f32 and back: `count` of them, dim elements each. */
  void (*load)(float *out, int64_t out_stride, const void *in, int64_t in_stride, int32_t type, int32_t count,
        int32_t dim);
  void (*store)(void *out, int64_t out_stride, int32_t type, const float *in, int64_t in_stride, int32_t count,
        int32_t dim);
} flyi_gate_code;

/* ---- choosing blocks of keys on the CPU (select_cpu.c) ----------------------------------------------------------- */

/* The mean of some rows. */
typedef struct flyi_mean_cpu {
  const void *rows;
  int64_t stride, count;
  int32_t type, dim;
  float *out;
} flyi_mean_cpu;

/* The best blocks of some queries. */
typedef struct flyi_select_cpu {
  const void *q;
  int64_t q_stride;
  int32_t type, dim, count; /* count: queries, 1 to 64 */
  const float *means; /* [blocks rounded up to 4][dim] */
  int64_t position;   /* of the first query */
  int64_t block;      /* keys of one */
  int32_t top;        /* 1 or more */
  int32_t *lists;     /* [count][top]: ascending, the own block last, then -1 */
  flyi_beside_cpu next; /* queries that this thread most likely takes next: asked for in passing */
  float *scratch;     /* as many as `scratch` says */
} flyi_select_cpu;

typedef struct flyi_select_code {
  int64_t (*scratch)(int32_t dim, int32_t top); /* floats */
  void (*mean)(const flyi_mean_cpu *mean);
  void (*select)(const flyi_select_cpu *select);
} flyi_select_code;

#endif
