/* bwd_f32_cuda.h: what both CUDA kernels of f32's backward pass do (attn_bwd_keys_f32_cuda.c,
 * attn_bwd_queries_f32_cuda.c): products of whole tiles by fused multiply-adds, with the error of f32, which tensor
 * cores do not have. The formulas are those of bwd_cuda.h.
 *
 * A block of threads owns rows of one side (A: Q and dO, or K and V) and walks through tiles of the other (B). P and dS
 * pass through shared memory, within a warp, from who has them to who sums up. What is not seen has a mark in their
 * place, and is not touched, whatever its row holds. Sums are in the order of the walk; nothing is shared between
 * blocks. */
#ifndef FLYMASK_BWD_F32_CUDA_H
#define FLYMASK_BWD_F32_CUDA_H

#include "bwd_cuda.h"
#include "f32_cuda.h"

CONSTANT f32_depth, f32_width;      /* of Q and K, of V and dO in shared memory: multiples of 32 */
CONSTANT f32_rows, f32_columns;     /* of a thread: 16 times as many rows of a block, 8 times as many of a tile */
CONSTANT f32_stages;                /* 2: the next tile is on its way while one is worked on */

#define F32_OUTER (16 * f32_rows)
#define F32_INNER (8 * f32_columns)
/* Bytes from row to row: 4 more floats, so that 8 rows lie in different banks. */
#define F32_PITCH_K ((f32_depth + 4) * 4)
#define F32_PITCH_V ((f32_width + 4) * 4)
#define F32_PITCH_P ((F32_INNER + 4) * 4)

typedef float f32_sums_t[MAX_ROWS][MAX_EACH];

/* Where things are in shared memory: own rows, passing rows of the first stage, weights. */
struct f32_shared {
  u32 own_k, own_v, passing_k, passing_v, weights[2];
};
INL struct f32_shared f32_shared_of(void) {
  struct f32_shared s = {.own_k = shared_base()};
  s.own_v = s.own_k + (u32)(F32_OUTER * F32_PITCH_K);
  s.passing_k = s.own_v + (u32)(F32_OUTER * F32_PITCH_V);
  s.passing_v = s.passing_k + (u32)(f32_stages * F32_INNER * F32_PITCH_K);
  s.weights[0] = s.passing_v + (u32)(f32_stages * F32_INNER * F32_PITCH_V);
  s.weights[1] = s.weights[0] + (u32)(F32_OUTER * F32_PITCH_P);
  return s;
}
INL i32 f32_ty(void) { return thread_index() >> 3; }
INL i32 f32_tx(void) { return thread_index() & 7; }

/* ---- pairs ------------------------------------------------------------------------------------------------------- */

/* A thread's pairs: number n = r columns + c. query and key: of the first; rows are queries or, by_key, keys. */
struct f32_pairs {
  const struct scene *scene;
  i32 query, key, by_key;
};
INL i32 f32_query(const struct f32_pairs *l, i32 n) {
  return l->query + (l->by_key ? 8 * (n % f32_columns) : 16 * (n / f32_columns));
}
INL i32 f32_key(const struct f32_pairs *l, i32 n) {
  return l->key + (l->by_key ? 16 * (n / f32_columns) : 8 * (n % f32_columns));
}

/* Natural scores become modified ones. */
INL void f32_modify(const struct f32_pairs *l, scores_t s, scores_t slopes) {
  const i32 count = f32_rows * f32_columns;
  float y[MAX_ROWS * MAX_COLUMNS], by[MAX_ROWS * MAX_COLUMNS];
  UNROLL for (i32 n = 0; n < count; n++) y[n] = s[n / f32_columns][n % f32_columns];
  if (modifier_in_loop)
    ROLLED for (i32 n = 0; n < count; n++)
        y[n] = modified_slope(l->scene, y[n], f32_query(l, n), f32_key(l, n), &by[n]);
  else
    UNROLL for (i32 n = 0; n < count; n++)
        y[n] = modified_slope(l->scene, y[n], f32_query(l, n), f32_key(l, n), &by[n]);
  UNROLL for (i32 n = 0; n < count; n++)
      s[n / f32_columns][n % f32_columns] = y[n], slopes[n / f32_columns][n % f32_columns] = by[n];
}

/* One in a loop: masks are inlined once. */
INL u32 f32_seen(const struct f32_pairs *l, i32 kind) {
  u32 bits = 0;
  ROLLED for (i32 n = 0; n < f32_rows * f32_columns; n++) {
    const i32 query = f32_query(l, n), key = f32_key(l, n);
    _Bool seen = query < l->scene->queries.length && key < l->scene->keys.length;
    if (seen && kind == PARTIAL) seen = visible_pair(l->scene, query, key);
    bits |= (u32)seen << n;
  }
  return bits;
}

/* Products become weights P; a bit for each pair that is seen. start: -LSE in base 2, of a row's or, by_key, a column's
 * query: one whose LSE is -inf contributes nothing. `whole`: there is no pair behind the call's rows. */
INL u32 f32_weigh(call_t call, const struct f32_pairs *l, scores_t s, scores_t slopes, const float *start, i32 kind,
                   _Bool whole) {
  u32 bits = (u32)((1ull << f32_rows * f32_columns) - 1);
  if (modified) {
    UNROLL for (i32 r = 0; r < f32_rows; r++) UNROLL for (i32 c = 0; c < f32_columns; c++) s[r][c] *= call->scale;
    f32_modify(l, s, slopes);
  }
  if (kind == PARTIAL || !whole) bits = f32_seen(l, kind);
  UNROLL for (i32 r = 0; r < f32_rows; r++) UNROLL for (i32 c = 0; c < f32_columns; c++) {
    const float from = start[l->by_key ? c : r];
    s[r][c] = exp2_of(multiply_plus(s[r][c], units_of(call), from));
    if (from == -infinity()) bits &= ~(1u << (r * f32_columns + c));
  }
  return bits;
}
/* Whether a thread of the warp has a pair that is not seen. */
INL _Bool f32_some_hidden(u32 seen) { return ballot(seen != (u32)((1ull << f32_rows * f32_columns) - 1)) != 0; }

/* dP becomes dS = P (dP - delta), times the modifier's slope, which may be anything where there is no weight. */
INL void f32_differentiate(const struct f32_pairs *l, scores_t d_p, const scores_t p, const scores_t slopes,
                           const float *delta) {
  UNROLL for (i32 r = 0; r < f32_rows; r++) UNROLL for (i32 c = 0; c < f32_columns; c++) {
    float x = p[r][c] * (d_p[r][c] - delta[l->by_key ? c : r]);
    if (modified && p[r][c] != 0) x *= slopes[r][c];
    d_p[r][c] = x;
  }
}

/* ---- sums -------------------------------------------------------------------------------------------------------- */

enum { F32_HIDDEN = 0x7fc0dead }; /* a NaN that no arithmetic gives */

INL void f32_put(u32 weights, const scores_t s, u32 seen) {
  UNROLL for (i32 r = 0; r < f32_rows; r++) UNROLL for (i32 c = 0; c < f32_columns; c++)
      store_shared(weights + (u32)((f32_ty() + 16 * r) * F32_PITCH_P + (f32_tx() + 8 * c) * 4),
                   seen >> (r * f32_columns + c) & 1 ? __builtin_bit_cast(u32, s[r][c]) : F32_HIDDEN);
}

/* sums += W B, over the passing rows B; some_hidden: of the warp's pairs. */
INL void f32_add_rows(f32_sums_t sums, u32 weights, u32 passing, i32 pitch, i32 width, i32 some_hidden) {
  ROLLED for (i32 n = 0; n < F32_INNER; n += 4) {
    float w[MAX_ROWS][4], x[4];
    UNROLL for (i32 r = 0; r < f32_rows; r++)
        load_floats(w[r], weights + (u32)((f32_ty() + 16 * r) * F32_PITCH_P + n * 4));
    UNROLL for (i32 e = 0; e < 4; e++) UNROLL for (i32 j = 0; j < width / 32; j++) {
      load_floats(x, passing + (u32)((n + e) * pitch + j * 128 + f32_tx() * 16));
      UNROLL for (i32 r = 0; r < f32_rows; r++) UNROLL for (i32 i = 0; i < 4; i++) {
        float *sum = &sums[r][j * 4 + i];
        const float more = multiply_plus(w[r][e], x[i], *sum);
        *sum = some_hidden && __builtin_bit_cast(u32, w[r][e]) == F32_HIDDEN ? *sum : more;
      }
    }
  }
}
INL void f32_add(f32_sums_t sums, u32 weights, u32 passing, i32 pitch, i32 width, _Bool some_hidden) {
  if (some_hidden)
    f32_add_rows(sums, weights, passing, pitch, width, 1);
  else
    f32_add_rows(sums, weights, passing, pitch, width, 0);
}

INL void f32_clear(f32_sums_t sums, i32 width) {
  UNROLL for (i32 r = 0; r < f32_rows; r++) UNROLL for (i32 i = 0; i < width / 8; i++) sums[r][i] = 0;
}

/* Rows first + ty + 16 r of a gradient, those below `length`. */
INL void f32_store(const struct gradient *g, i32 first, i32 length, const f32_sums_t sums, i32 width, float by) {
  UNROLL for (i32 r = 0; r < f32_rows; r++) {
    const i32 row = first + f32_ty() + 16 * r;
    if (row >= length) continue;
    const u64 to = g->sums ? g->sums + (u64)((g->first + row) * g->dim) * 4
                           : row_address(g->plane, g->pitch, row_at(g->rows, row));
    UNROLL for (i32 i = 0; i < width / 8; i++) {
      const i32 column = i / 4 * 32 + f32_tx() * 4 + i % 4;
      if (column >= g->dim) continue;
      if (g->sums)
        ((GLOBAL float *)to)[column] = sums[r][i] * by;
      else
        store_element(g, to, column, sums[r][i] * by);
    }
  }
}

/* ---- the walk ---------------------------------------------------------------------------------------------------- */

INL u32 f32_passing_k(const struct f32_shared *s, u32 stage) {
  return s->passing_k + stage * (u32)(F32_INNER * F32_PITCH_K);
}
INL u32 f32_passing_v(const struct f32_shared *s, u32 stage) {
  return s->passing_v + stage * (u32)(F32_INNER * F32_PITCH_V);
}

struct f32_passing {
  struct floats k, v;
};
INL void f32_copy_passing(const struct f32_passing *p, const struct f32_shared *s, i32 tile, u32 stage) {
  copy_floats(&p->k, f32_passing_k(s, stage), F32_PITCH_K, tile * F32_INNER, F32_INNER);
  copy_floats(&p->v, f32_passing_v(s, stage), F32_PITCH_V, tile * F32_INNER, F32_INNER);
  copies_commit();
}

/* S and dP of a tile, without scale: own rows with passing ones. */
INL void f32_products_k(scores_t s, const struct f32_shared *at, u32 stage) {
  multiply_floats(s, at->own_k + (u32)(f32_ty() * F32_PITCH_K),
                  f32_passing_k(at, stage) + (u32)(f32_tx() * F32_PITCH_K), F32_PITCH_K, f32_depth, f32_rows,
                  f32_columns);
}
INL void f32_products_v(scores_t d_p, const struct f32_shared *at, u32 stage) {
  multiply_floats(d_p, at->own_v + (u32)(f32_ty() * F32_PITCH_V),
                  f32_passing_v(at, stage) + (u32)(f32_tx() * F32_PITCH_V), F32_PITCH_V, f32_width, f32_rows,
                  f32_columns);
}

#endif
