/* types.h: what every other part of the API uses: status and error, element types, captured buffers. A part of
 * flymask.h, which states the conventions. */
#ifndef FLYMASK_API_TYPES_H
#define FLYMASK_API_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(FLYMASK_STATIC)
#define FLY_API
#else
#define FLY_API __attribute__((visibility("default")))
#endif

#define FLY_VERSION "0.1.0"
#define FLY_INIT(type) .size = sizeof(type)

/* ---- 1. Errors --------------------------------------------------------------------------------------------------- */

typedef enum fly_status {
  FLY_OK = 0,
  FLY_ERROR_ARGUMENT = -1,    /* a value, shape or combination that this call does not accept */
  FLY_ERROR_MEMORY = -2,      /* out of memory */
  FLY_ERROR_SOURCE = -3,      /* a mask's or modifier's source does not compile, or is refused; it says where */
  FLY_ERROR_TOOL = -4,        /* clang is missing, too new, or was stopped by its limits */
  FLY_ERROR_IMAGE = -5,       /* an image that is damaged, foreign, of another version or target */
  FLY_ERROR_IO = -6,          /* a file or directory */
  FLY_ERROR_UNSUPPORTED = -7, /* well-formed, but not something this build or machine can do */
  FLY_ERROR_INTERNAL = -8,    /* our own fault: please report it */
  FLY_ERROR_DEVICE = -9       /* the CUDA driver: it is missing, or it refused; the message has its words */
} fly_status;

/* What went wrong and what to do about it. line and column count from 1 and are 0 where there is
 * no place in a source. */
typedef struct fly_error {
  fly_status status;
  int line, column;
  char file[256];
  char message[1024]; /* one line, without file and line; ends without a newline */
} fly_error;

/* A short name of a status: "argument", "source", ... Never NULL. */
FLY_API const char *fly_status_name(fly_status status);

/* ---- 2. Element types and captured buffers ----------------------------------------------------------------------- */

typedef enum fly_type {
  FLY_TYPE_NONE,
  FLY_F32, FLY_F16, FLY_BF16, /* tensors; FLY_F32 also for buffers and parameters */
  FLY_F64,                    /* parameters only */
  FLY_I8, FLY_I16, FLY_I32, FLY_I64, FLY_U8, FLY_U16, FLY_U32, FLY_U64, /* buffers and parameters */
  FLY_BOOL                    /* parameters, and buffers of bytes 0 or 1 */
} fly_type;

FLY_API size_t fly_type_size(fly_type type);      /* in bytes; 0 for FLY_TYPE_NONE */
FLY_API const char *fly_type_name(fly_type type); /* "f32", "i8", ... */

/* Data that a mask reads. An immutable copy of host memory in row-major order. */
typedef struct fly_buffer fly_buffer;

/* Copies rank (1 to 4) dimensions of `type` from `data`. Dimensions of 0 are allowed; reads of
 * an empty buffer give 0. */
FLY_API fly_status fly_buffer_create(fly_type type, int rank, const int64_t *shape, const void *data, fly_buffer **out,
                                     fly_error *error);
FLY_API fly_buffer *fly_buffer_retain(fly_buffer *buffer);
FLY_API void fly_buffer_release(fly_buffer **buffer);

#ifdef __cplusplus
}
#endif
#endif
