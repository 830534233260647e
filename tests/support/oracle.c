/* oracle.c: the double-precision reference: loops over pairs, an exact softmax, and the error that an f32 kernel may make. */
#include "oracle.h"

#include <float.h>

static int64_t offset_of(const fly_tensor *t, int64_t b, int64_t h, int64_t row, int64_t i) {
  return b * t->stride[0] + h * t->stride[1] + row * t->stride[2] + i;
}

double oracle_get(const fly_tensor *t, int64_t b, int64_t h, int64_t row, int64_t i) {
  int64_t at = offset_of(t, b, h, row, i);
  if (t->type == FLY_F32) return ((const float *)t->data)[at];
  uint16_t x = ((const uint16_t *)t->data)[at];
  return t->type == FLY_F16 ? test_from_f16(x) : test_from_bf16(x);
}

void oracle_set(const fly_tensor *t, int64_t b, int64_t h, int64_t row, int64_t i, double x) {
  int64_t at = offset_of(t, b, h, row, i);
  if (t->type == FLY_F32) ((float *)t->data)[at] = (float)x;
  else ((uint16_t *)t->data)[at] = t->type == FLY_F16 ? test_to_f16(x) : test_to_bf16(x);
}

/* ---- geometry -------------------------------------------------------------------------------------------------------- */

static int64_t length(const int32_t *cu, int64_t b, int64_t otherwise) { return cu ? cu[b + 1] - cu[b] : otherwise; }

static int64_t start(const int32_t *cu, int64_t b) { return cu ? cu[b] : 0; }

static int64_t through(const fly_row_map *map, const int32_t *cu, int64_t b, int64_t h, int64_t row) {
  row += start(cu, b);
  return map->rows ? map->rows[b * map->stride_batch + h * map->stride_head + row] : row;
}

/* The tensor's batch entry: a ragged batch is packed into one. */
static int64_t entry(const fly_geometry *g, int64_t b) { return g->cu_seqlens_q ? 0 : b; }

static int64_t out_row(const fly_attention *c, int64_t b, int64_t h, int64_t row) {
  const fly_row_map *map = c->out_rows.rows ? &c->out_rows : &c->geometry.q_rows;
  return through(map, c->geometry.cu_seqlens_q, b, h, row);
}

/* ---- one row --------------------------------------------------------------------------------------------------------- */

void oracle_attend(const fly_attention *c, oracle_predicate *see, void *context, int64_t b, int64_t h, int64_t row,
                   oracle_row *result) {
  const fly_geometry *g = &c->geometry;
  int64_t dim = c->q.shape[3], values = c->v.shape[3], keys = length(g->cu_seqlens_kv, b, g->len_kv);
  int64_t group = g->heads / c->k.shape[1], e = entry(g, b), q = through(&g->q_rows, g->cu_seqlens_q, b, h, row);
  double scale = c->scale != 0 ? c->scale : 1 / sqrt((double)dim), most = 0, max = -INFINITY, sum = 0, value = 0;
  double *score = malloc((keys + 1) * sizeof *score);
  memset(result, 0, sizeof *result);
  for (int64_t j = 0; j < keys; j++) {
    score[j] = -INFINITY;
    if (!see(context, (int)b, (int)h, (int)(row + g->q_offset), (int)j)) continue;
    int64_t k = through(&g->kv_rows, g->cu_seqlens_kv, b, h, j);
    double dot = 0, size = 0;
    for (int64_t d = 0; d < dim; d++) {
      double x = oracle_get(&c->q, e, h, q, d) * oracle_get(&c->k, e, h / group, k, d);
      dot += x, size += fabs(x);
    }
    score[j] = scale * dot;
    if (isfinite(size) && fabs(scale) * size > most) most = fabs(scale) * size;
    if (score[j] > max) max = score[j];
    for (int64_t d = 0; d < values; d++) {
      double x = fabs(oracle_get(&c->v, e, h / group, k, d));
      if (isfinite(x) && x > value) value = x;
    }
  }
  for (int64_t j = 0; j < keys; j++) {
    double p = score[j] == -INFINITY ? 0 : exp(score[j] - max);
    if (p == 0) continue;
    sum += p;
    int64_t k = through(&g->kv_rows, g->cu_seqlens_kv, b, h, j);
    for (int64_t d = 0; d < values; d++) result->out[d] += p * oracle_get(&c->v, e, h / group, k, d);
  }
  for (int64_t d = 0; d < values; d++) result->out[d] = sum == 0 ? 0 : result->out[d] / sum;
  result->lse = sum == 0 ? -INFINITY : max + log(sum);
  result->tolerance = 8 * FLT_EPSILON * (1 + most) * value;
  result->lse_tolerance = 8 * FLT_EPSILON * (1 + most) + FLT_EPSILON * fabs(sum == 0 ? 0 : result->lse);
  free(score);
}

/* ---- a whole call ---------------------------------------------------------------------------------------------------- */

/* Half a unit in the last place of the output's type at x, and half the smallest subnormal. */
static double rounding(fly_type type, double x) {
  if (type == FLY_F16) return fabs(x) * 0x1p-11 + 0x1p-25;
  if (type == FLY_BF16) return fabs(x) * 0x1p-8 + 0x1p-134;
  return fabs(x) * 0x1p-24 + 0x1p-150;
}

static void check_row(const fly_attention *c, const oracle_row *want, int64_t b, int64_t h, int64_t row, const char *what) {
  int64_t e = entry(&c->geometry, b), at = out_row(c, b, h, row);
  for (int64_t d = 0; d < c->v.shape[3]; d++) {
    double got = oracle_get(&c->out, e, h, at, d), x = want->out[d];
    bool right = isfinite(x) ? fabs(got - x) <= want->tolerance + rounding(c->out.type, x) : !isfinite(got);
    ck_assert_msg(right, "%s: out[%d, %d, %d, %d] is %.9g, not %.9g within %.2g", what, (int)b, (int)h, (int)row, (int)d, got,
                  x, want->tolerance + rounding(c->out.type, x));
  }
  if (!c->lse.data) return;
  double got = oracle_get(&c->lse, e, h, at, 0);
  bool right = isfinite(want->lse)         ? fabs(got - want->lse) <= want->lse_tolerance
               : want->lse == -INFINITY ? got == -INFINITY
                                        : !isfinite(got);
  ck_assert_msg(right, "%s: lse[%d, %d, %d] is %.9g, not %.9g within %.2g", what, (int)b, (int)h, (int)row, got, want->lse,
                want->lse_tolerance);
}

void oracle_check(const fly_attention *c, oracle_predicate *see, void *context, double untouched, const char *what) {
  const fly_geometry *g = &c->geometry;
  int64_t rows = c->out.shape[2];
  oracle_row want;
  bool *written = calloc(rows + 1, sizeof *written);
  for (int64_t h = 0; h < g->heads; h++) {
    for (int64_t b = 0; b < g->batch; b++) {
      if (b == 0 || !g->cu_seqlens_q) memset(written, 0, rows * sizeof *written);
      for (int64_t row = 0; row < length(g->cu_seqlens_q, b, g->len_q); row++) {
        oracle_attend(c, see, context, b, h, row, &want);
        check_row(c, &want, b, h, row, what);
        written[out_row(c, b, h, row)] = true;
      }
      if (g->cu_seqlens_q && b + 1 < g->batch) continue;
      for (int64_t row = 0; row < rows; row++)
        for (int64_t d = 0; !written[row] && d < c->v.shape[3]; d++)
          ck_assert_msg(oracle_get(&c->out, entry(g, b), h, row, d) == untouched, "%s: out row %d of (%d, %d) was written",
                        what, (int)row, (int)b, (int)h);
    }
  }
  free(written);
}
