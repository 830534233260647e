/* attn_split_cuda.c: few queries and many keys on tensor cores, for f16 and bf16. Input: a flyi_cuda_call. Output:
 * part_out, part_lse.
 *
 * A block's 16 rows meet tiles of 16 keys for each warp: every warp has a softmax of its own over its keys, and these
 * are joined at the end, in the order of the warps. K and V are double-buffered, one barrier a tile: what limits is
 * memory. As in attn_fwd_cuda.c, rows whose output is not finite are worked out again, key by key, where a mask was
 * asked. */
#include "split_cuda.h"

CONSTANT split_dim, split_value_dim;
CONSTANT split_depth, split_width; /* the same as tiles have them: multiples of 16 */
CONSTANT split_warps;
CONSTANT split_keep_q; /* Q's operands stay in registers */
CONSTANT split_bf16;

#define KEYS (16 * split_warps)
#define SHARE_K ((struct share){split_depth, split_dim, split_warps})
#define SHARE_V ((struct share){split_width, split_value_dim, split_warps})
#define PITCH_K tile_pitch(split_depth)
#define PITCH_V tile_pitch(split_width)
#define BYTES_K (u32)(KEYS * PITCH_K)
#define BYTES_V (u32)(KEYS * PITCH_V)
/* Joining: floats of a row of a warp's output, so that 8 rows lie in different banks; behind them tops and sums. */
#define PITCH_O (split_width + 8)

typedef float output_t[MAX_WIDTH / 8][4];
typedef float scores_t[2][4];

struct softmax {
  output_t o;
  float top[2], sum[2]; /* of rows g and g + 8, scores times log2(e) */
};

/* ---- copies ------------------------------------------------------------------------------------------------------ */

INL void copy_queries(call_t call, const struct place *p, u32 to, i32 aligned) {
  const i32 chunks = split_depth / 8;
  ROLLED for (i32 i = thread_index(); i < SPLIT_ROWS * chunks; i += split_warps * 32) {
    const i32 row = i / chunks, chunk = i % chunks, left = (split_dim - chunk * 8) * 2;
    const i32 bytes = p->first + row >= p->rows || left < 0 ? 0 : left > 16 ? 16 : left;
    const struct query q = query_at(call, p, row);
    const u32 at = to + (u32)(row * PITCH_K + ((chunk ^ (row & 7)) << 4));
    const u64 from = row_address(plane_of(&call->q, p->b, q.head, 2), pitch_of(&call->q, 2),
                                 row_at(query_rows(call, p->queries, p->b, q.head), q.query));
    if (aligned)
      copy16(at, bytes ? from + (u64)chunk * 16 : from, (u32)bytes);
    else
      copy_elements(at, from + (u64)chunk * 16, bytes);
  }
}

struct copies {
  struct source k, v;
  struct rows rows;
  u32 to_k, to_v;       /* of this thread, in the first stage */
  i32 dealt_k, dealt_v; /* memory rows of the tile that is copied next */
  i32 length, aligned;
};
INL void deal_tile(struct copies *c, i32 tile) {
  c->dealt_k = deal_rows(SHARE_K, c->rows, tile * KEYS, KEYS, c->length);
  c->dealt_v = share_lanes(SHARE_K) == share_lanes(SHARE_V) ? c->dealt_k
                                                            : deal_rows(SHARE_V, c->rows, tile * KEYS, KEYS, c->length);
}
INL void copy_tiles(const struct copies *c, i32 tile, u32 stage) {
  const i32 first = tile * KEYS;
  copy_tile(SHARE_K, c->to_k + stage * BYTES_K, c->k, c->dealt_k, first, KEYS, c->length, c->aligned);
  copy_tile(SHARE_V, c->to_v + stage * BYTES_V, c->v, c->dealt_v, first, KEYS, c->length, c->aligned);
}

/* ---- a tile ------------------------------------------------------------------------------------------------------ */

/* keys: of this warp's 16. */
INL void score(scores_t s, u32 kept[MAX_WIDTH / 16][4], const struct pattern *rows, const struct pattern *columns,
               u32 queries, u32 keys, float scale) {
  UNROLL for (i32 i = 0; i < 2; i++) UNROLL for (i32 j = 0; j < 4; j++) s[i][j] = 0;
  UNROLL for (i32 k = 0; k < split_depth / 16; k++) {
    u32 r[4];
    if (!split_keep_q) load_matrices(kept[k], matrix_at(rows, queries, PITCH_K, 0, k));
    load_matrices(r, matrix_at(columns, keys, PITCH_K, 0, k));
    multiply_add(split_bf16, s[0], kept[k], r[0], r[1]);
    multiply_add(split_bf16, s[1], kept[k], r[2], r[3]);
  }
  UNROLL for (i32 i = 0; i < 2; i++) UNROLL for (i32 j = 0; j < 4; j++) s[i][j] *= scale;
}

/* key: of this lane's first column. One score in a loop: masks are inlined once. */
INL void mask_tile(call_t call, const struct place *p, scores_t s, i32 key, i32 kind) {
  u32 bits = 0;
  ROLLED for (i32 n = 0; n < 8; n++) {
    const i32 kv = key + (n >> 2) * 8 + (n & 1);
    _Bool seen = kv < p->keys.length;
    if (seen && kind == PARTIAL) {
      const struct query q = query_at(call, p, ((thread_index() & 31) >> 2) + (n >> 1 & 1) * 8);
      const struct scene scene = scene_of(call, p->b, q.head);
      seen = visible_pair(&scene, q.query, kv);
    }
    bits |= (u32)seen << n;
  }
  UNROLL for (i32 n = 0; n < 8; n++) s[n >> 2][n & 3] = bits >> n & 1 ? s[n >> 2][n & 3] : -infinity();
}

INL void weigh(struct softmax *x, scores_t s) {
  UNROLL for (i32 r = 0; r < 2; r++) {
    float top = x->top[r], sum = 0;
    UNROLL for (i32 i = 0; i < 2; i++) top = greater(top, greater(s[i][2 * r], s[i][2 * r + 1]));
    top = row_max(top);
    const float base = top == -infinity() ? 0 : top, factor = exp2_of(x->top[r] - base);
    x->top[r] = top;
    UNROLL for (i32 i = 0; i < split_width / 8; i++) x->o[i][2 * r] *= factor, x->o[i][2 * r + 1] *= factor;
    UNROLL for (i32 i = 0; i < 2; i++) UNROLL for (i32 j = 2 * r; j < 2 * r + 2; j++) {
      s[i][j] = exp2_of(s[i][j] - base);
      sum += s[i][j];
    }
    x->sum[r] = multiply_plus(x->sum[r], factor, sum);
  }
}

INL void add_values(output_t o, const scores_t s, const struct pattern *rows, u32 values) {
  u32 w[4];
  UNROLL for (i32 i = 0; i < 4; i++) w[i] = pack(split_bf16, s[i / 2][2 * (i & 1)], s[i / 2][2 * (i & 1) + 1]);
  UNROLL for (i32 n = 0; n < split_width / 16; n++) {
    u32 r[4];
    load_transposed(r, matrix_at(rows, values, PITCH_V, 0, n));
    multiply_add(split_bf16, o[2 * n], w, r[0], r[1]);
    multiply_add(split_bf16, o[2 * n + 1], w, r[2], r[3]);
  }
}

/* ---- all tiles of a part ----------------------------------------------------------------------------------------- */

/* Returns the kinds of tiles that there were. */
INL i32 attend(call_t call, const struct place *p, struct softmax *x, i32 aligned) {
  const i32 lane = thread_index() & 31, warp = thread_index() >> 5, tiles = (p->keys.length + KEYS - 1) / KEYS;
  const u32 shared_q = shared_base(), shared_k = shared_q + (u32)(SPLIT_ROWS * PITCH_K),
            shared_v = shared_k + 2 * BYTES_K, my_k = shared_k + (u32)(warp * 16 * PITCH_K),
            my_v = shared_v + (u32)(warp * 16 * PITCH_V);
  const struct pattern rows_q = pattern_rows(lane, PITCH_K), columns_k = pattern_columns(lane, PITCH_K),
                       rows_v = pattern_rows(lane, PITCH_V);
  struct copies c = {source_of(SHARE_K, &call->k, p->b, p->h / call->group),
                     source_of(SHARE_V, &call->v, p->b, p->h / call->group),
                     key_rows(call, p->keys, p->b, p->h),
                     shared_k + share_at(SHARE_K),
                     shared_v + share_at(SHARE_V),
                     0,
                     0,
                     p->keys.length,
                     aligned};
  struct part part = part_of(call, p, tiles);
  struct step now = part_step(&part, call, tiles), next = part_step(&part, call, tiles);
  i32 kinds = 0;
  u32 stage = 0, kept[MAX_WIDTH / 16][4];
  if (now.kind == EMPTY) return 0;
  deal_tile(&c, now.tile);
  copy_queries(call, p, shared_q, aligned);
  copy_tiles(&c, now.tile, 0);
  copies_commit();
  deal_tile(&c, next.tile);
  if (split_keep_q) {
    copies_wait(0);
    barrier();
    UNROLL for (i32 k = 0; k < split_depth / 16; k++)
        load_matrices(kept[k], matrix_at(&rows_q, shared_q, PITCH_K, 0, k));
  }
  ROLLED while (now.kind != EMPTY) {
    const struct step later = part_step(&part, call, tiles);
    const i32 key = now.tile * KEYS;
    scores_t s;
    copies_wait(0);
    barrier(); /* the tile is there, and the other stage has been read */
    if (next.kind != EMPTY) copy_tiles(&c, next.tile, 1 - stage);
    copies_commit();
    deal_tile(&c, later.tile);
    score(s, kept, &rows_q, &columns_k, shared_q, my_k + stage * BYTES_K, call->scale_log2);
    if (now.kind == PARTIAL || key + KEYS > p->keys.length)
      mask_tile(call, p, s, key + warp * 16 + ((lane & 3) << 1), now.kind);
    weigh(x, s);
    add_values(x->o, s, &rows_v, my_v + stage * BYTES_V);
    kinds |= now.kind;
    stage = 1 - stage;
    now = next, next = later;
  }
  return kinds;
}

/* ---- the warps' softmaxes as one --------------------------------------------------------------------------------- */

INL u32 state_at(i32 warp, i32 row) {
  return shared_base() + (u32)((split_warps * SPLIT_ROWS * PITCH_O + (warp * SPLIT_ROWS + row) * 2) * 4);
}

/* Where shared memory had tiles, outputs [warps][16][PITCH_O] and tops and sums [warps][16][2] are afterwards. */
INL void exchange_states(const struct softmax *x) {
  const i32 lane = thread_index() & 31, warp = thread_index() >> 5;
  barrier(); /* all tiles have been read */
  UNROLL for (i32 r = 0; r < 2; r++) {
    const i32 row = (lane >> 2) + r * 8;
    const float sum = row_sum(x->sum[r]);
    const u32 to = shared_base() + (u32)(((warp * SPLIT_ROWS + row) * PITCH_O + ((lane & 3) << 1)) * 4);
    UNROLL for (i32 i = 0; i < split_width / 8; i++) UNROLL for (i32 j = 0; j < 2; j++)
        store_shared(to + (u32)(i * 8 + j) * 4, __builtin_bit_cast(u32, x->o[i][2 * r + j]));
    if ((lane & 3) == 0) {
      store_shared(state_at(warp, row), __builtin_bit_cast(u32, x->top[r]));
      store_shared(state_at(warp, row) + 4, __builtin_bit_cast(u32, sum));
    }
  }
  barrier();
}

/* A row: its warps' factors, the whole's top and sum. */
struct joined {
  float factor[4], top, sum; /* factor: of up to 4 warps */
};
INL struct joined join_row(i32 row) {
  struct joined all = {.top = -infinity(), .sum = 0};
  float state[4][2];
  UNROLL for (i32 w = 0; w < split_warps; w++) {
    load_shared2(state[w], state_at(w, row));
    all.top = greater(all.top, state[w][0]);
  }
  const float base = all.top == -infinity() ? 0 : all.top;
  UNROLL for (i32 w = 0; w < split_warps; w++) {
    all.factor[w] = exp2_of(state[w][0] - base);
    all.sum = multiply_plus(state[w][1], all.factor[w], all.sum);
  }
  return all;
}

/* The rows of this warp, every split_warps-th one; a bit for each whose output is not finite. */
INL u32 store(call_t call, const struct place *p) {
  const i32 lane = thread_index() & 31;
  u32 wrong = 0;
  ROLLED for (i32 row = thread_index() >> 5; row < SPLIT_ROWS; row += split_warps) {
    if (p->first + row >= p->rows) break;
    const struct joined all = join_row(row);
    const i64 to = partial_row(call, p, query_at(call, p, row));
    GLOBAL float *out = partial_out(call, to, split_value_dim);
    const float inverse = all.sum == 0 ? 0 : 1 / all.sum;
    float check = 0 * all.sum;
    ROLLED for (i32 n = lane; n < split_value_dim; n += 32) {
      float sum = 0;
      UNROLL for (i32 w = 0; w < split_warps; w++) {
        const u32 at = shared_base() + (u32)(((w * SPLIT_ROWS + row) * PITCH_O + n) * 4);
        sum = multiply_plus(__builtin_bit_cast(float, load_shared(at)), all.factor[w], sum);
      }
      check = multiply_plus(sum, 0, check);
      out[n] = sum * inverse;
    }
    if (lane == 0) store_partial_lse(call, to, all.top, all.sum);
    if (ballot(check != 0)) wrong |= 1u << row;
  }
  return wrong;
}

/* ---- rows that are not finite, again ----------------------------------------------------------------------------- */

/* A row by itself, by a whole warp. */
INL void exact_row(call_t call, const struct place *p, i32 row) {
  const i32 lane = thread_index() & 31, tiles = (p->keys.length + KEYS - 1) / KEYS;
  const struct query of = query_at(call, p, row);
  const struct scene scene = scene_of(call, p->b, of.head);
  const u64 q = row_address(plane_of(&call->q, p->b, of.head, 2), pitch_of(&call->q, 2),
                            row_at(scene.query_rows, of.query));
  const struct exact_of keys = {call, split_bf16, split_dim, split_value_dim, p->b, p->h / call->group};
  struct part part = part_of(call, p, tiles);
  struct exact x = exact_none();
  ROLLED for (struct step s; (s = part_step(&part, call, tiles)).kind != EMPTY;)
      ROLLED for (i32 kv = s.tile * KEYS; kv < (s.tile + 1) * KEYS; kv += 32) {
    const _Bool there = kv + lane < p->keys.length;
    const i32 key = there ? row_at(scene.key_rows, kv + lane) : 0;
    const _Bool seen = there && (s.kind != PARTIAL || visible_pair(&scene, of.query, kv + lane));
    exact_add(&keys, &x, exact_product(&keys, q, key, seen) * call->scale_log2, key, seen);
  }
  const i64 to = partial_row(call, p, of);
  UNROLL for (i32 i = 0; i < MAX_WIDTH / 32; i++) if (lane + 32 * i < split_value_dim)
      partial_out(call, to, split_value_dim)[lane + 32 * i] = x.sum == 0 ? 0 : x.o[i] / x.sum;
  if (lane == 0) store_partial_lse(call, to, x.top, x.sum);
}

/* ---- entries ----------------------------------------------------------------------------------------------------- */

INL void split(call_t call, i32 aligned) {
  const struct place p = place_of(call, block_index());
  if (p.first >= p.rows) return;
  struct softmax x;
  UNROLL for (i32 i = 0; i < split_width / 8; i++) UNROLL for (i32 j = 0; j < 4; j++) x.o[i][j] = 0;
  UNROLL for (i32 r = 0; r < 2; r++) x.top[r] = -infinity(), x.sum[r] = 0;
  const i32 kinds = attend(call, &p, &x, aligned);
  exchange_states(&x);
  const u32 wrong = store(call, &p);
  if (__builtin_expect(wrong == 0 || !(kinds & PARTIAL), 1)) return;
  ROLLED for (u32 left = wrong; left; left &= left - 1) exact_row(call, &p, __builtin_ctz(left));
}

KERNEL fly_split(const flyi_cuda_call call) { split(&call, 1); }
KERNEL fly_split_any(const flyi_cuda_call call) { split(&call, 0); }
