/* kernel.c: kernels: a mask, perhaps a score modifier, an element type, head dimensions and a target. On the CPU the
 * code of one is there already: the mask's and the modifier's functions, and the target's builds of the templates
 * (cpu.c). For a GPU it is PTX, made or loaded when it is asked for (cuda_code.c). */
#include <stdlib.h>
#include <string.h>

#include "runtime.h"

static fly_status check_desc(const fly_kernel_desc *d, fly_error *error) {
  if (d->type != FLY_F32 && d->type != FLY_F16 && d->type != FLY_BF16)
    return flyi_fail(error, FLY_ERROR_ARGUMENT, "desc.type is %s: kernels are for f32, f16 or bf16",
                     fly_type_name(d->type));
  if (d->head_dim < 1 || d->head_dim > FLYI_MAX_DIM)
    return flyi_fail(error, FLY_ERROR_ARGUMENT, "desc.head_dim is %d: it must be 1 to 512", d->head_dim);
  if (d->value_dim < 1 || d->value_dim > FLYI_MAX_DIM)
    return flyi_fail(error, FLY_ERROR_ARGUMENT, "desc.value_dim is %d: it must be 1 to 512, or 0 for head_dim",
                     d->value_dim);
  return FLY_OK;
}

/* The level that `target` names, which may be of another architecture if the mask or modifier is compiled for that. */
static fly_status find_isa(const fly_mask *mask, const char *target, const char *what, flyi_isa *out,
                           fly_error *error) {
  fly_status status = flyi_isa_parse_any(target, out, error);
  if (status || flyi_isa_is_here(*out) != mask->elsewhere) return status;
  return flyi_fail(error, FLY_ERROR_ARGUMENT,
                   "a kernel for %s, and its %s is compiled for %s: set the target in "
                   "fly_compile_options too",
                   flyi_isa_name(*out), what, mask->image.target);
}

fly_status fly_kernel_create(fly_mask *mask, const fly_kernel_desc *desc, fly_kernel **out, fly_error *error) {
  fly_kernel_desc d;
  flyi_isa isa;
  fly_status status;
  if (!out) return flyi_fail(error, FLY_ERROR_ARGUMENT, "out is NULL");
  *out = NULL;
  if (!mask) return flyi_fail(error, FLY_ERROR_ARGUMENT, "mask is NULL");
  if (!desc) return flyi_fail(error, FLY_ERROR_ARGUMENT, "desc is NULL");
  if (!flyi_copy_struct(&d, sizeof d, desc))
    return flyi_fail(error, FLY_ERROR_ARGUMENT, "desc.size is %zu: set it with FLY_INIT(fly_kernel_desc)", desc->size);
  if (d.value_dim == 0) d.value_dim = d.head_dim;
  if ((status = check_desc(&d, error))) return status;
  bool cuda = flyi_is_cuda_target(d.target);
  if (cuda && strlen(d.target) >= sizeof((fly_kernel *)0)->cuda_target)
    return flyi_fail(error, FLY_ERROR_ARGUMENT, "desc.target is %.40s: not a target", d.target);
  if (cuda && (d.head_dim > 256 || d.value_dim > 256))
    return flyi_fail(error, FLY_ERROR_UNSUPPORTED, "desc.head_dim is %d, value_dim %d: kernels for GPUs go up to 256",
                     d.head_dim, d.value_dim);
  if ((status = find_isa(mask, d.target && !cuda ? d.target : mask->image.target, "mask", &isa, error))) return status;
  if (d.score && !cuda &&
      (status = find_isa(flyi_of_score(d.score), flyi_isa_name(isa), "score modifier", &isa, error)))
    return status;
  fly_kernel *kernel = flyi_alloc(1, sizeof *kernel);
  if (!kernel) return flyi_no_memory(error);
  if (cuda) strcpy(kernel->cuda_target, d.target);
  fly_score *score = d.score;
  d.target = NULL, d.score = NULL;
  kernel->references = 1;
  kernel->mask = fly_mask_retain(mask);
  kernel->score = fly_mask_retain(flyi_of_score(score));
  kernel->desc = d;
  kernel->isa = isa;
  *out = kernel;
  return FLY_OK;
}

fly_kernel *fly_kernel_retain(fly_kernel *kernel) {
  if (kernel) atomic_fetch_add_explicit(&kernel->references, 1, memory_order_relaxed);
  return kernel;
}

void fly_kernel_release(fly_kernel **slot) {
  fly_kernel *kernel = slot ? *slot : NULL;
  if (!kernel) return;
  *slot = NULL;
  if (atomic_fetch_sub_explicit(&kernel->references, 1, memory_order_acq_rel) != 1) return;
  flyi_residents_free(&kernel->residents);
  flyi_bytes *image = atomic_load(&kernel->image);
  if (image) flyi_bytes_free(image);
  free(image);
  flyi_cuda_code_free(atomic_load(&kernel->cuda));
  fly_mask_release(&kernel->mask);
  fly_mask_release(&kernel->score);
  free(kernel);
}

fly_mask *fly_kernel_mask(const fly_kernel *kernel) { return kernel ? kernel->mask : NULL; }

fly_score *fly_kernel_score(const fly_kernel *kernel) { return kernel ? (fly_score *)kernel->score : NULL; }
