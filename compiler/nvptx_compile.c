/* nvptx_compile.c: a CUDA kernel's code from its mask. Input: a mask, and perhaps a score modifier, with their verified
 * IR. Output: PTX and its entries.
 * The cache keeps them as an image of the kernel with one direction. */
#include <stdlib.h>
#include <string.h>

#include <llvm-c/BitReader.h>

#include "compiler.h"

/* score NULL: none. */
typedef struct sources {
  const flyi_image *mask, *score;
} sources;

static sources sources_of(const fly_mask *mask, const fly_mask *score) {
  return (sources){&mask->image, score ? &score->image : NULL};
}

static int slots_of(const flyi_image *image) {
  return image ? image->parameter_count + image->buffer_count * FLYI_BUFFER_SLOTS : 0;
}

static bool has_tables(const flyi_image *image) {
  for (int i = 0; image && i < image->buffer_count; i++)
    if (image->buffers[i].rank > 1) return true;
  return false;
}

static fly_status make_plan(const sources *s, const fly_kernel_desc *desc, flyi_direction direction, const char *target,
                            flyi_cuda_plan *plan, fly_error *error) {
  const flyi_cuda_sources sources = {slots_of(s->mask) + slots_of(s->score), s->score != NULL, has_tables(s->score)};
  return flyi_cuda_plan_make(desc, direction, target, sources, plan, error);
}

/* ---- the cache --------------------------------------------------------------------------------------------------- */

static bool add(flyi_bytes *bytes, const void *data, size_t size) {
  return flyi_bytes_add(bytes, &size, sizeof size) && flyi_bytes_add(bytes, data, size);
}

static bool add_source(flyi_bytes *bytes, const flyi_image *image) {
  return add(bytes, &image->identity, sizeof image->identity) && add(bytes, image->name, strlen(image->name)) &&
         add(bytes, image->target, strlen(image->target)) && add(bytes, image->ir.data, image->ir.size);
}

/* Of the mask and the modifier as they were verified, the plan, and what compiles. */
static bool make_key(const sources *s, const flyi_cuda_plan *plan, flyi_direction direction, const char *target,
                     flyi_hash *key) {
  unsigned llvm[3];
  flyi_bytes bytes = {0};
  int numbers[] = {(int)direction, s->mask->kernel.type, plan->entry_count, plan->all_registers};
  LLVMGetVersion(&llvm[0], &llvm[1], &llvm[2]);
  bool good = add(&bytes, &flyi_build_id, sizeof flyi_build_id) && add(&bytes, llvm, sizeof llvm) &&
              add(&bytes, target, strlen(target)) && add(&bytes, numbers, sizeof numbers) &&
              add_source(&bytes, s->mask) && (!s->score || add_source(&bytes, s->score));
  for (int p = 0; p < plan->part_count; p++) {
    const flyi_cuda_part *part = &plan->parts[p];
    good = good && add(&bytes, part->bitcode.data, part->bitcode.size);
    for (int i = 0; i < part->constant_count; i++)
      good = good && add(&bytes, part->constants[i].name, strlen(part->constants[i].name)) &&
             add(&bytes, &part->constants[i].value, sizeof part->constants[i].value);
  }
  if (good) *key = flyi_hash_bytes(bytes.data, bytes.size);
  flyi_bytes_free(&bytes);
  return good;
}

static flyi_cuda_code *cached(const fly_mask *mask, const fly_kernel_desc *desc, flyi_direction direction,
                              const char *target, flyi_hash key) {
  flyi_bytes bytes;
  flyi_image image;
  flyi_cuda_code *code = NULL;
  if (!flyi_cache_read(mask->cache, key, &bytes)) return NULL;
  if (!flyi_image_read(bytes.data, bytes.size, &image, NULL)) {
    bool wanted = flyi_hash_equal(image.identity, mask->image.identity) && image.kernel.type == desc->type &&
                  image.kernel.head_dim == desc->head_dim && image.kernel.value_dim == desc->value_dim &&
                  image.kernel.target && strcmp(image.kernel.target, target) == 0;
    if (wanted && flyi_cuda_code_of(&image, direction, &code, NULL)) code = NULL;
    flyi_image_free(&image);
  }
  flyi_bytes_free(&bytes);
  return code;
}

/* ---- compiling --------------------------------------------------------------------------------------------------- */

static flyi_declarations declarations_of(const flyi_image *image) {
  if (!image) return (flyi_declarations){0};
  return (flyi_declarations){image->parameter_count, image->buffer_count, image->parameters, image->buffers, NULL};
}

/* image NULL: nothing. */
static fly_status parse(LLVMContextRef context, const flyi_image *image, LLVMModuleRef *out, fly_error *error) {
  *out = NULL;
  if (!image) return FLY_OK;
  if (!image->ir.size)
    return flyi_fail(error, FLY_ERROR_UNSUPPORTED, "the image of %s holds no IR to compile kernels from", image->name);
  LLVMMemoryBufferRef buffer = LLVMCreateMemoryBufferWithMemoryRange(image->ir.data, image->ir.size, "mask", false);
  bool failed = LLVMParseBitcodeInContext2(context, buffer, out);
  LLVMDisposeMemoryBuffer(buffer);
  if (!failed) return FLY_OK;
  *out = NULL;
  return flyi_fail(error, FLY_ERROR_IMAGE, "the IR of %s cannot be read", image->name);
}

static fly_status compile(const sources *s, const flyi_cuda_plan *plan, const char *target, fly_emit what,
                          flyi_bytes *out, fly_error *error) {
  flyi_declarations of_mask = declarations_of(s->mask), of_score = declarations_of(s->score);
  flyi_symbolic mask = {.declarations = &of_mask}, score = {.declarations = &of_score};
  *out = (flyi_bytes){0};
  LLVMContextRef context = flyi_context_create();
  fly_status status = parse(context, s->mask, &mask.module, error);
  if (!status && (status = parse(context, s->score, &score.module, error))) LLVMDisposeModule(mask.module);
  if (!status) status = flyi_nvptx(mask, score, plan, target, what, out, error); /* consumes the modules */
  LLVMContextDispose(context);
  return status;
}

/* The code as an image that holds it alone, and from that the code: what comes from the cache and from a compilation is
 * the same. */
static fly_status keep(const fly_mask *mask, const fly_kernel_desc *desc, flyi_direction direction, const char *target,
                       const flyi_cuda_plan *plan, flyi_section ptx, flyi_hash key, flyi_cuda_code **out,
                       fly_error *error) {
  flyi_image image = mask->image;
  flyi_bytes bytes = {0};
  image.kernel = *desc, image.kernel.target = target;
  for (int d = 0; d < FLYI_DIRECTIONS; d++) image.entry_counts[d] = 0, image.ptx[d] = (flyi_section){0};
  image.entry_counts[direction] = plan->entry_count;
  image.entries[direction] = (flyi_cuda_entry *)plan->entries;
  image.ptx[direction] = ptx;
  fly_status status = flyi_image_write(&image, &bytes, error);
  if (!status) flyi_cache_write(mask->cache, key, bytes.data, bytes.size);
  flyi_bytes_free(&bytes);
  return status ? status : flyi_cuda_code_of(&image, direction, out, error);
}

fly_status flyi_cuda_compile(const fly_mask *mask, const fly_mask *score, const fly_kernel_desc *desc,
                             flyi_direction direction, const char *target, flyi_cuda_code **out, fly_error *error) {
  const sources s = sources_of(mask, score);
  flyi_cuda_plan plan;
  flyi_bytes text;
  flyi_hash key;
  *out = NULL;
  fly_status status = make_plan(&s, desc, direction, target, &plan, error);
  if (status) return status;
  if (!make_key(&s, &plan, direction, target, &key)) return flyi_no_memory(error);
  if ((*out = cached(mask, desc, direction, target, key))) return FLY_OK;
  status = compile(&s, &plan, target, FLY_EMIT_ASM, &text, error);
  if (status) return status;
  status = keep(mask, desc, direction, target, &plan, (flyi_section){text.data, text.size}, key, out, error);
  flyi_bytes_free(&text);
  return status;
}

fly_status fly_kernel_emit(const fly_kernel *kernel, fly_pass pass, fly_emit what, char **text, fly_error *error) {
  flyi_cuda_plan plan;
  flyi_bytes bytes;
  const flyi_direction direction = (flyi_direction)pass;
  if (!text) return flyi_fail(error, FLY_ERROR_ARGUMENT, "text is NULL");
  *text = NULL;
  if (!kernel) return flyi_fail(error, FLY_ERROR_ARGUMENT, "kernel is NULL");
  if (pass != FLY_PASS_FORWARD && pass != FLY_PASS_BACKWARD && pass != FLY_PASS_DECODE)
    return flyi_fail(error, FLY_ERROR_ARGUMENT, "pass is %d", (int)pass);
  if (what != FLY_EMIT_LL && what != FLY_EMIT_ASM) return flyi_fail(error, FLY_ERROR_ARGUMENT, "what is %d", (int)what);
  if (!kernel->cuda_target[0])
    return flyi_fail(error, FLY_ERROR_ARGUMENT,
                     "a kernel for the CPU: fly_mask_emit gives what is compiled of its mask");
  if (strcmp(kernel->cuda_target, "cuda") == 0)
    return flyi_fail(error, FLY_ERROR_ARGUMENT, "target cuda names no device: make the kernel for sm_80 or the like");
  const sources s = sources_of(kernel->mask, kernel->score);
  fly_status status = make_plan(&s, &kernel->desc, direction, kernel->cuda_target, &plan, error);
  if (!status) status = compile(&s, &plan, kernel->cuda_target, what, &bytes, error);
  if (!status) *text = (char *)bytes.data;
  return status;
}
