/* cuda_gated.c: gated sums of attentions on a GPU. Input: a checked gated call whose kernels are for GPUs. Output: on
 * its stream, projected logits; the parts' attentions one after the other; a pass over rows that sums them. Backward
 * for each part a pass over rows, then its attention's gradients; then those of the projections. */
#include <stdio.h>

#include "cuda_gated.h"

/* ---- checks ---------------------------------------------------------------------------------------------------- */

static fly_status check_part(const flyi_gated *g, int i, bool backward, fly_error *error) {
  const fly_gate *gate = &g->parts[i].gate;
  char name[48];
  snprintf(name, sizeof name, "parts[%d].gate.logits", i);
  fly_status status = flyi_cuda_check_tensor(name, &gate->logits, g->c.cuda, error);
  snprintf(name, sizeof name, "parts[%d].gate.d_logits", i);
  if (!status && backward) status = flyi_cuda_check_tensor(name, &gate->d_logits, g->c.cuda, error);
  snprintf(name, sizeof name, "parts[%d].attention.out", i);
  return status ? status : flyi_cuda_check_tensor(name, &g->parts[i].attention.out, g->c.cuda, error);
}

static fly_status check(const flyi_gated *g, bool backward, fly_error *error) {
  fly_status status;
  if ((status = flyi_cuda_check_stream(g->c.cuda, g->c.stream, error)) ||
      (status = flyi_cuda_check_tensor(backward ? "d_out" : "out", &g->c.out, g->c.cuda, error)))
    return status;
  for (int i = 0; !status && i < g->c.count; i++) status = check_part(g, i, backward, error);
  if (!status) status = flyi_cuda_check_projection(g, backward, error);
  if (!status && g->rows > INT32_MAX)
    status = flyi_fail(error, FLY_ERROR_UNSUPPORTED, "a gated call on a GPU has at most 2^31 - 1 rows");
  return status;
}

/* ---- passes over rows ------------------------------------------------------------------------------------------ */

static flyi_cuda_gated rows_of(const flyi_gated *g, const fly_tensor *out) {
  return (flyi_cuda_gated){.out = flyi_cuda_tensor_of(out),
                           .total = g->batch * g->heads * g->rows,
                           .type = (int32_t)g->c.out.type,
                           .dim = (int32_t)g->value_dim,
                           .rows = (int32_t)g->rows,
                           .heads = (int32_t)g->heads};
}

static flyi_cuda_gate gate_of(const fly_tensor *logits, const fly_tensor *out) {
  return (flyi_cuda_gate){.logits = flyi_cuda_tensor_of(logits),
                          .out = flyi_cuda_tensor_of(out),
                          .logits_type = (int32_t)logits->type,
                          .channels = (int32_t)logits->shape[3]};
}

static fly_status run_rows(const flyi_gated *g, flyi_cuda_rows_kernel kernel, const flyi_cuda_gated *a,
                           fly_error *error) {
  return flyi_cuda_run_rows(g->c.cuda, g->c.stream, kernel, a, a->total, error);
}

static fly_status make_tensor(flyi_cuda_launch *l, const fly_tensor *like, fly_tensor *out, fly_error *error) {
  const int64_t *s = like->shape;
  flyi_device_memory memory;
  fly_status status = flyi_cuda_temporary(l, (size_t)(s[0] * s[1] * s[2] * s[3]) * fly_type_size(like->type), &memory,
                                          error);
  *out = fly_tensor_dense((void *)(uintptr_t)memory, like->type, s[0], s[1], s[2], s[3]);
  return status;
}

/* ---- forward --------------------------------------------------------------------------------------------------- */

static fly_status attend(const flyi_gated *g, int part, const fly_tensor *out, fly_error *error) {
  fly_attention a = g->parts[part].attention;
  const flyi_cuda_gated zero = rows_of(g, out);
  fly_status status = FLY_OK;
  a.out = *out;
  if (!flyi_gated_covers(g, part)) status = run_rows(g, FLYI_ROWS_ZERO, &zero, error);
  return status ? status : fly_attention_forward(&a, error);
}

/* Each part writes to its own tensor, or one for this call, one of them the result's. */
static fly_status forward(const flyi_gated *g, flyi_cuda_launch *l, fly_error *error) {
  flyi_cuda_gated sum = rows_of(g, &g->c.out);
  fly_tensor logits[FLYI_GATE_PARTS];
  fly_status status = flyi_cuda_project(g, l, logits, error);
  bool placed = false;
  sum.count = g->c.count;
  for (int i = 0; !status && i < g->c.count; i++) {
    fly_tensor out = g->parts[i].attention.out;
    if (!out.data && !placed) {
      out = g->c.out, placed = true;
    } else if (!out.data && (status = make_tensor(l, &g->c.out, &out, error))) {
      return status;
    }
    sum.parts[i] = gate_of(&logits[i], &out);
    status = attend(g, i, &out, error);
  }
  return status ? status : run_rows(g, FLYI_ROWS_GATE, &sum, error);
}

/* ---- backward -------------------------------------------------------------------------------------------------- */

/* Gradients of projected logits take the logits' place. */
static fly_status backward(const flyi_gated *g, flyi_cuda_launch *l, fly_error *error) {
  fly_tensor share = {0}, logits[FLYI_GATE_PARTS];
  fly_status status = flyi_cuda_project(g, l, logits, error);
  bool attention = g->c.d_q.data || g->c.d_k.data || g->c.d_v.data;
  if (!status && attention) status = make_tensor(l, &g->c.d_out, &share, error);
  for (int i = 0; !status && i < g->c.count; i++) {
    const fly_gate *gate = &g->parts[i].gate;
    fly_attention a = g->parts[i].attention;
    flyi_cuda_gated rows = rows_of(g, &g->c.d_out);
    rows.count = 1;
    rows.parts[0] = gate_of(&logits[i], &a.out);
    if (flyi_cuda_wants_logits(g, i))
      rows.parts[0].d_logits = flyi_cuda_tensor_of(flyi_gate_projected(gate) ? &logits[i] : &gate->d_logits);
    rows.parts[0].d_out = flyi_cuda_tensor_of(&share);
    status = run_rows(g, FLYI_ROWS_GATE_BACKWARD, &rows, error);
    a.d_out = share;
    a.add_gradients = i > 0;
    if (!status && attention) status = fly_attention_backward(&a, error);
  }
  return status ? status : flyi_cuda_project_backward(g, l, logits, error);
}

/* ---- the whole ------------------------------------------------------------------------------------------------- */

fly_status flyi_cuda_gated_call(const flyi_gated *g, bool backwards, fly_error *error) {
  flyi_cuda_launch l = {.cuda = g->c.cuda, .stream = g->c.stream};
  bool pushed;
  fly_status status = flyi_cuda_enter(l.cuda, &pushed, error);
  if (status) return status;
  status = check(g, backwards, error);
  if (!status && g->batch * g->heads * g->rows > 0)
    status = backwards ? backward(g, &l, error) : forward(g, &l, error);
  else if (!status && backwards) /* gradients that are sums over no tokens */
    status = flyi_cuda_project_backward(g, &l, (fly_tensor[FLYI_GATE_PARTS]){{0}}, error);
  flyi_cuda_free_temporaries(&l);
  flyi_cuda_leave(l.cuda, pushed);
  return status;
}
