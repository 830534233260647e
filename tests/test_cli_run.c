/* `flymask run` and `flymask demo` against a double-precision computation that is written here: masks are plain
 * functions of this file, and nothing of the library takes part. */
#include <unistd.h>

#include "cli/npy.h"
#include "command.h"
#include "support.h"

static const char *directory;

static void make_directory(void) { directory = command_make_directory(); }

/* ---- the reference ----------------------------------------------------------------------------------------------- */

/* An attention problem in doubles, [batch, heads, seq, dim] row-major. Row r of the call is row rows[r] of the tensors
 * (NULL: itself), and the mask sees positions of the call and the tokens behind them. */
typedef struct problem {
  int64_t batch, heads, kv_heads, len_q, len_kv, dim, value_dim, q_offset;
  double *q, *k, *v, *out, *lse;
  const int32_t *rows;
  int64_t row_count;
  bool (*visible)(int64_t q, int64_t kv, int64_t token_q, int64_t token_kv);
} problem;

static bool causal(int64_t q, int64_t kv, int64_t token_q, int64_t token_kv) {
  (void)token_q, (void)token_kv;
  return kv <= q;
}
static bool window_20_3(int64_t q, int64_t kv, int64_t token_q, int64_t token_kv) {
  (void)token_q, (void)token_kv;
  return q - kv <= 20 && kv - q <= 3;
}
static bool stochastic_16(int64_t q, int64_t kv, int64_t token_q, int64_t token_kv) {
  return q - kv <= 16 && kv - q <= 16 && token_kv <= token_q;
}
static bool stochastic_128(int64_t q, int64_t kv, int64_t token_q, int64_t token_kv) {
  return q - kv <= 128 && kv - q <= 128 && token_kv <= token_q;
}
static bool window_256(int64_t q, int64_t kv, int64_t token_q, int64_t token_kv) {
  (void)token_q, (void)token_kv;
  return kv <= q && q - kv < 256;
}
static bool nothing_before_40(int64_t q, int64_t kv, int64_t token_q, int64_t token_kv) {
  (void)token_q, (void)token_kv;
  return q >= 40 && kv <= q;
}

static void attend_row(problem *p, int64_t b, int64_t h, int64_t row, double *score) {
  int64_t keys = p->rows ? p->row_count : p->len_kv, kv_head = h / (p->heads / p->kv_heads);
  int64_t q_row = p->rows ? p->rows[row] : row;
  const double *q = p->q + ((b * p->heads + h) * p->len_q + q_row) * p->dim;
  double *out = p->out + ((b * p->heads + h) * p->len_q + q_row) * p->value_dim, most = -INFINITY, sum = 0;
  for (int64_t j = 0; j < keys; j++) {
    int64_t kv_row = p->rows ? p->rows[j] : j;
    const double *k = p->k + ((b * p->kv_heads + kv_head) * p->len_kv + kv_row) * p->dim;
    score[j] = -INFINITY;
    if (!p->visible(row + p->q_offset, j, q_row + p->q_offset, kv_row)) continue;
    double dot = 0;
    for (int64_t d = 0; d < p->dim; d++) dot += q[d] * k[d];
    score[j] = dot / sqrt((double)p->dim);
    if (score[j] > most) most = score[j];
  }
  for (int64_t d = 0; d < p->value_dim; d++) out[d] = 0;
  for (int64_t j = 0; j < keys; j++) {
    if (score[j] == -INFINITY) continue;
    int64_t kv_row = p->rows ? p->rows[j] : j;
    const double *v = p->v + ((b * p->kv_heads + kv_head) * p->len_kv + kv_row) * p->value_dim;
    double weight = exp(score[j] - most);
    sum += weight;
    for (int64_t d = 0; d < p->value_dim; d++) out[d] += weight * v[d];
  }
  for (int64_t d = 0; d < p->value_dim && sum > 0; d++) out[d] /= sum;
  p->lse[(b * p->heads + h) * p->len_q + q_row] = sum > 0 ? most + log(sum) : -INFINITY;
}

static void attend(problem *p) {
  int64_t rows = p->rows ? p->row_count : p->len_q, keys = p->rows ? p->row_count : p->len_kv;
  double *score = malloc(sizeof(double) * (size_t)(keys + 1));
  for (int64_t b = 0; b < p->batch; b++)
    for (int64_t h = 0; h < p->heads; h++)
      for (int64_t row = 0; row < rows; row++) attend_row(p, b, h, row, score);
  free(score);
}

static void allocate(problem *p) {
  int64_t q = p->batch * p->heads * p->len_q, kv = p->batch * p->kv_heads * p->len_kv;
  p->q = malloc(sizeof(double) * (size_t)(q * p->dim));
  p->k = malloc(sizeof(double) * (size_t)(kv * p->dim));
  p->v = malloc(sizeof(double) * (size_t)(kv * p->value_dim));
  p->out = calloc((size_t)(q * p->value_dim), sizeof(double));
  p->lse = malloc(sizeof(double) * (size_t)q);
  for (int64_t i = 0; i < q; i++) p->lse[i] = -INFINITY;
}

static void free_problem(problem *p) {
  free(p->q);
  free(p->k);
  free(p->v);
  free(p->out);
  free(p->lse);
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

/* Random values in `values` and in the file, rounded to its type. Fortran order is written by hand. */
static void write_tensor(const char *name, fly_type type, const int64_t shape[4], bool fortran, test_random *random,
                         double *values) {
  int64_t count = shape[0] * shape[1] * shape[2] * shape[3];
  size_t size = fly_type_size(type);
  uint8_t *data = malloc((size_t)count * size);
  for (int64_t i = 0; i < count; i++) {
    float value = (float)test_normal(random);
    uint16_t half = test_to_f16(value);
    values[i] = type == FLY_F16 ? test_from_f16(half) : value;
    int64_t at = i, rest = i;
    if (fortran) { /* from row-major to column-major */
      int64_t index[4];
      for (int d = 3; d >= 0; d--) {
        index[d] = rest % shape[d];
        rest /= shape[d];
      }
      at = ((index[3] * shape[2] + index[2]) * shape[1] + index[1]) * shape[0] + index[0];
    }
    memcpy(data + (size_t)at * size, type == FLY_F16 ? (void *)&half : (void *)&value, size);
  }
  char header[128];
  int length = snprintf(
      header, sizeof header, "{'descr': '<f%zu', 'fortran_order': %s, 'shape': (%lld, %lld, %lld, %lld)}\n", size,
      fortran ? "True" : "False", (long long)shape[0], (long long)shape[1], (long long)shape[2], (long long)shape[3]);
  FILE *file = fopen(command_path(name), "wb");
  ck_assert_ptr_nonnull(file);
  fwrite("\x93NUMPY\x02\0", 1, 8, file);
  fwrite((uint8_t[]){(uint8_t)length, 0, 0, 0}, 1, 4, file);
  fwrite(header, 1, (size_t)length, file);
  fwrite(data, size, (size_t)count, file);
  fclose(file);
  free(data);
}

static void write_problem(problem *p, fly_type type, bool fortran, uint64_t seed) {
  test_random random = {seed};
  allocate(p);
  write_tensor("q.npy", type, (int64_t[]){p->batch, p->heads, p->len_q, p->dim}, fortran, &random, p->q);
  write_tensor("k.npy", type, (int64_t[]){p->batch, p->kv_heads, p->len_kv, p->dim}, fortran, &random, p->k);
  write_tensor("v.npy", type, (int64_t[]){p->batch, p->kv_heads, p->len_kv, p->value_dim}, fortran, &random, p->v);
}

static double element(const npy_array *a, int64_t i) {
  return a->type == FLY_F16 ? test_from_f16(((uint16_t *)a->data)[i]) : (double)((float *)a->data)[i];
}

/* The file holds this shape and type, and these values: |difference| <= relative * |value| + absolute. */
static void check_file(const char *path, fly_type type, const int64_t *shape, int rank, const double *values,
                       double relative, double absolute) {
  npy_array a;
  fly_error error;
  ck_fly_ok(npy_read(path, &a, &error), error);
  ck_assert_int_eq(a.type, type);
  ck_assert_int_eq(a.rank, rank);
  for (int d = 0; d < rank; d++) ck_assert_int_eq(a.shape[d], shape[d]);
  for (int64_t i = 0; i < a.count; i++) {
    double got = element(&a, i);
    bool near = got == values[i] || fabs(got - values[i]) <= relative * fabs(values[i]) + absolute;
    ck_assert_msg(near, "%s, element %lld: %.9g, not %.9g", path, (long long)i, got, values[i]);
  }
  npy_free(&a);
}

static void check_outputs(const problem *p, fly_type type) {
  const int64_t shape[] = {p->batch, p->heads, p->len_q, p->value_dim};
  double rounding = type == FLY_F16 ? 0x1p-11 : 0;
  check_file(command_path("out.npy"), type, shape, 4, p->out, rounding + 2e-6, 4e-6);
  check_file(command_path("lse.npy"), FLY_F32, shape, 3, p->lse, 1e-6, 4e-6);
}

static void run(const char *arguments) {
  command_result r = command_run(directory, "run %s --q q.npy --k k.npy --v v.npy --out out.npy --lse lse.npy",
                                 arguments);
  ck_assert_msg(r.code == 0, "%s: exit %d: %s", arguments, r.code, r.err);
  ck_assert_str_eq(r.err, "");
  ck_assert_ptr_nonnull(strstr(r.out, "out.npy: ["));
  ck_assert_ptr_nonnull(strstr(r.out, "lse.npy: ["));
  command_free(&r);
}

static void check_run(problem p, fly_type type, bool fortran, const char *arguments) {
  write_problem(&p, type, fortran, 1234 + (uint64_t)p.len_q);
  attend(&p);
  run(arguments);
  check_outputs(&p, type);
  free_problem(&p);
}

/* ---- run --------------------------------------------------------------------------------------------------------- */

START_TEST(run_agrees_with_double_precision) {
  static const int lengths[] = {1, 2, 63, 64, 65, 127, 128, 129, 259};
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
    int n = lengths[i];
    check_run((problem){2, 6, 2, n, n, 32, 32, 0, .visible = causal}, FLY_F32, false, "causal");
    check_run((problem){1, 2, 2, n, n, 40, 24, 0, .visible = causal}, FLY_F16, true, "causal --threads 1");
  }
}
END_TEST

START_TEST(offsets_align_the_ends_of_different_lengths) {
  check_run((problem){1, 4, 1, 5, 300, 16, 16, 295, .visible = causal}, FLY_F32, false, "causal --q-offset end");
  check_run((problem){1, 2, 1, 100, 70, 64, 8, -30, .visible = causal}, FLY_F32, false, "causal --q-offset end");
  check_run((problem){1, 1, 1, 90, 200, 8, 8, 17, .visible = window_20_3}, FLY_F32, true,
            "sliding_window left=20 right=3 --q-offset 17");
}
END_TEST

START_TEST(rows_that_see_nothing_are_zero_with_lse_minus_infinity) {
  FILE *file = fopen(command_path("late.c"), "w");
  ck_assert_ptr_nonnull(file);
  fputs("#include <flymask/mask.h>\nFLY_PARAM(int, first, 0);\n"
        "bool mask(int b, int h, int q, int kv) { (void)b, (void)h; return q >= first && kv <= q; }\n",
        file);
  fclose(file);
  check_run((problem){1, 2, 1, 100, 100, 16, 16, 0, .visible = nothing_before_40}, FLY_F32, false, "./late.c first=40");
}
END_TEST

static void shuffle(int32_t *rows, int32_t n, uint64_t seed) {
  test_random random = {seed};
  for (int32_t i = 0; i < n; i++) rows[i] = i;
  for (int32_t i = n - 1; i > 0; i--) {
    int64_t j = test_range(&random, 0, i);
    int32_t other = rows[j];
    rows[j] = rows[i];
    rows[i] = other;
  }
}

START_TEST(rows_gather_inputs_and_scatter_outputs) {
  enum { N = 200 };
  int32_t rows[N];
  fly_error error;
  shuffle(rows, N, 5);
  ck_fly_ok(npy_write(command_path("rows.npy"), FLY_I32, 1, (int64_t[]){N}, rows, &error), error);
  problem p = {2, 4, 2, N, N, 24, 24, 0, .rows = rows, .row_count = N, .visible = stochastic_16};
  check_run(p, FLY_F32, false, "stochastic left=16 right=16 --rows rows.npy");
  /* Some of the rows: the others are as rows that see nothing. */
  ck_fly_ok(npy_write(command_path("rows.npy"), FLY_I32, 1, (int64_t[]){90}, rows, &error), error);
  p.row_count = 90;
  check_run(p, FLY_F32, false, "stochastic left=16 right=16 --rows rows.npy");
}
END_TEST

START_TEST(random_rows_are_a_permutation_that_the_seed_names) {
  enum { N = 150 };
  int32_t rows[N];
  fly_error error;
  ck_fly_ok(fly_permutation(N, 42, 0, 0, 0, rows, &error), error);
  problem p = {1, 2, 1, N, N, 16, 16, 0, .rows = rows, .row_count = N, .visible = stochastic_16};
  check_run(p, FLY_F32, false, "stochastic left=16 right=16 --rows random:42");
}
END_TEST

START_TEST(bad_rows_are_refused) {
  static const struct {
    int32_t rows[3];
    const char *text;
  } cases[] = {{{0, 1, 3}, "3"}, {{0, -1, 2}, "-1"}, {{0, 2, 2}, "2"}};
  problem p = {1, 1, 1, 3, 3, 8, 8, 0, .visible = causal};
  write_problem(&p, FLY_F32, false, 1);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    fly_error error;
    ck_fly_ok(npy_write(command_path("rows.npy"), FLY_I32, 1, (int64_t[]){3}, cases[i].rows, &error), error);
    command_result r = command_run(directory, "run causal --q q.npy --k k.npy --v v.npy --out out.npy --rows rows.npy");
    ck_assert_int_eq(r.code, 1);
    ck_assert_msg(strstr(r.err, cases[i].text) != NULL, "%s", r.err);
    command_free(&r);
    ck_assert_int_ne(access(command_path("out.npy"), F_OK), 0);
  }
  free_problem(&p);
}
END_TEST

START_TEST(scale_and_pipes_are_honoured) {
  problem p = {1, 1, 1, 30, 30, 16, 16, 0, .visible = causal};
  write_problem(&p, FLY_F32, false, 9);
  for (int64_t i = 0; i < 30 * 16; i++) p.q[i] *= 0.7 * 4; /* 0.7 in the place of 1 / sqrt(16) */
  attend(&p);
  command_result r = command_run(directory, "run causal --scale 0.7 --q /dev/stdin --k k.npy --v v.npy --lse lse.npy "
                                            "--out out.npy <q.npy");
  ck_assert_msg(r.code == 0, "%s", r.err);
  command_free(&r);
  check_outputs(&p, FLY_F32);
  free_problem(&p);
}
END_TEST

/* ---- demo -------------------------------------------------------------------------------------------------------- */

static void read_sample(const char *name, double *values) {
  char path[512];
  npy_array a;
  fly_error error;
  snprintf(path, sizeof path, "%s/tests/data/sample/%s", FLYMASK_SOURCE, name);
  ck_fly_ok(npy_read(path, &a, &error), error);
  for (int64_t i = 0; i < a.count; i++) values[i] = element(&a, i);
  npy_free(&a);
}

/* Its files hold f16 of what double precision gives, and its table the pairs that are visible. */
START_TEST(the_demo_computes_what_it_says) {
  npy_array perm;
  char path[512];
  fly_error error;
  snprintf(path, sizeof path, "%s/tests/data/sample/perm.npy", FLYMASK_SOURCE);
  ck_fly_ok(npy_read(path, &perm, &error), error);
  command_result r = command_run(directory, "demo -o results");
  ck_assert_msg(r.code == 0, "%s", r.err);
  int64_t sa_pairs = 0;
  for (int64_t q = 0; q < 1024; q++)
    for (int64_t kv = 0; kv < 1024; kv++)
      sa_pairs += stochastic_128(q, kv, ((int32_t *)perm.data)[q], ((int32_t *)perm.data)[kv]);
  char pairs[64];
  snprintf(pairs, sizeof pairs, "%lld,%03lld,%03lld", (long long)(9 * sa_pairs / 1000000),
           (long long)(9 * sa_pairs / 1000 % 1000), (long long)(9 * sa_pairs % 1000));
  static const char *const texts[] = {"4,723,200",  /* 9 heads of 1024 * 1025 / 2 */
                                      "2,065,536",  /* 9 * (256 * 257 / 2 + 768 * 256) */
                                      "136 of 256", /* 16 * 17 / 2 tiles of 64 */
                                      "results/maps.png"};
  ck_assert_msg(strstr(r.out, pairs) != NULL, "no %s in %s", pairs, r.out);
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
    ck_assert_msg(strstr(r.out, texts[i]) != NULL, "no %s in %s", texts[i], r.out);
  ck_assert_int_eq(access(command_path("results/maps.png"), R_OK), 0);

  problem p = {1, 9, 3, 1024, 1024, 64, 64, 0, .visible = causal};
  allocate(&p);
  read_sample("q.npy", p.q);
  read_sample("k.npy", p.k);
  read_sample("v.npy", p.v);
  const int64_t shape[] = {1, 9, 1024, 64};
  attend(&p);
  check_file(command_path("results/full.npy"), FLY_F16, shape, 4, p.out, 0x1p-11, 3e-5);
  p.visible = window_256;
  attend(&p);
  check_file(command_path("results/swa.npy"), FLY_F16, shape, 4, p.out, 0x1p-11, 3e-5);
  p.visible = stochastic_128;
  p.rows = perm.data;
  p.row_count = 1024;
  attend(&p);
  check_file(command_path("results/sa.npy"), FLY_F16, shape, 4, p.out, 0x1p-11, 3e-5);
  free_problem(&p);
  npy_free(&perm);
  command_free(&r);
}
END_TEST

/* ---- the accuracy that is promised ------------------------------------------------------------------------------- */

/* A tensor of the sample, widened to f32 in the directory, exactly. */
static void widen_sample(const char *name, double *values, int64_t heads) {
  read_sample(name, values);
  int64_t shape[] = {1, heads, 1024, 64}, count = heads * 1024 * 64;
  float *wide = malloc(sizeof(float) * (size_t)count);
  for (int64_t i = 0; i < count; i++) wide[i] = (float)values[i];
  fly_error error;
  ck_fly_ok(npy_write(command_path(name), FLY_F32, 4, shape, wide, &error), error);
  free(wide);
}

/* No element further off than `most`, and the Frobenius norm of the differences over that of the
 * values at most `relative`. */
static void check_accuracy(const char *name, const double *values, int64_t count, double most, double relative) {
  npy_array a;
  fly_error error;
  double difference = 0, norm = 0, worst = 0;
  ck_fly_ok(npy_read(command_path(name), &a, &error), error);
  ck_assert_int_eq(a.type, FLY_F32);
  ck_assert_int_eq(a.count, count);
  for (int64_t i = 0; i < count; i++) {
    double d = element(&a, i) - values[i];
    if (!(fabs(d) <= worst)) worst = fabs(d);
    difference += d * d, norm += values[i] * values[i];
  }
  printf("%s: at most %.2g, relative Frobenius %.2g\n", name, worst, sqrt(difference / norm));
  ck_assert_msg(worst <= most, "%s: an element is off by %.3g", name, worst);
  ck_assert_msg(sqrt(difference / norm) <= relative, "%s: off by %.3g of its norm", name, sqrt(difference / norm));
  npy_free(&a);
}

/* f32 on real inputs, every row: out within 2e-5 and 1e-6 of its norm, the log-sum-exp within 2e-5. */
START_TEST(the_sample_in_f32_is_as_accurate_as_promised) {
  static const struct {
    const char *arguments;
    bool (*visible)(int64_t q, int64_t kv, int64_t token_q, int64_t token_kv);
  } cases[] = {{"causal", causal},
               {"sliding_window left=255 right=0", window_256},
               {"stochastic left=128 right=128 --rows " FLYMASK_SOURCE "/tests/data/sample/perm.npy", stochastic_128}};
  problem p = {1, 9, 3, 1024, 1024, 64, 64, 0, .visible = cases[_i].visible};
  npy_array perm = {0};
  fly_error error;
  allocate(&p);
  widen_sample("q.npy", p.q, 9), widen_sample("k.npy", p.k, 3), widen_sample("v.npy", p.v, 3);
  ck_fly_ok(npy_read(FLYMASK_SOURCE "/tests/data/sample/perm.npy", &perm, &error), error);
  if (_i == 2) p.rows = perm.data, p.row_count = 1024;
  run(cases[_i].arguments);
  attend(&p);
  check_accuracy("out.npy", p.out, 9 * 1024 * 64, 2e-5, 1e-6);
  check_accuracy("lse.npy", p.lse, 9 * 1024, 2e-5, 1);
  free_problem(&p);
  npy_free(&perm);
}
END_TEST

static Suite *make_suite(void) {
  Suite *suite = suite_create("cli_run");
  TCase *c = tcase_create("cli_run");
  tcase_add_checked_fixture(c, make_directory, command_remove_directory);
  tcase_add_test(c, run_agrees_with_double_precision);
  tcase_add_test(c, offsets_align_the_ends_of_different_lengths);
  tcase_add_test(c, rows_that_see_nothing_are_zero_with_lse_minus_infinity);
  tcase_add_test(c, rows_gather_inputs_and_scatter_outputs);
  tcase_add_test(c, random_rows_are_a_permutation_that_the_seed_names);
  tcase_add_test(c, bad_rows_are_refused);
  tcase_add_test(c, scale_and_pipes_are_honoured);
  tcase_add_test(c, the_demo_computes_what_it_says);
  tcase_add_loop_test(c, the_sample_in_f32_is_as_accurate_as_promised, 0, 3);
  suite_add_tcase(suite, c);
  return suite;
}

FLY_TEST_MAIN(make_suite)
