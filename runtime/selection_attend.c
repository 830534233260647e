/* selection_attend.c: attention over selected blocks. Forward: one grouped call into partial outputs, which merge by LSE. Backward:
 * one grouped call that reads the merged outputs and LSEs by the same row map, so that each partial softmax is the whole one's
 * part; gradients of a query's rows add up in the order of its tiles. */
#include <inttypes.h>
#include <stdlib.h>

#include "backward.h"
#include "selection.h"

#define REFUSE(error, ...) flyi_fail(error, FLY_ERROR_ARGUMENT, __VA_ARGS__)

static fly_status check_shape(const char *name, const fly_tensor *t, const int64_t shape[3], fly_error *error) {
  for (int i = 0; i < 3; i++)
    if (shape[i] >= 0 && t->shape[i] != shape[i])
      return REFUSE(error, "%s.shape[%d] is %" PRId64 ", the selection's %" PRId64, name, i, t->shape[i], shape[i]);
  return FLY_OK;
}

/* The call with the selection's geometry. */
static fly_status take_call(const fly_selection *s, const fly_attention *call, fly_attention *a, fly_error *error) {
  fly_status status;
  if (!s) return REFUSE(error, "selection is NULL");
  const int64_t queries[3] = {s->batch, s->heads, s->len_q}, keys[3] = {s->batch, -1, s->len_kv};
  if (!call) return REFUSE(error, "call is NULL");
  if (!flyi_copy_struct(a, sizeof *a, call))
    return REFUSE(error, "call.size is %zu: set it with FLY_INIT(fly_attention)", call->size);
  if (!a->kernel) return REFUSE(error, "kernel is NULL");
  if ((status = check_shape("q", &a->q, queries, error)) || (status = check_shape("k", &a->k, keys, error)) ||
      (status = check_shape("v", &a->v, keys, error)) || (status = check_shape("out", &a->out, queries, error)))
    return status;
  a->bound = s->bound, a->map = s->map, a->geometry = s->geometry;
  a->out_rows = (fly_row_map){0};
  a->workspace = NULL, a->workspace_size = 0;
  return FLY_OK;
}

/* ---- forward ----------------------------------------------------------------------------------------------------------------- */

/* As check_call.c does for out and lse that attention itself writes. */
static fly_status check_out(const fly_attention *a, fly_error *error) {
  const struct {
    const char *name;
    const fly_tensor *tensor;
  } inputs[] = {{"q", &a->q}, {"k", &a->k}, {"v", &a->v}};
  const fly_kernel_desc *d = &a->kernel->desc;
  fly_type type = a->out.type == FLY_F32 ? FLY_F32 : d->type;
  fly_status status = flyi_tensor_check("out", &a->out, type, d->value_dim, true, error);
  if (!status && a->lse.data) status = flyi_tensor_check("lse", &a->lse, FLY_F32, 1, true, error);
  for (int i = 0; i < 3 && !status; i++)
    if (flyi_tensors_overlap(&a->out, inputs[i].tensor) || flyi_tensors_overlap(&a->lse, inputs[i].tensor))
      status = REFUSE(error, "out or lse and %s share memory", inputs[i].name);
  return status;
}

static fly_status merge(const fly_selection *s, const fly_attention *call, const fly_attention *grouped, fly_error *error) {
  int64_t plane = s->len_q, all = s->batch * s->heads * plane;
  fly_partial *partials = flyi_alloc((size_t)s->parts, sizeof *partials);
  if (!partials) return flyi_no_memory(error);
  for (int64_t i = 0; i < s->parts; i++)
    partials[i] = (fly_partial){.out = grouped->out, .lse = grouped->lse,
                                .rows = {s->where + i * all, s->heads * plane, plane}};
  fly_merge_call merging = {FLY_INIT(fly_merge_call), .partials = partials, .count = (int)s->parts, .out = call->out,
                            .lse = call->lse, .threads = call->threads, .parallel_for = call->parallel_for,
                            .parallel_user = call->parallel_user};
  fly_status status = fly_merge(&merging, error);
  free(partials);
  return status;
}

fly_status fly_selection_forward(const fly_selection *s, const fly_attention *call, fly_error *error) {
  fly_attention a, whole;
  fly_status status = take_call(s, call, &whole, error);
  if (status || (status = check_out(&whole, error))) return status;
  size_t rows = (size_t)(s->batch * s->heads) * (size_t)s->rows, dim = (size_t)whole.kernel->desc.value_dim;
  size_t out_bytes = (rows * dim * sizeof(float) + 63) / 64 * 64;
  char *memory = flyi_alloc_aligned(out_bytes + rows * sizeof(float));
  if (!memory) return flyi_no_memory(error);
  a = whole;
  a.out = fly_tensor_dense(memory, FLY_F32, s->batch, s->heads, s->rows, (int64_t)dim);
  a.lse = fly_tensor_dense(memory + out_bytes, FLY_F32, s->batch, s->heads, s->rows, 1);
  a.out_rows = (fly_row_map){.rows = s->order};
  status = fly_attention_forward(&a, error);
  if (!status) status = merge(s, &whole, &a, error);
  free(memory);
  return status;
}

/* ---- backward ---------------------------------------------------------------------------------------------------------------- */

fly_status fly_selection_backward(const fly_selection *s, const fly_attention *call, fly_error *error) {
  fly_attention a;
  fly_status status = take_call(s, call, &a, error);
  return status ? status : fly_attention_backward(&a, error);
}
