/* gate_cpu.c: gated sums of attention outputs, forward and backward, and the products that project gates, on one CPU core. Compiled
 * once for each vector width of launch.h's targets.
 *
 *     g_i = sigmoid(logit_i)      out = sum g_i out_i
 *     d_logit_i = g_i (1 - g_i) <d_out, out_i>      d_out_i = g_i d_out
 *
 * where <,> runs over the channels that share a gate. 1 - g is e g with e = exp(-logit), exact for gates near 1. */
#include "block.h"

/* ---- rows of any type --------------------------------------------------------------------------------------------------- */

INLINE vf load_any(int type, const char *row, int i, int count) {
  switch (type) {
  case FLY_F32: return load_row(FLY_F32, row, i, count);
  case FLY_F16: return load_row(FLY_F16, row, i, count);
  default: return load_row(FLY_BF16, row, i, count);
  }
}

INLINE void store_any(int type, char *row, int i, int count, vf x) {
  switch (type) {
  case FLY_F32: store_row(FLY_F32, row, i, count, x); break;
  case FLY_F16: store_row(FLY_F16, row, i, count, x); break;
  default: store_row(FLY_BF16, row, i, count, x); break;
  }
}

INLINE char *element(const void *data, int64_t row, int64_t stride, int type) {
  return (char *)data + row * stride * element_size(type);
}

INLINE float load_one(int type, const char *row) { return load_any(type, row, 0, 1)[0]; }

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
INLINE gate gate_at(const flyi_gate_cpu *p, int r, int n) {
  const char *row = element(p->logits, r, p->logits_stride, p->logits_type);
  return gate_of(p->channels == 1 ? (vf)load_one(p->logits_type, row) : load_any(p->logits_type, row, n, p->channels));
}

/* ---- forward ------------------------------------------------------------------------------------------------------------ */

enum { CHUNK = 16 /* parts whose gates of a row are at hand together */ };

INLINE void forward_rows(const flyi_gated_cpu *c, int type) {
  for (int r = 0; r < c->rows; r++) {
    vf open[CHUNK];
    for (int i = 0; i < c->count && i < CHUNK; i++)
      if (c->parts[i].channels == 1) open[i] = gate_at(&c->parts[i], r, 0).open;
    char *out = element(c->out, r, c->out_stride, type);
    for (int n = 0; n < c->dim; n += W) {
      vf sum = (vf)0.f;
      for (int i = 0; i < c->count; i++) {
        const flyi_gate_cpu *p = &c->parts[i];
        vf g = p->channels == 1 && i < CHUNK ? open[i] : gate_at(p, r, n).open;
        sum += g * load_row(type, element(p->out, r, p->out_stride, type), n, c->dim);
      }
      store_row(type, out, n, c->dim, sum);
    }
  }
}

static void forward(const flyi_gated_cpu *c) {
  switch (c->type) {
  case FLY_F32: forward_rows(c, FLY_F32); break;
  case FLY_F16: forward_rows(c, FLY_F16); break;
  default: forward_rows(c, FLY_BF16); break;
  }
}

/* ---- backward ----------------------------------------------------------------------------------------------------------- */

INLINE void backward_rows(const flyi_gated_cpu *c, int type) {
  const flyi_gate_cpu *p = c->parts;
  bool shared = p->channels == 1;
  for (int r = 0; r < c->rows; r++) {
    const char *out = element(p->out, r, p->out_stride, type), *d_out = element(c->d_out, r, c->d_out_stride, type);
    char *d_logits = p->d_logits ? element(p->d_logits, r, p->d_logits_stride, p->logits_type) : NULL;
    char *share = p->d_out ? element(p->d_out, r, p->d_out_stride, type) : NULL;
    gate g = shared ? gate_at(p, r, 0) : (gate){(vf)0.f, (vf)0.f};
    vf dot = (vf)0.f;
    for (int n = 0; n < c->dim; n += W) {
      vf d = load_row(type, d_out, n, c->dim), product = d * load_row(type, out, n, c->dim);
      if (!shared) g = gate_at(p, r, n);
      dot += product;
      if (share) store_row(type, share, n, c->dim, g.open * d);
      if (d_logits && !shared) store_any(p->logits_type, d_logits, n, c->dim, g.open * g.closed * product);
    }
    if (d_logits && shared) store_any(p->logits_type, d_logits, 0, 1, g.open * g.closed * sum_of(dot));
  }
}

static void backward(const flyi_gated_cpu *c) {
  switch (c->type) {
  case FLY_F32: backward_rows(c, FLY_F32); break;
  case FLY_F16: backward_rows(c, FLY_F16); break;
  default: backward_rows(c, FLY_BF16); break;
  }
}

/* ---- products ----------------------------------------------------------------------------------------------------------- */

static void product(const flyi_product_cpu *p) {
  add_product(p->out, p->out_row, p->width, p->a, p->a_step, p->a_row, p->b, p->b_step, p->depth);
}

static void load_rows(float *out, int64_t out_stride, const void *in, int64_t in_stride, int32_t type, int32_t count, int32_t dim) {
  for (int r = 0; r < count; r++, out += out_stride) {
    const char *row = element(in, r, in_stride, type);
    int n = 0;
    for (; n + W <= dim; n += W) store(out + n, load_any(type, row, n, dim));
    if (n < dim) store_row(FLY_F32, (char *)out, n, dim, load_any(type, row, n, dim));
  }
}

static void store_rows(void *out, int64_t out_stride, int32_t type, const float *in, int64_t in_stride, int32_t count, int32_t dim) {
  for (int r = 0; r < count; r++, in += in_stride) {
    char *row = element(out, r, out_stride, type);
    for (int n = 0; n < dim; n += W) store_any(type, row, n, dim, load_row(FLY_F32, (const char *)in, n, dim));
  }
}

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
const flyi_gate_code JOIN(flyi_gate_, FLYI_ISA) = {W, forward, backward, product, load_rows, store_rows};
