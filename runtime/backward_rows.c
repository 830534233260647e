/* backward_rows.c: rows of the call, and rows of the tensors of gradients. Where each row of a tensor is one row of
 * the call at most, a finished row goes straight to its place. Where rows repeat (a row map that names a row twice,
 * heads with key rows of their own that share keys, a cache that sequences of a ragged batch share), all rows of the
 * call are kept as f32, and summed in the end: for each row of a tensor in the order of heads, batch entries and
 * rows. Rows of a tensor that the call does not read become 0. */
#include <string.h>

#include "backward.h"

enum { FINISH_ROWS = 256 /* of a tensor, at a time */ };

/* ---- the plan ---------------------------------------------------------------------------------------------------- */

static const fly_row_map *map_of(const flyi_call *call, bool queries) {
  return queries ? &call->c.geometry.q_rows : &call->c.geometry.kv_rows;
}

/* Query heads that share rows of the call's side. */
static int64_t shared_heads(const flyi_backward *b, bool queries) { return queries ? 1 : b->group_heads; }

static fly_status find_repeats(const flyi_backward *b, flyi_side *side, fly_error *error) {
  const fly_attention *c = &b->call->c;
  const fly_row_map *map = map_of(b->call, side->queries);
  if (!map->rows || !c->geometry.heads) return FLY_OK;
  if (!side->queries && b->group_heads < c->geometry.heads / b->call->kv_heads) {
    side->repeats = true; /* several heads' rows of a key/value head */
    return FLY_OK;
  }
  if (flyi_call_knows(b->call, map)) return FLY_OK;
  flyi_repeat where;
  return flyi_rows_repeat(map, &c->geometry, side->queries, side->rows, &side->repeats, &where, error);
}

/* Where all rows of a side's gradients may go past the cache, and are more than a core's own holds. */
static bool can_stream(const flyi_backward *b, const flyi_side *side) {
  int64_t bytes = 0;
  for (int i = 0; i < side->count; i++) {
    const fly_tensor *t = side->gradient[i];
    if (!t->data) continue;
    if ((int32_t)t->type != b->code->stream_type || !flyi_is_lines(t)) return false;
    bytes += flyi_tensor_bytes(t);
  }
  return !side->repeats && !b->call->c.add_gradients && bytes > FLYI_STREAM_BYTES;
}

fly_status flyi_side_plan(const flyi_backward *b, bool queries, flyi_side *side, fly_error *error) {
  fly_attention *c = (fly_attention *)&b->call->c;
  const fly_geometry *g = &c->geometry;
  const fly_tensor *read = queries ? &c->q : &c->k;
  *side = (flyi_side){.queries = queries, .rows = read->shape[2], .count = queries ? 1 : 2};
  side->blocks = flyi_blocks(queries ? b->call->domain.max_q : b->call->domain.max_kv);
  side->gradient[0] = queries ? &c->d_q : &c->d_k, side->width[0] = b->k_width;
  side->gradient[1] = queries ? NULL : &c->d_v, side->width[1] = b->v_width;
  if (!queries && c->v.shape[2] > side->rows) side->rows = c->v.shape[2];
  fly_status status = find_repeats(b, side, error);
  side->streams = can_stream(b, side);
  side->sweeps = side->repeats || side->rows > flyi_rows_of(g, queries);
  return status;
}

/* ---- finished rows ----------------------------------------------------------------------------------------------- */

/* Of all rows of the call's side. */
static int64_t index_of(const flyi_backward *b, const flyi_side *side, int64_t entry, int64_t h, int64_t row) {
  int64_t shared = shared_heads(b, side->queries);
  return (entry * (b->call->c.geometry.heads / shared) + h / shared) * side->blocks * FLYI_BLOCK + row;
}

float *flyi_side_sums(const flyi_backward *b, const flyi_side *side, int which, int64_t entry, int64_t h, int64_t row) {
  return side->sums[which] + index_of(b, side, entry, h, row) * side->width[which];
}

static int64_t tensor_head(const flyi_backward *b, const flyi_side *side, int64_t h) {
  return side->queries ? h : h / (b->call->c.geometry.heads / b->call->kv_heads);
}

static flyi_store_cpu store_to(const fly_tensor *t, int64_t entry, int64_t head, int64_t row) {
  return (flyi_store_cpu){.out = flyi_plane_row(t, entry, head, row),
                          .out_stride = t->stride[2],
                          .count = 1,
                          .type = t->type,
                          .dim = (int32_t)t->shape[3]};
}

void flyi_side_store(const flyi_backward *b, const flyi_side *side, int which, int64_t entry, int64_t h, int64_t row,
                     int count, const float *sums, int64_t stride) {
  const fly_geometry *g = &b->call->c.geometry;
  const fly_tensor *t = side->gradient[which];
  if (!t->data) return;
  if (!sums && !side->repeats && b->call->c.add_gradients) return;
  if (side->repeats) {
    size_t bytes = sizeof *sums * count * side->width[which];
    float *out = flyi_side_sums(b, side, which, entry, h, row);
    if (sums)
      memcpy(out, sums, bytes);
    else
      memset(out, 0, bytes);
    return;
  }
  row += flyi_start_of(side->queries ? g->cu_seqlens_q : g->cu_seqlens_kv, entry);
  const int32_t *rows = flyi_map_rows(map_of(b->call, side->queries), entry, h, row);
  flyi_store_cpu store = store_to(t, entry, tensor_head(b, side, h), rows ? 0 : row);
  store.in = sums, store.in_stride = stride, store.rows = rows, store.count = count;
  store.add = b->call->c.add_gradients, store.stream = side->streams && sums;
  b->code->store(&store);
}

/* ---- the sweep in the end ---------------------------------------------------------------------------------------- */

typedef struct sweep {
  const flyi_backward *b;
  const flyi_side *side;
  int64_t heads, planes; /* of the tensors */
} sweep;

/* Rows of (entry, h), the last first, to the front of the lists of their tensor rows, so that these ascend. */
static void list_rows(const sweep *s, int64_t entry, int64_t h, int64_t *first) {
  const fly_geometry *g = &s->b->call->c.geometry;
  bool queries = s->side->queries;
  int64_t start = flyi_start_of(queries ? g->cu_seqlens_q : g->cu_seqlens_kv, entry);
  int64_t count = queries ? flyi_len_q(g, entry) : flyi_len_kv(g, entry), index = index_of(s->b, s->side, entry, h, 0);
  const int32_t *rows = flyi_map_rows(map_of(s->b->call, queries), entry, h, start);
  for (int64_t i = count - 1; i >= 0; i--) {
    int64_t row = rows ? rows[i] : start + i;
    if (s->side->repeats) s->side->next[index + i] = first[row];
    first[row] = index + i;
  }
}

static void list_plane(void *context, int64_t plane, int worker) {
  (void)worker;
  const sweep *s = context;
  const fly_geometry *g = &s->b->call->c.geometry;
  bool ragged = g->cu_seqlens_q != NULL;
  int64_t *first = s->side->first + plane * s->side->rows, each = g->heads / s->heads;
  int64_t step = shared_heads(s->b, s->side->queries), entry = plane / s->heads, h0 = plane % s->heads * each;
  for (int64_t i = 0; i < s->side->rows; i++) first[i] = -1;
  for (int64_t h = h0 + each - step; h >= h0; h -= step)
    for (int64_t e = ragged ? g->batch - 1 : entry; e >= (ragged ? 0 : entry); e--) list_rows(s, e, h, first);
}

/* Row `row` of a tensor: the sum of its list. */
static void finish_row(const sweep *s, int which, int64_t plane, int64_t row) {
  const flyi_side *side = s->side;
  const fly_tensor *t = side->gradient[which];
  int64_t at = side->first[plane * side->rows + row];
  if (at >= 0 ? !side->repeats : s->b->call->c.add_gradients) return;
  float sum[FLYI_MAX_DIM] __attribute__((aligned(64))) = {0};
  flyi_store_cpu store = store_to(t, plane / s->heads, plane % s->heads, row);
  int32_t width = side->width[which];
  store.in = sum, store.add = s->b->call->c.add_gradients;
  for (; at >= 0; at = side->next[at])
    for (int i = 0; i < width; i++) sum[i] += side->sums[which][at * width + i];
  s->b->code->store(&store);
}

static void finish_rows(void *context, int64_t item, int worker) {
  (void)worker;
  const sweep *s = context;
  int64_t chunks = (s->side->rows + FINISH_ROWS - 1) / FINISH_ROWS, first = item % chunks * FINISH_ROWS;
  for (int which = 0; which < s->side->count; which++) {
    const fly_tensor *t = s->side->gradient[which];
    for (int64_t row = first; t->data && row < flyi_min64(first + FINISH_ROWS, t->shape[2]); row++)
      finish_row(s, which, item / chunks, row);
  }
}

void flyi_side_finish(const flyi_backward *b, const flyi_side *side) {
  const fly_tensor *t = side->queries ? &b->call->c.q : &b->call->c.k;
  sweep s = {b, side, t->shape[1], t->shape[0] * t->shape[1]};
  if (!side->sweeps || !s.planes || !side->rows) return;
  flyi_parallel(&b->threads, s.planes, list_plane, &s);
  flyi_parallel(&b->threads, s.planes * ((side->rows + FINISH_ROWS - 1) / FINISH_ROWS), finish_rows, &s);
}
