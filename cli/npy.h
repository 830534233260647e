/* npy.h: arrays in numpy's .npy files. Reading turns every accepted form (versions 1 to 3, either byte order, C or
 * Fortran order) into a row-major array in the machine's byte order; writing makes version 1.0. */
#ifndef FLYMASK_NPY_H
#define FLYMASK_NPY_H

#include <flymask/flymask.h>

enum { NPY_MAX_RANK = 8 };

typedef struct npy_array {
  fly_type type; /* FLY_F16, FLY_F32, FLY_F64, an integer type or FLY_BOOL */
  int rank;
  int64_t shape[NPY_MAX_RANK], count;
  void *data; /* row-major; at least one byte is allocated */
} npy_array;

/* Reads a file or a pipe. Errors name the file: FLY_ERROR_IO what the system says, FLY_ERROR_ARGUMENT what is wrong
 * in it. */
fly_status npy_read(const char *path, npy_array *out, fly_error *error);
/* Converts in place. Integers must fit, reals must be whole where an integer type is wanted; reals may round to f32. */
fly_status npy_convert(npy_array *array, fly_type type, const char *path, fly_error *error);
void npy_free(npy_array *array);

/* Writes version 1.0, row-major, little-endian; by rename (file_save). Not FLY_BF16, which .npy does not have. */
fly_status npy_write(const char *path, fly_type type, int rank, const int64_t *shape, const void *data,
                     fly_error *error);

#endif
