/* attn_split_f32_cuda.c: few queries and many keys for f32. Input: a flyi_cuda_call. Output: part_out, part_lse.
 *
 * A tile is 32 keys, one a lane; warp w has rows 4w .. 4w + 3 of the tile of rows, of the output the columns lane, lane
 * + 32, ..: nothing passes between warps. K and V have one buffer each; the next K is loaded under softmax and P V, the
 * next V under Q K^T. A weight of 0 adds nothing, whatever V holds. */
#include "split_cuda.h"

CONSTANT split_dim, split_value_dim;
CONSTANT split_depth; /* of Q, K and V in shared memory: multiples of 4 */
CONSTANT split_width;

enum { WARPS = 4, KEYS = 32, EACH = SPLIT_ROWS / WARPS, MAX_OUT = MAX_WIDTH / 32 /* columns of a lane */ };
/* Bytes from row to row: 4 more floats, so that 8 rows lie in different banks. */
#define PITCH_K ((split_depth + 4) * 4)
#define PITCH_V ((split_width + 4) * 4)
#define COLUMNS ((split_value_dim + 31) / 32)

struct softmax {
  float o[EACH][MAX_OUT], top[EACH], sum[EACH];
};

struct tiles {
  u32 q, k, v; /* in shared memory */
  i32 aligned;
};

INL void load_floats(float x[4], u32 at) {
  u32 bits[4];
  load_shared4(bits, at);
  UNROLL for (i32 i = 0; i < 4; i++) x[i] = __builtin_bit_cast(float, bits[i]);
}

/* ---- copies ------------------------------------------------------------------------------------------------------ */

/* A row by a warp; one that does not exist becomes zeros. */
INL void copy_row(u32 to, u64 row, _Bool exists, i32 dim, i32 depth, i32 aligned) {
  ROLLED for (i32 c = thread_index() & 31; c < depth / 4; c += 32) {
    const i32 bytes = exists ? (dim - c * 4) * 4 : 0;
    const u32 at = to + (u32)(c * 16);
    if (aligned)
      copy16(at, bytes > 0 ? row + (u64)c * 16 : row, (u32)(bytes < 0 ? 0 : bytes > 16 ? 16 : bytes));
    else
      UNROLL for (i32 e = 0; e < 4; e++)
          copy4(at + (u32)e * 4, bytes > e * 4 ? row + (u64)c * 16 + (u64)e * 4 : row, bytes > e * 4 ? 4 : 0);
  }
}
INL void copy_queries(call_t call, const struct place *p, const struct tiles *t) {
  ROLLED for (i32 i = thread_index() >> 5; i < SPLIT_ROWS; i += WARPS) {
    const struct query q = query_at(call, p, i);
    const i32 row = row_at(query_rows(call, p->queries, p->b, q.head), q.query);
    copy_row(t->q + (u32)(i * PITCH_K), row_address(plane_of(&call->q, p->b, q.head, 4), pitch_of(&call->q, 4), row),
             p->first + i < p->rows, split_dim, split_depth, t->aligned);
  }
}
INL void copy_keys(call_t call, const struct place *p, const struct tiles *t, const flyi_cuda_tensor *x, i32 tile,
                   u32 to, i32 pitch, i32 dim, i32 depth) {
  const u64 plane = plane_of(x, p->b, p->h / call->group, 4);
  const struct rows rows = key_rows(call, p->keys, p->b, p->h);
  ROLLED for (i32 i = thread_index() >> 5; i < KEYS; i += WARPS) {
    const i32 key = tile * KEYS + i;
    const i32 row = row_at(rows, at_most(key, p->keys.length - 1));
    copy_row(to + (u32)(i * pitch), row_address(plane, pitch_of(x, 4), row), key < p->keys.length, dim, depth,
             t->aligned);
  }
}
INL void copy_k(call_t call, const struct place *p, const struct tiles *t, i32 tile) {
  copy_keys(call, p, t, &call->k, tile, t->k, PITCH_K, split_dim, split_depth);
}
INL void copy_v(call_t call, const struct place *p, const struct tiles *t, i32 tile) {
  copy_keys(call, p, t, &call->v, tile, t->v, PITCH_V, split_value_dim, split_width);
}

/* ---- a tile ------------------------------------------------------------------------------------------------------ */

INL void score(const struct tiles *t, float s[EACH], float scale) {
  const i32 lane = thread_index() & 31, warp = thread_index() >> 5;
  UNROLL for (i32 r = 0; r < EACH; r++) s[r] = 0;
  _Pragma("clang loop unroll_count(2)") for (i32 d = 0; d < split_depth; d += 4) {
    float k[4], q[4];
    load_floats(k, t->k + (u32)(lane * PITCH_K + d * 4));
    UNROLL for (i32 r = 0; r < EACH; r++) {
      load_floats(q, t->q + (u32)((warp * EACH + r) * PITCH_K + d * 4));
      UNROLL for (i32 i = 0; i < 4; i++) s[r] = multiply_plus(q[i], k[i], s[r]);
    }
  }
  UNROLL for (i32 r = 0; r < EACH; r++) s[r] *= scale;
}

/* One row in a loop: masks are inlined once. */
INL void mask_tile(call_t call, const struct place *p, float s[EACH], struct step step) {
  const i32 key = step.tile * KEYS + (thread_index() & 31), row = (thread_index() >> 5) * EACH;
  u32 bits = 0;
  ROLLED for (i32 r = 0; r < EACH; r++) {
    _Bool seen = key < p->keys.length;
    if (seen && step.kind == PARTIAL) {
      const struct query q = query_at(call, p, row + r);
      const struct scene scene = scene_of(call, p->b, q.head);
      seen = visible_pair(&scene, q.query, key);
    }
    bits |= (u32)seen << r;
  }
  UNROLL for (i32 r = 0; r < EACH; r++) s[r] = bits >> r & 1 ? s[r] : -infinity();
}

/* Scores become weights. */
INL void weigh(struct softmax *x, float s[EACH]) {
  UNROLL for (i32 r = 0; r < EACH; r++) {
    const float top = greater(x->top[r], warp_max(s[r])), base = top == -infinity() ? 0 : top;
    const float factor = exp2_of(x->top[r] - base);
    x->top[r] = top;
    s[r] = exp2_of(s[r] - base);
    x->sum[r] = multiply_plus(x->sum[r], factor, warp_sum(s[r]));
    UNROLL for (i32 j = 0; j < COLUMNS; j++) x->o[r][j] *= factor;
  }
}

INL void add_values(const struct tiles *t, struct softmax *x, const float s[EACH], i32 kind) {
  const i32 lane = thread_index() & 31;
  ROLLED for (i32 key = 0; key < KEYS; key++) {
    float w[EACH];
    UNROLL for (i32 r = 0; r < EACH; r++) w[r] = of_lane_f(s[r], key);
    UNROLL for (i32 j = 0; j < COLUMNS; j++) {
      if (lane + 32 * j >= split_value_dim) continue;
      const float v = __builtin_bit_cast(float, load_shared(t->v + (u32)(key * PITCH_V + (lane + 32 * j) * 4)));
      UNROLL for (i32 r = 0; r < EACH; r++) x->o[r][j] = kind == FULL || w[r] != 0 ? multiply_plus(w[r], v, x->o[r][j])
                                                                                   : x->o[r][j];
    }
  }
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

INL void attend(call_t call, const struct place *p, const struct tiles *t, struct softmax *x) {
  const i32 tiles = (p->keys.length + KEYS - 1) / KEYS;
  const _Bool mine = p->first + (thread_index() >> 5) * EACH < p->rows; /* otherwise this warp only copies */
  struct part part = part_of(call, p, tiles);
  struct step now = part_step(&part, call, tiles);
  if (now.kind == EMPTY) return;
  copy_queries(call, p, t);
  copy_k(call, p, t, now.tile);
  copies_commit();
  copy_v(call, p, t, now.tile);
  copies_commit();
  ROLLED while (now.kind != EMPTY) {
    const struct step next = part_step(&part, call, tiles);
    float s[EACH];
    copies_wait(1);
    barrier();
    if (mine) score(t, s, call->scale_log2);
    copies_wait(0);
    barrier(); /* K has been read, V is there */
    if (next.kind != EMPTY) copy_k(call, p, t, next.tile);
    copies_commit();
    if (mine) {
      if (now.kind == PARTIAL || (now.tile + 1) * KEYS > p->keys.length) mask_tile(call, p, s, now);
      weigh(x, s);
      add_values(t, x, s, now.kind);
    }
    barrier(); /* V has been read */
    if (next.kind != EMPTY) copy_v(call, p, t, next.tile);
    copies_commit();
    now = next;
  }
}

INL void store(call_t call, const struct place *p, const struct softmax *x) {
  const i32 lane = thread_index() & 31, warp = thread_index() >> 5;
  UNROLL for (i32 r = 0; r < EACH; r++) {
    if (p->first + warp * EACH + r >= p->rows) continue;
    const i64 row = partial_row(call, p, query_at(call, p, warp * EACH + r));
    GLOBAL float *out = partial_out(call, row, split_value_dim);
    UNROLL for (i32 j = 0; j < COLUMNS; j++) if (lane + 32 * j < split_value_dim)
        out[lane + 32 * j] = x->sum[r] == 0 ? 0 : x->o[r][j] / x->sum[r];
    if (lane == 0) store_partial_lse(call, row, x->top[r], x->sum[r]);
  }
}

INL void split(call_t call, i32 aligned) {
  const struct place p = place_of(call, block_index());
  if (p.first >= p.rows) return;
  struct tiles t = {.q = shared_base(), .aligned = aligned};
  t.k = t.q + (u32)(SPLIT_ROWS * PITCH_K);
  t.v = t.k + (u32)(KEYS * PITCH_K);
  struct softmax x;
  UNROLL for (i32 r = 0; r < EACH; r++) {
    UNROLL for (i32 j = 0; j < COLUMNS; j++) x.o[r][j] = 0;
    x.top[r] = -infinity(), x.sum[r] = 0;
  }
  attend(call, &p, &t, &x);
  store(call, &p, &x);
}

KERNEL fly_split(const flyi_cuda_call call) { split(&call, 1); }
KERNEL fly_split_any(const flyi_cuda_call call) { split(&call, 0); }
