/* f32_cuda.h: what the CUDA kernels for f32 share: rows of floats in shared memory, and their products. Thread (ty, tx)
 * of 128, 8 to a group, owns of a tile of scores the rows ty + 16 r and the columns tx + 8 c; of sums over them the
 * columns 32 j + 4 tx .. + 3. */
#ifndef FLYMASK_F32_CUDA_H
#define FLYMASK_F32_CUDA_H

#include "cuda_score.h"

enum { F32_WARPS = 4, MAX_ROWS = 4, MAX_COLUMNS = 4, MAX_EACH = MAX_WIDTH / 8 /* columns of sums that a thread has */ };

typedef float scores_t[MAX_ROWS][MAX_COLUMNS];

INL void load_floats(float x[4], u32 at) {
  u32 bits[4];
  load_shared4(bits, at);
  UNROLL for (i32 i = 0; i < 4; i++) x[i] = __builtin_bit_cast(float, bits[i]);
}

/* Rows of a tensor that go to shared memory: `dim` columns, with zeros up to `depth`. */
struct floats {
  u64 plane;
  u32 pitch;
  struct rows rows;
  i32 length, dim, depth, aligned; /* length: rows that exist */
};
INL struct floats floats_of(const flyi_cuda_tensor *t, i32 b, i32 h, struct rows rows, i32 length, i32 dim, i32 depth,
                            i32 aligned) {
  return (struct floats){plane_of(t, b, h, 4), pitch_of(t, 4), rows, length, dim, depth, aligned};
}

/* Rows first .. first + count - 1: those that do not exist become zeros. A warp a row. */
INL void copy_floats(const struct floats *f, u32 to, i32 pitch, i32 first, i32 count) {
  const i32 lane = thread_index() & 31;
  ROLLED for (i32 i = thread_index() >> 5; i < count; i += F32_WARPS) {
    const u64 row = row_address(f->plane, f->pitch, row_at(f->rows, at_most(first + i, f->length - 1)));
    ROLLED for (i32 c = lane; c < f->depth / 4; c += 32) {
      const i32 bytes = first + i < f->length ? (f->dim - c * 4) * 4 : 0;
      const u32 at = to + (u32)(i * pitch + c * 16);
      if (f->aligned)
        copy16(at, bytes > 0 ? row + (u64)c * 16 : row, (u32)(bytes < 0 ? 0 : bytes > 16 ? 16 : bytes));
      else
        UNROLL for (i32 e = 0; e < 4; e++)
            copy4(at + (u32)e * 4, bytes > e * 4 ? row + (u64)c * 16 + (u64)e * 4 : row, bytes > e * 4 ? 4 : 0);
    }
  }
}

/* s = A B': `a` and `b` are this thread's first rows, of `pitch` bytes and `depth` columns. */
INL void multiply_floats(scores_t s, u32 a, u32 b, i32 pitch, i32 depth, i32 rows, i32 columns) {
  UNROLL for (i32 r = 0; r < rows; r++) UNROLL for (i32 c = 0; c < columns; c++) s[r][c] = 0;
  _Pragma("clang loop unroll_count(2)") for (i32 d = 0; d < depth; d += 4) {
    float x[MAX_ROWS][4], y[MAX_COLUMNS][4];
    UNROLL for (i32 r = 0; r < rows; r++) load_floats(x[r], a + (u32)(16 * r * pitch + d * 4));
    UNROLL for (i32 c = 0; c < columns; c++) load_floats(y[c], b + (u32)(8 * c * pitch + d * 4));
    UNROLL for (i32 i = 0; i < 4; i++) UNROLL for (i32 r = 0; r < rows; r++)
        UNROLL for (i32 c = 0; c < columns; c++) s[r][c] = multiply_plus(x[r][i], y[c][i], s[r][c]);
  }
}

#endif
