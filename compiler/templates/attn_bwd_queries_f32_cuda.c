/* attn_bwd_queries_f32_cuda.c: dQ for f32, with its error. Input: a flyi_cuda_call, with -LSE and delta of every query.
 * Output: rows of d_q, or their sums.
 *
 * A block of threads owns some queries and walks through the keys that they see: S = Q K', dP = dO V', dQ += dS K. */
#include "bwd_f32_cuda.h"

struct place {
  struct scene scene;
  i32 pair, first, map_row, tiles; /* first: of its queries; tiles: of keys */
};

struct block {
  struct f32_shared at;
  float start[MAX_ROWS], delta[MAX_ROWS]; /* -LSE in base 2, delta: of this thread's rows */
};

INL void take_tile(call_t call, const struct place *p, const struct block *x, f32_sums_t d_q, struct step now,
                   u32 stage) {
  const struct f32_pairs pairs = {&p->scene, p->first + f32_ty(), now.tile * F32_INNER + f32_tx(), 0};
  scores_t s, slopes, d_p;
  f32_products_k(s, &x->at, stage);
  const _Bool whole = (now.tile + 1) * F32_INNER <= p->scene.keys.length;
  const u32 seen = f32_weigh(call, &pairs, s, slopes, x->start, now.kind, whole);
  f32_products_v(d_p, &x->at, stage);
  f32_differentiate(&pairs, d_p, s, slopes, x->delta);
  f32_put(x->at.weights[0], d_p, seen);
  warp_barrier();
  f32_add(d_q, x->at.weights[0], f32_passing_k(&x->at, stage), F32_PITCH_K, f32_depth, f32_some_hidden(seen));
}

/* Q, dO, -LSE and delta. */
INL void open_block(call_t call, const struct place *p, struct block *x, i32 aligned) {
  const i32 b = p->scene.b, h = p->scene.h, length = p->scene.queries.length;
  const struct floats q = floats_of(&call->q, b, h, p->scene.query_rows, length, bwd_dim, f32_depth, aligned);
  const struct floats d_out = floats_of(&call->d_out, b, h, output_rows(call, p->scene.queries, b, h), length,
                                        bwd_value_dim, f32_width, aligned);
  x->at = f32_shared_of();
  copy_floats(&q, x->at.own_k, F32_PITCH_K, p->first, F32_OUTER);
  copy_floats(&d_out, x->at.own_v, F32_PITCH_V, p->first, F32_OUTER);
  UNROLL for (i32 r = 0; r < f32_rows; r++) {
    const i64 at = (i64)p->pair * call->rows_q + p->first + f32_ty() + 16 * r;
    x->start[r] = ((const GLOBAL float *)call->neg_lse)[at];
    x->delta[r] = ((const GLOBAL float *)call->delta)[at];
  }
}

INL void take_tiles(call_t call, const struct place *p, f32_sums_t d_q, i32 aligned) {
  const flyi_cuda_map *map = &call->by_query;
  const i32 b = p->scene.b, h = p->scene.h / call->group, length = p->scene.keys.length;
  struct walk walk = walk_of(map, b, p->scene.h, p->map_row, p->tiles);
  struct step now = walk_step(&walk, map, p->tiles);
  struct block x;
  if (now.kind == EMPTY) return;
  open_block(call, p, &x, aligned);
  const struct f32_passing passing = {
      floats_of(&call->k, b, h, p->scene.key_rows, length, bwd_dim, f32_depth, aligned),
      floats_of(&call->v, b, h, p->scene.key_rows, length, bwd_value_dim, f32_width, aligned)};
  f32_copy_passing(&passing, &x.at, now.tile, 0);
  u32 stage = 0;
  ROLLED while (now.kind != EMPTY) {
    const struct step next = walk_step(&walk, map, p->tiles);
    copies_wait(0);
    barrier();
    if (f32_stages == 2 && next.kind != EMPTY) f32_copy_passing(&passing, &x.at, next.tile, 1 - stage);
    take_tile(call, p, &x, d_q, now, stage);
    if (f32_stages == 1 && next.kind != EMPTY) {
      barrier();
      f32_copy_passing(&passing, &x.at, next.tile, 0);
    }
    if (f32_stages == 2) stage = 1 - stage;
    now = next;
  }
}

INL void backward_queries(call_t call, i32 aligned) {
  const i32 heads = (i32)args_of(call)->heads;
  const struct work w = work_of(call, &call->by_query, heads, block_index());
  struct place p = {.scene = scene_of(call, w.b, w.h), .first = w.tile * F32_OUTER, .map_row = w.map_row};
  p.pair = w.b * heads + w.h;
  p.tiles = (p.scene.keys.length + F32_INNER - 1) / F32_INNER;
  if (p.first >= p.scene.queries.length) return;
  f32_sums_t d_q;
  f32_clear(d_q, f32_depth);
  take_tiles(call, &p, d_q, aligned);
  const struct gradient g = gradient_of(call, &call->d_q, w.b, w.h, p.scene.query_rows, call->sums_q,
                                        (i64)p.pair * call->rows_q, bwd_dim);
  f32_store(&g, p.first, p.scene.queries.length, d_q, f32_depth, call->scale);
}

KERNEL fly_backward_queries(const flyi_cuda_call call) { backward_queries(&call, 1); }
KERNEL fly_backward_queries_any(const flyi_cuda_call call) { backward_queries(&call, 0); }
