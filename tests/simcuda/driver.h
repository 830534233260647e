/* driver.h: the part of the CUDA driver API's types and numbers that the stand-in offers (CUDA Driver API reference).
 * Written out here so that neither the stand-in nor its tests need a CUDA toolkit. */
#ifndef SIMCUDA_DRIVER_H
#define SIMCUDA_DRIVER_H

#include <stddef.h>
#include <stdint.h>

typedef enum cu_result {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_NOT_INITIALIZED = 3,
  CUDA_ERROR_DEINITIALIZED = 4,
  CUDA_ERROR_NO_DEVICE = 100,
  CUDA_ERROR_INVALID_DEVICE = 101,
  CUDA_ERROR_INVALID_IMAGE = 200,
  CUDA_ERROR_INVALID_CONTEXT = 201,
  CUDA_ERROR_NO_BINARY_FOR_GPU = 209,
  CUDA_ERROR_INVALID_PTX = 218,
  CUDA_ERROR_UNSUPPORTED_PTX_VERSION = 222,
  CUDA_ERROR_INVALID_HANDLE = 400,
  CUDA_ERROR_NOT_FOUND = 500,
  CUDA_ERROR_NOT_READY = 600,
  CUDA_ERROR_ILLEGAL_ADDRESS = 700,
  CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701,
  CUDA_ERROR_LAUNCH_TIMEOUT = 702,
  CUDA_ERROR_CONTEXT_IS_DESTROYED = 709,
  CUDA_ERROR_ASSERT = 710,
  CUDA_ERROR_ILLEGAL_INSTRUCTION = 715,
  CUDA_ERROR_MISALIGNED_ADDRESS = 716,
  CUDA_ERROR_INVALID_ADDRESS_SPACE = 717,
  CUDA_ERROR_LAUNCH_FAILED = 719,
  CUDA_ERROR_NOT_PERMITTED = 800,
  CUDA_ERROR_NOT_SUPPORTED = 801,
  CUDA_ERROR_UNKNOWN = 999,
} CUresult;

typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUuuid_st {
  char bytes[16];
} CUuuid;

/* The handles of the default streams. */
#define CU_STREAM_LEGACY ((CUstream)0x1)
#define CU_STREAM_PER_THREAD ((CUstream)0x2)

enum { /* CUdevice_attribute */
       CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 1,
       CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X = 2,
       CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y = 3,
       CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z = 4,
       CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X = 5,
       CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y = 6,
       CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z = 7,
       CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK = 8,
       CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY = 9,
       CU_DEVICE_ATTRIBUTE_WARP_SIZE = 10,
       CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK = 12,
       CU_DEVICE_ATTRIBUTE_CLOCK_RATE = 13,
       CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
       CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE = 36,
       CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH = 37,
       CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE = 38,
       CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR = 39,
       CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING = 41,
       CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
       CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
       CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR = 81,
       CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR = 82,
       CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
       CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR = 106,
       CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK = 111,
       CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED = 115,
};

enum { /* CUfunction_attribute */
       CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 0,
       CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = 1,
       CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES = 2,
       CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES = 3,
       CU_FUNC_ATTRIBUTE_NUM_REGS = 4,
       CU_FUNC_ATTRIBUTE_PTX_VERSION = 5,
       CU_FUNC_ATTRIBUTE_BINARY_VERSION = 6,
       CU_FUNC_ATTRIBUTE_CACHE_MODE_CA = 7,
       CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
       CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT = 9,
};

enum { /* CUpointer_attribute */
       CU_POINTER_ATTRIBUTE_CONTEXT = 1,
       CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2,
       CU_POINTER_ATTRIBUTE_DEVICE_POINTER = 3,
       CU_POINTER_ATTRIBUTE_HOST_POINTER = 4,
       CU_POINTER_ATTRIBUTE_BUFFER_ID = 7,
       CU_POINTER_ATTRIBUTE_IS_MANAGED = 8,
       CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9,
       CU_POINTER_ATTRIBUTE_RANGE_START_ADDR = 11,
       CU_POINTER_ATTRIBUTE_RANGE_SIZE = 12,
       CU_POINTER_ATTRIBUTE_MAPPED = 13,
};
enum { CU_MEMORYTYPE_HOST = 1, CU_MEMORYTYPE_DEVICE = 2 };

/* The functions, by the names of their symbols. */
CUresult cuInit(unsigned flags);
CUresult cuDriverGetVersion(int *version);
CUresult cuDeviceGetCount(int *count);
CUresult cuDeviceGet(CUdevice *device, int ordinal);
CUresult cuDeviceGetName(char *name, int room, CUdevice device);
CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device);
CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device);
CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device);
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device);
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device);
CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active);
CUresult cuCtxCreate_v4(CUcontext *context, void *parameters, unsigned flags, CUdevice device);
CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device);
CUresult cuCtxDestroy_v2(CUcontext context);
CUresult cuCtxPushCurrent_v2(CUcontext context);
CUresult cuCtxPopCurrent_v2(CUcontext *context);
CUresult cuCtxSetCurrent(CUcontext context);
CUresult cuCtxGetCurrent(CUcontext *context);
CUresult cuCtxGetDevice(CUdevice *device);
CUresult cuCtxGetApiVersion(CUcontext context, unsigned *version);
CUresult cuCtxSynchronize(void);
CUresult cuGetErrorName(CUresult code, const char **name);
CUresult cuGetErrorString(CUresult code, const char **text);
CUresult cuStreamCreate(CUstream *stream, unsigned flags);
CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority);
CUresult cuStreamDestroy_v2(CUstream handle);
CUresult cuStreamSynchronize(CUstream handle);
CUresult cuStreamQuery(CUstream handle);
CUresult cuStreamGetCtx(CUstream handle, CUcontext *context);
CUresult cuStreamIsCapturing(CUstream handle, int *status);
CUresult cuLaunchHostFunc(CUstream handle, void (*call)(void *), void *data);
CUresult cuEventCreate(CUevent *event, unsigned flags);
CUresult cuEventDestroy_v2(CUevent event);
CUresult cuEventRecord(CUevent event, CUstream handle);
CUresult cuStreamWaitEvent(CUstream handle, CUevent event, unsigned flags);
CUresult cuEventSynchronize(CUevent event);
CUresult cuEventQuery(CUevent event);
CUresult cuEventElapsedTime_v2(float *ms, CUevent begin, CUevent end);
CUresult cuEventElapsedTime(float *ms, CUevent begin, CUevent end);
CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes);
CUresult cuMemFree_v2(CUdeviceptr pointer);
CUresult cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, CUstream handle);
CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream handle);
CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total);
CUresult cuMemHostAlloc(void **pointer, size_t bytes, unsigned flags);
CUresult cuMemAllocHost_v2(void **pointer, size_t bytes);
CUresult cuMemFreeHost(void *pointer);
CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *out, void *pointer, unsigned flags);
CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes);
CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes);
CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes);
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream);
CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream);
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream);
CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes);
CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream);
CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count);
CUresult cuMemsetD16_v2(CUdeviceptr to, unsigned short value, size_t count);
CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t count);
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream);
CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count, CUstream stream);
CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream);
CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr pointer);
CUresult cuPointerGetAttribute(void *out, int attribute, CUdeviceptr pointer);
CUresult cuPointerGetAttributes(unsigned count, int *attributes, void **out, CUdeviceptr pointer);
CUresult cuModuleLoadDataEx(CUmodule *out, const void *image, unsigned count, int *options, void **values);
CUresult cuModuleLoadData(CUmodule *out, const void *image);
CUresult cuModuleUnload(CUmodule module);
CUresult cuModuleGetFunction(CUfunction *out, CUmodule module, const char *name);
CUresult cuModuleGetGlobal_v2(CUdeviceptr *pointer, size_t *bytes, CUmodule module, const char *name);
CUresult cuFuncGetAttribute(int *value, int attribute, CUfunction function);
CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value);
CUresult cuFuncSetCacheConfig(CUfunction function, int config);
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int threads, size_t dynamic);
CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                        unsigned bz, unsigned dynamic, CUstream handle, void **params, void **extra);
CUresult cuGetProcAddress(const char *symbol, void **function, int version, uint64_t flags);
CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags, int *status);

#endif
