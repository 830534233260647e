/* selection_attend.c: attention over selected blocks. Forward: one grouped call into partial outputs, which merge by
 * LSE. Backward: one grouped call that reads the merged outputs and LSEs by the same row map, so that each partial
 * softmax is the whole one's part; gradients of a query's rows add up in the order of its tiles. */
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
  if (a->kernel->score) return REFUSE(error, "the kernel has a score modifier: a selection cannot use one");
  if (a->sink.data) return REFUSE(error, "sink is given: a selection cannot use one");
  if ((status = check_shape("q", &a->q, queries, error)) || (status = check_shape("k", &a->k, keys, error)) ||
      (status = check_shape("v", &a->v, keys, error)) || (status = check_shape("out", &a->out, queries, error)))
    return status;
  a->bound = s->bound, a->map = s->map, a->geometry = s->geometry;
  a->out_rows = (fly_row_map){0};
  return FLY_OK;
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

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

static fly_status merge(const fly_selection *s, const fly_attention *call, const fly_attention *grouped,
                        fly_error *error) {
  int64_t plane = s->len_q, all = s->batch * s->heads * plane;
  fly_partial *partials = flyi_alloc((size_t)s->parts, sizeof *partials);
  if (!partials) return flyi_no_memory(error);
  for (int64_t i = 0; i < s->parts; i++)
    partials[i] = (fly_partial){
        .out = grouped->out, .lse = grouped->lse, .rows = {s->where + i * all, s->heads * plane, plane}};
  fly_merge_call merging = {FLY_INIT(fly_merge_call),
                            .partials = partials,
                            .count = (int)s->parts,
                            .out = call->out,
                            .lse = call->lse,
                            .threads = call->threads,
                            .parallel_for = call->parallel_for,
                            .parallel_user = call->parallel_user};
  fly_status status = fly_merge(&merging, error);
  free(partials);
  return status;
}

/* The grouped call, and the workspace's parts: partial outputs, their LSEs, the call's own. */
typedef struct parts {
  fly_attention call;
  size_t out, lse, own; /* bytes */
} parts;

static size_t whole_lines(size_t bytes) { return (bytes + 63) / 64 * 64; }

static fly_status plan(const fly_selection *s, const fly_attention *whole, parts *p, fly_error *error) {
  size_t rows = (size_t)(s->batch * s->heads) * (size_t)s->rows, dim = (size_t)whole->kernel->desc.value_dim;
  fly_attention *a = &p->call;
  *a = *whole;
  a->workspace = NULL, a->workspace_size = 0;
  p->out = whole_lines(rows * dim * sizeof(float)), p->lse = whole_lines(rows * sizeof(float));
  void *nowhere = (void *)((uintptr_t)0 - 64 - p->out); /* for now: the end of the address space is no tensor's */
  a->out = fly_tensor_dense(nowhere, FLY_F32, s->batch, s->heads, s->rows, (int64_t)dim);
  a->lse = (fly_tensor){0};
  a->out_rows = (fly_row_map){.rows = s->order};
  fly_status status = fly_attention_workspace(a, &p->own, error);
  p->own = whole_lines(p->own);
  return status;
}

static void place(const fly_selection *s, parts *p, char *workspace) {
  fly_attention *a = &p->call;
  a->out.data = workspace;
  a->lse = fly_tensor_dense(workspace + p->out, FLY_F32, s->batch, s->heads, s->rows, 1);
  a->workspace = workspace + p->out + p->lse, a->workspace_size = p->own;
}

static fly_status forward(const fly_selection *s, const fly_attention *call, fly_error *error) {
  parts p;
  fly_attention whole;
  fly_status status = take_call(s, call, &whole, error);
  if (status || (status = check_out(&whole, error)) || (status = plan(s, &whole, &p, error))) return status;
  size_t bytes = p.out + p.lse + p.own;
  if ((status = flyi_workspace_check(&whole, (int64_t)bytes, error))) return status;
  if (whole.kernel->cuda_target[0]) return flyi_cuda_selection(s, &whole, &p.call, p.out, bytes, error);
  void *memory = whole.workspace ? NULL : flyi_alloc_aligned(bytes);
  if (!whole.workspace && !memory) return flyi_no_memory(error);
  place(s, &p, whole.workspace ? whole.workspace : memory);
  status = fly_attention_forward(&p.call, error);
  if (!status) status = merge(s, &whole, &p.call, error);
  free(memory);
  return status;
}

static fly_status forward_workspace(const fly_selection *s, const fly_attention *call, size_t *bytes,
                                    fly_error *error) {
  parts p;
  fly_attention whole;
  fly_status status = take_call(s, call, &whole, error);
  if (status || (status = plan(s, &whole, &p, error))) return status;
  *bytes = p.out + p.lse + p.own;
  return FLY_OK;
}

/* One workspace for all documents. */
static fly_status forward_packed(const fly_selection *s, const fly_attention *call, fly_error *error) {
  fly_attention own = *call;
  void *memory = NULL;
  if (!own.workspace && !(own.kernel && own.kernel->cuda_target[0])) {
    fly_status status = flyi_packed_workspace(s, call, forward_workspace, &own.workspace_size, error);
    if (status) return status;
    if (!(memory = flyi_alloc_aligned(own.workspace_size))) return flyi_no_memory(error);
    own.workspace = memory;
  }
  fly_status status = flyi_packed_run(s, &own, forward, error);
  free(memory);
  return status;
}

static fly_status take_packed(const fly_attention *call, fly_attention *a, fly_error *error) {
  if (!call) return REFUSE(error, "call is NULL");
  if (!flyi_copy_struct(a, sizeof *a, call))
    return REFUSE(error, "call.size is %zu: set it with FLY_INIT(fly_attention)", call->size);
  a->size = sizeof *a;
  return FLY_OK;
}

fly_status fly_selection_forward(const fly_selection *s, const fly_attention *call, fly_error *error) {
  fly_attention a;
  if (!s || !s->documents) return forward(s, call, error);
  fly_status status = take_packed(call, &a, error);
  return status ? status : forward_packed(s, &a, error);
}

fly_status fly_selection_workspace(const fly_selection *s, const fly_attention *call, size_t *bytes, fly_error *error) {
  fly_attention a;
  if (!bytes) return REFUSE(error, "bytes is NULL");
  *bytes = 0;
  if (!s || !s->documents) return forward_workspace(s, call, bytes, error);
  fly_status status = take_packed(call, &a, error);
  return status ? status : flyi_packed_workspace(s, &a, forward_workspace, bytes, error);
}

/* ---- backward ---------------------------------------------------------------------------------------------------- */

static fly_status backward(const fly_selection *s, const fly_attention *call, fly_error *error) {
  fly_attention a;
  fly_status status = take_call(s, call, &a, error);
  return status ? status : fly_attention_backward(&a, error);
}

static fly_status backward_workspace(const fly_selection *s, const fly_attention *call, size_t *bytes,
                                     fly_error *error) {
  fly_attention a;
  fly_status status = take_call(s, call, &a, error);
  return status ? status : fly_attention_backward_workspace(&a, bytes, error);
}

fly_status fly_selection_backward(const fly_selection *s, const fly_attention *call, fly_error *error) {
  fly_attention a;
  if (!s || !s->documents) return backward(s, call, error);
  fly_status status = take_packed(call, &a, error);
  return status ? status : flyi_packed_run(s, &a, backward, error);
}

fly_status fly_selection_backward_workspace(const fly_selection *s, const fly_attention *call, size_t *bytes,
                                            fly_error *error) {
  fly_attention a;
  if (!bytes) return REFUSE(error, "bytes is NULL");
  *bytes = 0;
  if (!s || !s->documents) return backward_workspace(s, call, bytes, error);
  fly_status status = take_packed(call, &a, error);
  return status ? status : flyi_packed_workspace(s, &a, backward_workspace, bytes, error);
}
