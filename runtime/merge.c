/* merge.c: partial attentions merged by log-sum-exp, forward and backward. Input: any number of partial outputs and
 * LSEs, with row maps where they hold their rows in another order. Output: the merged rows, or each partial's
 * gradients. Rows are independent of each other: they are spread over threads in chunks, and the numerics
 * (templates/merge_cpu.c) see one row at a time. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "cuda.h"

#define REFUSE(error, ...) flyi_fail(error, FLY_ERROR_ARGUMENT, __VA_ARGS__)

enum { CHUNK_ROWS = 128 };

extern const flyi_merge_code FLYI_BUILDS(flyi_merge_);

static const flyi_merge_code *code_of(flyi_isa isa) {
  static const flyi_merge_code *const all[] = {FLYI_BUILDS(&flyi_merge_)};
  return all[flyi_isa_build(isa)];
}

/* ---- checks ------------------------------------------------------------------------------------------------------ */

static bool is_float(fly_type type) { return type == FLY_F32 || type == FLY_F16 || type == FLY_BF16; }

/* A tensor of the call's batch and heads; `like`, where given, has its rows too. */
static fly_status check_tensor(const char *name, const fly_tensor *t, fly_type type, int64_t dim,
                               const fly_tensor *whole, const fly_tensor *like, bool written, fly_error *error) {
  fly_status status;
  if (!is_float(type)) return REFUSE(error, "%s.type is %s: wanted f32, f16 or bf16", name, fly_type_name(type));
  if ((status = flyi_tensor_check(name, t, type, dim, written, error))) return status;
  for (int i = 0; i < 2; i++)
    if (t->shape[i] != whole->shape[i])
      return REFUSE(error, "%s.shape[%d] is %" PRId64 ", out.shape[%d] %" PRId64, name, i, t->shape[i], i,
                    whole->shape[i]);
  if (like && t->shape[2] != like->shape[2])
    return REFUSE(error, "%s.shape[2] is %" PRId64 ", wanted %" PRId64, name, t->shape[2], like->shape[2]);
  return FLY_OK;
}

/* Entries -1 .. limit - 1; with `once`, no row but -1 twice in a (batch, head). */
static fly_status check_rows(const char *name, const fly_row_map *map, const fly_tensor *whole, int64_t limit,
                             bool once, fly_error *error) {
  fly_status status = FLY_OK;
  int64_t planes_b = map->stride_batch ? whole->shape[0] : 1, planes_h = map->stride_head ? whole->shape[1] : 1;
  uint8_t *seen = flyi_alloc(once ? (size_t)limit + 1 : 1, 1);
  if (!seen) return flyi_no_memory(error);
  for (int64_t plane = 0; plane < planes_b * planes_h && !status; plane++) {
    int64_t b = plane / planes_h, h = plane % planes_h;
    const int32_t *rows = map->rows + b * map->stride_batch + h * map->stride_head;
    for (int64_t r = 0; r < whole->shape[2] && !status; r++) {
      if (rows[r] < -1 || rows[r] >= limit)
        status = REFUSE(
            error, "%s: row %" PRId64 " of (batch %" PRId64 ", head %" PRId64 ") is %d, but there are %" PRId64 " rows",
            name, r, b, h, rows[r], limit);
      else if (once && rows[r] >= 0 && seen[rows[r]]++)
        status = REFUSE(error, "%s: row %" PRId64 " of (batch %" PRId64 ", head %" PRId64 ") is %d for the second time",
                        name, r, b, h, rows[r]);
    }
    for (int64_t r = 0; once && r < limit; r++) seen[r] = 0;
  }
  free(seen);
  return status;
}

static fly_status check_partial(const fly_merge_call *c, int i, bool backward, fly_error *error) {
  const fly_partial *p = &c->partials[i];
  const fly_tensor *whole = backward ? &c->d_out : &c->out;
  fly_status status;
  char name[5][48];
  static const char *const fields[] = {"out", "lse", "rows", "d_out", "d_lse"};
  for (int k = 0; k < 5; k++) snprintf(name[k], sizeof name[k], "partials[%d].%s", i, fields[k]);
  const fly_tensor *like = p->rows.rows ? NULL : whole;
  if ((status = check_tensor(name[0], &p->out, p->out.type, whole->shape[3], whole, like, false, error)) ||
      (status = check_tensor(name[1], &p->lse, FLY_F32, 1, whole, &p->out, false, error)) ||
      (p->rows.rows && (status = check_rows(name[2], &p->rows, whole, p->out.shape[2], backward, error))))
    return status;
  if (!backward) return FLY_OK;
  if (p->d_out.data &&
      (status = check_tensor(name[3], &p->d_out, p->out.type, whole->shape[3], whole, &p->out, true, error)))
    return status;
  if (p->d_lse.data && (status = check_tensor(name[4], &p->d_lse, FLY_F32, 1, whole, &p->out, true, error)))
    return status;
  return FLY_OK;
}

/* A row is read as a whole before it is written, so a tensor may replace a partial one row by row. */
static bool same_tensor(const fly_tensor *a, const fly_tensor *b) {
  bool same = a->data == b->data && a->type == b->type;
  for (int i = 0; i < 4; i++) same = same && a->shape[i] == b->shape[i] && a->stride[i] == b->stride[i];
  return same;
}

static fly_status check_apart(const fly_merge_call *c, fly_error *error) {
  if (flyi_tensors_overlap(&c->out, &c->lse)) return REFUSE(error, "out and lse share memory");
  for (int i = 0; i < c->count; i++) {
    const fly_partial *p = &c->partials[i];
    bool in_place = !p->rows.rows && same_tensor(&p->out, &c->out),
         lse_in_place = !p->rows.rows && same_tensor(&p->lse, &c->lse);
    if ((flyi_tensors_overlap(&c->out, &p->out) && !in_place) || flyi_tensors_overlap(&c->out, &p->lse))
      return REFUSE(error, "out and partials[%d] share memory", i);
    if ((flyi_tensors_overlap(&c->lse, &p->lse) && !lse_in_place) || flyi_tensors_overlap(&c->lse, &p->out))
      return REFUSE(error, "lse and partials[%d] share memory", i);
  }
  return FLY_OK;
}

/* What one partial's gradients may share memory with: nothing. */
static fly_status check_gradient_apart(const fly_merge_call *c, int i, const fly_tensor *gradient, fly_error *error) {
  if (!gradient->data) return FLY_OK;
  if (flyi_tensors_overlap(gradient, &c->d_out) || flyi_tensors_overlap(gradient, &c->d_lse))
    return REFUSE(error, "a gradient of partials[%d] and d_out or d_lse share memory", i);
  for (int j = 0; j < c->count; j++) {
    const fly_partial *p = &c->partials[j];
    const fly_tensor *others[] = {&p->out, &p->lse, &p->d_out, &p->d_lse};
    for (int k = 0; k < 4; k++)
      if (others[k] != gradient && flyi_tensors_overlap(gradient, others[k]))
        return REFUSE(error, "a gradient of partials[%d] and a tensor of partials[%d] share memory", i, j);
  }
  return FLY_OK;
}

static fly_status check_call(const fly_merge_call *call, bool backward, fly_merge_call *c, fly_error *error) {
  fly_status status;
  if (!call) return REFUSE(error, "call is NULL");
  if (!flyi_copy_struct(c, sizeof *c, call))
    return REFUSE(error, "call.size is %zu: set it with FLY_INIT(fly_merge_call)", call->size);
  if (c->count < 0 || (c->count && !c->partials))
    return REFUSE(error, "partials is NULL, or count %d negative", c->count);
  if (c->threads < 0) return REFUSE(error, "threads is %d", c->threads);
  if (c->stream && !c->cuda) return REFUSE(error, "stream is given, but cuda is NULL: set both for tensors of a GPU");
  const fly_tensor *whole = backward ? &c->d_out : &c->out, *lse = backward ? &c->d_lse : &c->lse;
  const char *name = backward ? "d_out" : "out";
  if ((status = check_tensor(name, whole, whole->type, whole->shape[3], whole, NULL, !backward, error)) ||
      (lse->data &&
       (status = check_tensor(backward ? "d_lse" : "lse", lse, FLY_F32, 1, whole, whole, !backward, error))))
    return status;
  if (whole->shape[3] > INT32_MAX) return REFUSE(error, "%s.shape[3] is %" PRId64, name, whole->shape[3]);
  for (int i = 0; i < c->count; i++)
    if ((status = check_partial(c, i, backward, error))) return status;
  if (!backward) return check_apart(c, error);
  for (int i = 0; i < c->count && !status; i++)
    if (!(status = check_gradient_apart(c, i, &c->partials[i].d_out, error)))
      status = check_gradient_apart(c, i, &c->partials[i].d_lse, error);
  return status;
}

/* ---- chunks of rows ---------------------------------------------------------------------------------------------- */

typedef struct merge {
  const fly_merge_call *c;
  const flyi_merge_code *code;
  const fly_tensor *whole;    /* out, or in the backward pass d_out */
  int64_t chunks;             /* of a (batch, head) */
  flyi_partial_cpu *partials; /* [workers][count] */
  double *scratch;            /* [workers][2 * count] */
} merge;

static void *row_or_null(const fly_tensor *t, int64_t b, int64_t h, int64_t row) {
  return t->data ? flyi_plane_row(t, b, h, row) : NULL;
}

static void place_partial(const fly_partial *p, int64_t b, int64_t h, int64_t row, flyi_partial_cpu *out) {
  const int32_t *rows = flyi_map_rows(&p->rows, b, h, row);
  if (rows) row = 0;
  *out = (flyi_partial_cpu){
      .out = row_or_null(&p->out, b, h, row),
      .lse = row_or_null(&p->lse, b, h, row),
      .rows = rows,
      .d_out = row_or_null(&p->d_out, b, h, row),
      .d_lse = row_or_null(&p->d_lse, b, h, row),
      .out_stride = p->out.stride[2],
      .lse_stride = p->lse.stride[2],
      .d_out_stride = p->d_out.stride[2],
      .d_lse_stride = p->d_lse.stride[2],
      .type = p->out.type,
  };
}

static void merge_chunk(void *context, int64_t item, int worker) {
  const merge *m = context;
  const fly_merge_call *c = m->c;
  int64_t row = item % m->chunks * CHUNK_ROWS, plane = item / m->chunks;
  int64_t b = plane / m->whole->shape[1], h = plane % m->whole->shape[1];
  flyi_partial_cpu *partials = m->partials + (int64_t)worker * c->count;
  for (int i = 0; i < c->count; i++) place_partial(&c->partials[i], b, h, row, &partials[i]);
  flyi_merge_cpu call = {
      .partials = partials,
      .count = c->count,
      .rows = (int32_t)flyi_min64(m->whole->shape[2] - row, CHUNK_ROWS),
      .dim = (int32_t)m->whole->shape[3],
      .type = m->whole->type,
      .scratch = m->scratch + (int64_t)worker * 2 * c->count,
  };
  if (m->whole == &c->out) {
    call.out = flyi_plane_row(&c->out, b, h, row), call.out_stride = c->out.stride[2];
    call.lse = row_or_null(&c->lse, b, h, row), call.lse_stride = c->lse.stride[2];
    m->code->forward(&call);
  } else {
    call.d_out = flyi_plane_row(&c->d_out, b, h, row), call.d_out_stride = c->d_out.stride[2];
    call.d_lse = row_or_null(&c->d_lse, b, h, row), call.d_lse_stride = c->d_lse.stride[2];
    m->code->backward(&call);
  }
}

static fly_status run(const fly_merge_call *call, bool backward, fly_error *error) {
  fly_merge_call c;
  fly_status status = check_call(call, backward, &c, error);
  flyi_isa isa;
  if (status) return status;
  if (c.cuda) return flyi_cuda_merge_call(&c, backward, error);
  if ((status = flyi_isa_parse(NULL, &isa, error))) return status;
  merge m = {.c = &c, .code = code_of(isa), .whole = backward ? &c.d_out : &c.out};
  m.chunks = (m.whole->shape[2] + CHUNK_ROWS - 1) / CHUNK_ROWS;
  int64_t items = m.whole->shape[0] * m.whole->shape[1] * m.chunks;
  if (!items) return FLY_OK;
  flyi_threads threads = {c.threads, c.parallel_for, c.parallel_user};
  threads.limit = flyi_worker_count(&threads, items);
  m.partials = flyi_alloc((size_t)threads.limit * c.count, sizeof *m.partials);
  m.scratch = flyi_alloc((size_t)threads.limit * c.count, 2 * sizeof *m.scratch);
  if (m.partials && m.scratch)
    flyi_parallel(&threads, items, merge_chunk, &m);
  else
    status = flyi_no_memory(error);
  free(m.partials), free(m.scratch);
  return status;
}

fly_status fly_merge(const fly_merge_call *call, fly_error *error) { return run(call, false, error); }

fly_status fly_merge_backward(const fly_merge_call *call, fly_error *error) { return run(call, true, error); }
