/* attn_bwd_keys_cuda.c: dK and dV, for f16 and bf16 on tensor cores. Input: a flyi_cuda_call, with -LSE and delta of
 * every query. Output: rows of d_k and d_v, or their sums.
 *
 * Keys are the rows: a block of threads owns some of a key/value head, computes S' = K Q' and dP' = V dO', so that P'
 * and dS' are operands of dV += P' dO and dK += dS' Q as they come out, and walks through the queries that see them,
 * head by head of those that share the keys. */
#include "bwd_keys_cuda.h"

/* In shared memory: K, V, then for each stage Q, dO; then -LSE, delta and tokens of queries, bwd_inner each; tokens of
 * keys. Tokens are there where the mask reads them. */
#define SHARED_V (u32)(OUTER * PITCH_K)
#define SHARED_Q (SHARED_V + (u32)(OUTER * PITCH_V))
#define SHARED_D_OUT (SHARED_Q + (u32)bwd_stages * BYTES_K)
#define SHARED_STATS (SHARED_D_OUT + (u32)bwd_stages * BYTES_V)
#define BYTES_STATS (u32)(bwd_inner * 12)
#define SHARED_TOKENS (SHARED_STATS + (u32)bwd_stages * BYTES_STATS)
#define QUERY_TOKENS (!mask_in_loop && mask_tokens & 1)
#define KEY_TOKENS (!mask_in_loop && mask_tokens & 2)

/* Which gradients a walk sums up. */
enum { D_K = 1, D_V = 2 };

struct gradients {
  sums_t d_k, d_v;
};

/* What stays the same from head to head. */
struct block {
  struct patterns patterns;
  operands_t k, v; /* where they are kept */
  u32 shared, own_k, own_v;
  i32 aligned;
};

/* A head, worked out again, unless so much is kept that what is worked out has no registers itself. */
INL i32 head_again(i32 h) { return bwd_keep == (KEEP_K | KEEP_V) ? h : renewed(h); }

/* The block's place, asked for again where it is needed: it takes no registers in between. How many heads there are is
 * the same for all blocks, and kept; not where 16 keys a warp and K alone take what there is. */
INL struct place place_again(call_t call) {
  const u32 index = (u32)renewed((i32)block_index());
  const i32 heads = (i32)args_of(call)->heads;
  return place_of(call, index, bwd_blocks == 1 && bwd_keep == KEEP_K ? renewed(heads) : heads, OUTER, bwd_inner);
}

/* ---- copies ------------------------------------------------------------------------------------------------------ */

/* -LSE and delta of a tile, each four to a thread, and its tokens, of which the rows' map holds each by itself. */
INL void copy_stats(call_t call, const struct place *p, const struct block *x, struct rows rows, i32 h, i32 tile,
                    u32 stage) {
  const i32 t = thread_index(), each = bwd_inner / 4, token = t - 2 * each;
  const u32 to = x->shared + SHARED_STATS + stage * BYTES_STATS;
  const i64 plane = (i64)renewed(p->b) * args_of(call)->heads + head_again(h); /* not kept from tile to tile */
  if (t < 2 * each) {
    const u64 from = (t < each ? call->neg_lse : call->delta) +
                     (u64)(plane * call->rows_q + tile * bwd_inner + t % each * 4) * 4;
    copy16(to + (u32)t * 16, from, 16);
  } else if (QUERY_TOKENS && token < bwd_inner) {
    copy4(to + (u32)(2 * bwd_inner + token) * 4, (u64)(rows.map + tile * bwd_inner + token), 4);
  }
}

INL struct passing passing_of(call_t call, const struct place *p, const struct block *x, i32 h) {
  return (struct passing){.k = source_of(SHARE_K, &call->q, p->b, h),
                          .v = source_of(SHARE_V, &call->d_out, p->b, h),
                          .rows_k = query_rows(call, p->queries, p->b, h),
                          .rows_v = output_rows(call, p->queries, p->b, h),
                          .to_k = x->shared + SHARED_Q + share_at(SHARE_K),
                          .to_v = x->shared + SHARED_D_OUT + share_at(SHARE_V),
                          .length = p->queries.length};
}

/* Where memory rows are mapped is worked out again, and not kept from tile to tile. */
INL void renew_rows(call_t call, const struct place *p, struct passing *passing, i32 head) {
  const i32 b = renewed(p->b), h = head_again(head);
  passing->rows_k = query_rows(call, p->queries, b, h), passing->rows_v = output_rows(call, p->queries, b, h);
}

/* ---- a tile ------------------------------------------------------------------------------------------------------ */

/* Tokens of this lane's queries and keys, as mask_pairs takes them. */
struct tokens {
  i32 queries[2][MAX_INNER / 8], keys[2 * MAX_BLOCKS];
};
INL struct tokens tokens_at(const struct scene *s, u32 stats, u32 key_tokens) {
  const i32 lane = thread_index() & 31, add = s->offset - s->queries.start;
  struct tokens t = {{{0}}, {0}};
  if (QUERY_TOKENS) UNROLL for (i32 i = 0; i < bwd_inner / 8; i++) {
      float two[2];
      load_shared2(two, stats + (u32)(2 * bwd_inner + i * 8 + ((lane & 3) << 1)) * 4);
      UNROLL for (i32 e = 0; e < 2; e++) t.queries[e][i] = __builtin_bit_cast(i32, two[e]) + add;
    }
  if (KEY_TOKENS)
    UNROLL for (i32 y = 0; y < 2 * bwd_blocks; y++)
        t.keys[y] = (i32)load_shared(key_tokens + (u32)(y * 8 + (lane >> 2)) * 4);
  return t;
}

/* What is masked becomes 0; rows are keys. query and key: of this lane's first element. Pairs come in the order of
 * their registers: so few are at hand at a time. */
INL void mask_pairs(const struct scene *scene, const struct tokens *tokens, pairs_t p, i32 query, i32 key) {
  const i32 columns = bwd_inner / 8, q = query + scene->offset, d0 = opaque(q - key);
  const u64 bits = mask_in_loop ? mask_bits(scene, bwd_blocks, columns, query, key, 1) : 0;
  UNROLL for (i32 i = 0; i < columns; i++) UNROLL for (i32 a = 0; a < bwd_blocks; a++)
      UNROLL for (i32 j = 0; j < 4; j++) {
    const i32 e = j & 1, y = 2 * a + (j >> 1), kv = key + y * 8, d = d0 + i * 8 + e - y * 8;
    const _Bool keep = mask_in_loop ? bits >> bit_of(columns, a, i, j) & 1
                                    : visible_on(scene, d, q + i * 8 + e, kv, tokens->queries[e][i], tokens->keys[y]);
    p[a][i][j] = choose(keep, p[a][i][j], 0);
  }
}

/* P' = 2^(S' scale - LSE), of what is seen; with a modifier also its slopes. */
INL void weigh(call_t call, const struct place *p, const struct block *x, i32 h, pairs_t s, pairs_t slopes, u32 stats,
               i32 now) {
  const i32 lane = thread_index() & 31, warp = thread_index() >> 5;
  const i32 query = tile_of(now) * bwd_inner + ((lane & 3) << 1), key = p->first + warp * 16 * bwd_blocks + (lane >> 2);
  const float scale = units_of(call);
  if (modified) {
    const struct scene scene = scene_of(call, renewed(p->b), head_again(h));
    const struct lane_scores lane_scores = lane_scores_of(&scene, bwd_blocks, bwd_inner / 8, query, key, 1);
    modify(&lane_scores, s, slopes, 1, call->scale);
  }
  UNROLL for (i32 i = 0; i < bwd_inner / 8; i++) {
    float start[2];
    load_shared2(start, stats + (u32)(i * 32 + (lane & 3) * 8));
    UNROLL for (i32 a = 0; a < bwd_blocks; a++) UNROLL for (i32 j = 0; j < 4; j++)
        s[a][i][j] = exp2_of(multiply_plus(s[a][i][j], scale, start[j & 1]));
  }
  if (kind_of(now) != PARTIAL) return;
  const struct scene scene = scene_of(call, renewed(p->b), head_again(h)); /* not kept from tile to tile */
  const struct tokens tokens = tokens_at(&scene, stats, x->shared + SHARED_TOKENS + (u32)(warp * 16 * bwd_blocks) * 4);
  mask_pairs(&scene, &tokens, s, query, renewed(key)); /* nor what the mask makes of keys */
}

/* dS' = P' * (dP' - delta) */
INL void differentiate(pairs_t d_p, const pairs_t p, u32 stats) {
  UNROLL for (i32 i = 0; i < bwd_inner / 8; i++) {
    float delta[2];
    load_shared2(delta, stats + (u32)(bwd_inner * 4 + i * 32 + (thread_index() & 3) * 8));
    UNROLL for (i32 a = 0; a < bwd_blocks; a++) UNROLL for (i32 j = 0; j < 4; j++)
        d_p[a][i][j] = p[a][i][j] * (d_p[a][i][j] - delta[j & 1]);
  }
}

INL void take_tile(call_t call, const struct place *p, const struct block *x, i32 h, struct gradients *g, i32 which,
                   i32 now, u32 stage) {
  const u32 q = x->shared + SHARED_Q + stage * BYTES_K, d_out = x->shared + SHARED_D_OUT + stage * BYTES_V;
  const u32 stats = x->shared + SHARED_STATS + stage * BYTES_STATS;
  const i32 t = renewed(thread_index());
  const u32 mine = (u32)((t >> 5) * 16 * bwd_blocks), own_k = x->shared + mine * (u32)PITCH_K,
            own_v = x->shared + SHARED_V + mine * (u32)PITCH_V;
  const struct patterns at = bwd_keep ? renewed_patterns(&x->patterns) : patterns_of(t & 31);
  pairs_t s, slopes, d_p;
  factors_t f;
  multiply_channels(s, bwd_keep & KEEP_K, x->k, &at.rows_k, &at.columns_k, own_k, q, bwd_depth, PITCH_K);
  weigh(call, p, x, h, s, slopes, stats, now);
  if (which & D_V) {
    pack_pairs(f, s);
    multiply_rows(g->d_v, f, &at.rows_v, d_out, bwd_width, PITCH_V);
  }
  if (which & D_K) {
    if (modified) scale_weights(s, slopes);
    multiply_channels(d_p, bwd_keep & KEEP_V, x->v, &at.rows_v, &at.columns_v, own_v, d_out, bwd_width, PITCH_V);
    differentiate(d_p, s, stats);
    pack_pairs(f, d_p);
    multiply_rows(g->d_k, f, &at.rows_k, q, bwd_depth, PITCH_K);
  }
}

/* ---- all tiles --------------------------------------------------------------------------------------------------- */

/* The queries of one head. */
INL void take_head(call_t call, const struct place *p, struct block *x, struct gradients *g, i32 which, i32 h) {
  const flyi_cuda_map *map = &call->by_key;
  struct walk walk = walk_of(map, p->b, h, p->map_row, p->tiles);
  i32 now = next_step(&walk, map, p->tiles), next = next_step(&walk, map, p->tiles);
  if (kind_of(now) == EMPTY) return;
  struct passing passing = passing_of(call, p, x, h);
  deal(&passing, tile_of(now));
  barrier(); /* nobody reads the tiles of the head before any more */
  copy_passing(&passing, tile_of(now), 0, x->aligned);
  copy_stats(call, p, x, passing.rows_k, h, tile_of(now), 0);
  copies_commit();
  deal(&passing, tile_of(next));
  u32 stage = 0;
  ROLLED while (kind_of(now) != EMPTY) {
    const i32 later = next_step(&walk, map, p->tiles);
    copies_wait(0);
    barrier();
    if (bwd_stages == 2 && kind_of(next) != EMPTY) {
      renew_rows(call, p, &passing, h);
      copy_passing(&passing, tile_of(next), 1 - stage, x->aligned);
      copy_stats(call, p, x, passing.rows_k, h, tile_of(next), 1 - stage);
      copies_commit();
      deal(&passing, tile_of(later));
    }
    take_tile(call, p, x, h, g, which, now, stage);
    if (bwd_stages == 1 && kind_of(next) != EMPTY) {
      barrier();
      renew_rows(call, p, &passing, h);
      copy_passing(&passing, tile_of(next), 0, x->aligned);
      copy_stats(call, p, x, passing.rows_k, h, tile_of(next), 0);
      copies_commit();
      deal(&passing, tile_of(later));
    }
    if (bwd_stages == 2) stage = 1 - stage;
    now = next;
    next = later;
  }
}

INL void take_heads(call_t call, struct block *x, struct gradients *g, i32 which) {
  if (which & D_K) clear(g->d_k, bwd_depth);
  if (which & D_V) clear(g->d_v, bwd_width);
  struct place p = place_again(call); /* heads are not counted: that takes a register through all tiles */
  ROLLED for (i32 h = p.h; h < p.h + call->walk; h++, p = place_again(call)) take_head(call, &p, x, g, which, h);
}

/* K and V, and what stays of them in registers. */
INL void open_block(call_t call, const struct place *p, struct block *x, i32 aligned) {
  const struct rows rows = key_rows(call, p->keys, p->b, p->h);
  const u32 mine = (u32)((thread_index() >> 5) * 16 * bwd_blocks);
  x->patterns = patterns_of(thread_index() & 31);
  x->shared = shared_base();
  x->own_k = x->shared + mine * (u32)PITCH_K, x->own_v = x->shared + SHARED_V + mine * (u32)PITCH_V;
  x->aligned = aligned;
  copy_own(SHARE_K, x->shared, &call->k, p->b, p->kv_head, rows, p->first, p->keys.length, aligned);
  copy_own(SHARE_V, x->shared + SHARED_V, &call->v, p->b, p->kv_head, rows, p->first, p->keys.length, aligned);
  if (KEY_TOKENS) UNROLL for (i32 i = 0; i < OUTER; i += bwd_warps * 32) { /* behind the last key: not looked at */
      const i32 t = i + thread_index();
      if (t < OUTER)
        store_shared(x->shared + SHARED_TOKENS + (u32)t * 4, (u32)token_of(rows, p->keys, p->first + t, 0));
    }
  if (!bwd_keep) return; /* they belong to the first tile's group */
  copies_commit();
  copies_wait(0);
  barrier();
  if (bwd_keep & KEEP_K) load_kept(x->k, &x->patterns.rows_k, x->own_k, bwd_depth, PITCH_K);
  if (bwd_keep & KEEP_V) load_kept(x->v, &x->patterns.rows_v, x->own_v, bwd_width, PITCH_V);
}

/* ---- pair by pair ------------------------------------------------------------------------------------------------ */

struct exact {
  float d_k[MAX_WIDTH / 32], d_v[MAX_WIDTH / 32];
};

/* 32 queries, one a lane, of one head. */
INL void exact_queries(call_t call, const struct place *p, struct exact *x, i32 key, i32 key_row, i32 h, i32 query,
                       i32 kind) {
  const i32 there = query < p->queries.length, at = there ? query : 0;
  const u64 q = row_address(plane_of(&call->q, p->b, h, SIZE), pitch_of(&call->q, SIZE),
                            row_at(query_rows(call, p->queries, p->b, h), at));
  const u64 d_out = row_address(plane_of(&call->d_out, p->b, h, SIZE), pitch_of(&call->d_out, SIZE),
                                row_at(output_rows(call, p->queries, p->b, h), at));
  const u64 k = row_address(plane_of(&call->k, p->b, p->kv_head, SIZE), pitch_of(&call->k, SIZE), key_row);
  const u64 v = row_address(plane_of(&call->v, p->b, p->kv_head, SIZE), pitch_of(&call->v, SIZE), key_row);
  const struct scene scene = scene_of(call, p->b, h);
  const _Bool seen = there && (kind != PARTIAL || visible_pair(&scene, query, key));
  const i64 stats = ((i64)p->b * args_of(call)->heads + h) * call->rows_q + at;
  const struct pair pair = pair_of(call, &scene, seen, query, key, stats, q, k, v, d_out);
  const u32 some = ballot(pair.seen);
  add_dealt(x->d_v, some, pair.p, d_out, bwd_value_dim);
  add_dealt(x->d_k, some, pair.ds, q, bwd_dim);
}

INL void exact_key(call_t call, const struct place *p, i32 key, struct exact *x) {
  const flyi_cuda_map *map = &call->by_key;
  const i32 lane = thread_index() & 31, key_row = row_at(key_rows(call, p->keys, p->b, p->h), key);
  *x = (struct exact){{0}, {0}};
  ROLLED for (i32 h = p->h; h < p->h + call->walk; h++) {
    struct walk walk = walk_of(map, p->b, h, p->map_row, p->tiles);
    ROLLED for (struct step s; (s = walk_step(&walk, map, p->tiles)).kind != EMPTY;)
        ROLLED for (i32 q = s.tile * bwd_inner; q < (s.tile + 1) * bwd_inner; q += 32)
            exact_queries(call, p, x, key, key_row, h, lane < bwd_inner ? q + lane : p->queries.length, s.kind);
  }
}

/* ---- the gradients ----------------------------------------------------------------------------------------------- */

/* One row again, pair by pair. */
INL void store_exact(call_t call, const struct place *p, i32 which, i32 key) {
  struct exact x;
  exact_key(call, p, key, &x);
  if (which & D_K && call->d_k.data) {
    const struct gradient d_k = d_k_of(call, p, rows_of_keys(call, p));
    store_dealt(&d_k, key, x.d_k, call->scale);
  }
  if (which & D_V && call->d_v.data) {
    const struct gradient d_v = d_v_of(call, p, rows_of_keys(call, p));
    store_dealt(&d_v, key, x.d_v, 1);
  }
}

/* Stores what is finite; the rest is a bit for each of the warp's rows. */
INL u32 store_finite(call_t call, const struct place *p, i32 which, const struct gradients *g) {
  const i32 lane = thread_index() & 31, warp = thread_index() >> 5;
  const struct rows rows = rows_of_keys(call, p);
  const struct gradient d_k = d_k_of(call, p, rows), d_v = d_v_of(call, p, rows);
  u32 again = 0;
  UNROLL for (i32 a = 0; a < bwd_blocks; a++) UNROLL for (i32 r = 0; r < 2; r++) {
    const i32 row = a * 16 + r * 8 + (lane >> 2), key = p->first + warp * 16 * bwd_blocks + row;
    float check = 0;
    if (which & D_K) check += check_row(g->d_k, a, r, bwd_depth);
    if (which & D_V) check += check_row(g->d_v, a, r, bwd_width);
    const _Bool there = key < p->keys.length, wrong = row_sum(check) != 0;
    if (there && wrong) again |= 1u << row;
    if (!there || wrong) continue;
    if (which & D_K && call->d_k.data) store_row(&d_k, key, g->d_k, a, r, bwd_depth, call->scale);
    if (which & D_V && call->d_v.data) store_row(&d_v, key, g->d_v, a, r, bwd_width, 1);
  }
  return any_lane(again);
}

INL void store(call_t call, const struct place *p, i32 which, const struct gradients *g) {
  const i32 first = p->first + (thread_index() >> 5) * 16 * bwd_blocks;
  ROLLED for (u32 again = store_finite(call, p, which, g); again; again &= again - 1)
      store_exact(call, p, which, first + __builtin_ctz(again));
}

/* ---- entries ----------------------------------------------------------------------------------------------------- */

INL void backward_keys(call_t call, i32 aligned) {
  struct place p = place_of(call, block_index(), (i32)args_of(call)->heads, OUTER, bwd_inner);
  if (p.first >= p.keys.length) return;
  struct block x;
  struct gradients g;
  open_block(call, &p, &x, aligned);
  UNROLL for (i32 i = 0; i < (bwd_split ? 2 : 1); i++) {
    const i32 which = bwd_split ? (i ? D_K : D_V) : D_K | D_V;
    take_heads(call, &x, &g, which);
    p = place_again(call);
    store(call, &p, which, &g);
  }
}

KERNEL fly_backward_keys(const flyi_cuda_call call) { backward_keys(&call, 1); }
KERNEL fly_backward_keys_any(const flyi_cuda_call call) { backward_keys(&call, 0); }
