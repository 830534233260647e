/* api_table.c: cuGetProcAddress: header names to functions, versioned where the header maps them so. */
#include "state.h"

#define ENTRY(name, real) {#name, (void (*)(void))real}
static const struct {
  const char *name;
  void (*function)(void);
} functions[] = {
    ENTRY(cuInit, cuInit),
    ENTRY(cuDriverGetVersion, cuDriverGetVersion),
    ENTRY(cuDeviceGetCount, cuDeviceGetCount),
    ENTRY(cuDeviceGet, cuDeviceGet),
    ENTRY(cuDeviceGetName, cuDeviceGetName),
    ENTRY(cuDeviceGetUuid, cuDeviceGetUuid_v2),
    ENTRY(cuDeviceTotalMem, cuDeviceTotalMem_v2),
    ENTRY(cuDeviceGetAttribute, cuDeviceGetAttribute),
    ENTRY(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain),
    ENTRY(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2),
    ENTRY(cuDevicePrimaryCtxGetState, cuDevicePrimaryCtxGetState),
    ENTRY(cuCtxCreate, cuCtxCreate_v4),
    ENTRY(cuCtxDestroy, cuCtxDestroy_v2),
    ENTRY(cuCtxPushCurrent, cuCtxPushCurrent_v2),
    ENTRY(cuCtxPopCurrent, cuCtxPopCurrent_v2),
    ENTRY(cuCtxSetCurrent, cuCtxSetCurrent),
    ENTRY(cuCtxGetCurrent, cuCtxGetCurrent),
    ENTRY(cuCtxGetDevice, cuCtxGetDevice),
    ENTRY(cuCtxGetApiVersion, cuCtxGetApiVersion),
    ENTRY(cuCtxSynchronize, cuCtxSynchronize),
    ENTRY(cuGetErrorName, cuGetErrorName),
    ENTRY(cuGetErrorString, cuGetErrorString),
    ENTRY(cuStreamCreate, cuStreamCreate),
    ENTRY(cuStreamCreateWithPriority, cuStreamCreateWithPriority),
    ENTRY(cuStreamDestroy, cuStreamDestroy_v2),
    ENTRY(cuStreamSynchronize, cuStreamSynchronize),
    ENTRY(cuStreamQuery, cuStreamQuery),
    ENTRY(cuStreamGetCtx, cuStreamGetCtx),
    ENTRY(cuStreamIsCapturing, cuStreamIsCapturing),
    ENTRY(cuLaunchHostFunc, cuLaunchHostFunc),
    ENTRY(cuEventCreate, cuEventCreate),
    ENTRY(cuEventDestroy, cuEventDestroy_v2),
    ENTRY(cuEventRecord, cuEventRecord),
    ENTRY(cuStreamWaitEvent, cuStreamWaitEvent),
    ENTRY(cuEventSynchronize, cuEventSynchronize),
    ENTRY(cuEventQuery, cuEventQuery),
    ENTRY(cuEventElapsedTime, cuEventElapsedTime_v2),
    ENTRY(cuMemAlloc, cuMemAlloc_v2),
    ENTRY(cuMemFree, cuMemFree_v2),
    ENTRY(cuMemAllocAsync, cuMemAllocAsync),
    ENTRY(cuMemFreeAsync, cuMemFreeAsync),
    ENTRY(cuMemGetInfo, cuMemGetInfo_v2),
    ENTRY(cuMemHostAlloc, cuMemHostAlloc),
    ENTRY(cuMemAllocHost, cuMemAllocHost_v2),
    ENTRY(cuMemFreeHost, cuMemFreeHost),
    ENTRY(cuMemHostGetDevicePointer, cuMemHostGetDevicePointer_v2),
    ENTRY(cuMemcpyHtoD, cuMemcpyHtoD_v2),
    ENTRY(cuMemcpyDtoH, cuMemcpyDtoH_v2),
    ENTRY(cuMemcpyDtoD, cuMemcpyDtoD_v2),
    ENTRY(cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2),
    ENTRY(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2),
    ENTRY(cuMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2),
    ENTRY(cuMemcpy, cuMemcpy),
    ENTRY(cuMemcpyAsync, cuMemcpyAsync),
    ENTRY(cuMemsetD8, cuMemsetD8_v2),
    ENTRY(cuMemsetD16, cuMemsetD16_v2),
    ENTRY(cuMemsetD32, cuMemsetD32_v2),
    ENTRY(cuMemsetD8Async, cuMemsetD8Async),
    ENTRY(cuMemsetD16Async, cuMemsetD16Async),
    ENTRY(cuMemsetD32Async, cuMemsetD32Async),
    ENTRY(cuMemGetAddressRange, cuMemGetAddressRange_v2),
    ENTRY(cuPointerGetAttribute, cuPointerGetAttribute),
    ENTRY(cuPointerGetAttributes, cuPointerGetAttributes),
    ENTRY(cuModuleLoadData, cuModuleLoadData),
    ENTRY(cuModuleLoadDataEx, cuModuleLoadDataEx),
    ENTRY(cuModuleUnload, cuModuleUnload),
    ENTRY(cuModuleGetFunction, cuModuleGetFunction),
    ENTRY(cuModuleGetGlobal, cuModuleGetGlobal_v2),
    ENTRY(cuFuncGetAttribute, cuFuncGetAttribute),
    ENTRY(cuFuncSetAttribute, cuFuncSetAttribute),
    ENTRY(cuFuncSetCacheConfig, cuFuncSetCacheConfig),
    ENTRY(cuOccupancyMaxActiveBlocksPerMultiprocessor, cuOccupancyMaxActiveBlocksPerMultiprocessor),
    ENTRY(cuLaunchKernel, cuLaunchKernel),
    ENTRY(cuGetProcAddress, cuGetProcAddress_v2),
};

enum { FOUND, NOT_FOUND };
API CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags, int *status) {
  ENTER(NEED_NOTHING);
  (void)version;
  (void)flags;
  if (!symbol || !function) LEAVE(CUDA_ERROR_INVALID_VALUE);
  *function = NULL;
  if (status) *status = NOT_FOUND;
  for (size_t k = 0; k < sizeof functions / sizeof functions[0]; k++)
    if (!strcmp(functions[k].name, symbol)) {
      memcpy(function, &functions[k].function, sizeof *function);
      if (status) *status = FOUND;
      LEAVE(CUDA_SUCCESS);
    }
  LEAVE(CUDA_ERROR_NOT_FOUND);
}
API CUresult cuGetProcAddress(const char *symbol, void **function, int version, uint64_t flags) {
  return cuGetProcAddress_v2(symbol, function, version, flags, NULL);
}
