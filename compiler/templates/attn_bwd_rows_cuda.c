/* attn_bwd_rows_cuda.c: what a backward call on a GPU does row by row, before and after its products. Input: a
 * flyi_cuda_call.
 *
 *   fly_backward_rows    of each query: -LSE in base 2, and delta = sum(dO * O) - dLSE, rounded up to whole tiles
 *   fly_backward_sink    of each query head: the gradient of its sink
 *   fly_backward_finish  of each row of a gradient: the sum of the rows of the call behind it, or zeros where
 *                        there are none
 *
 * A warp takes one row at a time; of sinks, a block takes a head. */
#include "cuda_tile.h"

#define SIZE (bwd_type == TYPE_F32 ? 4 : 2) /* bytes of an element */

CONSTANT bwd_value_dim;
CONSTANT bwd_type;
CONSTANT bwd_row_warps; /* of a block */
CONSTANT bwd_row_each;  /* rows of a warp */

INL i32 first_row(struct work w) { return (w.tile * bwd_row_warps + (thread_index() >> 5)) * bwd_row_each; }
INL float element(u64 row, i32 i) {
  return bwd_type == TYPE_F32 ? ((const GLOBAL float *)row)[i]
                              : widen(bwd_type == TYPE_BF16, ((const GLOBAL u16 *)row)[i]);
}
INL void store_element(u64 row, i32 i, float x) {
  if (bwd_type == TYPE_F32)
    ((GLOBAL float *)row)[i] = x;
  else
    ((GLOBAL u16 *)row)[i] = (u16)pack(bwd_type == TYPE_BF16, x, 0);
}

/* Which tile of which pair: these roles walk no map. */
INL struct work work_of_rows(call_t call, i32 heads, i32 batch) {
  flyi_cuda_work w = flyi_cuda_work_of(block_index(), batch * heads, call->tiles, call->together, 1);
  return (struct work){w.pair / heads, w.pair % heads, 0, w.place};
}

/* ---- before ------------------------------------------------------------------------------------------------------ */

/* Where a query's scores start: -LSE in base 2. A row that sees nothing has P = 0; an infinity above is as wrong as a
 * NaN. */
INL float start_of(float lse) {
  if (lse == -infinity()) return -infinity();
  return lse < infinity() ? lse * -1.44269504089f : __builtin_nanf("");
}

INL float delta_of(u64 out, u64 d_out) {
  const i32 lane = thread_index() & 31;
  float sum = 0;
  ROLLED for (i32 i = lane; i < bwd_value_dim; i += 32) sum = multiply_plus(element(out, i), element(d_out, i), sum);
  UNROLL for (i32 m = 1; m < 32; m *= 2) sum += exchange(sum, m);
  return sum;
}

INL float f32_at(const flyi_cuda_tensor *t, i32 b, i32 h, i32 row) {
  return *(const GLOBAL float *)row_address(plane_of(t, b, h, 4), pitch_of(t, 4), row);
}

/* Beyond the entry's queries: rows that see nothing. */
INL void rows(call_t call) {
  const i32 heads = (i32)args_of(call)->heads;
  const struct work w = work_of_rows(call, heads, (i32)args_of(call)->batch);
  const struct span queries = queries_of(call, w.b);
  const struct rows map = output_rows(call, queries, w.b, w.h);
  const u64 out = plane_of(&call->out, w.b, w.h, SIZE), d_out = plane_of(&call->d_out, w.b, w.h, SIZE);
  const i64 to = ((i64)w.b * heads + w.h) * call->rows_q;
  ROLLED for (i32 i = first_row(w), end = i + bwd_row_each; i < end && i < call->rows_q; i++) {
    float start = -infinity(), delta = 0;
    if (i < queries.length) {
      const i32 row = row_at(map, i);
      start = start_of(f32_at(&call->lse, w.b, w.h, row));
      if (start != -infinity()) {
        delta = delta_of(row_address(out, pitch_of(&call->out, SIZE), row),
                         row_address(d_out, pitch_of(&call->d_out, SIZE), row));
        if (call->d_lse.data) delta -= f32_at(&call->d_lse, w.b, w.h, row);
      }
    }
    if (thread_index() & 31) continue;
    ((GLOBAL float *)call->neg_lse)[to + i] = start;
    ((GLOBAL float *)call->delta)[to + i] = delta;
  }
}

/* ---- after ------------------------------------------------------------------------------------------------------- */

INL void finish_row(call_t call, u64 to, i32 first, i32 end) {
  const flyi_cuda_finish *f = &call->finish;
  const i32 lane = thread_index() & 31;
  if (f->sums ? 0 : first < end || call->add_gradients) return; /* it is there, or keeps what it holds */
  ROLLED for (i32 i = lane; i < f->dim; i += 32) {
    float sum = 0;
    ROLLED for (i32 n = first; f->sums && n < end; n++)
        sum += ((const GLOBAL float *)f->sums)[(i64)ints(f->list)[n] * f->dim + i];
    if (call->add_gradients) sum += element(to, i);
    store_element(to, i, sum);
  }
}

INL void finish(call_t call) {
  const flyi_cuda_finish *f = &call->finish;
  const i32 batch = args_of(call)->cu_q ? 1 : (i32)args_of(call)->batch; /* tensors of a packed call have one entry */
  const struct work w = work_of_rows(call, f->heads, batch);
  const u64 plane = plane_of(&f->to, w.b, w.h, SIZE);
  const GLOBAL i32 *first = ints(f->first) + ((i64)w.b * f->heads + w.h) * (f->rows + 1);
  ROLLED for (i32 i = first_row(w), end = i + bwd_row_each; i < end && i < f->rows; i++)
      finish_row(call, row_address(plane, pitch_of(&f->to, SIZE), i), first[i], first[i + 1]);
}

/* ---- sinks ------------------------------------------------------------------------------------------------------- */

INL double exchange_double(double x, i32 mask) {
  const u64 bits = __builtin_bit_cast(u64, x);
  const u32 low = (u32)__nvvm_shfl_sync_bfly_i32(-1, (i32)(u32)bits, mask, 31);
  const u32 high = (u32)__nvvm_shfl_sync_bfly_i32(-1, (i32)(u32)(bits >> 32), mask, 31);
  return __builtin_bit_cast(double, (u64)high << 32 | low);
}

/* The sink's value is 0, so that its dS is -P delta, P = 2^(log2(e) z - LSE): summed in double precision, each thread
 * some rows, then over the lanes, then over the warps: always in one order. */
INL double sink_part(call_t call, i32 h, float z) {
  const i32 heads = (i32)args_of(call)->heads, threads = bwd_row_warps * 32;
  double sum = 0;
  ROLLED for (i32 b = 0; b < args_of(call)->batch; b++) {
    const i32 length = queries_of(call, b).length;
    const i64 at = ((i64)b * heads + h) * call->rows_q;
    const GLOBAL float *start = (const GLOBAL float *)call->neg_lse + at;
    const GLOBAL float *delta = (const GLOBAL float *)call->delta + at;
    ROLLED for (i32 i = thread_index(); i < length; i += threads) if (start[i] != -infinity())
        sum -= (double)(exp2_of(multiply_plus(z, 1.44269504089f, start[i])) * delta[i]);
  }
  UNROLL for (i32 m = 1; m < 32; m *= 2) sum += exchange_double(sum, m);
  return sum;
}

INL void sink(call_t call) {
  const i32 h = (i32)block_index(), warp = thread_index() >> 5;
  const u32 shared = shared_base();
  double sum = sink_part(call, h, ((const GLOBAL float *)call->sink.data)[h * call->sink.stride_h]);
  const u64 bits = __builtin_bit_cast(u64, sum);
  if ((thread_index() & 31) == 0) {
    store_shared(shared + (u32)warp * 8, (u32)bits);
    store_shared(shared + (u32)warp * 8 + 4, (u32)(bits >> 32));
  }
  barrier();
  if (thread_index()) return;
  sum = 0;
  ROLLED for (i32 w = 0; w < bwd_row_warps; w++) {
    const u64 low = load_shared(shared + (u32)w * 8), high = load_shared(shared + (u32)w * 8 + 4);
    sum += __builtin_bit_cast(double, high << 32 | low);
  }
  GLOBAL float *to = (GLOBAL float *)call->d_sink.data + h * call->d_sink.stride_h;
  *to = (float)(call->add_gradients ? *to + sum : sum);
}

/* ---- entries ----------------------------------------------------------------------------------------------------- */

KERNEL fly_backward_rows(const flyi_cuda_call call) { rows(&call); }
KERNEL fly_backward_sink(const flyi_cuda_call call) { sink(&call); }
KERNEL fly_backward_finish(const flyi_cuda_call call) { finish(&call); }
