/* gated_case.c: making a gated call, running it, and its logits in double precision. */
#include "gated_case.h"

static void init_gate(gated_case *t, int i, fly_gate *g) {
  const gated_spec *s = &t->spec;
  int64_t channels = s->by_channel ? s->value_dim : 1;
  if (s->kind == GIVEN) {
    g->logits = scene_tensor(s->gate_type, s->batch, s->heads, s->n, channels, 20 + i);
    g->d_logits = scene_like(&g->logits, -1);
    return;
  }
  g->weight = scene_tensor(s->gate_type, 1, s->heads, channels, s->width, 30 + i);
  for (int64_t h = 0; h < s->heads; h++) /* logits of about 1 */
    for (int64_t c = 0; c < channels; c++)
      for (int64_t k = 0; k < s->width; k++)
        oracle_set(&g->weight, 0, h, c, k, oracle_get(&g->weight, 0, h, c, k) / sqrt((double)s->width));
  g->d_weight = scene_like(&g->weight, -1);
  if (s->kind == PROJECTED_WITHOUT_BIAS) return;
  g->bias = scene_tensor(s->gate_type, 1, s->heads, channels, 1, 40 + i);
  g->d_bias = scene_like(&g->bias, -1);
}

static void init_part(gated_case *t, int i) {
  const gated_spec *s = &t->spec;
  fly_attention *a = &t->parts[i].attention;
  fly_error error;
  *a = (fly_attention){FLY_INIT(fly_attention), .kernel = t->kernel[i % 2]};
  if (i % 2) {
    a->bound = t->window;
  } else {
    fly_sa_desc d = {FLY_INIT(fly_sa_desc), .left = 5 + i, .right = 4,           .batch = s->batch, .heads = s->heads,
                     .length = s->n,        .seed = 3,     .layer = (uint32_t)i, .per_head = i > 0};
    ck_fly_ok(fly_sa_create(t->mask[0], &d, &t->sa[i], &error), error);
    ck_fly_ok(fly_sa_apply(t->sa[i], a, &error), error);
  }
  if (!s->forget) {
    a->out = scene_tensor(s->type, s->batch, s->heads, s->n, s->value_dim, -1);
    a->lse = scene_tensor(FLY_F32, s->batch, s->heads, s->n, 1, -1);
  }
  init_gate(t, i, &t->parts[i].gate);
}

void gated_case_init(gated_case *t, const gated_spec *spec) {
  *t = (gated_case){.spec = *spec};
  gated_spec *s = &t->spec;
  if (!s->type) s->type = FLY_F32;
  if (!s->gate_type) s->gate_type = FLY_F32;
  if (!s->parts) s->parts = 2;
  fly_error error;
  fly_arg args[] = {FLY_INT("left", 6), FLY_INT("right", 0)};
  t->mask[0] = scene_mask("stochastic"), t->mask[1] = scene_mask("sliding_window");
  for (int i = 0; i < 2; i++) t->kernel[i] = scene_kernel(t->mask[i], s->type, s->dim, s->value_dim);
  ck_fly_ok(fly_mask_bind(t->mask[1], args, 2, &t->window, &error), error);
  for (int i = 0; i < s->parts; i++) init_part(t, i);
  fly_gated_call *c = &t->call;
  *c = (fly_gated_call){FLY_INIT(fly_gated_call), .parts = t->parts, .count = s->parts, .threads = s->threads};
  c->q = scene_tensor(s->type, s->batch, s->heads, s->n, s->dim, 1);
  c->k = scene_tensor(s->type, s->batch, s->kv_heads, s->n, s->dim, 2);
  c->v = scene_tensor(s->type, s->batch, s->kv_heads, s->n, s->value_dim, 3);
  c->out = scene_tensor(s->type, s->batch, s->heads, s->n, s->value_dim, -1);
  c->d_out = scene_like(&c->out, 5);
  c->d_q = scene_like(&c->q, -1), c->d_k = scene_like(&c->k, -1), c->d_v = scene_like(&c->v, -1);
  if (s->kind == GIVEN) return;
  c->x = scene_tensor(s->gate_type, s->batch, 1, s->n, s->width, 6);
  c->d_x = scene_like(&c->x, -1);
}

void gated_case_free(gated_case *t) {
  fly_gated_call *c = &t->call;
  fly_tensor *all[] = {&c->q, &c->k, &c->v, &c->out, &c->x, &c->d_out, &c->d_q, &c->d_k, &c->d_v, &c->d_x};
  for (int i = 0; i < 10; i++) scene_free(all[i]);
  for (int i = 0; i < t->spec.parts; i++) {
    fly_gate *g = &t->parts[i].gate;
    fly_tensor *gate[] = {&g->logits, &g->weight, &g->bias, &g->d_logits, &g->d_weight, &g->d_bias};
    for (int k = 0; k < 6; k++) scene_free(gate[k]);
    scene_free(&t->parts[i].attention.out), scene_free(&t->parts[i].attention.lse);
    fly_sa_release(&t->sa[i]);
  }
  for (int i = 0; i < 2; i++) fly_kernel_release(&t->kernel[i]), fly_mask_release(&t->mask[i]);
  fly_bound_release(&t->window);
}

void gated_case_forward(const gated_case *t) {
  fly_error error = {0};
  ck_fly_ok(fly_gated_forward(&t->call, &error), error);
}

void gated_case_backward(const gated_case *t) {
  fly_error error = {0};
  ck_fly_ok(fly_gated_backward(&t->call, &error), error);
}

double sigmoid(double x) { return 1 / (1 + exp(-x)); }

double gated_case_logit(const gated_case *t, int i, int64_t b, int64_t h, int64_t s, int64_t d) {
  const fly_gate *g = &t->parts[i].gate;
  int64_t c = t->spec.by_channel ? d : 0;
  if (t->spec.kind == GIVEN) return oracle_get(&g->logits, b, h, s, c);
  double sum = t->spec.kind == PROJECTED ? oracle_get(&g->bias, 0, h, c, 0) : 0;
  for (int64_t k = 0; k < t->spec.width; k++)
    sum += oracle_get(&g->weight, 0, h, c, k) * oracle_get(&t->call.x, b, 0, s, k);
  return sum;
}
