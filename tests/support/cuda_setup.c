/* cuda_setup.c: see cuda_setup.h. */
#include "cuda_setup.h"

#include "map_case.h"
#include "oracle_backward.h"

enum { N = SETUP_N, D = SETUP_D };

static const char source[] = "FLY_PARAM(int, reach, 40); FLY_BUFFER(int32_t, group, 1);"
                             "bool mask(int b, int h, int q, int kv) {"
                             "  return kv <= q && q - kv <= reach && group[fly_token_kv(b, h, kv)] != 1; }";

bool cuda_setup_sees(void *context, int b, int h, int q, int kv) {
  const cuda_setup *s = context;
  (void)b, (void)h;
  return kv <= q && q - kv <= 40 && s->group[s->rows[kv]] != 1;
}

simcuda_counts cuda_setup_counts(void) {
  simcuda_counts c;
  simcuda_get_counts(&c);
  return c;
}

fly_kernel *cuda_setup_kernel(const cuda_setup *s, const char *target) {
  fly_kernel_desc desc = {FLY_INIT(fly_kernel_desc), .type = FLY_BF16, .head_dim = D, .target = target};
  fly_kernel *kernel;
  fly_error error;
  ck_fly_ok(fly_kernel_create(s->mask, &desc, &kernel, &error), error);
  return kernel;
}

static void make_tensors(cuda_setup *s) {
  fly_attention *c = &s->host;
  uint16_t *data[] = {s->q, s->k, s->v, s->out, s->d_out, s->d_q, s->d_k, s->d_v};
  fly_tensor *tensors[] = {&c->q, &c->k, &c->v, &c->out, &c->d_out, &c->d_q, &c->d_k, &c->d_v};
  test_random random = {7};
  for (int i = 0; i < 8; i++) {
    *tensors[i] = fly_tensor_dense(data[i], FLY_BF16, 1, 1, N, D);
    for (int e = 0; e < N * D; e++) data[i][e] = test_to_bf16(test_normal(&random));
  }
  c->lse = fly_tensor_dense(s->lse, FLY_F32, 1, 1, N, 1);
}

cuda_setup *cuda_setup_open(void) {
  fly_error error;
  fly_buffer *buffer;
  cuda_setup *s = calloc(1, sizeof *s);
  for (int i = 0; i < N; i++) s->rows[i] = (i * 7 + 3) % N, s->group[i] = i % 5;
  s->mask = map_compile(source);
  ck_fly_ok(fly_buffer_create(FLY_I32, 1, (int64_t[]){N}, s->group, &buffer, &error), error);
  ck_fly_ok(fly_mask_bind(s->mask, (fly_arg[]){FLY_CAPTURE("group", buffer)}, 1, &s->bound, &error), error);
  fly_buffer_release(&buffer);
  s->kernel = cuda_setup_kernel(s, "sm_80");
  fly_attention *c = &s->host;
  *c = (fly_attention){FLY_INIT(fly_attention), .bound = s->bound};
  make_tensors(s);
  c->geometry = (fly_geometry){FLY_INIT(fly_geometry), .batch = 1, .heads = 1, .len_q = N, .len_kv = N};
  c->geometry.q_rows.rows = c->geometry.kv_rows.rows = s->rows;
  s->cuda = cuda_open();
  oracle_forward(c, cuda_setup_sees, s); /* what a backward call reads */
  cuda_call_init(&s->t, s->cuda, c, s->kernel);
  return s;
}

void cuda_setup_check_nothing_left(void) {
  simcuda_counts c = cuda_setup_counts();
  ck_assert_uint_eq(c.allocations + c.host_allocations, 0);
  ck_assert_uint_eq(c.modules + c.events, 0);
  ck_assert_uint_eq(c.primary_retains, 0);
}

void cuda_setup_close(cuda_setup *s) {
  if (s->cuda) cuda_call_free(&s->t);
  fly_cuda_release(&s->cuda);
  fly_kernel_release(&s->kernel);
  fly_bound_release(&s->bound);
  fly_mask_release(&s->mask);
  free(s);
  cuda_setup_check_nothing_left();
}

fly_status cuda_setup_run(const cuda_setup *s, bool backward, fly_error *error) {
  return backward ? fly_attention_backward(&s->t.call, error) : fly_attention_forward(&s->t.call, error);
}

void cuda_setup_check_result(cuda_setup *s, bool backward) {
  fly_error error;
  ck_fly_ok(fly_cuda_synchronize(s->cuda, s->t.call.stream, &error), error);
  cuda_call_fetch(&s->t, backward);
  fly_attention host = s->host;
  host.geometry = s->t.call.geometry;
  if (backward)
    oracle_check_backward_units(&host, cuda_setup_sees, s, 0x1p-8, "backward");
  else
    oracle_check_units(&host, cuda_setup_sees, s, 0, "forward");
}

void cuda_setup_check_works(cuda_setup *s, bool backward) {
  fly_error error;
  ck_fly_ok(cuda_setup_run(s, backward, &error), error);
  cuda_setup_check_result(s, backward);
}

void cuda_setup_refuse(const cuda_setup *s, bool backward, fly_status status, const char *words) {
  fly_error error = {0};
  ck_assert_int_eq(cuda_setup_run(s, backward, &error), status);
  ck_assert_msg(strstr(error.message, words) != NULL, "%s", error.message);
}

void cuda_setup_spoil(cuda_setup *s, bool backward) {
  for (int i = backward ? 7 : 3; i < (backward ? 10 : 4); i++) cuMemsetD16_v2((uintptr_t)s->t.memory[i], 0x4321, N * D);
}

void cuda_setup_push_primary(void) {
  CUcontext context;
  cuDevicePrimaryCtxRetain(&context, 0);
  cuCtxPushCurrent_v2(context);
  cuDevicePrimaryCtxRelease_v2(0);
}
