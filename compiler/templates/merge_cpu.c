/* merge_cpu.c: partial attention outputs merged by their log-sum-exp, forward and backward, on one CPU core. Compiled
 * once for each vector width of cpu.c's targets.
 *
 * Input: for each row its partial outputs and LSEs. Output: the merged row and LSE, or the gradients of every partial
 * row:
 *
 *     w_i = exp(lse_i - lse)      out = sum w_i out_i
 *     d_out_i = w_i d_out         d_lse_i = w_i (<d_out, out_i> - sum_j w_j <d_out, out_j> + d_lse)
 *
 * Weights and sums are double, so that a result is rounded once. A partial row with LSE -infinity is never read. */
#include <math.h>

#include "any_rows.h"
#include "block.h"

typedef double vd __attribute__((ext_vector_type(W)));

static const double nothing = -__builtin_inf();

/* ---- rows -------------------------------------------------------------------------------------------------------- */

/* Not functions: a vector twice as wide as the target's has no way to be passed. */
#define TO_DOUBLE(x) __builtin_convertvector(x, vd)
#define TO_SINGLE(x) __builtin_convertvector(x, vf)

INLINE double sum_of_doubles(const vd *x) {
  double sum[W];
  memcpy(sum, x, sizeof sum);
  for (int n = W / 2; n; n /= 2)
    for (int i = 0; i < n; i++) sum[i] += sum[i + n];
  return sum[0];
}

/* Row r of a partial, or -1. */
INLINE int64_t row_of(const flyi_partial_cpu *p, int r) { return p->rows ? p->rows[r] : r; }

/* The weights of row r's partials; those of empty ones are 0. Returns its LSE. */
static double weigh(const flyi_merge_cpu *c, int r, double *weight) {
  double most = nothing, sum = 0;
  for (int i = 0; i < c->count; i++) {
    int64_t row = row_of(&c->partials[i], r);
    weight[i] = row < 0 ? nothing : c->partials[i].lse[row * c->partials[i].lse_stride];
    if (weight[i] > most) most = weight[i];
  }
  for (int i = 0; i < c->count; i++) {
    if (weight[i] == nothing)
      weight[i] = 0;
    else
      weight[i] = weight[i] == most && most < __builtin_inf() ? 1 : exp(weight[i] - most);
    sum += weight[i];
  }
  if (sum == 0) return nothing;
  for (int i = 0; i < c->count; i++) weight[i] /= sum;
  return most + (sum == 1 ? 0 : log(sum));
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

/* row[i]: of partial i, null where it has no weight. */
INLINE void sum_rows(const flyi_merge_cpu *c, const double *weight, const char **row, char *out, int type) {
  for (int n = 0; n < c->dim; n += W) {
    vd sum = (vd)0.0;
    for (int i = 0; i < c->count; i++)
      if (row[i]) sum += TO_DOUBLE(load_any(c->partials[i].type, row[i], n, c->dim)) * weight[i];
    store_row(type, out, n, c->dim, TO_SINGLE(sum));
  }
}

static void forward_row(const flyi_merge_cpu *c, int r) {
  double *weight = c->scratch, lse = weigh(c, r, weight);
  const char **row = (const char **)(weight + c->count);
  for (int i = 0; i < c->count; i++) {
    const flyi_partial_cpu *p = &c->partials[i];
    row[i] = weight[i] == 0 ? NULL : element(p->out, row_of(p, r), p->out_stride, p->type);
  }
  char *out = element(c->out, r, c->out_stride, c->type);
  switch (c->type) {
  case FLY_F32:
    sum_rows(c, weight, row, out, FLY_F32);
    break;
  case FLY_F16:
    sum_rows(c, weight, row, out, FLY_F16);
    break;
  default:
    sum_rows(c, weight, row, out, FLY_BF16);
    break;
  }
  if (c->lse) c->lse[r * c->lse_stride] = (float)lse;
}

/* Asks for the partial rows of row r, which may be anywhere. */
INLINE void fetch_rows(const flyi_merge_cpu *c, int r) {
  for (int i = 0; i < c->count && r < c->rows; i++) {
    const flyi_partial_cpu *p = &c->partials[i];
    int64_t row = row_of(p, r);
    if (row < 0) continue;
    const char *out = element(p->out, row, p->out_stride, p->type);
    __builtin_prefetch(p->lse + row * p->lse_stride);
    fetch_row(out, c->dim * element_size(p->type), false);
  }
}

enum { AHEAD = 6 /* rows */ };

static void forward(const flyi_merge_cpu *c) {
  for (int r = 0; r < AHEAD; r++) fetch_rows(c, r);
  for (int r = 0; r < c->rows; r++) {
    fetch_rows(c, r + AHEAD);
    forward_row(c, r);
  }
}

/* ---- backward ---------------------------------------------------------------------------------------------------- */

INLINE double dot_rows(const char *a, int type_a, const char *b, int type_b, int dim) {
  vd sum = (vd)0.0;
  for (int n = 0; n < dim; n += W)
    sum += TO_DOUBLE(load_row(type_a, a, n, dim)) * TO_DOUBLE(load_row(type_b, b, n, dim));
  return sum_of_doubles(&sum);
}

INLINE double dot_with(const char *a, int type_a, const char *b, int type_b, int dim) {
  switch (type_b) {
  case FLY_F32:
    return dot_rows(a, type_a, b, FLY_F32, dim);
  case FLY_F16:
    return dot_rows(a, type_a, b, FLY_F16, dim);
  default:
    return dot_rows(a, type_a, b, FLY_BF16, dim);
  }
}

static double dot_of(const char *a, int type_a, const char *b, int type_b, int dim) {
  switch (type_a) {
  case FLY_F32:
    return dot_with(a, FLY_F32, b, type_b, dim);
  case FLY_F16:
    return dot_with(a, FLY_F16, b, type_b, dim);
  default:
    return dot_with(a, FLY_BF16, b, type_b, dim);
  }
}

INLINE void scale_row(char *to, int type, const char *from, int from_type, double weight, int dim) {
  for (int n = 0; n < dim; n += W) {
    vd x = weight == 0 ? (vd)0.0 : TO_DOUBLE(load_row(from_type, from, n, dim)) * weight;
    store_row(type, to, n, dim, TO_SINGLE(x));
  }
}

INLINE void scale_to(char *to, int type, const char *from, int from_type, double weight, int dim) {
  switch (type) {
  case FLY_F32:
    scale_row(to, FLY_F32, from, from_type, weight, dim);
    break;
  case FLY_F16:
    scale_row(to, FLY_F16, from, from_type, weight, dim);
    break;
  default:
    scale_row(to, FLY_BF16, from, from_type, weight, dim);
    break;
  }
}

static void scale_from(char *to, int type, const char *from, int from_type, double weight, int dim) {
  switch (from_type) {
  case FLY_F32:
    scale_to(to, type, from, FLY_F32, weight, dim);
    break;
  case FLY_F16:
    scale_to(to, type, from, FLY_F16, weight, dim);
    break;
  default:
    scale_to(to, type, from, FLY_BF16, weight, dim);
    break;
  }
}

static void backward_row(const flyi_merge_cpu *c, int r) {
  double *weight = c->scratch, *dot = weight + c->count, mean = 0;
  const char *d_out = element(c->d_out, r, c->d_out_stride, c->type);
  double d_lse = c->d_lse ? c->d_lse[r * c->d_lse_stride] : 0;
  weigh(c, r, weight);
  for (int i = 0; i < c->count; i++) {
    const flyi_partial_cpu *p = &c->partials[i];
    if (weight[i] == 0) continue;
    dot[i] = dot_of(d_out, c->type, element(p->out, row_of(p, r), p->out_stride, p->type), p->type, c->dim);
    mean += weight[i] * dot[i];
  }
  for (int i = 0; i < c->count; i++) {
    const flyi_partial_cpu *p = &c->partials[i];
    int64_t row = row_of(p, r);
    if (row < 0) continue;
    if (p->d_lse) p->d_lse[row * p->d_lse_stride] = weight[i] == 0 ? 0 : (float)(weight[i] * (dot[i] - mean + d_lse));
    if (p->d_out)
      scale_from(element(p->d_out, row, p->d_out_stride, p->type), p->type, d_out, c->type, weight[i], c->dim);
  }
}

static void backward(const flyi_merge_cpu *c) {
  for (int r = 0; r < AHEAD; r++) fetch_rows(c, r);
  for (int r = 0; r < c->rows; r++) {
    fetch_rows(c, r + AHEAD);
    backward_row(c, r);
  }
}

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
const flyi_merge_code JOIN(flyi_merge_, FLYI_ISA) = {forward, backward};
