/* rows_cuda.h: rows of f32, f16 and bf16 tensors for kernels that take their types as arguments: a warp a row. */
#ifndef FLYMASK_ROWS_CUDA_H
#define FLYMASK_ROWS_CUDA_H

#include "cuda.h"
#include "launch_rows.h"

/* fly_type of flymask.h */
enum { TYPE_F32 = 1, TYPE_F16 = 2, TYPE_BF16 = 3 };

struct row {
  u64 at;
  i32 type;
};

INL struct row row_of(const flyi_cuda_tensor *t, i32 type, i32 b, i32 h, i64 row) {
  const i64 element = b * t->stride_b + h * t->stride_h + row * t->stride_row;
  return (struct row){t->data + (u64)element * (type == TYPE_F32 ? 4 : 2), type};
}
INL float load(struct row r, i32 i) {
  if (r.type == TYPE_F32) return ((const GLOBAL float *)r.at)[i];
  return widen(r.type == TYPE_BF16, ((const GLOBAL u16 *)r.at)[i]);
}
INL void store(struct row r, i32 i, float x) {
  if (r.type == TYPE_F32)
    ((GLOBAL float *)r.at)[i] = x;
  else
    ((GLOBAL u16 *)r.at)[i] = (u16)pack(r.type == TYPE_BF16, x, 0);
}

INL i32 lane_index(void) { return thread_index() & 31; }
/* The row of this warp among those of the grid. */
INL i64 grid_row(void) { return (i64)block_index() * FLYI_ROWS_WARPS + (thread_index() >> 5); }

#endif
