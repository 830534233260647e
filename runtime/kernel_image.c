/* kernel_image.c: kernels as bytes. The code of a kernel is its mask's image; the image says beside it for which
 * element type, dimensions and vector level the kernel was made, and holds the image of its score modifier. */
#include <stdlib.h>
#include <string.h>

#include "runtime.h"

/* All code of a kernel for a CUDA device that there is. */
static fly_status write_cuda(fly_kernel *kernel, flyi_bytes *out, fly_error *error) {
  const flyi_cuda_code *code;
  for (int d = 0; d < FLYI_DIRECTIONS; d++) {
    if (d == FLYI_DIRECTION_SPLIT && kernel->score) continue; /* such calls go the usual way */
    fly_status status = flyi_kernel_cuda(kernel, (flyi_direction)d, NULL, &code, error);
    if (status && (d == FLYI_DIRECTION_FORWARD || status != FLY_ERROR_UNSUPPORTED)) return status;
  }
  return flyi_cuda_image(kernel->mask, kernel->score, &kernel->desc, kernel->cuda_target, atomic_load(&kernel->cuda),
                         out, error);
}

static fly_status write_image(const fly_kernel *kernel, flyi_bytes *out, fly_error *error) {
  if (kernel->cuda_target[0]) return write_cuda((fly_kernel *)kernel, out, error);
  flyi_image image = kernel->mask->image;
  image.kernel = kernel->desc;
  image.kernel.target = flyi_isa_name(kernel->isa);
  if (kernel->score) image.score = (flyi_section){kernel->score->bytes, kernel->score->size};
  return flyi_image_write(&image, out, error);
}

static flyi_bytes *make_image(const fly_kernel *kernel, fly_status *status, fly_error *error) {
  flyi_bytes *bytes = flyi_alloc(1, sizeof *bytes);
  if (!bytes) {
    *status = flyi_no_memory(error);
    return NULL;
  }
  if ((*status = write_image(kernel, bytes, error))) {
    free(bytes);
    return NULL;
  }
  return bytes;
}

fly_status fly_kernel_image(const fly_kernel *kernel, const void **bytes, size_t *size, fly_error *error) {
  if (!bytes || !size) return flyi_fail(error, FLY_ERROR_ARGUMENT, "%s is NULL", bytes ? "size" : "bytes");
  *bytes = NULL;
  *size = 0;
  if (!kernel) return flyi_fail(error, FLY_ERROR_ARGUMENT, "kernel is NULL");
  /* Made once; of two threads that come first together, one throws its own away. */
  _Atomic(flyi_bytes *) *slot = (_Atomic(flyi_bytes *) *)&kernel->image;
  flyi_bytes *image = atomic_load_explicit(slot, memory_order_acquire);
  if (!image) {
    fly_status status = FLY_OK;
    flyi_bytes *made = make_image(kernel, &status, error);
    if (!made) return status;
    if (atomic_compare_exchange_strong(slot, &image, made)) {
      image = made;
    } else {
      flyi_bytes_free(made);
      free(made);
    }
  }
  *bytes = image->data;
  *size = image->size;
  return FLY_OK;
}

/* The score modifier of a kernel's image; *out is NULL where it has none. */
static fly_status load_score(const flyi_image *image, fly_mask **out, fly_error *error) {
  *out = NULL;
  if (!image->score.size) return FLY_OK;
  uint8_t *copy = flyi_alloc(image->score.size, 1);
  if (!copy) return flyi_no_memory(error);
  memcpy(copy, image->score.data, image->score.size);
  fly_status status = flyi_mask_from_image(copy, image->score.size, (flyi_code){0}, FLYI_LOADED, out, error);
  if (status || (*out)->image.kind == FLYI_SCORE) return status;
  fly_mask_release(out);
  return flyi_fail(error, FLY_ERROR_IMAGE, "damaged image: its score modifier is none");
}

/* What the image holds for CUDA devices. */
static fly_status take_cuda(fly_kernel *kernel, fly_error *error) {
  fly_status status = FLY_OK;
  for (int d = 0; d < FLYI_DIRECTIONS && !status; d++) {
    flyi_cuda_code *code, *first = atomic_load(&kernel->cuda);
    status = flyi_cuda_code_of(&kernel->mask->image, (flyi_direction)d, &code, error);
    if (code) code->next = first, atomic_store(&kernel->cuda, code);
  }
  if (!status && kernel->cuda_target[0] && !atomic_load(&kernel->cuda))
    status = flyi_fail(error, FLY_ERROR_IMAGE, "an image for %s that holds no code for it", kernel->cuda_target);
  return status;
}

fly_status fly_kernel_load(const void *bytes, size_t size, fly_kernel **out, fly_error *error) {
  if (!out) return flyi_fail(error, FLY_ERROR_ARGUMENT, "out is NULL");
  *out = NULL;
  if (!bytes) return flyi_fail(error, FLY_ERROR_ARGUMENT, "bytes is NULL");
  uint8_t *copy = flyi_alloc(size, 1);
  if (!copy) return flyi_no_memory(error);
  memcpy(copy, bytes, size);
  fly_mask *mask, *score = NULL;
  fly_status status = flyi_mask_from_image(copy, size, (flyi_code){0}, FLYI_LOADED, &mask, error); /* takes the copy */
  if (status) return status;
  fly_kernel_desc desc = mask->image.kernel;
  fly_error why;
  flyi_isa isa;
  if (desc.type == FLY_TYPE_NONE)
    status = flyi_fail(error, FLY_ERROR_IMAGE, "the image of a mask, not of a kernel");
  else if (desc.target && !flyi_is_cuda_target(desc.target) && flyi_isa_parse(desc.target, &isa, &why))
    status = flyi_fail(error, FLY_ERROR_IMAGE, "an image that does not run here: %s", why.message);
  else
    status = load_score(&mask->image, &score, error);
  desc.score = (fly_score *)score;
  if (!status) status = fly_kernel_create(mask, &desc, out, error);
  if (!status) status = take_cuda(*out, error);
  if (status && *out) fly_kernel_release(out);
  fly_mask_release(&score);
  fly_mask_release(&mask);
  return status;
}
