/* cuda_moba.c: the gate of MoBA on a GPU. Input: Q and K in a device's memory. Output: each query's blocks, on the
 * host, where a selection is made of them: the call waits for them. Kernels: templates/choose_ptx.c. */
#include <inttypes.h>

#include "cuda.h"
#include "selection.h"

enum { MOST_WARPS = 1 << 14 /* which fill any device */, MOST_SCORES = 1 << 26 /* bytes of all warps' scores */ };

/* As many as have work, a multiple of a block's. */
static int32_t warps_of(int64_t rows, int64_t blocks) {
  int64_t most = MOST_SCORES / 4 / (blocks > 0 ? blocks : 1);
  if (most > MOST_WARPS) most = MOST_WARPS;
  if (most > rows) most = rows;
  return (int32_t)((most + FLYI_ROWS_WARPS - 1) / FLYI_ROWS_WARPS + (most < 1)) * FLYI_ROWS_WARPS;
}

static fly_status make_room(flyi_cuda_launch *l, flyi_cuda_choice *c, fly_error *error) {
  const size_t means = (size_t)(c->kv_planes * c->blocks) * (size_t)c->dim * sizeof(float);
  fly_status status = flyi_cuda_temporary(l, means, &c->means, error);
  if (!status) status = flyi_cuda_temporary(l, (size_t)c->warps * (size_t)c->blocks * sizeof(float), &c->scores, error);
  if (!status) status = flyi_cuda_temporary(l, (size_t)c->total * (size_t)c->top * sizeof(int32_t), &c->lists, error);
  return status;
}

static fly_status run(const fly_moba_desc *d, flyi_cuda_launch *l, flyi_cuda_choice *c, int32_t *lists,
                      fly_error *error) {
  fly_status status;
  if ((status = flyi_cuda_check_stream(l->cuda, l->stream, error)) ||
      (status = flyi_cuda_check_tensor("q", &d->q, l->cuda, error)) ||
      (status = flyi_cuda_check_tensor("k", &d->k, l->cuda, error)) || (status = make_room(l, c, error)) ||
      (status = flyi_cuda_run_rows(l->cuda, l->stream, FLYI_ROWS_MEANS, c, c->kv_planes * c->blocks, error)) ||
      (status = flyi_cuda_run_rows(l->cuda, l->stream, FLYI_ROWS_CHOOSE, c, c->warps, error)))
    return status;
  return fly_cuda_read(l->cuda, lists, (void *)(uintptr_t)c->lists, (size_t)c->total * (size_t)c->top * sizeof *lists,
                       l->stream, error);
}

fly_status flyi_cuda_choose(const fly_moba_desc *d, int64_t blocks, int32_t *lists, fly_error *error) {
  flyi_cuda_launch l = {.cuda = d->cuda, .stream = d->stream};
  const int64_t *q = d->q.shape, total = q[0] * q[1] * q[2];
  bool pushed;
  if (!total) return FLY_OK;
  if (d->k.shape[2] > FLYI_CUDA_MAX_LENGTH)
    return flyi_fail(error, FLY_ERROR_UNSUPPORTED, "%" PRId64 " keys: on a GPU positions go to %d", d->k.shape[2],
                     FLYI_CUDA_MAX_LENGTH);
  if (q[1] > INT32_MAX)
    return flyi_fail(error, FLY_ERROR_UNSUPPORTED, "%" PRId64 " heads: on a GPU at most 2^31 - 1", q[1]);
  flyi_cuda_choice c = {.q = flyi_cuda_tensor_of(&d->q),
                        .k = flyi_cuda_tensor_of(&d->k),
                        .kv_planes = q[0] * d->k.shape[1],
                        .total = total,
                        .q_offset = d->q_offset,
                        .type = (int32_t)d->q.type,
                        .dim = (int32_t)q[3],
                        .rows = (int32_t)q[2],
                        .heads = (int32_t)q[1],
                        .group = (int32_t)(q[1] / d->k.shape[1]),
                        .block = d->block,
                        .top = d->top,
                        .warps = warps_of(total, blocks),
                        .blocks = (int32_t)blocks};
  fly_status status = flyi_cuda_enter(l.cuda, &pushed, error);
  if (status) return status;
  status = run(d, &l, &c, lists, error);
  flyi_cuda_free_temporaries(&l);
  flyi_cuda_leave(l.cuda, pushed);
  return status;
}
