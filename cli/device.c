/* device.c: calls of a command on an NVIDIA GPU: tensors go to the device before, results come back after. Where
 * no GPU is wanted, the same calls run where they are. */
#include <string.h>

#include "cli.h"

bool device_target(const char *target) {
  return target && (strcmp(target, "cuda") == 0 || strncmp(target, "sm_", 3) == 0);
}

const char *time_includes(const arguments *args) {
  return device_target(args->target) ? "block map and compiling included" : "block map included";
}

fly_status device_open(const arguments *args, device *d, fly_error *error) {
  *d = (device){0};
  if (!device_target(args->target)) return FLY_OK;
  fly_cuda_desc desc = {FLY_INIT(fly_cuda_desc), .primary = true};
  return fly_cuda_create(&desc, &d->cuda, error);
}

void device_close(device *d) {
  for (int i = 0; i < DEVICE_TENSORS; i++) fly_cuda_free(d->cuda, &d->memory[i]);
  fly_cuda_release(&d->cuda);
}

enum { FIRST_OUTPUT = 4, FIRST_GRADIENT = 8 }; /* what a call writes */

static fly_tensor *tensor_at(fly_attention *c, int i) {
  fly_tensor *all[DEVICE_TENSORS] = {&c->q,     &c->k,     &c->v,   &c->sink, &c->out, &c->lse,
                                     &c->d_out, &c->d_lse, &c->d_q, &c->d_k,  &c->d_v, &c->d_sink};
  return all[i];
}

/* The command's tensors are dense. */
static size_t size_of(const fly_tensor *t) {
  return (size_t)(t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3]) * fly_type_size(t->type);
}

fly_status device_call(device *d, const fly_attention *host, fly_attention *call, fly_error *error) {
  fly_status status = FLY_OK;
  *call = *host;
  if (!d->cuda) return FLY_OK;
  call->cuda = d->cuda;
  for (int i = 0; status == FLY_OK && i < DEVICE_TENSORS; i++) {
    fly_tensor *t = tensor_at(call, i);
    if (!t->data) continue;
    fly_cuda_free(d->cuda, &d->memory[i]);
    status = fly_cuda_alloc(d->cuda, size_of(t), &d->memory[i], error);
    if (status == FLY_OK) status = fly_cuda_write(d->cuda, d->memory[i], t->data, size_of(t), NULL, error);
    t->data = d->memory[i];
  }
  return status;
}

fly_status device_wait(device *d, fly_error *error) {
  return d->cuda ? fly_cuda_synchronize(d->cuda, NULL, error) : FLY_OK;
}

fly_status device_fetch(device *d, const fly_attention *host, bool backward, fly_error *error) {
  fly_status status = FLY_OK;
  if (!d->cuda) return FLY_OK;
  int first = backward ? FIRST_GRADIENT : FIRST_OUTPUT, end = backward ? DEVICE_TENSORS : FIRST_OUTPUT + 2;
  for (int i = first; status == FLY_OK && i < end; i++) {
    const fly_tensor *t = tensor_at((fly_attention *)host, i);
    if (t->data) status = fly_cuda_read(d->cuda, t->data, d->memory[i], size_of(t), NULL, error);
  }
  return status;
}

fly_status device_run(device *d, const fly_attention *host, bool backward, double *ms, fly_error *error) {
  fly_attention call;
  fly_status status = device_call(d, host, &call, error);
  if (status != FLY_OK) return status;
  double start = now_ms();
  status = backward ? fly_attention_backward(&call, error) : fly_attention_forward(&call, error);
  if (status == FLY_OK) status = device_wait(d, error);
  *ms = now_ms() - start;
  return status == FLY_OK ? device_fetch(d, host, backward, error) : status;
}
