/* cuda_check.c: what a call for a GPU must bring beside a checked call: a handle, a stream of its context, tensors
 * in its device's memory, lengths and strides that kernels count with 32 bits. Each refusal names the argument. */
#include <inttypes.h>

#include "cuda.h"

#define REFUSE(error, ...) flyi_fail(error, FLY_ERROR_ARGUMENT, __VA_ARGS__)

/* ---- the stream ------------------------------------------------------------------------------------------------ */

fly_status flyi_cuda_check_stream(const fly_cuda *cuda, flyi_cuda_stream stream, fly_error *error) {
  const flyi_cuda_driver *d = &cuda->driver;
  flyi_cuda_context context = NULL;
  if ((uintptr_t)stream <= 2) return FLY_OK; /* the default streams, of whatever context is current */
  int code = d->stream_context(stream, &context);
  if (code) return flyi_cuda_fail(d, code, error, "stream cannot be used in the fly_cuda's context");
  if (context != cuda->context)
    return REFUSE(error, "stream is of another CUDA context than call.cuda: use one of its own, or another fly_cuda");
  return FLY_OK;
}

/* ---- pointers -------------------------------------------------------------------------------------------------- */

static fly_status check_pointer(const char *name, const char *where, uintptr_t pointer, const fly_cuda *cuda,
                                fly_error *error) {
  const flyi_cuda_driver *d = &cuda->driver;
  unsigned type = 0, managed = 0;
  int device = -1, what[] = {FLYI_CUDA_POINTER_TYPE, FLYI_CUDA_POINTER_MANAGED, FLYI_CUDA_POINTER_DEVICE};
  void *values[] = {&type, &managed, &device};
  int code = d->pointer_attributes(3, what, values, pointer);
  if (code) return flyi_cuda_fail(d, code, error, "%s.data cannot be looked up", name);
  if (type != FLYI_CUDA_MEMORY_ON_DEVICE && !managed)
    return REFUSE(error, "%s of %s.data is not in device memory: the kernel is for %s", where, name, cuda->info.target);
  if (!managed && device != cuda->info.device)
    return REFUSE(error, "%s of %s.data is in the memory of CUDA device %d, call.cuda is of device %d", where, name,
                  device, cuda->info.device);
  return FLY_OK;
}

/* First and last byte: what lies between may be of several mappings. */
fly_status flyi_cuda_check_tensor(const char *name, const fly_tensor *t, const fly_cuda *cuda, fly_error *error) {
  int64_t last = t->shape[3], size = (int64_t)fly_type_size(t->type);
  if (!t->data || !t->shape[0] || !t->shape[1] || !t->shape[2]) return FLY_OK;
  for (int i = 0; i < 3; i++) last += (t->shape[i] - 1) * t->stride[i];
  if (t->stride[2] > UINT32_MAX / size)
    return flyi_fail(error, FLY_ERROR_UNSUPPORTED,
                     "%s.stride[2] is %" PRId64 ": on a GPU rows are less than 4 GiB apart", name, t->stride[2]);
  uintptr_t first = (uintptr_t)t->data;
  fly_status status = check_pointer(name, "the first byte", first, cuda, error);
  return status ? status : check_pointer(name, "the last byte", first + (uintptr_t)(last * size) - 1, cuda, error);
}

static fly_status check_pointers(const fly_attention *c, bool backward, fly_error *error) {
  const struct {
    const char *name;
    const fly_tensor *tensor;
  } all[] = {{"q", &c->q},         {"k", &c->k},         {"v", &c->v},          {"out", &c->out},
             {"lse", &c->lse},     {"sink", &c->sink},   {"d_q", &c->d_q},      {"d_k", &c->d_k},
             {"d_v", &c->d_v},     {"d_out", &c->d_out}, {"d_lse", &c->d_lse},  {"d_sink", &c->d_sink}};
  fly_status status = FLY_OK;
  for (int i = 0; !status && i < (backward ? 12 : 6); i++)
    status = flyi_cuda_check_tensor(all[i].name, all[i].tensor, c->cuda, error);
  if (!status && c->workspace && c->workspace_size) {
    uintptr_t first = (uintptr_t)c->workspace;
    status = check_pointer("workspace", "the first byte", first, c->cuda, error);
    if (!status) status = check_pointer("workspace", "the last byte", first + c->workspace_size - 1, c->cuda, error);
  }
  return status;
}

/* ---- the whole ------------------------------------------------------------------------------------------------- */

static fly_status check_lengths(const flyi_call *call, fly_error *error) {
  int64_t offset = call->c.geometry.q_offset;
  if (call->domain.max_q + (offset < 0 ? -offset : offset) > FLYI_CUDA_MAX_LENGTH ||
      call->domain.max_kv > FLYI_CUDA_MAX_LENGTH)
    return flyi_fail(error, FLY_ERROR_UNSUPPORTED,
                     "%" PRId64 " queries with q_offset %" PRId64 ", %" PRId64 " keys: on a GPU positions go to %d",
                     call->domain.max_q, offset, call->domain.max_kv, FLYI_CUDA_MAX_LENGTH);
  if (flyi_cuda_argument_size(flyi_cuda_slots(call)) > FLYI_CUDA_MAX_ARGUMENT)
    return flyi_fail(error, FLY_ERROR_UNSUPPORTED,
                     "the mask%s %" PRId64
                     " words of parameters and buffers: more than the %d bytes of a GPU kernel's argument",
                     call->c.score ? " and the score modifier have" : " has", flyi_cuda_slots(call),
                     FLYI_CUDA_MAX_ARGUMENT);
  return FLY_OK;
}

fly_status flyi_cuda_check(const flyi_call *call, bool backward, fly_error *error) {
  fly_status status;
  if ((status = check_lengths(call, error)) || (status = flyi_cuda_check_stream(call->c.cuda, call->c.stream, error)))
    return status;
  return check_pointers(&call->c, backward, error);
}

/* A stride over one entry is not used. */
static bool is_aligned(const fly_tensor *t) {
  int64_t size = (int64_t)fly_type_size(t->type);
  bool aligned = (uintptr_t)t->data % 16 == 0 && t->shape[3] * size % 16 == 0;
  for (int i = 0; i < 3; i++) aligned &= t->shape[i] <= 1 || t->stride[i] * size % 16 == 0;
  return aligned;
}

bool flyi_cuda_aligned(const fly_attention *c, bool backward) {
  return is_aligned(&c->q) && is_aligned(&c->k) && is_aligned(&c->v) &&
         (!backward || (is_aligned(&c->out) && is_aligned(&c->d_out)));
}
