/* backward_check.c: what a backward call must bring beside a forward one's arguments. */
#include <inttypes.h>

#include "backward.h"

#define REFUSE(error, ...) flyi_fail(error, FLY_ERROR_ARGUMENT, __VA_ARGS__)

/* A tensor that is shaped as another one is, but for its last dimension. */
static fly_status check_like(const char *name, const fly_tensor *t, bool written, const char *like_name,
                             const fly_tensor *like, fly_error *error) {
  if (!t->data && like->data) return REFUSE(error, "%s.data is NULL", name);
  for (int i = 0; i < 3; i++)
    if (t->shape[i] != like->shape[i])
      return REFUSE(error, "%s.shape[%d] is %" PRId64 ", %s.shape[%d] %" PRId64, name, i, t->shape[i], like_name, i,
                    like->shape[i]);
  return flyi_tensor_check(name, t, like->type, like->shape[3], written, error);
}

static fly_status check_apart(const fly_attention *c, fly_error *error) {
  const struct {
    const char *name;
    const fly_tensor *tensor;
  } all[] = {{"d_q", &c->d_q}, {"d_k", &c->d_k},     {"d_v", &c->d_v},     {"d_sink", &c->d_sink},
             {"q", &c->q},     {"k", &c->k},         {"v", &c->v},         {"out", &c->out},
             {"lse", &c->lse}, {"d_out", &c->d_out}, {"d_lse", &c->d_lse}, {"sink", &c->sink}};
  for (int i = 0; i < 4; i++)
    for (int j = i + 1; j < 12; j++)
      if (flyi_tensors_overlap(all[i].tensor, all[j].tensor))
        return REFUSE(error, "%s and %s share memory", all[i].name, all[j].name);
  return FLY_OK;
}

fly_status flyi_backward_check(const fly_attention *call, flyi_call *out, fly_error *error) {
  fly_status status = flyi_call_check_read(call, out, error);
  fly_attention *c = &out->c;
  if (status) return status;
  if (c->out.type != c->kernel->desc.type)
    return REFUSE(error, "out.type is %s, the kernel's %s: the backward pass wants the same",
                  fly_type_name(c->out.type), fly_type_name(c->kernel->desc.type));
  bool rows = c->out.shape[0] && c->out.shape[1] && c->out.shape[2];
  if (!c->lse.data && rows)
    return REFUSE(error, "lse.data is NULL: the backward call needs what the forward call wrote");
  if (!c->d_q.data && !c->d_k.data && !c->d_v.data && !c->d_sink.data)
    return REFUSE(error, "d_q, d_k and d_v are all NULL, and so is d_sink: nothing to do");
  if (c->d_sink.data && !c->sink.data) return REFUSE(error, "d_sink is given, but no sink");
  if ((status = check_like("d_out", &c->d_out, false, "out", &c->out, error)) ||
      (c->d_lse.data && (status = check_like("d_lse", &c->d_lse, false, "lse", &c->lse, error))) ||
      (c->d_q.data && (status = check_like("d_q", &c->d_q, true, "q", &c->q, error))) ||
      (c->d_k.data && (status = check_like("d_k", &c->d_k, true, "k", &c->k, error))) ||
      (c->d_v.data && (status = check_like("d_v", &c->d_v, true, "v", &c->v, error))) ||
      (c->d_sink.data && (status = check_like("d_sink", &c->d_sink, true, "sink", &c->sink, error))) ||
      (status = check_apart(c, error)))
    return status;
  if (c->geometry.cu_seqlens_q)
    c->d_out.stride[0] = c->d_lse.stride[0] = c->d_q.stride[0] = c->d_k.stride[0] = c->d_v.stride[0] = 0;
  return FLY_OK;
}
