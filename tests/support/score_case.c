/* score_case.c: see score_case.h. */
#include "score_case.h"

score_case score_case_of(fly_score *score, const fly_arg *values, int count, const fly_geometry *geometry) {
  static const fly_geometry usual = {FLY_INIT(fly_geometry), .batch = 2, .heads = 4, .len_q = 200, .len_kv = 300};
  fly_error error = {0};
  flyi_domain domain;
  score_case c = {.score = score};
  ck_fly_ok(flyi_code_load(flyi_of_score(score)->image.code, &c.loaded, &error), error);
  ck_fly_ok(fly_score_bind(score, values, count, &c.bound, &error), error);
  ck_fly_ok(flyi_domain_check(geometry ? geometry : &usual, &domain, &error), error);
  ck_fly_ok(flyi_mask_args_create(c.bound, &domain.geometry, &c.args, &error), error);
  return c;
}

score_case score_case_from(const char *source, const char *target, const fly_arg *values, int count,
                           const fly_geometry *geometry) {
  fly_error error = {0};
  fly_score *score = NULL;
  fly_compile_options options = {FLY_INIT(fly_compile_options), .cache = "", .target = target};
  ck_fly_ok(fly_score_compile(source, "test.c", &options, &score, &error), error);
  return score_case_of(score, values, count, geometry);
}

score_case score_case_file(const char *path, const char *target, const fly_arg *values, int count,
                           const fly_geometry *geometry) {
  fly_error error = {0};
  fly_score *score = NULL;
  fly_compile_options options = {FLY_INIT(fly_compile_options), .cache = "", .target = target};
  ck_fly_ok(fly_score_compile_file(path, &options, &score, &error), error);
  return score_case_of(score, values, count, geometry);
}

void score_case_free(score_case *c) {
  flyi_mask_args_free(c->args);
  fly_bound_release(&c->bound);
  if (c->loaded.unload) c->loaded.unload(&c->loaded);
  fly_score_release(&c->score);
}

void score_case_run(const score_case *c, int b, int h, int q0, int kv0, int rows, const uint64_t *bits, float *s,
                    float *slope) {
  const flyi_code *codes[] = {&flyi_of_score(c->score)->code, &c->loaded};
  const size_t size = (size_t)rows * FLYI_BLOCK * sizeof(float);
  float *first[2] = {NULL, NULL};
  for (int i = 0; i < 2; i++) {
    float *forward = guard_alloc(size, 4, i), *both = guard_alloc(size, 4, !i), *by = guard_alloc(size, 4, i);
    memcpy(forward, s, size), memcpy(both, s, size), memset(by, 0, size);
    codes[i]->score(c->args, b, h, q0, kv0, rows, bits, forward);
    codes[i]->slope(c->args, b, h, q0, kv0, rows, bits, both, by);
    ck_assert_msg(memcmp(forward, both, size) == 0, "the two entries give different scores");
    guard_free(forward);
    if (i == 0) {
      first[0] = both, first[1] = by;
      continue;
    }
    ck_assert_msg(memcmp(first[0], both, size) == 0 && memcmp(first[1], by, size) == 0,
                  "ORC and our own loader differ");
    memcpy(s, both, size), memcpy(slope, by, size);
    guard_free(both), guard_free(by), guard_free(first[0]), guard_free(first[1]);
  }
}
