/* exact_cuda.h: rows of f16 and bf16 outputs that came out not finite, worked out again by what they see alone
 * (attn_fwd_cuda.c, attn_split_cuda.c): a warp takes one query, each lane one of 32 keys. */
#ifndef FLYMASK_EXACT_CUDA_H
#define FLYMASK_EXACT_CUDA_H

#include "cuda_tile.h"

INL float warp_max(float x) {
  UNROLL for (i32 m = 1; m < 32; m *= 2) x = greater(x, exchange(x, m));
  return x;
}
INL float warp_sum(float x) {
  UNROLL for (i32 m = 1; m < 32; m *= 2) x += exchange(x, m);
  return x;
}

/* What a template is compiled for, and whose keys and values are looked at. */
struct exact_of {
  call_t call;
  i32 bf16, dim, value_dim;
  i32 b, h; /* h: of keys */
};

/* Elements lane, lane + 32, ... of a row of the output; scores are exponents of 2. */
struct exact {
  float o[MAX_WIDTH / 32], top, sum;
};
INL struct exact exact_none(void) { return (struct exact){{0}, -infinity(), 0}; }

INL float exact_element(const struct exact_of *of, u64 row, i32 i) {
  return widen(of->bf16, ((const GLOBAL u16 *)row)[i]);
}

/* The product of a query, at q, and the key in memory row `row`; 0, and nothing read, where the key is not seen. */
INL float exact_product(const struct exact_of *of, u64 q, i32 row, _Bool seen) {
  const flyi_cuda_tensor *t = &of->call->k;
  const u64 k = row_address(plane_of(t, of->b, of->h, 2), pitch_of(t, 2), row);
  float s = 0;
  ROLLED for (i32 i = 0; seen && i < of->dim; i++)
      s = multiply_plus(exact_element(of, q, i), exact_element(of, k, i), s);
  return s;
}

/* 32 keys, one a lane: its score and memory row. V's rows that are not seen are not read. */
INL void exact_add(const struct exact_of *of, struct exact *x, float score, i32 row, _Bool seen) {
  const flyi_cuda_tensor *t = &of->call->v;
  const i32 lane = thread_index() & 31;
  const float s = seen ? score : -infinity();
  seen = seen && s != -infinity(); /* no weight, whatever V holds */
  const float top = greater(x->top, warp_max(s));
  const float weight = seen ? exp2_of(s - top) : 0, factor = x->top == -infinity() ? 0 : exp2_of(x->top - top);
  x->top = top;
  x->sum = x->sum * factor + warp_sum(weight);
  UNROLL for (i32 i = 0; i < MAX_WIDTH / 32; i++) x->o[i] *= factor;
  ROLLED for (u32 left = ballot(seen); left; left &= left - 1) {
    const i32 from = __builtin_ctz(left);
    const float w = of_lane_f(weight, from);
    const u64 v = row_address(plane_of(t, of->b, of->h, 2), pitch_of(t, 2), of_lane(row, from));
    UNROLL for (i32 i = 0; i < MAX_WIDTH / 32; i++) if (lane + 32 * i < of->value_dim)
        x->o[i] = multiply_plus(w, exact_element(of, v, lane + 32 * i), x->o[i]);
  }
}

#endif
