/* CUDA calls that fail, and what they leave behind; copies on the device, streams, threads: the runtime on the
 * simulated driver, which counts everything that is alive. */
#include <pthread.h>

#include "cuda_call.h"
#include "map_case.h"
#include "oracle_backward.h"
#include "runtime/runtime.h"
#include "simcuda/driver.h"
#include "simcuda/simcuda.h"

enum { N = 150, D = 64 };

static simcuda_counts counts(void) {
  simcuda_counts c;
  simcuda_get_counts(&c);
  return c;
}

/* ---- one call, on the host and on the device ------------------------------------------------------------------- */

/* A mask that reads a buffer and tokens, so that a call has all that can be copied to a device. */
static const char source[] = "FLY_PARAM(int, reach, 40); FLY_BUFFER(int32_t, group, 1);"
                             "bool mask(int b, int h, int q, int kv) {"
                             "  return kv <= q && q - kv <= reach && group[fly_token_kv(b, h, kv)] != 1; }";

static int32_t rows[N], group[N];

static bool sees(void *context, int b, int h, int q, int kv) {
  (void)context, (void)b, (void)h;
  return kv <= q && q - kv <= 40 && group[rows[kv]] != 1;
}

typedef struct setup {
  fly_cuda *cuda;
  fly_mask *mask;
  fly_bound *bound;
  fly_kernel *kernel;
  fly_attention host;
  uint16_t q[N * D], k[N * D], v[N * D], out[N * D], d_out[N * D], d_q[N * D], d_k[N * D], d_v[N * D];
  float lse[N];
  cuda_call t;
} setup;

static setup *s;

static void open_all(void) {
  fly_error error;
  fly_buffer *buffer;
  s = calloc(1, sizeof *s);
  for (int i = 0; i < N; i++) rows[i] = (i * 7 + 3) % N, group[i] = i % 5;
  s->mask = map_compile(source);
  ck_fly_ok(fly_buffer_create(FLY_I32, 1, (int64_t[]){N}, group, &buffer, &error), error);
  ck_fly_ok(fly_mask_bind(s->mask, (fly_arg[]){FLY_CAPTURE("group", buffer)}, 1, &s->bound, &error), error);
  fly_buffer_release(&buffer);
  fly_kernel_desc desc = {FLY_INIT(fly_kernel_desc), .type = FLY_BF16, .head_dim = D, .target = "sm_80"};
  ck_fly_ok(fly_kernel_create(s->mask, &desc, &s->kernel, &error), error);
  fly_attention *c = &s->host;
  *c = (fly_attention){FLY_INIT(fly_attention), .bound = s->bound};
  uint16_t *data[] = {s->q, s->k, s->v, s->out, s->d_out, s->d_q, s->d_k, s->d_v};
  fly_tensor *tensors[] = {&c->q, &c->k, &c->v, &c->out, &c->d_out, &c->d_q, &c->d_k, &c->d_v};
  test_random random = {7};
  for (int i = 0; i < 8; i++) {
    *tensors[i] = fly_tensor_dense(data[i], FLY_BF16, 1, 1, N, D);
    for (int e = 0; e < N * D; e++) data[i][e] = test_to_bf16(test_normal(&random));
  }
  c->lse = fly_tensor_dense(s->lse, FLY_F32, 1, 1, N, 1);
  c->geometry = (fly_geometry){FLY_INIT(fly_geometry), .batch = 1, .heads = 1, .len_q = N, .len_kv = N};
  c->geometry.q_rows.rows = c->geometry.kv_rows.rows = rows;
  s->cuda = cuda_open();
  oracle_forward(c, sees, NULL); /* what a backward call reads */
  cuda_call_init(&s->t, s->cuda, c, s->kernel);
}

static void check_nothing_left(void) {
  simcuda_counts c = counts();
  ck_assert_uint_eq(c.allocations + c.host_allocations, 0);
  ck_assert_uint_eq(c.modules + c.events, 0);
  ck_assert_uint_eq(c.primary_retains, 0);
}

static void close_all(void) {
  if (s->cuda) cuda_call_free(&s->t);
  fly_cuda_release(&s->cuda);
  fly_kernel_release(&s->kernel);
  fly_bound_release(&s->bound);
  fly_mask_release(&s->mask);
  free(s);
  check_nothing_left();
}

static fly_status run(bool backward, fly_error *error) {
  return backward ? fly_attention_backward(&s->t.call, error) : fly_attention_forward(&s->t.call, error);
}

/* What the device holds is right. */
static void check_result(bool backward) {
  fly_error error;
  ck_fly_ok(fly_cuda_synchronize(s->cuda, s->t.call.stream, &error), error);
  cuda_call_fetch(&s->t, backward);
  fly_attention host = s->host;
  host.geometry = s->t.call.geometry;
  if (backward)
    oracle_check_backward_units(&host, sees, NULL, 0x1p-8, "backward");
  else
    oracle_check_units(&host, sees, NULL, 0, "forward");
}

/* Destroys what the device holds of results. */
static void spoil(bool backward) {
  for (int i = backward ? 7 : 3; i < (backward ? 10 : 4); i++) cuMemsetD16_v2((uintptr_t)s->t.memory[i], 0x4321, N * D);
}

static void check_works(bool backward) {
  fly_error error;
  ck_fly_ok(run(backward, &error), error);
  check_result(backward);
}

static void push_primary(void) {
  CUcontext context;
  cuDevicePrimaryCtxRetain(&context, 0);
  cuCtxPushCurrent_v2(context);
  cuDevicePrimaryCtxRelease_v2(0);
}

/* ---- refusals ---------------------------------------------------------------------------------------------------- */

static void refuse(bool backward, fly_status status, const char *words) {
  fly_error error = {0};
  ck_assert_int_eq(run(backward, &error), status);
  ck_assert_msg(strstr(error.message, words) != NULL, "%s", error.message);
}

START_TEST(tensors_must_be_in_device_memory) {
  fly_attention good = s->t.call;
  s->t.call.q.data = s->q;
  refuse(false, FLY_ERROR_ARGUMENT, "the first byte of q.data is not in device memory");
  s->t.call = good;
  s->t.call.lse.data = s->lse;
  refuse(true, FLY_ERROR_ARGUMENT, "the first byte of lse.data is not in device memory");
  s->t.call = good;
  s->t.call.d_v.data = (char *)good.d_v.data + 64; /* its last row ends behind the allocation */
  refuse(true, FLY_ERROR_ARGUMENT, "the last byte of d_v.data is not in device memory");
  s->t.call = good;
  void *gone;
  fly_error error;
  ck_fly_ok(fly_cuda_alloc(s->cuda, N * D * 2, &gone, &error), error);
  s->t.call.k.data = gone;
  fly_cuda_free(s->cuda, &gone);
  refuse(false, FLY_ERROR_ARGUMENT, "the first byte of k.data is not in device memory");
  s->t.call = good;
  check_works(false);
}
END_TEST

START_TEST(a_kernel_for_a_device_needs_a_handle_and_one_for_the_cpu_has_none) {
  fly_kernel_desc desc = {FLY_INIT(fly_kernel_desc), .type = FLY_BF16, .head_dim = D};
  fly_error error;
  fly_kernel *cpu;
  s->t.call.cuda = NULL;
  refuse(false, FLY_ERROR_ARGUMENT, "cuda is NULL: the kernel is for sm_80");
  refuse(true, FLY_ERROR_ARGUMENT, "cuda is NULL: the kernel is for sm_80");
  size_t bytes = 1;
  ck_assert_int_eq(fly_attention_workspace(&s->t.call, &bytes, &error), FLY_ERROR_ARGUMENT);
  ck_assert_uint_eq(bytes, 0);
  ck_fly_ok(fly_kernel_create(s->mask, &desc, &cpu, &error), error);
  fly_attention host = s->host;
  host.kernel = cpu, host.cuda = s->cuda;
  ck_assert_int_eq(fly_attention_forward(&host, &error), FLY_ERROR_ARGUMENT);
  ck_assert_msg(strstr(error.message, "cuda is given, but the kernel is for the CPU") != NULL, "%s", error.message);
  fly_kernel_release(&cpu);
  s->t.call.cuda = s->cuda;
}
END_TEST

START_TEST(a_stream_of_another_context_is_refused) {
  CUcontext other;
  CUstream stream;
  ck_assert_int_eq(cuCtxCreate_v4(&other, NULL, 0, 0), 0);
  ck_assert_int_eq(cuStreamCreate(&stream, 0), 0);
  s->t.call.stream = stream;
  refuse(false, FLY_ERROR_DEVICE, "stream cannot be used in the fly_cuda's context");
  refuse(true, FLY_ERROR_DEVICE, "stream cannot be used in the fly_cuda's context");
  cuStreamDestroy_v2(stream);
  refuse(false, FLY_ERROR_DEVICE, "stream"); /* one that is no more */
  cuCtxDestroy_v2(other);
  s->t.call.stream = NULL;
  check_works(false);
}
END_TEST

START_TEST(a_kernel_for_a_newer_device_is_refused) {
  fly_kernel_desc desc = {FLY_INIT(fly_kernel_desc), .type = FLY_BF16, .head_dim = D, .target = "sm_90"};
  fly_error error;
  fly_kernel *newer;
  ck_fly_ok(fly_kernel_create(s->mask, &desc, &newer, &error), error);
  s->t.call.kernel = newer;
  fly_status status = run(false, &error);
  ck_assert(status == FLY_ERROR_UNSUPPORTED || status == FLY_ERROR_IMAGE);
  ck_assert_msg(strstr(error.message, "sm_90") && strstr(error.message, "sm_80"), "%s", error.message);
  s->t.call.kernel = s->kernel;
  fly_kernel_release(&newer);
  check_works(false);
}
END_TEST

START_TEST(code_that_the_driver_does_not_take_is_its_words) {
  const flyi_cuda_code *code;
  fly_kernel_desc desc = {FLY_INIT(fly_kernel_desc), .type = FLY_BF16, .head_dim = D, .target = "sm_80"};
  fly_error error;
  fly_kernel *broken;
  ck_fly_ok(fly_kernel_create(s->mask, &desc, &broken, &error), error);
  ck_fly_ok(flyi_kernel_cuda(broken, FLYI_DIRECTION_FORWARD, "sm_80", &code, &error), error);
  char *text = strstr((char *)(uintptr_t)code->ptx.data, ".version");
  ck_assert_ptr_nonnull(text);
  memcpy(text, ".nothing", 8);
  s->t.call.kernel = broken;
  refuse(false, FLY_ERROR_DEVICE, "a PTX JIT compilation failed");
  refuse(false, FLY_ERROR_DEVICE, "nothing"); /* from the assembler's log */
  s->t.call.kernel = s->kernel;
  fly_kernel_release(&broken);
  check_works(false);
}
END_TEST

START_TEST(a_device_with_too_little_shared_memory_is_named) {
  simcuda_config config, small;
  simcuda_get_config(&config);
  small = config;
  small.shared_block = 8 << 10;
  cuda_call_free(&s->t);
  fly_cuda_release(&s->cuda);
  simcuda_set_config(&small);
  s->cuda = cuda_open();
  cuda_call_init(&s->t, s->cuda, &s->host, s->kernel);
  refuse(false, FLY_ERROR_UNSUPPORTED, "8192 bytes of shared memory");
  simcuda_set_config(&config);
}
END_TEST

START_TEST(sinks_are_in_device_memory) {
  s->t.call.sink = fly_tensor_dense(s->lse, FLY_F32, 1, 1, 1, 1);
  refuse(false, FLY_ERROR_ARGUMENT, "sink.data is not in device memory");
  refuse(true, FLY_ERROR_ARGUMENT, "sink.data is not in device memory");
  s->t.call.sink.data = NULL;
  check_works(false);
}
END_TEST

/* 40 buffers of 6 words each */
static int declare_buffers(char *at) {
  int length = 0;
  for (int i = 0; i < 40; i++) length += sprintf(at + length, "FLY_BUFFER(float, p%d, 1);\n", i);
  return length;
}

START_TEST(a_mask_and_a_modifier_of_more_words_than_an_argument_holds_are_refused) {
  char of_mask[2048] = "#include <flymask/mask.h>\n", of_score[2048] = "#include <flymask/score.h>\n";
  fly_error error;
  fly_mask *mask;
  fly_score *score;
  fly_kernel *kernel;
  const void *bytes;
  size_t size, at = strlen(of_mask);
  at += (size_t)declare_buffers(of_mask + at);
  strcpy(of_mask + at, "bool mask(int b, int h, int q, int kv) { return p0[q] > p1[kv]; }\n");
  at = strlen(of_score);
  at += (size_t)declare_buffers(of_score + at);
  strcpy(of_score + at, "float score(float s, int b, int h, int q, int kv) { return s * p0[q]; }\n");
  ck_fly_ok(fly_mask_compile(of_mask, "mask.c", NULL, &mask, &error), error);
  ck_fly_ok(fly_score_compile(of_score, "score.c", NULL, &score, &error), error);
  fly_kernel_desc desc = {FLY_INIT(fly_kernel_desc), .type = FLY_BF16, .head_dim = D, .target = "sm_80"};
  for (int i = 0; i < 2; i++) { /* each alone is none too many */
    desc.score = i ? score : NULL;
    ck_fly_ok(fly_kernel_create(mask, &desc, &kernel, &error), error);
    ck_assert_int_eq(fly_kernel_image(kernel, &bytes, &size, &error), i ? FLY_ERROR_UNSUPPORTED : FLY_OK);
    fly_kernel_release(&kernel);
  }
  ck_assert_msg(strstr(error.message, "of the mask and the score modifier take"), "%s", error.message);
  fly_score_release(&score);
  fly_mask_release(&mask);
}
END_TEST

START_TEST(a_workspace_is_checked_and_used) {
  fly_error error;
  size_t bytes;
  void *memory;
  ck_fly_ok(fly_attention_workspace(&s->t.call, &bytes, &error), error);
  ck_fly_ok(fly_attention_backward_workspace(&s->t.call, &bytes, &error), error);
  ck_assert_uint_gt(bytes, 0);
  ck_fly_ok(fly_cuda_alloc(s->cuda, bytes, &memory, &error), error);
  s->t.call.workspace = s->lse, s->t.call.workspace_size = bytes;
  refuse(true, FLY_ERROR_ARGUMENT, "workspace.data is not in device memory");
  s->t.call.workspace = memory, s->t.call.workspace_size = bytes - 1;
  refuse(true, FLY_ERROR_ARGUMENT, "workspace_size is");
  s->t.call.workspace_size = bytes;
  check_works(true);
  s->t.call.workspace = NULL, s->t.call.workspace_size = 0;
  fly_cuda_free(s->cuda, &memory);
}
END_TEST

START_TEST(a_destroyed_context_is_an_error_and_objects_end_all_the_same) {
  CUcontext own;
  fly_error error;
  cuda_call_free(&s->t);
  fly_cuda_release(&s->cuda);
  ck_assert_int_eq(cuCtxCreate_v4(&own, NULL, 0, 0), 0);
  ck_fly_ok(fly_cuda_create(NULL, &s->cuda, &error), error);
  cuda_call_init(&s->t, s->cuda, &s->host, s->kernel);
  fly_map *map = map_build(s->bound, &s->host.geometry, 128);
  s->t.call.map = map;
  check_works(false);
  cuCtxDestroy_v2(own);
  refuse(false, FLY_ERROR_DEVICE, "was it destroyed?");
  fly_map_release(&map);
}
END_TEST

/* ---- failures ---------------------------------------------------------------------------------------------------- */

/* Every driver call of a call fails in turn, with and without a map at hand: a clear error, and what the next call
 * gives is right. Nothing stays on the device but what the failed call could not free. */
START_TEST(any_driver_call_may_fail) {
  bool backward = _i & 1, with_map = _i & 2;
  int failures = 0;
  push_primary();
  for (uint64_t n = 1;; n++) {
    fly_error error = {0};
    fly_map *map = with_map ? map_build(s->bound, &s->host.geometry, 128) : NULL;
    fly_kernel_desc desc = {FLY_INIT(fly_kernel_desc), .type = FLY_BF16, .head_dim = D, .target = "sm_80"};
    fly_kernel *fresh; /* whose module is not there yet */
    ck_fly_ok(fly_kernel_create(s->mask, &desc, &fresh, &error), error);
    s->t.call.map = map, s->t.call.kernel = fresh;
    spoil(backward);
    uint64_t before = counts().allocations;
    simcuda_fail_call(n, CUDA_ERROR_NOT_PERMITTED);
    fly_status status = run(backward, &error);
    bool reached = simcuda_calls() >= n;
    bool freeing = strstr(simcuda_report(), "cuMemFreeAsync") != NULL;
    simcuda_fail_call(0, 0);
    if (reached && !freeing) {
      ck_assert_int_eq(status, FLY_ERROR_DEVICE);
      ck_assert_msg(strstr(error.message, "operation not permitted") != NULL, "%s", error.message);
      failures++;
    } else {
      ck_fly_ok(status, error); /* a call that has done its work does not fail for what it could not free */
    }
    check_works(backward);
    fly_map_release(&map);
    fly_kernel_release(&fresh);
    if (!freeing) ck_assert_uint_le(counts().allocations, before + 1); /* the buffer's copy is kept */
    ck_assert_uint_eq(counts().modules, 0);
    simcuda_clear();
    if (!reached) break;
    ck_assert_uint_lt(n, 200);
  }
  s->t.call.map = NULL, s->t.call.kernel = s->kernel;
  ck_assert_int_gt(failures, 15);
  cuCtxSetCurrent(NULL);
}
END_TEST

START_TEST(any_host_allocation_may_fail) {
  bool backward = _i & 1, with_map = _i & 2;
  fly_error error;
  fly_map *map = with_map ? map_build(s->bound, &s->host.geometry, 128) : NULL;
  int failures = 0;
  check_works(backward); /* the compiler's own allocations are another matter */
  for (long n = 1;; n++) {
    s->t.call.map = map, s->t.call.threads = 1;
    flyi_fail_allocation(n);
    fly_status status = run(backward, &error);
    flyi_fail_allocation(0);
    if (!status) break;
    ck_assert_int_eq(status, FLY_ERROR_MEMORY);
    failures++;
  }
  check_result(backward);
  ck_assert_int_gt(failures, 0);
  s->t.call.map = NULL;
  fly_map_release(&map);
}
END_TEST

START_TEST(a_full_device_is_out_of_memory_and_usable_afterwards) {
  simcuda_config config, full;
  simcuda_get_config(&config);
  for (int backward = 0; backward < 2; backward++) {
    full = config;
    full.memory = counts().bytes + 300; /* room for the smallest copy, not for all */
    simcuda_set_config(&full);
    refuse(backward, FLY_ERROR_MEMORY, "out of memory");
    simcuda_set_config(&config);
    check_works(backward);
  }
}
END_TEST

START_TEST(a_kernel_that_fails_shows_when_the_stream_is_waited_for) {
  simcuda_config config, short_time;
  fly_error error;
  simcuda_get_config(&config);
  short_time = config;
  short_time.instructions = 10;
  simcuda_set_config(&short_time);
  ck_fly_ok(run(false, &error), error); /* launched, that is all */
  ck_assert_int_eq(fly_cuda_synchronize(s->cuda, NULL, &error), FLY_ERROR_DEVICE);
  ck_assert_msg(strstr(error.message, "the launch timed out") != NULL, "%s", error.message);
  simcuda_set_config(&config);
  simcuda_clear();
  check_works(false);
}
END_TEST

/* ---- copies on the device -------------------------------------------------------------------------------------- */

static fly_cuda_info info(void) {
  fly_cuda_info i;
  fly_cuda_get_info(s->cuda, &i);
  return i;
}

START_TEST(maps_and_buffers_are_copied_once_and_freed_with_their_objects) {
  fly_map *map = map_build(s->bound, &s->host.geometry, 128);
  s->t.call.map = map;
  check_works(false);
  ck_assert_int_eq(info().uploads, 3); /* geometry, the map by query, the buffer */
  ck_assert_uint_eq(counts().modules, 1);
  uint64_t allocations = counts().allocations;
  for (int i = 0; i < 3; i++) check_works(false);
  ck_assert_int_eq(info().uploads, 3);
  ck_assert_uint_eq(counts().allocations, allocations);
  for (int i = 0; i < 2; i++) check_works(true); /* the transpose as well */
  ck_assert_int_eq(info().uploads, 4);
  ck_assert_uint_eq(counts().modules, 2);
  ck_assert_uint_eq(counts().events, 0); /* known to be done */
  fly_map_release(&map);
  ck_assert_uint_eq(counts().allocations, allocations - 2);
  s->t.call.map = NULL;
  size_t resident = info().resident;
  ck_assert_uint_gt(resident, 0);
  check_works(false); /* without a map at hand: nothing stays */
  check_works(true);
  ck_assert_int_eq(info().uploads, 4);
  ck_assert_uint_eq(info().resident, resident);
  ck_assert_uint_eq(counts().allocations, allocations - 2);
  fly_kernel_release(&s->kernel);
  ck_assert_uint_eq(counts().modules, 0);
  fly_bound_release(&s->bound);
  ck_assert_uint_eq(info().resident, 0);
}
END_TEST

START_TEST(objects_outlive_a_handle_and_work_with_the_next) {
  fly_map *map = map_build(s->bound, &s->host.geometry, 128);
  for (int i = 0; i < 3; i++) {
    s->t.call.map = map;
    check_works(i & 1);
    cuda_call_free(&s->t);
    fly_cuda_release(&s->cuda);
    check_nothing_left(); /* though map, buffer and kernel live */
    s->cuda = cuda_open();
    cuda_call_init(&s->t, s->cuda, &s->host, s->kernel);
  }
  fly_map_release(&map);
}
END_TEST

START_TEST(output_rows_of_their_own_are_part_of_the_call) {
  static int32_t reversed[N];
  fly_map *map = map_build(s->bound, &s->host.geometry, 128);
  for (int i = 0; i < N; i++) reversed[i] = N - 1 - i;
  s->t.call.map = map;
  check_works(false);
  int64_t uploads = info().uploads;
  s->t.call.out_rows.rows = s->host.out_rows.rows = reversed;
  for (int i = 0; i < 2; i++) check_works(false);
  ck_assert_int_eq(info().uploads, uploads + 1);
  for (int i = 0; i < N; i++) reversed[i] = (i + 5) % N; /* the same pointer, other rows */
  check_works(false);
  ck_assert_int_eq(info().uploads, uploads + 2);
  s->host.out_rows.rows = NULL;
  fly_map_release(&map);
}
END_TEST

/* ---- streams ----------------------------------------------------------------------------------------------------- */

static void late_streams(void) {
  simcuda_config config;
  simcuda_get_config(&config);
  config.late_streams = 1;
  simcuda_set_config(&config);
}

START_TEST(a_call_waits_for_nothing) {
  CUstream stream;
  fly_error error;
  fly_map *map = _i & 2 ? map_build(s->bound, &s->host.geometry, 128) : NULL;
  push_primary();
  cuStreamCreate(&stream, 1);
  late_streams();
  s->t.call.map = map, s->t.call.stream = stream;
  spoil(_i & 1);
  uint64_t launches = counts().launches;
  ck_fly_ok(run(_i & 1, &error), error);
  ck_assert_uint_eq(counts().launches, launches); /* nothing has run: nobody has waited */
  check_result(_i & 1);
  ck_assert_uint_gt(counts().launches, launches);
  fly_map_release(&map);
  cuStreamDestroy_v2(stream);
  cuCtxSetCurrent(NULL);
}
END_TEST

START_TEST(a_second_stream_waits_for_copies_made_on_the_first) {
  CUstream first, second;
  fly_error error;
  fly_map *map = map_build(s->bound, &s->host.geometry, 128);
  push_primary();
  cuStreamCreate(&first, 1);
  cuStreamCreate(&second, 1);
  late_streams();
  s->t.call.map = map, s->t.call.stream = first;
  ck_fly_ok(run(false, &error), error); /* copies are on their way there, and nobody waits for them */
  s->t.call.stream = second;
  spoil(false);
  ck_fly_ok(run(false, &error), error);
  check_result(false);
  fly_map_release(&map);
  cuStreamDestroy_v2(first);
  cuStreamDestroy_v2(second);
  cuCtxSetCurrent(NULL);
}
END_TEST

/* ---- threads ----------------------------------------------------------------------------------------------------- */

typedef struct worker {
  cuda_call t;
  fly_attention host;
  uint16_t out[N * D];
  float lse[N];
  fly_status status;
  fly_error error;
} worker;

static void *work(void *argument) {
  worker *w = argument;
  for (int i = 0; i < 3 && !w->status; i++) w->status = fly_attention_forward(&w->t.call, &w->error);
  return NULL;
}

START_TEST(threads_share_kernel_map_and_handle) {
  enum { WORKERS = 4 };
  static worker workers[WORKERS];
  pthread_t threads[WORKERS];
  fly_map *map = map_build(s->bound, &s->host.geometry, 128);
  for (int i = 0; i < WORKERS; i++) {
    worker *w = &workers[i];
    w->host = s->host, w->host.map = map;
    w->host.out.data = w->out, w->host.lse.data = w->lse;
    w->host.d_out.data = w->host.d_q.data = w->host.d_k.data = w->host.d_v.data = NULL;
    cuda_call_init(&w->t, s->cuda, &w->host, s->kernel);
  }
  for (int i = 0; i < WORKERS; i++) ck_assert_int_eq(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
  for (int i = 0; i < WORKERS; i++) {
    pthread_join(threads[i], NULL);
    ck_fly_ok(workers[i].status, workers[i].error);
  }
  ck_assert_int_eq(info().uploads, 3);
  ck_assert_uint_eq(counts().modules, 1);
  for (int i = 0; i < WORKERS; i++) {
    cuda_call_fetch(&workers[i].t, false);
    oracle_check_units(&workers[i].host, sees, NULL, 0, "thread");
    cuda_call_free(&workers[i].t);
  }
  fly_map_release(&map);
}
END_TEST

static Suite *make_suite(void) {
  Suite *suite = suite_create("cuda_calls");
  TCase *refusals = tcase_create("refusals"), *failures = tcase_create("failures"), *copies = tcase_create("copies");
  TCase *all[] = {refusals, failures, copies};
  for (int i = 0; i < 3; i++) {
    tcase_add_checked_fixture(all[i], open_all, close_all);
    suite_add_tcase(suite, all[i]);
  }
  tcase_add_test(refusals, tensors_must_be_in_device_memory);
  tcase_add_test(refusals, a_kernel_for_a_device_needs_a_handle_and_one_for_the_cpu_has_none);
  tcase_add_test(refusals, a_stream_of_another_context_is_refused);
  tcase_add_test(refusals, a_kernel_for_a_newer_device_is_refused);
  tcase_add_test(refusals, code_that_the_driver_does_not_take_is_its_words);
  tcase_add_test(refusals, a_device_with_too_little_shared_memory_is_named);
  tcase_add_test(refusals, sinks_are_in_device_memory);
  tcase_add_test(refusals, a_mask_and_a_modifier_of_more_words_than_an_argument_holds_are_refused);
  tcase_add_test(refusals, a_workspace_is_checked_and_used);
  tcase_add_test(refusals, a_destroyed_context_is_an_error_and_objects_end_all_the_same);
  tcase_add_loop_test(failures, any_driver_call_may_fail, 0, 4);
  tcase_add_loop_test(failures, any_host_allocation_may_fail, 0, 4);
  tcase_add_test(failures, a_full_device_is_out_of_memory_and_usable_afterwards);
  tcase_add_test(failures, a_kernel_that_fails_shows_when_the_stream_is_waited_for);
  tcase_add_test(copies, maps_and_buffers_are_copied_once_and_freed_with_their_objects);
  tcase_add_test(copies, objects_outlive_a_handle_and_work_with_the_next);
  tcase_add_test(copies, output_rows_of_their_own_are_part_of_the_call);
  tcase_add_loop_test(copies, a_call_waits_for_nothing, 0, 4);
  tcase_add_test(copies, a_second_stream_waits_for_copies_made_on_the_first);
  tcase_add_test(copies, threads_share_kernel_map_and_handle);
  return suite;
}

FLY_TEST_MAIN(make_suite)
