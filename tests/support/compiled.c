/* compiled.c: see compiled.h. Bits are written to guarded memory. */
#include "compiled.h"

compiled compiled_from_mask(fly_mask *mask) {
  fly_error error = {0};
  compiled c = {.mask = mask};
  ck_fly_ok(flyi_code_load(mask->image.code, &c.loaded, &error), error);
  return c;
}

compiled compiled_from(const char *source, const char *target, const fly_compile_options *extra) {
  fly_error error = {0};
  fly_compile_options options = {FLY_INIT(fly_compile_options)};
  fly_mask *mask = NULL;
  if (extra) options = *extra;
  options.cache = "";
  options.target = target;
  ck_fly_ok(fly_mask_compile(source, "test.c", &options, &mask, &error), error);
  return compiled_from_mask(mask);
}

void compiled_free(compiled *c) {
  if (c->loaded.unload) c->loaded.unload(&c->loaded);
  fly_mask_release(&c->mask);
}

compiled_call compiled_bind(const compiled *c, const fly_arg *arguments, int count, const fly_geometry *geometry) {
  fly_error error = {0};
  flyi_domain domain;
  compiled_call call = {.code = c};
  ck_fly_ok(fly_mask_bind(c->mask, arguments, count, &call.bound, &error), error);
  ck_fly_ok(flyi_domain_check(geometry, &domain, &error), error);
  ck_fly_ok(flyi_mask_args_create(call.bound, &domain.geometry, &call.args, &error), error);
  return call;
}

void compiled_call_free(compiled_call *call) {
  flyi_mask_args_free(call->args);
  fly_bound_release(&call->bound);
}

void compiled_bits(const compiled_call *call, int b, int h, int q0, int kv0, uint64_t bits[FLYI_BLOCK]) {
  const size_t size = FLYI_BLOCK * sizeof *bits;
  uint64_t *by_orc = guard_alloc(size, 8, 0), *by_loader = guard_alloc(size, 8, 1);
  call->code->mask->code.tile(call->args, b, h, q0, kv0, by_orc);
  call->code->loaded.tile(call->args, b, h, q0, kv0, by_loader);
  for (int r = 0; r < FLYI_BLOCK; r++)
    ck_assert_msg(by_orc[r] == by_loader[r], "row %d: ORC %016lx, own loader %016lx", r, by_orc[r], by_loader[r]);
  memcpy(bits, by_orc, size);
  guard_free(by_orc), guard_free(by_loader);
}
