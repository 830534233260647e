/* compile.h: from the source of a mask or a score modifier to an object, and from there, with values for its parameters
 * and buffers, to what a call takes. A part of flymask.h. */
#ifndef FLYMASK_API_COMPILE_H
#define FLYMASK_API_COMPILE_H

#include <flymask/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- 3. Compile a mask ------------------------------------------------------------------------------------------- */

/* A verified, analysed mask with its compiled code: what flymask/mask.h describes, after its way
 * through the compiler. */
typedef struct fly_mask fly_mask;

/* A parameter's value or a buffer, by name. */
typedef struct fly_arg {
  const char *name;
  enum { FLY_ARG_INTEGER, FLY_ARG_REAL, FLY_ARG_BUFFER } kind;
  union {
    int64_t integer;
    double real;
    fly_buffer *buffer;
  };
} fly_arg;
#define FLY_INT(NAME, VALUE) ((fly_arg){.name = (NAME), .kind = FLY_ARG_INTEGER, .integer = (VALUE)})
#define FLY_REAL(NAME, VALUE) ((fly_arg){.name = (NAME), .kind = FLY_ARG_REAL, .real = (VALUE)})
#define FLY_CAPTURE(NAME, BUFFER) ((fly_arg){.name = (NAME), .kind = FLY_ARG_BUFFER, .buffer = (BUFFER)})

typedef struct fly_compile_options {
  size_t size;
  const char *clang;     /* the compiler to run; default: $FLYMASK_CLANG, then clang-<LLVM major>, then clang */
  const char *cache;     /* directory of the cache; default: $XDG_CACHE_HOME/flymask, ~/.cache/flymask; "": no cache */
  const char *target;    /* "x86-64", "x86-64-v3", "x86-64-v4", "x86-64-v4-bf16", "aarch64"; default: the best of this
                            machine. What is made for another architecture serves fly_kernel_image alone */
  const fly_arg *bake;   /* parameters made constants of the code: faster, but another value compiles again */
  int bake_count;
  double clang_seconds;  /* time limit for clang; default 10, at most a day */
  size_t clang_bytes;    /* memory limit for clang; default 2 GiB */
  double check_seconds;  /* time limit for what fly_mask_check and fly_score_check look at; default 60, at most a day */
} fly_compile_options;

/* Compiles the mask in `source` (a NUL-terminated C text; `name` is the file name in errors), or takes it from the
 * cache. options may be NULL. Several threads may compile at once. [compiler] */
FLY_API fly_status fly_mask_compile(const char *source, const char *name, const fly_compile_options *options,
                                    fly_mask **out, fly_error *error);
/* The same for a file. [compiler] */
FLY_API fly_status fly_mask_compile_file(const char *path, const fly_compile_options *options, fly_mask **out,
                                         fly_error *error);

typedef enum fly_combine { FLY_AND, FLY_OR, FLY_NOT } fly_combine;

/* The mask `left and right`, `left or right`, or `not left` (right is then NULL). Parameters and buffers of both
 * remain; a name that both have becomes NAME.left and NAME.right. The 65,536 rounds of loops (flymask/mask.h) count for
 * each part alone: one that runs out of them is false, the rest is as ever. What comes out
 * combines again. [compiler] */
FLY_API fly_status fly_mask_combine(fly_combine how, const fly_mask *left, const fly_mask *right,
                                    const fly_compile_options *options, fly_mask **out, fly_error *error);

FLY_API fly_mask *fly_mask_retain(fly_mask *mask);
FLY_API void fly_mask_release(fly_mask **mask);

typedef struct fly_parameter_info {
  const char *name;
  fly_type type;
  union {
    int64_t integer; /* all integer types and FLY_BOOL */
    double real;     /* FLY_F32, FLY_F64 */
  } value;           /* the default */
} fly_parameter_info;

typedef struct fly_buffer_info {
  const char *name;
  fly_type type;
  int rank;
} fly_buffer_info;

/* What a mask declares and reads. Owned by the mask. */
typedef struct fly_mask_info {
  const char *name;   /* the source's file name */
  const char *target; /* what its code is for */
  int parameter_count, buffer_count;
  const fly_parameter_info *parameters;
  const fly_buffer_info *buffers;
  bool reads_b, reads_h, reads_q, reads_kv; /* b or h also through fly_token_... and fly_len_... */
  bool reads_token_q, reads_token_kv, reads_len_q, reads_len_kv;
  bool from_cache;    /* this object came from the cache, without a compilation */
} fly_mask_info;

FLY_API const fly_mask_info *fly_mask_get_info(const fly_mask *mask);

/* ---- 4. Bind parameters and buffers; score modifiers ------------------------------------------------------------- */

/* A mask with a value for every parameter (the default where none is given) and a buffer for every declaration. It
 * retains the mask and the buffers, and copies the args: the caller may release or change all of them. */
typedef struct fly_bound fly_bound;

/* An unknown name, a missing buffer, another element type or rank, a value outside the parameter's type: an error. */
FLY_API fly_status fly_mask_bind(fly_mask *mask, const fly_arg *args, int count, fly_bound **out, fly_error *error);
FLY_API fly_bound *fly_bound_retain(fly_bound *bound);
FLY_API void fly_bound_release(fly_bound **bound);

/* Score modifiers: what flymask/score.h describes, s' = score(s, b, h, q, kv) for each pair before the softmax, with
 * the derivative that the backward pass needs. They are compiled, cached, bound and described as masks are, from
 * sources of their own; a kernel joins one with a mask (fly_kernel_desc), and a call binds both. */
typedef struct fly_score fly_score;

FLY_API fly_status fly_score_compile(const char *source, const char *name, const fly_compile_options *options,
                                     fly_score **out, fly_error *error); /* [compiler] */
FLY_API fly_status fly_score_compile_file(const char *path, const fly_compile_options *options, fly_score **out,
                                          fly_error *error); /* [compiler] */
FLY_API fly_score *fly_score_retain(fly_score *score);
FLY_API void fly_score_release(fly_score **score);
FLY_API const fly_mask_info *fly_score_get_info(const fly_score *score);
FLY_API fly_status fly_score_bind(fly_score *score, const fly_arg *args, int count, fly_bound **out, fly_error *error);

#ifdef __cplusplus
}
#endif
#endif
