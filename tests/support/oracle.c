/* oracle.c: the double-precision reference: loops over pairs, an exact softmax, and the error that an f32 kernel may
 * make. */
#include "oracle.h"

#include "../../runtime/runtime.h"

#include <float.h>

static int64_t offset_of(const fly_tensor *t, int64_t b, int64_t h, int64_t row, int64_t i) {
  return b * t->stride[0] + h * t->stride[1] + row * t->stride[2] + i;
}

/* Every f16 or bf16, decoded: most of a test's time would go there. */
static const float *table_of(fly_type type) {
  static float tables[2][1 << 16], *ready[2];
  int which = type == FLY_F16;
  if (!ready[which])
    for (int x = 0; x < 1 << 16; x++)
      tables[which][x] = (float)(which ? test_from_f16((uint16_t)x) : test_from_bf16((uint16_t)x));
  return ready[which] = tables[which];
}

double oracle_get(const fly_tensor *t, int64_t b, int64_t h, int64_t row, int64_t i) {
  int64_t at = offset_of(t, b, h, row, i);
  if (t->type == FLY_F32) return ((const float *)t->data)[at];
  return table_of(t->type)[((const uint16_t *)t->data)[at]];
}

void oracle_set(const fly_tensor *t, int64_t b, int64_t h, int64_t row, int64_t i, double x) {
  int64_t at = offset_of(t, b, h, row, i);
  if (t->type == FLY_F32)
    ((float *)t->data)[at] = (float)x;
  else
    ((uint16_t *)t->data)[at] = t->type == FLY_F16 ? test_to_f16(x) : test_to_bf16(x);
}

double oracle_rounding_of_p(const fly_attention *c) {
  bool cpu = c->kernel && !c->kernel->cuda_target[0];
  return cpu && c->q.type == FLY_BF16 && c->kernel->isa == FLYI_X86_64_V4_BF16 ? 0x1p-8 : 0;
}

/* ---- geometry -------------------------------------------------------------------------------------------------- */

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

/* ---- one row --------------------------------------------------------------------------------------------------- */

/* The keys and values of a (b, h) in the call's order, as doubles. */
typedef struct plane {
  int64_t b, h, keys, dim, values;
  double *k, *v, *score;
} plane;

static void open_plane(plane *p, const fly_attention *c, int64_t b, int64_t h) {
  const fly_geometry *g = &c->geometry;
  int64_t head = h / (g->heads / c->k.shape[1]), e = entry(g, b);
  *p = (plane){b, h, length(g->cu_seqlens_kv, b, g->len_kv), c->q.shape[3], c->v.shape[3], NULL, NULL, NULL};
  p->k = malloc((p->keys * p->dim + 1) * sizeof *p->k);
  p->v = malloc((p->keys * p->values + 1) * sizeof *p->v);
  p->score = malloc((p->keys + 1) * sizeof *p->score);
  for (int64_t j = 0; j < p->keys; j++) {
    int64_t row = through(&g->kv_rows, g->cu_seqlens_kv, b, h, j);
    for (int64_t d = 0; d < p->dim; d++) p->k[j * p->dim + d] = oracle_get(&c->k, e, head, row, d);
    for (int64_t d = 0; d < p->values; d++) p->v[j * p->values + d] = oracle_get(&c->v, e, head, row, d);
  }
}

static void close_plane(plane *p) { free(p->k), free(p->v), free(p->score); }

static void attend(const plane *p, const fly_attention *c, oracle_predicate *see, void *context, int64_t row,
                   oracle_row *result) {
  const fly_geometry *g = &c->geometry;
  double scale = c->scale != 0 ? c->scale : 1 / sqrt((double)p->dim), most = 0, max = -INFINITY, sum = 0, value = 0;
  double q[512];
  memset(result, 0, sizeof *result);
  for (int64_t d = 0; d < p->dim; d++)
    q[d] = oracle_get(&c->q, entry(g, p->b), p->h, through(&g->q_rows, g->cu_seqlens_q, p->b, p->h, row), d);
  for (int64_t j = 0; j < p->keys; j++) {
    p->score[j] = -INFINITY;
    if (!see(context, (int)p->b, (int)p->h, (int)(row + g->q_offset), (int)j)) continue;
    double dot = 0, size = 0;
    for (int64_t d = 0; d < p->dim; d++) {
      double x = q[d] * p->k[j * p->dim + d];
      dot += x, size += fabs(x);
    }
    p->score[j] = scale * dot;
    if (isfinite(size) && fabs(scale) * size > most) most = fabs(scale) * size;
    if (p->score[j] > max) max = p->score[j];
    for (int64_t d = 0; d < p->values; d++) {
      double x = fabs(p->v[j * p->values + d]);
      if (isfinite(x) && x > value) value = x;
    }
  }
  for (int64_t j = 0; j < p->keys; j++) {
    if (p->score[j] == -INFINITY) continue;
    double weight = exp(p->score[j] - max); /* may be 0: a NaN that the query sees is seen all the same */
    sum += weight;
    for (int64_t d = 0; d < p->values; d++) {
      double x = p->v[j * p->values + d];
      result->out[d] += weight * x;
      if (isfinite(x)) result->size[d] += weight * fabs(x);
      if (isinf(x) && weight < 0x1p-100) result->faint = true;
    }
  }
  for (int64_t d = 0; d < p->values; d++) {
    result->out[d] = sum == 0 ? 0 : result->out[d] / sum;
    result->size[d] = sum == 0 ? 0 : result->size[d] / sum;
  }
  result->lse = sum == 0 ? -INFINITY : max + log(sum);
  result->tolerance = 8 * FLT_EPSILON * (1 + most) * value;
  result->lse_tolerance = 8 * FLT_EPSILON * (1 + most) + FLT_EPSILON * fabs(sum == 0 ? 0 : result->lse);
}

void oracle_attend(const fly_attention *c, oracle_predicate *see, void *context, int64_t b, int64_t h, int64_t row,
                   oracle_row *result) {
  plane p;
  open_plane(&p, c, b, h);
  attend(&p, c, see, context, row, result);
  close_plane(&p);
}

/* ---- a whole call ---------------------------------------------------------------------------------------------- */

double oracle_half_place(fly_type type, double x) {
  if (type == FLY_F16) return fabs(x) * 0x1p-11 + 0x1p-25;
  if (type == FLY_BF16) return fabs(x) * 0x1p-8 + 0x1p-134;
  return fabs(x) * 0x1p-24 + 0x1p-150;
}

bool oracle_agrees(double got, double want, double tolerance) {
  if (isnan(want)) return isnan(got);
  if (isinf(want)) return got == want;
  return fabs(got - want) <= tolerance;
}

/* What rounding P to the type may do to a sum: relative, and of what falls below f16's smallest subnormal. */
static double operand_error(const fly_attention *c, const oracle_row *want, int64_t d) {
  if (c->q.type == FLY_BF16) return want->size[d] * 0x1p-8;
  return c->q.type == FLY_F16 ? want->size[d] * 0x1p-11 + 0x1p-16 : 0;
}

static void check_row(const fly_attention *c, const oracle_row *want, bool units, int64_t b, int64_t h, int64_t row,
                      const char *what) {
  int64_t e = entry(&c->geometry, b), at = out_row(c, b, h, row);
  for (int64_t d = 0; d < c->v.shape[3]; d++) {
    double got = oracle_get(&c->out, e, h, at, d), x = want->out[d];
    double error = want->tolerance + oracle_half_place(c->out.type, x) + (units ? operand_error(c, want, d) : 0) +
                   oracle_rounding_of_p(c) * (want->size[d] + 0x1p-118);
    if (!oracle_agrees(got, x, error) && !(want->faint && isnan(got)))
      ck_abort_msg("%s: out[%d, %d, %d, %d] is %.9g, not %.9g within %.2g", what, (int)b, (int)h, (int)row, (int)d, got,
                   x, error);
  }
  if (!c->lse.data) return;
  double got = oracle_get(&c->lse, e, h, at, 0);
  if (!oracle_agrees(got, want->lse, want->lse_tolerance))
    ck_abort_msg("%s: lse[%d, %d, %d] is %.9g, not %.9g within %.2g", what, (int)b, (int)h, (int)row, got, want->lse,
                 want->lse_tolerance);
}

static void check_untouched(const fly_attention *c, int64_t b, int64_t h, int64_t row, double untouched,
                            const char *what) {
  for (int64_t d = 0; d < c->v.shape[3]; d++)
    if (oracle_get(&c->out, b, h, row, d) != untouched)
      ck_abort_msg("%s: out row %d of (%d, %d) was written", what, (int)row, (int)b, (int)h);
  if (c->lse.data && oracle_get(&c->lse, b, h, row, 0) != untouched)
    ck_abort_msg("%s: lse row %d of (%d, %d) was written", what, (int)row, (int)b, (int)h);
}

static void check(const fly_attention *c, oracle_predicate *see, void *context, double untouched, bool units,
                  const char *what) {
  const fly_geometry *g = &c->geometry;
  int64_t rows = c->out.shape[2];
  oracle_row want;
  bool *written = calloc(rows + 1, sizeof *written);
  for (int64_t h = 0; h < g->heads; h++) {
    for (int64_t b = 0; b < g->batch; b++) {
      if (b == 0 || !g->cu_seqlens_q) memset(written, 0, rows * sizeof *written);
      plane p;
      open_plane(&p, c, b, h);
      for (int64_t row = 0; row < length(g->cu_seqlens_q, b, g->len_q); row++) {
        attend(&p, c, see, context, row, &want);
        check_row(c, &want, units, b, h, row, what);
        written[out_row(c, b, h, row)] = true;
      }
      close_plane(&p);
      if (g->cu_seqlens_q && b + 1 < g->batch) continue;
      for (int64_t row = 0; row < rows; row++)
        if (!written[row]) check_untouched(c, entry(g, b), h, row, untouched, what);
    }
  }
  free(written);
}

void oracle_check(const fly_attention *c, oracle_predicate *see, void *context, double untouched, const char *what) {
  check(c, see, context, untouched, false, what);
}

void oracle_check_units(const fly_attention *c, oracle_predicate *see, void *context, double untouched,
                        const char *what) {
  check(c, see, context, untouched, true, what);
}
