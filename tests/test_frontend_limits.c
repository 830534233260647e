/* The front end at its limits: characters that a source may not have, times beyond measure, and a
 * process that may write little. */
#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "compiler/compiler.h"
#include "support.h"

#define PLAIN "#include <flymask/mask.h>\nbool mask(int b, int h, int q, int kv) { return q > kv; }\n"

static fly_status run(const char *source, const fly_compile_options *options, fly_error *error) {
  flyi_bytes ir;
  *error = (fly_error){0};
  fly_status status = flyi_frontend(source, "my mask.c", options, &ir, error);
  flyi_bytes_free(&ir);
  return status;
}

START_TEST(control_characters_are_refused_at_their_place) {
  for (int c = 1; c <= 0x80; c++) {
    char source[200];
    fly_error error;
    bool fine = c == '\t' || c == '\n' || c == '\r' || c == '\f' || (c >= ' ' && c < 0x7F);
    if (c == 0x80) continue;
    snprintf(source, sizeof source, "%s\n/* %c */\n", PLAIN, c);
    ck_assert_msg((run(source, NULL, &error) == FLY_OK) == fine, "0x%02x: %s", c, error.message);
    if (fine) continue;
    ck_assert_int_eq(error.status, FLY_ERROR_SOURCE);
    ck_assert_int_eq(error.line, 4);
    ck_assert_int_eq(error.column, 4);
    ck_assert_ptr_nonnull(strstr(error.message, "control character"));
  }
}
END_TEST

/* The greatest doubles as a limit are as good as none. */
START_TEST(a_limit_beyond_measure_is_a_long_one) {
  static const double limits[] = {INFINITY, 1e300, 1e10, 1e7};
  for (int i = 0; i < 4; i++) {
    const fly_compile_options options = {FLY_INIT(fly_compile_options), .clang_seconds = limits[i]};
    fly_error error;
    ck_fly_ok(run(PLAIN, &options, &error), error);
  }
}
END_TEST

/* What clang reads counts as written by us. Exit status 0: it went on, with an error that names the limit. */
static int compile_below_a_file_limit(rlim_t bytes) {
  fly_error error;
  sigset_t pending;
  setrlimit(RLIMIT_FSIZE, &(struct rlimit){bytes, bytes});
  flyi_bytes ir;
  fly_status status = flyi_frontend(PLAIN, "my mask.c", NULL, &ir, &error);
  sigpending(&pending);
  if (sigismember(&pending, SIGXFSZ)) return 3;
  flyi_bytes_free(&ir);
  if (bytes > 1 << 20) return status != FLY_OK;
  return status != FLY_ERROR_TOOL || !strstr(error.message, "ulimit -f");
}

START_TEST(a_limit_on_file_sizes_does_not_end_the_process) {
  static const rlim_t limits[] = {0, 4096, 2 << 20};
  for (int i = 0; i < 3; i++) {
    int status = -1;
    pid_t pid = fork();
    if (pid == 0) _exit(compile_below_a_file_limit(limits[i]));
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(status == 0, "limit %lu: wait status %d", (unsigned long)limits[i], status);
  }
}
END_TEST

static Suite *suite(void) {
  Suite *s = suite_create("frontend_limits");
  TCase *t = tcase_create("limits");
  tcase_add_test(t, control_characters_are_refused_at_their_place);
  tcase_add_test(t, a_limit_beyond_measure_is_a_long_one);
  tcase_add_test(t, a_limit_on_file_sizes_does_not_end_the_process);
  suite_add_tcase(s, t);
  return s;
}

FLY_TEST_MAIN(suite)
