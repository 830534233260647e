/* cuda_selection.c: the forward pass over selected blocks on a GPU. Input: a selection, the caller's call, and the
 * grouped call made of it. Output: on the stream, the grouped call into partial outputs, and their merge, which reads
 * where a query's rows are from a table that is copied once a context, as the selection's map is. */
#include <string.h>

#include "cuda.h"
#include "selection.h"

static fly_status stage_places(const void *object, flyi_staging *s, fly_error *error) {
  (void)error;
  const fly_selection *selection = object;
  size_t offset, count = (size_t)(selection->parts * selection->batch * selection->heads * selection->len_q);
  int32_t *to = flyi_staging_add(s, count, sizeof *to, &offset);
  if (to) memcpy(to, selection->where, count * sizeof *to);
  return FLY_OK;
}

static fly_status merge(const fly_selection *s, const fly_attention *whole, const fly_attention *grouped,
                        flyi_cuda_launch *l, fly_error *error) {
  const int64_t planes = s->batch * s->heads;
  flyi_device_memory places;
  fly_status status = flyi_cuda_put(l, (flyi_hash){FLYI_KEY_PLACES, 0}, stage_places, s, &places, error);
  if (status) return status;
  const flyi_cuda_merge merge = {.first = {.out = flyi_cuda_tensor_of(&grouped->out),
                                           .lse = flyi_cuda_tensor_of(&grouped->lse),
                                           .rows = places,
                                           .rows_stride_b = s->heads * s->len_q,
                                           .rows_stride_h = s->len_q,
                                           .type = FLY_F32},
                                 .rows_step = planes * s->len_q,
                                 .out = flyi_cuda_tensor_of(&whole->out),
                                 .lse = flyi_cuda_tensor_of(&whole->lse),
                                 .total = planes * s->len_q,
                                 .count = (int32_t)s->parts,
                                 .type = (int32_t)whole->out.type,
                                 .dim = (int32_t)whole->out.shape[3],
                                 .rows = (int32_t)s->len_q,
                                 .heads = (int32_t)s->heads};
  return flyi_cuda_run_rows(l->cuda, l->stream, FLYI_ROWS_MERGE, &merge, merge.total, error);
}

static fly_status run(const fly_selection *s, const fly_attention *whole, fly_attention *grouped, size_t lse_at,
                      size_t bytes, flyi_cuda_launch *l, fly_error *error) {
  flyi_device_memory memory = (uintptr_t)whole->workspace;
  fly_status status;
  if ((status = flyi_cuda_check_stream(l->cuda, l->stream, error)) ||
      (status = flyi_cuda_check_tensor("out", &whole->out, l->cuda, error)) ||
      (status = flyi_cuda_check_tensor("lse", &whole->lse, l->cuda, error)) ||
      (!memory && (status = flyi_cuda_temporary(l, bytes, &memory, error))))
    return status;
  grouped->out.data = (void *)(uintptr_t)memory;
  grouped->lse = fly_tensor_dense((void *)(uintptr_t)(memory + lse_at), FLY_F32, s->batch, s->heads, s->rows, 1);
  status = fly_attention_forward(grouped, error);
  return status ? status : merge(s, whole, grouped, l, error);
}

fly_status flyi_cuda_selection(const fly_selection *s, const fly_attention *whole, fly_attention *grouped,
                               size_t lse_at, size_t bytes, fly_error *error) {
  flyi_cuda_launch l = {.cuda = whole->cuda, .stream = whole->stream, .map = s->map};
  bool pushed;
  fly_status status = flyi_cuda_enter(l.cuda, &pushed, error);
  if (status) return status;
  status = run(s, whole, grouped, lse_at, bytes, &l, error);
  flyi_cuda_free_temporaries(&l);
  flyi_cuda_leave(l.cuda, pushed);
  return status;
}
