/* backward_fetch.c: rows that are needed soon are asked for while blocks are computed, a few at a time: all at once
 * they would fill the queues to memory and hold up the computation, and not at all it would wait for each. */
#include "backward.h"

void flyi_fetch_add(flyi_fetch *f, const fly_tensor *t, int64_t b, int64_t h, int64_t row, const int32_t *rows,
                    int count) {
  int64_t size = (int64_t)fly_type_size(t->type);
  if (f->last == FLYI_FETCH_PARTS || count <= 0 || !t->data) return;
  f->part[f->last].plane = flyi_plane_row(t, b, h, rows ? 0 : row);
  f->part[f->last].rows = rows;
  f->part[f->last].step = t->stride[2] * size;
  f->part[f->last].count = count;
  f->part[f->last++].bytes = (int)(t->shape[3] * size);
}

void flyi_fetch_add_block(flyi_fetch *f, const float *rows, int width) {
  fly_tensor t = fly_tensor_dense((void *)(uintptr_t)rows, FLY_F32, 1, 1, FLYI_BLOCK, width);
  flyi_fetch_add(f, &t, 0, 0, 0, NULL, FLYI_BLOCK);
}

void flyi_fetch_give(flyi_fetch *f, flyi_backward_cpu *pairs) {
  int count = 0, bytes = f->first < f->last ? f->part[f->first].bytes : 0;
  for (; f->first < f->last && f->part[f->first].bytes == bytes; f->first++) {
    if (count + f->part[f->first].count > FLYI_FETCH_ROWS) break;
    for (int i = 0; i < f->part[f->first].count; i++) {
      int64_t row = f->part[f->first].rows ? f->part[f->first].rows[i] : i;
      f->row[count++] = f->part[f->first].plane + row * f->part[f->first].step;
    }
  }
  if (f->first == f->last) f->first = f->last = 0;
  pairs->fetch = f->row, pairs->fetch_count = count, pairs->fetch_bytes = bytes;
}
