/* test_api.c: the driver's calls as a runtime uses them: contexts, modules, streams and events in order and late,
 * copies from pageable and pinned memory, resources of a launch, misuse, injected failures, leaks. */
#include <pthread.h>
#include <stdio.h>

#include "gpu.h"

/* add: every element of p plus x */
static const char add_ptx[] =
    ".version 8.3\n.target sm_80\n.address_size 64\n.global .align 4 .b32 counter[2] = {5, 6};\n"
    ".visible .entry add(.param .u64 p, .param .u32 x) .maxntid 256, 1, 1 { .reg .b64 %g; .reg .b32 %t, %x, %v; "
    "ld.param.u64 %g, [p]; ld.param.u32 %x, [x]; mov.u32 %t, %tid.x; mad.wide.u32 %g, %t, 4, %g;\n"
    "ld.global.u32 %v, [%g]; add.u32 %v, %v, %x; st.global.u32 [%g], %v; ret; }\n"
    ".visible .entry bad(.param .u64 p) { .reg .b64 %g; ld.param.u64 %g, [p]; st.global.u32 [%g+4096], 1; ret; }\n"
    ".extern .shared .b8 dyn[];\n.visible .entry shared() { st.shared.u32 [dyn], 1; ret; }\n";

static CUmodule module;
static CUfunction add;
static void start(void) {
  gpu_start();
  ck_cu(cuModuleLoadData(&module, add_ptx));
  ck_cu(cuModuleGetFunction(&add, module, "add"));
}
static void stop(void) {
  simcuda_clear();
  ck_cu(cuModuleUnload(module));
  gpu_stop();
}
static void late(void) {
  simcuda_config config;
  simcuda_get_config(&config);
  config.late_streams = 1;
  simcuda_set_config(&config);
}
static void launch_add(CUdeviceptr p, uint32_t x, CUstream stream) {
  void *params[] = {&p, &x};
  ck_cu(cuLaunchKernel(add, 1, 1, 1, 4, 1, 1, 0, stream, params, NULL));
}

START_TEST(the_device_is_what_the_configuration_says) {
  int major, minor, sms, shared, version, count;
  char name[40];
  size_t bytes;
  simcuda_config config;
  simcuda_get_config(&config);
  config.arch = 86;
  config.sms = 7;
  config.shared_block = 99 << 10;
  simcuda_set_config(&config);
  ck_cu(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0));
  ck_cu(cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0));
  ck_cu(cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
  ck_cu(cuDeviceGetAttribute(&shared, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 0));
  ck_cu(cuDeviceGetName(name, sizeof name, 0));
  ck_cu(cuDeviceTotalMem_v2(&bytes, 0));
  ck_cu(cuDriverGetVersion(&version));
  ck_cu(cuDeviceGetCount(&count));
  ck_assert_int_eq(major * 10 + minor, 86);
  ck_assert_int_eq(sms, 7);
  ck_assert_int_eq(shared, 99 << 10);
  ck_assert_str_eq(name, "simulated sm_86");
  ck_assert_int_eq(count, 1);
  ck_assert_int_eq(cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 1), CUDA_ERROR_INVALID_DEVICE);
}
END_TEST

START_TEST(names_lead_to_functions) {
  CUresult (*get_version)(int *) = NULL;
  void *f = NULL;
  int status = 9, version = 0;
  ck_cu(cuGetProcAddress_v2("cuDriverGetVersion", &f, 12000, 0, &status));
  memcpy(&get_version, &f, sizeof f);
  ck_cu(get_version(&version));
  ck_assert_int_gt(version, 12000);
  ck_assert_int_eq(cuGetProcAddress_v2("cuNothing", &f, 12000, 0, &status), CUDA_ERROR_NOT_FOUND);
  const char *text;
  ck_cu(cuGetErrorName(CUDA_ERROR_ILLEGAL_ADDRESS, &text));
  ck_assert_str_eq(text, "CUDA_ERROR_ILLEGAL_ADDRESS");
}
END_TEST

START_TEST(a_kernel_runs_with_params_or_a_buffer_of_them) {
  uint32_t data[4] = {1, 2, 3, 4}, r[4];
  CUdeviceptr p = gpu_new(data, sizeof data);
  launch_add(p, 10, NULL);
  struct {
    CUdeviceptr p;
    uint32_t x;
  } packed = {p, 100};
  size_t bytes = sizeof packed;
  void *extra[] = {(void *)1, &packed, (void *)2, &bytes, NULL};
  ck_cu(cuLaunchKernel(add, 1, 1, 1, 4, 1, 1, 0, NULL, NULL, extra));
  gpu_read(r, p, sizeof r);
  for (uint32_t i = 0; i < 4; i++) ck_assert_uint_eq(r[i], i + 111);
  gpu_free(p);
}
END_TEST

START_TEST(variables_of_a_module_have_their_values) {
  CUdeviceptr p;
  size_t bytes;
  uint32_t v[2];
  ck_cu(cuModuleGetGlobal_v2(&p, &bytes, module, "counter"));
  ck_assert_uint_eq(bytes, 8);
  gpu_read(v, p, 8);
  ck_assert_uint_eq(v[0] * 10 + v[1], 56);
  ck_assert_int_eq(cuModuleGetGlobal_v2(&p, &bytes, module, "nothing"), CUDA_ERROR_NOT_FOUND);
}
END_TEST

/* --- streams: _i 0 at once, 1 late --------------------------------------------------------------- */
START_TEST(a_stream_keeps_its_order) {
  uint32_t zero[4] = {0}, r[4];
  CUstream s;
  if (_i) late();
  ck_cu(cuStreamCreate(&s, 1));
  CUdeviceptr p = gpu_new(NULL, 16), q = gpu_new(NULL, 16);
  ck_cu(cuMemcpyHtoDAsync_v2(p, zero, 16, s));
  zero[0] = 99; /* pageable memory has been read */
  launch_add(p, 5, s);
  ck_cu(cuMemcpyDtoDAsync_v2(q, p, 16, s));
  ck_cu(cuMemsetD32Async(p, 77, 2, s));
  ck_cu(cuMemcpyDtoHAsync_v2(r, q, 16, s)); /* to pageable memory: done on return */
  for (int i = 0; i < 4; i++) ck_assert_uint_eq(r[i], 5);
  ck_cu(cuStreamSynchronize(s));
  gpu_read(r, p, 16);
  ck_assert_uint_eq(r[1], 77);
  ck_assert_uint_eq(r[2], 5);
  ck_cu(cuStreamDestroy_v2(s));
  gpu_free(p);
  gpu_free(q);
}
END_TEST

START_TEST(events_order_streams_and_their_absence_shows) {
  uint32_t zero[4] = {0}, r[4];
  CUstream a, b;
  CUevent e;
  late();
  ck_cu(cuStreamCreate(&a, 1));
  ck_cu(cuStreamCreate(&b, 1));
  ck_cu(cuEventCreate(&e, 2));
  CUdeviceptr p = gpu_new(zero, 16);
  launch_add(p, 1, a);
  if (_i) {
    ck_cu(cuEventRecord(e, a));
    ck_cu(cuStreamWaitEvent(b, e, 0));
    ck_assert_int_eq(cuEventQuery(e), CUDA_ERROR_NOT_READY);
  }
  ck_cu(cuMemcpyDtoHAsync_v2(r, p, 16, b));
  ck_assert_uint_eq(r[0], _i ? 1 : 0); /* without the event: what was there before */
  ck_cu(cuCtxSynchronize());
  gpu_read(r, p, 16);
  ck_assert_uint_eq(r[0], 1);
  ck_cu(cuEventDestroy_v2(e));
  ck_cu(cuStreamDestroy_v2(a));
  ck_cu(cuStreamDestroy_v2(b));
  gpu_free(p);
}
END_TEST

START_TEST(the_default_stream_waits_for_blocking_streams_only) { /* _i: 1 non-blocking */
  uint32_t zero[4] = {0}, r[4];
  CUstream s;
  late();
  ck_cu(cuStreamCreate(&s, (unsigned)_i));
  CUdeviceptr p = gpu_new(zero, 16);
  launch_add(p, 1, s);
  gpu_read(r, p, 16);
  ck_assert_uint_eq(r[0], _i ? 0 : 1);
  ck_cu(cuStreamDestroy_v2(s));
  gpu_free(p);
}
END_TEST

START_TEST(pinned_memory_is_read_when_the_stream_gets_there) {
  uint32_t *pinned, r[4];
  CUstream s;
  unsigned type;
  late();
  ck_cu(cuStreamCreate(&s, 1));
  ck_cu(cuMemHostAlloc((void **)&pinned, 16, 0));
  ck_cu(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)pinned));
  ck_assert_uint_eq(type, CU_MEMORYTYPE_HOST);
  CUdeviceptr p = gpu_new(NULL, 16);
  pinned[0] = 1;
  ck_cu(cuMemcpyHtoDAsync_v2(p, pinned, 16, s));
  pinned[0] = 2; /* a mistake, and it shows */
  ck_cu(cuStreamSynchronize(s));
  gpu_read(r, p, 16);
  ck_assert_uint_eq(r[0], 2);
  ck_cu(cuMemFreeHost(pinned));
  ck_cu(cuStreamDestroy_v2(s));
  gpu_free(p);
}
END_TEST

START_TEST(events_measure_time) {
  CUevent a, b;
  float ms = -1;
  ck_cu(cuEventCreate(&a, 0));
  ck_cu(cuEventCreate(&b, 0));
  ck_assert_int_eq(cuEventElapsedTime_v2(&ms, a, b), CUDA_ERROR_INVALID_HANDLE);
  ck_cu(cuEventRecord(a, NULL));
  ck_cu(cuEventRecord(b, NULL));
  ck_cu(cuEventSynchronize(b));
  ck_cu(cuEventElapsedTime_v2(&ms, a, b));
  ck_assert_float_ge(ms, 0);
  ck_cu(cuEventDestroy_v2(a));
  ck_cu(cuEventDestroy_v2(b));
}
END_TEST

/* --- limits and misuse --------------------------------------------------------------------------- */
START_TEST(launches_beyond_the_device_are_refused) {
  CUdeviceptr p = gpu_new(NULL, 4096);
  CUfunction f;
  uint32_t x = 1;
  void *params[] = {&p, &x};
  ck_assert_int_eq(cuLaunchKernel(add, 1, 1, 1, 257, 1, 1, 0, NULL, params, NULL), CUDA_ERROR_INVALID_VALUE);
  ck_assert_int_eq(cuLaunchKernel(add, 0, 1, 1, 32, 1, 1, 0, NULL, params, NULL), CUDA_ERROR_INVALID_VALUE);
  ck_assert_int_eq(cuLaunchKernel(add, 1, 65536, 1, 32, 1, 1, 0, NULL, params, NULL), CUDA_ERROR_INVALID_VALUE);
  ck_assert_int_eq(cuLaunchKernel(add, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
  ck_cu(cuModuleGetFunction(&f, module, "shared"));
  ck_cu(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 48 << 10, NULL, NULL, NULL));
  ck_assert_int_eq(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, (48 << 10) + 4, NULL, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
  ck_assert_int_eq(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 164 << 10),
                   CUDA_ERROR_INVALID_VALUE);
  ck_cu(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 163 << 10));
  ck_cu(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 163 << 10, NULL, NULL, NULL));
  ck_cu(cuCtxSynchronize());
  int blocks;
  ck_cu(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, 128, 80 << 10));
  ck_assert_int_eq(blocks, 2); /* of 164 KiB, 1 KiB a block is the system's */
  gpu_free(p);
}
END_TEST

START_TEST(a_fault_breaks_the_context_until_it_is_cleared) {
  CUdeviceptr p = gpu_new(NULL, 64);
  CUfunction f;
  void *params[] = {&p};
  ck_cu(cuModuleGetFunction(&f, module, "bad"));
  ck_cu(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL)); /* asynchronous: the call itself is well */
  ck_assert_int_eq(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
  ck_assert_int_eq(cuMemcpyDtoH_v2(&p, p, 4), CUDA_ERROR_ILLEGAL_ADDRESS);
  simcuda_clear();
  gpu_free(p);
}
END_TEST

START_TEST(stale_handles_and_wrong_pointers_are_errors) {
  CUmodule m;
  CUfunction f;
  CUstream s;
  CUevent e;
  char host[64];
  ck_cu(cuModuleLoadData(&m, add_ptx));
  ck_cu(cuModuleGetFunction(&f, m, "add"));
  ck_assert_int_eq(cuModuleGetFunction(&f, m, "absent"), CUDA_ERROR_NOT_FOUND);
  ck_cu(cuModuleGetFunction(&f, m, "add"));
  ck_cu(cuModuleUnload(m));
  ck_assert_int_eq(cuModuleUnload(m), CUDA_ERROR_INVALID_HANDLE);
  ck_assert_int_eq(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), CUDA_ERROR_INVALID_HANDLE);
  ck_cu(cuStreamCreate(&s, 0));
  ck_cu(cuStreamDestroy_v2(s));
  ck_assert_int_eq(cuStreamSynchronize(s), CUDA_ERROR_INVALID_HANDLE);
  ck_cu(cuEventCreate(&e, 0));
  ck_cu(cuEventDestroy_v2(e));
  ck_assert_int_eq(cuEventRecord(e, NULL), CUDA_ERROR_INVALID_HANDLE);
  CUdeviceptr p = gpu_new(NULL, 64);
  ck_assert_int_eq(cuMemcpyDtoH_v2(host, p + 32, 33), CUDA_ERROR_INVALID_VALUE);
  ck_assert_int_eq(cuMemcpyHtoD_v2(p - 1, host, 2), CUDA_ERROR_INVALID_VALUE);
  ck_assert_int_eq(cuMemsetD32_v2(p + 2, 0, 1), CUDA_ERROR_INVALID_VALUE);
  ck_assert_int_eq(cuMemFree_v2(p + 8), CUDA_ERROR_INVALID_VALUE);
  gpu_free(p);
  ck_assert_int_eq(cuMemFree_v2(p), CUDA_ERROR_INVALID_VALUE);
  unsigned type;
  ck_assert_int_eq(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p), CUDA_ERROR_INVALID_VALUE);
  ck_assert_int_eq(cuModuleLoadData(&m, ".version 8.3\n.target sm_80\n.visible .entry x() { add.u32 %r1, %r2"),
                   CUDA_ERROR_INVALID_PTX);
  ck_assert_int_eq(cuModuleLoadData(&m, ".version 8.3\n.target sm_90\n"), CUDA_ERROR_NO_BINARY_FOR_GPU);
  ck_assert_int_eq(cuModuleLoadData(&m, "\x7f"
                                        "ELF"),
                   CUDA_ERROR_NO_BINARY_FOR_GPU);
}
END_TEST

START_TEST(contexts_are_kept_apart) {
  CUcontext first, second, popped;
  CUstream s;
  ck_cu(cuCtxGetCurrent(&first));
  ck_cu(cuCtxCreate_v4(&second, NULL, 0, 0));
  ck_cu(cuStreamCreate(&s, 0));
  ck_cu(cuCtxPopCurrent_v2(&popped));
  ck_assert_ptr_eq(popped, second);
  ck_cu(cuCtxGetCurrent(&popped));
  ck_assert_ptr_eq(popped, first);
  ck_assert_int_eq(cuStreamSynchronize(s), CUDA_ERROR_INVALID_HANDLE); /* of the other context */
  ck_cu(cuCtxDestroy_v2(second));
  ck_assert_int_eq(cuCtxPushCurrent_v2(second), CUDA_ERROR_INVALID_CONTEXT);
  ck_cu(cuCtxSetCurrent(NULL));
  CUdeviceptr p;
  ck_assert_int_eq(cuMemAlloc_v2(&p, 4), CUDA_ERROR_INVALID_CONTEXT);
  ck_cu(cuCtxSetCurrent(first));
}
END_TEST

START_TEST(memory_runs_out_where_the_device_ends) {
  simcuda_config config;
  simcuda_get_config(&config);
  config.memory = 1 << 20;
  simcuda_set_config(&config);
  CUdeviceptr p, q;
  ck_cu(cuMemAlloc_v2(&p, 1 << 19));
  ck_assert_int_eq(cuMemAlloc_v2(&q, (1 << 19) + 1), CUDA_ERROR_OUT_OF_MEMORY);
  ck_cu(cuMemAlloc_v2(&q, 1 << 19));
  gpu_free(p);
  gpu_free(q);
}
END_TEST

static CUresult whole_use(void) {
  CUmodule m = NULL;
  CUfunction f;
  CUdeviceptr p = 0;
  uint32_t x = 1, data[4] = {0};
  void *params[] = {&p, &x};
  CUresult r = cuModuleLoadData(&m, add_ptx);
  if (!r) r = cuModuleGetFunction(&f, m, "add");
  if (!r) r = cuMemAlloc_v2(&p, 16);
  if (!r) r = cuMemcpyHtoD_v2(p, data, 16);
  if (!r) r = cuLaunchKernel(f, 1, 1, 1, 4, 1, 1, 0, NULL, params, NULL);
  if (!r) r = cuMemcpyDtoH_v2(data, p, 16);
  CUresult clean = CUDA_SUCCESS;
  if (p) clean = cuMemFree_v2(p);
  if (p && clean) cuMemFree_v2(p); /* the injected failure was here: again */
  if (m && cuModuleUnload(m)) cuModuleUnload(m);
  return r ? r : clean;
}

START_TEST(a_device_without_memory_pools_allocates_in_no_stream) {
  simcuda_config config;
  CUdeviceptr p;
  int pools;
  simcuda_get_config(&config);
  for (int there = 0; there < 2; there++) {
    config.no_pools = !there;
    simcuda_set_config(&config);
    ck_cu(cuDeviceGetAttribute(&pools, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 0));
    ck_assert_int_eq(pools, there);
    ck_assert_int_eq(cuMemAllocAsync(&p, 16, NULL), there ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED);
  }
  gpu_free(p);
}
END_TEST

START_TEST(each_call_can_be_made_to_fail_and_leaks_are_counted) {
  simcuda_counts before, after;
  simcuda_fail_call(0, 0);
  ck_cu(whole_use());
  uint64_t calls = simcuda_calls();
  ck_assert_uint_eq(calls, 8);
  simcuda_get_counts(&before);
  for (uint64_t n = 1; n < calls; n++) {
    simcuda_fail_call(n, CUDA_ERROR_UNKNOWN);
    ck_assert_int_eq(whole_use(), CUDA_ERROR_UNKNOWN);
  }
  simcuda_fail_call(0, 0);
  simcuda_get_counts(&after);
  ck_assert_uint_eq(after.modules, before.modules);
  ck_assert_uint_eq(after.allocations, before.allocations);
  CUdeviceptr p = gpu_new(NULL, 100);
  simcuda_get_counts(&after);
  ck_assert_uint_eq(after.allocations, before.allocations + 1);
  ck_assert_uint_eq(after.bytes, before.bytes + 100);
  gpu_free(p);
}
END_TEST

static void *use_in_thread(void *context) {
  if (cuCtxSetCurrent(context)) return "no context";
  for (int i = 0; i < 20; i++)
    if (whole_use()) return "failed";
  return NULL;
}
START_TEST(threads_may_call_at_once) {
  pthread_t threads[4];
  CUcontext context;
  ck_cu(cuCtxGetCurrent(&context));
  for (int i = 0; i < 4; i++) ck_assert_int_eq(pthread_create(&threads[i], NULL, use_in_thread, context), 0);
  for (int i = 0; i < 4; i++) {
    void *failed;
    pthread_join(threads[i], &failed);
    ck_assert_ptr_null(failed);
  }
}
END_TEST

static Suite *suite(void) {
  Suite *s = suite_create("simcuda.api");
  TCase *c = tcase_create("api");
  tcase_add_checked_fixture(c, start, stop);
  tcase_add_test(c, the_device_is_what_the_configuration_says);
  tcase_add_test(c, names_lead_to_functions);
  tcase_add_test(c, a_kernel_runs_with_params_or_a_buffer_of_them);
  tcase_add_test(c, variables_of_a_module_have_their_values);
  tcase_add_loop_test(c, a_stream_keeps_its_order, 0, 2);
  tcase_add_loop_test(c, events_order_streams_and_their_absence_shows, 0, 2);
  tcase_add_loop_test(c, the_default_stream_waits_for_blocking_streams_only, 0, 2);
  tcase_add_test(c, pinned_memory_is_read_when_the_stream_gets_there);
  tcase_add_test(c, events_measure_time);
  tcase_add_test(c, launches_beyond_the_device_are_refused);
  tcase_add_test(c, a_fault_breaks_the_context_until_it_is_cleared);
  tcase_add_test(c, stale_handles_and_wrong_pointers_are_errors);
  tcase_add_test(c, contexts_are_kept_apart);
  tcase_add_test(c, memory_runs_out_where_the_device_ends);
  tcase_add_test(c, a_device_without_memory_pools_allocates_in_no_stream);
  tcase_add_test(c, each_call_can_be_made_to_fail_and_leaks_are_counted);
  tcase_add_test(c, threads_may_call_at_once);
  suite_add_tcase(s, c);
  return s;
}
GPU_TEST_MAIN(suite)
