/* image.h: masks, modifiers and kernels compiled ahead of time, and what the compiler made of them as text. A part of
 * flymask.h. */
#ifndef FLYMASK_API_IMAGE_H
#define FLYMASK_API_IMAGE_H

#include <flymask/attention.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- 9. Images --------------------------------------------------------------------------------------------------- */

/* A kernel as plain bytes: version, target, code, mask program, declarations, shapes. They can be kept, shipped and
 * loaded where there is no compiler. The bytes stay the kernel's. */
FLY_API fly_status fly_kernel_image(const fly_kernel *kernel, const void **bytes, size_t *size, fly_error *error);
/* Checks everything before anything is trusted: what is damaged, foreign, of another version or build, or for a machine
 * other than this one is FLY_ERROR_IMAGE. But the machine code in an image is not verified: it runs in this process
 * with all its rights, and a checksum that fits proves nothing about who wrote it. Load images only from where you
 * would load a shared library. */
FLY_API fly_status fly_kernel_load(const void *bytes, size_t size, fly_kernel **out, fly_error *error);

/* What the compiler made on the way, as text: FLY_EMIT_LL after optimisation, FLY_EMIT_ASM. *text is the caller's, to
 * be freed with free(). [compiler] */
typedef enum fly_emit { FLY_EMIT_LL, FLY_EMIT_ASM } fly_emit;
FLY_API fly_status fly_mask_emit(const char *source, const char *name, const fly_compile_options *options,
                                 fly_emit what, char **text, fly_error *error);
FLY_API fly_status fly_score_emit(const char *source, const char *name, const fly_compile_options *options,
                                  fly_emit what, char **text, fly_error *error);

/* The same of a kernel for a GPU, whose assembly is PTX: of its forward kernels, the backward ones, or those for few
 * queries and many keys. [compiler] */
typedef enum fly_pass { FLY_PASS_FORWARD, FLY_PASS_BACKWARD, FLY_PASS_DECODE } fly_pass;
FLY_API fly_status fly_kernel_emit(const fly_kernel *kernel, fly_pass pass, fly_emit what, char **text,
                                   fly_error *error);

/* The targets this machine runs, best first, NULL-terminated: "x86-64-v4-bf16" (x86-64-v4 with AVX512-BF16: bf16
 * tensors are multiplied as they are, and P rounded to bf16: beside f32's errors, an output is off by at most 2^-8 sum
 * P |V|, dV by 2^-8 sum P |dO|, dQ and dK by 2^-8 sum |dS| |K| and |Q|; subnormal numbers are zeros), "x86-64-v4",
 * "x86-64-v3", "x86-64"; on AArch64 "aarch64" (NEON; f16 and bf16 are widened to f32). A mask is compiled for any of
 * all these, also of the architecture that is not this machine's: it cannot be bound here (FLY_ERROR_UNSUPPORTED), but
 * a kernel made of it has an image, which fly_kernel_load takes on such a machine. */
FLY_API const char *const *fly_cpu_targets(void);

#ifdef __cplusplus
}
#endif
#endif
