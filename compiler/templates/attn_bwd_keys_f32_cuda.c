/* attn_bwd_keys_f32_cuda.c: dK and dV for f32, with its error. Input: a flyi_cuda_call, with -LSE and delta of every
 * query. Output: rows of d_k and d_v, or their sums.
 *
 * Keys are the rows: a block of threads owns some of a key/value head and walks through the queries that see them, head
 * by head of those that share the keys: S' = K Q', dP' = V dO', dV += P' dO, dK += dS' Q. */
#include "bwd_f32_cuda.h"
#include "bwd_keys_cuda.h"

struct gradients {
  f32_sums_t d_k, d_v;
};

INL void take_tile(call_t call, const struct place *p, const struct scene *scene, const struct f32_shared *at,
                   struct gradients *g, struct step now, u32 stage) {
  const struct f32_pairs pairs = {scene, now.tile * F32_INNER + f32_tx(), p->first + f32_ty(), 1};
  const i64 stats = ((i64)p->b * args_of(call)->heads + scene->h) * call->rows_q + pairs.query;
  float start[MAX_COLUMNS], delta[MAX_COLUMNS];
  scores_t s, slopes, d_p;
  UNROLL for (i32 c = 0; c < f32_columns; c++) {
    start[c] = ((const GLOBAL float *)call->neg_lse)[stats + 8 * c];
    delta[c] = ((const GLOBAL float *)call->delta)[stats + 8 * c];
  }
  f32_products_k(s, at, stage);
  const _Bool whole = (now.tile + 1) * F32_INNER <= p->queries.length;
  const u32 seen = f32_weigh(call, &pairs, s, slopes, start, now.kind, whole);
  const _Bool some_hidden = f32_some_hidden(seen);
  f32_put(at->weights[0], s, seen);
  f32_products_v(d_p, at, stage);
  f32_differentiate(&pairs, d_p, s, slopes, delta);
  f32_put(at->weights[1], d_p, seen);
  warp_barrier();
  f32_add(g->d_v, at->weights[0], f32_passing_v(at, stage), F32_PITCH_V, f32_width, some_hidden);
  f32_add(g->d_k, at->weights[1], f32_passing_k(at, stage), F32_PITCH_K, f32_depth, some_hidden);
}

/* The queries of one head. */
INL void take_head(call_t call, const struct place *p, const struct f32_shared *at, struct gradients *g, i32 h,
                   i32 aligned) {
  const flyi_cuda_map *map = &call->by_key;
  const struct scene scene = scene_of(call, p->b, h);
  struct walk walk = walk_of(map, p->b, h, p->map_row, p->tiles);
  struct step now = walk_step(&walk, map, p->tiles);
  if (now.kind == EMPTY) return;
  const struct f32_passing passing = {
      floats_of(&call->q, p->b, h, scene.query_rows, p->queries.length, bwd_dim, f32_depth, aligned),
      floats_of(&call->d_out, p->b, h, output_rows(call, p->queries, p->b, h), p->queries.length, bwd_value_dim,
                f32_width, aligned)};
  barrier(); /* nobody reads the tiles of the head before any more */
  f32_copy_passing(&passing, at, now.tile, 0);
  u32 stage = 0;
  ROLLED while (now.kind != EMPTY) {
    const struct step next = walk_step(&walk, map, p->tiles);
    copies_wait(0);
    barrier();
    if (f32_stages == 2 && next.kind != EMPTY) f32_copy_passing(&passing, at, next.tile, 1 - stage);
    take_tile(call, p, &scene, at, g, now, stage);
    if (f32_stages == 1 && next.kind != EMPTY) {
      barrier();
      f32_copy_passing(&passing, at, next.tile, 0);
    }
    if (f32_stages == 2) stage = 1 - stage;
    now = next;
  }
}

INL void store(call_t call, const struct place *p, const struct gradients *g) {
  const struct rows rows = rows_of_keys(call, p);
  const struct gradient d_k = d_k_of(call, p, rows), d_v = d_v_of(call, p, rows);
  if (call->d_k.data) f32_store(&d_k, p->first, p->keys.length, g->d_k, f32_depth, call->scale);
  if (call->d_v.data) f32_store(&d_v, p->first, p->keys.length, g->d_v, f32_width, 1);
}

INL void backward_keys(call_t call, i32 aligned) {
  const struct place p = place_of(call, block_index(), (i32)args_of(call)->heads, F32_OUTER, F32_INNER);
  const struct f32_shared at = f32_shared_of();
  struct gradients g;
  if (p.first >= p.keys.length) return;
  const struct rows rows = key_rows(call, p.keys, p.b, p.h);
  const struct floats k = floats_of(&call->k, p.b, p.kv_head, rows, p.keys.length, bwd_dim, f32_depth, aligned);
  const struct floats v = floats_of(&call->v, p.b, p.kv_head, rows, p.keys.length, bwd_value_dim, f32_width, aligned);
  copy_floats(&k, at.own_k, F32_PITCH_K, p.first, F32_OUTER); /* they belong to the first tile's group */
  copy_floats(&v, at.own_v, F32_PITCH_V, p.first, F32_OUTER);
  f32_clear(g.d_k, f32_depth), f32_clear(g.d_v, f32_width);
  ROLLED for (i32 h = p.h; h < p.h + call->walk; h++) take_head(call, &p, &at, &g, h, aligned);
  store(call, &p, &g);
}

KERNEL fly_backward_keys(const flyi_cuda_call call) { backward_keys(&call, 1); }
KERNEL fly_backward_keys_any(const flyi_cuda_call call) { backward_keys(&call, 0); }
