/* test_ptx_numbers.c: gradients by the CUDA kernels, executed on the simulated driver: what is not finite reaches
 * what sees it and nothing else, gradients add up, equal calls give equal bits, and kernels write what they are asked
 * for and nothing else. */
#include "simcuda/simcuda.h"
#include "support/ptx_case.h"

PTX_MASK(causal, return kv <= q;)
PTX_MASK(window, return q - kv <= 40 && kv - q <= 12;)

static const fly_type types[] = {FLY_BF16, FLY_F16, FLY_F32};

/* ---- infinities and NaNs ----------------------------------------------------------------------------------------- */

/* _i: Q, K, V, dO, dLSE; inside partial tiles and full ones, in rows that some queries see */
START_TEST(what_is_not_finite_reaches_only_what_sees_it) {
  const double values[] = {INFINITY, NAN, -INFINITY};
  fly_cuda *cuda = cuda_open();
  for (int v = 0; v < 3; v++) {
    const ptx_mask *mask = (_i + v) % 2 ? &causal : &window;
    ptx_case t;
    backward_spec s = {.call = {.type = types[v],
                                .dim = v ? 64 : 40,
                                .heads = 2,
                                .kv_heads = 1,
                                .len_q = 150,
                                .len_kv = 160,
                                .q_rows = v,
                                .kv_rows = v,
                                .seed = _i},
                       .d_lse = true};
    if (!call_is_chosen(&s.call)) continue;
    ptx_init(&t, &s, mask, "sm_80");
    fly_attention *c = &t.base.base.call;
    const fly_tensor *where[] = {&c->q, &c->k, &c->v, &c->d_out, &c->d_lse};
    oracle_set(where[_i], 0, 0, 70, 0, values[v]);
    oracle_set(where[_i], 0, where[_i]->shape[1] - 1, 139, where[_i]->shape[3] - 1, values[v]);
    oracle_forward(c, mask->see, NULL);
    ptx_run(&t, cuda);
    ptx_check(&t);
    ptx_free(&t);
  }
  fly_cuda_release(&cuda);
}
END_TEST

START_TEST(infinite_products_of_masked_pairs_do_not_count) { /* dO V' and Q K' overflow where nobody sees it */
  fly_cuda *cuda = cuda_open();
  ptx_case t;
  backward_spec s = {.call = {.type = FLY_BF16, .dim = 16, .len_q = 64, .len_kv = 64}};
  ptx_init(&t, &s, &causal, "sm_80");
  const fly_attention *c = &t.base.base.call;
  for (int d = 0; d < 16; d++) {
    oracle_set(&c->v, 0, 0, 63, d, 0x1p100), oracle_set(&c->d_out, 0, 0, 5, d, 0x1p100);
    oracle_set(&c->k, 0, 0, 60, d, 0x1p100), oracle_set(&c->q, 0, 0, 6, d, 0x1p100);
  }
  oracle_forward(c, causal.see, NULL);
  ptx_run(&t, cuda);
  for (int row = 0; row < 64; row++)
    for (int d = 0; d < 16; d++) {
      if (row < 5 || (row > 6 && row < 60)) ck_assert(isfinite(oracle_get(&c->d_q, 0, 0, row, d)));
      if (row > 6 && row < 60) ck_assert(isfinite(oracle_get(&c->d_k, 0, 0, row, d)));
    }
  ptx_free(&t);
  fly_cuda_release(&cuda);
}
END_TEST

START_TEST(a_row_that_sees_nothing_contributes_nothing) { /* whatever arrives at it */
  fly_cuda *cuda = cuda_open();
  for (int i = 0; i < 3; i++) {
    ptx_case t;
    backward_spec s = {.call = {.type = types[i], .dim = 16, .len_q = 130, .len_kv = 130, .q_offset = -70},
                       .d_lse = true};
    ptx_init(&t, &s, &causal, "sm_80");
    const fly_attention *c = &t.base.base.call;
    oracle_set(&c->d_lse, 0, 0, 3, 0, NAN), oracle_set(&c->d_out, 0, 0, 4, 0, NAN), oracle_set(&c->q, 0, 0, 5, 0, NAN);
    ptx_run(&t, cuda);
    ptx_check(&t);
    ptx_free(&t);
  }
  fly_cuda_release(&cuda);
}
END_TEST

/* ---- what is written --------------------------------------------------------------------------------------------- */

/* Every element of a gradient, whatever its strides. */
static void each(const fly_tensor *t, double *values, bool store, int factor) {
  int64_t at = 0;
  for (int64_t b = 0; b < t->shape[0]; b++)
    for (int64_t h = 0; h < t->shape[1]; h++)
      for (int64_t s = 0; s < t->shape[2]; s++)
        for (int64_t d = 0; d < t->shape[3]; d++, at++) {
          if (store)
            oracle_set(t, b, h, s, d, factor * (double)(at % 13));
          else
            values[at] = oracle_get(t, b, h, s, d);
        }
}

/* _i: rows repeat or not. In steps of 1/8 sums of small integers and gradients round once more than gradients alone. */
START_TEST(gradients_add_to_what_is_there) {
  enum { MOST = 2 * 4 * 160 * 40 };
  static double plain[3][MOST], added[3][MOST];
  fly_cuda *cuda = cuda_open();
  ptx_case t;
  backward_spec s = {.call = {.type = types[_i % 3],
                              .dim = 40,
                              .value_dim = 33,
                              .heads = 4,
                              .kv_heads = 2,
                              .len_q = 100,
                              .len_kv = 140,
                              .kv_rows = _i & 2 ? 3 : 1,
                              .q_rows = 1,
                              .layout = _i % 3}};
  ptx_init(&t, &s, &window, "sm_80");
  fly_attention *c = &t.base.base.call;
  const fly_tensor *gradients[] = {&c->d_q, &c->d_k, &c->d_v};
  ptx_run(&t, cuda);
  for (int g = 0; g < 3; g++) each(gradients[g], plain[g], false, 0), each(gradients[g], NULL, true, 1);
  c->add_gradients = true;
  ptx_run(&t, cuda);
  const double unit = ptx_operands(c->q.type);
  for (int g = 0; g < 3; g++) {
    const fly_tensor *x = gradients[g];
    each(x, added[g], false, 0);
    for (int64_t i = 0; i < x->shape[0] * x->shape[1] * x->shape[2] * x->shape[3]; i++) {
      double before = (double)(i % 13), want = plain[g][i] + before;
      ck_assert_double_eq_tol(added[g][i], want,
                              1.01 * (unit ? unit : 0x1p-24) * (fabs(plain[g][i]) + fabs(want)) + 0x1p-24);
    }
  }
  ptx_free(&t);
  fly_cuda_release(&cuda);
}
END_TEST

START_TEST(gradients_that_are_not_wanted_are_not_needed) { /* _i: bits: dQ, dK, dV */
  fly_cuda *cuda = cuda_open();
  for (int dim = 64; dim <= 160; dim += 96) { /* dK and dV in one walk and in two */
    ptx_case t;
    backward_spec s = {.call = {.type = FLY_BF16, .dim = dim, .len_q = 70, .len_kv = 90, .kv_rows = _i & 1 ? 3 : 0},
                       .no_d_q = _i & 1,
                       .no_d_k = _i & 2,
                       .no_d_v = _i & 4};
    ptx_init(&t, &s, &causal, "sm_80");
    ptx_run(&t, cuda);
    ptx_check(&t);
    ptx_free(&t);
  }
  fly_cuda_release(&cuda);
}
END_TEST

START_TEST(
    equal_calls_give_equal_bits) { /* in whatever order warps run and copies land, however many multiprocessors */
  uint64_t first = 0;
  for (int run = 0; run < 4; run++) {
    simcuda_config config;
    simcuda_get_config(&config);
    config.copies = run % 3, config.seed = run ? 97 * (uint64_t)run : 0, config.sms = 1 + 35 * run,
    config.threads = 1 + run % 2;
    simcuda_set_config(&config);
    fly_cuda *cuda = cuda_open();
    ptx_case t;
    backward_spec s = {.call = {.type = FLY_F16,
                                .dim = 64,
                                .heads = 4,
                                .kv_heads = 2,
                                .len_q = 150,
                                .len_kv = 130,
                                .kv_rows = 3,
                                .q_rows = 2}};
    ptx_init(&t, &s, &window, "sm_80");
    ptx_run(&t, cuda);
    uint64_t digest = backward_digest(&t.base);
    if (run == 0) first = digest;
    ck_assert_uint_eq(digest, first);
    ptx_free(&t);
    fly_cuda_release(&cuda);
  }
}
END_TEST

static Suite *suite(void) {
  Suite *suite = suite_create("ptx_numbers");
  TCase *special = tcase_create("special"), *written = tcase_create("written");
  tcase_add_loop_test(special, what_is_not_finite_reaches_only_what_sees_it, 0, 5);
  tcase_add_test(special, infinite_products_of_masked_pairs_do_not_count);
  tcase_add_test(special, a_row_that_sees_nothing_contributes_nothing);
  tcase_add_loop_test(written, gradients_add_to_what_is_there, 0, 6);
  tcase_add_loop_test(written, gradients_that_are_not_wanted_are_not_needed, 0, 7);
  tcase_add_test(written, equal_calls_give_equal_bits);
  suite_add_tcase(suite, special);
  suite_add_tcase(suite, written);
  return suite;
}

FLY_TEST_MAIN(suite)
