/* attn_bwd_queries_cuda.c: dQ, for f16 and bf16 on tensor cores. Input: a flyi_cuda_call, with -LSE and delta of
 * every query. Output: rows of d_q, or their sums.
 *
 * A block of threads owns some queries and walks through the keys that they see: S = Q K', dP = dO V', dQ += dS K. */
#include "bwd_cuda.h"

/* In shared memory: Q, dO, then for each stage K, V. */
#define SHARED_D_OUT (u32)(OUTER * PITCH_K)
#define SHARED_K (SHARED_D_OUT + (u32)(OUTER * PITCH_V))
#define SHARED_V (SHARED_K + (u32)bwd_stages * BYTES_K)

struct place {
  i32 b, h, pair, first; /* first: of its queries */
  struct span queries, keys;
  i32 map_row, tiles; /* tiles: of keys */
};

struct block {
  struct patterns patterns;
  operands_t q, d_out;                              /* where they are kept */
  float start[MAX_BLOCKS][2], delta[MAX_BLOCKS][2]; /* -LSE in base 2, delta: of this lane's rows */
  i32 tokens[2 * MAX_BLOCKS];                       /* of this lane's rows, where the mask reads them */
  u32 shared, own_q, own_d_out;
};

/* ---- a tile ------------------------------------------------------------------------------------------------------ */

/* P = 2^(S scale - LSE), of what is seen; times the modifier's slope, where there is one. */
INL void weigh(call_t call, const struct place *p, const struct block *x, const struct rows *keys, pairs_t s, i32 now) {
  const i32 lane = thread_index() & 31, warp = thread_index() >> 5, columns = bwd_inner / 8;
  const i32 kv0 = tile_of(now) * bwd_inner + ((lane & 3) << 1), left = p->keys.length - kv0;
  const i32 q0 = p->first + warp * 16 * bwd_blocks + (lane >> 2);
  const float scale = units_of(call);
  pairs_t slopes;
  if (modified) {
    const struct scene scene = scene_of(call, renewed(p->b), p->h);
    const struct lane_scores lane_scores = lane_scores_of(&scene, bwd_blocks, columns, q0, kv0, 0);
    modify(&lane_scores, s, slopes, 1, call->scale);
  }
  UNROLL for (i32 a = 0; a < bwd_blocks; a++) UNROLL for (i32 i = 0; i < columns; i++)
      UNROLL for (i32 j = 0; j < 4; j++) s[a][i][j] = exp2_of(multiply_plus(s[a][i][j], scale, x->start[a][j >> 1]));
  if (kind_of(now) == PARTIAL) {
    /* From what is kept anyway: working it out again would take as long as the mask does. */
    const struct scene scene = {.b = p->b,
                                .h = p->h,
                                .offset = (i32)args_of(call)->q_offset,
                                .queries = p->queries,
                                .keys = p->keys,
                                .query_rows = query_rows(call, p->queries, p->b, p->h),
                                .key_rows = *keys};
    mask_scores_of(&scene, x->tokens, s, bwd_blocks, columns, q0, kv0, 0);
  }
  if (modified) scale_weights(s, slopes);
  if ((tile_of(now) + 1) * bwd_inner <= p->keys.length) return;
  UNROLL for (i32 i = 0; i < columns; i++) UNROLL for (i32 a = 0; a < bwd_blocks; a++)
      UNROLL for (i32 j = 0; j < 4; j++) if (i * 8 + (j & 1) >= left) s[a][i][j] = 0;
}

INL void take_tile(call_t call, const struct place *p, const struct block *x, const struct rows *keys, sums_t d_q,
                   i32 now, u32 stage) {
  const u32 k = x->shared + SHARED_K + stage * BYTES_K, v = x->shared + SHARED_V + stage * BYTES_V;
  const struct patterns at = renewed_patterns(&x->patterns);
  pairs_t s, d_p;
  factors_t f;
  multiply_channels(s, bwd_keep & KEEP_K, x->q, &at.rows_k, &at.columns_k, x->own_q, k, bwd_depth, PITCH_K);
  weigh(call, p, x, keys, s, now);
  multiply_channels(d_p, bwd_keep & KEEP_V, x->d_out, &at.rows_v, &at.columns_v, x->own_d_out, v, bwd_width, PITCH_V);
  UNROLL for (i32 a = 0; a < bwd_blocks; a++) UNROLL for (i32 i = 0; i < bwd_inner / 8; i++)
      UNROLL for (i32 j = 0; j < 4; j++) d_p[a][i][j] = s[a][i][j] * (d_p[a][i][j] - x->delta[a][j >> 1]);
  pack_pairs(f, d_p);
  multiply_rows(d_q, f, &at.rows_k, k, bwd_depth, PITCH_K);
}

/* ---- all tiles --------------------------------------------------------------------------------------------------- */

/* Q, dO, -LSE and delta, and what stays of them in registers. */
INL void open_block(call_t call, const struct place *p, struct block *x, i32 aligned) {
  const i32 lane = thread_index() & 31, mine = (thread_index() >> 5) * 16 * bwd_blocks;
  x->patterns = patterns_of(lane);
  x->shared = shared_base();
  x->own_q = x->shared + (u32)(mine * PITCH_K), x->own_d_out = x->shared + SHARED_D_OUT + (u32)(mine * PITCH_V);
  copy_own(SHARE_K, x->shared, &call->q, p->b, p->h, query_rows(call, p->queries, p->b, p->h), p->first,
           p->queries.length, aligned);
  copy_own(SHARE_V, x->shared + SHARED_D_OUT, &call->d_out, p->b, p->h, output_rows(call, p->queries, p->b, p->h),
           p->first, p->queries.length, aligned);
  UNROLL for (i32 a = 0; a < bwd_blocks; a++) UNROLL for (i32 r = 0; r < 2; r++) {
    const i64 at = (i64)p->pair * call->rows_q + p->first + mine + a * 16 + r * 8 + (lane >> 2);
    x->start[a][r] = ((const GLOBAL float *)call->neg_lse)[at];
    x->delta[a][r] = ((const GLOBAL float *)call->delta)[at];
  }
  if (!mask_in_loop && mask_tokens & 1)
    tokens_of(x->tokens, 2 * bwd_blocks, query_rows(call, p->queries, p->b, p->h), p->queries,
              p->first + mine + (lane >> 2), 8, (i32)args_of(call)->q_offset);
  if (!bwd_keep) return; /* they belong to the first tile's group */
  copies_commit();
  copies_wait(0);
  barrier();
  if (bwd_keep & KEEP_K) load_kept(x->q, &x->patterns.rows_k, x->own_q, bwd_depth, PITCH_K);
  if (bwd_keep & KEEP_V) load_kept(x->d_out, &x->patterns.rows_v, x->own_d_out, bwd_width, PITCH_V);
}

INL void take_tiles(call_t call, const struct place *p, sums_t d_q, i32 aligned) {
  const flyi_cuda_map *map = &call->by_query;
  struct walk walk = walk_of(map, p->b, p->h, p->map_row, p->tiles);
  i32 now = next_step(&walk, map, p->tiles), next = next_step(&walk, map, p->tiles);
  if (kind_of(now) == EMPTY) return;
  const i32 kv_head = p->h / call->group;
  struct block x;
  open_block(call, p, &x, aligned);
  const struct rows rows = key_rows(call, p->keys, p->b, p->h);
  struct passing passing = {.k = source_of(SHARE_K, &call->k, p->b, kv_head),
                            .v = source_of(SHARE_V, &call->v, p->b, kv_head),
                            .rows_k = rows,
                            .rows_v = rows,
                            .to_k = x.shared + SHARED_K + share_at(SHARE_K),
                            .to_v = x.shared + SHARED_V + share_at(SHARE_V),
                            .length = p->keys.length};
  deal(&passing, tile_of(now));
  copy_passing(&passing, tile_of(now), 0, aligned);
  copies_commit();
  deal(&passing, tile_of(next));
  u32 stage = 0;
  ROLLED while (kind_of(now) != EMPTY) {
    const i32 later = next_step(&walk, map, p->tiles);
    copies_wait(0);
    barrier();
    if (bwd_stages == 2 && kind_of(next) != EMPTY) {
      copy_passing(&passing, tile_of(next), 1 - stage, aligned);
      copies_commit();
      deal(&passing, tile_of(later));
    }
    take_tile(call, p, &x, &passing.rows_k, d_q, now, stage);
    if (bwd_stages == 1 && kind_of(next) != EMPTY) {
      barrier();
      copy_passing(&passing, tile_of(next), 0, aligned);
      copies_commit();
      deal(&passing, tile_of(later));
    }
    if (bwd_stages == 2) stage = 1 - stage;
    now = next;
    next = later;
  }
}

/* ---- the gradient ------------------------------------------------------------------------------------------------ */

/* 32 keys, one a lane, to one query. */
INL void exact_keys(call_t call, const struct place *p, float d_q[MAX_WIDTH / 32], i32 query, i32 kv, i32 kind) {
  const i32 there = kv < p->keys.length, kv_head = p->h / call->group;
  const i32 row = row_at(key_rows(call, p->keys, p->b, p->h), there ? kv : 0);
  const u64 q = row_address(plane_of(&call->q, p->b, p->h, SIZE), pitch_of(&call->q, SIZE),
                            row_at(query_rows(call, p->queries, p->b, p->h), query));
  const u64 d_out = row_address(plane_of(&call->d_out, p->b, p->h, SIZE), pitch_of(&call->d_out, SIZE),
                                row_at(output_rows(call, p->queries, p->b, p->h), query));
  const u64 k = row_address(plane_of(&call->k, p->b, kv_head, SIZE), pitch_of(&call->k, SIZE), row);
  const u64 v = row_address(plane_of(&call->v, p->b, kv_head, SIZE), pitch_of(&call->v, SIZE), row);
  const struct scene scene = scene_of(call, p->b, p->h);
  const _Bool seen = there && (kind != PARTIAL || visible_pair(&scene, query, kv));
  const i64 stats = (i64)p->pair * call->rows_q + query;
  const struct pair pair = pair_of(call, &scene, seen, query, kv, stats, q, k, v, d_out);
  add_dealt(d_q, ballot(pair.seen), pair.ds, k, bwd_dim);
}

INL void store_exact(call_t call, const struct place *p, const struct gradient *g, i32 query) {
  const flyi_cuda_map *map = &call->by_query;
  const i32 lane = thread_index() & 31;
  float d_q[MAX_WIDTH / 32] = {0};
  struct walk walk = walk_of(map, p->b, p->h, p->map_row, p->tiles);
  ROLLED for (struct step s; (s = walk_step(&walk, map, p->tiles)).kind != EMPTY;)
      ROLLED for (i32 kv = s.tile * bwd_inner; kv < (s.tile + 1) * bwd_inner; kv += 32)
          exact_keys(call, p, d_q, query, lane < bwd_inner ? kv + lane : p->keys.length, s.kind);
  store_dealt(g, query, d_q, call->scale);
}

INL struct gradient d_q_of(call_t call, const struct place *p) {
  return gradient_of(call, &call->d_q, p->b, p->h, query_rows(call, p->queries, p->b, p->h), call->sums_q,
                     (i64)p->pair * call->rows_q, bwd_dim);
}

INL void store(call_t call, const struct place *p, const sums_t d_q) {
  const i32 lane = thread_index() & 31, mine = p->first + (thread_index() >> 5) * 16 * bwd_blocks;
  const struct gradient g = d_q_of(call, p);
  u32 again = 0;
  UNROLL for (i32 a = 0; a < bwd_blocks; a++) UNROLL for (i32 r = 0; r < 2; r++) {
    const i32 row = a * 16 + r * 8 + (lane >> 2);
    const _Bool there = mine + row < p->queries.length, wrong = row_sum(check_row(d_q, a, r, bwd_depth)) != 0;
    if (there && wrong) again |= 1u << row;
    if (there && !wrong) store_row(&g, mine + row, d_q, a, r, bwd_depth, call->scale);
  }
  again = any_lane(again);
  ROLLED for (; again; again &= again - 1) store_exact(call, p, &g, mine + __builtin_ctz(again));
}

/* ---- entries ----------------------------------------------------------------------------------------------------- */

INL void backward_queries(call_t call, i32 aligned) {
  struct work w = work_of(call, &call->by_query, (i32)args_of(call)->heads, block_index());
  struct place p = {.b = w.b, .h = w.h, .first = w.tile * OUTER, .map_row = w.map_row};
  p.pair = w.b * (i32)args_of(call)->heads + w.h;
  p.queries = queries_of(call, p.b), p.keys = keys_of(call, p.b);
  p.tiles = (p.keys.length + bwd_inner - 1) / bwd_inner;
  if (p.first >= p.queries.length) return;
  sums_t d_q;
  clear(d_q, bwd_depth);
  take_tiles(call, &p, d_q, aligned);
  store(call, &p, d_q);
}

KERNEL fly_backward_queries(const flyi_cuda_call call) { backward_queries(&call, 1); }
KERNEL fly_backward_queries_any(const flyi_cuda_call call) { backward_queries(&call, 0); }
