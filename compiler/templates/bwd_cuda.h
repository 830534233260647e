/* bwd_cuda.h: what both CUDA kernels of the backward pass do (attn_bwd_keys_cuda.c, attn_bwd_queries_cuda.c). A block
 * of threads owns rows of one side, a warp 16 or 32 of them, and walks through tiles of the other side; with A the
 * rows that it owns,
 *
 *     P = 2^(scale log2(e) Q K' - LSE)      delta = rowsum(dO * O) - dLSE      dS = P * (dO V' - delta)
 *     dV = P' dO                            dK = scale dS' Q                   dQ = scale dS K
 *
 * (with a score modifier P = 2^(log2(e) modifier(scale Q K') - LSE), and dS has its slope as a factor).
 * P and dS come out as C operands whose rows are the warp's own, which are the A operands of the products that
 * follow: so they stay in registers. Sums are f32, in the order of the walk; nothing is shared between blocks.
 *
 * bwd_stages 2: tiles are double-buffered, one barrier each; 1: one buffer, two barriers, less shared memory. */
#ifndef FLYMASK_BWD_CUDA_H
#define FLYMASK_BWD_CUDA_H

#include "cuda_score.h"

CONSTANT bwd_dim, bwd_value_dim; /* of Q and K; of V and dO */
CONSTANT bwd_depth, bwd_width;   /* the same as tiles have them: multiples of 16 */
CONSTANT bwd_blocks, bwd_warps;  /* of 16 rows a warp; of a block */
CONSTANT bwd_inner;              /* rows of a tile that passes by */
CONSTANT bwd_stages;
CONSTANT bwd_keep;  /* the own rows' operands that stay in registers: */
enum { KEEP_K = 1 /* of K or Q */, KEEP_V = 2 /* of V or dO */ };
CONSTANT bwd_split; /* one walk for each gradient of keys: where the sums of both take too many registers */
CONSTANT bwd_type;  /* of the tensors */

#define BF16 (bwd_type == TYPE_BF16)
#define SIZE (bwd_type == TYPE_F32 ? 4 : 2) /* bytes of an element */
#define OUTER (16 * bwd_blocks * bwd_warps)
/* Narrow rows are shared out, and lie, as if they were wider, so that one pass of the block copies no more rows than
 * a tile has. */
#define LEAST (8 * (32 * bwd_warps / bwd_inner))
#define SHARE_K ((struct share){bwd_depth < LEAST ? LEAST : bwd_depth, bwd_dim, bwd_warps})       /* of Q and K */
#define SHARE_V ((struct share){bwd_width < LEAST ? LEAST : bwd_width, bwd_value_dim, bwd_warps}) /* of V and dO */
#define PITCH_K tile_pitch(SHARE_K.width)
#define PITCH_V tile_pitch(SHARE_V.width)
#define BYTES_K (u32)(bwd_inner * PITCH_K)
#define BYTES_V (u32)(bwd_inner * PITCH_V)

typedef float pairs_t[MAX_BLOCKS][MAX_INNER / 8][4];
typedef float sums_t[MAX_BLOCKS][MAX_WIDTH / 8][4];
typedef u32 factors_t[MAX_BLOCKS][MAX_INNER / 16][4];
typedef u32 operands_t[MAX_BLOCKS][MAX_WIDTH / 16][4];

/* Where a lane's ldmatrix addresses begin, for tiles of both widths. */
struct patterns {
  struct pattern rows_k, columns_k, rows_v, columns_v;
};
INL struct patterns patterns_of(i32 lane) {
  return (struct patterns){pattern_rows(lane, PITCH_K), pattern_columns(lane, PITCH_K), pattern_rows(lane, PITCH_V),
                           pattern_columns(lane, PITCH_V)};
}
/* The same from their first registers, which alone stay alive from tile to tile. */
INL struct pattern renewed_pattern(const struct pattern *p) {
  const u32 first = (u32)renewed((i32)p->at[0]);
  struct pattern again;
  UNROLL for (i32 j = 0; j < 4; j++) again.at[j] = first ^ (u32)(j * 32);
  return again;
}
INL struct patterns renewed_patterns(const struct patterns *p) {
  struct patterns again = {.rows_k = renewed_pattern(&p->rows_k), .columns_k = renewed_pattern(&p->columns_k)};
  again.rows_v = PITCH_V == PITCH_K ? again.rows_k : renewed_pattern(&p->rows_v);
  again.columns_v = PITCH_V == PITCH_K ? again.columns_k : renewed_pattern(&p->columns_v);
  return again;
}

/* A step of a walk in one register: tiles are below 2^30 / 16. */
INL i32 next_step(struct walk *w, const flyi_cuda_map *map, i32 tiles) {
  const struct step s = walk_step(w, map, tiles);
  return s.tile << 2 | s.kind;
}
INL i32 tile_of(i32 step) { return step >> 2; }
INL i32 kind_of(i32 step) { return step & 3; }

/* ---- copies ------------------------------------------------------------------------------------------------------ */

/* Rows of two tensors that pass by together: K and V, or Q and dO, whose rows may be other ones. */
struct passing {
  struct source k, v;
  struct rows rows_k, rows_v;
  u32 to_k, to_v;       /* of this thread, in the first stage */
  i32 dealt_k, dealt_v; /* memory rows of the tile that is copied next */
  i32 length;
};

INL void deal(struct passing *p, i32 tile) {
  p->dealt_k = deal_rows(SHARE_K, p->rows_k, tile * bwd_inner, bwd_inner, p->length);
  p->dealt_v = deal_rows(SHARE_V, p->rows_v, tile * bwd_inner, bwd_inner, p->length);
}
INL void copy_passing(const struct passing *p, i32 tile, u32 stage, i32 aligned) {
  copy_tile(SHARE_K, p->to_k + stage * BYTES_K, p->k, p->dealt_k, tile * bwd_inner, bwd_inner, p->length, aligned);
  copy_tile(SHARE_V, p->to_v + stage * BYTES_V, p->v, p->dealt_v, tile * bwd_inner, bwd_inner, p->length, aligned);
}

/* The rows that the block owns, to the tile at `to`. */
INL void copy_own(struct share s, u32 to, const flyi_cuda_tensor *t, i32 b, i32 h, struct rows rows, i32 first,
                  i32 length, i32 aligned) {
  i32 dealt = deal_rows(s, rows, first, OUTER, length);
  copy_tile(s, to + share_at(s), source_of(s, t, b, h), dealt, first, OUTER, length, aligned);
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

INL void load_kept(operands_t kept, const struct pattern *rows, u32 own, i32 width, i32 pitch) {
  UNROLL for (i32 a = 0; a < bwd_blocks; a++) UNROLL for (i32 k = 0; k < width / 16; k++)
      load_matrices(kept[a][k], matrix_at(rows, own, pitch, a * 16, k));
}

/* s = A B', over the channels: own rows A, passing rows B. */
INL void multiply_channels(pairs_t s, i32 keep, const operands_t kept, const struct pattern *rows,
                           const struct pattern *columns, u32 own, u32 passing, i32 width, i32 pitch) {
  UNROLL for (i32 a = 0; a < bwd_blocks; a++) UNROLL for (i32 i = 0; i < bwd_inner / 8; i++)
      UNROLL for (i32 j = 0; j < 4; j++) s[a][i][j] = 0;
  UNROLL for (i32 k = 0; k < width / 16; k++) {
    u32 loaded[MAX_BLOCKS][4];
    if (!keep)
      UNROLL for (i32 a = 0; a < bwd_blocks; a++) load_matrices(loaded[a], matrix_at(rows, own, pitch, a * 16, k));
    UNROLL for (i32 n = 0; n < bwd_inner / 16; n++) {
      u32 r[4];
      load_matrices(r, matrix_at(columns, passing, pitch, n * 16, k));
      UNROLL for (i32 a = 0; a < bwd_blocks; a++) {
        const u32 *x = keep ? kept[a][k] : loaded[a];
        multiply_add(BF16, s[a][2 * n], x, r[0], r[1]);
        multiply_add(BF16, s[a][2 * n + 1], x, r[2], r[3]);
      }
    }
  }
}

/* P times the modifier's slope, of which dS is made. What is not seen, or has no weight, has no slope: it may be
 * infinite or a NaN there. */
INL void scale_weights(pairs_t p, const pairs_t slopes) {
  UNROLL for (i32 a = 0; a < bwd_blocks; a++) UNROLL for (i32 i = 0; i < bwd_inner / 8; i++)
      UNROLL for (i32 j = 0; j < 4; j++) p[a][i][j] = p[a][i][j] != 0 ? p[a][i][j] * slopes[a][i][j] : 0;
}

/* C operands as A operands of 16 bits. */
INL void pack_pairs(factors_t f, const pairs_t s) {
  UNROLL for (i32 a = 0; a < bwd_blocks; a++) UNROLL for (i32 k = 0; k < bwd_inner / 16; k++)
      UNROLL for (i32 i = 0; i < 4; i++)
          f[a][k][i] = pack(BF16, s[a][2 * k + i / 2][2 * (i & 1)], s[a][2 * k + i / 2][2 * (i & 1) + 1]);
}

/* sums += F B, over the passing rows B. */
INL void multiply_rows(sums_t sums, const factors_t f, const struct pattern *rows, u32 passing, i32 width, i32 pitch) {
  UNROLL for (i32 k = 0; k < bwd_inner / 16; k++) UNROLL for (i32 n = 0; n < width / 16; n++) {
    u32 r[4];
    load_transposed(r, matrix_at(rows, passing, pitch, k * 16, n));
    UNROLL for (i32 a = 0; a < bwd_blocks; a++) {
      multiply_add(BF16, sums[a][2 * n], f[a][k], r[0], r[1]);
      multiply_add(BF16, sums[a][2 * n + 1], f[a][k], r[2], r[3]);
    }
  }
}

INL void clear(sums_t sums, i32 width) {
  UNROLL for (i32 a = 0; a < bwd_blocks; a++) UNROLL for (i32 i = 0; i < width / 8; i++)
      UNROLL for (i32 j = 0; j < 4; j++) sums[a][i][j] = 0;
}

/* ---- gradients --------------------------------------------------------------------------------------------------- */

/* Where rows of a gradient go: to the tensor, or as f32 to where they wait for others of the same row. */
struct gradient {
  u64 plane, sums; /* sums: 0: none */
  i64 first;       /* in sums: the first row */
  u32 pitch;
  i32 dim, add;
  struct rows rows;
};
INL struct gradient gradient_of(call_t call, const flyi_cuda_tensor *t, i32 b, i32 h, struct rows rows, u64 sums,
                                i64 row, i32 dim) {
  return (struct gradient){plane_of(t, b, h, SIZE), sums, row, pitch_of(t, SIZE), dim, call->add_gradients, rows};
}

INL float element(u64 row, i32 i) {
  return bwd_type == TYPE_F32 ? ((const GLOBAL float *)row)[i] : widen(BF16, ((const GLOBAL u16 *)row)[i]);
}
INL void store_element(const struct gradient *g, u64 row, i32 i, float x) {
  if (g->add) x += element(row, i);
  if (bwd_type == TYPE_F32)
    ((GLOBAL float *)row)[i] = x;
  else
    ((GLOBAL u16 *)row)[i] = (u16)pack(BF16, x, 0);
}
/* Columns i and i + 1. */
INL void store_two(const struct gradient *g, u64 row, i32 i, float x, float y) {
  GLOBAL u32 *at = (GLOBAL u32 *)(row + (u64)i * 2);
  if (g->add) {
    u32 before = *at;
    x += widen(BF16, before & 0xffff), y += widen(BF16, before >> 16);
  }
  *at = pack(BF16, x, y);
}

/* One lane's part of row r of block a: two neighbouring columns of every eight. */
INL void store_row(const struct gradient *g, i32 row, const sums_t s, i32 a, i32 r, i32 width, float by) {
  const i32 column = (thread_index() & 3) << 1, j = 2 * r;
  if (g->sums) {
    GLOBAL float *to = (GLOBAL float *)g->sums + (g->first + row) * g->dim;
    UNROLL for (i32 i = 0; i < width / 8; i++) UNROLL for (i32 e = 0; e < 2; e++) if (i * 8 + column + e < g->dim)
        to[i * 8 + column + e] = s[a][i][j + e] * by;
    return;
  }
  const u64 to = row_address(g->plane, g->pitch, row_at(g->rows, row));
  if (g->dim % 2 == 0 && !(to & 3)) {
    UNROLL for (i32 i = 0; i < width / 8; i++) if (i * 8 + column < g->dim)
        store_two(g, to, i * 8 + column, s[a][i][j] * by, s[a][i][j + 1] * by);
  } else {
    UNROLL for (i32 i = 0; i < width / 8; i++) UNROLL for (i32 e = 0; e < 2; e++) if (i * 8 + column + e < g->dim)
        store_element(g, to, i * 8 + column + e, s[a][i][j + e] * by);
  }
}

/* A whole row by a warp, elements lane, lane + 32, ... */
INL void store_dealt(const struct gradient *g, i32 row, const float x[MAX_WIDTH / 32], float by) {
  const i32 lane = thread_index() & 31;
  const u64 to = g->sums ? 0 : row_address(g->plane, g->pitch, row_at(g->rows, row));
  UNROLL for (i32 c = 0; c < MAX_WIDTH / 32; c++) {
    const i32 i = lane + 32 * c;
    if (i >= g->dim) continue;
    if (g->sums)
      ((GLOBAL float *)g->sums)[(g->first + row) * g->dim + i] = x[c] * by;
    else
      store_element(g, to, i, x[c] * by);
  }
}

/* 0, or not finite where something in row r of block a is not. */
INL float check_row(const sums_t s, i32 a, i32 r, i32 width) {
  float check = 0;
  UNROLL for (i32 i = 0; i < width / 8; i++) UNROLL for (i32 j = 2 * r; j < 2 * r + 2; j++)
      check = multiply_plus(s[a][i][j], 0, check);
  return check;
}

/* Bits that any lane of the warp has. */
INL u32 any_lane(u32 bits) {
  UNROLL for (i32 m = 1; m < 32; m *= 2) bits |= __builtin_bit_cast(u32, exchange(__builtin_bit_cast(float, bits), m));
  return bits;
}

/* ---- pair by pair ------------------------------------------------------------------------------------------------ */

/* 0 times infinity is not 0: a row that holds an infinity or a NaN reaches, through a product of matrices, rows that
 * do not see it. What comes out not finite is therefore worked out again by these: a warp takes one row of its own,
 * each lane one row of the other side, and what is not seen is not touched. */

INL float dot(u64 x, u64 y, i32 dim) {
  float sum = 0;
  ROLLED for (i32 i = 0; i < dim; i++) sum = multiply_plus(element(x, i), element(y, i), sum);
  return sum;
}

/* P and dS of one pair. */
struct pair {
  float p, ds;
  _Bool seen;
};

/* The pair of a query with the stats at `at` and a key; rows in memory. A query whose LSE is -inf
 * contributes nothing; whatever else it sees counts. */
INL struct pair pair_of(call_t call, const struct scene *scene, _Bool seen, i32 query, i32 key, i64 at, u64 q, u64 k,
                        u64 v, u64 d_out) {
  struct pair x = {0, 0, 0};
  float slope = 1;
  if (!seen) return x;
  const float start = ((const GLOBAL float *)call->neg_lse)[at], delta = ((const GLOBAL float *)call->delta)[at];
  if (start == -infinity()) return x;
  x.seen = 1;
  float score = dot(q, k, bwd_dim);
  if (modified) score = modified_slope(scene, score * call->scale, query, key, &slope);
  x.p = exp2_of(score * units_of(call) + start);
  x.ds = x.p * (dot(d_out, v, bwd_value_dim) - delta);
  if (modified && x.p != 0) x.ds *= slope;
  return x;
}

/* sums += factor * row, of each lane in turn that has one; `some` says which. */
INL void add_dealt(float sums[MAX_WIDTH / 32], u32 some, float factor, u64 row, i32 dim) {
  const i32 lane = thread_index() & 31;
  ROLLED for (; some; some &= some - 1) {
    const i32 from = __builtin_ctz(some);
    const float f = of_lane_f(factor, from);
    const u64 x = (u64)(u32)of_lane((i32)(row >> 32), from) << 32 | (u32)of_lane((i32)row, from);
    UNROLL for (i32 c = 0; c < MAX_WIDTH / 32; c++) if (lane + 32 * c < dim)
        sums[c] = multiply_plus(f, element(x, lane + 32 * c), sums[c]);
  }
}

#endif
