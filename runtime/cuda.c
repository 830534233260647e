/* cuda.c: a CUDA context as the library uses it: creating the handle, making the context current, device memory,
 * and the end of all that the handle keeps there. */
#include <stdio.h>
#include <stdlib.h>

#include "cuda.h"

enum { LOWEST_ARCH = 80 };

/* ---- the context ----------------------------------------------------------------------------------------------- */

fly_status flyi_cuda_enter(fly_cuda *cuda, bool *pushed, fly_error *error) {
  const flyi_cuda_driver *d = &cuda->driver;
  flyi_cuda_context current = NULL;
  *pushed = false;
  int code = d->context_current(&current);
  if (code) return flyi_cuda_fail(d, code, error, "the thread's CUDA context cannot be read");
  if (current == cuda->context) return FLY_OK;
  if ((code = d->context_push(cuda->context)))
    return flyi_cuda_fail(d, code, error, "the CUDA context of the fly_cuda cannot be used (was it destroyed?)");
  *pushed = true;
  return FLY_OK;
}

void flyi_cuda_leave(fly_cuda *cuda, bool pushed) {
  flyi_cuda_context ignored;
  if (pushed) cuda->driver.context_pop(&ignored);
}

/* ---- creating -------------------------------------------------------------------------------------------------- */

static fly_status take_primary(fly_cuda *cuda, int ordinal, fly_error *error) {
  const flyi_cuda_driver *d = &cuda->driver;
  int count = 0, code = d->device_count(&count);
  if (code) return flyi_cuda_fail(d, code, error, "CUDA devices cannot be counted");
  if (ordinal < 0 || ordinal >= count)
    return flyi_fail(error, FLY_ERROR_ARGUMENT, "desc.device is %d: there are %d CUDA devices, counted from 0", ordinal,
                     count);
  if ((code = d->device_get(&cuda->info.device, ordinal)))
    return flyi_cuda_fail(d, code, error, "CUDA device %d cannot be opened", ordinal);
  if ((code = d->primary_retain(&cuda->context, cuda->info.device)))
    return flyi_cuda_fail(d, code, error, "the primary context of CUDA device %d cannot be retained", ordinal);
  cuda->primary = true;
  return FLY_OK;
}

static fly_status take_current(fly_cuda *cuda, fly_error *error) {
  const flyi_cuda_driver *d = &cuda->driver;
  flyi_cuda_context primary = NULL;
  unsigned flags;
  int active = 0, code = d->context_current(&cuda->context);
  if (code) return flyi_cuda_fail(d, code, error, "the thread's CUDA context cannot be read");
  if (!cuda->context)
    return flyi_fail(error, FLY_ERROR_ARGUMENT,
                     "no CUDA context is current on this thread: make one so, or set desc.primary and desc.device");
  if ((code = d->context_device(&cuda->info.device)))
    return flyi_cuda_fail(d, code, error, "the current CUDA context names no device");
  if ((code = d->primary_state(cuda->info.device, &flags, &active)))
    return flyi_cuda_fail(d, code, error, "the state of the primary context cannot be read");
  if (!active) return FLY_OK;
  if ((code = d->primary_retain(&primary, cuda->info.device)))
    return flyi_cuda_fail(d, code, error, "the primary context cannot be retained");
  cuda->primary = primary == cuda->context;
  if (!cuda->primary) d->primary_release(cuda->info.device);
  return FLY_OK;
}

static fly_status read_info(fly_cuda *cuda, fly_error *error) {
  const flyi_cuda_driver *d = &cuda->driver;
  fly_cuda_info *info = &cuda->info;
  int major = 0, minor = 0, pools = 0, code;
  if ((code = d->device_name(info->name, sizeof info->name, info->device)) ||
      (code = d->device_memory(&info->memory, info->device)) || (code = d->version(&info->driver_version)) ||
      (code = d->device_attribute(&major, FLYI_CUDA_MAJOR, info->device)) ||
      (code = d->device_attribute(&minor, FLYI_CUDA_MINOR, info->device)) ||
      (code = d->device_attribute(&pools, FLYI_CUDA_MEMORY_POOLS, info->device)) ||
      (code = d->device_attribute(&info->multiprocessors, FLYI_CUDA_MULTIPROCESSORS, info->device)) ||
      (code = d->device_attribute(&info->shared_memory, FLYI_CUDA_SHARED_OPTIN, info->device)))
    return flyi_cuda_fail(d, code, error, "CUDA device %d cannot be asked what it is", info->device);
  info->name[sizeof info->name - 1] = 0;
  cuda->arch = 10 * major + minor;
  snprintf(info->target, sizeof info->target, "sm_%d", cuda->arch);
  if (cuda->arch < LOWEST_ARCH)
    return flyi_fail(error, FLY_ERROR_UNSUPPORTED, "CUDA device %d, %s, is %s: kernels need sm_%d or newer",
                     info->device, info->name, info->target, LOWEST_ARCH);
  if (!pools)
    return flyi_fail(error, FLY_ERROR_UNSUPPORTED,
                     "CUDA device %d, %s, has no memory pools (cuMemAllocAsync), which calls take memory from: take a "
                     "newer driver, or a whole GPU instead of a share of a virtual one",
                     info->device, info->name);
  return FLY_OK;
}

static void free_cuda(fly_cuda *cuda) {
  pthread_mutex_destroy(&cuda->lock);
  free(cuda);
}

fly_status fly_cuda_create(const fly_cuda_desc *desc, fly_cuda **out, fly_error *error) {
  fly_cuda_desc how = {0};
  fly_status status;
  if (!out) return flyi_fail(error, FLY_ERROR_ARGUMENT, "out is NULL");
  *out = NULL;
  if (desc && !flyi_copy_struct(&how, sizeof how, desc))
    return flyi_fail(error, FLY_ERROR_ARGUMENT, "desc.size is %zu: set it with FLY_INIT(fly_cuda_desc)", desc->size);
  fly_cuda *cuda = flyi_alloc(1, sizeof *cuda);
  if (!cuda) return flyi_no_memory(error);
  cuda->references = cuda->holds = 1;
  pthread_mutex_init(&cuda->lock, NULL);
  const flyi_cuda_driver *d = &cuda->driver;
  if ((status = flyi_cuda_driver_open(&cuda->driver, error))) goto done;
  int code = d->init(0);
  if (code) {
    status = flyi_cuda_fail(d, code, error, "the CUDA driver does not start");
    goto done;
  }
  if ((status = how.primary ? take_primary(cuda, how.device, error) : take_current(cuda, error))) goto done;
  if ((status = read_info(cuda, error))) goto done;
  *out = cuda;
done:
  if (status) {
    if (cuda->primary) d->primary_release(cuda->info.device);
    free_cuda(cuda);
  }
  return status;
}

fly_cuda *fly_cuda_retain(fly_cuda *cuda) {
  if (cuda) atomic_fetch_add_explicit(&cuda->references, 1, memory_order_relaxed);
  return cuda;
}

void flyi_cuda_drop(fly_cuda *cuda) {
  if (atomic_fetch_sub_explicit(&cuda->holds, 1, memory_order_acq_rel) == 1) free_cuda(cuda);
}

void fly_cuda_release(fly_cuda **slot) {
  fly_cuda *cuda = slot ? *slot : NULL;
  if (!cuda) return;
  *slot = NULL;
  if (atomic_fetch_sub_explicit(&cuda->references, 1, memory_order_acq_rel) != 1) return;
  flyi_residents_close(cuda);
  flyi_residents_free(&cuda->own);
  if (cuda->primary) cuda->driver.primary_release(cuda->info.device);
  flyi_cuda_drop(cuda);
}

void fly_cuda_get_info(const fly_cuda *cuda, fly_cuda_info *info) {
  if (!info) return;
  *info = cuda ? cuda->info : (fly_cuda_info){0};
  if (!cuda) return;
  pthread_mutex_t *lock = (pthread_mutex_t *)&cuda->lock;
  pthread_mutex_lock(lock);
  info->resident = cuda->resident;
  info->uploads = cuda->uploads;
  pthread_mutex_unlock(lock);
}

/* ---- device memory --------------------------------------------------------------------------------------------- */

fly_status fly_cuda_alloc(fly_cuda *cuda, size_t bytes, void **out, fly_error *error) {
  flyi_device_memory memory = 0;
  bool pushed;
  if (!out) return flyi_fail(error, FLY_ERROR_ARGUMENT, "out is NULL");
  *out = NULL;
  if (!cuda) return flyi_fail(error, FLY_ERROR_ARGUMENT, "cuda is NULL");
  fly_status status = flyi_cuda_enter(cuda, &pushed, error);
  if (status) return status;
  int code = cuda->driver.alloc(&memory, bytes ? bytes : 1);
  if (code)
    status = flyi_cuda_fail(&cuda->driver, code, error, "%zu bytes of device memory", bytes);
  else
    *out = (void *)(uintptr_t)memory;
  flyi_cuda_leave(cuda, pushed);
  return status;
}

void fly_cuda_free(fly_cuda *cuda, void **slot) {
  void *memory = slot ? *slot : NULL;
  bool pushed;
  if (!cuda || !memory) return;
  *slot = NULL;
  if (flyi_cuda_enter(cuda, &pushed, NULL)) return;
  cuda->driver.free((uintptr_t)memory);
  flyi_cuda_leave(cuda, pushed);
}

static fly_status check_copy(const fly_cuda *cuda, const void *device, const void *host, size_t bytes,
                             fly_error *error) {
  if (!cuda) return flyi_fail(error, FLY_ERROR_ARGUMENT, "cuda is NULL");
  if (bytes && (!device || !host))
    return flyi_fail(error, FLY_ERROR_ARGUMENT, "%s is NULL", device ? "host" : "device");
  return FLY_OK;
}

fly_status fly_cuda_write(fly_cuda *cuda, void *device, const void *host, size_t bytes, void *stream,
                          fly_error *error) {
  bool pushed;
  fly_status status = check_copy(cuda, device, host, bytes, error);
  if (status || !bytes) return status;
  if ((status = flyi_cuda_enter(cuda, &pushed, error))) return status;
  int code = cuda->driver.write((uintptr_t)device, host, bytes, stream);
  /* Pinned memory is read when the stream gets there. */
  if (!code) code = cuda->driver.stream_synchronize(stream);
  if (code) status = flyi_cuda_fail(&cuda->driver, code, error, "%zu bytes to the device", bytes);
  flyi_cuda_leave(cuda, pushed);
  return status;
}

fly_status fly_cuda_read(fly_cuda *cuda, void *host, const void *device, size_t bytes, void *stream, fly_error *error) {
  bool pushed;
  fly_status status = check_copy(cuda, device, host, bytes, error);
  if (status || !bytes) return status;
  if ((status = flyi_cuda_enter(cuda, &pushed, error))) return status;
  int code = cuda->driver.read(host, (uintptr_t)device, bytes, stream);
  if (!code) code = cuda->driver.stream_synchronize(stream);
  if (code) status = flyi_cuda_fail(&cuda->driver, code, error, "%zu bytes from the device", bytes);
  flyi_cuda_leave(cuda, pushed);
  return status;
}

fly_status fly_cuda_synchronize(fly_cuda *cuda, void *stream, fly_error *error) {
  bool pushed;
  if (!cuda) return flyi_fail(error, FLY_ERROR_ARGUMENT, "cuda is NULL");
  fly_status status = flyi_cuda_enter(cuda, &pushed, error);
  if (status) return status;
  int code = cuda->driver.stream_synchronize(stream);
  if (code) status = flyi_cuda_fail(&cuda->driver, code, error, "what ran on the stream failed");
  flyi_cuda_leave(cuda, pushed);
  return status;
}
