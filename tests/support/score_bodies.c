/* score_bodies.c: modifiers for tests, twice. */
#include "score_bodies.h"

static double formula_alibi(void *context, double s, int b, int h, int q, int kv) {
  (void)context, (void)b;
  return s - 0.0625 * (h + 1) * fabs((double)q - kv);
}

static double formula_softcap(void *context, double s, int b, int h, int q, int kv) {
  (void)context, (void)b, (void)h, (void)q, (void)kv;
  return 1.5 * tanh(s / 1.5);
}

/* Garbage where the causal mask hides; a wave elsewhere. */
static double formula_wave(void *context, double s, int b, int h, int q, int kv) {
  (void)context, (void)h;
  return kv > q ? NAN : 1.25 * s + 0.5 * sin(s + b);
}

/* Every fifth diagonal is hidden by the modifier. */
static double formula_holes(void *context, double s, int b, int h, int q, int kv) {
  (void)context, (void)b, (void)h;
  return (q - kv) % 5 == 2 ? -INFINITY : s * s * 0.3 - s;
}

/* By tokens: context is the call. */
static double formula_tokens(void *context, double s, int b, int h, int q, int kv) {
  const fly_attention *c = context;
  const fly_geometry *g = &c->geometry;
  int start_q = g->cu_seqlens_q ? g->cu_seqlens_q[b] : 0, start_kv = g->cu_seqlens_kv ? g->cu_seqlens_kv[b] : 0;
  int row_q = q - (int)g->q_offset + start_q, row_kv = kv + start_kv;
  const fly_row_map *mq = &g->q_rows, *mk = &g->kv_rows;
  int tq = mq->rows ? mq->rows[b * mq->stride_batch + h * mq->stride_head + row_q] - start_q + (int)g->q_offset : q;
  int tk = mk->rows ? mk->rows[b * mk->stride_batch + h * mk->stride_head + row_kv] - start_kv : kv;
  return s * (1 + 0.01 * (tq % 13)) + 0.02 * (tk % 29);
}

/* A loop that the data ends. */
static double formula_loop(void *context, double s, int b, int h, int q, int kv) {
  (void)context, (void)b, (void)h;
  double sum = s;
  for (int i = 0; i < (q + kv) % 4; i++) sum = 0.5 * sum + 0.25 * s * s;
  return sum;
}

const score_body score_bodies[SCORE_BODIES] = {
    {"return s - 0.0625f * (float)(h + 1) * (float)fly_abs(q - kv);", formula_alibi},
    {"return 1.5f * tanhf(s / 1.5f);", formula_softcap},
    {"return kv > q ? NAN : 1.25f * s + 0.5f * sinf(s + (float)b);", formula_wave},
    {"return (q - kv) % 5 == 2 ? -INFINITY : s * s * 0.3f - s;", formula_holes},
    {"return s * (1 + 0.01f * (float)(fly_token_q(b, h, q) % 13)) + 0.02f * (float)(fly_token_kv(b, h, kv) % 29);",
     formula_tokens},
    {"float sum = s;\n  for (int i = 0; i < (q + kv) % 4; i++) sum = 0.5f * sum + 0.25f * s * s;\n  return sum;",
     formula_loop},
};
