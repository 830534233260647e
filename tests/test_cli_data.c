/* `flymask run` on real attention inputs with independent float64 references: needs FLYMASK_TEST_DATA, a directory with
 * layer14_{q,k,v}.npy (f16), perm.npy and NAME_{out,lse}.npy. Inputs are f32, made of the f16 values. */
#include "cli/npy.h"
#include "command.h"
#include "support.h"

static const char *directory, *data;

static void make_inputs(void) {
  static const char *const names[] = {"q", "k", "v"};
  directory = command_make_directory();
  for (int i = 0; i < 3; i++) {
    char path[512];
    npy_array a;
    fly_error error;
    snprintf(path, sizeof path, "%s/layer14_%s.npy", data, names[i]);
    ck_fly_ok(npy_read(path, &a, &error), error);
    ck_assert_int_eq(a.type, FLY_F16);
    float *wide = malloc(sizeof(float) * (size_t)a.count);
    for (int64_t j = 0; j < a.count; j++) wide[j] = (float)test_from_f16(((uint16_t *)a.data)[j]);
    snprintf(path, sizeof path, "%s/%s.npy", directory, names[i]);
    ck_fly_ok(npy_write(path, FLY_F32, a.rank, a.shape, wide, &error), error);
    free(wide);
    npy_free(&a);
  }
}

/* The largest difference, and the Frobenius norm of the differences over that of the reference. */
static void compare(const char *name, const char *what, const char *file, double most, double frobenius) {
  char path[512];
  npy_array expected, got;
  fly_error error;
  snprintf(path, sizeof path, "%s/%s_%s.npy", data, name, what);
  ck_fly_ok(npy_read(path, &expected, &error), error);
  snprintf(path, sizeof path, "%s/%s", directory, file);
  ck_fly_ok(npy_read(path, &got, &error), error);
  ck_assert_int_eq(got.rank, expected.rank);
  ck_assert_mem_eq(got.shape, expected.shape, sizeof got.shape);
  ck_assert(got.type == FLY_F32 && expected.type == FLY_F32);
  double worst = 0, difference = 0, norm = 0;
  for (int64_t i = 0; i < got.count; i++) {
    double x = ((float *)expected.data)[i], d = fabs(((float *)got.data)[i] - x);
    ck_assert_msg(!isnan(d), "%s_%s: element %lld is NaN", name, what, (long long)i);
    if (d > worst) worst = d;
    difference += d * d;
    norm += x * x;
  }
  printf("%s %s: at most %.2g, relative Frobenius %.2g\n", name, what, worst, sqrt(difference / norm));
  ck_assert_double_le(worst, most);
  ck_assert_double_le(sqrt(difference / norm), frobenius);
  npy_free(&expected);
  npy_free(&got);
}

static const struct {
  const char *name, *arguments;
} cases[] = {
    {"full", "causal"},
    {"swa256", "sliding_window left=255 right=0"},
    {"sa128", "stochastic left=128 right=128 --rows \"$FLYMASK_TEST_DATA/perm.npy\""},
};
enum { CASES = sizeof cases / sizeof *cases };

START_TEST(outputs_agree_with_the_float64_references) {
  command_result r = command_run(directory, "run %s --q q.npy --k k.npy --v v.npy --out out.npy --lse lse.npy",
                                 cases[_i].arguments);
  ck_assert_msg(r.code == 0, "%s", r.err);
  command_free(&r);
  compare(cases[_i].name, "out", "out.npy", 2e-5, 1e-6);
  compare(cases[_i].name, "lse", "lse.npy", 2e-5, 1e-6);
}
END_TEST

static Suite *make_suite(void) {
  Suite *suite = suite_create("cli_data");
  TCase *c = tcase_create("references");
  data = getenv("FLYMASK_TEST_DATA");
  if (data) {
    tcase_add_checked_fixture(c, make_inputs, command_remove_directory);
    tcase_add_loop_test(c, outputs_agree_with_the_float64_references, 0, CASES);
  } else {
    puts("SKIPPED: set FLYMASK_TEST_DATA to compare with its references");
  }
  suite_add_tcase(suite, c);
  return suite;
}

FLY_TEST_MAIN(make_suite)
