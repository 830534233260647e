/* merge_ptx.c: partial attention outputs merged by their log-sum-exp, forward and backward, on a GPU: what merge_cpu.c
 * does, and its formulas. Input: a flyi_cuda_merge. Output: the merged rows, or each partial row's gradients.
 *
 * Weights and sums are double, so that a result is rounded once; a warp has a row, its lanes the partials where weights
 * are made and the columns where they are used. A partial row with LSE -infinity is never read. */
#include "rows_cuda.h"

typedef const flyi_cuda_merge *merge_t;

enum { COLUMNS = 8 /* of a lane, in one pass over the partials */ };

/* ---- doubles ----------------------------------------------------------------------------------------------------- */

INL double exchange_double(double x, i32 mask) {
  u64 bits = __builtin_bit_cast(u64, x);
  u32 low = (u32)__nvvm_shfl_sync_bfly_i32(-1, (i32)bits, mask, 31);
  u32 high = (u32)__nvvm_shfl_sync_bfly_i32(-1, (i32)(bits >> 32), mask, 31);
  return __builtin_bit_cast(double, (u64)high << 32 | low);
}
INL double double_of_lane(double x, i32 lane) {
  u64 bits = __builtin_bit_cast(u64, x);
  u32 low = (u32)of_lane((i32)bits, lane), high = (u32)of_lane((i32)(bits >> 32), lane);
  return __builtin_bit_cast(double, (u64)high << 32 | low);
}
INL double warp_sum(double x) {
  UNROLL for (i32 m = 1; m < 32; m *= 2) x += exchange_double(x, m);
  return x;
}
INL float warp_max(float x) {
  UNROLL for (i32 m = 1; m < 32; m *= 2) x = greater(x, exchange(x, m));
  return x;
}

/* e^x for x <= 0, to 1 ulp or so: 2^n times a Taylor sum over |r| <= log(2) / 2. A NaN stays. */
INL double exp_of(double x) {
  static const double inverse[] = {1, 1, 1. / 2, 1. / 6, 1. / 24, 1. / 120, 1. / 720, 1. / 5040, 1. / 40320,
                                   1. / 362880, 1. / 3628800, 1. / 39916800, 1. / 479001600};
  if (!(x > -700)) return x != x ? x : 0; /* less than any sum of weights, whose greatest is 1, can notice */
  const double n = __builtin_rint(x * 1.4426950408889634);
  const double r = __builtin_fma(n, -1.9082149292705877e-10, __builtin_fma(n, -0.69314718036912382, x));
  double sum = 1. / 6227020800;
  UNROLL for (i32 i = 12; i >= 0; i--) sum = __builtin_fma(sum, r, inverse[i]);
  return sum * __builtin_bit_cast(double, (u64)(1023 + (i64)n) << 52);
}
/* log x for x >= 1, from single precision by one step of Newton's method. */
INL double log_of(double x) {
  if (!(x <= 0x1p100)) return x; /* infinity and NaN stay, no count of partials comes near */
  const double y = (double)(log2_of((float)x) * 0.69314718056f);
  return y + __builtin_fma(x, exp_of(-y), -1);
}

/* ---- the row of a warp ------------------------------------------------------------------------------------------- */

struct place {
  i32 b, h, row;
};
INL struct place place_of(merge_t c) {
  const i64 at = grid_row(), plane = at / c->rows;
  return (struct place){(i32)(plane / c->heads), (i32)(plane % c->heads), (i32)(at % c->rows)};
}

INL flyi_cuda_partial partial_of(merge_t c, i32 i) {
  if (c->partials) return *(const flyi_cuda_partial *)(c->partials + (u64)(u32)i * sizeof(flyi_cuda_partial));
  flyi_cuda_partial p = c->first;
  p.out.data += (u64)(i * c->out_step) * (p.type == TYPE_F32 ? 4 : 2);
  p.lse.data += (u64)(i * c->lse_step) * 4;
  if (p.rows) p.rows += (u64)(i * c->rows_step) * 4; /* without the branch LLVM keeps p in local memory */
  return p;
}
INL i32 partial_row(const flyi_cuda_partial *p, struct place at) {
  if (!p->rows) return at.row;
  return ((const GLOBAL i32 *)p->rows)[at.b * p->rows_stride_b + at.h * p->rows_stride_h + at.row];
}

/* Of partial i, which a lane has: its row, -1 where there is none or no weight, and its LSE. */
struct entry {
  i32 row;
  float lse;
};
INL struct entry entry_of(merge_t c, struct place at, i32 i) {
  struct entry e = {-1, -infinity()};
  if (i >= c->count) return e;
  const flyi_cuda_partial p = partial_of(c, i);
  e.row = partial_row(&p, at);
  if (e.row >= 0) e.lse = load(row_of(&p.lse, TYPE_F32, at.b, at.h, e.row), 0);
  return e;
}

/* The greatest LSE, of a NaN and a number the number, and the sum of e^(lse - greatest). */
struct total {
  float most;
  double sum;
};
INL double weight_of(float lse, float most) {
  if (lse == -infinity()) return 0;
  return lse == most && most < infinity() ? 1 : exp_of((double)lse - (double)most);
}
/* What a partial counts; a sum that is not a number says nothing about lanes without a partial. */
INL double share_of(struct entry e, struct total t) {
  return e.lse == -infinity() || t.sum == 0 ? 0 : weight_of(e.lse, t.most) / t.sum;
}
INL struct total total_of(merge_t c, struct place at) {
  struct total t = {-infinity(), 0};
  ROLLED for (i32 i = lane_index(); i < c->count; i += 32) t.most = greater(t.most, entry_of(c, at, i).lse);
  t.most = warp_max(t.most);
  ROLLED for (i32 i = lane_index(); i < c->count; i += 32) t.sum += weight_of(entry_of(c, at, i).lse, t.most);
  t.sum = warp_sum(t.sum);
  return t;
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

/* Columns first + lane + 32 k of the merged row. */
INL void sum_columns(merge_t c, struct place at, struct total t, struct row out, i32 first) {
  double sum[COLUMNS] = {0};
  ROLLED for (i32 i = 0; i < c->count; i += 32) {
    const struct entry e = entry_of(c, at, i + lane_index());
    const double weight = share_of(e, t);
    ROLLED for (u32 left = ballot(weight != 0); left; left &= left - 1) {
      const i32 from = __builtin_ctz(left), column = first + lane_index();
      const double w = double_of_lane(weight, from);
      const flyi_cuda_partial p = partial_of(c, i + from);
      const struct row x = row_of(&p.out, p.type, at.b, at.h, of_lane(e.row, from));
      UNROLL for (i32 k = 0; k < COLUMNS; k++) if (column + 32 * k < c->dim)
          sum[k] = __builtin_fma(w, (double)load(x, column + 32 * k), sum[k]);
    }
  }
  UNROLL for (i32 k = 0; k < COLUMNS; k++) {
    const i32 column = first + lane_index() + 32 * k;
    if (column < c->dim) store(out, column, (float)sum[k]);
  }
}

KERNEL fly_merge_rows(const flyi_cuda_merge call) {
  merge_t c = &call;
  if (grid_row() >= c->total) return;
  const struct place at = place_of(c);
  i32 start = 0, b = at.b;
  if (c->cu) { /* packed entries: rows beyond this one's end do not exist */
    const GLOBAL i32 *cu = (const GLOBAL i32 *)c->cu + at.b;
    start = cu[0], b = 0;
    if (at.row >= cu[1] - start) return;
  }
  i32 to = start + at.row;
  const i64 plane = at.b * c->out_rows_stride_b + at.h * c->out_rows_stride_h;
  if (c->out_rows) to = ((const GLOBAL i32 *)c->out_rows)[plane + to];
  const struct total t = total_of(c, at);
  const struct row out = row_of(&c->out, c->type, b, at.h, to);
  ROLLED for (i32 first = 0; first < c->dim; first += 32 * COLUMNS) sum_columns(c, at, t, out, first);
  if (c->lse.data && lane_index() == 0) {
    const double lse = t.sum == 0 ? -(double)infinity() : (double)t.most + (t.sum == 1 ? 0 : log_of(t.sum));
    store(row_of(&c->lse, TYPE_F32, b, at.h, to), 0, (float)lse);
  }
}

/* ---- backward ---------------------------------------------------------------------------------------------------- */

INL double dot_of(struct row a, struct row b, i32 dim) {
  double sum = 0;
  ROLLED for (i32 n = lane_index(); n < dim; n += 32) sum = __builtin_fma((double)load(a, n), (double)load(b, n), sum);
  return warp_sum(sum);
}

/* What comes to partial i; `weight` 0: nothing, and its output is not read. */
INL void back_partial(merge_t c, struct place at, const flyi_cuda_partial *p, i32 row, struct row d_out, double weight,
                      double mean, double d_lse) {
  double slope = 0;
  if (p->d_lse.data && weight != 0)
    slope = weight * (dot_of(d_out, row_of(&p->out, p->type, at.b, at.h, row), c->dim) - mean + d_lse);
  if (p->d_lse.data && lane_index() == 0) store(row_of(&p->d_lse, TYPE_F32, at.b, at.h, row), 0, (float)slope);
  if (!p->d_out.data) return;
  const struct row to = row_of(&p->d_out, p->type, at.b, at.h, row);
  ROLLED for (i32 n = lane_index(); n < c->dim; n += 32)
    store(to, n, weight == 0 ? 0 : (float)((double)load(d_out, n) * weight));
}

/* Two passes over the partials: the weighted mean of <d_out, out_i>, then the gradients. */
KERNEL fly_merge_rows_backward(const flyi_cuda_merge call) {
  merge_t c = &call;
  if (grid_row() >= c->total) return;
  const struct place at = place_of(c);
  const struct total t = total_of(c, at);
  const struct row d_out = row_of(&c->out, c->type, at.b, at.h, at.row);
  const double d_lse = c->lse.data ? (double)load(row_of(&c->lse, TYPE_F32, at.b, at.h, at.row), 0) : 0;
  double mean = 0;
  ROLLED for (i32 pass = 0; pass < 2; pass++) ROLLED for (i32 i = 0; i < c->count; i += 32) {
    const struct entry e = entry_of(c, at, i + lane_index());
    const double weight = share_of(e, t);
    ROLLED for (u32 left = ballot(pass ? e.row >= 0 : weight != 0); left; left &= left - 1) {
      const i32 from = __builtin_ctz(left), row = of_lane(e.row, from);
      const double w = double_of_lane(weight, from);
      const flyi_cuda_partial p = partial_of(c, i + from);
      if (pass)
        back_partial(c, at, &p, row, d_out, w, mean, d_lse);
      else
        mean = __builtin_fma(w, dot_of(d_out, row_of(&p.out, p.type, at.b, at.h, row), c->dim), mean);
    }
  }
}
