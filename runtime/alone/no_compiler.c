/* no_compiler.c: what libflymask_runtime has in the place of the compiler. */
#include "runtime/runtime.h"

fly_status flyi_cuda_compile(const fly_mask *mask, const fly_mask *score, const fly_kernel_desc *desc,
                             flyi_direction direction, const char *target, flyi_cuda_code **out, fly_error *error) {
  static const char *const names[] = {"forward", "backward", "split"};
  (void)mask, (void)score, (void)desc;
  *out = NULL;
  return flyi_fail(error, FLY_ERROR_UNSUPPORTED,
                   "no %s kernel for %s is in the image, and this library has no compiler: load one that "
                   "`flymask build --target %s` made, or link libflymask",
                   names[direction], target, target);
}
