/* cuda_driver.h: the part of the CUDA Driver API that the runtime calls, written out (CUDA Driver API reference),
 * so that building needs no CUDA toolkit and running no libcuda until a GPU is asked for. */
#ifndef FLYMASK_CUDA_DRIVER_H
#define FLYMASK_CUDA_DRIVER_H

#include "runtime.h"

typedef uint64_t flyi_device_memory;          /* CUdeviceptr */
typedef struct CUctx_st *flyi_cuda_context;   /* CUcontext */
typedef struct CUmod_st *flyi_cuda_module;    /* CUmodule */
typedef struct CUfunc_st *flyi_cuda_function; /* CUfunction */
typedef struct CUstream_st *flyi_cuda_stream; /* CUstream */
typedef struct CUevent_st *flyi_cuda_event;   /* CUevent */

enum { /* CUresult: those that the runtime tells apart */
       FLYI_CUDA_OUT_OF_MEMORY = 2,
       FLYI_CUDA_NO_DEVICE = 100,
       FLYI_CUDA_INVALID_DEVICE = 101,
       FLYI_CUDA_NO_BINARY = 209,
       FLYI_CUDA_INVALID_PTX = 218,
       FLYI_CUDA_PTX_VERSION = 222,
       FLYI_CUDA_NOT_READY = 600
};

enum { /* CUdevice_attribute */
       FLYI_CUDA_MULTIPROCESSORS = 16,
       FLYI_CUDA_MAJOR = 75,
       FLYI_CUDA_MINOR = 76,
       FLYI_CUDA_SHARED_OPTIN = 97,
       FLYI_CUDA_MEMORY_POOLS = 115
};

enum { /* CUfunction_attribute, CUpointer_attribute, CUmemorytype, CUevent_flags, CUjit_option */
       FLYI_CUDA_DYNAMIC_SHARED = 8,
       FLYI_CUDA_POINTER_TYPE = 2,
       FLYI_CUDA_POINTER_MANAGED = 8,
       FLYI_CUDA_POINTER_DEVICE = 9,
       FLYI_CUDA_MEMORY_ON_DEVICE = 2,
       FLYI_CUDA_EVENT_NO_TIMING = 2,
       FLYI_CUDA_JIT_ERROR_LOG = 5,
       FLYI_CUDA_JIT_ERROR_LOG_BYTES = 6
};

/* CALL(field, symbol, parameters). The newest, those of memory pools, came with CUDA 11.2. */
#define FLYI_CUDA_CALLS(CALL)                                                                                          \
  CALL(init, "cuInit", (unsigned flags))                                                                               \
  CALL(version, "cuDriverGetVersion", (int *version))                                                                  \
  CALL(error_name, "cuGetErrorName", (int code, const char **name))                                                    \
  CALL(error_text, "cuGetErrorString", (int code, const char **text))                                                  \
  CALL(device_count, "cuDeviceGetCount", (int *count))                                                                 \
  CALL(device_get, "cuDeviceGet", (int *device, int ordinal))                                                          \
  CALL(device_name, "cuDeviceGetName", (char *name, int room, int device))                                             \
  CALL(device_memory, "cuDeviceTotalMem_v2", (size_t *bytes, int device))                                              \
  CALL(device_attribute, "cuDeviceGetAttribute", (int *value, int attribute, int device))                              \
  CALL(primary_retain, "cuDevicePrimaryCtxRetain", (flyi_cuda_context * context, int device))                          \
  CALL(primary_release, "cuDevicePrimaryCtxRelease_v2", (int device))                                                  \
  CALL(primary_state, "cuDevicePrimaryCtxGetState", (int device, unsigned *flags, int *active))                        \
  CALL(context_current, "cuCtxGetCurrent", (flyi_cuda_context * context))                                              \
  CALL(context_push, "cuCtxPushCurrent_v2", (flyi_cuda_context context))                                               \
  CALL(context_pop, "cuCtxPopCurrent_v2", (flyi_cuda_context * context))                                               \
  CALL(context_device, "cuCtxGetDevice", (int *device))                                                                \
  CALL(stream_context, "cuStreamGetCtx", (flyi_cuda_stream stream, flyi_cuda_context * context))                       \
  CALL(stream_synchronize, "cuStreamSynchronize", (flyi_cuda_stream stream))                                           \
  CALL(stream_wait, "cuStreamWaitEvent", (flyi_cuda_stream stream, flyi_cuda_event event, unsigned flags))             \
  CALL(event_create, "cuEventCreate", (flyi_cuda_event * event, unsigned flags))                                       \
  CALL(event_destroy, "cuEventDestroy_v2", (flyi_cuda_event event))                                                    \
  CALL(event_record, "cuEventRecord", (flyi_cuda_event event, flyi_cuda_stream stream))                                \
  CALL(event_query, "cuEventQuery", (flyi_cuda_event event))                                                           \
  CALL(alloc, "cuMemAlloc_v2", (flyi_device_memory * memory, size_t bytes))                                            \
  CALL(free, "cuMemFree_v2", (flyi_device_memory memory))                                                              \
  CALL(alloc_async, "cuMemAllocAsync", (flyi_device_memory * memory, size_t bytes, flyi_cuda_stream stream))           \
  CALL(free_async, "cuMemFreeAsync", (flyi_device_memory memory, flyi_cuda_stream stream))                             \
  CALL(write, "cuMemcpyHtoDAsync_v2",                                                                                  \
       (flyi_device_memory to, const void *from, size_t bytes, flyi_cuda_stream stream))                               \
  CALL(read, "cuMemcpyDtoHAsync_v2", (void *to, flyi_device_memory from, size_t bytes, flyi_cuda_stream stream))       \
  CALL(fill, "cuMemsetD8Async", (flyi_device_memory to, unsigned char value, size_t bytes, flyi_cuda_stream stream))   \
  CALL(pointer_attributes, "cuPointerGetAttributes",                                                                   \
       (unsigned count, int *attributes, void **values, flyi_device_memory pointer))                                   \
  CALL(module_load, "cuModuleLoadDataEx",                                                                              \
       (flyi_cuda_module * module, const void *image, unsigned options, int *option, void **value))                    \
  CALL(module_unload, "cuModuleUnload", (flyi_cuda_module module))                                                     \
  CALL(module_function, "cuModuleGetFunction",                                                                         \
       (flyi_cuda_function * function, flyi_cuda_module module, const char *name))                                     \
  CALL(function_set, "cuFuncSetAttribute", (flyi_cuda_function function, int attribute, int value))                    \
  CALL(launch, "cuLaunchKernel",                                                                                       \
       (flyi_cuda_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,              \
        unsigned block_y, unsigned block_z, unsigned shared, flyi_cuda_stream stream, void **params, void **extra))

typedef struct flyi_cuda_driver {
#define FLYI_CUDA_FIELD(field, symbol, parameters) int(*field) parameters;
  FLYI_CUDA_CALLS(FLYI_CUDA_FIELD)
#undef FLYI_CUDA_FIELD
} flyi_cuda_driver;

/* Opens libcuda.so.1 and finds every symbol. The library stays open for good: a driver that has started threads
 * cannot be unloaded. */
fly_status flyi_cuda_driver_open(flyi_cuda_driver *driver, fly_error *error);

/* Fills the error: what was being done, and the driver's words for `code`. Returns FLY_ERROR_MEMORY where the
 * device is out of memory, otherwise FLY_ERROR_DEVICE. */
fly_status flyi_cuda_fail(const flyi_cuda_driver *driver, int code, fly_error *error, const char *format, ...)
    FLYI_PRINTF(4, 5);

#endif
