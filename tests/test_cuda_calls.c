/* CUDA calls that are refused, and what calls leave behind; copies on the device, streams, threads: the runtime on the
 * simulated driver, which counts everything that is alive. Failures that are injected: test_cuda_failures.c. */
#include <pthread.h>

#include "cuda_setup.h"
#include "map_case.h"
#include "runtime/cuda.h"

enum { N = SETUP_N, D = SETUP_D };

static cuda_setup *s;

static void open_all(void) { s = cuda_setup_open(); }
static void close_all(void) { cuda_setup_close(s); }

/* ---- refusals ---------------------------------------------------------------------------------------------------- */

START_TEST(tensors_must_be_in_device_memory) {
  fly_attention good = s->t.call;
  s->t.call.q.data = s->q;
  cuda_setup_refuse(s, false, FLY_ERROR_ARGUMENT, "the first byte of q.data is not in device memory");
  s->t.call = good;
  s->t.call.lse.data = s->lse;
  cuda_setup_refuse(s, true, FLY_ERROR_ARGUMENT, "the first byte of lse.data is not in device memory");
  s->t.call = good;
  s->t.call.d_v.data = (char *)good.d_v.data + 64; /* its last row ends behind the allocation */
  cuda_setup_refuse(s, true, FLY_ERROR_ARGUMENT, "the last byte of d_v.data is not in device memory");
  s->t.call = good;
  void *gone;
  fly_error error;
  ck_fly_ok(fly_cuda_alloc(s->cuda, N * D * 2, &gone, &error), error);
  s->t.call.k.data = gone;
  fly_cuda_free(s->cuda, &gone);
  cuda_setup_refuse(s, false, FLY_ERROR_ARGUMENT, "the first byte of k.data is not in device memory");
  s->t.call = good;
  cuda_setup_check_works(s, false);
}
END_TEST

START_TEST(a_kernel_for_a_device_needs_a_handle_and_one_for_the_cpu_has_none) {
  fly_kernel_desc desc = {FLY_INIT(fly_kernel_desc), .type = FLY_BF16, .head_dim = D};
  fly_error error;
  fly_kernel *cpu;
  s->t.call.cuda = NULL;
  cuda_setup_refuse(s, false, FLY_ERROR_ARGUMENT, "cuda is NULL: the kernel is for sm_80");
  cuda_setup_refuse(s, true, FLY_ERROR_ARGUMENT, "cuda is NULL: the kernel is for sm_80");
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
  cuda_setup_refuse(s, false, FLY_ERROR_DEVICE, "stream cannot be used in the fly_cuda's context");
  cuda_setup_refuse(s, true, FLY_ERROR_DEVICE, "stream cannot be used in the fly_cuda's context");
  cuStreamDestroy_v2(stream);
  cuda_setup_refuse(s, false, FLY_ERROR_DEVICE, "stream"); /* one that is no more */
  cuCtxDestroy_v2(other);
  s->t.call.stream = NULL;
  cuda_setup_check_works(s, false);
}
END_TEST

START_TEST(a_kernel_for_a_newer_device_is_refused) {
  fly_error error;
  fly_kernel *newer = cuda_setup_kernel(s, "sm_90");
  s->t.call.kernel = newer;
  fly_status status = cuda_setup_run(s, false, &error);
  ck_assert(status == FLY_ERROR_UNSUPPORTED || status == FLY_ERROR_IMAGE);
  ck_assert_msg(strstr(error.message, "sm_90") && strstr(error.message, "sm_80"), "%s", error.message);
  s->t.call.kernel = s->kernel;
  fly_kernel_release(&newer);
  cuda_setup_check_works(s, false);
}
END_TEST

START_TEST(code_that_the_driver_does_not_take_is_its_words) {
  const flyi_cuda_code *code;
  fly_error error;
  fly_kernel *broken = cuda_setup_kernel(s, "sm_80");
  ck_fly_ok(flyi_kernel_cuda(broken, FLYI_DIRECTION_FORWARD, "sm_80", &code, &error), error);
  char *text = strstr((char *)(uintptr_t)code->ptx.data, ".version");
  ck_assert_ptr_nonnull(text);
  memcpy(text, ".nothing", 8);
  s->t.call.kernel = broken;
  cuda_setup_refuse(s, false, FLY_ERROR_DEVICE, "a PTX JIT compilation failed");
  cuda_setup_refuse(s, false, FLY_ERROR_DEVICE, "nothing"); /* from the assembler's log */
  s->t.call.kernel = s->kernel;
  fly_kernel_release(&broken);
  cuda_setup_check_works(s, false);
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
  cuda_setup_refuse(s, false, FLY_ERROR_UNSUPPORTED, "8192 bytes of shared memory");
  simcuda_set_config(&config);
}
END_TEST

START_TEST(sinks_are_in_device_memory) {
  s->t.call.sink = fly_tensor_dense(s->lse, FLY_F32, 1, 1, 1, 1);
  cuda_setup_refuse(s, false, FLY_ERROR_ARGUMENT, "sink.data is not in device memory");
  cuda_setup_refuse(s, true, FLY_ERROR_ARGUMENT, "sink.data is not in device memory");
  s->t.call.sink.data = NULL;
  cuda_setup_check_works(s, false);
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
  cuda_setup_refuse(s, true, FLY_ERROR_ARGUMENT, "workspace.data is not in device memory");
  s->t.call.workspace = memory, s->t.call.workspace_size = bytes - 1;
  cuda_setup_refuse(s, true, FLY_ERROR_ARGUMENT, "workspace_size is");
  s->t.call.workspace_size = bytes;
  cuda_setup_check_works(s, true);
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
  cuda_setup_check_works(s, false);
  cuCtxDestroy_v2(own);
  cuda_setup_refuse(s, false, FLY_ERROR_DEVICE, "was it destroyed?");
  fly_map_release(&map);
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
  cuda_setup_check_works(s, false);
  ck_assert_int_eq(info().uploads, 3); /* geometry, the map by query, the buffer */
  ck_assert_uint_eq(cuda_setup_counts().modules, 1);
  uint64_t allocations = cuda_setup_counts().allocations;
  for (int i = 0; i < 3; i++) cuda_setup_check_works(s, false);
  ck_assert_int_eq(info().uploads, 3);
  ck_assert_uint_eq(cuda_setup_counts().allocations, allocations);
  for (int i = 0; i < 2; i++) cuda_setup_check_works(s, true); /* the transpose as well */
  ck_assert_int_eq(info().uploads, 4);
  ck_assert_uint_eq(cuda_setup_counts().modules, 2);
  ck_assert_uint_eq(cuda_setup_counts().events, 0); /* known to be done */
  fly_map_release(&map);
  ck_assert_uint_eq(cuda_setup_counts().allocations, allocations - 2);
  s->t.call.map = NULL;
  size_t resident = info().resident;
  ck_assert_uint_gt(resident, 0);
  cuda_setup_check_works(s, false); /* without a map at hand: nothing stays */
  cuda_setup_check_works(s, true);
  ck_assert_int_eq(info().uploads, 4);
  ck_assert_uint_eq(info().resident, resident);
  ck_assert_uint_eq(cuda_setup_counts().allocations, allocations - 2);
  fly_kernel_release(&s->kernel);
  ck_assert_uint_eq(cuda_setup_counts().modules, 0);
  fly_bound_release(&s->bound);
  ck_assert_uint_eq(info().resident, 0);
}
END_TEST

START_TEST(objects_outlive_a_handle_and_work_with_the_next) {
  fly_map *map = map_build(s->bound, &s->host.geometry, 128);
  for (int i = 0; i < 3; i++) {
    s->t.call.map = map;
    cuda_setup_check_works(s, i & 1);
    cuda_call_free(&s->t);
    fly_cuda_release(&s->cuda);
    cuda_setup_check_nothing_left(); /* though map, buffer and kernel live */
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
  cuda_setup_check_works(s, false);
  int64_t uploads = info().uploads;
  s->t.call.out_rows.rows = s->host.out_rows.rows = reversed;
  for (int i = 0; i < 2; i++) cuda_setup_check_works(s, false);
  ck_assert_int_eq(info().uploads, uploads + 1);
  for (int i = 0; i < N; i++) reversed[i] = (i + 5) % N; /* the same pointer, other rows */
  cuda_setup_check_works(s, false);
  ck_assert_int_eq(info().uploads, uploads + 2);
  s->host.out_rows.rows = NULL;
  fly_map_release(&map);
}
END_TEST

/* Of one head later queries see more keys, of the other earlier ones. */
START_TEST(rows_with_the_most_tiles_start_first) {
  enum { ROWS = 9, TILE = 64, HEADS = 2 };
  static const fly_order orders[] = {FLY_BY_QUERY, FLY_BY_KEY};
  fly_geometry g = map_square(1, HEADS, ROWS * TILE);
  fly_bound *bound = map_bind("bool mask(int b, int h, int q, int kv) { return h ? kv >= q : kv <= q; }", NULL, 0);
  fly_map *map = map_build(bound, &g, TILE);
  flyi_cuda_launch l = {.cuda = s->cuda, .map = map};
  fly_error error;
  bool pushed;
  ck_fly_ok(fly_map_transpose(map, &error), error);
  ck_fly_ok(flyi_cuda_enter(s->cuda, &pushed, &error), error);
  for (int k = 0; k < 2; k++) {
    flyi_cuda_map there;
    int32_t rows[HEADS][ROWS];
    ck_fly_ok(flyi_cuda_put_map(&l, orders[k], TILE, TILE, &there, &error), error);
    ck_fly_ok(fly_cuda_read(s->cuda, rows, (void *)(uintptr_t)there.order, sizeof rows, NULL, &error), error);
    for (int h = 0; h < HEADS; h++)
      for (int i = 0; i < ROWS; i++) ck_assert_int_eq(rows[h][i], h == k ? ROWS - 1 - i : i);
  }
  flyi_cuda_leave(s->cuda, pushed);
  fly_map_release(&map);
  fly_bound_release(&bound);
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
  cuda_setup_push_primary();
  cuStreamCreate(&stream, 1);
  late_streams();
  s->t.call.map = map, s->t.call.stream = stream;
  cuda_setup_spoil(s, _i & 1);
  uint64_t launches = cuda_setup_counts().launches;
  ck_fly_ok(cuda_setup_run(s, _i & 1, &error), error);
  ck_assert_uint_eq(cuda_setup_counts().launches, launches); /* nothing has run: nobody has waited */
  cuda_setup_check_result(s, _i & 1);
  ck_assert_uint_gt(cuda_setup_counts().launches, launches);
  fly_map_release(&map);
  cuStreamDestroy_v2(stream);
  cuCtxSetCurrent(NULL);
}
END_TEST

START_TEST(a_second_stream_waits_for_copies_made_on_the_first) {
  CUstream first, second;
  fly_error error;
  fly_map *map = map_build(s->bound, &s->host.geometry, 128);
  cuda_setup_push_primary();
  cuStreamCreate(&first, 1);
  cuStreamCreate(&second, 1);
  late_streams();
  s->t.call.map = map, s->t.call.stream = first;
  ck_fly_ok(cuda_setup_run(s, false, &error), error); /* copies are on their way there, and nobody waits for them */
  s->t.call.stream = second;
  cuda_setup_spoil(s, false);
  ck_fly_ok(cuda_setup_run(s, false, &error), error);
  cuda_setup_check_result(s, false);
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
  ck_assert_uint_eq(cuda_setup_counts().modules, 1);
  for (int i = 0; i < WORKERS; i++) {
    cuda_call_fetch(&workers[i].t, false);
    oracle_check_units(&workers[i].host, cuda_setup_sees, s, 0, "thread");
    cuda_call_free(&workers[i].t);
  }
  fly_map_release(&map);
}
END_TEST

static Suite *make_suite(void) {
  Suite *suite = suite_create("cuda_calls");
  TCase *refusals = tcase_create("refusals"), *copies = tcase_create("copies");
  TCase *all[] = {refusals, copies};
  for (int i = 0; i < 2; i++) {
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
  tcase_add_test(copies, maps_and_buffers_are_copied_once_and_freed_with_their_objects);
  tcase_add_test(copies, objects_outlive_a_handle_and_work_with_the_next);
  tcase_add_test(copies, output_rows_of_their_own_are_part_of_the_call);
  tcase_add_test(copies, rows_with_the_most_tiles_start_first);
  tcase_add_loop_test(copies, a_call_waits_for_nothing, 0, 4);
  tcase_add_test(copies, a_second_stream_waits_for_copies_made_on_the_first);
  tcase_add_test(copies, threads_share_kernel_map_and_handle);
  return suite;
}

FLY_TEST_MAIN(make_suite)
