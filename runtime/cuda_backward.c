/* cuda_backward.c: a backward call on a GPU. Input: a checked call. Output: on its stream, in this order: what of
 * each row of queries is worked out once; gradients of keys and values; gradients of queries; sums of rows that
 * repeat, and zeros for rows that the call does not read. */
#include <inttypes.h>
#include <stdlib.h>

#include "cuda.h"

enum { ROUND_ROWS = 256 /* launch_cuda.h: rows_q, rows_kv */, ALIGN = 256 };

/* The queries' or the keys' side of a call, as seen from a tensor of gradients. */
typedef struct side {
  const flyi_call *call;
  bool queries, repeats;
  int64_t heads;  /* of the tensor */
  int64_t walk;   /* query heads that share a row of the call */
  int64_t padded; /* rows_q or rows_kv */
} side;

static int64_t pairs_of(const side *s) { return s->call->c.geometry.batch * (s->call->c.geometry.heads / s->walk); }

static const fly_row_map *map_of(const side *s) {
  return s->queries ? &s->call->c.geometry.q_rows : &s->call->c.geometry.kv_rows;
}

static fly_status plan_side(const flyi_call *call, bool queries, side *s, fly_error *error) {
  const fly_attention *c = &call->c;
  int64_t longest = queries ? call->domain.max_q : call->domain.max_kv, group = c->geometry.heads / call->kv_heads;
  *s = (side){.call = call, .queries = queries, .heads = queries ? c->geometry.heads : call->kv_heads};
  s->padded = (longest + ROUND_ROWS - 1) / ROUND_ROWS * ROUND_ROWS;
  const fly_row_map *map = map_of(s);
  bool own_rows = map->rows && map->stride_head; /* heads that share keys, but not which of them they read */
  s->walk = queries || own_rows ? 1 : group;
  if (!queries && own_rows && group > 1) {
    s->repeats = true;
    return FLY_OK;
  }
  if (flyi_call_knows(call, map)) return FLY_OK;
  int64_t rows = queries ? c->q.shape[2] : c->k.shape[2] > c->v.shape[2] ? c->k.shape[2] : c->v.shape[2];
  flyi_repeat where;
  return flyi_rows_repeat(map, &c->geometry, queries, rows, &s->repeats, &where, error);
}

/* ---- rows behind rows of a tensor (flyi_cuda_finish) ----------------------------------------------------------- */

typedef struct finish_source {
  const side *side;
  int64_t batch, rows; /* of the tensor */
} finish_source;

typedef struct finish_places {
  size_t first, list;
} finish_places;

static int64_t count_calls(const finish_source *f) {
  const fly_geometry *g = &f->side->call->c.geometry;
  int64_t each = flyi_rows_of(g, f->side->queries); /* over all entries in a packed call */
  return each * (g->cu_seqlens_q ? 1 : g->batch) * (g->heads / f->side->walk);
}

static finish_places stage_finish_places(const finish_source *f, flyi_staging *s) {
  finish_places at;
  size_t planes = (size_t)(f->batch * f->side->heads);
  flyi_staging_add(s, planes * ((size_t)f->rows + 1) + 1, sizeof(int32_t), &at.first);
  flyi_staging_add(s, (size_t)count_calls(f), sizeof(int32_t), &at.list);
  return at;
}

/* Calls `visit` for every row of the call in the order in which rows of a tensor are summed: heads, entries, rows. */
typedef void visit_row(int32_t *first, int32_t *list, int64_t at, int64_t place);
static void visit_rows(const finish_source *f, int32_t *first, int32_t *list, visit_row *visit) {
  const side *s = f->side;
  const fly_geometry *g = &s->call->c.geometry;
  const int32_t *cu = s->queries ? g->cu_seqlens_q : g->cu_seqlens_kv;
  int64_t heads = g->heads / s->walk, shared = heads / s->heads;
  for (int64_t h = 0; h < heads; h++)
    for (int64_t b = 0; b < g->batch; b++) {
      int64_t start = flyi_start_of(cu, b), count = s->queries ? flyi_len_q(g, b) : flyi_len_kv(g, b);
      int64_t plane = (f->batch > 1 ? b : 0) * s->heads + h / shared;
      const int32_t *rows = flyi_map_rows(map_of(s), b, h * s->walk, start);
      for (int64_t r = 0; r < count; r++)
        visit(first, list, plane * (f->rows + 1) + (rows ? rows[r] : start + r), (b * heads + h) * s->padded + r);
    }
}

static void count_row(int32_t *first, int32_t *list, int64_t at, int64_t place) {
  (void)list, (void)place;
  first[at + 1]++;
}

static void add_row(int32_t *first, int32_t *list, int64_t at, int64_t place) { list[first[at]++] = (int32_t)place; }

/* Counts, sums of the counts, then each row at its turn: first[i] moves to where i + 1 began, and is moved back. Entry
 * `rows` of a plane stands for its end and gets no row. */
static fly_status stage_finish(const void *object, flyi_staging *s, fly_error *error) {
  (void)error;
  const finish_source *f = object;
  finish_places at = stage_finish_places(f, s);
  if (s->failed) return FLY_OK;
  int32_t *first = (int32_t *)(s->data + at.first), *list = (int32_t *)(s->data + at.list);
  int64_t entries = f->batch * f->side->heads * (f->rows + 1);
  visit_rows(f, first, list, count_row);
  for (int64_t i = 0; i < entries; i++) first[i + 1] += first[i];
  visit_rows(f, first, list, add_row);
  for (int64_t i = entries; i > 0; i--) first[i] = first[i - 1];
  first[0] = 0;
  return FLY_OK;
}

/* ---- the workspace --------------------------------------------------------------------------------------------- */

typedef struct plan {
  side queries, keys;
  int64_t neg_lse, delta, sums_q, sums_k, sums_v; /* offsets; -1: there is none */
  int64_t bytes;
  bool wants_keys, wants_queries;
} plan;

static int64_t carve(plan *p, bool wanted, int64_t count, int64_t size, bool *overflow) {
  int64_t bytes, at = p->bytes;
  if (!wanted) return -1;
  *overflow |= __builtin_mul_overflow(count, size, &bytes) || bytes > INT64_MAX / 4 || p->bytes > INT64_MAX / 4;
  if (!*overflow) p->bytes += (bytes + ALIGN - 1) / ALIGN * ALIGN;
  return at;
}

static fly_status make_plan(const flyi_call *call, plan *p, fly_error *error) {
  const fly_attention *c = &call->c;
  const fly_kernel_desc *d = &c->kernel->desc;
  fly_status status;
  bool overflow = false;
  *p = (plan){.wants_keys = c->d_k.data || c->d_v.data, .wants_queries = c->d_q.data != NULL};
  if ((status = plan_side(call, true, &p->queries, error)) || (status = plan_side(call, false, &p->keys, error)))
    return status;
  int64_t q = pairs_of(&p->queries) * p->queries.padded, kv = pairs_of(&p->keys) * p->keys.padded;
  p->neg_lse = carve(p, true, q, 4, &overflow);
  p->delta = carve(p, true, q, 4, &overflow);
  p->sums_q = carve(p, p->queries.repeats && c->d_q.data, q, 4 * d->head_dim, &overflow);
  p->sums_k = carve(p, p->keys.repeats && c->d_k.data, kv, 4 * d->head_dim, &overflow);
  p->sums_v = carve(p, p->keys.repeats && c->d_v.data, kv, 4 * d->value_dim, &overflow);
  if (overflow || q > INT32_MAX || kv > INT32_MAX)
    return flyi_fail(error, FLY_ERROR_UNSUPPORTED,
                     "batch * heads * rows are %" PRId64 " queries and %" PRId64
                     " keys: on a GPU a backward call takes 2^31 - 1",
                     q, kv);
  return FLY_OK;
}

static void place(flyi_cuda_launch *l, const plan *p, flyi_device_memory base) {
  const fly_attention *c = &l->call->c;
  flyi_cuda_call *a = l->argument;
  a->d_out = flyi_cuda_tensor_of(&c->d_out), a->d_lse = flyi_cuda_tensor_of(&c->d_lse);
  a->d_q = flyi_cuda_tensor_of(&c->d_q), a->d_k = flyi_cuda_tensor_of(&c->d_k), a->d_v = flyi_cuda_tensor_of(&c->d_v);
  a->neg_lse = base + (uint64_t)p->neg_lse, a->delta = base + (uint64_t)p->delta;
  a->sums_q = p->sums_q < 0 ? 0 : base + (uint64_t)p->sums_q;
  a->sums_k = p->sums_k < 0 ? 0 : base + (uint64_t)p->sums_k;
  a->sums_v = p->sums_v < 0 ? 0 : base + (uint64_t)p->sums_v;
  a->rows_q = (int32_t)p->queries.padded, a->rows_kv = (int32_t)p->keys.padded;
  a->add_gradients = c->add_gradients;
  a->walk = (int32_t)p->keys.walk;
}

/* ---- launches -------------------------------------------------------------------------------------------------- */

/* A role that walks no map: tiles of `rows` rows. */
static fly_status run_rows(flyi_cuda_launch *l, flyi_cuda_role role, int64_t rows, int64_t pairs, fly_error *error) {
  const flyi_cuda_entry *entry = NULL;
  fly_status status = flyi_cuda_find(l, role, &entry, error);
  if (status) return status;
  return flyi_cuda_run(l, entry, flyi_cuda_deal(l, (rows + entry->outer - 1) / entry->outer, pairs, 0), error);
}

static fly_status run_map(flyi_cuda_launch *l, flyi_cuda_role role, const side *outer, const side *inner,
                          fly_error *error) {
  bool by_query = outer->queries;
  flyi_cuda_map *map = by_query ? &l->argument->by_query : &l->argument->by_key;
  const fly_kernel_desc *d = &l->call->c.kernel->desc;
  const flyi_cuda_entry *entry = NULL;
  fly_status status;
  if ((status = flyi_cuda_find(l, role, &entry, error)) ||
      (status = flyi_cuda_put_map(l, by_query ? FLY_BY_QUERY : FLY_BY_KEY, entry->outer, entry->inner, map, error)))
    return status;
  int64_t bytes = inner->padded * (d->head_dim + d->value_dim) * (int64_t)fly_type_size(d->type);
  bytes = by_query ? bytes / l->argument->group : bytes * outer->walk;
  return flyi_cuda_run(l, entry, flyi_cuda_deal(l, (int64_t)map->rows * map->outer, pairs_of(outer), bytes), error);
}

/* One gradient: where rows repeat, or some are not read. */
static fly_status run_finish(flyi_cuda_launch *l, const side *s, const fly_tensor *t, uint64_t sums, fly_error *error) {
  finish_source source = {s, t->shape[0], t->shape[2]};
  bool unread = t->shape[2] > flyi_rows_of(&l->call->c.geometry, s->queries);
  if (!t->data || (!sums && (!unread || l->call->c.add_gradients))) return FLY_OK;
  if (t->shape[0] * t->shape[1] * (t->shape[2] + 1) > INT32_MAX || count_calls(&source) > INT32_MAX)
    return flyi_fail(error, FLY_ERROR_UNSUPPORTED, "gradients of 2^31 rows and more are not there on a GPU");
  flyi_staging dry = {.dry = true};
  finish_places at = stage_finish_places(&source, &dry);
  flyi_device_memory base;
  int64_t shape[] = {t->shape[0], t->shape[1], t->shape[2], s->walk, s->padded}; /* a map fits calls of any kv_heads */
  flyi_hash key = flyi_hash_bytes(shape, sizeof shape);
  key.low ^= (uint64_t)FLYI_KEY_FINISH + s->queries;
  fly_status status = flyi_cuda_put(l, key, stage_finish, &source, &base, error);
  if (status) return status;
  l->argument->finish = (flyi_cuda_finish){.to = flyi_cuda_tensor_of(t),
                                           .sums = sums,
                                           .first = base + at.first,
                                           .list = base + at.list,
                                           .rows = (int32_t)t->shape[2],
                                           .heads = (int32_t)t->shape[1],
                                           .dim = (int32_t)t->shape[3]};
  return run_rows(l, FLYI_CUDA_BACKWARD_FINISH, t->shape[2], t->shape[0] * t->shape[1], error);
}

/* A block for each head. */
static fly_status run_sink(flyi_cuda_launch *l, fly_error *error) {
  const flyi_cuda_entry *entry = NULL;
  fly_status status = flyi_cuda_find(l, FLYI_CUDA_BACKWARD_SINK, &entry, error);
  return status ? status : flyi_cuda_run(l, entry, l->call->c.geometry.heads, error);
}

static fly_status launch_all(flyi_cuda_launch *l, const plan *p, fly_error *error) {
  const fly_attention *c = &l->call->c;
  const flyi_cuda_call *a = l->argument;
  fly_status status;
  if ((status = run_rows(l, FLYI_CUDA_BACKWARD_ROWS, p->queries.padded, pairs_of(&p->queries), error)) ||
      (p->wants_keys && (status = run_map(l, FLYI_CUDA_BACKWARD_KEYS, &p->keys, &p->queries, error))) ||
      (p->wants_queries && (status = run_map(l, FLYI_CUDA_BACKWARD_QUERIES, &p->queries, &p->keys, error))) ||
      (c->d_sink.data && (status = run_sink(l, error))) ||
      (status = run_finish(l, &p->queries, &c->d_q, a->sums_q, error)) ||
      (status = run_finish(l, &p->keys, &c->d_k, a->sums_k, error)))
    return status;
  return run_finish(l, &p->keys, &c->d_v, a->sums_v, error);
}

static fly_status launch_backward(flyi_cuda_launch *l, fly_error *error) {
  const fly_attention *c = &l->call->c;
  flyi_device_memory base = (uintptr_t)c->workspace;
  plan p;
  fly_status status = make_plan(l->call, &p, error);
  if (!status) status = flyi_workspace_check(c, p.bytes, error);
  if (!status && !base) status = flyi_cuda_temporary(l, (size_t)p.bytes, &base, error);
  if (status) return status;
  place(l, &p, base);
  return launch_all(l, &p, error);
}

/* Without any batch entry gradients of sinks, which all entries share, are 0. */
static fly_status clear_sinks(const flyi_call *call, fly_error *error) {
  const fly_attention *c = &call->c;
  bool pushed;
  if (!c->d_sink.data || c->add_gradients || !c->geometry.heads) return FLY_OK;
  fly_status status = flyi_cuda_enter(c->cuda, &pushed, error);
  if (status) return status;
  status = flyi_cuda_check(call, true, error);
  for (int64_t h = 0; !status && h < c->geometry.heads; h++) {
    const flyi_device_memory at = (uintptr_t)c->d_sink.data + (uint64_t)(h * c->d_sink.stride[1]) * 4;
    const int code = c->cuda->driver.fill(at, 0, sizeof(float), c->stream);
    if (code) status = flyi_cuda_fail(&c->cuda->driver, code, error, "d_sink cannot be set to 0");
  }
  flyi_cuda_leave(c->cuda, pushed);
  return status;
}

fly_status flyi_cuda_backward(const flyi_call *call, fly_error *error) {
  if (!call->c.geometry.batch) return clear_sinks(call, error);
  if (!call->c.geometry.heads) return FLY_OK;
  return flyi_cuda_call_run(call, FLYI_DIRECTION_BACKWARD, launch_backward, error);
}

fly_status flyi_cuda_workspace(const flyi_call *call, bool backward, size_t *bytes, fly_error *error) {
  plan p;
  *bytes = 0;
  if (!backward || !call->c.geometry.batch || !call->c.geometry.heads) return FLY_OK;
  fly_status status = make_plan(call, &p, error);
  if (!status) *bytes = (size_t)p.bytes;
  return status;
}
