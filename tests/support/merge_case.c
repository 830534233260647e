/* merge_case.c: cases of merges and their reference. */
#include "merge_case.h"

/* ---- a case ------------------------------------------------------------------------------------------------------ */

static void *guarded(merge_case *t, size_t bytes, size_t align) {
  void *memory = guard_alloc(bytes ? bytes : align, align, (t->used + t->spec.seed) % 3 == 0);
  return t->memory[t->used++] = memory;
}

static fly_tensor make(merge_case *t, fly_type type, int64_t rows, int64_t dim) {
  const merge_spec *s = &t->spec;
  fly_tensor x = fly_tensor_dense(NULL, type, s->batch, s->heads, rows, dim);
  if (s->padded) x.stride[2] = s->heads * (dim + 1), x.stride[1] = dim + 1, x.stride[0] = rows * x.stride[2];
  int64_t elements = x.stride[0] * (s->batch - 1) + x.stride[1] * (s->heads - 1) + x.stride[2] * (rows - 1) + dim;
  x.data = guarded(t, elements * fly_type_size(type), fly_type_size(type));
  return x;
}

static void fill(const fly_tensor *x, test_random *random, double amplitude) {
  for (int64_t b = 0; b < x->shape[0]; b++)
    for (int64_t h = 0; h < x->shape[1]; h++)
      for (int64_t r = 0; r < x->shape[2]; r++)
        for (int64_t d = 0; d < x->shape[3]; d++)
          oracle_set(x, b, h, r, d, random ? amplitude * test_normal(random) : CALL_UNTOUCHED);
}

/* Distinct rows of `limit`, now and then -1. */
static fly_row_map make_rows(merge_case *t, int64_t limit, test_random *random) {
  const merge_spec *s = &t->spec;
  int64_t planes = s->batch * s->heads;
  int32_t *rows = guarded(t, planes * s->rows * sizeof *rows, sizeof *rows), *all = malloc(limit * sizeof *all);
  for (int64_t p = 0; p < planes; p++) {
    for (int64_t i = 0; i < limit; i++) all[i] = (int32_t)i;
    for (int64_t i = 0; i < s->rows; i++) {
      int64_t j = test_range(random, i, limit - 1);
      int32_t x = all[j];
      all[j] = all[i], all[i] = x;
      rows[p * s->rows + i] = test_range(random, 0, 5) ? x : -1;
    }
  }
  free(all);
  return (fly_row_map){rows, s->heads * s->rows, s->rows};
}

void merge_init(merge_case *t, const merge_spec *spec) {
  *t = (merge_case){.spec = *spec};
  merge_spec *s = &t->spec;
  test_random random = {12345 + (uint64_t)s->seed};
  for (int i = 0; i < s->count; i++) {
    fly_partial *p = &t->partials[i];
    fly_type type = s->type[i] ? s->type[i] : FLY_F32;
    int64_t rows = s->rows + (s->row_maps ? 9 + i : 0);
    p->out = make(t, type, rows, s->dim), p->lse = make(t, FLY_F32, rows, 1);
    p->d_out = make(t, type, rows, s->dim), p->d_lse = make(t, FLY_F32, rows, 1);
    fill(&p->out, &random, 1), fill(&p->lse, &random, 3);
    fill(&p->d_out, NULL, 0), fill(&p->d_lse, NULL, 0);
    if (s->row_maps && i % 2 == 0)
      p->rows = make_rows(t, rows, &random);
    else
      p->out.shape[2] = p->lse.shape[2] = p->d_out.shape[2] = p->d_lse.shape[2] = s->rows;
    for (int64_t b = 0; b < s->batch; b++)
      for (int64_t h = 0; h < s->heads; h++)
        for (int64_t r = 0; r < p->out.shape[2]; r++) {
          if (test_range(&random, 0, 7) >= s->empty) continue;
          oracle_set(&p->lse, b, h, r, 0, -INFINITY);
          for (int d = 0; d < s->dim; d++) oracle_set(&p->out, b, h, r, d, NAN); /* never read */
        }
  }
  fly_type type = s->out_type ? s->out_type : FLY_F32;
  t->call = (fly_merge_call){FLY_INIT(fly_merge_call),
                             .partials = t->partials,
                             .count = s->count,
                             .threads = s->threads,
                             .out = make(t, type, s->rows, s->dim),
                             .lse = make(t, FLY_F32, s->rows, 1),
                             .d_out = make(t, type, s->rows, s->dim)};
  if (s->d_lse) t->call.d_lse = make(t, FLY_F32, s->rows, 1), fill(&t->call.d_lse, &random, 1);
  fill(&t->call.out, NULL, 0), fill(&t->call.lse, NULL, 0), fill(&t->call.d_out, &random, 1);
}

void merge_finish(merge_case *t) {
  for (int i = 0; i < t->used; i++) guard_free(t->memory[i]);
}

/* ---- the formula ------------------------------------------------------------------------------------------------- */

static int64_t row_of(const fly_partial *p, int64_t b, int64_t h, int64_t r) {
  return p->rows.rows ? p->rows.rows[b * p->rows.stride_batch + h * p->rows.stride_head + r] : r;
}

/* The weights of a row's partials, and its LSE. */
double merge_weigh(const merge_case *t, int64_t b, int64_t h, int64_t r, double *weight) {
  double most = -INFINITY, sum = 0;
  for (int i = 0; i < t->spec.count; i++) {
    int64_t row = row_of(&t->partials[i], b, h, r);
    weight[i] = row < 0 ? -INFINITY : oracle_get(&t->partials[i].lse, b, h, row, 0);
    most = fmax(most, weight[i]);
  }
  for (int i = 0; i < t->spec.count; i++) sum += weight[i] = most == -INFINITY ? 0 : exp(weight[i] - most);
  for (int i = 0; i < t->spec.count && sum > 0; i++) weight[i] /= sum;
  return sum > 0 ? most + log(sum) : -INFINITY;
}

static double rounding(fly_type type, double x) {
  return type == FLY_F16    ? fabs(x) * 0x1.01p-11 + 0x1p-24
         : type == FLY_BF16 ? fabs(x) * 0x1.01p-8 + 0x1p-133
                            : fabs(x) * 0x1.01p-24 + 0x1p-149;
}

/* One rounding of the result, and a little of double precision. */
static void expect(double got, const fly_tensor *x, double want, double size, const char *what, int64_t r, int64_t d) {
  double tolerance = rounding(x->type, want) + 1e-14 * size;
  if (got == want || fabs(got - want) <= tolerance) return;
  ck_abort_msg("%s[%d, %d] is %.10g, not %.10g within %.2g", what, (int)r, (int)d, got, want, tolerance);
}

void merge_check_forward(const merge_case *t) {
  double weight[MOST];
  for (int64_t b = 0; b < t->spec.batch; b++)
    for (int64_t h = 0; h < t->spec.heads; h++)
      for (int64_t r = 0; r < t->spec.rows; r++) {
        double lse = merge_weigh(t, b, h, r, weight);
        expect(oracle_get(&t->call.lse, b, h, r, 0), &t->call.lse, lse, 1, "lse", r, 0);
        for (int d = 0; d < t->spec.dim; d++) {
          double want = 0, size = 0;
          for (int i = 0; i < t->spec.count; i++) {
            double x = weight[i] > 0
                           ? weight[i] * oracle_get(&t->partials[i].out, b, h, row_of(&t->partials[i], b, h, r), d)
                           : 0;
            want += x, size += fabs(x);
          }
          expect(oracle_get(&t->call.out, b, h, r, d), &t->call.out, want, size, "out", r, d);
        }
      }
}

/* Rows of partials that nothing reads keep their gradients. */
static void check_untouched(const merge_case *t) {
  for (int i = 0; i < t->spec.count; i++) {
    const fly_partial *p = &t->partials[i];
    if (!p->rows.rows) continue;
    for (int64_t b = 0; b < t->spec.batch; b++)
      for (int64_t h = 0; h < t->spec.heads; h++)
        for (int64_t row = 0; row < p->out.shape[2]; row++) {
          bool read = false;
          for (int64_t r = 0; r < t->spec.rows; r++) read |= row_of(p, b, h, r) == row;
          ck_assert(read == (oracle_get(&p->d_lse, b, h, row, 0) != CALL_UNTOUCHED));
          ck_assert(read == (oracle_get(&p->d_out, b, h, row, 0) != CALL_UNTOUCHED));
        }
  }
}

void merge_check_backward(const merge_case *t) {
  double weight[MOST], dot[MOST];
  for (int64_t b = 0; b < t->spec.batch; b++)
    for (int64_t h = 0; h < t->spec.heads; h++)
      for (int64_t r = 0; r < t->spec.rows; r++) {
        merge_weigh(t, b, h, r, weight);
        double mean = 0, d_lse = t->spec.d_lse ? oracle_get(&t->call.d_lse, b, h, r, 0) : 0;
        for (int i = 0; i < t->spec.count; i++) {
          dot[i] = 0;
          for (int d = 0; d < t->spec.dim && weight[i] > 0; d++)
            dot[i] += oracle_get(&t->call.d_out, b, h, r, d) *
                      oracle_get(&t->partials[i].out, b, h, row_of(&t->partials[i], b, h, r), d);
          mean += weight[i] * dot[i];
        }
        for (int i = 0; i < t->spec.count; i++) {
          const fly_partial *p = &t->partials[i];
          int64_t row = row_of(p, b, h, r);
          if (row < 0) continue;
          double want = weight[i] > 0 ? weight[i] * (dot[i] - mean + d_lse) : 0;
          expect(oracle_get(&p->d_lse, b, h, row, 0), &p->d_lse, want, t->spec.dim * 10, "d_lse", r, i);
          for (int d = 0; d < t->spec.dim; d++)
            expect(oracle_get(&p->d_out, b, h, row, d), &p->d_out, weight[i] * oracle_get(&t->call.d_out, b, h, r, d),
                   1, "d_out", r, d);
        }
      }
  check_untouched(t);
}
