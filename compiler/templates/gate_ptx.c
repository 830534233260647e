/* gate_ptx.c: gated sums of attention outputs on a GPU, forward and backward: what gate_cpu.c does, and its formulas.
 * Input: a flyi_cuda_gated. Output: the sum; or of one part its share of d_out and the gradient of its logits. A warp
 * has a row. */
#include "rows_cuda.h"

typedef const flyi_cuda_gated *gated_t;

struct place {
  i32 b, h, row;
};
INL struct place place_of(gated_t c) {
  const i64 at = grid_row(), plane = at / c->rows;
  return (struct place){(i32)(plane / c->heads), (i32)(plane % c->heads), (i32)(at % c->rows)};
}
INL struct row row_at(const flyi_cuda_tensor *t, i32 type, struct place at) {
  return row_of(t, type, at.b, at.h, at.row);
}

/* A gate and what is left to 1. */
struct gate {
  float open, closed;
};
INL struct gate gate_of(float logit) {
  float x = logit * -1.44269504f;
  const float e = exp2_of(x > 126.f ? 126.f : x); /* a NaN stays */
  const float open = 1.f / (1.f + e);
  return (struct gate){open, e * open};
}

KERNEL fly_gate_rows(const flyi_cuda_gated call) {
  gated_t c = &call;
  if (grid_row() >= c->total) return;
  const struct place at = place_of(c);
  const struct row to = row_at(&c->out, c->type, at);
  ROLLED for (i32 n = lane_index(); n < c->dim; n += 32) {
    float sum = 0;
    ROLLED for (i32 i = 0; i < c->count; i++) {
      const flyi_cuda_gate *p = &c->parts[i];
      const float logit = load(row_at(&p->logits, p->logits_type, at), p->channels == 1 ? 0 : n);
      sum = multiply_plus(gate_of(logit).open, load(row_at(&p->out, c->type, at), n), sum);
    }
    store(to, n, sum);
  }
}

KERNEL fly_gate_rows_backward(const flyi_cuda_gated call) {
  gated_t c = &call;
  const flyi_cuda_gate *p = &call.parts[0];
  if (grid_row() >= c->total) return;
  const struct place at = place_of(c);
  const struct row d_out = row_at(&c->out, c->type, at), out = row_at(&p->out, c->type, at),
                   logits = row_at(&p->logits, p->logits_type, at), d_logits = row_at(&p->d_logits, p->logits_type, at),
                   share = row_at(&p->d_out, c->type, at);
  float sum = 0;
  struct gate g = {0, 0};
  if (p->channels == 1) g = gate_of(load(logits, 0)); /* by channel, another lane writes there */
  ROLLED for (i32 n = lane_index(); n < c->dim; n += 32) {
    const float x = load(d_out, n);
    if (p->channels != 1) g = gate_of(load(logits, n));
    if (p->d_out.data) store(share, n, g.open * x);
    if (!p->d_logits.data) continue;
    const float product = x * load(out, n);
    if (p->channels == 1)
      sum += product;
    else
      store(d_logits, n, g.open * g.closed * product);
  }
  if (!p->d_logits.data || p->channels != 1) return;
  UNROLL for (i32 m = 1; m < 32; m *= 2) sum += exchange(sum, m);
  warp_barrier(); /* d_logits may lie where the logits are: every lane has read it */
  if (lane_index() == 0) store(d_logits, 0, g.open * g.closed * sum);
}

/* Rows that a part does not write count as 0 in the sum. */
KERNEL fly_zero_rows(const flyi_cuda_gated call) {
  gated_t c = &call;
  if (grid_row() >= c->total) return;
  const struct row to = row_at(&c->out, c->type, place_of(c));
  ROLLED for (i32 n = lane_index(); n < c->dim; n += 32) store(to, n, 0);
}
