/* cuda_call.c: calls of tests on a CUDA device. */
#include <dlfcn.h>

#include "cuda_call.h"

enum { TENSORS = 12, WRITTEN_FORWARD = 4, WRITTEN_BACKWARD = 8 /* the first of those that a call writes */ };

fly_cuda *cuda_open(void) {
  fly_cuda_desc desc = {FLY_INIT(fly_cuda_desc), .primary = true};
  fly_cuda *cuda;
  fly_error error;
  ck_fly_ok(fly_cuda_create(&desc, &cuda, &error), error);
  return cuda;
}

static fly_tensor *tensor_at(fly_attention *c, int i) {
  fly_tensor *all[TENSORS] = {&c->q,     &c->k,     &c->v,   &c->sink, &c->out, &c->lse,
                              &c->d_out, &c->d_lse, &c->d_q, &c->d_k,  &c->d_v, &c->d_sink};
  return all[i];
}

/* Bytes from the first element to behind the last. */
static size_t extent(const fly_tensor *t) {
  int64_t elements = t->shape[3];
  for (int i = 0; i < 3; i++) {
    if (!t->shape[i]) return 0;
    elements += (t->shape[i] - 1) * t->stride[i];
  }
  return (size_t)elements * fly_type_size(t->type);
}

fly_tensor cuda_tensor_put(fly_cuda *cuda, const fly_tensor *host) {
  fly_tensor device = *host;
  fly_error error;
  if (!host->data) return device;
  ck_fly_ok(fly_cuda_alloc(cuda, extent(host), &device.data, &error), error);
  ck_fly_ok(fly_cuda_write(cuda, device.data, host->data, extent(host), NULL, &error), error);
  return device;
}

void cuda_tensor_get(fly_cuda *cuda, const fly_tensor *device, const fly_tensor *host) {
  fly_error error;
  if (host->data) ck_fly_ok(fly_cuda_read(cuda, host->data, device->data, extent(host), NULL, &error), error);
}

void cuda_tensor_free(fly_cuda *cuda, fly_tensor *device) { fly_cuda_free(cuda, &device->data); }

void cuda_call_init(cuda_call *t, fly_cuda *cuda, const fly_attention *host, const fly_kernel *kernel) {
  fly_error error;
  *t = (cuda_call){.call = *host, .host = host};
  t->call.kernel = kernel, t->call.cuda = cuda;
  for (int i = 0; i < TENSORS; i++) {
    fly_tensor *x = tensor_at(&t->call, i);
    size_t bytes = extent(x);
    if (!x->data) continue;
    ck_fly_ok(fly_cuda_alloc(cuda, bytes, &t->memory[i], &error), error);
    ck_fly_ok(fly_cuda_write(cuda, t->memory[i], x->data, bytes, NULL, &error), error);
    x->data = t->memory[i];
  }
}

void cuda_call_fetch(cuda_call *t, bool backward) {
  fly_error error;
  for (int i = backward ? WRITTEN_BACKWARD : WRITTEN_FORWARD; i < (backward ? TENSORS : WRITTEN_FORWARD + 2); i++) {
    const fly_tensor *x = tensor_at((fly_attention *)t->host, i);
    if (!x->data) continue;
    ck_fly_ok(fly_cuda_read(t->call.cuda, x->data, t->memory[i], extent(x), t->call.stream, &error), error);
  }
}

void cuda_call_free(cuda_call *t) {
  for (int i = 0; i < TENSORS; i++) fly_cuda_free(t->call.cuda, &t->memory[i]);
}

/* The simulated driver says more than an error's words. */
void cuda_ok(fly_status status, const fly_error *error) {
  const char *(*report)(void) = NULL;
  if (!status) return;
  void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (driver) *(void **)&report = dlsym(driver, "simcuda_report");
  ck_abort_msg("%s: %s", error->message, report ? report() : "");
}

static void run(fly_cuda *cuda, const fly_attention *host, const fly_kernel *kernel, bool backward) {
  cuda_call t;
  fly_error error;
  cuda_call_init(&t, cuda, host, kernel);
  cuda_ok(backward ? fly_attention_backward(&t.call, &error) : fly_attention_forward(&t.call, &error), &error);
  cuda_ok(fly_cuda_synchronize(cuda, t.call.stream, &error), &error);
  cuda_call_fetch(&t, backward);
  cuda_call_free(&t);
}

void cuda_forward(fly_cuda *cuda, const fly_attention *host, const fly_kernel *kernel) {
  run(cuda, host, kernel, false);
}

void cuda_backward(fly_cuda *cuda, const fly_attention *host, const fly_kernel *kernel) {
  run(cuda, host, kernel, true);
}
