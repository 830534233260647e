/* cuda_module.c: kernels' PTX on devices. Input: a kernel and a direction. Output: its module, loaded once a
 * context, and the functions that this device can launch. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda.h"

enum { LOG_BYTES = 600 };

/* "sm_80", "sm_90a": 80, 90; 0 for others. */
static int arch_of(const char *target) { return strncmp(target, "sm_", 3) == 0 ? atoi(target + 3) : 0; }

fly_status flyi_cuda_load_text(fly_cuda *cuda, const char *ptx, const char *target, flyi_cuda_module *out,
                               fly_error *error) {
  char log[LOG_BYTES] = "";
  int option[] = {FLYI_CUDA_JIT_ERROR_LOG, FLYI_CUDA_JIT_ERROR_LOG_BYTES};
  void *value[] = {log, (void *)(uintptr_t)sizeof log};
  int result = cuda->driver.module_load(out, ptx, 2, option, value);
  if (!result) return FLY_OK;
  log[sizeof log - 1] = 0;
  for (char *c = log; *c; c++)
    if (*c == '\n' || *c == '\r') *c = ' ';
  return flyi_cuda_fail(&cuda->driver, result, error,
                        "the driver does not take the kernel's PTX for %s on a device of %s%s%s", target,
                        cuda->info.target, *log ? ": " : "", log);
}

static fly_status find_functions(fly_cuda *cuda, const flyi_cuda_code *code, flyi_resident *made, fly_error *error) {
  made->function = flyi_alloc(code->entry_count, sizeof(flyi_cuda_function));
  if (!made->function) return flyi_no_memory(error);
  for (int i = 0; i < code->entry_count; i++) {
    const flyi_cuda_entry *e = &code->entries[i];
    if (e->shared_bytes > cuda->info.shared_memory) continue;
    int result = cuda->driver.module_function(&made->function[i], made->module, e->name);
    if (!result) result = cuda->driver.function_set(made->function[i], FLYI_CUDA_DYNAMIC_SHARED, e->shared_bytes);
    if (result)
      return flyi_cuda_fail(&cuda->driver, result, error, "kernel %s with %d bytes of shared memory", e->name,
                            e->shared_bytes);
  }
  return FLY_OK;
}

static fly_status load(fly_kernel *kernel, fly_cuda *cuda, const flyi_cuda_code *code, flyi_resident **out,
                       fly_error *error) {
  flyi_resident made = {.cuda = cuda, .key = code->hash};
  fly_status status = flyi_cuda_load_text(cuda, code->ptx.data, code->target, &made.module, error);
  if (status) return status;
  status = find_functions(cuda, code, &made, error);
  if (!status) status = flyi_resident_add(&kernel->residents, &made, out, error);
  if (status) {
    cuda->driver.module_unload(made.module);
    free(made.function);
  }
  return status;
}

fly_status flyi_cuda_load(fly_kernel *kernel, flyi_direction direction, fly_cuda *cuda, flyi_cuda_loaded *out,
                          fly_error *error) {
  fly_status status = flyi_kernel_cuda(kernel, direction, cuda->info.target, &out->code, error);
  if (status) return status;
  if (arch_of(out->code->target) > cuda->arch)
    return flyi_fail(error, FLY_ERROR_UNSUPPORTED, "the kernel is for %s: CUDA device %d, %s, is %s", out->code->target,
                     cuda->info.device, cuda->info.name, cuda->info.target);
  pthread_mutex_lock(&cuda->lock);
  flyi_resident *r = flyi_resident_find(&kernel->residents, cuda, out->code->hash);
  if (!r) status = load(kernel, cuda, out->code, &r, error);
  pthread_mutex_unlock(&cuda->lock);
  if (!status) out->function = r->function;
  return status;
}

int flyi_cuda_entry_of(const flyi_cuda_loaded *loaded, flyi_cuda_role role, bool aligned) {
  for (int i = 0; i < loaded->code->entry_count; i++) {
    const flyi_cuda_entry *e = &loaded->code->entries[i];
    if (e->role == (int)role && loaded->function[i] && (aligned || !(e->needs & FLYI_CUDA_ALIGNED))) return i;
  }
  return -1;
}
