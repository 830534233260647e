/* backward_case.c: builds a backward call from a short description. */
#include "backward_case.h"

/* A tensor shaped as another one, in guarded memory. Without `broadcast`, strides of 0 become those of a dense
 * tensor. */
static fly_tensor tensor_like(void **memory, const fly_tensor *like, int seed, bool broadcast) {
  fly_tensor x = *like;
  int64_t elements = x.shape[3];
  bool repeats = (x.shape[0] > 1 && !x.stride[0]) || (x.shape[1] > 1 && !x.stride[1]);
  if (repeats && !broadcast) x = fly_tensor_dense(NULL, x.type, x.shape[0], x.shape[1], x.shape[2], x.shape[3]);
  for (int i = 0; i < 3; i++) elements = x.shape[i] ? elements + x.stride[i] * (x.shape[i] - 1) : 0;
  if (!x.shape[0] || !x.shape[1] || !x.shape[2]) elements = 0;
  size_t size = fly_type_size(x.type), bytes = (size_t)elements * size;
  x.data = *memory = guard_alloc(bytes ? bytes : size, size, seed % 3 == 0);
  return x;
}

static void fill(const fly_tensor *x, bool constant, test_random *random) {
  for (int64_t b = 0; x->data && b < x->shape[0]; b++)
    for (int64_t h = 0; h < x->shape[1]; h++)
      for (int64_t s = 0; s < x->shape[2]; s++)
        for (int64_t d = 0; d < x->shape[3]; d++)
          oracle_set(x, b, h, s, d, constant ? CALL_UNTOUCHED : test_normal(random));
}

void backward_reset(backward_case *t) {
  const fly_attention *c = &t->base.call;
  fill(&c->d_q, true, NULL), fill(&c->d_k, true, NULL), fill(&c->d_v, true, NULL);
}

void backward_init(backward_case *t, const backward_spec *spec, oracle_predicate *see, void *context) {
  memset(t, 0, sizeof *t);
  call_init(&t->base, &spec->call, see, context);
  fly_attention *c = &t->base.call;
  test_random random = {77 + (uint64_t)spec->call.seed};
  int seed = spec->call.seed;
  c->d_out = tensor_like(&t->memory[0], &c->out, seed, true);
  if (spec->d_lse) c->d_lse = tensor_like(&t->memory[1], &c->lse, seed + 1, true);
  if (!spec->no_d_q) c->d_q = tensor_like(&t->memory[2], &c->q, seed + 2, false);
  if (!spec->no_d_k) c->d_k = tensor_like(&t->memory[3], &c->k, seed + 1, false);
  if (!spec->no_d_v) c->d_v = tensor_like(&t->memory[4], &c->v, seed, false);
  fill(&c->d_out, false, &random), fill(&c->d_lse, false, &random);
  oracle_forward(c, see, context);
  backward_reset(t);
}

void backward_run(backward_case *t) {
  fly_error error = {0};
  ck_fly_ok(fly_attention_backward(&t->base.call, &error), error);
}

void backward_free(backward_case *t) {
  call_free(&t->base);
  for (int i = 0; i < 5; i++) guard_free(t->memory[i]);
}

void backward_test(const backward_spec *spec, oracle_predicate *see, void *context) {
  backward_case t;
  char what[256];
  if (!call_is_chosen(&spec->call)) return;
  backward_init(&t, spec, see, context);
  const call_spec *s = &t.base.spec;
  snprintf(what, sizeof what,
           "%s %s D %d DV %d batch %d heads %d/%d lengths %d, %d layout %d rows %d %d %d tile %d x %d",
           s->target ? s->target : "default", fly_type_name(s->type), s->dim, s->value_dim, (int)s->batch,
           (int)s->heads, (int)s->kv_heads, (int)s->len_q, (int)s->len_kv, s->layout, s->q_rows, s->kv_rows,
           s->out_rows, s->tile_q, s->tile_kv);
  backward_run(&t);
  oracle_check_backward(&t.base.call, see, context, what);
  backward_free(&t);
}

static uint64_t digest(uint64_t hash, const fly_tensor *x) {
  size_t size = fly_type_size(x->type);
  for (int64_t b = 0; x->data && b < x->shape[0]; b++)
    for (int64_t h = 0; h < x->shape[1]; h++)
      for (int64_t s = 0; s < x->shape[2]; s++) {
        const uint8_t *row = (const uint8_t *)x->data + (b * x->stride[0] + h * x->stride[1] + s * x->stride[2]) * size;
        for (size_t i = 0; i < x->shape[3] * size; i++) hash = (hash ^ row[i]) * 0x100000001b3;
      }
  return hash;
}

uint64_t backward_digest(const backward_case *t) {
  const fly_attention *c = &t->base.call;
  return digest(digest(digest(0xcbf29ce484222325, &c->d_q), &c->d_k), &c->d_v);
}
