/* cuda_case.c: see cuda_case.h. */
#include "cuda_case.h"

const char cuda_window[] = "FLY_PARAM(int, left, 1000); FLY_PARAM(int, right, 0);"
                           "bool mask(int b, int h, int q, int kv) {"
                           "  return (left < 0 || q - kv <= left) && (right < 0 || kv - q <= right); }";

double cuda_operands(fly_type type) { return type == FLY_BF16 ? 0x1p-8 : type == FLY_F16 ? 0x1p-11 : 0; }

fly_cuda *cuda_open_to_run(void) { return cuda_kernel_packing() ? NULL : cuda_open(); }

void cuda_case_open(cuda_case *d, fly_attention *c, const call_spec *s, const char *name, const char *source, int left,
                    int right, int tile) {
  fly_error error;
  fly_arg args[] = {FLY_INT("left", left), FLY_INT("right", right)};
  fly_map_options options = {FLY_INIT(fly_map_options), .tile_q = tile, .tile_kv = tile};
  *d = (cuda_case){.kernel = cuda_kernel(name, source, s->type, s->dim, s->value_dim)};
  ck_fly_ok(fly_mask_bind(fly_kernel_mask(d->kernel), args, 2, &d->bound, &error), error);
  if (tile) ck_fly_ok(fly_map_build(d->bound, &c->geometry, &options, &d->map, &error), error);
  c->kernel = d->kernel, c->bound = d->bound, c->map = d->map;
}

void cuda_case_open_window(cuda_case *d, fly_attention *c, const call_spec *s, int left, int right, int tile) {
  cuda_case_open(d, c, s, "window", cuda_window, left, right, tile);
}

void cuda_case_close(cuda_case *d) {
  fly_map_release(&d->map);
  fly_kernel_release(&d->kernel);
  fly_bound_release(&d->bound);
}

void cuda_case_describe(char what[256], const call_spec *s, int left, int right, int tile) {
  snprintf(what, 256, "%s D %d DV %d batch %d heads %d/%d lengths %d, %d layout %d rows %d %d %d sees %d, %d tile %d",
           fly_type_name(s->type), s->dim, s->value_dim, (int)s->batch, (int)s->heads, (int)s->kv_heads, (int)s->len_q,
           (int)s->len_kv, s->layout, s->q_rows, s->kv_rows, s->out_rows, left, right, tile);
}
