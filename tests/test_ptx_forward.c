/* test_ptx_forward.c: forward attention by the CUDA kernels, executed on the simulated driver, is that of double
 * precision: every shape of tile, whenever asynchronous copies land, whatever lies in rows that a query does not see.
 * test_cuda_features.c has layouts and lengths, test_cuda_masks.c the masks of the library. */
#include <math.h>

#include "simcuda/simcuda.h"
#include "support/call_case.h"
#include "support/ptx_case.h"

/* clang-format off */
PTX_MASK(everything, return true;)
PTX_MASK(causal, return kv <= q;)
PTX_MASK(window, return q - kv <= 40 && kv - q <= 12;)
PTX_MASK(even_keys, return kv % 2 == 0 || q < 3;)
PTX_MASK(scattered, unsigned x = (unsigned)q * 73856093u ^ (unsigned)kv * 19349663u ^ (unsigned)(8 * b + h) * 83492791u;
         x ^= x >> 13; x *= 0x5bd1e995u; x ^= x >> 15; return (x & 255) < 100;)
PTX_MASK(looping, int common = 0; for (int i = 0; i < (q & 3) + 2; i++) common += (q >> i & 1) == (kv >> i & 1);
         return common >= 2 && kv <= q + h;)
PTX_MASK(table, int near[4] = {q, q - 7, q - 30, q & ~15}; return kv <= near[q & 3] && kv > near[q & 3] - 70;)
/* clang-format on */

typedef struct forward_case {
  call_case base;
  const ptx_mask *mask;
  fly_mask *compiled;
  fly_kernel *kernel;
  fly_bound *bound;
  char what[200];
} forward_case;

static void forward_init(forward_case *t, const call_spec *spec, const ptx_mask *mask, const char *target) {
  fly_error error = {0};
  memset(t, 0, sizeof *t);
  call_init(&t->base, spec, mask->see, NULL);
  const call_spec *s = &t->base.spec;
  fly_attention *c = &t->base.call;
  fly_kernel_desc desc = {FLY_INIT(fly_kernel_desc), s->type, s->dim, s->value_dim, target};
  t->mask = mask;
  ck_fly_ok(fly_mask_compile(mask->source, mask->name, NULL, &t->compiled, &error), error);
  ck_fly_ok(fly_kernel_create(t->compiled, &desc, &t->kernel, &error), error);
  ck_fly_ok(fly_mask_bind(t->compiled, NULL, 0, &t->bound, &error), error);
  c->kernel = t->kernel, c->bound = t->bound, c->map = NULL;
  snprintf(t->what, sizeof t->what, "%s %s D %d DV %d lengths %d, %d %s", mask->name, fly_type_name(s->type), s->dim,
           s->value_dim, (int)s->len_q, (int)s->len_kv, target);
}

static void forward_free(forward_case *t) {
  fly_bound_release(&t->bound);
  fly_kernel_release(&t->kernel);
  fly_mask_release(&t->compiled);
  call_free(&t->base);
}

static void forward_run(forward_case *t) {
  fly_cuda *cuda = cuda_open();
  cuda_forward(cuda, &t->base.call, t->kernel);
  fly_cuda_release(&cuda);
}

static void forward_check(const forward_case *t) {
  const fly_attention *c = &t->base.call;
  if (c->q.type == FLY_F32)
    oracle_check(c, t->mask->see, NULL, CALL_UNTOUCHED, t->what);
  else
    oracle_check_units(c, t->mask->see, NULL, CALL_UNTOUCHED, t->what);
}

static void forward_test(const call_spec *spec, const ptx_mask *mask, const char *target) {
  forward_case t;
  forward_init(&t, spec, mask, target);
  forward_run(&t);
  forward_check(&t);
  forward_free(&t);
}

static void set_copies(int copies, int arch) {
  simcuda_config config;
  simcuda_get_config(&config);
  config.copies = copies, config.seed = copies == SIMCUDA_RANDOM ? 4711 : 0;
  if (arch) config.arch = arch, config.shared_block = arch == 86 ? 99 << 10 : config.shared_block;
  simcuda_set_config(&config);
}

static const fly_type types[] = {FLY_BF16, FLY_F16, FLY_F32};

/* ---- tiles ------------------------------------------------------------------------------------------------------- */

/* The shapes of tiles that plans have; aligned rows and others. */
static const struct {
  int dim, value_dim;
} shapes[] = {{64, 64}, {128, 128}, {192, 128}, {256, 256}, {40, 104}, {33, 65}};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

/* _i: shape, type */
START_TEST(whenever_copies_land) {
  call_spec s = {.type = types[_i % 3],
                 .dim = shapes[_i / 3].dim,
                 .value_dim = shapes[_i / 3].value_dim,
                 .len_q = 150,
                 .len_kv = 210,
                 .heads = 2,
                 .kv_heads = 1,
                 .q_rows = 1,
                 .kv_rows = 1};
  for (int copies = SIMCUDA_LATE; copies <= SIMCUDA_RANDOM; copies++) {
    set_copies(copies, 0);
    forward_test(&s, copies == SIMCUDA_EAGER ? &window : &causal, "sm_80");
  }
}
END_TEST

/* _i: shape. Devices with less shared memory get other tiles. */
START_TEST(small_devices_too) {
  call_spec s = {
      .type = types[_i % 2], .dim = shapes[_i].dim, .value_dim = shapes[_i].value_dim, .len_q = 140, .len_kv = 200};
  for (int copies = SIMCUDA_LATE; copies <= SIMCUDA_RANDOM; copies++) {
    set_copies(copies, 86);
    forward_test(&s, &causal, "sm_86");
  }
}
END_TEST

/* _i: type */
START_TEST(any_mask) {
  static const ptx_mask *const masks[] = {&everything, &window, &even_keys, &scattered, &looping, &table};
  call_spec s = {.type = types[_i], .dim = 64, .heads = 2, .len_q = 100, .len_kv = 200, .q_offset = 37};
  for (size_t m = 0; m < sizeof masks / sizeof *masks; m++) forward_test(&s, masks[m], "sm_80");
}
END_TEST

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

/* _i: type, what. Keys and values that a query does not see may be anything, also in partial tiles, where its
 * neighbours see them; where it sees them, it shows. */
START_TEST(what_is_not_seen_does_not_matter) {
  static const double poison[] = {NAN, INFINITY, -INFINITY};
  static const ptx_mask *const masks[] = {&causal, &scattered, &looping};
  call_spec s = {.type = types[_i % 3], .dim = 64, .value_dim = 72, .len_q = 70, .len_kv = 150, .kv_rows = 1};
  for (int part = 0; part < 3; part++) { /* values, keys, both */
    forward_case t;
    forward_init(&t, &s, masks[part], "sm_80");
    const fly_attention *c = &t.base.call;
    for (int key = 41; key < 150; key += 19) {
      if (part != 1) oracle_set(&c->v, 0, 0, key, key % 72, poison[_i / 3]);
      if (part != 0) oracle_set(&c->k, 0, 0, key, key % 64, poison[_i / 3]);
    }
    forward_run(&t);
    forward_check(&t);
    forward_free(&t);
  }
}
END_TEST

/* _i: type. Where V's infinities are seen, they arrive, and in their own column alone. */
START_TEST(infinities_that_are_seen_arrive) {
  call_spec s = {.type = types[_i], .dim = 64, .value_dim = 64, .len_q = 60, .len_kv = 60};
  forward_case t;
  forward_init(&t, &s, &causal, "sm_80");
  const fly_attention *c = &t.base.call;
  oracle_set(&c->v, 0, 0, 20, 5, -INFINITY);
  forward_run(&t);
  for (int query = 0; query < 60; query++)
    for (int i = 0; i < 64; i++) {
      double x = oracle_get(&c->out, 0, 0, query, i);
      if (query >= 20 && i == 5)
        ck_assert_msg(x == -INFINITY, "%s: query %d: %g", t.what, query, x);
      else
        ck_assert_msg(isfinite(x), "%s: query %d column %d: %g", t.what, query, i, x);
    }
  forward_free(&t);
}
END_TEST

/* _i: type, scale */
START_TEST(any_scale) {
  static const float scales[] = {-0.125f, 1e-6f, 3.f, -40.f};
  call_spec s = {
      .type = types[_i % 3], .dim = 64, .len_q = 90, .len_kv = 140, .scale = scales[_i / 3], .amplitude = 0.5f};
  forward_test(&s, &window, "sm_80");
}
END_TEST

/* Scores far beyond what exp can take, and all of a row far below 0. */
START_TEST(huge_scores) {
  for (int type = 0; type < 3; type++) {
    call_spec s = {.type = types[type], .dim = 16, .len_q = 40, .len_kv = 80};
    forward_case t;
    forward_init(&t, &s, &causal, "sm_80");
    const fly_attention *c = &t.base.call;
    /* All products of query 0 to 19 are -2^24, of the others 2^24: every visible key has the same weight. */
    for (int i = 0; i < 16; i++) {
      for (int query = 0; query < 40; query++) oracle_set(&c->q, 0, 0, query, i, query < 20 ? -1024 : 1024);
      for (int key = 0; key < 80; key++) oracle_set(&c->k, 0, 0, key, i, 1024);
    }
    forward_run(&t);
    forward_check(&t);
    forward_free(&t);
  }
}
END_TEST

static Suite *suite(void) {
  Suite *s = suite_create("ptx_forward");
  TCase *tiles = tcase_create("tiles"), *masks = tcase_create("masks"), *numbers = tcase_create("numbers");
  tcase_add_loop_test(tiles, whenever_copies_land, 0, 3 * SHAPES);
  tcase_add_loop_test(tiles, small_devices_too, 0, SHAPES);
  tcase_add_loop_test(masks, any_mask, 0, 3);
  tcase_add_loop_test(numbers, what_is_not_seen_does_not_matter, 0, 9);
  tcase_add_loop_test(numbers, infinities_that_are_seen_arrive, 0, 3);
  tcase_add_loop_test(numbers, any_scale, 0, 12);
  tcase_add_test(numbers, huge_scores);
  suite_add_tcase(s, tiles);
  suite_add_tcase(s, masks);
  suite_add_tcase(s, numbers);
  return s;
}

FLY_TEST_MAIN(suite)
