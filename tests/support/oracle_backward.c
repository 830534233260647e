/* oracle_backward.c: the double-precision reference of gradients, and the error that f32 may make.
 *
 * The tolerance follows each term of a sum: P carries the error of its exponent, eps (2 + 2 scale max sum |q_d k_d| +
 * |LSE|); dP - delta that of its own sums, eps sum |dO_d| |V_d| and eps sum |dO_d| |O_d|, with O as the caller's tensor
 * holds it, rounded to its type; the sum over rows adds eps of the sizes of its terms. All twice. */
#include "oracle_backward.h"

#include <float.h>

enum { MAX_DIM = 512 };

/* One (batch entry, query head) of a call. */
typedef struct problem {
  const fly_attention *c;
  int64_t b, h, entry, kv_head, dim, value_dim, queries, keys;
  double scale, rounding; /* of O's type */
  double p_rounding;      /* oracle_rounding_of_p */
  double operands;        /* what P and dS may be off by, relatively, as factors of the products over rows */
  double *k, *v;          /* [keys][...], as the call's rows have them */
  bool *seen;             /* [keys], by the query at hand */
  /* Of the query at hand: P and dP, and what they may be off by, in units of P where P is meant. */
  double *p, *dp, *dp_error, q[MAX_DIM], d_out[MAX_DIM], out[MAX_DIM], lse, d_lse, delta, delta_error, p_error;
} problem;

static int64_t length(const int32_t *cu, int64_t b, int64_t otherwise) { return cu ? cu[b + 1] - cu[b] : otherwise; }

static int64_t through(const fly_row_map *map, const int32_t *cu, const problem *t, int64_t row) {
  row += cu ? cu[t->b] : 0;
  return map->rows ? map->rows[t->b * map->stride_batch + t->h * map->stride_head + row] : row;
}

static int64_t query_row(const problem *t, int64_t i) {
  return through(&t->c->geometry.q_rows, t->c->geometry.cu_seqlens_q, t, i);
}

static int64_t key_row(const problem *t, int64_t j) {
  return through(&t->c->geometry.kv_rows, t->c->geometry.cu_seqlens_kv, t, j);
}

static int64_t out_row(const problem *t, int64_t i) {
  const fly_row_map *map = t->c->out_rows.rows ? &t->c->out_rows : &t->c->geometry.q_rows;
  return through(map, t->c->geometry.cu_seqlens_q, t, i);
}

static void get_row(double *out, const fly_tensor *x, int64_t entry, int64_t head, int64_t row) {
  for (int64_t d = 0; d < x->shape[3]; d++) out[d] = oracle_get(x, entry, head, row, d);
}

static problem *open_problem(const fly_attention *c, int64_t b, int64_t h) {
  const fly_geometry *g = &c->geometry;
  problem *t = calloc(1, sizeof *t);
  *t = (problem){.c = c, .b = b, .h = h, .dim = c->q.shape[3], .value_dim = c->v.shape[3]};
  t->entry = g->cu_seqlens_q ? 0 : b;
  t->kv_head = h / (g->heads / c->k.shape[1]);
  t->queries = length(g->cu_seqlens_q, b, g->len_q), t->keys = length(g->cu_seqlens_kv, b, g->len_kv);
  t->scale = c->scale != 0 ? c->scale : 1 / sqrt((double)t->dim);
  t->p_rounding = oracle_rounding_of_p(c);
  t->rounding = c->out.type == FLY_F32 ? 0x1p-24 : c->out.type == FLY_F16 ? 0x1p-11 : 0x1p-8;
  t->k = calloc(t->keys * t->dim + 1, sizeof(double)), t->v = calloc(t->keys * t->value_dim + 1, sizeof(double));
  t->seen = calloc(t->keys + 1, sizeof(bool));
  t->p = calloc(t->keys + 1, sizeof(double)), t->dp = calloc(t->keys + 1, sizeof(double));
  t->dp_error = calloc(t->keys + 1, sizeof(double));
  for (int64_t j = 0; j < t->keys; j++) {
    get_row(t->k + j * t->dim, &c->k, t->entry, t->kv_head, key_row(t, j));
    get_row(t->v + j * t->value_dim, &c->v, t->entry, t->kv_head, key_row(t, j));
  }
  return t;
}

static void close_problem(problem *t) {
  free(t->k), free(t->v), free(t->seen), free(t->p), free(t->dp), free(t->dp_error), free(t);
}

static double dot(const double *a, const double *b, int64_t n, double *size) {
  double sum = 0;
  *size = 0;
  for (int64_t d = 0; d < n; d++) {
    sum += a[d] * b[d];
    *size += fabs(a[d] * b[d]);
  }
  return sum;
}

/* P, O and LSE of query i. A NaN or an infinite score gives NaN; a score of -infinity counts as masked. */
static void attend(problem *t, oracle_predicate *see, void *context, int64_t i) {
  double max = -INFINITY, sum = 0, most = 0, size;
  get_row(t->q, &t->c->q, t->entry, t->h, query_row(t, i));
  for (int64_t j = 0; j < t->keys; j++) {
    t->seen[j] = see(context, (int)t->b, (int)t->h, (int)(i + t->c->geometry.q_offset), (int)j);
    if (!t->seen[j]) continue;
    t->p[j] = t->scale * dot(t->q, t->k + j * t->dim, t->dim, &size);
    if (isfinite(size) && fabs(t->scale) * size > most) most = fabs(t->scale) * size;
    if (t->p[j] > max || isnan(t->p[j])) max = t->p[j];
  }
  memset(t->out, 0, sizeof t->out);
  for (int64_t j = 0; j < t->keys; j++)
    if (t->seen[j]) sum += t->p[j] = t->p[j] == -INFINITY ? 0 : exp(t->p[j] - max);
  for (int64_t j = 0; j < t->keys; j++) {
    if (!t->seen[j] || sum == 0) continue;
    t->p[j] /= sum;
    for (int64_t d = 0; d < t->value_dim; d++) t->out[d] += t->p[j] * t->v[j * t->value_dim + d];
  }
  t->lse = sum == 0 ? -INFINITY : max + log(sum);
  t->p_error = FLT_EPSILON * (2 + 2 * most + (sum == 0 ? 0 : fabs(t->lse)));
  t->delta_error = FLT_EPSILON * (1 + most) + t->rounding;
}

/* dP and delta of query i, after attend. */
static void differentiate(problem *t, int64_t i) {
  double size = 0;
  const fly_attention *c = t->c;
  get_row(t->d_out, &c->d_out, t->entry, t->h, out_row(t, i));
  t->d_lse = c->d_lse.data ? oracle_get(&c->d_lse, t->entry, t->h, out_row(t, i), 0) : 0;
  t->delta = 0;
  for (int64_t j = 0; j < t->keys; j++) {
    if (!t->seen[j]) continue;
    t->dp[j] = dot(t->d_out, t->v + j * t->value_dim, t->value_dim, &t->dp_error[j]);
    t->delta += t->p[j] * t->dp[j];
    size += t->p[j] * t->dp_error[j];
  }
  t->delta_error *= size;
}

static void add(oracle_gradient *g, const fly_tensor *x, int64_t entry, int64_t head, int64_t row, double factor,
                double error, const double *other) {
  int64_t at = ((entry * x->shape[1] + head) * x->shape[2] + row) * x->shape[3];
  for (int64_t d = 0; d < x->shape[3]; d++) {
    g->value[at + d] += factor * other[d];
    g->tolerance[at + d] += 2 * error * fabs(other[d]);
  }
}

/* Probabilities below 2^-126 may count as 0. */
static void add_query(problem *t, int64_t i, oracle_gradients *g) {
  const fly_attention *c = t->c;
  for (int64_t j = 0; j < t->keys; j++) {
    if (!t->seen[j]) continue;
    double p = t->p[j], p_error = p * t->p_error + 0x1p-126, ds = p * (t->dp[j] - t->delta + t->d_lse) * t->scale;
    double size = fabs(t->dp[j]) + fabs(t->delta) + fabs(t->d_lse);
    double error = fabs(t->scale) * (p_error * size + p * (FLT_EPSILON * (t->dp_error[j] + size) + t->delta_error));
    error += t->p_rounding / 2 * (fabs(ds) + 0x1p-118); /* add() takes it twice */
    p_error += t->p_rounding / 2 * (p + 0x1p-118);
    int64_t row = key_row(t, j);
    double least = t->operands && c->q.type == FLY_F16 ? 0x1p-25 : 0; /* half of f16's smallest subnormal */
    error += fabs(ds) * t->operands + fabs(t->scale) * least;
    add(&g->q, &c->q, t->entry, t->h, query_row(t, i), ds, error, t->k + j * t->dim);
    add(&g->k, &c->k, t->entry, t->kv_head, row, ds, error, t->q);
    add(&g->v, &c->v, t->entry, t->kv_head, row, p, p_error + p * (FLT_EPSILON + t->operands) + least, t->d_out);
  }
}

static oracle_gradient make_gradient(const fly_tensor *x) {
  size_t count = (size_t)(x->shape[0] * x->shape[1] * x->shape[2] * x->shape[3]) + 1;
  return (oracle_gradient){calloc(count, sizeof(double)), calloc(count, sizeof(double))};
}

static oracle_gradients gradients_of(const fly_attention *c, oracle_predicate *see, void *context, double operands) {
  oracle_gradients g = {make_gradient(&c->q), make_gradient(&c->k), make_gradient(&c->v)};
  for (int64_t b = 0; b < c->geometry.batch; b++)
    for (int64_t h = 0; h < c->geometry.heads; h++) {
      problem *t = open_problem(c, b, h);
      t->operands = operands;
      for (int64_t i = 0; i < t->queries; i++) {
        attend(t, see, context, i);
        differentiate(t, i);
        add_query(t, i, &g);
      }
      close_problem(t);
    }
  return g;
}

oracle_gradients oracle_backward(const fly_attention *c, oracle_predicate *see, void *context) {
  return gradients_of(c, see, context, 0);
}

void oracle_gradients_free(oracle_gradients *g) {
  free(g->q.value), free(g->q.tolerance);
  free(g->k.value), free(g->k.tolerance);
  free(g->v.value), free(g->v.tolerance);
}

/* ---- the forward side of a call ---------------------------------------------------------------------------------- */

double oracle_loss(const fly_attention *c, oracle_predicate *see, void *context) {
  double loss = 0;
  oracle_row row;
  for (int64_t b = 0; b < c->geometry.batch; b++)
    for (int64_t h = 0; h < c->geometry.heads; h++) {
      problem *t = open_problem(c, b, h);
      for (int64_t i = 0; i < t->queries; i++) {
        oracle_attend(c, see, context, b, h, i, &row);
        for (int64_t d = 0; d < t->value_dim; d++)
          loss += row.out[d] * oracle_get(&c->d_out, t->entry, h, out_row(t, i), d);
        if (c->d_lse.data && row.lse != -INFINITY)
          loss += row.lse * oracle_get(&c->d_lse, t->entry, h, out_row(t, i), 0);
      }
      close_problem(t);
    }
  return loss;
}

void oracle_forward(const fly_attention *c, oracle_predicate *see, void *context) {
  for (int64_t b = 0; b < c->geometry.batch; b++)
    for (int64_t h = 0; h < c->geometry.heads; h++) {
      problem *t = open_problem(c, b, h);
      for (int64_t i = 0; i < t->queries; i++) {
        attend(t, see, context, i);
        for (int64_t d = 0; d < t->value_dim; d++) oracle_set(&c->out, t->entry, h, out_row(t, i), d, t->out[d]);
        oracle_set(&c->lse, t->entry, h, out_row(t, i), 0, t->lse);
      }
      close_problem(t);
    }
}

/* ---- comparison -------------------------------------------------------------------------------------------------- */

static void compare(const char *name, const fly_tensor *t, const oracle_gradient *g, const char *what) {
  if (!t->data) return;
  int64_t at = 0;
  for (int64_t b = 0; b < t->shape[0]; b++)
    for (int64_t h = 0; h < t->shape[1]; h++)
      for (int64_t s = 0; s < t->shape[2]; s++)
        for (int64_t d = 0; d < t->shape[3]; d++, at++) {
          double got = oracle_get(t, b, h, s, d), x = g->value[at],
                 tolerance = g->tolerance[at] + oracle_half_place(t->type, x);
          bool right = isfinite(x) ? fabs(got - x) <= tolerance : !isfinite(got);
          ck_assert_msg(right, "%s: %s[%d, %d, %d, %d] is %.9g, not %.9g within %.2g", what, name, (int)b, (int)h,
                        (int)s, (int)d, got, x, tolerance);
        }
}

void oracle_check_backward_units(const fly_attention *c, oracle_predicate *see, void *context, double operands,
                                 const char *what) {
  oracle_gradients g = gradients_of(c, see, context, operands);
  compare("d_q", &c->d_q, &g.q, what);
  compare("d_k", &c->d_k, &g.k, what);
  compare("d_v", &c->d_v, &g.v, what);
  oracle_gradients_free(&g);
}

void oracle_check_backward(const fly_attention *c, oracle_predicate *see, void *context, const char *what) {
  oracle_check_backward_units(c, see, context, 0, what);
}
