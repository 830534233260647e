/* attn_fwd_f32_cuda.c: forward attention for f32, by the error of f32: no tensor cores, whose products of f32 are not
 * exact. Input: a flyi_cuda_call. Output: out, lse.
 *
 * The loop of attn_fwd_cuda.c, with one buffer for K and one for V. 128 threads, 8 to a group of queries: thread (ty,
 * tx) has the scores of queries ty + 16 r and keys tx + 8 c, and of the output the columns 32 j + 4 tx .. + 3. Weights
 * pass through shared memory from the one to the other, within a warp. A weight of 0 adds nothing, whatever V holds. */
#include "f32_cuda.h"

CONSTANT f32_dim, f32_value_dim;
CONSTANT f32_depth;   /* of Q and K in shared memory: a multiple of 4 */
CONSTANT f32_width;   /* of V: a multiple of 32 */
CONSTANT f32_rows;    /* queries of a thread: 16 times as many of a block */
CONSTANT f32_columns; /* keys of a thread: 8 times as many of a tile */

#define QUERIES (16 * f32_rows)
#define KEYS (8 * f32_columns)
/* Bytes from row to row: 4 more floats, so that 8 rows lie in different banks. */
#define PITCH_K ((f32_depth + 4) * 4)
#define PITCH_V ((f32_width + 4) * 4)
#define PITCH_P ((KEYS + 4) * 4)

struct place {
  struct scene scene;
  i32 first, map_row, tiles; /* first: of the block's queries; tiles: of keys */
  u32 q, k, v, p;            /* in shared memory */
  i32 aligned;
};

struct softmax {
  float o[MAX_ROWS][MAX_EACH], top[MAX_ROWS], sum[MAX_ROWS];
};

/* ---- copies ------------------------------------------------------------------------------------------------------ */

INL void copy_keys(call_t call, const struct place *p, i32 tile) {
  const struct floats k = floats_of(&call->k, p->scene.b, p->scene.h / call->group, p->scene.key_rows,
                                    p->scene.keys.length, f32_dim, f32_depth, p->aligned);
  copy_floats(&k, p->k, PITCH_K, tile * KEYS, KEYS);
}
INL void copy_values(call_t call, const struct place *p, i32 tile) {
  const struct floats v = floats_of(&call->v, p->scene.b, p->scene.h / call->group, p->scene.key_rows,
                                    p->scene.keys.length, f32_value_dim, f32_width, p->aligned);
  copy_floats(&v, p->v, PITCH_V, tile * KEYS, KEYS);
}

/* ---- a tile ------------------------------------------------------------------------------------------------------ */

INL void score(const struct place *p, scores_t s, float scale) {
  const i32 tx = thread_index() & 7, ty = thread_index() >> 3;
  multiply_floats(s, p->q + (u32)(ty * PITCH_K), p->k + (u32)(tx * PITCH_K), PITCH_K, f32_depth, f32_rows, f32_columns);
  UNROLL for (i32 r = 0; r < f32_rows; r++) UNROLL for (i32 c = 0; c < f32_columns; c++) s[r][c] *= scale;
}

/* Before the mask; in base 2 again. */
INL void modify_tile(const struct place *p, scores_t s, i32 tile) {
  const i32 query = p->first + (thread_index() >> 3), key = tile * KEYS + (thread_index() & 7);
  float y[MAX_ROWS * MAX_COLUMNS];
  UNROLL for (i32 n = 0; n < f32_rows * f32_columns; n++) y[n] = s[n / f32_columns][n % f32_columns];
  if (modifier_in_loop)
    ROLLED for (i32 n = 0; n < f32_rows * f32_columns; n++) y[n] = modified_pair(
        &p->scene, y[n], query + 16 * (n / f32_columns), key + 8 * (n % f32_columns));
  else
    UNROLL for (i32 n = 0; n < f32_rows * f32_columns; n++) y[n] = modified_pair(
        &p->scene, y[n], query + 16 * (n / f32_columns), key + 8 * (n % f32_columns));
  UNROLL for (i32 n = 0; n < f32_rows * f32_columns; n++) s[n / f32_columns][n % f32_columns] = y[n] * LOG2_E;
}

/* One of them in a loop: masks are inlined once. */
INL void mask_tile(const struct place *p, scores_t s, i32 tile, i32 kind) {
  const i32 query = p->first + (thread_index() >> 3), key = tile * KEYS + (thread_index() & 7);
  u32 bits = 0;
  ROLLED for (i32 n = 0; n < f32_rows * f32_columns; n++) {
    i32 r = n / f32_columns, c = n % f32_columns;
    _Bool seen = key + 8 * c < p->scene.keys.length;
    if (seen && kind == PARTIAL) seen = visible_pair(&p->scene, query + 16 * r, key + 8 * c);
    bits |= (u32)seen << n;
  }
  UNROLL for (i32 r = 0; r < f32_rows; r++) UNROLL for (i32 c = 0; c < f32_columns; c++)
      s[r][c] = bits >> (r * f32_columns + c) & 1 ? s[r][c] : -infinity();
}

/* Over the eight threads of a group. */
INL float group_max(float x) { return greater(row_max(x), exchange(row_max(x), 4)); }
INL float group_sum(float x) { return row_sum(x) + exchange(row_sum(x), 4); }

INL void weigh(const struct place *p, struct softmax *x, const scores_t s) {
  const i32 tx = thread_index() & 7, ty = thread_index() >> 3;
  UNROLL for (i32 r = 0; r < f32_rows; r++) {
    float top = -infinity(), sum = 0;
    UNROLL for (i32 c = 0; c < f32_columns; c++) top = greater(top, s[r][c]);
    top = greater(x->top[r], group_max(top));
    const float base = top == -infinity() ? 0 : top, factor = exp2_of(x->top[r] - base);
    x->top[r] = top;
    UNROLL for (i32 c = 0; c < f32_columns; c++) {
      const float w = exp2_of(s[r][c] - base);
      sum += w;
      store_shared(p->p + (u32)((ty + 16 * r) * PITCH_P + (tx + 8 * c) * 4), __builtin_bit_cast(u32, w));
    }
    x->sum[r] = multiply_plus(x->sum[r], factor, sum);
    UNROLL for (i32 i = 0; i < f32_width / 8; i++) x->o[r][i] *= factor;
  }
}

INL void add_values(const struct place *p, struct softmax *x, i32 kind) {
  const i32 tx = thread_index() & 7, ty = thread_index() >> 3;
  warp_barrier();
  ROLLED for (i32 key = 0; key < KEYS; key++) {
    float w[MAX_ROWS], v[4];
    UNROLL for (i32 r = 0; r < f32_rows; r++)
        w[r] = __builtin_bit_cast(float, load_shared(p->p + (u32)((ty + 16 * r) * PITCH_P + key * 4)));
    UNROLL for (i32 j = 0; j < f32_width / 32; j++) {
      load_floats(v, p->v + (u32)(key * PITCH_V + j * 128 + tx * 16));
      UNROLL for (i32 r = 0; r < f32_rows; r++) UNROLL for (i32 i = 0; i < 4; i++) {
        const float sum = multiply_plus(w[r], v[i], x->o[r][j * 4 + i]);
        x->o[r][j * 4 + i] = kind == FULL || w[r] != 0 ? sum : x->o[r][j * 4 + i];
      }
    }
  }
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

INL void attend(call_t call, const struct place *p, struct softmax *x) {
  struct walk walk = walk_of(&call->by_query, p->scene.b, p->scene.h, p->map_row, p->tiles);
  struct step now = walk_step(&walk, &call->by_query, p->tiles);
  if (now.kind == EMPTY) return;
  const struct floats q = floats_of(&call->q, p->scene.b, p->scene.h, p->scene.query_rows, p->scene.queries.length,
                                    f32_dim, f32_depth, p->aligned);
  copy_floats(&q, p->q, PITCH_K, p->first, QUERIES);
  copy_keys(call, p, now.tile);
  copies_commit();
  copy_values(call, p, now.tile);
  copies_commit();
  ROLLED while (now.kind != EMPTY) {
    struct step next = walk_step(&walk, &call->by_query, p->tiles);
    scores_t s;
    copies_wait(1);
    barrier();
    score(p, s, modified ? call->scale : call->scale_log2);
    copies_wait(0);
    barrier(); /* K has been read, V is there */
    if (next.kind != EMPTY) copy_keys(call, p, next.tile);
    copies_commit();
    if (modified) modify_tile(p, s, now.tile);
    if (now.kind == PARTIAL || (now.tile + 1) * KEYS > p->scene.keys.length) mask_tile(p, s, now.tile, now.kind);
    weigh(p, x, s);
    add_values(p, x, now.kind);
    barrier(); /* V has been read */
    if (next.kind != EMPTY) copy_values(call, p, next.tile);
    copies_commit();
    now = next;
  }
}

INL void store(call_t call, const struct place *p, const struct softmax *x) {
  const i32 tx = thread_index() & 7, ty = thread_index() >> 3, b = p->scene.b, h = p->scene.h;
  const struct rows rows = output_rows(call, p->scene.queries, b, h);
  UNROLL for (i32 r = 0; r < f32_rows; r++) {
    const i32 query = p->first + ty + 16 * r;
    const struct total total = total_of(call, h, x->top[r], group_sum(x->sum[r]));
    if (query >= p->scene.queries.length) continue;
    const i32 row = row_at(rows, query);
    GLOBAL float *out = (GLOBAL float *)row_address(plane_of(&call->out, b, h, 4), pitch_of(&call->out, 4), row);
    UNROLL for (i32 i = 0; i < f32_width / 8; i++) {
      const i32 column = i / 4 * 32 + tx * 4 + i % 4;
      if (column < f32_value_dim) out[column] = total.sum == 0 ? 0 : x->o[r][i] * total.factor / total.sum;
    }
    if (tx == 0 && call->lse.data)
      *(GLOBAL float *)row_address(plane_of(&call->lse, b, h, 4), pitch_of(&call->lse, 4), row) = total.lse;
  }
}

INL void forward(call_t call, i32 aligned) {
  struct work w = work_of(call, &call->by_query, (i32)args_of(call)->heads, block_index());
  struct place p = {
      .scene = scene_of(call, w.b, w.h), .first = w.tile * QUERIES, .map_row = w.map_row, .aligned = aligned};
  p.tiles = (p.scene.keys.length + KEYS - 1) / KEYS;
  p.q = shared_base();
  p.k = p.q + (u32)(QUERIES * PITCH_K);
  p.v = p.k + (u32)(KEYS * PITCH_K);
  p.p = p.v + (u32)(KEYS * PITCH_V);
  if (p.first >= p.scene.queries.length) return;
  struct softmax x;
  UNROLL for (i32 r = 0; r < f32_rows; r++) {
    UNROLL for (i32 i = 0; i < f32_width / 8; i++) x.o[r][i] = 0;
    x.top[r] = -infinity(), x.sum[r] = 0;
  }
  attend(call, &p, &x);
  store(call, &p, &x);
}

KERNEL fly_forward(const flyi_cuda_call call) { forward(&call, 1); }
KERNEL fly_forward_any(const flyi_cuda_call call) { forward(&call, 0); }
