/* api_memory.c: allocation, copies, fills, pointer queries. A copy from pageable host memory takes the bytes when it
 * is called; one to pageable memory is done when the call returns; pinned memory is read and written when the stream
 * gets there. */
#include <stdlib.h>

#include "state.h"

API CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes) {
  ENTER(NEED_CONTEXT);
  if (!pointer || !bytes) LEAVE(CUDA_ERROR_INVALID_VALUE);
  *pointer = 0;
  if (bytes > sim.config.memory || memory_in_use() > sim.config.memory - bytes)
    LEAVE(bad(CUDA_ERROR_OUT_OF_MEMORY, "device memory is full"));
  allocation *a = memory_create(bytes, MEMORY_DEVICE, current_context());
  if (a) *pointer = a->base;
  LEAVE(a ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}
API CUresult cuMemFree_v2(CUdeviceptr pointer) {
  ENTER(NEED_CONTEXT);
  if (!pointer) LEAVE(CUDA_SUCCESS);
  CUresult result = drain_all();
  if (result) LEAVE(result);
  LEAVE(memory_destroy(pointer, MEMORY_DEVICE)
            ? CUDA_SUCCESS
            : bad(CUDA_ERROR_INVALID_VALUE, "free of 0x%llx, which is no allocation", (unsigned long long)pointer));
}
API CUresult cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, CUstream handle) {
  simcuda_config config;
  (void)handle;
  simcuda_get_config(&config);
  return config.no_pools ? CUDA_ERROR_NOT_SUPPORTED : cuMemAlloc_v2(pointer, bytes);
}
API CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream handle) {
  ENTER(NEED_CONTEXT);
  CUstream s = NULL;
  CUresult result = stream_find(handle, &s);
  operation *op = result ? NULL : operation_create(OP_FREE);
  if (op) {
    op->to = pointer;
    result = stream_submit(s, op);
  }
  LEAVE(result);
}
API CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
  ENTER(NEED_CONTEXT);
  if (!free_bytes || !total) LEAVE(CUDA_ERROR_INVALID_VALUE);
  *total = sim.config.memory;
  *free_bytes = sim.config.memory - memory_in_use();
  LEAVE(CUDA_SUCCESS);
}
API CUresult cuMemHostAlloc(void **pointer, size_t bytes, unsigned flags) {
  ENTER(NEED_CONTEXT);
  (void)flags;
  if (!pointer || !bytes) LEAVE(CUDA_ERROR_INVALID_VALUE);
  allocation *a = memory_create(bytes, MEMORY_PINNED, current_context());
  *pointer = a ? a->host : NULL;
  LEAVE(a ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}
API CUresult cuMemAllocHost_v2(void **pointer, size_t bytes) { return cuMemHostAlloc(pointer, bytes, 0); }
API CUresult cuMemFreeHost(void *pointer) {
  ENTER(NEED_CONTEXT);
  CUresult result = drain_all();
  if (result) LEAVE(result);
  LEAVE(memory_destroy((uint64_t)(uintptr_t)pointer, MEMORY_PINNED) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}
API CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *out, void *pointer, unsigned flags) {
  ENTER(NEED_CONTEXT);
  allocation *a = memory_find((uint64_t)(uintptr_t)pointer);
  if (!out || flags || !a || a->freed || a->kind != MEMORY_PINNED) LEAVE(CUDA_ERROR_INVALID_VALUE);
  *out = (uint64_t)(uintptr_t)pointer;
  LEAVE(CUDA_SUCCESS);
}

/* --- copies -------------------------------------------------------------------------------------- */
static bool pinned(uint64_t address) {
  allocation *a = memory_find(address);
  return a && !a->freed && a->kind == MEMORY_PINNED;
}
static bool on_device(uint64_t address, uint64_t bytes) {
  allocation *a = memory_find(address);
  return a && !a->freed && address >= a->base && address - a->base <= a->size && bytes <= a->size - (address - a->base);
}

static CUresult copy(uint64_t to, uint64_t from, size_t bytes, bool to_device, bool from_device, CUstream handle,
                     bool async) {
  CUstream s = NULL;
  CUresult result = async ? stream_find(handle, &s) : CUDA_SUCCESS;
  if (result || !bytes) return result;
  if (!to || !from) return CUDA_ERROR_INVALID_VALUE;
  /* ranges are checked now as well, so that the call at fault says so */
  if ((to_device && !on_device(to, bytes)) || (from_device && !on_device(from, bytes)))
    return bad(CUDA_ERROR_INVALID_VALUE, "copy of %zu bytes from 0x%llx to 0x%llx: not within one living allocation",
               bytes, (unsigned long long)from, (unsigned long long)to);
  operation *op = operation_create(OP_COPY);
  if (!op) return CUDA_ERROR_OUT_OF_MEMORY;
  op->to = to;
  op->from = from;
  op->bytes = bytes;
  op->to_device = to_device;
  op->from_device = from_device;
  if (async && s && !from_device && !pinned(from)) {
    op->owned = malloc(bytes);
    if (!op->owned) {
      operation_destroy(op);
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memcpy(op->owned, (const void *)(uintptr_t)from, bytes);
    op->from = (uint64_t)(uintptr_t)op->owned;
  }
  result = stream_submit(s, op);
  if (!result && s && !to_device && !pinned(to)) result = stream_drain(s);
  return result;
}

API CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes) {
  ENTER(NEED_CONTEXT);
  LEAVE(copy(to, (uint64_t)(uintptr_t)from, bytes, true, false, NULL, false));
}
API CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes) {
  ENTER(NEED_CONTEXT);
  CUresult result = copy((uint64_t)(uintptr_t)to, from, bytes, false, true, NULL, false);
  LEAVE(result ? result : current_context()->sticky);
}
API CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  ENTER(NEED_CONTEXT);
  LEAVE(copy(to, from, bytes, true, true, NULL, false));
}
API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
  ENTER(NEED_CONTEXT);
  LEAVE(copy(to, (uint64_t)(uintptr_t)from, bytes, true, false, stream, true));
}
API CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream) {
  ENTER(NEED_CONTEXT);
  LEAVE(copy((uint64_t)(uintptr_t)to, from, bytes, false, true, stream, true));
}
API CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  ENTER(NEED_CONTEXT);
  LEAVE(copy(to, from, bytes, true, true, stream, true));
}
static bool is_device(uint64_t address) {
  allocation *a = memory_find(address);
  return a && a->kind != MEMORY_PINNED;
}
API CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  ENTER(NEED_CONTEXT);
  LEAVE(copy(to, from, bytes, is_device(to), is_device(from), NULL, false));
}
API CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  ENTER(NEED_CONTEXT);
  LEAVE(copy(to, from, bytes, is_device(to), is_device(from), stream, true));
}

/* --- fills --------------------------------------------------------------------------------------- */
static CUresult fill(CUdeviceptr to, uint32_t pattern, uint32_t width, size_t count, CUstream handle) {
  CUstream s = NULL;
  CUresult result = stream_find(handle, &s);
  if (result || !count) return result;
  if (to % width || count > SIZE_MAX / width) return CUDA_ERROR_INVALID_VALUE;
  if (!on_device(to, count * width))
    return bad(CUDA_ERROR_INVALID_VALUE, "memset of %zu bytes at 0x%llx: not within one living allocation",
               count * width, (unsigned long long)to);
  operation *op = operation_create(OP_FILL);
  if (!op) return CUDA_ERROR_OUT_OF_MEMORY;
  op->to = to;
  op->bytes = count * width;
  op->pattern = pattern;
  op->width = width;
  return stream_submit(s, op);
}
API CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count) {
  ENTER(NEED_CONTEXT);
  LEAVE(fill(to, value, 1, count, NULL));
}
API CUresult cuMemsetD16_v2(CUdeviceptr to, unsigned short value, size_t count) {
  ENTER(NEED_CONTEXT);
  LEAVE(fill(to, value, 2, count, NULL));
}
API CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t count) {
  ENTER(NEED_CONTEXT);
  LEAVE(fill(to, value, 4, count, NULL));
}
API CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
  ENTER(NEED_CONTEXT);
  LEAVE(fill(to, value, 1, count, stream));
}
API CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count, CUstream stream) {
  ENTER(NEED_CONTEXT);
  LEAVE(fill(to, value, 2, count, stream));
}
API CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream) {
  ENTER(NEED_CONTEXT);
  LEAVE(fill(to, value, 4, count, stream));
}

/* --- queries ------------------------------------------------------------------------------------- */
API CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr pointer) {
  ENTER(NEED_CONTEXT);
  allocation *a = memory_find(pointer);
  if (!a || a->freed || pointer < a->base || pointer - a->base >= a->size) LEAVE(CUDA_ERROR_NOT_FOUND);
  if (base) *base = a->base;
  if (size) *size = a->size;
  LEAVE(CUDA_SUCCESS);
}

static CUresult pointer_attribute(void *out, int attribute, CUdeviceptr pointer) {
  allocation *a = memory_find(pointer);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  if (!a || a->freed || pointer < a->base || pointer - a->base >= a->size) return CUDA_ERROR_INVALID_VALUE;
  switch (attribute) {
  case CU_POINTER_ATTRIBUTE_CONTEXT:
    *(CUcontext *)out = a->context;
    return CUDA_SUCCESS;
  case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    *(unsigned *)out = a->kind == MEMORY_PINNED ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    return CUDA_SUCCESS;
  case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    *(CUdeviceptr *)out = pointer;
    return CUDA_SUCCESS;
  case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    if (a->kind != MEMORY_PINNED) return CUDA_ERROR_INVALID_VALUE;
    *(void **)out = (void *)(uintptr_t)pointer;
    return CUDA_SUCCESS;
  case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    *(unsigned long long *)out = a->base;
    return CUDA_SUCCESS;
  case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    *(unsigned *)out = 0;
    return CUDA_SUCCESS;
  case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    *(int *)out = 0;
    return CUDA_SUCCESS;
  case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    *(CUdeviceptr *)out = a->base;
    return CUDA_SUCCESS;
  case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    *(size_t *)out = a->size;
    return CUDA_SUCCESS;
  case CU_POINTER_ATTRIBUTE_MAPPED:
    *(char *)out = 1;
    return CUDA_SUCCESS;
  default:
    return CUDA_ERROR_NOT_SUPPORTED;
  }
}
API CUresult cuPointerGetAttribute(void *out, int attribute, CUdeviceptr pointer) {
  ENTER(NEED_INIT);
  LEAVE(pointer_attribute(out, attribute, pointer));
}
API CUresult cuPointerGetAttributes(unsigned count, int *attributes, void **out, CUdeviceptr pointer) {
  ENTER(NEED_INIT);
  for (unsigned k = 0; k < count; k++)
    if (pointer_attribute(out[k], attributes[k], pointer)) { /* an unknown pointer has null attributes */
      if (attributes[k] == CU_POINTER_ATTRIBUTE_CONTEXT || attributes[k] == CU_POINTER_ATTRIBUTE_HOST_POINTER)
        *(void **)out[k] = NULL;
      else
        *(unsigned *)out[k] = 0;
    }
  LEAVE(CUDA_SUCCESS);
}
