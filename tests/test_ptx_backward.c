/* test_ptx_backward.c: gradients by the CUDA kernels, executed on the simulated driver, are those of attention in
 * double precision: shapes, types, masks, grouped heads, strides, ragged batches, row maps, whenever asynchronous
 * copies land. */
#include "simcuda/simcuda.h"
#include "support/ptx_case.h"

/* clang-format off */
PTX_MASK(everything, return true;)
PTX_MASK(nothing, return false;)
PTX_MASK(causal, return kv <= q;)
PTX_MASK(window, return q - kv <= 40 && kv - q <= 12;)
PTX_MASK(scattered, unsigned x = (unsigned)q * 73856093u ^ (unsigned)kv * 19349663u ^ (unsigned)(8 * b + h) * 83492791u;
         x ^= x >> 13; x *= 0x5bd1e995u; x ^= x >> 15; return (x & 255) < 100;)
PTX_MASK(looping, int common = 0; for (int i = 0; i < 4; i++) common += (q >> i & 1) == (kv >> i & 1);
         return common >= 2 && kv <= q + h;)
PTX_MASK(blocks, return q / 64 == kv / 64 || kv < 5;)
/* clang-format on */

static const fly_type types[] = {FLY_BF16, FLY_F16, FLY_F32};

/* ---- shapes ------------------------------------------------------------------------------------------------------ */

static const struct {
  int dim, value_dim, len_q, len_kv;
} shapes[] = {{64, 64, 200, 260},  {64, 64, 128, 128}, {32, 32, 150, 150}, {16, 16, 70, 300},    {40, 24, 130, 131},
              {64, 128, 140, 150}, {80, 80, 131, 140}, {96, 32, 97, 200},  {128, 128, 200, 170}, {192, 128, 100, 140},
              {256, 256, 90, 150}, {1, 1, 40, 40},     {7, 250, 33, 65},   {129, 3, 65, 33}};
enum { TYPES = 3, SHAPES = sizeof shapes / sizeof shapes[0] };

/* _i: shape and type */
START_TEST(any_head_dimension) {
  static const ptx_mask *const masks[] = {&causal, &scattered, &window, &everything};
  backward_spec s = {.call = {.type = types[_i % TYPES],
                              .dim = shapes[_i / TYPES].dim,
                              .value_dim = shapes[_i / TYPES].value_dim,
                              .len_q = shapes[_i / TYPES].len_q,
                              .len_kv = shapes[_i / TYPES].len_kv,
                              .heads = 2,
                              .kv_heads = 1,
                              .seed = _i},
                     .d_lse = _i & 1};
  for (int m = 0; m < 4; m++)
    if (m % 2 == _i / TYPES % 2 || _i < 2) ptx_test(&s, masks[m]);
}
END_TEST

/* _i: when copies land: late, eager, at random */
START_TEST(whenever_copies_land) {
  static const int dims[] = {64, 128, 40};
  simcuda_config config;
  simcuda_get_config(&config);
  config.copies = _i, config.seed = _i == SIMCUDA_RANDOM ? 4711 : 0;
  simcuda_set_config(&config);
  for (int i = 0; i < 3; i++) {
    backward_spec s = {
        .call = {.type = types[i % TYPES], .dim = dims[i], .heads = 2, .kv_heads = 1, .len_q = 190, .len_kv = 170}};
    ptx_test(&s, &causal);
    s.call.kv_rows = 1, s.call.q_rows = 1;
    ptx_test(&s, &window);
  }
}
END_TEST

START_TEST(any_mask) {
  static const ptx_mask *const masks[] = {&everything, &nothing, &causal, &window, &scattered, &looping, &blocks};
  for (int m = 0; m < 7; m++) {
    backward_spec s = {
        .call = {.type = types[m % TYPES], .dim = 64, .heads = 2, .batch = 2, .len_q = 150, .len_kv = 200, .seed = m}};
    ptx_test(&s, masks[m]);
  }
}
END_TEST

/* ---- layouts and heads ------------------------------------------------------------------------------------------- */

START_TEST(any_layout) { /* rows that are not aligned, too */
  backward_spec s = {.call = {.type = types[_i % TYPES],
                              .dim = 32,
                              .value_dim = 16,
                              .batch = 2,
                              .heads = 4,
                              .kv_heads = 2,
                              .len_q = 130,
                              .len_kv = 133,
                              .layout = _i,
                              .seed = _i}};
  ptx_test(&s, &window);
  ptx_test(&s, &scattered);
}
END_TEST

START_TEST(
    heads_that_share_keys) { /* by 1, 2, 3 and 6; each with rows of its own: sums of a row come from several heads */
  for (int kv_heads = 1; kv_heads <= 6; kv_heads++) {
    if (6 % kv_heads) continue;
    backward_spec s = {.call = {.type = types[kv_heads % TYPES],
                                .dim = 16,
                                .batch = 2,
                                .heads = 6,
                                .kv_heads = kv_heads,
                                .len_q = 70,
                                .len_kv = 100}};
    for (int rows = 0; rows < 4; rows++) {
      s.call.kv_rows = rows, s.call.q_rows = rows == 3 ? 2 : rows;
      ptx_test(&s, rows & 1 ? &causal : &scattered);
    }
  }
}
END_TEST

START_TEST(row_maps_gather_and_scatter) { /* _i: kinds of the three maps, base 4; 3: rows repeat */
  int q = _i % 4, kv = _i / 4 % 4, out = _i / 16;
  if (q == 3 && out == 0) return; /* duplicates need out_rows */
  backward_spec s = {.call = {.type = types[_i % TYPES],
                              .dim = 24,
                              .batch = 2,
                              .heads = 4,
                              .kv_heads = _i % 5 == 2 ? 4 : 2,
                              .len_q = 75,
                              .len_kv = 140,
                              .q_rows = q,
                              .kv_rows = kv,
                              .out_rows = out,
                              .layout = _i / 3 % 3,
                              .seed = _i},
                     .d_lse = _i & 1};
  ptx_test(&s, &window);
}
END_TEST

START_TEST(ragged_batches) { /* _i: which maps; in one plane the map of keys repeats rows over sequences */
  static const int32_t cu_q[] = {0, 70, 70, 71, 200, 328}, cu_kv[] = {0, 65, 130, 130, 131, 300};
  backward_spec s = {.call = {.type = types[_i % TYPES],
                              .dim = 16,
                              .batch = 5,
                              .heads = 4,
                              .kv_heads = 2,
                              .cu_q = cu_q,
                              .cu_kv = cu_kv,
                              .layout = _i % 3,
                              .q_rows = _i & 1 ? 2 : 0,
                              .kv_rows = _i & 2 ? 3 : 0,
                              .out_rows = _i & 4 ? 1 : 0,
                              .seed = _i}};
  ptx_test(&s, &causal);
  ptx_test(&s, &scattered);
}
END_TEST

START_TEST(query_offset_shifts_what_the_mask_sees) {
  static const int offsets[] = {1, 63, 150, -70, 1000};
  for (int i = 0; i < 5; i++) {
    backward_spec s = {
        .call = {.type = types[i % TYPES], .dim = 16, .len_q = 80, .len_kv = 230, .q_offset = offsets[i]}};
    ptx_test(&s, &causal);
    ptx_test(&s, &window);
  }
}
END_TEST

static Suite *suite(void) {
  Suite *suite = suite_create("ptx_backward");
  TCase *first = tcase_create("first"), *shape = tcase_create("shapes"), *rows = tcase_create("rows");
  tcase_add_loop_test(first, any_head_dimension, 0, TYPES);
  tcase_add_test(first, any_mask);
  tcase_add_loop_test(shape, any_head_dimension, TYPES, TYPES * SHAPES);
  tcase_add_loop_test(shape, whenever_copies_land, 0, 3);
  tcase_add_loop_test(rows, any_layout, 0, LAYOUTS);
  tcase_add_test(rows, heads_that_share_keys);
  tcase_add_loop_test(rows, row_maps_gather_and_scatter, 0, 32);
  tcase_add_loop_test(rows, ragged_batches, 0, 8);
  tcase_add_test(rows, query_offset_shifts_what_the_mask_sees);
  suite_add_tcase(suite, first);
  suite_add_tcase(suite, shape);
  suite_add_tcase(suite, rows);
  return suite;
}

FLY_TEST_MAIN(suite)
