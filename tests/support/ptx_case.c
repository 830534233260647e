/* ptx_case.c: a backward call whose mask is compiled for a CUDA device. */
#include "ptx_case.h"

double ptx_operands(fly_type type) { return type == FLY_BF16 ? 0x1p-8 : type == FLY_F16 ? 0x1p-11 : 0; }

void ptx_init(ptx_case *t, const backward_spec *spec, const ptx_mask *mask, const char *target) {
  fly_error error = {0};
  memset(t, 0, sizeof *t);
  backward_init(&t->base, spec, mask->see, NULL);
  t->mask = mask;
  const call_spec *s = &t->base.base.spec;
  fly_attention *c = &t->base.base.call;
  fly_kernel_desc desc = {FLY_INIT(fly_kernel_desc), s->type, s->dim, s->value_dim, target};
  ck_fly_ok(fly_mask_compile(mask->source, mask->name, NULL, &t->compiled, &error), error);
  ck_fly_ok(fly_kernel_create(t->compiled, &desc, &t->kernel, &error), error);
  ck_fly_ok(fly_mask_bind(t->compiled, NULL, 0, &t->bound, &error), error);
  c->kernel = t->kernel, c->bound = t->bound, c->map = NULL;
  snprintf(t->what, sizeof t->what,
           "%s %s D %d DV %d batch %d heads %d/%d lengths %d, %d offset %d layout %d rows %d %d %d add %d", mask->name,
           fly_type_name(s->type), s->dim, s->value_dim, (int)s->batch, (int)s->heads, (int)s->kv_heads, (int)s->len_q,
           (int)s->len_kv, (int)s->q_offset, s->layout, s->q_rows, s->kv_rows, s->out_rows, c->add_gradients);
}

void ptx_run(ptx_case *t, fly_cuda *cuda) { cuda_backward(cuda, &t->base.base.call, t->kernel); }

void ptx_check(ptx_case *t) {
  const fly_attention *c = &t->base.base.call;
  oracle_check_backward_units(c, t->mask->see, NULL, ptx_operands(c->q.type), t->what);
}

void ptx_free(ptx_case *t) {
  fly_bound_release(&t->bound);
  fly_kernel_release(&t->kernel);
  fly_mask_release(&t->compiled);
  backward_free(&t->base);
}

void ptx_test(const backward_spec *spec, const ptx_mask *mask) {
  ptx_case t;
  if (!call_is_chosen(&spec->call)) return;
  fly_cuda *cuda = cuda_open();
  ptx_init(&t, spec, mask, "sm_80");
  ptx_run(&t, cuda);
  ptx_check(&t);
  ptx_free(&t);
  fly_cuda_release(&cuda);
}
