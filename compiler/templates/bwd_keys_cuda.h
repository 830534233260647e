/* bwd_keys_cuda.h: which keys a block of threads makes dK and dV of, for every element type (attn_bwd_keys_cuda.c,
 * attn_bwd_keys_f32_cuda.c). */
#ifndef FLYMASK_BWD_KEYS_CUDA_H
#define FLYMASK_BWD_KEYS_CUDA_H

#include "bwd_cuda.h"

struct place {
  i32 b, pair, h, kv_head; /* h: the first query head */
  i32 first;               /* of its keys */
  struct span queries, keys;
  i32 map_row, tiles; /* tiles: of queries */
};

/* Of block `index` of a call with so many query heads, with so many keys, and tiles of so many queries. */
INL struct place place_of(call_t call, u32 index, i32 heads, i32 outer, i32 inner) {
  const i32 pairs = heads / call->walk;
  const struct work w = work_of(call, &call->by_key, pairs, index);
  struct place p = {.b = w.b, .h = w.h * call->walk, .first = w.tile * outer, .map_row = w.map_row};
  p.pair = w.b * pairs + w.h;
  p.kv_head = p.h / call->group;
  p.queries = queries_of(call, p.b), p.keys = keys_of(call, p.b);
  p.tiles = (p.queries.length + inner - 1) / inner;
  return p;
}

INL struct rows rows_of_keys(call_t call, const struct place *p) { return key_rows(call, p->keys, p->b, p->h); }
/* Of rows_of_keys, asked for once for both. */
INL struct gradient d_k_of(call_t call, const struct place *p, struct rows rows) {
  return gradient_of(call, &call->d_k, p->b, p->kv_head, rows, call->sums_k, (i64)p->pair * call->rows_kv, bwd_dim);
}
INL struct gradient d_v_of(call_t call, const struct place *p, struct rows rows) {
  return gradient_of(call, &call->d_v, p->b, p->kv_head, rows, call->sums_v, (i64)p->pair * call->rows_kv,
                     bwd_value_dim);
}

#endif
