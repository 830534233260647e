/* sink.c: the gradient of a sink's logits. With p = exp(z - LSE), the sink's share of a query's softmax, and
 * delta = sum_d dO_d O_d - dLSE as everywhere (backward.c),
 *
 *     dz[h] = sum over batch entries and queries of -p delta
 *
 * because the sink's value is 0. One head is one item of work, summed in double precision in the order of its rows: the
 * result does not depend on the number of threads. Queries that see no key count too: their LSE is z. */
#include <math.h>

#include "backward.h"

/* -p delta of up to 64 queries from `row` of (b, h). */
static double sum_block(const flyi_backward *back, int64_t b, int64_t h, int64_t row, int count, double sink) {
  const fly_attention *c = &back->call->c;
  float neg_lse[FLYI_BLOCK], neg_delta[FLYI_BLOCK];
  int64_t first = flyi_start_of(c->geometry.cu_seqlens_q, b) + row;
  flyi_queries_cpu q = {
      .out_stride = c->out.stride[2],
      .d_out_stride = c->d_out.stride[2],
      .lse_stride = c->lse.stride[2],
      .d_lse_stride = c->d_lse.stride[2],
      .out_rows = flyi_map_rows(&c->out_rows, b, h, first),
      .count = count,
      .type = c->out.type,
      .dim = 0, /* no queries are read */
      .value_dim = c->kernel->desc.value_dim,
      .scale = 1,
      .neg_lse = neg_lse,
      .neg_delta = neg_delta,
  };
  int64_t at = q.out_rows ? 0 : first;
  q.q = q.out = flyi_plane_row(&c->out, b, h, at);
  q.d_out = flyi_plane_row(&c->d_out, b, h, at);
  q.lse = (float *)flyi_plane_row(&c->lse, b, h, at);
  q.d_lse = c->d_lse.data ? (float *)flyi_plane_row(&c->d_lse, b, h, at) : NULL;
  back->code->pack_queries(&q);
  double sum = 0;
  for (int i = 0; i < count; i++) {
    double lse = q.lse[(q.out_rows ? q.out_rows[i] : i) * q.lse_stride];
    if (lse != -INFINITY) sum += exp(sink - lse) * neg_delta[i];
  }
  return sum;
}

static void sum_head(void *context, int64_t h, int worker) {
  (void)worker;
  const flyi_backward *back = context;
  const fly_attention *c = &back->call->c;
  double sink = *(const float *)flyi_plane_row(&c->sink, 0, h, 0), sum = 0;
  for (int64_t b = 0; b < c->geometry.batch; b++) {
    int64_t rows = flyi_len_q(&c->geometry, b);
    for (int64_t row = 0; row < rows; row += FLYI_BLOCK)
      sum += sum_block(back, b, h, row, (int)flyi_min64(rows - row, FLYI_BLOCK), sink);
  }
  float *out = (float *)flyi_plane_row(&c->d_sink, 0, h, 0);
  *out = (float)(c->add_gradients ? *out + sum : sum);
}

void flyi_sink_gradient(const flyi_backward *b) {
  if (b->call->c.d_sink.data) flyi_parallel(&b->threads, b->call->c.geometry.heads, sum_head, (void *)(uintptr_t)b);
}
