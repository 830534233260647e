/* cuda_merge.c: merging partial attentions on a GPU. Input: a checked fly_merge_call whose tensors are the device's.
 * Output: one launch on its stream. The partials' descriptions and row maps are copied for the call, and freed behind
 * it in the order of the stream. */
#include <stdio.h>
#include <string.h>

#include "cuda.h"

/* A call with what of it is merged: out and lse, or d_out and d_lse. */
typedef struct merging {
  const fly_merge_call *c;
  const fly_tensor *out, *lse;
} merging;

/* ---- checks ---------------------------------------------------------------------------------------------------- */

static fly_status check_partial(const fly_merge_call *c, int i, bool backward, fly_error *error) {
  static const char *const names[] = {"out", "lse", "d_out", "d_lse"};
  const fly_partial *p = &c->partials[i];
  const fly_tensor *tensors[] = {&p->out, &p->lse, &p->d_out, &p->d_lse};
  fly_status status = FLY_OK;
  for (int k = 0; !status && k < (backward ? 4 : 2); k++) {
    char name[48];
    snprintf(name, sizeof name, "partials[%d].%s", i, names[k]);
    status = flyi_cuda_check_tensor(name, tensors[k], c->cuda, error);
  }
  return status;
}

static fly_status check(const merging *m, bool backward, fly_error *error) {
  const fly_merge_call *c = m->c;
  fly_status status;
  if ((status = flyi_cuda_check_stream(c->cuda, c->stream, error)) ||
      (status = flyi_cuda_check_tensor(backward ? "d_out" : "out", m->out, c->cuda, error)) ||
      (status = flyi_cuda_check_tensor(backward ? "d_lse" : "lse", m->lse, c->cuda, error)))
    return status;
  for (int i = 0; !status && i < c->count; i++) status = check_partial(c, i, backward, error);
  if (!status && m->out->shape[2] > INT32_MAX)
    status = flyi_fail(error, FLY_ERROR_UNSUPPORTED, "a GPU merges at most 2^31 - 1 rows of a (batch, head)");
  return status;
}

/* ---- the partials on the device -------------------------------------------------------------------------------- */

/* Planes of a row map that broadcasts where its strides are 0, packed. */
static int64_t planes(const fly_row_map *map, const fly_tensor *whole) {
  return (map->stride_batch ? whole->shape[0] : 1) * (map->stride_head ? whole->shape[1] : 1);
}

static size_t stage_rows(const fly_row_map *map, const fly_tensor *whole, flyi_staging *s) {
  size_t offset;
  int64_t rows = whole->shape[2], heads = map->stride_head ? whole->shape[1] : 1, count = planes(map, whole);
  int32_t *to = flyi_staging_add(s, (size_t)count, (size_t)rows * sizeof *to, &offset);
  for (int64_t i = 0; to && i < count; i++)
    memcpy(to + i * rows, flyi_map_rows(map, i / heads, i % heads, 0), (size_t)rows * sizeof *to);
  return offset;
}

static flyi_cuda_partial describe(const fly_partial *p, const fly_tensor *whole, uint64_t rows) {
  const fly_row_map *map = &p->rows;
  int64_t heads = map->stride_head ? whole->shape[1] : 1;
  return (flyi_cuda_partial){.out = flyi_cuda_tensor_of(&p->out),
                             .lse = flyi_cuda_tensor_of(&p->lse),
                             .d_out = flyi_cuda_tensor_of(&p->d_out),
                             .d_lse = flyi_cuda_tensor_of(&p->d_lse),
                             .rows = rows,
                             .rows_stride_b = map->stride_batch ? whole->shape[2] * heads : 0,
                             .rows_stride_h = map->stride_head ? whole->shape[2] : 0,
                             .type = (int32_t)p->out.type};
}

/* Row maps of all partials and where each is; and the table, whose row maps are at `base`. */
static size_t stage(const merging *m, flyi_device_memory base, flyi_staging *s) {
  const fly_merge_call *c = m->c;
  size_t table;
  flyi_staging_add(s, (size_t)c->count, sizeof(flyi_cuda_partial), &table);
  for (int i = 0; i < c->count; i++) {
    bool has_rows = c->partials[i].rows.rows != NULL;
    size_t rows = has_rows ? stage_rows(&c->partials[i].rows, m->out, s) : 0;
    flyi_cuda_partial p = describe(&c->partials[i], m->out, has_rows ? base + rows : 0);
    if (s->data) memcpy(s->data + table + (size_t)i * sizeof p, &p, sizeof p);
  }
  return table;
}

/* Without partials there is nothing to put: the kernel does not look at the table. */
static fly_status put_partials(const merging *m, flyi_cuda_launch *l, flyi_cuda_merge *a, fly_error *error) {
  const fly_merge_call *c = m->c;
  flyi_staging s = {.dry = true};
  flyi_device_memory base = 0;
  if (c->count == 0) return FLY_OK;
  size_t table = stage(m, 0, &s);
  if (s.failed) return flyi_no_memory(error);
  fly_status status = flyi_cuda_temporary(l, s.size, &base, error);
  if (status) return status;
  s = (flyi_staging){0};
  stage(m, base, &s);
  if (s.failed) {
    status = flyi_no_memory(error);
  } else {
    int code = l->cuda->driver.write(base, s.data, s.size, l->stream);
    if (code)
      status = flyi_cuda_fail(&l->cuda->driver, code, error, "%zu bytes of a merge's row maps to the device", s.size);
  }
  flyi_staging_free(&s);
  a->partials = base + table;
  return status;
}

/* ---- the whole ------------------------------------------------------------------------------------------------- */

static fly_status launch(const merging *m, bool backward, flyi_cuda_launch *l, fly_error *error) {
  flyi_cuda_merge a = {.out = flyi_cuda_tensor_of(m->out),
                       .lse = flyi_cuda_tensor_of(m->lse),
                       .total = m->out->shape[0] * m->out->shape[1] * m->out->shape[2],
                       .count = m->c->count,
                       .type = (int32_t)m->out->type,
                       .dim = (int32_t)m->out->shape[3],
                       .rows = (int32_t)m->out->shape[2],
                       .heads = (int32_t)m->out->shape[1]};
  fly_status status = put_partials(m, l, &a, error);
  if (status || a.total == 0) return status;
  return flyi_cuda_run_rows(l->cuda, l->stream, backward ? FLYI_ROWS_MERGE_BACKWARD : FLYI_ROWS_MERGE, &a, a.total,
                            error);
}

fly_status flyi_cuda_merge_call(const fly_merge_call *call, bool backward, fly_error *error) {
  const merging m = {call, backward ? &call->d_out : &call->out, backward ? &call->d_lse : &call->lse};
  flyi_cuda_launch l = {.cuda = call->cuda, .stream = call->stream};
  bool pushed;
  fly_status status = flyi_cuda_enter(l.cuda, &pushed, error);
  if (status) return status;
  status = check(&m, backward, error);
  if (!status) status = launch(&m, backward, &l, error);
  flyi_cuda_free_temporaries(&l);
  flyi_cuda_leave(l.cuda, pushed);
  return status;
}
