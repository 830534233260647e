/* oracle_backward.c: the double-precision reference of gradients, and the error that f32 may make.
 *
 * The tolerance follows each term of a sum: P carries the error of its exponent, eps (2 + 2 scale max sum |q_d k_d| + |LSE|);
 * dP - delta that of its own sums, eps sum |dO_d| |V_d| and eps sum |dO_d| |O_d|, with O as the caller's tensor holds it,
 * rounded to its type; and the sum over rows adds eps of the sizes of its terms. All times 8. */
#include "oracle_backward.h"

#include <float.h>

enum { MAX_DIM = 256 };

/* What the loops over pairs share. */
typedef struct problem {
  const fly_attention *c;
  int64_t b, h, entry, kv_head, dim, value_dim, keys;
  double scale, rounding; /* of O's type */
} problem;

static int64_t length(const int32_t *cu, int64_t b, int64_t otherwise) { return cu ? cu[b + 1] - cu[b] : otherwise; }

static int64_t through(const fly_row_map *map, const int32_t *cu, const problem *p, int64_t row) {
  row += cu ? cu[p->b] : 0;
  return map->rows ? map->rows[p->b * map->stride_batch + p->h * map->stride_head + row] : row;
}

static int64_t query_row(const problem *p, int64_t i) {
  return through(&p->c->geometry.q_rows, p->c->geometry.cu_seqlens_q, p, i);
}

static int64_t key_row(const problem *p, int64_t j) {
  return through(&p->c->geometry.kv_rows, p->c->geometry.cu_seqlens_kv, p, j);
}

static int64_t out_row(const problem *p, int64_t i) {
  const fly_row_map *map = p->c->out_rows.rows ? &p->c->out_rows : &p->c->geometry.q_rows;
  return through(map, p->c->geometry.cu_seqlens_q, p, i);
}

static problem make_problem(const fly_attention *c, int64_t b, int64_t h) {
  const fly_geometry *g = &c->geometry;
  problem p = {.c = c, .b = b, .h = h, .dim = c->q.shape[3], .value_dim = c->v.shape[3]};
  p.entry = g->cu_seqlens_q ? 0 : b;
  p.kv_head = h / (g->heads / c->k.shape[1]);
  p.keys = length(g->cu_seqlens_kv, b, g->len_kv);
  p.scale = c->scale != 0 ? c->scale : 1 / sqrt((double)p.dim);
  p.rounding = c->out.type == FLY_F32 ? 0x1p-24 : c->out.type == FLY_F16 ? 0x1p-11 : 0x1p-8;
  return p;
}

static void get_row(double *out, const fly_tensor *t, int64_t entry, int64_t head, int64_t row) {
  for (int64_t d = 0; d < t->shape[3]; d++) out[d] = oracle_get(t, entry, head, row, d);
}

static double dot(const double *a, const double *b, int64_t n, double *size) {
  double sum = 0;
  for (int64_t d = 0; d < n; d++) {
    sum += a[d] * b[d];
    *size += fabs(a[d] * b[d]);
  }
  return sum;
}

/* A query's row of P and dP, and what they may be off by. */
typedef struct pairs {
  double *p, *dp, *dp_error; /* [keys]; p -1: not seen */
  double delta, delta_error, d_lse, p_error;
} pairs;

static void attend(const problem *t, oracle_predicate *see, void *context, int64_t i, const double *q, const double *d_out,
                   pairs *x) {
  double k[MAX_DIM], v[MAX_DIM], max = -INFINITY, sum = 0, most = 0, out_size = 0;
  for (int64_t j = 0; j < t->keys; j++) {
    x->p[j] = -1;
    if (!see(context, (int)t->b, (int)t->h, (int)(i + t->c->geometry.q_offset), (int)j)) continue;
    double size = 0;
    get_row(k, &t->c->k, t->entry, t->kv_head, key_row(t, j));
    x->p[j] = t->scale * dot(q, k, t->dim, &size);
    if (isfinite(size) && fabs(t->scale) * size > most) most = fabs(t->scale) * size;
    if (x->p[j] > max || isnan(x->p[j])) max = x->p[j];
  }
  x->delta = x->delta_error = 0;
  for (int64_t j = 0; j < t->keys; j++) {
    if (!see(context, (int)t->b, (int)t->h, (int)(i + t->c->geometry.q_offset), (int)j)) continue;
    x->p[j] = x->p[j] == -INFINITY ? 0 : exp(x->p[j] - max);
    sum += x->p[j];
  }
  for (int64_t j = 0; j < t->keys; j++) {
    if (x->p[j] < 0) continue;
    if (sum != 0) x->p[j] /= sum;
    x->dp_error[j] = 0;
    get_row(v, &t->c->v, t->entry, t->kv_head, key_row(t, j));
    x->dp[j] = dot(d_out, v, t->value_dim, &x->dp_error[j]);
    x->delta += x->p[j] * x->dp[j];
    out_size += x->p[j] * x->dp_error[j];
  }
  double lse = sum != 0 ? max + log(sum) : 0;
  x->p_error = FLT_EPSILON * (2 + 2 * most + fabs(lse));
  x->delta_error = (FLT_EPSILON * (1 + most) + t->rounding) * out_size;
}

static void add(oracle_gradient *g, const fly_tensor *t, int64_t entry, int64_t head, int64_t row, double x, double error,
                const double *other) {
  int64_t at = ((entry * t->shape[1] + head) * t->shape[2] + row) * t->shape[3];
  for (int64_t d = 0; d < t->shape[3]; d++) {
    g->value[at + d] += x * other[d];
    g->tolerance[at + d] += 8 * error * fabs(other[d]);
  }
}

static void add_query(const problem *t, oracle_predicate *see, void *context, int64_t i, pairs *x, oracle_gradients *g) {
  double q[MAX_DIM], d_out[MAX_DIM], k[MAX_DIM];
  const fly_attention *c = t->c;
  get_row(q, &c->q, t->entry, t->h, query_row(t, i));
  get_row(d_out, &c->d_out, t->entry, t->h, out_row(t, i));
  x->d_lse = c->d_lse.data ? oracle_get(&c->d_lse, t->entry, t->h, out_row(t, i), 0) : 0;
  attend(t, see, context, i, q, d_out, x);
  for (int64_t j = 0; j < t->keys; j++) {
    if (x->p[j] < 0) continue;
    double p = x->p[j], ds = p * (x->dp[j] - x->delta + x->d_lse) * t->scale;
    double size = fabs(x->dp[j]) + fabs(x->delta) + fabs(x->d_lse);
    double error = fabs(t->scale) * p * (x->p_error * size + FLT_EPSILON * (x->dp_error[j] + size) + x->delta_error);
    get_row(k, &c->k, t->entry, t->kv_head, key_row(t, j));
    add(&g->q, &c->q, t->entry, t->h, query_row(t, i), ds, error, k);
    add(&g->k, &c->k, t->entry, t->kv_head, key_row(t, j), ds, error, q);
    add(&g->v, &c->v, t->entry, t->kv_head, key_row(t, j), p, p * (x->p_error + FLT_EPSILON), d_out);
  }
}

static oracle_gradient make_gradient(const fly_tensor *t) {
  size_t count = (size_t)(t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3]) + 1;
  return (oracle_gradient){calloc(count, sizeof(double)), calloc(count, sizeof(double))};
}

oracle_gradients oracle_backward(const fly_attention *c, oracle_predicate *see, void *context) {
  oracle_gradients g = {make_gradient(&c->q), make_gradient(&c->k), make_gradient(&c->v)};
  for (int64_t b = 0; b < c->geometry.batch; b++)
    for (int64_t h = 0; h < c->geometry.heads; h++) {
      problem p = make_problem(c, b, h);
      pairs x = {.p = calloc(p.keys + 1, sizeof(double)), .dp = calloc(p.keys + 1, sizeof(double)),
                 .dp_error = calloc(p.keys + 1, sizeof(double))};
      int64_t rows = length(c->geometry.cu_seqlens_q, b, c->geometry.len_q);
      for (int64_t i = 0; i < rows; i++) add_query(&p, see, context, i, &x, &g);
      free(x.p), free(x.dp), free(x.dp_error);
    }
  return g;
}

void oracle_gradients_free(oracle_gradients *g) {
  free(g->q.value), free(g->q.tolerance);
  free(g->k.value), free(g->k.tolerance);
  free(g->v.value), free(g->v.tolerance);
}

/* ---- the forward side of a call ---------------------------------------------------------------------------------------- */

double oracle_loss(const fly_attention *c, oracle_predicate *see, void *context) {
  double loss = 0;
  oracle_row row;
  for (int64_t b = 0; b < c->geometry.batch; b++)
    for (int64_t h = 0; h < c->geometry.heads; h++) {
      problem p = make_problem(c, b, h);
      for (int64_t i = 0; i < length(c->geometry.cu_seqlens_q, b, c->geometry.len_q); i++) {
        oracle_attend(c, see, context, b, h, i, &row);
        for (int64_t d = 0; d < p.value_dim; d++) loss += row.out[d] * oracle_get(&c->d_out, p.entry, h, out_row(&p, i), d);
        if (c->d_lse.data && row.lse != -INFINITY) loss += row.lse * oracle_get(&c->d_lse, p.entry, h, out_row(&p, i), 0);
      }
    }
  return loss;
}

void oracle_forward(const fly_attention *c, oracle_predicate *see, void *context) {
  oracle_row row;
  for (int64_t b = 0; b < c->geometry.batch; b++)
    for (int64_t h = 0; h < c->geometry.heads; h++) {
      problem p = make_problem(c, b, h);
      for (int64_t i = 0; i < length(c->geometry.cu_seqlens_q, b, c->geometry.len_q); i++) {
        oracle_attend(c, see, context, b, h, i, &row);
        for (int64_t d = 0; d < p.value_dim; d++) oracle_set(&c->out, p.entry, h, out_row(&p, i), d, row.out[d]);
        oracle_set(&c->lse, p.entry, h, out_row(&p, i), 0, row.lse);
      }
    }
}

/* ---- comparison -------------------------------------------------------------------------------------------------------- */

/* Half a unit in the last place of the type at x, and half the smallest subnormal. */
static double rounding(fly_type type, double x) {
  if (type == FLY_F16) return fabs(x) * 0x1p-11 + 0x1p-25;
  if (type == FLY_BF16) return fabs(x) * 0x1p-8 + 0x1p-134;
  return fabs(x) * 0x1p-24 + 0x1p-126; /* f32 sums may flush what is below the smallest probability */
}

static void compare(const char *name, const fly_tensor *t, const oracle_gradient *g, const char *what) {
  if (!t->data) return;
  int64_t at = 0;
  for (int64_t b = 0; b < t->shape[0]; b++)
    for (int64_t h = 0; h < t->shape[1]; h++)
      for (int64_t s = 0; s < t->shape[2]; s++)
        for (int64_t d = 0; d < t->shape[3]; d++, at++) {
          double got = oracle_get(t, b, h, s, d), x = g->value[at], tolerance = g->tolerance[at] + rounding(t->type, x);
          bool right = isfinite(x) ? fabs(got - x) <= tolerance : !isfinite(got);
          ck_assert_msg(right, "%s: %s[%d, %d, %d, %d] is %.9g, not %.9g within %.2g", what, name, (int)b, (int)h, (int)s,
                        (int)d, got, x, tolerance);
        }
}

void oracle_check_backward(const fly_attention *c, oracle_predicate *see, void *context, const char *what) {
  oracle_gradients g = oracle_backward(c, see, context);
  compare("d_q", &c->d_q, &g.q, what);
  compare("d_k", &c->d_k, &g.k, what);
  compare("d_v", &c->d_v, &g.v, what);
  oracle_gradients_free(&g);
}
