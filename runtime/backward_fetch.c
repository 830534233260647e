/* backward_fetch.c: rows that are needed soon are asked for while blocks are computed, a few at a time: all at once
 * they would fill the queues to memory and hold up the computation, and not at all it would wait for each.
 *
 * Of rows that follow each other, a line of each page comes ahead of all others: a request whose address is not known
 * yet holds up the core, and so all their addresses are found side by side. */
#include "backward.h"

enum { PAGE_BYTES = 4096 };

void flyi_fetch_add(flyi_fetch_cpu *f, const fly_tensor *t, int64_t b, int64_t h, int64_t row, const int32_t *rows,
                    int count) {
  int64_t size = (int64_t)fly_type_size(t->type);
  if (f->count == FLYI_FETCH_PARTS || count <= 0 || !t->data) return;
  flyi_fetch_part part = {
      .plane = flyi_plane_row(t, b, h, rows ? 0 : row),
      .rows = rows,
      .step = t->stride[2] * size,
      .count = count,
      .bytes = (int)(t->shape[3] * size),
      .far = rows && flyi_plane_bytes(t) > FLYI_FAR_BYTES,
  };
  f->part[(f->first + f->count++) % FLYI_FETCH_PARTS] = part;
  int64_t each = part.step > 0 && part.step < PAGE_BYTES ? PAGE_BYTES / part.step : 1;
  for (int64_t i = 0; !rows && i < count; i += each) __builtin_prefetch(part.plane + i * part.step, 0, 3);
}

void flyi_fetch_add_block(flyi_fetch_cpu *f, const float *rows, int width) {
  fly_tensor t = fly_tensor_dense((void *)(uintptr_t)rows, FLY_F32, 1, 1, FLYI_BLOCK, width);
  flyi_fetch_add(f, &t, 0, 0, 0, NULL, FLYI_BLOCK);
}
