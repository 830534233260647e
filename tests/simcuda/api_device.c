/* api_device.c: start-up, device queries, contexts, error names, and the control calls. */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "state.h"

driver_state sim;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
enum { STACK = 32 };
static _Thread_local CUcontext stack[STACK];
static _Thread_local int depth;

/* --- set-up and calls ---------------------------------------------------------------------------- */
static uint64_t env_number(const char *name, uint64_t fallback) {
  const char *text = getenv(name);
  return text && *text ? strtoull(text, NULL, 0) : fallback;
}

static uint32_t shared_optin(int arch) {
  return arch == 80 || arch == 87 ? 163 << 10 : arch >= 90 ? 227 << 10 : 99 << 10;
}

static void set_up(void) {
  simcuda_config *c = &sim.config;
  const char *copies = getenv("SIMCUDA_COPIES"), *streams = getenv("SIMCUDA_STREAMS"), *fail = getenv("SIMCUDA_FAIL"),
             *ptxas = getenv("SIMCUDA_PTXAS");
  c->arch = (int)env_number("SIMCUDA_ARCH", 80);
  c->sms = (int)env_number("SIMCUDA_SMS", c->arch == 90 ? 132 : c->arch == 86 ? 84 : 108);
  c->shared_block = (uint32_t)env_number("SIMCUDA_SHARED", shared_optin(c->arch));
  c->memory = env_number("SIMCUDA_MEMORY", UINT64_C(16) << 30);
  c->threads = (int)env_number("SIMCUDA_THREADS", 0);
  c->instructions = env_number("SIMCUDA_INSTRUCTIONS", 500000000);
  c->copies = !copies || !strcmp(copies, "late") ? SIMCUDA_LATE
              : !strcmp(copies, "eager")         ? SIMCUDA_EAGER
                                                 : SIMCUDA_RANDOM;
  if (copies && !strncmp(copies, "random:", 7)) c->seed = strtoull(copies + 7, NULL, 0);
  c->late_streams = streams && !strcmp(streams, "late");
  if (fail) {
    char *end;
    sim.fail_at = strtoull(fail, &end, 0);
    sim.fail_with = *end == ':' ? atoi(end + 1) : CUDA_ERROR_UNKNOWN;
  }
  if (ptxas && *ptxas && strcmp(ptxas, "0") != 0) sim.ptxas = !strcmp(ptxas, "1") ? "ptxas" : ptxas;
  c->no_pools = env_number("SIMCUDA_POOLS", 1) == 0;
  sim.devices = env_number("SIMCUDA_DEVICES", 1) != 0;
  sim.ready = true;
}

static void hold(void) {
  pthread_mutex_lock(&lock);
  if (!sim.ready) set_up();
}

CUcontext current_context(void) { return depth ? stack[depth - 1] : NULL; }

CUresult api_enter(int need, const char *name) {
  CUresult result = CUDA_SUCCESS;
  hold();
  sim.calls++;
  if (sim.fail_at && sim.calls == sim.fail_at) {
    result = (CUresult)sim.fail_with;
    sim.fail_at = 0;
    snprintf(sim.report, sizeof sim.report, "injected failure of driver call %llu, %s", (unsigned long long)sim.calls,
             name);
  } else if (need >= NEED_INIT && !sim.inited) {
    result = CUDA_ERROR_NOT_INITIALIZED;
  } else if (need >= NEED_CONTEXT) {
    CUcontext c = current_context();
    result = !c ? CUDA_ERROR_INVALID_CONTEXT : !context_valid(c) ? CUDA_ERROR_CONTEXT_IS_DESTROYED : c->sticky;
  }
  if (result) pthread_mutex_unlock(&lock);
  return result;
}

CUresult api_leave(CUresult result) {
  pthread_mutex_unlock(&lock);
  return result;
}

CUresult bad(CUresult code, const char *format, ...) {
  va_list list;
  va_start(list, format);
  vsnprintf(sim.report, sizeof sim.report, format, list);
  va_end(list);
  return code;
}

API CUresult cuInit(unsigned flags) {
  ENTER(NEED_NOTHING);
  if (flags) LEAVE(CUDA_ERROR_INVALID_VALUE);
  if (!sim.devices) LEAVE(CUDA_ERROR_NO_DEVICE);
  sim.inited = true;
  LEAVE(CUDA_SUCCESS);
}
API CUresult cuDriverGetVersion(int *version) {
  ENTER(NEED_NOTHING);
  if (version) *version = 13000;
  LEAVE(version ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

/* --- devices ------------------------------------------------------------------------------------- */
API CUresult cuDeviceGetCount(int *count) {
  ENTER(NEED_INIT);
  if (count) *count = sim.devices;
  LEAVE(count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}
API CUresult cuDeviceGet(CUdevice *device, int ordinal) {
  ENTER(NEED_INIT);
  if (!device) LEAVE(CUDA_ERROR_INVALID_VALUE);
  if (ordinal < 0 || ordinal >= sim.devices) LEAVE(CUDA_ERROR_INVALID_DEVICE);
  *device = ordinal;
  LEAVE(CUDA_SUCCESS);
}
API CUresult cuDeviceGetName(char *name, int room, CUdevice device) {
  ENTER(NEED_INIT);
  if (!name || room <= 0) LEAVE(CUDA_ERROR_INVALID_VALUE);
  if (device) LEAVE(CUDA_ERROR_INVALID_DEVICE);
  snprintf(name, (size_t)room, "simulated sm_%d", sim.config.arch);
  LEAVE(CUDA_SUCCESS);
}
API CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) {
  ENTER(NEED_INIT);
  if (!uuid) LEAVE(CUDA_ERROR_INVALID_VALUE);
  if (device) LEAVE(CUDA_ERROR_INVALID_DEVICE);
  memset(uuid, 0x5a, sizeof *uuid);
  LEAVE(CUDA_SUCCESS);
}
API CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
  ENTER(NEED_INIT);
  if (!bytes) LEAVE(CUDA_ERROR_INVALID_VALUE);
  if (device) LEAVE(CUDA_ERROR_INVALID_DEVICE);
  *bytes = sim.config.memory;
  LEAVE(CUDA_SUCCESS);
}

static bool attribute_of(int attribute, int *v) {
  const simcuda_config *c = &sim.config;
  bool small = c->arch == 86 || c->arch == 89;
  const struct {
    int attribute, value;
  } table[] = {
      {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
      {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, INT32_MAX},
      {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
      {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 48 << 10},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, (int)c->shared_block},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, (int)c->shared_block + 1024},
      {CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, 1024},
      {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 65536},
      {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
      {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
      {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
      {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1410000},
      {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, c->sms},
      {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 1215000},
      {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 5120},
      {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 40 << 20},
      {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, small ? 1536 : 2048},
      {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, c->arch / 10},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, c->arch % 10},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, small ? 16 : 32},
      {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, !c->no_pools},
  };
  *v = 0; /* what this device does not have */
  for (size_t k = 0; k < sizeof table / sizeof table[0]; k++)
    if (table[k].attribute == attribute) *v = table[k].value;
  return attribute > 0 && attribute < 150;
}
API CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
  ENTER(NEED_INIT);
  if (!value) LEAVE(CUDA_ERROR_INVALID_VALUE);
  if (device) LEAVE(CUDA_ERROR_INVALID_DEVICE);
  LEAVE(attribute_of(attribute, value) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

/* --- contexts ------------------------------------------------------------------------------------ */
bool context_valid(CUcontext context) {
  for (CUcontext c = sim.contexts; c; c = c->next)
    if (c == context) return c->alive;
  return false;
}

static CUresult create(CUcontext *out) {
  CUcontext c = calloc(1, sizeof *c);
  if (!c) return CUDA_ERROR_OUT_OF_MEMORY;
  c->alive = true;
  c->next = sim.contexts;
  sim.contexts = *out = c;
  return CUDA_SUCCESS;
}

static void destroy(CUcontext c) {
  drain_all();
  for (CUmodule m = sim.modules; m; m = m->next)
    if (m->alive && m->context == c) module_destroy(m);
  for (CUstream s = sim.streams; s; s = s->next)
    if (s->context == c) s->alive = false;
  for (CUevent e = sim.events; e; e = e->next)
    if (e->context == c) e->alive = false;
  memory_drop_context(c);
  c->alive = false;
}

API CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
  ENTER(NEED_INIT);
  if (!context) LEAVE(CUDA_ERROR_INVALID_VALUE);
  if (device) LEAVE(CUDA_ERROR_INVALID_DEVICE);
  if (!sim.primary) {
    CUresult result = create(&sim.primary);
    if (result) LEAVE(result);
    sim.primary->primary = true;
  }
  sim.primary->alive = true;
  if (sim.primary->retains++ == 0) sim.primary->sticky = CUDA_SUCCESS;
  *context = sim.primary;
  LEAVE(CUDA_SUCCESS);
}
API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  ENTER(NEED_INIT);
  if (device) LEAVE(CUDA_ERROR_INVALID_DEVICE);
  if (!sim.primary || !sim.primary->retains) LEAVE(CUDA_ERROR_INVALID_CONTEXT);
  if (--sim.primary->retains == 0) destroy(sim.primary);
  LEAVE(CUDA_SUCCESS);
}
API CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
  ENTER(NEED_INIT);
  if (device) LEAVE(CUDA_ERROR_INVALID_DEVICE);
  if (flags) *flags = 0;
  if (active) *active = sim.primary && sim.primary->retains;
  LEAVE(CUDA_SUCCESS);
}
static CUresult push(CUcontext c) {
  if (depth == STACK) return CUDA_ERROR_INVALID_VALUE;
  stack[depth++] = c;
  return CUDA_SUCCESS;
}
API CUresult cuCtxCreate_v4(CUcontext *context, void *parameters, unsigned flags, CUdevice device) {
  ENTER(NEED_INIT);
  (void)parameters;
  (void)flags;
  if (!context) LEAVE(CUDA_ERROR_INVALID_VALUE);
  if (device) LEAVE(CUDA_ERROR_INVALID_DEVICE);
  CUresult result = create(context);
  LEAVE(result ? result : push(*context));
}
API CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device) {
  return cuCtxCreate_v4(context, NULL, flags, device);
}
API CUresult cuCtxDestroy_v2(CUcontext context) {
  ENTER(NEED_INIT);
  if (!context_valid(context) || context->primary) LEAVE(CUDA_ERROR_INVALID_CONTEXT);
  destroy(context);
  if (current_context() == context) depth--;
  LEAVE(CUDA_SUCCESS);
}
API CUresult cuCtxPushCurrent_v2(CUcontext context) {
  ENTER(NEED_INIT);
  LEAVE(context_valid(context) ? push(context) : CUDA_ERROR_INVALID_CONTEXT);
}
API CUresult cuCtxPopCurrent_v2(CUcontext *context) {
  ENTER(NEED_INIT);
  if (!depth) LEAVE(CUDA_ERROR_INVALID_CONTEXT);
  depth--;
  if (context) *context = stack[depth];
  LEAVE(CUDA_SUCCESS);
}
API CUresult cuCtxSetCurrent(CUcontext context) {
  ENTER(NEED_INIT);
  if (context && !context_valid(context)) LEAVE(CUDA_ERROR_INVALID_CONTEXT);
  if (depth) depth--;
  LEAVE(context ? push(context) : CUDA_SUCCESS);
}
API CUresult cuCtxGetCurrent(CUcontext *context) {
  ENTER(NEED_INIT);
  if (context) *context = current_context();
  LEAVE(context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}
API CUresult cuCtxGetDevice(CUdevice *device) {
  ENTER(NEED_CONTEXT);
  if (device) *device = 0;
  LEAVE(device ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}
API CUresult cuCtxGetApiVersion(CUcontext context, unsigned *version) {
  ENTER(NEED_INIT);
  (void)context;
  if (version) *version = 13000;
  LEAVE(version ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}
API CUresult cuCtxSynchronize(void) {
  ENTER(NEED_CONTEXT);
  CUresult result = drain_all();
  LEAVE(result ? result : current_context()->sticky);
}

/* --- errors -------------------------------------------------------------------------------------- */
static const struct {
  CUresult code;
  const char *name, *text;
} errors[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CUDA_ERROR_DEINITIALIZED, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_ERROR_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUDA_ERROR_NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU",
     "no kernel image is available for execution on the device"},
    {CUDA_ERROR_INVALID_PTX, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {CUDA_ERROR_UNSUPPORTED_PTX_VERSION, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
     "the provided PTX was compiled with an unsupported toolchain."},
    {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
     "too many resources requested for launch"},
    {CUDA_ERROR_LAUNCH_TIMEOUT, "CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated"},
    {CUDA_ERROR_CONTEXT_IS_DESTROYED, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
    {CUDA_ERROR_ASSERT, "CUDA_ERROR_ASSERT", "device-side assert triggered"},
    {CUDA_ERROR_ILLEGAL_INSTRUCTION, "CUDA_ERROR_ILLEGAL_INSTRUCTION", "an illegal instruction was encountered"},
    {CUDA_ERROR_MISALIGNED_ADDRESS, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
    {CUDA_ERROR_INVALID_ADDRESS_SPACE, "CUDA_ERROR_INVALID_ADDRESS_SPACE",
     "operation not supported on global/shared address space"},
    {CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {CUDA_ERROR_NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};
static CUresult error_text(CUresult code, const char **out, bool name) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  *out = NULL;
  for (size_t k = 0; k < sizeof errors / sizeof errors[0]; k++)
    if (errors[k].code == code) {
      *out = name ? errors[k].name : errors[k].text;
      return CUDA_SUCCESS;
    }
  return CUDA_ERROR_INVALID_VALUE;
}
API CUresult cuGetErrorName(CUresult code, const char **name) { return error_text(code, name, true); }
API CUresult cuGetErrorString(CUresult code, const char **text) { return error_text(code, text, false); }

/* --- control ------------------------------------------------------------------------------------- */
API void simcuda_get_config(simcuda_config *config) {
  hold();
  *config = sim.config;
  pthread_mutex_unlock(&lock);
}
API void simcuda_set_config(const simcuda_config *config) {
  hold();
  sim.config = *config;
  pthread_mutex_unlock(&lock);
}
API const char *simcuda_report(void) { return sim.report; }
API void simcuda_clear(void) {
  hold();
  sim.report[0] = 0;
  for (CUcontext c = sim.contexts; c; c = c->next) c->sticky = CUDA_SUCCESS;
  pthread_mutex_unlock(&lock);
}
API void simcuda_fail_call(uint64_t n, int error) {
  hold();
  sim.calls = 0;
  sim.fail_at = n;
  sim.fail_with = error;
  pthread_mutex_unlock(&lock);
}
API uint64_t simcuda_calls(void) {
  hold();
  uint64_t calls = sim.calls;
  pthread_mutex_unlock(&lock);
  return calls;
}
API void simcuda_get_counts(simcuda_counts *counts) {
  hold();
  *counts = (simcuda_counts){.launches = sim.launches, .instructions = sim.instructions};
  memory_count(counts);
  for (CUmodule m = sim.modules; m; m = m->next) counts->modules += m->alive;
  for (CUstream s = sim.streams; s; s = s->next) counts->streams += s->alive;
  for (CUevent e = sim.events; e; e = e->next) counts->events += e->alive;
  for (CUcontext c = sim.contexts; c; c = c->next) counts->contexts += c->alive && !c->primary;
  counts->primary_retains = sim.primary ? sim.primary->retains : 0;
  pthread_mutex_unlock(&lock);
}
