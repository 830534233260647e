/* npy_header.h: the header of a .npy file, a Python dictionary of three entries, between npy.c and its parser. */
#ifndef FLYMASK_NPY_HEADER_H
#define FLYMASK_NPY_HEADER_H

#include "npy.h"

enum { NPY_MAX_HEADER = 1 << 16 };

typedef struct npy_header {
  npy_array array; /* without data */
  bool swapped, fortran;
} npy_header;

/* Sizes are checked: the array's bytes fit in a ptrdiff_t. */
fly_status npy_header_parse(const char *text, const char *path, npy_header *out, fly_error *error);
/* "<f4" for FLY_F32; NULL: the format has no such type. */
const char *npy_type_code(fly_type type);

#endif
