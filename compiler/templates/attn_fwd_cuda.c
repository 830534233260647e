/* attn_fwd_cuda.c: forward attention on tensor cores, for f16 and bf16. Input: a flyi_cuda_call. Output: out, lse.
 *
 * FlashAttention-2's loop (Dao, arXiv 2307.08691) over the runs of the block map: a block of threads owns some queries,
 * a warp 16 or 32 of them; tiles of keys pass by, copied ahead of their use. Scores stay in registers: a C operand of
 * the first product is an A operand of the second. Full tiles run no mask code.
 *
 *     fwd_stages 2   K and V are double-buffered, one barrier a tile
 *     fwd_stages 1   one buffer each: the next K is loaded under softmax and P V, the next V under Q K^T; less memory
 *
 * What a query does not see never reaches it: masked scores are selected away, and 0 * inf in the second product, where
 * V holds an infinity or a NaN in a row that only other queries of the tile see, is found at the end in the output,
 * which is then not finite: such rows are worked out again, key by key (exact_row). */
#include "cuda_score.h"
#include "exact_cuda.h"

CONSTANT fwd_dim, fwd_value_dim; /* of Q and K; of V */
CONSTANT fwd_depth, fwd_width;   /* the same as tiles have them: multiples of 16 */
CONSTANT fwd_blocks, fwd_warps;  /* of 16 rows a warp; of a block */
CONSTANT fwd_keys;               /* of a tile */
CONSTANT fwd_stages;
CONSTANT fwd_keep_q; /* Q's operands stay in registers */
CONSTANT fwd_bf16;

#define QUERIES (16 * fwd_blocks * fwd_warps)
#define LEAST (fwd_warps * 256 / fwd_keys)
#define SHARE_K ((struct share){fwd_depth < LEAST ? LEAST : fwd_depth, fwd_dim, fwd_warps})
#define SHARE_V ((struct share){fwd_width < LEAST ? LEAST : fwd_width, fwd_value_dim, fwd_warps})
#define PITCH_K tile_pitch(fwd_depth)
#define PITCH_V tile_pitch(fwd_width)
#define BYTES_K (u32)(fwd_keys * PITCH_K)
#define BYTES_V (u32)(fwd_keys * PITCH_V)

typedef float scores_t[MAX_BLOCKS][MAX_INNER / 8][4];
typedef float output_t[MAX_BLOCKS][MAX_WIDTH / 8][4];
typedef u32 operands_t[MAX_BLOCKS][MAX_WIDTH / 16][4];

/* What a block knows of its place. */
struct place {
  struct scene scene;
  i32 b, h, first; /* first: of its queries */
  struct span queries, keys;
  i32 map_row, tiles; /* tiles: of keys */
};

/* Of a lane. */
struct softmax {
  output_t o;
  float top[MAX_BLOCKS][2], sum[MAX_BLOCKS][2]; /* of rows g and g + 8 */
};

/* ---- copies ------------------------------------------------------------------------------------------------------ */

struct copies {
  struct source k, v;
  struct rows rows;
  u32 to_k, to_v;       /* of this thread, in the first stage */
  i32 dealt_k, dealt_v; /* memory rows of the tile that is copied next */
  i32 length, aligned;
};

/* Which memory rows the tile holds. Where K's and V's rows take as many lanes, they are the same. */
INL void deal_keys(struct copies *c, i32 tile) {
  c->dealt_k = deal_rows(SHARE_K, c->rows, tile * fwd_keys, fwd_keys, c->length);
  c->dealt_v = share_lanes(SHARE_K) == share_lanes(SHARE_V)
                   ? c->dealt_k
                   : deal_rows(SHARE_V, c->rows, tile * fwd_keys, fwd_keys, c->length);
}
INL void copy_keys(const struct copies *c, i32 tile, u32 stage) {
  copy_tile(SHARE_K, c->to_k + stage * BYTES_K, c->k, c->dealt_k, tile * fwd_keys, fwd_keys, c->length, c->aligned);
}
INL void copy_values(const struct copies *c, i32 tile, u32 stage) {
  copy_tile(SHARE_V, c->to_v + stage * BYTES_V, c->v, c->dealt_v, tile * fwd_keys, fwd_keys, c->length, c->aligned);
}

INL void copy_queries(call_t call, const struct place *p, u32 shared, i32 aligned) {
  struct rows rows = query_rows(call, p->queries, p->b, p->h);
  i32 dealt = deal_rows(SHARE_K, rows, p->first, QUERIES, p->queries.length);
  copy_tile(SHARE_K, shared + share_at(SHARE_K), source_of(SHARE_K, &call->q, p->b, p->h), dealt, p->first, QUERIES,
            p->queries.length, aligned);
}

/* Q changes its sign with the scale, so that the greatest score is always the one that counts most: every thread that
 * of its own chunks. */
INL void negate_queries(u32 shared) {
  ROLLED for (i32 row = share_row(SHARE_K); row < QUERIES; row += share_rows(SHARE_K)) {
    u32 x[4], at = shared + (u32)(row * PITCH_K + ((share_chunk(SHARE_K) ^ (row & 7)) << 4));
    if (share_chunk(SHARE_K) * 8 >= SHARE_K.width) continue;
    load_shared4(x, at);
    UNROLL for (i32 i = 0; i < 4; i++) x[i] ^= 0x80008000u;
    store_shared4(at, x);
  }
}

/* ---- the products ------------------------------------------------------------------------------------------------ */

INL void load_queries(u32 q[4], const struct pattern *rows, u32 my_q, i32 block, i32 k) {
  load_matrices(q, matrix_at(rows, my_q, PITCH_K, block * 16, k));
}

INL void score(scores_t s, const operands_t kept, const struct pattern *rows, const struct pattern *columns, u32 my_q,
               u32 keys) {
  UNROLL for (i32 a = 0; a < fwd_blocks; a++) UNROLL for (i32 i = 0; i < fwd_keys / 8; i++)
      UNROLL for (i32 j = 0; j < 4; j++) s[a][i][j] = 0;
  UNROLL for (i32 k = 0; k < fwd_depth / 16; k++) {
    u32 loaded[MAX_BLOCKS][4];
    if (!fwd_keep_q) UNROLL for (i32 a = 0; a < fwd_blocks; a++) load_queries(loaded[a], rows, my_q, a, k);
    UNROLL for (i32 n = 0; n < fwd_keys / 16; n++) {
      u32 r[4];
      load_matrices(r, matrix_at(columns, keys, PITCH_K, n * 16, k));
      UNROLL for (i32 a = 0; a < fwd_blocks; a++) {
        const u32 *q = fwd_keep_q ? kept[a][k] : loaded[a];
        multiply_add(fwd_bf16, s[a][2 * n], q, r[0], r[1]);
        multiply_add(fwd_bf16, s[a][2 * n + 1], q, r[2], r[3]);
      }
    }
  }
}

/* Scores become weights 2^(scale (s - greatest)); what was summed before is scaled down to the new greatest. */
INL void weigh(struct softmax *x, scores_t s, float scale) {
  UNROLL for (i32 a = 0; a < fwd_blocks; a++) UNROLL for (i32 r = 0; r < 2; r++) {
    float top = x->top[a][r];
    UNROLL for (i32 i = 0; i < fwd_keys / 8; i++) top = greater(top, greater(s[a][i][2 * r], s[a][i][2 * r + 1]));
    top = row_max(top);
    float neg = top == -infinity() ? 0 : -top * scale; /* nothing seen yet: every weight is 2^-inf, and not a NaN */
    float factor = exp2_of(multiply_plus(x->top[a][r], scale, neg)), sum = 0;
    x->top[a][r] = top;
    UNROLL for (i32 i = 0; i < fwd_width / 8; i++) x->o[a][i][2 * r] *= factor, x->o[a][i][2 * r + 1] *= factor;
    UNROLL for (i32 i = 0; i < fwd_keys / 8; i++) UNROLL for (i32 j = 2 * r; j < 2 * r + 2; j++) {
      s[a][i][j] = exp2_of(multiply_plus(s[a][i][j], scale, neg));
      sum += s[a][i][j];
    }
    x->sum[a][r] = multiply_plus(x->sum[a][r], factor, sum);
  }
}

INL void add_values(output_t o, const scores_t s, const struct pattern *rows, u32 values) {
  UNROLL for (i32 k = 0; k < fwd_keys / 16; k++) {
    u32 p[MAX_BLOCKS][4];
    UNROLL for (i32 a = 0; a < fwd_blocks; a++) UNROLL for (i32 i = 0; i < 4; i++)
        p[a][i] = pack(fwd_bf16, s[a][2 * k + i / 2][2 * (i & 1)], s[a][2 * k + i / 2][2 * (i & 1) + 1]);
    UNROLL for (i32 n = 0; n < fwd_width / 16; n++) {
      u32 r[4];
      load_transposed(r, matrix_at(rows, values, PITCH_V, k * 16, n));
      UNROLL for (i32 a = 0; a < fwd_blocks; a++) {
        multiply_add(fwd_bf16, o[a][2 * n], p[a], r[0], r[1]);
        multiply_add(fwd_bf16, o[a][2 * n + 1], p[a], r[2], r[3]);
      }
    }
  }
}

/* ---- all tiles --------------------------------------------------------------------------------------------------- */

/* Where a warp finds its operands in shared memory, and its first lane's scores. */
struct view {
  struct pattern rows_q, columns_k, rows_v;
  u32 q, k, v; /* the tile of queries; K and V of the first stage */
  u32 my_q;
  i32 query, key; /* of this lane's first score: of the call, of the tile */
};
INL struct view view_of(const struct place *p) {
  const i32 lane = thread_index() & 31, mine = (thread_index() >> 5) * 16 * fwd_blocks;
  struct view x = {.rows_q = pattern_rows(lane, PITCH_K),
                   .columns_k = pattern_columns(lane, PITCH_K),
                   .rows_v = pattern_rows(lane, PITCH_V)};
  x.q = shared_base();
  x.k = x.q + (u32)(QUERIES * PITCH_K);
  x.v = x.k + (u32)fwd_stages * BYTES_K;
  x.my_q = x.q + (u32)(mine * PITCH_K);
  x.query = p->first + mine + (lane >> 2), x.key = (lane & 3) << 1;
  return x;
}

/* Q, and the first tile of K and V. */
INL void start_copies(call_t call, const struct place *p, const struct view *x, struct copies *c, i32 tile,
                      operands_t kept) {
  deal_keys(c, tile);
  copy_queries(call, p, x->q, c->aligned);
  copy_keys(c, tile, 0);
  copies_commit();
  copy_values(c, tile, 0);
  copies_commit();
  if (!modified && call->scale_log2 < 0) {
    copies_wait(0);
    negate_queries(x->q);
  }
  if (!fwd_keep_q) return;
  copies_wait(1);
  barrier();
  UNROLL for (i32 a = 0; a < fwd_blocks; a++) UNROLL for (i32 k = 0; k < fwd_depth / 16; k++)
      load_queries(kept[a][k], &x->rows_q, x->my_q, a, k);
}

/* Products become scores of what is seen. What rows' places lead to is worked out again for each tile: it takes no
 * registers in between. */
INL void settle(call_t call, const struct place *p, const struct view *x, scores_t s, struct step now) {
  const i32 kv = now.tile * fwd_keys, key = kv + x->key, columns = fwd_keys / 8;
  if (modified) {
    const struct lane_scores l = lane_scores_of(&p->scene, fwd_blocks, columns, renewed(x->query), key, 0);
    modify(&l, s, s, 0, call->scale);
  }
  if (now.kind == PARTIAL) mask_scores(&p->scene, s, fwd_blocks, columns, renewed(x->query), key, -infinity());
  if (kv + fwd_keys > p->keys.length) mask_tail(s, fwd_blocks, columns, p->keys.length - key);
}

INL void attend(call_t call, const struct place *p, struct softmax *x, i32 aligned) {
  const flyi_cuda_map *map = &call->by_query;
  const struct view at = view_of(p);
  const float scale = __builtin_fabsf(units_of(call));
  struct walk walk = walk_of(map, p->b, p->h, p->map_row, p->tiles);
  struct step now = walk_step(&walk, map, p->tiles), next = walk_step(&walk, map, p->tiles);
  struct copies c = {.k = source_of(SHARE_K, &call->k, p->b, p->h / call->group),
                     .v = source_of(SHARE_V, &call->v, p->b, p->h / call->group),
                     .rows = key_rows(call, p->keys, p->b, p->h),
                     .to_k = at.k + share_at(SHARE_K),
                     .to_v = at.v + share_at(SHARE_V),
                     .length = p->keys.length,
                     .aligned = aligned};
  operands_t kept;
  if (now.kind == EMPTY) return;
  start_copies(call, p, &at, &c, now.tile, kept);
  deal_keys(&c, next.tile);
  u32 stage = 0;
  ROLLED while (now.kind != EMPTY) {
    const struct step later = walk_step(&walk, map, p->tiles);
    const _Bool more = next.kind != EMPTY;
    scores_t s;
    if (fwd_stages == 2)
      copies_wait(0);
    else
      copies_wait(1);
    barrier();
    if (fwd_stages == 2 && more) {
      copy_keys(&c, next.tile, 1 - stage);
      copy_values(&c, next.tile, 1 - stage);
      copies_commit();
      deal_keys(&c, later.tile);
    }
    score(s, kept, &at.rows_q, &at.columns_k, at.my_q, at.k + stage * BYTES_K);
    if (fwd_stages == 1) { /* K has been read: fetch the next */
      copies_wait(0);
      barrier();
      if (more) copy_keys(&c, next.tile, 0);
      copies_commit();
    }
    settle(call, p, &at, s, now);
    weigh(x, s, scale);
    add_values(x->o, s, &at.rows_v, at.v + stage * BYTES_V);
    if (fwd_stages == 1 && more) {
      barrier();
      copy_values(&c, next.tile, 0);
      copies_commit();
      deal_keys(&c, later.tile);
    }
    if (fwd_stages == 2) stage = 1 - stage;
    now = next, next = later;
  }
}

/* ---- the output -------------------------------------------------------------------------------------------------- */

INL void store_element(call_t call, u64 row, i32 i, float x) {
  if (call->out_type == TYPE_F32)
    ((GLOBAL float *)row)[i] = x;
  else
    ((GLOBAL u16 *)row)[i] = (u16)pack(fwd_bf16, x, 0);
}

INL u64 output_row(call_t call, const struct place *p, i32 row) {
  i32 size = call->out_type == TYPE_F32 ? 4 : 2;
  return row_address(plane_of(&call->out, p->b, p->h, size), pitch_of(&call->out, size), row);
}

INL void store_lse(call_t call, const struct place *p, i32 row, float lse) {
  if (!call->lse.data) return;
  *(GLOBAL float *)row_address(plane_of(&call->lse, p->b, p->h, 4), pitch_of(&call->lse, 4), row) = lse;
}

/* One lane's part of a row: two neighbouring columns of every eight. */
INL void store_row(call_t call, u64 out, const output_t o, i32 a, i32 r, float inverse) {
  const i32 column = (thread_index() & 3) << 1;
  const _Bool pairs = call->out_type != TYPE_F32 && fwd_value_dim % 2 == 0 && !(out & 3);
  UNROLL for (i32 i = 0; i < fwd_width / 8; i++) {
    float x = o[a][i][2 * r] * inverse, y = o[a][i][2 * r + 1] * inverse;
    i32 at = i * 8 + column;
    if (pairs) {
      if (at < fwd_value_dim) *(GLOBAL u32 *)(out + (u64)at * 2) = pack(fwd_bf16, x, y);
    } else {
      if (at < fwd_value_dim) store_element(call, out, at, x);
      if (at + 1 < fwd_value_dim) store_element(call, out, at + 1, y);
    }
  }
}

/* wrong: a bit for each lane whose part of a row is not finite; of rows g and g + 8 of each 16. */
INL void store(call_t call, const struct place *p, const struct softmax *x, u32 wrong[MAX_BLOCKS][2]) {
  const i32 lane = thread_index() & 31, first = p->first + (thread_index() >> 5) * 16 * fwd_blocks + (lane >> 2);
  const float scale = __builtin_fabsf(units_of(call));
  const struct rows rows = output_rows(call, p->queries, p->b, p->h);
  UNROLL for (i32 a = 0; a < fwd_blocks; a++) UNROLL for (i32 r = 0; r < 2; r++) {
    const i32 query = first + a * 16 + r * 8;
    const float sum = row_sum(x->sum[a][r]), top = x->top[a][r];
    const struct total total = total_of(call, p->h, top == -infinity() ? top : top * scale, sum);
    const float inverse = total.sum == 0 ? 0 : total.factor * reciprocal(total.sum);
    float check = 0 * sum; /* 0 as long as everything is finite */
    UNROLL for (i32 i = 0; i < fwd_width / 8; i++) UNROLL for (i32 j = 2 * r; j < 2 * r + 2; j++)
        check = multiply_plus(x->o[a][i][j], 0, check);
    wrong[a][r] = ballot(query < p->queries.length && check != 0);
    if (query >= p->queries.length) continue;
    const i32 row = row_at(rows, query);
    store_row(call, output_row(call, p, row), x->o, a, r, inverse);
    if ((lane & 3) == 0) store_lse(call, p, row, total.lse);
  }
}

/* ---- rows that are not finite, again ----------------------------------------------------------------------------- */

/* 32 keys, one a lane, to one query. */
INL void exact_keys(call_t call, const struct place *p, struct exact *x, u64 q, i32 query, i32 kv, i32 kind) {
  const struct exact_of of = {call, fwd_bf16, fwd_dim, fwd_value_dim, p->b, p->h / call->group};
  const i32 lane = thread_index() & 31, there = kv + lane < p->keys.length;
  const i32 row = there ? row_at(key_rows(call, p->keys, p->b, p->h), kv + lane) : 0;
  const _Bool seen = there && (kind != PARTIAL || visible_pair(&p->scene, query, kv + lane));
  float s = exact_product(&of, q, row, seen);
  if (modified) s = modified_pair(&p->scene, s * call->scale, query, kv + (there ? lane : 0));
  exact_add(&of, x, s * units_of(call), row, seen);
}

/* A query by itself, by a whole warp. */
INL void exact_row(call_t call, const struct place *p, i32 query) {
  struct exact x = exact_none();
  const struct rows rows = query_rows(call, p->queries, p->b, p->h);
  const u64 q = row_address(plane_of(&call->q, p->b, p->h, 2), pitch_of(&call->q, 2), row_at(rows, query));
  struct walk walk = walk_of(&call->by_query, p->b, p->h, p->map_row, p->tiles);
  ROLLED for (struct step s; (s = walk_step(&walk, &call->by_query, p->tiles)).kind != EMPTY;)
      ROLLED for (i32 kv = s.tile * fwd_keys; kv < (s.tile + 1) * fwd_keys; kv += 32)
          exact_keys(call, p, &x, q, query, kv, s.kind);
  const i32 lane = thread_index() & 31, row = row_at(output_rows(call, p->queries, p->b, p->h), query);
  const u64 out = output_row(call, p, row);
  const struct total total = total_of(call, p->h, x.top, x.sum);
  UNROLL for (i32 i = 0; i < MAX_WIDTH / 32; i++) if (lane + 32 * i < fwd_value_dim)
      store_element(call, out, lane + 32 * i, total.sum == 0 ? 0 : x.o[i] * total.factor / total.sum);
  if (lane == 0) store_lse(call, p, row, total.lse);
}

/* Rows of which a lane saw something that is not finite. Where every tile was full, they saw it rightly. */
INL void mend(call_t call, const struct place *p, const u32 wrong[MAX_BLOCKS][2]) {
  u32 all = 0;
  UNROLL for (i32 a = 0; a < fwd_blocks; a++) all |= wrong[a][0] | wrong[a][1];
  if (__builtin_expect(all == 0, 1)) return;
  i32 kinds = 0;
  struct walk walk = walk_of(&call->by_query, p->b, p->h, p->map_row, p->tiles);
  ROLLED for (struct step s; (s = walk_step(&walk, &call->by_query, p->tiles)).kind != EMPTY;) kinds |= s.kind;
  if (!(kinds & PARTIAL)) return;
  warp_barrier(); /* other lanes have stored these rows */
  ROLLED for (i32 y = 0; y < 2 * fwd_blocks; y++) {
    u32 left = 0;
    UNROLL for (i32 a = 0; a < 2 * fwd_blocks; a++) left = y == a ? wrong[a / 2][a % 2] : left;
    ROLLED for (i32 g = 0; g < 8; g++) if (left >> 4 * g & 15)
        exact_row(call, p, p->first + ((thread_index() >> 5) * 2 * fwd_blocks + y) * 8 + g);
  }
}

/* ---- entries ----------------------------------------------------------------------------------------------------- */

INL struct place place_of(call_t call, u32 index) {
  struct work w = work_of(call, &call->by_query, (i32)args_of(call)->heads, index);
  struct place p = {
      .scene = scene_of(call, w.b, w.h), .b = w.b, .h = w.h, .first = w.tile * QUERIES, .map_row = w.map_row};
  p.queries = p.scene.queries;
  p.keys = p.scene.keys;
  p.tiles = (p.keys.length + fwd_keys - 1) / fwd_keys;
  return p;
}

INL void forward(call_t call, i32 aligned) {
  struct place p = place_of(call, block_index());
  if (p.first >= p.queries.length) return;
  struct softmax x;
  UNROLL for (i32 a = 0; a < fwd_blocks; a++) {
    UNROLL for (i32 i = 0; i < fwd_width / 8; i++) UNROLL for (i32 j = 0; j < 4; j++) x.o[a][i][j] = 0;
    UNROLL for (i32 r = 0; r < 2; r++) x.top[a][r] = -infinity(), x.sum[a][r] = 0;
  }
  attend(call, &p, &x, aligned);
  p = place_of(call, (u32)renewed((i32)block_index())); /* not kept in registers through the walk */
  u32 wrong[MAX_BLOCKS][2];
  store(call, &p, &x, wrong);
  mend(call, &p, wrong);
}

KERNEL fly_forward(const flyi_cuda_call call) { forward(&call, 1); }
KERNEL fly_forward_any(const flyi_cuda_call call) { forward(&call, 0); }
