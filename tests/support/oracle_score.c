/* oracle_score.c: the reference with modifiers and sinks. The tolerance follows oracle_backward.c: P carries the error
 * of its exponent, which is that of the score times the modifier's slope, of the modified score and of LSE. */
#include "oracle_score.h"

#include <float.h>

enum { MAX_DIM = 512 };

/* One (batch entry, query head), and what is known of the query at hand. */
typedef struct plane {
  const oracle_scored *o;
  int64_t b, h, entry, kv_head, dim, value_dim, queries, keys;
  double scale, sink;
  double *k, *v;
  double *p, *p_error, *slope, *slope_error; /* [keys]; p -1: not seen */
  double q[MAX_DIM], out[MAX_DIM], out_error[MAX_DIM], out_size[MAX_DIM], lse, lse_error;
} plane;

static int64_t length(const int32_t *cu, int64_t b, int64_t otherwise) { return cu ? cu[b + 1] - cu[b] : otherwise; }

static int64_t through(const plane *t, const fly_row_map *map, const int32_t *cu, int64_t row) {
  row += cu ? cu[t->b] : 0;
  return map->rows ? map->rows[t->b * map->stride_batch + t->h * map->stride_head + row] : row;
}

static int64_t query_row(const plane *t, int64_t i) {
  const fly_geometry *g = &t->o->call->geometry;
  return through(t, &g->q_rows, g->cu_seqlens_q, i);
}

static int64_t key_row(const plane *t, int64_t j) {
  const fly_geometry *g = &t->o->call->geometry;
  return through(t, &g->kv_rows, g->cu_seqlens_kv, j);
}

static int64_t out_row(const plane *t, int64_t i) {
  const fly_attention *c = t->o->call;
  return through(t, c->out_rows.rows ? &c->out_rows : &c->geometry.q_rows, c->geometry.cu_seqlens_q, i);
}

static void get_row(double *out, const fly_tensor *x, int64_t entry, int64_t head, int64_t row) {
  for (int64_t d = 0; d < x->shape[3]; d++) out[d] = oracle_get(x, entry, head, row, d);
}

static plane *open_plane(const oracle_scored *o, int64_t b, int64_t h) {
  const fly_attention *c = o->call;
  const fly_geometry *g = &c->geometry;
  plane *t = calloc(1, sizeof *t);
  *t = (plane){.o = o, .b = b, .h = h, .dim = c->q.shape[3], .value_dim = c->v.shape[3], .sink = -INFINITY};
  t->entry = g->cu_seqlens_q ? 0 : b;
  t->kv_head = h / (g->heads / c->k.shape[1]);
  t->queries = length(g->cu_seqlens_q, b, g->len_q), t->keys = length(g->cu_seqlens_kv, b, g->len_kv);
  t->scale = c->scale != 0 ? c->scale : 1 / sqrt((double)t->dim);
  if (c->sink.data) t->sink = oracle_get(&c->sink, 0, h, 0, 0);
  t->k = calloc(t->keys * t->dim + 1, sizeof(double)), t->v = calloc(t->keys * t->value_dim + 1, sizeof(double));
  t->p = calloc(4 * t->keys + 4, sizeof(double));
  t->p_error = t->p + t->keys, t->slope = t->p_error + t->keys, t->slope_error = t->slope + t->keys;
  for (int64_t j = 0; j < t->keys; j++) {
    get_row(t->k + j * t->dim, &c->k, t->entry, t->kv_head, key_row(t, j));
    get_row(t->v + j * t->value_dim, &c->v, t->entry, t->kv_head, key_row(t, j));
  }
  return t;
}

static void close_plane(plane *t) { free(t->k), free(t->v), free(t->p), free(t); }

static double dot(const double *a, const double *b, int64_t n, double *size) {
  double sum = 0;
  *size = 0;
  for (int64_t d = 0; d < n; d++) sum += a[d] * b[d], *size += fabs(a[d] * b[d]);
  return sum;
}

/* The modified score, its slope, and the error that float makes of it, in p, slope, p_error. */
static double modify(plane *t, int64_t i, int64_t j, double s, double size) {
  const oracle_scored *o = t->o;
  int b = (int)t->b, h = (int)t->h, q = (int)(i + o->call->geometry.q_offset), kv = (int)j;
  double step = 1e-5 * (1 + fabs(s)), changed = s;
  t->slope[j] = 1;
  if (o->modify) {
    changed = o->modify(o->modify_context, s, b, h, q, kv);
    double up = o->modify(o->modify_context, s + step, b, h, q, kv);
    double down = o->modify(o->modify_context, s - step, b, h, q, kv);
    t->slope[j] = isfinite(up) && isfinite(down) ? (up - down) / (2 * step) : 0;
  }
  double error = FLT_EPSILON * (1 + fabs(t->scale) * size);
  t->p_error[j] = 2 * error * (1 + fabs(t->slope[j])) + 8 * FLT_EPSILON * (1 + fabs(isfinite(changed) ? changed : 0));
  t->slope_error[j] = o->modify ? 8 * error * (1 + fabs(t->slope[j])) + 1e-9 : 0;
  return changed;
}

/* P, O and LSE of query i. */
static void attend(plane *t, int64_t i) {
  const oracle_scored *o = t->o;
  double max = t->sink, sum, size, worst = 0;
  get_row(t->q, &o->call->q, t->entry, t->h, query_row(t, i));
  for (int64_t j = 0; j < t->keys; j++) {
    t->p[j] = -INFINITY;
    if (!o->see(o->see_context, (int)t->b, (int)t->h, (int)(i + o->call->geometry.q_offset), (int)j)) continue;
    double s = t->scale * dot(t->q, t->k + j * t->dim, t->dim, &size);
    t->p[j] = modify(t, i, j, s, size);
    if (t->p[j] > max || isnan(t->p[j])) max = t->p[j];
    if (t->p[j] != -INFINITY && t->p_error[j] > worst) worst = t->p_error[j];
  }
  sum = t->sink == -INFINITY ? 0 : exp(t->sink - max);
  for (int64_t j = 0; j < t->keys; j++) sum += t->p[j] = t->p[j] == -INFINITY ? 0 : exp(t->p[j] - max);
  memset(t->out, 0, sizeof t->out), memset(t->out_error, 0, sizeof t->out_error);
  memset(t->out_size, 0, sizeof t->out_size);
  t->lse = sum == 0 ? -INFINITY : max + log(sum);
  t->lse_error = worst + FLT_EPSILON * (4 + 2 * fabs(sum == 0 ? 0 : t->lse));
  for (int64_t j = 0; j < t->keys && sum != 0; j++) {
    t->p[j] /= sum;
    t->p_error[j] += t->lse_error + 2 * FLT_EPSILON;
    for (int64_t d = 0; d < t->value_dim; d++) {
      double x = t->p[j] * t->v[j * t->value_dim + d];
      t->out[d] += x;
      t->out_size[d] += fabs(x);
      t->out_error[d] += fabs(x) * (t->p_error[j] + 8 * FLT_EPSILON);
    }
  }
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

static void each_row(const oracle_scored *o, void (*visit)(plane *t, int64_t i, void *context), void *context) {
  const fly_geometry *g = &o->call->geometry;
  for (int64_t b = 0; b < g->batch; b++)
    for (int64_t h = 0; h < g->heads; h++) {
      plane *t = open_plane(o, b, h);
      for (int64_t i = 0; i < t->queries; i++) {
        attend(t, i);
        visit(t, i, context);
      }
      close_plane(t);
    }
}

static void write_row(plane *t, int64_t i, void *context) {
  const fly_attention *c = t->o->call;
  (void)context;
  for (int64_t d = 0; d < t->value_dim; d++) oracle_set(&c->out, t->entry, t->h, out_row(t, i), d, t->out[d]);
  oracle_set(&c->lse, t->entry, t->h, out_row(t, i), 0, t->lse);
}

void oracle_scored_forward(const oracle_scored *o) { each_row(o, write_row, NULL); }

static void check_row(plane *t, int64_t i, void *context) {
  const fly_attention *c = t->o->call;
  const char *what = context;
  int64_t row = out_row(t, i);
  for (int64_t d = 0; d < t->value_dim; d++) {
    double got = oracle_get(&c->out, t->entry, t->h, row, d), x = t->out[d];
    double tolerance = t->out_error[d] + oracle_half_place(c->out.type, x) +
                       oracle_rounding_of_p(c) * (t->out_size[d] + 0x1p-118) + t->o->operands * t->out_size[d] +
                       (c->q.type == FLY_F16 && t->o->operands ? 0x1p-16 : 0); /* weights below f16's smallest */
    ck_assert_msg(oracle_agrees(got, x, tolerance), "%s: out[%d, %d, %d, %d] is %.9g, not %.9g within %.2g", what,
                  (int)t->b, (int)t->h, (int)i, (int)d, got, x, tolerance);
  }
  double got = oracle_get(&c->lse, t->entry, t->h, row, 0);
  ck_assert_msg(oracle_agrees(got, t->lse, t->lse_error), "%s: lse[%d, %d, %d] is %.9g, not %.9g within %.2g", what,
                (int)t->b, (int)t->h, (int)i, got, t->lse, t->lse_error);
}

void oracle_scored_check(const oracle_scored *o, const char *what) { each_row(o, check_row, (void *)(uintptr_t)what); }

/* ---- backward ---------------------------------------------------------------------------------------------------- */

typedef struct gradient {
  double *value, *tolerance;
} gradient;

typedef struct gradients {
  gradient q, k, v, sink;
} gradients;

static gradient make(int64_t count) {
  return (gradient){calloc((size_t)count + 1, sizeof(double)), calloc((size_t)count + 1, sizeof(double))};
}

static void add(gradient *g, const fly_tensor *x, int64_t entry, int64_t head, int64_t row, double factor, double error,
                const double *other) {
  int64_t at = ((entry * x->shape[1] + head) * x->shape[2] + row) * x->shape[3];
  for (int64_t d = 0; d < x->shape[3]; d++) {
    g->value[at + d] += factor * other[d];
    g->tolerance[at + d] += 2 * error * fabs(other[d]);
  }
}

static void differentiate(plane *t, int64_t i, void *context) {
  const fly_attention *c = t->o->call;
  gradients *g = context;
  double d_out[MAX_DIM], delta = 0, delta_error = 0, size;
  double *dp = calloc(2 * t->keys + 2, sizeof *dp), *dp_error = dp + t->keys;
  double rounded = c->out.type == FLY_F32 ? 0x1p-24 : c->out.type == FLY_F16 ? 0x1p-11 : 0x1p-8;
  get_row(d_out, &c->d_out, t->entry, t->h, out_row(t, i));
  double d_lse = c->d_lse.data ? oracle_get(&c->d_lse, t->entry, t->h, out_row(t, i), 0) : 0;
  for (int64_t d = 0; d < t->value_dim; d++) {
    delta += d_out[d] * t->out[d];
    delta_error += fabs(d_out[d]) * (t->out_error[d] + (rounded + 8 * FLT_EPSILON) * fabs(t->out[d]) + 0x1p-25);
  }
  delta -= d_lse;
  for (int64_t j = 0; j < t->keys; j++) {
    double p = t->p[j];
    if (p == 0) continue;
    dp[j] = dot(d_out, t->v + j * t->value_dim, t->value_dim, &size);
    dp_error[j] = 8 * FLT_EPSILON * size;
    double p_error = p * t->p_error[j] + 0x1p-126, inner = dp[j] - delta, slope = t->slope[j];
    double inner_error = dp_error[j] + delta_error + FLT_EPSILON * (fabs(dp[j]) + fabs(delta));
    double ds = p * inner * slope * t->scale;
    double error = fabs(t->scale) * ((p_error * fabs(inner) + p * inner_error) * fabs(slope) +
                                     p * fabs(inner) * t->slope_error[j] + 8 * FLT_EPSILON * fabs(p * inner * slope));
    error += oracle_rounding_of_p(c) / 2 * (fabs(ds) + 0x1p-118); /* add() takes it twice */
    p_error += oracle_rounding_of_p(c) / 2 * (p + 0x1p-118);
    int64_t row = key_row(t, j);
    double least = t->o->operands && c->q.type == FLY_F16 ? 0x1p-25 : 0; /* half of f16's smallest subnormal */
    error += fabs(ds) * t->o->operands + fabs(t->scale) * least;
    p_error += p * t->o->operands + least;
    add(&g->q, &c->q, t->entry, t->h, query_row(t, i), ds, error, t->k + j * t->dim);
    add(&g->k, &c->k, t->entry, t->kv_head, row, ds, error, t->q);
    add(&g->v, &c->v, t->entry, t->kv_head, row, p, p_error + 4 * p * FLT_EPSILON, d_out);
  }
  double share = t->sink == -INFINITY ? 0 : exp(t->sink - t->lse);
  g->sink.value[t->h] -= share * delta;
  g->sink.tolerance[t->h] += share * (delta_error + (t->lse_error + 4 * FLT_EPSILON) * fabs(delta));
  free(dp);
}

static void compare(const char *name, const fly_tensor *t, const gradient *g, const char *what) {
  int64_t at = 0;
  for (int64_t b = 0; t->data && b < t->shape[0]; b++)
    for (int64_t h = 0; h < t->shape[1]; h++)
      for (int64_t s = 0; s < t->shape[2]; s++)
        for (int64_t d = 0; d < t->shape[3]; d++, at++) {
          double got = oracle_get(t, b, h, s, d), x = g->value[at],
                 tolerance = g->tolerance[at] + oracle_half_place(t->type, x);
          ck_assert_msg(isfinite(x) ? fabs(got - x) <= tolerance : !isfinite(got),
                        "%s: %s[%d, %d, %d, %d] is %.9g, not %.9g within %.2g", what, name, (int)b, (int)h, (int)s,
                        (int)d, got, x, tolerance);
        }
}

static int64_t count_of(const fly_tensor *x) { return x->shape[0] * x->shape[1] * x->shape[2] * x->shape[3]; }

void oracle_scored_check_backward(const oracle_scored *o, const char *what) {
  const fly_attention *c = o->call;
  gradients g = {make(count_of(&c->q)), make(count_of(&c->k)), make(count_of(&c->v)), make(c->geometry.heads)};
  each_row(o, differentiate, &g);
  compare("d_q", &c->d_q, &g.q, what), compare("d_k", &c->d_k, &g.k, what), compare("d_v", &c->d_v, &g.v, what);
  compare("d_sink", &c->d_sink, &g.sink, what);
  gradient *all[] = {&g.q, &g.k, &g.v, &g.sink};
  for (int i = 0; i < 4; i++) free(all[i]->value), free(all[i]->tolerance);
}
