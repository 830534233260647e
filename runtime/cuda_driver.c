/* cuda_driver.c: libcuda.so.1, opened when a GPU is asked for. Input: nothing. Output: a table of the driver's
 * functions, and errors in its words. */
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cuda_driver.h"

static const struct {
  const char *symbol;
  size_t offset;
} calls[] = {
#define ENTRY(field, symbol, parameters) {symbol, offsetof(flyi_cuda_driver, field)},
    FLYI_CUDA_CALLS(ENTRY)
#undef ENTRY
};

fly_status flyi_cuda_driver_open(flyi_cuda_driver *driver, fly_error *error) {
  *driver = (flyi_cuda_driver){0};
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char *why = dlerror();
    return flyi_fail(error, FLY_ERROR_DEVICE,
                     "no CUDA driver: %.200s (NVIDIA's driver brings libcuda.so.1; in a container, run it with GPUs)",
                     why ? why : "libcuda.so.1 does not open");
  }
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
    void *function = dlsym(library, calls[i].symbol);
    if (!function) {
      dlclose(library); /* nothing of it has run */
      return flyi_fail(error, FLY_ERROR_UNSUPPORTED,
                       "libcuda.so.1 has no %s: a driver for CUDA 11.2 or newer is needed", calls[i].symbol);
    }
    memcpy((char *)driver + calls[i].offset, &function, sizeof function);
  }
  return FLY_OK;
}

fly_status flyi_cuda_fail(const flyi_cuda_driver *driver, int code, fly_error *error, const char *format, ...) {
  char what[512];
  const char *name = NULL, *text = NULL;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(what, sizeof what, format, arguments);
  va_end(arguments);
  if (driver->error_name(code, &name) || !name) name = "an error that the driver has no name for";
  if (driver->error_text(code, &text) || !text) text = "unknown error";
  fly_status status = code == FLYI_CUDA_OUT_OF_MEMORY ? FLY_ERROR_MEMORY : FLY_ERROR_DEVICE;
  return flyi_fail(error, status, "%s: %s (%s, %d)", what, text, name, code);
}
