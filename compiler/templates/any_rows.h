/* any_rows.h: rows.h for tensors whose type is known when a kernel is called, and not before: what is bound by memory
 * affords the question at each vector. */
#ifndef FLYMASK_ANY_ROWS_H
#define FLYMASK_ANY_ROWS_H

#include "rows.h"

INLINE vf load_any(int type, const char *row, int i, int count) {
  switch (type) {
  case FLY_F32:
    return load_row(FLY_F32, row, i, count);
  case FLY_F16:
    return load_row(FLY_F16, row, i, count);
  default:
    return load_row(FLY_BF16, row, i, count);
  }
}

INLINE void store_any(int type, char *row, int i, int count, vf x) {
  switch (type) {
  case FLY_F32:
    store_row(FLY_F32, row, i, count, x);
    break;
  case FLY_F16:
    store_row(FLY_F16, row, i, count, x);
    break;
  default:
    store_row(FLY_BF16, row, i, count, x);
    break;
  }
}

INLINE char *element(const void *data, int64_t row, int64_t stride, int type) {
  return (char *)data + row * stride * element_size(type);
}

#endif
