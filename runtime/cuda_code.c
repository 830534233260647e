/* cuda_code.c: the PTX of a kernel. Input: an image, or a mask that is compiled now. Output: flyi_cuda_code, which a
 * kernel keeps: one for each direction and target that was asked for. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "runtime.h"

bool flyi_is_cuda_target(const char *target) {
  return target && (strcmp(target, "cuda") == 0 || strncmp(target, "sm_", 3) == 0);
}

/* ---- code and images --------------------------------------------------------------------------------------------- */

void flyi_cuda_code_free(flyi_cuda_code *code) {
  while (code) {
    flyi_cuda_code *next = code->next;
    free(code->memory);
    free(code);
    code = next;
  }
}

/* One block holds entries, names and text. */
fly_status flyi_cuda_code_of(const flyi_image *image, flyi_direction direction, flyi_cuda_code **out,
                             fly_error *error) {
  int count = image->entry_counts[direction];
  flyi_section ptx = image->ptx[direction];
  size_t entries = (size_t)count * sizeof(flyi_cuda_entry), names = 0;
  *out = NULL;
  if (count == 0) return FLY_OK;
  for (int i = 0; i < count; i++) names += strlen(image->entries[direction][i].name) + 1;
  flyi_cuda_code *code = flyi_alloc(1, sizeof *code);
  char *memory = flyi_alloc(entries + names + ptx.size, 1);
  if (!code || !memory) {
    free(code), free(memory);
    return flyi_no_memory(error);
  }
  strcpy(code->target, image->kernel.target); /* it fits: flyi_image_read */
  code->direction = direction;
  code->memory = memory;
  code->entry_count = count;
  code->entries = memcpy(memory, image->entries[direction], entries);
  char *name = memory + entries;
  for (int i = 0; i < count; i++) {
    code->entries[i].name = strcpy(name, image->entries[direction][i].name);
    name += strlen(name) + 1;
  }
  code->ptx = (flyi_section){memcpy(name, ptx.data, ptx.size), ptx.size};
  code->hash = flyi_hash_bytes(ptx.data, ptx.size);
  *out = code;
  return FLY_OK;
}

fly_status flyi_cuda_image(const fly_mask *mask, const fly_mask *score, const fly_kernel_desc *desc, const char *target,
                           const flyi_cuda_code *list, flyi_bytes *out, fly_error *error) {
  flyi_image image = mask->image;
  if (score) image.score = (flyi_section){score->bytes, score->size};
  image.kernel = *desc;
  image.kernel.target = target;
  for (const flyi_cuda_code *code = list; code; code = code->next) {
    if (strcmp(code->target, target) != 0) continue;
    image.entry_counts[code->direction] = code->entry_count;
    image.entries[code->direction] = code->entries;
    image.ptx[code->direction] = code->ptx;
  }
  return flyi_image_write(&image, out, error);
}

/* ---- a kernel's code --------------------------------------------------------------------------------------------- */

static flyi_cuda_code *find(fly_kernel *kernel, flyi_direction direction, const char *target) {
  flyi_cuda_code *code = atomic_load_explicit(&kernel->cuda, memory_order_acquire);
  while (code && (code->direction != direction || strcmp(code->target, target) != 0)) code = code->next;
  return code;
}

/* Of "sm_90" or "sm_90a", 90. */
static int number_of(const char *target) { return atoi(target + 3); }

/* The newest target that is compiled for and that a device of `device` runs: PTX of an older one runs on newer devices.
 * */
static const char *target_for(const char *device) {
  static const char *const known[] = {"sm_90", "sm_89", "sm_87", "sm_86", "sm_80"};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (number_of(known[i]) <= number_of(device)) return known[i];
  return device; /* too old: the compiler says so */
}

fly_status flyi_kernel_cuda(fly_kernel *kernel, flyi_direction direction, const char *device,
                            const flyi_cuda_code **out, fly_error *error) {
  const char *target = kernel->cuda_target;
  *out = NULL;
  if (strcmp(target, "cuda") == 0) {
    if (!device)
      return flyi_fail(error, FLY_ERROR_ARGUMENT, "target cuda names no device: make the kernel for sm_80 or the like");
    target = target_for(device);
  } else if (device && number_of(device) < number_of(target)) {
    return flyi_fail(error, FLY_ERROR_UNSUPPORTED, "the kernel is for %s, and the device is %s: make it for \"cuda\"",
                     target, device);
  }
  if ((*out = find(kernel, direction, target))) return FLY_OK;
  flyi_cuda_code *made = NULL;
  fly_status status = flyi_cuda_compile(kernel->mask, kernel->score, &kernel->desc, direction, target, &made, error);
  if (status) return status;
  /* Pushed; of two threads that come together both keep theirs. */
  flyi_cuda_code *first = atomic_load(&kernel->cuda);
  do made->next = first;
  while (!atomic_compare_exchange_weak(&kernel->cuda, &first, made));
  *out = made;
  return FLY_OK;
}
