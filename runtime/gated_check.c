/* gated_check.c: a gated call is checked as a whole before anything runs: shapes of gates, and each part as an
 * attention call. */
#include <inttypes.h>
#include <stdio.h>

#include "backward.h"
#include "gated.h"

#define REFUSE(error, ...) flyi_fail(error, FLY_ERROR_ARGUMENT, __VA_ARGS__)

static bool is_float(fly_type type) { return type == FLY_F32 || type == FLY_F16 || type == FLY_BF16; }

/* A tensor of the gates' kind: any float type, [shape..]; shape[3] was checked by the caller where it is -1. */
static fly_status check_tensor(const char *part, const char *name, const fly_tensor *t, const int64_t shape[4],
                               bool written, fly_error *error) {
  char whole[64];
  snprintf(whole, sizeof whole, "%s%s", part, name);
  if (!is_float(t->type)) return REFUSE(error, "%s.type is %s: wanted f32, f16 or bf16", whole, fly_type_name(t->type));
  fly_status status = flyi_tensor_check(whole, t, t->type, shape[3], written, error);
  for (int i = 0; i < 3 && !status; i++)
    if (t->shape[i] != shape[i])
      status = REFUSE(error, "%s.shape[%d] is %" PRId64 ", wanted %" PRId64, whole, i, t->shape[i], shape[i]);
  return status;
}

/* 1 for a gate that the channels share, otherwise all of them. */
static fly_status check_channels(const char *part, const char *name, int64_t channels, int64_t value_dim,
                                 fly_error *error) {
  if (channels == 1 || channels == value_dim) return FLY_OK;
  return REFUSE(error, "%s%s has gates for %" PRId64 " channels: wanted 1 or value_dim %" PRId64, part, name, channels,
                value_dim);
}

static fly_status check_given(const flyi_gated *g, const char *part, const fly_gate *gate, bool backward,
                              fly_error *error) {
  int64_t shape[4] = {g->batch, g->heads, g->rows, gate->logits.shape[3]};
  fly_status status;
  if (gate->weight.data) return REFUSE(error, "%sgate has both logits and weight", part);
  if ((status = check_channels(part, "gate.logits", shape[3], g->value_dim, error)) ||
      (status = check_tensor(part, "gate.logits", &gate->logits, shape, false, error)))
    return status;
  if (!backward || !gate->d_logits.data) return FLY_OK;
  if (gate->d_logits.type != gate->logits.type)
    return REFUSE(error, "%sgate.d_logits.type is %s, that of logits %s", part, fly_type_name(gate->d_logits.type),
                  fly_type_name(gate->logits.type));
  return check_tensor(part, "gate.d_logits", &gate->d_logits, shape, true, error);
}

static fly_status check_projected(const flyi_gated *g, const char *part, const fly_gate *gate, bool backward,
                                  fly_error *error) {
  if (!gate->weight.data) return REFUSE(error, "%sgate has neither logits nor weight", part);
  if (!g->c.x.data && g->batch * g->rows > 0) return REFUSE(error, "x.data is NULL, but %sgate is projected", part);
  int64_t weight[4] = {1, g->heads, gate->weight.shape[2], g->c.x.shape[3]};
  int64_t bias[4] = {1, g->heads, gate->weight.shape[2], 1};
  fly_status status;
  if ((status = check_channels(part, "gate.weight", weight[2], g->value_dim, error)) ||
      (status = check_tensor(part, "gate.weight", &gate->weight, weight, false, error)) ||
      (gate->bias.data && (status = check_tensor(part, "gate.bias", &gate->bias, bias, false, error))))
    return status;
  if (!backward) return FLY_OK;
  if (gate->d_weight.data && (status = check_tensor(part, "gate.d_weight", &gate->d_weight, weight, true, error)))
    return status;
  if (gate->d_bias.data && (status = check_tensor(part, "gate.d_bias", &gate->d_bias, bias, true, error)))
    return status;
  return FLY_OK;
}

/* ---- parts ------------------------------------------------------------------------------------------------------- */

/* The part as a call of its own. */
static fly_status complete_part(const flyi_gated *g, int i, bool backward, fly_error *error) {
  const fly_gated_part *given = &g->c.parts[i];
  fly_gated_part *part = &g->parts[i];
  fly_attention *a = &part->attention;
  part->gate = given->gate;
  if (!flyi_copy_struct(a, sizeof *a, &given->attention))
    return REFUSE(error, "parts[%d].attention.size is %zu: set it with FLY_INIT(fly_attention)", i,
                  given->attention.size);
  if (a->kernel && a->kernel->cuda_target[0] && !g->c.cuda)
    return REFUSE(error, "cuda is NULL: parts[%d].attention.kernel is for %s (fly_cuda_create makes one)", i,
                  a->kernel->cuda_target);
  if (a->kernel && !a->kernel->cuda_target[0] && g->c.cuda)
    return REFUSE(error, "cuda is given, but parts[%d].attention.kernel is for the CPU", i);
  a->cuda = g->c.cuda, a->stream = g->c.stream;
  if (a->d_sink.data)
    return REFUSE(error, "parts[%d].attention.d_sink is given: a gated call has no gradients of sinks", i);
  a->q = g->c.q, a->k = g->c.k, a->v = g->c.v;
  a->workspace = NULL, a->workspace_size = 0;
  a->threads = g->c.threads, a->parallel_for = g->c.parallel_for, a->parallel_user = g->c.parallel_user;
  a->d_out = a->d_lse = (fly_tensor){0};
  a->d_q = g->c.d_q, a->d_k = g->c.d_k, a->d_v = g->c.d_v;
  if (backward && (!a->out.data || !a->lse.data) && g->batch * g->heads * g->rows * g->value_dim > 0)
    return REFUSE(error, "parts[%d].attention.%s.data is NULL: the backward pass needs what the forward pass wrote", i,
                  a->out.data ? "lse" : "out");
  return FLY_OK;
}

static fly_status check_part(const flyi_gated *g, int i, bool backward, fly_error *error) {
  char name[32];
  fly_gated_part *part = &g->parts[i];
  fly_attention probe;
  flyi_call call;
  fly_status status;
  snprintf(name, sizeof name, "parts[%d].", i);
  if ((status = complete_part(g, i, backward, error))) return status;
  status = flyi_gate_projected(&part->gate) ? check_projected(g, name, &part->gate, backward, error)
                                            : check_given(g, name, &part->gate, backward, error);
  if (status) return status;
  probe = part->attention;
  if (!probe.out.data) probe.out = g->c.out;
  for (int k = 0; k < 4; k++)
    if (probe.out.shape[k] != g->c.out.shape[k])
      return REFUSE(error, "%sattention.out.shape[%d] is %" PRId64 ", out.shape[%d] %" PRId64, name, k,
                    probe.out.shape[k], k, g->c.out.shape[k]);
  if (probe.out.type != g->c.out.type)
    return REFUSE(error, "%sattention.out.type is %s, that of out %s", name, fly_type_name(probe.out.type),
                  fly_type_name(g->c.out.type));
  bool gradients = backward && (probe.d_q.data || probe.d_k.data || probe.d_v.data);
  if (!gradients) return flyi_call_check(&probe, &call, error);
  probe.d_out = g->c.d_out;
  return flyi_backward_check(&probe, &call, error);
}

static fly_status check_apart(const flyi_gated *g, bool backward, fly_error *error) {
  const fly_gated_call *c = &g->c;
  const struct {
    const char *name;
    const fly_tensor *tensor;
  } written[] = {{"out", &c->out}, {"d_q", &c->d_q}, {"d_k", &c->d_k}, {"d_v", &c->d_v}, {"d_x", &c->d_x}},
    read[] = {{"q", &c->q}, {"k", &c->k}, {"v", &c->v}, {"x", &c->x}, {"d_out", &c->d_out}};
  for (int i = backward; i < (backward ? 5 : 1); i++) {
    for (int j = 0; j < 5; j++)
      if (flyi_tensors_overlap(written[i].tensor, read[j].tensor))
        return REFUSE(error, "%s and %s share memory", written[i].name, read[j].name);
    for (int j = i + 1; j < 5; j++)
      if (backward && flyi_tensors_overlap(written[i].tensor, written[j].tensor))
        return REFUSE(error, "%s and %s share memory", written[i].name, written[j].name);
    for (int j = 0; j < c->count; j++) {
      const fly_gated_part *p = &g->parts[j];
      const fly_tensor *of_part[] = {&p->attention.out, &p->attention.lse, &p->gate.logits,
                                     &p->gate.weight,   &p->gate.bias,     &p->attention.sink};
      for (int k = 0; k < 6; k++)
        if (flyi_tensors_overlap(written[i].tensor, of_part[k]))
          return REFUSE(error, "%s and a tensor of parts[%d] share memory", written[i].name, j);
    }
  }
  for (int i = 0; i < c->count && !backward; i++)
    for (int j = 0; j < i; j++)
      if (flyi_tensors_overlap(&g->parts[i].attention.out, &g->parts[j].attention.out))
        return REFUSE(error, "out of parts[%d] and parts[%d] share memory", j, i);
  return FLY_OK;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static fly_status check_gradients(const flyi_gated *g, fly_error *error) {
  const fly_gated_call *c = &g->c;
  fly_status status;
  if (c->d_out.type != c->out.type)
    return REFUSE(error, "d_out.type is %s, out.type %s", fly_type_name(c->d_out.type), fly_type_name(c->out.type));
  if ((status = check_tensor("", "d_out", &c->d_out, c->out.shape, false, error))) return status;
  return c->d_x.data ? check_tensor("", "d_x", &c->d_x, c->x.shape, true, error) : FLY_OK;
}

/* The backward pass does not read out; its shape is that of d_out. */
static void take_shape(flyi_gated *g, bool backward) {
  if (backward) g->c.out = g->c.d_out;
  g->batch = g->c.out.shape[0], g->heads = g->c.out.shape[1], g->rows = g->c.out.shape[2],
  g->value_dim = g->c.out.shape[3];
}

fly_status flyi_gated_check(const fly_gated_call *call, bool backward, flyi_gated *g, fly_error *error) {
  fly_status status;
  fly_gated_call *c = &g->c;
  *g = (flyi_gated){0};
  if (!call) return REFUSE(error, "call is NULL");
  if (!flyi_copy_struct(c, sizeof *c, call))
    return REFUSE(error, "call.size is %zu: set it with FLY_INIT(fly_gated_call)", call->size);
  if (c->count < 1 || c->count > FLYI_GATE_PARTS || !c->parts)
    return REFUSE(error, "count is %d, or parts is NULL: 1 to %d parts", c->count, FLYI_GATE_PARTS);
  if (c->threads < 0) return REFUSE(error, "threads is %d", c->threads);
  if (c->stream && !c->cuda) return REFUSE(error, "stream is given, but cuda is NULL: set both for tensors of a GPU");
  take_shape(g, backward);
  int64_t x[4] = {g->batch, 1, g->rows, c->x.shape[3]};
  if ((status = check_tensor("", backward ? "d_out" : "out", &c->out, c->out.shape, !backward, error)) ||
      (c->x.data && (status = check_tensor("", "x", &c->x, x, false, error))) ||
      (backward && (status = check_gradients(g, error))))
    return status;
  if (c->x.shape[3] > INT32_MAX / 2) return REFUSE(error, "x.shape[3] is %" PRId64, c->x.shape[3]);
  g->parts = flyi_alloc(c->count, sizeof *g->parts);
  if (!g->parts) return flyi_no_memory(error);
  for (int i = 0; i < c->count; i++) {
    if ((status = check_part(g, i, backward, error))) return status;
    g->projects |= flyi_gate_projected(&g->parts[i].gate);
  }
  g->code = flyi_gate_code_of(g->parts[0].attention.kernel->isa);
  g->threads = (flyi_threads){c->threads, c->parallel_for, c->parallel_user};
  return check_apart(g, backward, error);
}
