/* gate_cpu.c: gated sums of attention outputs, forward and backward, and the products that project gates, on one CPU
 * core. Compiled once for each vector width of cpu.c's targets.
 *
 *     g_i = sigmoid(logit_i)      out = sum g_i out_i
 *     d_logit_i = g_i (1 - g_i) <d_out, out_i>      d_out_i = g_i d_out
 *
 * where <,> runs over the channels that share a gate. 1 - g is e g with e = exp(-logit), exact for gates near 1. */
#include "any_rows.h"
#include "block.h"

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

/* The sums of four vectors, each as sum_of takes it. */
INLINE float4 sums_of(const vf x[4]) {
  float4 y[4];
  UNROLL for (int i = 0; i < 4; i++) {
    HALVES(x[i], ADD_)
    y[i] = b_;
  }
  float4 low = __builtin_shufflevector(y[0], y[1], 0, 1, 4, 5) + __builtin_shufflevector(y[0], y[1], 2, 3, 6, 7);
  float4 high = __builtin_shufflevector(y[2], y[3], 0, 1, 4, 5) + __builtin_shufflevector(y[2], y[3], 2, 3, 6, 7);
  return __builtin_shufflevector(low, high, 0, 2, 4, 6) + __builtin_shufflevector(low, high, 1, 3, 5, 7);
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

INLINE const char *logits_row(const flyi_gate_cpu *p, int r) {
  return element(p->logits, r, p->logits_stride, p->logits_type);
}

/* The gates of rows [r0, r0 + rows), up to W of them, that their channels share. */
INLINE gate gates_of_rows(const flyi_gate_cpu *p, int r0, int rows) {
  float logit[W] = {0};
  for (int i = 0; i < rows; i++) logit[i] = load_one(p->logits_type, logits_row(p, r0 + i));
  return gate_of(load(logit));
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

/* As the count of a row's elements: the vector is whole. Rows' ends are a call, across which no register keeps a sum:
 * they stay out of the loops. */
enum { WHOLE = INT32_MAX };

/* Channels [n, n + W) of row r, of which `there` are there. shared: all channels of a part have one gate. */
INLINE void sum_vector(const flyi_gated_cpu *c, int count, bool shared, const char *const *row, float (*open)[W], int r,
                       int n, int there, int type) {
  vf sum = (vf)0.f;
  for (int i = 0; i < count; i++) {
    const flyi_gate_cpu *p = &c->parts[i];
    bool one = shared || p->channels == 1;
    vf g = one ? (vf)open[i][r % W] : gate_of(load_any(p->logits_type, logits_row(p, r), n, there)).open;
    sum += g * load_row(type, row[i], n, there);
  }
  store_row(type, element(c->out, r, c->out_stride, type), n, there, sum);
}

INLINE void forward_rows(const flyi_gated_cpu *c, int count, bool shared, int type) {
  float open[FLYI_GATE_PARTS][W];
  for (int r = 0; r < c->rows; r++) {
    const char *row[FLYI_GATE_PARTS];
    int n = 0;
    for (int i = 0; i < count; i++) {
      const flyi_gate_cpu *p = &c->parts[i];
      if (r % W == 0 && p->channels == 1) store(open[i], gates_of_rows(p, r, min(c->rows - r, W)).open);
      row[i] = element(p->out, r, p->out_stride, type);
    }
    for (; n + W <= c->dim; n += W) sum_vector(c, count, shared, row, open, r, n, WHOLE, type);
    if (n < c->dim) sum_vector(c, count, shared, row, open, r, n, c->dim, type);
  }
}

/* Two parts with a gate for each head, as most have, are a loop of their own. */
INLINE void forward_of(const flyi_gated_cpu *c, int type) {
  if (c->count == 2 && c->parts[0].channels == 1 && c->parts[1].channels == 1)
    forward_rows(c, 2, true, type);
  else
    forward_rows(c, c->count, false, type);
}

static void forward(const flyi_gated_cpu *c) {
  switch (c->type) {
  case FLY_F32:
    forward_of(c, FLY_F32);
    break;
  case FLY_F16:
    forward_of(c, FLY_F16);
    break;
  default:
    forward_of(c, FLY_BF16);
    break;
  }
}

/* ---- backward ---------------------------------------------------------------------------------------------------- */

/* One row of a part. */
typedef struct back {
  const char *logits, *out, *d_out;
  char *d_logits, *share; /* may be null */
  int logits_type;
} back;

/* Channels [n, n + W) of which `count` are there; `open`: their gate, if they share it. Returns <d_out, out> in
 * parts. */
INLINE vf back_vector(const back *x, int n, int count, vf open, bool shared, int type) {
  vf d = load_row(type, x->d_out, n, count), slope = (vf)0.f;
  if (!shared) {
    gate g = gate_of(load_any(x->logits_type, x->logits, n, count));
    open = g.open, slope = g.open * g.closed;
  }
  if (x->share) store_row(type, x->share, n, count, open * d);
  if (!x->d_logits) return (vf)0.f;
  vf product = d * load_row(type, x->out, n, count);
  if (!shared) store_any(x->logits_type, x->d_logits, n, count, slope * product);
  return product;
}

INLINE vf back_row(const flyi_gated_cpu *c, int r, float open, bool shared, int type) {
  const flyi_gate_cpu *p = c->parts;
  back x = {logits_row(p, r),
            element(p->out, r, p->out_stride, type),
            element(c->d_out, r, c->d_out_stride, type),
            p->d_logits ? element(p->d_logits, r, p->d_logits_stride, p->logits_type) : NULL,
            p->d_out ? element(p->d_out, r, p->d_out_stride, type) : NULL,
            p->logits_type};
  vf dot = (vf)0.f;
  int n = 0;
  for (; n + W <= c->dim; n += W) dot += back_vector(&x, n, WHOLE, (vf)open, shared, type);
  if (n < c->dim) dot += back_vector(&x, n, c->dim, (vf)open, shared, type);
  return dot;
}

/* Rows whose channels share a gate, four at a time. */
INLINE void backward_shared(const flyi_gated_cpu *c, int type) {
  const flyi_gate_cpu *p = c->parts;
  float open[W] = {0}, slope[W] = {0};
  for (int r = 0; r < c->rows; r += 4) {
    int count = min(c->rows - r, 4);
    vf dot[4] = {(vf)0.f, (vf)0.f, (vf)0.f, (vf)0.f};
    if (r % W == 0) {
      gate g = gates_of_rows(p, r, min(c->rows - r, W));
      store(open, g.open), store(slope, g.open * g.closed);
    }
    for (int i = 0; i < count; i++) dot[i] = back_row(c, r + i, open[(r + i) % W], true, type);
    if (!p->d_logits) continue;
    float4 sum = sums_of(dot);
    for (int i = 0; i < count; i++)
      store_one(p->logits_type, element(p->d_logits, r + i, p->d_logits_stride, p->logits_type),
                slope[(r + i) % W] * sum[i]);
  }
}

INLINE void backward_rows(const flyi_gated_cpu *c, int type) {
  if (c->parts->channels == 1)
    backward_shared(c, type);
  else
    for (int r = 0; r < c->rows; r++) back_row(c, r, 0, false, type);
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

/* Rows to come are asked for line by line in the order of memory, a few at a time. Asked for side by side, or many at
 * once, they come at a third of the pace. */
typedef struct asking {
  const char *line, *end;
  int64_t each; /* bytes, at a time */
} asking;

INLINE void ask(asking *a) {
  for (int64_t i = 0; i < a->each && a->line < a->end; i += 64, a->line += 64) __builtin_prefetch(a->line);
}

enum { BESIDE = 2 * COLS, SUMS = ROWS * COLS /* of a register block: 2 x BESIDE, 4 x COLS or 8 x COLS / 2 */ };

/* Columns [at, at + columns W) of all rows. */
INLINE void product_block(const flyi_product_cpu *p, asking *ahead, int at, int rows, int columns) {
  const float *a = p->a, *b = p->b + at;
  float *out = p->out + at;
  vf sum[SUMS];
  UNROLL for (int r = 0; r < rows; r++) UNROLL for (int j = 0; j < columns; j++)
      sum[r * columns + j] = p->add ? load(out + r * p->out_row + W * j) : (vf)0.f;
  for (int i = 0; i < p->depth; i++, a += p->a_step, b += p->b_step) {
    vf x[BESIDE];
    ask(ahead);
    UNROLL for (int j = 0; j < columns; j++) x[j] = load(b + W * j);
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int j = 0; j < columns; j++)
        sum[r * columns + j] += a[r * p->a_row] * x[j];
  }
  UNROLL for (int r = 0; r < rows; r++) UNROLL for (int j = 0; j < columns; j++)
      store(out + r * p->out_row + W * j, sum[r * columns + j]);
}

INLINE void product_of_rows(const flyi_product_cpu *p, int rows) {
  int columns = SUMS / rows, at = 0, blocks = p->width / (columns * W), steps = p->depth * (blocks ? blocks : 1);
  asking ahead = {p->ahead, p->ahead + p->ahead_bytes, steps ? (p->ahead_bytes + steps - 1) / steps : 0};
  for (; at + columns * W <= p->width; at += columns * W) product_block(p, &ahead, at, rows, columns);
  for (; columns > 2 && at + columns / 2 * W <= p->width; at += columns / 2 * W)
    product_block(p, &ahead, at, rows, columns / 2);
  for (; at < p->width; at += W) product_block(p, &ahead, at, rows, 1);
}

static void product(const flyi_product_cpu *p) {
  switch (p->rows) {
  case 2:
    product_of_rows(p, 2);
    break;
  case 4:
    product_of_rows(p, 4);
    break;
  default:
    product_of_rows(p, 8);
    break;
  }
}

enum { DISTANCE = 1024 /* floats */ };

/* What is at float `at` of two rows, one behind the other. */
INLINE const float *in_pair(const float *a, int64_t a_row, int at, int depth) {
  return at < depth ? a + at : a + a_row + (at - depth);
}

/* Sums of 2 x `columns` products, from row r and column `at` on; a row that is not there repeats the last one, and is
 * not stored. asks: for rows further on. */
INLINE void dots_of_pair(const flyi_dots_cpu *d, int r, int64_t at, int columns, bool asks) {
  const float *a = d->a + r * d->a_row, *b = d->b + at * d->b_row;
  const float *ahead = a + d->a_row * (2 + DISTANCE / (d->depth + 1));
  int64_t other = r + 1 < d->rows ? d->a_row : 0;
  vf sum[2][BESIDE];
  int n = 0;
  UNROLL for (int j = 0; j < columns; j++) sum[0][j] = sum[1][j] = (vf)0.f;
  for (; n + W <= d->depth; n += W) {
    UNROLL for (int i = 0; asks && i < 2 * W; i += 16)
        __builtin_prefetch(in_pair(ahead, d->a_row, 2 * n + i, d->depth));
    vf x = load(a + n), y = load(a + other + n);
    UNROLL for (int j = 0; j < columns; j++) {
      vf z = load(b + j * d->b_row + n);
      sum[0][j] += x * z, sum[1][j] += y * z;
    }
  }
  for (int j = 0; n < d->depth && j < columns; j++) {
    vf z = load_part(FLY_F32, (const char *)(b + j * d->b_row + n), d->depth - n);
    sum[0][j] += load_part(FLY_F32, (const char *)(a + n), d->depth - n) * z;
    sum[1][j] += load_part(FLY_F32, (const char *)(a + other + n), d->depth - n) * z;
  }
  UNROLL for (int j = 0; j < columns; j += 4) UNROLL for (int i = 0; i < 2; i++) {
    float4 x;
    memcpy(&x, d->bias + at + j, sizeof x);
    x += sums_of(sum[i] + j);
    if (r + i < d->rows) memcpy(d->out + (r + i) * d->out_row + at + j, &x, sizeof x);
  }
}

static void dots(const flyi_dots_cpu *d) {
  int64_t at = 0;
  for (; at + BESIDE <= d->columns; at += BESIDE)
    for (int r = 0; r < d->rows; r += 2) dots_of_pair(d, r, at, BESIDE, at == 0);
  for (; at < d->columns; at += 4)
    for (int r = 0; r < d->rows; r += 2) dots_of_pair(d, r, at, 4, at == 0);
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
