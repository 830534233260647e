/* gate_cpu.c: gated sums of attention outputs, forward and backward, and the products that project gates, on one CPU
 * core. Compiled once for each vector width of cpu.c's targets.
 *
 *     g_i = sigmoid(logit_i)      out = sum g_i out_i
 *     d_logit_i = g_i (1 - g_i) <d_out, out_i>      d_out_i = g_i d_out
 *
 * where <,> runs over the channels that share a gate. 1 - g is e g with e = exp(-logit), exact for gates near 1. */
#include "block.h"

/* ---- rows of any type -------------------------------------------------------------------------------------------- */

INLINE vf load_any(int type, const char *row, int i, int count) {
  switch (type) {
  case FLY_F32:
    return load_row(FLY_F32, row, i, count);
  case FLY_F16:
    return load_row(FLY_F16, row, i, count);
  default:
    return load_row(FLY_BF16, row, i, count);
  }
}

INLINE void store_any(int type, char *row, int i, int count, vf x) {
  switch (type) {
  case FLY_F32:
    store_row(FLY_F32, row, i, count, x);
    break;
  case FLY_F16:
    store_row(FLY_F16, row, i, count, x);
    break;
  default:
    store_row(FLY_BF16, row, i, count, x);
    break;
  }
}

INLINE char *element(const void *data, int64_t row, int64_t stride, int type) {
  return (char *)data + row * stride * element_size(type);
}

INLINE float load_one(int type, const char *row) {
  float x;
  if (type != FLY_F32) return load_any(type, row, 0, 1)[0];
  memcpy(&x, row, sizeof x);
  return x;
}

INLINE void store_one(int type, char *row, float x) {
  if (type == FLY_F32)
    memcpy(row, &x, sizeof x);
  else
    store_any(type, row, 0, 1, (vf)x);
}

/* A gate and what is left to 1. */
typedef struct gate {
  vf open, closed;
} gate;

INLINE gate gate_of(vf logit) {
  vf x = plain_nan(FLY_F32, logit) * -1.44269504f;
  x = x > 126.f ? (vf)126.f : x; /* a NaN stays */
  vf e = exp2_of(x), open = 1.f / (1.f + e);
  return (gate){open, e * open};
}

/* The gates of channels [n, n + W) of a row. */
INLINE gate gates_of_channels(const flyi_gate_cpu *p, int r, int n) {
  return gate_of(load_any(p->logits_type, element(p->logits, r, p->logits_stride, p->logits_type), n, p->channels));
}

/* The gates of rows [r0, r0 + rows), up to W of them, that their channels share. */
INLINE gate gates_of_rows(const flyi_gate_cpu *p, int r0, int rows) {
  float logit[W] = {0};
  for (int i = 0; i < rows; i++)
    logit[i] = load_one(p->logits_type, element(p->logits, r0 + i, p->logits_stride, p->logits_type));
  return gate_of(load(logit));
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

INLINE void forward_rows(const flyi_gated_cpu *c, int type) {
  float open[FLYI_GATE_PARTS][W];
  for (int r = 0; r < c->rows; r++) {
    const char *row[FLYI_GATE_PARTS];
    for (int i = 0; i < c->count; i++) {
      const flyi_gate_cpu *p = &c->parts[i];
      if (r % W == 0 && p->channels == 1) store(open[i], gates_of_rows(p, r, min(c->rows - r, W)).open);
      row[i] = element(p->out, r, p->out_stride, type);
    }
    char *out = element(c->out, r, c->out_stride, type);
    for (int n = 0; n < c->dim; n += W) {
      vf sum = (vf)0.f;
      for (int i = 0; i < c->count; i++) {
        vf g = c->parts[i].channels == 1 ? (vf)open[i][r % W] : gates_of_channels(&c->parts[i], r, n).open;
        sum += g * load_row(type, row[i], n, c->dim);
      }
      store_row(type, out, n, c->dim, sum);
    }
  }
}

static void forward(const flyi_gated_cpu *c) {
  switch (c->type) {
  case FLY_F32:
    forward_rows(c, FLY_F32);
    break;
  case FLY_F16:
    forward_rows(c, FLY_F16);
    break;
  default:
    forward_rows(c, FLY_BF16);
    break;
  }
}

/* ---- backward ---------------------------------------------------------------------------------------------------- */

/* One row; open and slope: the gate that its channels share, and its derivative. */
INLINE void back_row(const flyi_gated_cpu *c, int r, float open, float slope, int type) {
  const flyi_gate_cpu *p = c->parts;
  const char *out = element(p->out, r, p->out_stride, type), *d_out = element(c->d_out, r, c->d_out_stride, type);
  char *d_logits = p->d_logits ? element(p->d_logits, r, p->d_logits_stride, p->logits_type) : NULL;
  char *share = p->d_out ? element(p->d_out, r, p->d_out_stride, type) : NULL;
  bool shared = p->channels == 1;
  gate g = {(vf)open, (vf)0.f};
  vf dot = (vf)0.f;
  for (int n = 0; n < c->dim; n += W) {
    vf d = load_row(type, d_out, n, c->dim), product = d * load_row(type, out, n, c->dim);
    if (!shared) g = gates_of_channels(p, r, n);
    dot += product;
    if (share) store_row(type, share, n, c->dim, g.open * d);
    if (d_logits && !shared) store_any(p->logits_type, d_logits, n, c->dim, g.open * g.closed * product);
  }
  if (d_logits && shared) store_one(p->logits_type, d_logits, slope * sum_of(dot));
}

INLINE void backward_rows(const flyi_gated_cpu *c, int type) {
  float open[W] = {0}, slope[W] = {0};
  for (int r = 0; r < c->rows; r++) {
    if (r % W == 0 && c->parts->channels == 1) {
      gate g = gates_of_rows(c->parts, r, min(c->rows - r, W));
      store(open, g.open), store(slope, g.open * g.closed);
    }
    back_row(c, r, open[r % W], slope[r % W], type);
  }
}

static void backward(const flyi_gated_cpu *c) {
  switch (c->type) {
  case FLY_F32:
    backward_rows(c, FLY_F32);
    break;
  case FLY_F16:
    backward_rows(c, FLY_F16);
    break;
  default:
    backward_rows(c, FLY_BF16);
    break;
  }
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

static void product(const flyi_product_cpu *p) {
  add_product(p->out, p->out_row, p->width, p->a, p->a_step, p->a_row, p->b, p->b_step, p->depth);
}

/* Sums of 4 x 4 products side by side; rows and columns that are not there repeat the last one, and are not stored. */
static void dots(const flyi_dots_cpu *d) {
  enum { SIDE = 4 };
  const float *a[SIDE], *b[SIDE];
  vf sum[SIDE][SIDE];
  for (int i = 0; i < SIDE; i++) {
    a[i] = d->a + min(i, d->rows - 1) * d->a_row, b[i] = d->b + min(i, d->columns - 1) * d->b_row;
    for (int j = 0; j < SIDE; j++) sum[i][j] = (vf)0.f;
  }
  int n = 0;
  for (; n + W <= d->depth; n += W) {
    vf x[SIDE];
    UNROLL for (int j = 0; j < SIDE; j++) x[j] = load(b[j] + n);
    UNROLL for (int i = 0; i < SIDE; i++) {
      vf y = load(a[i] + n);
      UNROLL for (int j = 0; j < SIDE; j++) sum[i][j] += y * x[j];
    }
  }
  if (n < d->depth)
    for (int i = 0; i < SIDE; i++)
      for (int j = 0; j < SIDE; j++)
        sum[i][j] += load_row(FLY_F32, (const char *)a[i], n, d->depth) *
                     load_row(FLY_F32, (const char *)b[j], n, d->depth);
  for (int i = 0; i < d->rows; i++)
    for (int j = 0; j < d->columns; j++) d->out[i * d->out_row + j] = (d->bias ? d->bias[j] : 0) + sum_of(sum[i][j]);
}

static void load_rows(float *out, int64_t out_stride, const void *in, int64_t in_stride, int32_t type, int32_t count,
                      int32_t dim) {
  for (int r = 0; r < count; r++, out += out_stride) {
    const char *row = element(in, r, in_stride, type);
    for (int n = 0; n < dim; n += W) store_row(FLY_F32, (char *)out, n, dim, load_any(type, row, n, dim));
  }
}

static void store_rows(void *out, int64_t out_stride, int32_t type, const float *in, int64_t in_stride, int32_t count,
                       int32_t dim) {
  for (int r = 0; r < count; r++, in += in_stride) {
    char *row = element(out, r, out_stride, type);
    for (int n = 0; n < dim; n += W) store_any(type, row, n, dim, load_row(FLY_F32, (const char *)in, n, dim));
  }
}

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
const flyi_gate_code JOIN(flyi_gate_, FLYI_ISA) = {W, forward, backward, product, dots, load_rows, store_rows};
