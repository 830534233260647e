/* What an attention call can be, on a CUDA device, simulated here: dimensions, layouts, shared heads, ragged
 * batches, row maps, offsets, empty rows, partial outputs, gradients of all sorts, maps of any tiles; against
 * double precision. */
#include "backward_case.h"
#include "cuda_case.h"

static fly_cuda *cuda; /* NULL: images are packed, nothing runs */

static void open_device(void) { cuda = cuda_open_to_run(); }
static void close_device(void) { fly_cuda_release(&cuda); }

static void test_forward(const call_spec *spec, int left, int right, int tile) {
  int sides[2] = {left, right};
  char what[256];
  call_case t;
  cuda_case d;
  call_init(&t, spec, see_window, sides);
  cuda_case_open_window(&d, &t.call, &t.spec, left, right, tile);
  cuda_case_describe(what, &t.spec, left, right, tile);
  if (cuda) {
    cuda_forward(cuda, &t.call, d.kernel);
    oracle_check_units(&t.call, see_window, sides, CALL_UNTOUCHED, what);
  }
  cuda_case_close(&d);
  call_free(&t);
}

static void test_backward(const backward_spec *spec, int left, int right, int tile) {
  int sides[2] = {left, right};
  char what[256];
  backward_case t;
  cuda_case d;
  backward_init(&t, spec, see_window, sides);
  cuda_case_open_window(&d, &t.base.call, &t.base.spec, left, right, tile);
  cuda_case_describe(what, &t.base.spec, left, right, tile);
  if (cuda) {
    cuda_backward(cuda, &t.base.call, d.kernel);
    oracle_check_backward_units(&t.base.call, see_window, sides, cuda_operands(t.base.spec.type), what);
  }
  cuda_case_close(&d);
  backward_free(&t);
}

/* ---- shapes ------------------------------------------------------------------------------------------------------ */

static const fly_type types[] = {FLY_BF16, FLY_F16, FLY_F32};
static const int dims[][2] = {{1, 1},   {8, 8},     {20, 36},   {64, 64},  {96, 64},
                              {100, 7}, {128, 128}, {192, 128}, {256, 256}};
enum { TYPES = 3, DIMS = 9 };

START_TEST(any_head_and_value_dimension) {
  const int *dim = dims[_i / TYPES];
  call_spec spec = {.type = types[_i % TYPES], .dim = dim[0], .value_dim = dim[1], .heads = 2, .kv_heads = 1};
  spec.len_q = 77, spec.len_kv = 150, spec.q_offset = 73;
  test_forward(&spec, 90, 0, 0);
  spec.layout = LAYOUT_PADDED, spec.len_q = 65;
  test_forward(&spec, -1, 0, 0);
  backward_spec backward = {.call = spec, .d_lse = true};
  test_backward(&backward, 40, 10, 0);
  backward.call.layout = LAYOUT_BHSD;
  test_backward(&backward, 40, 10, 0);
}
END_TEST

static const int32_t cu_q[] = {0, 100, 101, 101, 180}, cu_kv[] = {0, 129, 131, 200, 231};

static const call_spec calls[] = {
    {.dim = 64, .len_q = 1, .len_kv = 1},
    {.dim = 64, .len_q = 200, .len_kv = 200, .heads = 4, .kv_heads = 2, .batch = 2, .layout = LAYOUT_BSHD},
    {.dim = 64, .len_q = 130, .len_kv = 130, .heads = 3, .batch = 2, .layout = LAYOUT_BROADCAST},
    {.dim = 64, .len_q = 1, .len_kv = 300, .q_offset = 299, .heads = 8, .kv_heads = 1},
    {.dim = 64, .len_q = 150, .len_kv = 60, .q_offset = -40, .heads = 2},
    {.dim = 64, .len_q = 140, .len_kv = 140, .heads = 2, .kv_heads = 1, .q_rows = 1, .kv_rows = 1},
    {.dim = 64, .len_q = 140, .len_kv = 140, .batch = 2, .heads = 2, .q_rows = 2, .kv_rows = 2, .out_rows = 2},
    {.dim = 64, .len_q = 70, .len_kv = 200, .heads = 4, .kv_heads = 2, .kv_rows = 3, .out_rows = 1, .q_offset = 130},
    {.dim = 64, .batch = 4, .heads = 2, .kv_heads = 1, .cu_q = cu_q, .cu_kv = cu_kv},
    {.dim = 64, .batch = 4, .heads = 2, .cu_q = cu_q, .cu_kv = cu_kv, .q_rows = 1, .kv_rows = 2, .layout = LAYOUT_BSHD},
    {.dim = 64, .len_q = 300, .len_kv = 280, .no_lse = true, .scale = 0.3f, .amplitude = 3},
};
enum { CALLS = sizeof calls / sizeof *calls };

START_TEST(any_layout_rows_and_lengths_forward) {
  call_spec spec = calls[_i / TYPES];
  spec.type = types[_i % TYPES];
  test_forward(&spec, 100, 3, 0);
  test_forward(&spec, -1, 0, 64); /* maps of other tiles than the kernel's */
  test_forward(&spec, 30, -1, 192);
}
END_TEST

START_TEST(any_layout_rows_and_lengths_backward) {
  backward_spec spec = {.call = calls[_i / TYPES], .d_lse = true};
  spec.call.type = types[_i % TYPES], spec.call.no_lse = false;
  test_backward(&spec, 100, 3, 0);
  spec.d_lse = false;
  test_backward(&spec, 30, 0, 64);
}
END_TEST

START_TEST(keys_of_one_row_for_many_heads_and_repeated_queries_add_up) {
  backward_spec spec = {.call = {.type = types[_i], .dim = 64, .len_q = 140, .len_kv = 150, .heads = 4, .kv_heads = 2}};
  spec.call.q_rows = 3, spec.call.kv_rows = 3, spec.call.out_rows = 1, spec.call.batch = 2;
  test_backward(&spec, 60, 5, 0);
  spec.call.kv_rows = 2; /* heads that share keys, in orders of their own */
  test_backward(&spec, 60, 5, 0);
}
END_TEST

/* A map does not say how many heads share keys, and what is kept with it on the device must not either. */
START_TEST(one_map_serves_calls_of_any_number_of_key_heads) {
  if (!cuda) return;
  backward_case t[3];
  cuda_case d;
  int sides[2] = {60, 5};
  for (int i = 0; i < 3; i++) {
    backward_spec spec = {.call = {.type = FLY_BF16, .dim = 64, .len_q = 70, .len_kv = 90, .heads = 4, .kv_rows = 2}};
    spec.call.kv_heads = 1 << i;
    backward_init(&t[i], &spec, see_window, sides);
    if (i > 0) t[i].base.call.geometry.kv_rows = t[0].base.call.geometry.kv_rows;
    if (i > 0) oracle_forward(&t[i].base.call, see_window, sides);
  }
  cuda_case_open_window(&d, &t[0].base.call, &t[0].base.spec, 60, 5, 128);
  for (int i = 0; i < 6; i++) {
    fly_attention *c = &t[i % 3].base.call;
    c->kernel = d.kernel, c->bound = d.bound, c->map = d.map;
    backward_reset(&t[i % 3]);
    cuda_backward(cuda, c, d.kernel);
    oracle_check_backward_units(c, see_window, sides, cuda_operands(FLY_BF16), "one map");
  }
  cuda_case_close(&d);
  for (int i = 0; i < 3; i++) backward_free(&t[i]);
}
END_TEST

/* Tiles of 64, of which those of 128 that lie on even diagonals are left out: whole ones of any kernel's. */
static bool see_even_tiles(void *context, int b, int h, int q, int kv) {
  (void)context, (void)b, (void)h;
  return kv <= q && (q / 128 - kv / 128) % 2 == 0;
}

/* The map as arrays without tiles that see_even_tiles does not see, and back. */
static void leave_out_odd_tiles(cuda_case *d, const fly_geometry *geometry) {
  fly_error error;
  fly_map_arrays arrays = {FLY_INIT(fly_map_arrays)};
  fly_map_options options = {FLY_INIT(fly_map_options), .tile_q = 64, .tile_kv = 64};
  fly_map *made;
  ck_fly_ok(fly_map_to_arrays(d->map, FLY_BY_QUERY, &arrays, &error), error);
  for (int64_t i = 0; i < arrays.rows; i++)
    for (int full = 0; full < 2; full++) {
      int32_t *num = full ? &arrays.full_num[i] : &arrays.num[i];
      int32_t *index = (full ? arrays.full_index : arrays.index) + i * arrays.columns, kept = 0;
      for (int32_t j = 0; j < *num; j++)
        if ((i / 2 - index[j] / 2) % 2 == 0) index[kept++] = index[j];
      *num = kept;
    }
  ck_fly_ok(fly_map_from_arrays(&arrays, geometry, &options, &made, &error), error);
  fly_map_arrays_free(&arrays);
  fly_map_release(&d->map);
  ck_fly_ok(fly_map_bind(made, d->bound, &d->map, &error), error);
  fly_map_release(&made);
}

/* Small tiles that fill the kernel's are no reason to refuse a map, whatever the mask sees there. */
START_TEST(maps_of_small_tiles_hold_where_they_fill_the_kernels) {
  if (!cuda) return;
  backward_spec spec = {.call = {.type = types[_i], .dim = 64, .len_q = 600, .len_kv = 600}};
  backward_case t;
  cuda_case d;
  backward_init(&t, &spec, see_even_tiles, NULL);
  fly_attention *c = &t.base.call;
  cuda_case_open_window(&d, c, &t.base.spec, -1, 0, 64);
  leave_out_odd_tiles(&d, &c->geometry);
  c->map = d.map;
  cuda_forward(cuda, c, d.kernel);
  oracle_check_units(c, see_even_tiles, NULL, CALL_UNTOUCHED, "small tiles");
  cuda_backward(cuda, c, d.kernel);
  oracle_check_backward_units(c, see_even_tiles, NULL, 2 * cuda_operands(types[_i]),
                              "small tiles"); /* out was rounded */
  cuda_case_close(&d);
  backward_free(&t);
}
END_TEST

static bool see_diagonal_tiles(void *context, int b, int h, int q, int kv) {
  (void)b, (void)h;
  int tile = *(int *)context;
  return kv <= q && q / tile == kv / tile;
}

/* The map as arrays, with full tiles or without, and back. */
static void through_arrays(cuda_case *d, const fly_geometry *geometry, int tile, bool full) {
  fly_error error;
  fly_map_arrays arrays = {FLY_INIT(fly_map_arrays)};
  fly_map_options options = {FLY_INIT(fly_map_options), .tile_q = tile, .tile_kv = tile};
  fly_map *made;
  ck_fly_ok(fly_map_to_arrays(d->map, FLY_BY_QUERY, &arrays, &error), error);
  for (int64_t i = 0; i < arrays.rows && !full; i++) arrays.full_num[i] = 0;
  ck_fly_ok(fly_map_from_arrays(&arrays, geometry, &options, &made, &error), error);
  fly_map_arrays_free(&arrays);
  fly_map_release(&d->map);
  ck_fly_ok(fly_map_bind(made, d->bound, &d->map, &error), error);
  fly_map_release(&made);
}

/* Arrays may leave out tiles that the mask sees. A kernel of larger tiles would have the mask decide them. */
START_TEST(maps_of_arrays_hold_or_are_refused) {
  if (!cuda) return;
  for (int tile = 64; tile <= 256; tile *= 2)
    for (int full = 0; full < 2; full++) {
      int all = 1 << 20;
      backward_spec spec = {.call = {.type = types[_i], .dim = 64, .len_q = 520, .len_kv = 520}};
      backward_case t;
      cuda_case d;
      fly_error error;
      cuda_call on;
      backward_init(&t, &spec, see_diagonal_tiles, full ? &all : &tile);
      fly_attention *c = &t.base.call;
      cuda_case_open_window(&d, c, &t.base.spec, -1, 0, tile);
      through_arrays(&d, &c->geometry, tile, full);
      c->map = d.map;
      cuda_call_init(&on, cuda, c, d.kernel);
      fly_status status = fly_attention_backward(&on.call, &error);
      ck_assert_msg(!status || (!full && tile < 256 && strstr(error.message, "not the mask's")), "%d", tile);
      if (!status) {
        cuda_call_fetch(&on, true);
        oracle_check_backward_units(c, see_diagonal_tiles, full ? &all : &tile, cuda_operands(types[_i]), "arrays");
      }
      cuda_call_free(&on);
      cuda_case_close(&d);
      backward_free(&t);
    }
}
END_TEST

START_TEST(gradients_that_are_not_wanted_are_left_out) {
  for (int wanted = 1; wanted < 8; wanted++) {
    backward_spec spec = {.call = {.type = FLY_BF16, .dim = 64, .len_q = 90, .len_kv = 100, .heads = 2, .kv_heads = 1}};
    spec.no_d_q = !(wanted & 1), spec.no_d_k = !(wanted & 2), spec.no_d_v = !(wanted & 4);
    test_backward(&spec, 60, 5, 0);
  }
}
END_TEST

/* One tensor of a call whose rows are an odd number of elements apart, the rest as aligned as can be. */
START_TEST(each_tensor_may_be_aligned_or_not) {
  if (!cuda) return;
  for (int odd = 0; odd < 8; odd++) {
    int sides[2] = {60, 5};
    backward_case t;
    cuda_case d;
    backward_spec spec = {.call = {.type = types[_i], .dim = 64, .len_q = 70, .len_kv = 90}};
    backward_init(&t, &spec, see_window, sides);
    fly_attention *c = &t.base.call;
    fly_tensor *all[8] = {&c->q, &c->k, &c->v, &c->out, &c->d_out, &c->d_q, &c->d_k, &c->d_v}, *x = all[odd], old = *x;
    size_t size = fly_type_size(x->type);
    x->stride[2] = 65, x->stride[1] = x->stride[0] = 65 * x->shape[2];
    x->data = guard_alloc((size_t)(65 * (x->shape[2] - 1) + 64) * size, size, 0);
    for (int64_t r = 0; r < x->shape[2]; r++)
      for (int64_t e = 0; e < 64; e++) oracle_set(x, 0, 0, r, e, oracle_get(&old, 0, 0, r, e));
    cuda_case_open_window(&d, c, &t.base.spec, 60, 5, 0);
    cuda_backward(cuda, c, d.kernel);
    oracle_check_backward_units(c, see_window, sides, cuda_operands(types[_i]), "one odd tensor");
    cuda_forward(cuda, c, d.kernel);
    oracle_check_units(c, see_window, sides, CALL_UNTOUCHED, "one odd tensor");
    cuda_case_close(&d);
    guard_free(x->data);
    backward_free(&t);
  }
}
END_TEST

/* ---- rows without keys, calls without rows --------------------------------------------------------------------- */

START_TEST(rows_that_see_nothing_are_zero_and_their_lse_minus_infinity) {
  call_spec spec = {.type = types[_i], .dim = 64, .len_q = 200, .len_kv = 100, .heads = 2};
  test_forward(&spec, 20, 0, 0); /* the last 80 queries are behind all windows */
  call_spec nothing = spec;
  nothing.q_offset = 1000;
  test_forward(&nothing, 20, 0, 0);
  backward_spec backward = {.call = spec, .d_lse = true};
  test_backward(&backward, 20, 0, 0);
}
END_TEST

START_TEST(calls_without_queries_or_keys_write_what_there_is) {
  call_spec spec = {.type = FLY_BF16, .dim = 64, .len_q = 3, .len_kv = 0, .heads = 2};
  test_forward(&spec, -1, -1, 0);
  spec.len_q = 0, spec.len_kv = 5;
  test_forward(&spec, -1, -1, 0);
  backward_spec backward = {.call = spec};
  test_backward(&backward, -1, -1, 0); /* d_k and d_v are zeros */
  backward.call.len_q = 3, backward.call.len_kv = 0;
  test_backward(&backward, -1, -1, 0);
}
END_TEST

/* ---- outputs ----------------------------------------------------------------------------------------------------- */

START_TEST(outputs_may_be_f32) {
  if (!cuda) return;
  int sides[2] = {50, 0};
  call_case t;
  cuda_case d;
  call_spec spec = {.type = _i ? FLY_F16 : FLY_BF16, .dim = 64, .len_q = 130, .len_kv = 130};
  call_init(&t, &spec, see_window, sides);
  cuda_case_open_window(&d, &t.call, &t.spec, 50, 0, 0);
  fly_tensor *out = &t.call.out;
  float *memory = guard_alloc(130 * 64 * sizeof *memory, sizeof *memory, 0);
  *out = fly_tensor_dense(memory, FLY_F32, 1, 1, 130, 64);
  call_reset(&t);
  cuda_forward(cuda, &t.call, d.kernel);
  oracle_check_units(&t.call, see_window, sides, CALL_UNTOUCHED, "f32 out");
  guard_free(memory);
  cuda_case_close(&d);
  call_free(&t);
}
END_TEST

/* In f32: what a call without adding gives, which other tests hold to the oracle, and small integers, but for a
 * rounding. */
START_TEST(gradients_are_added_to_what_is_there) {
  if (!cuda) return;
  for (int repeats = 0; repeats < 2; repeats++) {
    int sides[2] = {50, 0};
    backward_case t;
    cuda_case d;
    backward_spec spec = {.call = {.type = FLY_F32, .dim = 64, .len_q = 70, .len_kv = 90, .heads = 2}};
    if (repeats) spec.call.q_rows = spec.call.kv_rows = 3, spec.call.out_rows = 1;
    backward_init(&t, &spec, see_window, sides);
    fly_attention *c = &t.base.call, plain = *c;
    cuda_case_open_window(&d, c, &t.base.spec, 50, 0, 0);
    fly_tensor *all[] = {&c->d_q, &c->d_k, &c->d_v}, *alone[] = {&plain.d_q, &plain.d_k, &plain.d_v};
    plain.kernel = c->kernel, plain.bound = c->bound, plain.map = NULL;
    for (int i = 0; i < 3; i++) {
      int64_t count = all[i]->shape[1] * all[i]->shape[2] * all[i]->shape[3];
      alone[i]->data = guard_alloc((size_t)count * sizeof(float), sizeof(float), 0);
      for (int64_t e = 0; e < count; e++) ((float *)all[i]->data)[e] = (float)(e % 3);
    }
    c->add_gradients = true;
    cuda_backward(cuda, c, d.kernel);
    cuda_backward(cuda, &plain, d.kernel);
    for (int i = 0; i < 3; i++) {
      const float *sum = all[i]->data, *gradient = alone[i]->data;
      for (int64_t e = 0; e < all[i]->shape[1] * all[i]->shape[2] * all[i]->shape[3]; e++) {
        double want = (double)gradient[e] + (double)(e % 3);
        ck_assert_msg(fabs(sum[e] - want) <= 0x1p-23 * fabs(want) + 1e-9, "%d, %ld: %g + %d is %g", i, (long)e,
                      gradient[e], (int)(e % 3), sum[e]);
      }
      guard_free(alone[i]->data);
    }
    cuda_case_close(&d);
    backward_free(&t);
  }
}
END_TEST

START_TEST(backward_gives_the_same_bits_again) {
  if (!cuda) return;
  int sides[2] = {-1, 0};
  backward_case t;
  cuda_case d;
  backward_spec spec = {.call = {.type = FLY_BF16, .dim = 64, .len_q = 200, .len_kv = 200, .heads = 4, .kv_heads = 2}};
  backward_init(&t, &spec, see_window, sides);
  cuda_case_open_window(&d, &t.base.call, &t.base.spec, -1, 0, 0);
  cuda_backward(cuda, &t.base.call, d.kernel);
  uint64_t digest = backward_digest(&t);
  for (int i = 0; i < 2; i++) {
    backward_reset(&t);
    cuda_backward(cuda, &t.base.call, d.kernel);
    ck_assert_uint_eq(backward_digest(&t), digest);
  }
  cuda_case_close(&d);
  backward_free(&t);
}
END_TEST

static Suite *make_suite(void) {
  Suite *suite = suite_create("cuda_features");
  TCase *shapes = tcase_create("shapes"), *forward = tcase_create("forward"), *backward = tcase_create("backward");
  TCase *rest = tcase_create("rest"), *all[] = {shapes, forward, backward, rest};
  for (int i = 0; i < 4; i++) {
    tcase_add_checked_fixture(all[i], open_device, close_device);
    suite_add_tcase(suite, all[i]);
  }
  tcase_add_loop_test(shapes, any_head_and_value_dimension, 0, TYPES * DIMS);
  tcase_add_loop_test(forward, any_layout_rows_and_lengths_forward, 0, TYPES * CALLS);
  tcase_add_loop_test(backward, any_layout_rows_and_lengths_backward, 0, TYPES * CALLS);
  tcase_add_loop_test(rest, keys_of_one_row_for_many_heads_and_repeated_queries_add_up, 0, TYPES);
  tcase_add_loop_test(rest, each_tensor_may_be_aligned_or_not, 0, TYPES);
  tcase_add_loop_test(rest, maps_of_arrays_hold_or_are_refused, 0, TYPES);
  tcase_add_loop_test(rest, maps_of_small_tiles_hold_where_they_fill_the_kernels, 0, TYPES);
  tcase_add_test(rest, one_map_serves_calls_of_any_number_of_key_heads);
  tcase_add_test(rest, gradients_that_are_not_wanted_are_left_out);
  tcase_add_loop_test(rest, rows_that_see_nothing_are_zero_and_their_lse_minus_infinity, 0, TYPES);
  tcase_add_test(rest, calls_without_queries_or_keys_write_what_there_is);
  tcase_add_loop_test(rest, outputs_may_be_f32, 0, 2);
  tcase_add_test(rest, gradients_are_added_to_what_is_there);
  tcase_add_test(rest, backward_gives_the_same_bits_again);
  return suite;
}

FLY_TEST_MAIN(make_suite)
