/* The front end: clang in a child process that reads nothing but what it is given, ends in time, and leaves nothing
 * behind. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "compiler/compiler.h"
#include "support.h"

#define MASK "bool mask(int b, int h, int q, int kv) { return q > kv; }\n"
#define PLAIN "#include <flymask/mask.h>\n" MASK

static char directory[64]; /* of this test */

static void make_directory(void) {
  strcpy(directory, "/tmp/flymask-test-XXXXXX");
  ck_assert_ptr_nonnull(mkdtemp(directory));
}

static void remove_directory(void) {
  char command[128];
  snprintf(command, sizeof command, "rm -rf '%s'", directory);
  ck_assert_int_eq(system(command), 0);
}

static const char *in_directory(const char *name) {
  static char path[128];
  snprintf(path, sizeof path, "%s/%s", directory, name);
  return path;
}

static void write_file(const char *name, mode_t mode, const char *text) {
  FILE *file = fopen(in_directory(name), "w");
  ck_assert_ptr_nonnull(file);
  fputs(text, file);
  ck_assert_int_eq(fchmod(fileno(file), mode), 0);
  ck_assert_int_eq(fclose(file), 0);
}

static fly_status run(const char *source, const fly_compile_options *options, fly_error *error) {
  flyi_bytes ir;
  *error = (fly_error){0};
  fly_status status = flyi_frontend(source, "my mask.c", options, &ir, error);
  ck_assert_int_eq(status == FLY_OK, ir.data != NULL);
  flyi_bytes_free(&ir);
  return status;
}

/* A clang of our own, a shell script, that has its headers where clangs have them. */
static const char *install_script(const char *script) {
  static const char *const directories[] = {"bin", "lib", "lib/clang", "lib/clang/19", "lib/clang/19/include"};
  for (size_t i = 0; i < sizeof directories / sizeof *directories; i++) mkdir(in_directory(directories[i]), 0755);
  write_file("lib/clang/19/include/stddef.h", 0644, "");
  write_file("bin/clang", 0755, script);
  return in_directory("bin/clang");
}

static fly_status run_script(const char *script, double seconds, fly_error *error) {
  const fly_compile_options options = {FLY_INIT(fly_compile_options), .clang = install_script(script),
                                       .clang_seconds = seconds};
  return run(PLAIN, &options, error);
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int open_descriptors(void) {
  int count = 0;
  DIR *d = opendir("/proc/self/fd");
  while (readdir(d)) count++;
  closedir(d);
  return count;
}

static void no_child_left(void) {
  ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1);
  ck_assert_int_eq(errno, ECHILD);
}

/* ---- Results and errors ------------------------------------------------------------------------------------------ */

START_TEST(a_mask_becomes_unoptimised_ir_with_locations) {
  flyi_bytes ir;
  fly_error error;
  ck_fly_ok(flyi_frontend(PLAIN, "causal.c", NULL, &ir, &error), error);
  const char *text = (const char *)ir.data;
  ck_assert_uint_eq(strlen(text), ir.size);
  ck_assert_ptr_nonnull(strstr(text, "@mask("));
  ck_assert_ptr_nonnull(strstr(text, "alloca i32")); /* no pass has run */
  ck_assert_ptr_nonnull(strstr(text, "!DILocation(line: 2, column: "));
  ck_assert_ptr_null(strstr(text, "nsw"));
  ck_assert_ptr_null(strstr(text, "optnone"));
  flyi_bytes_free(&ir);
}
END_TEST

START_TEST(the_first_error_has_its_place) {
  static const struct {
    const char *source;
    int line, column;
    const char *message;
  } cases[] = {
      {"\n  int x = y;\n int z = w;\n", 2, 11, "use of undeclared identifier 'y'"},
      {"#include <flymask/mask.h>\nbool mask(int b, int h, int q, int kv) { return q }\n", 2, 50, "expected ';'"},
      {"#error no: error: at all\n", 1, 2, "no: error: at all"},
      {"#line 70 \"/etc/passwd\"\nint x = y;\n", 70, 9, "use of undeclared identifier 'y'"},
      {"#include <flymask/mask.h>\nFLY_PARAM(int, left, right);\n", 2, 22, "undeclared identifier 'right'"},
      {"#error \x01\x1b[31m\n", 1, 8, "control character: byte 0x01"},
      {"#error a\fb\tc\r\n", 1, 2, "a"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    fly_error error;
    ck_assert_int_eq(run(cases[i].source, NULL, &error), FLY_ERROR_SOURCE);
    ck_assert_str_eq(error.file, "my mask.c");
    ck_assert_int_eq(error.line, cases[i].line);
    ck_assert_int_eq(error.column, cases[i].column);
    ck_assert_msg(strstr(error.message, cases[i].message) != NULL, "%s", error.message);
    for (const char *c = error.message; *c; c++) ck_assert((unsigned char)*c >= ' ');
  }
}
END_TEST

START_TEST(sources_that_are_not_utf8_are_refused_at_their_place) {
  static const struct {
    const char *source;
    int line, column; /* 0: it is fine */
  } cases[] = {{"// gr\xc3\xb6\xc3\x9f"
                "e \xe2\x82\xac \xf0\x9f\x98\x80\n" PLAIN,
                0, 0},
               {"\xef\xbb\xbf" PLAIN, 0, 0},
               {PLAIN "// \xff\n", 3, 4},
               {PLAIN "\n//\xe9 x\n", 4, 3},
               {"// \xc0\xaf\n", 1, 4}, /* overlong */
               {"// \xe0\x80\xaf\n", 1, 4},
               {"// \xed\xa0\x80\n", 1, 4},     /* a surrogate */
               {"// \xf4\x90\x80\x80\n", 1, 4}, /* beyond U+10FFFF */
               {"// \xe2\x82", 1, 4},           /* cut short */
               {"// \x80\n", 1, 4}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    fly_error error;
    fly_status status = run(cases[i].source, NULL, &error);
    ck_assert_int_eq(status, cases[i].line ? FLY_ERROR_SOURCE : FLY_OK);
    ck_assert_int_eq(error.line, cases[i].line);
    ck_assert_int_eq(error.column, cases[i].column);
    if (status) ck_assert_ptr_nonnull(strstr(error.message, "UTF-8"));
  }
}
END_TEST

START_TEST(sources_are_at_most_1_MiB) {
  const size_t most = 1 << 20;
  char *source = malloc(most + 2);
  fly_error error;
  memset(source, '\n', most + 1);
  memcpy(source, PLAIN, strlen(PLAIN));
  source[most] = 0;
  ck_fly_ok(run(source, NULL, &error), error);
  source[most] = '\n', source[most + 1] = 0;
  ck_assert_int_eq(run(source, NULL, &error), FLY_ERROR_SOURCE);
  ck_assert_ptr_nonnull(strstr(error.message, "1 MiB"));
  free(source);
}
END_TEST

/* ---- Files ------------------------------------------------------------------------------------------------------- */

START_TEST(the_freestanding_headers_are_there) {
  fly_error error;
  ck_fly_ok(
      run("#include <float.h>\n#include <iso646.h>\n#include <limits.h>\n#include <stdalign.h>\n#include <stdbool.h>\n"
          "#include <stddef.h>\n#include <stdint.h>\n#include <stdnoreturn.h>\n#include \"flymask/mask.h\"\n"
          "struct s { char c; alignas(8) int i; };\n"
          "_Static_assert(offsetof(struct s, i) == 8, \"\");\n"
          "_Static_assert(INT_MAX == INT32_MAX and LONG_MAX == INT64_MAX and SIZE_MAX == UINT64_MAX, \"\");\n"
          "_Static_assert(FLT_MANT_DIG == 24 and sizeof(max_align_t) == 32 and CHAR_MIN == -128, \"\");\n" MASK,
          NULL, &error),
      error);
}
END_TEST

/* Sources that name the file given for %s. */
static const char *const naming[] = {
    "#include \"%s\"\n" MASK,
    "#include <%s>\n" MASK,
    "#include_next <%s>\n" MASK,
    "#import \"%s\"\n" MASK,
    "#define NAME \"%s\"\n#include NAME\n" MASK,
    "#define NAME <%s>\n#include NAME\n" MASK,
    "static const unsigned char t[] = {\n#embed \"%s\"\n};\n" MASK,
    "#include <flymask/mask.h>\n#if __has_include(\"%s\")\n#error visible\n#endif\n" MASK,
    "#include <flymask/mask.h>\n#if __has_include_next(<%s>)\n#error visible\n#endif\n" MASK,
    "#include <flymask/mask.h>\n#if __has_embed(\"%s\")\n#error visible\n#endif\n" MASK,
    "#pragma GCC dependency \"%s\"\n" PLAIN,
    "#pragma include_alias(\"x.h\", \"%s\")\n#include \"x.h\"\n" PLAIN,
    "#pragma clang module load %s\n" PLAIN,
    "#line 1 \"%s\"\n" PLAIN,
    "#line 1 \"%s\"\nint x = y;\n",
    "#include <flymask/mask.h>\n__asm__(\".incbin \\\"%s\\\"\");\n" MASK,
    "#include <flymask/mask.h>\n#pragma comment(lib, \"%s\")\n" MASK};

/* True where something opened or read what is watched, since the last call. */
static bool was_touched(int watch) {
  char events[4096];
  return read(watch, events, sizeof events) > 0;
}

START_TEST(files_that_a_source_names_are_refused_before_they_are_opened) {
  make_directory();
  write_file("named.h", 0644, "1\n");
  char absolute[128], *here = getcwd(NULL, 0);
  strcpy(absolute, in_directory("named.h"));
  int watch = inotify_init1(IN_NONBLOCK);
  ck_assert_int_ge(inotify_add_watch(watch, absolute, IN_OPEN | IN_ACCESS), 0);
  close(open(absolute, O_RDONLY));
  ck_assert_msg(was_touched(watch), "the watch does not work");

  ck_assert_int_eq(chdir(directory), 0);
  for (size_t i = 0; i < sizeof naming / sizeof *naming; i++)
    for (int way = 0; way < 2; way++) {
      char source[1024];
      fly_error error;
      fly_status status;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
      snprintf(source, sizeof source, naming[i], way ? absolute : "named.h");
#pragma GCC diagnostic pop
      status = run(source, NULL, &error);
      ck_assert_msg(!was_touched(watch), "opened by: %s", source);
      ck_assert_msg(!strstr(error.message, "visible"), "visible to: %s", source);
      if (i < 7) { /* those that need the file */
        ck_assert_int_eq(status, FLY_ERROR_SOURCE);
        ck_assert_msg(strstr(error.message, "may include <flymask/mask.h>") != NULL, "%s: %s", source, error.message);
      }
    }
  ck_assert_int_eq(chdir(here), 0);
  free(here);
  close(watch);
  remove_directory();
}
END_TEST

START_TEST(a_named_fifo_does_not_block) {
  make_directory();
  ck_assert_int_eq(mkfifo(in_directory("fifo"), 0600), 0);
  char source[256];
  fly_error error;
  double start = now();
  snprintf(source, sizeof source, "#include \"%s\"\n" MASK, in_directory("fifo"));
  ck_assert_int_eq(run(source, NULL, &error), FLY_ERROR_SOURCE);
  ck_assert_double_lt(now() - start, 5);
  remove_directory();
}
END_TEST

START_TEST(the_environment_does_not_reach_clang) {
  static const char *const paths[] = {"CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "GCC_EXEC_PREFIX",
                                      "COMPILER_PATH"};
  make_directory();
  write_file("leak.h", 0644, "int leaked;\n");
  for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) setenv(paths[i], directory, 1);
  setenv("CCC_OVERRIDE_OPTIONS", "+-DLEAKED", 1);
  fly_error error;
  ck_assert_int_eq(run("#include <leak.h>\n" MASK, NULL, &error), FLY_ERROR_SOURCE);
  ck_assert_ptr_nonnull(strstr(error.message, "'leak.h' file not found"));
  ck_fly_ok(run("#include <flymask/mask.h>\n#ifdef LEAKED\n#error leaked\n#endif\n" MASK, NULL, &error), error);
  for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) unsetenv(paths[i]);
  unsetenv("CCC_OVERRIDE_OPTIONS");
  remove_directory();
}
END_TEST

/* ---- Limits ------------------------------------------------------------------------------------------------------ */

START_TEST(a_source_that_takes_too_long_is_stopped) {
  char source[4096] = "#include <flymask/mask.h>\n#define A0 q +\n";
  for (int i = 1; i < 12; i++)
    sprintf(source + strlen(source), "#define A%d A%d A%d A%d A%d A%d A%d A%d\n", i, i - 1, i - 1, i - 1, i - 1, i - 1,
            i - 1, i - 1);
  strcat(source, "bool mask(int b, int h, int q, int kv) { return A11 0; }\n");
  const fly_compile_options options = {FLY_INIT(fly_compile_options), .clang_seconds = 0.5};
  fly_error error;
  double start = now();
  ck_assert_int_eq(run(source, &options, &error), FLY_ERROR_TOOL);
  ck_assert_ptr_nonnull(strstr(error.message, "stopped after 0.5 s"));
  ck_assert_double_lt(now() - start, 5);
  no_child_left();
}
END_TEST

START_TEST(memory_is_limited) {
  const fly_compile_options options = {FLY_INIT(fly_compile_options), .clang_bytes = 32 << 20};
  fly_error error;
  ck_assert_int_eq(run(PLAIN, &options, &error), FLY_ERROR_TOOL);
  ck_assert_ptr_nonnull(strstr(error.message, "32 MiB"));
  no_child_left();
}
END_TEST

START_TEST(a_child_that_hangs_is_killed_with_its_children) {
  make_directory();
  static const char *const scripts[] = {
      "#!/bin/sh\nsleep 100 &\necho $! > %s\nwait\n",                             /* holds its outputs open */
      "#!/bin/sh\nsleep 100 &\necho $! > %s\nexec >&- 2>&-\nwait\n",              /* closes them */
      "#!/bin/sh\ntrap '' TERM INT HUP\nsleep 100 &\necho $! > %s\nsleep 100\n"}; /* ignores signals */
  for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) {
    char script[512];
    fly_error error;
    int pid = 0;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(script, sizeof script, scripts[i], in_directory("pid"));
#pragma GCC diagnostic pop
    double start = now();
    ck_assert_int_eq(run_script(script, 0.5, &error), FLY_ERROR_TOOL);
    ck_assert_double_lt(now() - start, 5);
    ck_assert_ptr_nonnull(strstr(error.message, "stopped"));
    no_child_left();
    FILE *file = fopen(in_directory("pid"), "r");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fscanf(file, "%d", &pid), 1);
    fclose(file);
    for (int wait = 0; wait < 200 && !kill(pid, 0); wait++) { /* gone, or a zombie of whoever adopted it */
      char path[64], state = 0;
      snprintf(path, sizeof path, "/proc/%d/stat", pid);
      if ((file = fopen(path, "r"))) {
        if (fscanf(file, "%*d %*s %c", &state) != 1) state = 0;
        fclose(file);
      }
      if (state == 'Z' || !state) break;
      ck_assert_msg(wait < 199, "process %d lives on", pid);
      usleep(10000);
    }
  }
  remove_directory();
}
END_TEST

START_TEST(output_is_limited) {
  make_directory();
  fly_error error;
  ck_assert_int_eq(run_script("#!/bin/sh\nexec yes\n", 60, &error), FLY_ERROR_TOOL);
  ck_assert_ptr_nonnull(strstr(error.message, "MiB of IR"));
  ck_assert_int_eq(run_script("#!/bin/sh\nexec yes >&2\n", 60, &error), FLY_ERROR_TOOL);
  no_child_left();
  remove_directory();
}
END_TEST

START_TEST(a_clang_that_crashes_is_an_error) {
  make_directory();
  fly_error error;
  ck_assert_int_eq(run("#pragma clang __debug crash\n" PLAIN, NULL, &error), FLY_ERROR_TOOL);
  ck_assert_int_eq(run_script("#!/bin/sh\nkill -SEGV $$\n", 10, &error), FLY_ERROR_TOOL);
  ck_assert_ptr_nonnull(strstr(error.message, "signal 11"));
  ck_assert_int_eq(run_script("#!/bin/sh\necho 'cannot read fonts' >&2\nexit 3\n", 10, &error), FLY_ERROR_TOOL);
  ck_assert_ptr_nonnull(strstr(error.message, "status 3"));
  ck_assert_ptr_nonnull(strstr(error.message, "cannot read fonts"));
  ck_assert_int_eq(run_script("#!/bin/sh\nexit 0\n", 10, &error), FLY_ERROR_TOOL);
  no_child_left();
  remove_directory();
}
END_TEST

/* ---- Which clang ------------------------------------------------------------------------------------------------- */

START_TEST(a_missing_clang_says_what_to_install) {
  const fly_compile_options options = {FLY_INIT(fly_compile_options), .clang = "/nonexistent/clang"};
  fly_error error;
  char install[64];
  snprintf(install, sizeof install, "apt install clang-%d", FLYI_LLVM_MAJOR);
  ck_assert_int_eq(run(PLAIN, &options, &error), FLY_ERROR_TOOL);
  ck_assert_ptr_nonnull(strstr(error.message, install));
  ck_assert_ptr_nonnull(strstr(error.message, "/nonexistent/clang"));

  setenv("FLYMASK_CLANG", "no-such-clang", 1);
  ck_assert_int_eq(run(PLAIN, NULL, &error), FLY_ERROR_TOOL);
  ck_assert_ptr_nonnull(strstr(error.message, install));
  ck_assert_ptr_nonnull(strstr(error.message, "FLYMASK_CLANG"));
  unsetenv("FLYMASK_CLANG");

  char *path = strdup(getenv("PATH"));
  setenv("PATH", "/nonexistent", 1);
  ck_assert_int_eq(run(PLAIN, NULL, &error), FLY_ERROR_TOOL);
  ck_assert_ptr_nonnull(strstr(error.message, install));
  setenv("PATH", path, 1);
  free(path);
}
END_TEST

START_TEST(the_options_clang_comes_before_the_environments) {
  make_directory();
  const fly_compile_options options = {FLY_INIT(fly_compile_options),
                                       .clang = install_script("#!/bin/sh\necho from the option >&2\nexit 1\n")};
  fly_error error;
  setenv("FLYMASK_CLANG", "no-such-clang", 1);
  ck_assert_int_eq(run(PLAIN, &options, &error), FLY_ERROR_TOOL);
  ck_assert_ptr_nonnull(strstr(error.message, "from the option"));
  unsetenv("FLYMASK_CLANG");
  remove_directory();
}
END_TEST

START_TEST(a_clang_in_an_odd_place_is_asked_for_its_headers) {
  make_directory();
  char script[512];
  fly_error error;
  write_file("clang", 0755, "#!/bin/sh\nsleep 9\n");
  fly_compile_options options = {FLY_INIT(fly_compile_options), .clang = in_directory("clang"), .clang_seconds = 0.3};
  double start = now();
  ck_assert_int_eq(run(PLAIN, &options, &error), FLY_ERROR_TOOL);
  ck_assert_double_lt(now() - start, 5);

  snprintf(script, sizeof script, "#!/bin/sh\nexec clang-%d \"$@\"\n", FLYI_LLVM_MAJOR);
  write_file("clang", 0755, script);
  options.clang_seconds = 10;
  ck_fly_ok(run("#include <stdint.h>\nint32_t x;\n" PLAIN, &options, &error), error);
  remove_directory();
}
END_TEST

START_TEST(a_clang_newer_than_our_llvm_says_what_to_install) {
  make_directory();
  char script[256], install[64];
  fly_error error;
  snprintf(install, sizeof install, "apt install clang-%d", FLYI_LLVM_MAJOR);
  for (int version = 10; version < 40; version++) { /* ten releases ago is too old, all of the next ones are too new */
    snprintf(script, sizeof script,
             "#!/bin/sh\nprintf '\\n!llvm.ident = !{!0}\\n!0 = !{!\"Debian clang version %d.1.2\"}\\n'\n", version);
    fly_status status = run_script(script, 10, &error);
    ck_assert_int_eq(status, version < 16 || version > FLYI_LLVM_MAJOR ? FLY_ERROR_TOOL : FLY_OK);
    if (!status) continue;
    char found[32];
    snprintf(found, sizeof found, "is clang %d,", version);
    ck_assert_msg(strstr(error.message, found) && strstr(error.message, install), "%s", error.message);
  }
  remove_directory();
}
END_TEST

/* ---- A good guest ------------------------------------------------------------------------------------------------ */

START_TEST(no_descriptors_are_left) {
  make_directory();
  fly_error error;
  run(PLAIN, NULL, &error);
  int before = open_descriptors();
  ck_fly_ok(run(PLAIN, NULL, &error), error);
  ck_assert_int_eq(run("#error\n", NULL, &error), FLY_ERROR_SOURCE);
  ck_assert_int_eq(run_script("#!/bin/sh\nsleep 9\n", 0.1, &error), FLY_ERROR_TOOL);
  ck_assert_int_eq(run_script("#!/nonexistent/interpreter\n", 1, &error), FLY_ERROR_TOOL);
  ck_assert_int_eq(open_descriptors(), before);
  remove_directory();
}
END_TEST

START_TEST(clang_gets_none_of_the_hosts_descriptors) {
  make_directory();
  fly_error error;
  int null = open("/dev/null", O_RDONLY), count = 0;
  ck_assert_int_eq(dup2(null, 200), 200); /* without O_CLOEXEC */
  char script[256];
  snprintf(script, sizeof script, "#!/bin/sh\nexec ls /proc/self/fd > %s\n", in_directory("list"));
  run_script(script, 10, &error);
  close(null), close(200);
  FILE *file = fopen(in_directory("list"), "r");
  ck_assert_ptr_nonnull(file);
  for (int fd; fscanf(file, "%d", &fd) == 1; count++) ck_assert_int_le(fd, 6); /* 6: what ls reads */
  ck_assert_int_eq(count, 7);
  fclose(file);
  remove_directory();
}
END_TEST

START_TEST(a_host_without_standard_streams_is_served) {
  pid_t pid = fork();
  if (pid == 0) {
    fly_error error;
    close(0), close(1), close(2);
    bool good = run(PLAIN, NULL, &error) == FLY_OK && fcntl(0, F_GETFD) < 0 && fcntl(1, F_GETFD) < 0 &&
                fcntl(2, F_GETFD) < 0;
    _exit(good ? 0 : 1);
  }
  int status;
  ck_assert_int_eq(waitpid(pid, &status, 0), pid);
  ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
END_TEST

START_TEST(a_host_that_ignores_its_children_is_served) {
  struct sigaction ignore = {.sa_handler = SIG_IGN}, old;
  fly_error error;
  sigaction(SIGCHLD, &ignore, &old);
  fly_status good = run(PLAIN, NULL, &error), bad = run("#error\n", NULL, &error);
  sigaction(SIGCHLD, &old, NULL);
  ck_assert_int_eq(good, FLY_OK);
  ck_assert_int_eq(bad, FLY_ERROR_SOURCE);
}
END_TEST

enum { THREADS = 8 };

static void *compile_errors(void *argument) {
  int thread = *(int *)argument;
  char source[256];
  fly_error error;
  for (int i = 0; i < 3; i++) {
    int line = 2 + thread * 3 + i;
    snprintf(source, sizeof source, "#line %d\n#error thread %d\n", line, thread);
    if (run(source, NULL, &error) != FLY_ERROR_SOURCE || error.line != line) return NULL;
    if (run(PLAIN, NULL, &error)) return NULL;
  }
  return argument;
}

START_TEST(several_threads_compile_at_once) {
  pthread_t threads[THREADS];
  int numbers[THREADS];
  for (int i = 0; i < THREADS; i++) {
    numbers[i] = i;
    ck_assert_int_eq(pthread_create(&threads[i], NULL, compile_errors, &numbers[i]), 0);
  }
  for (int i = 0; i < THREADS; i++) {
    void *good;
    pthread_join(threads[i], &good);
    ck_assert_ptr_nonnull(good);
  }
  no_child_left();
}
END_TEST

START_TEST(running_out_of_memory_is_an_error) {
  fly_error error;
  fly_status status = FLY_ERROR_MEMORY;
  run(PLAIN, NULL, &error);
  int before = open_descriptors();
  for (int nth = 1; status; nth++) {
    flyi_fail_allocation(nth);
    status = run(PLAIN, NULL, &error);
    flyi_fail_allocation(0);
    ck_assert_msg(status == FLY_OK || status == FLY_ERROR_MEMORY, "allocation %d: %s", nth, error.message);
    ck_assert_int_lt(nth, 200);
  }
  ck_assert_int_eq(open_descriptors(), before);
  no_child_left();
}
END_TEST

static Suite *frontend_suite(void) {
  Suite *suite = suite_create("frontend");
  TCase *results = tcase_create("results"), *files = tcase_create("files"), *limits = tcase_create("limits"),
        *which = tcase_create("which clang"), *guest = tcase_create("guest");
  tcase_add_test(results, a_mask_becomes_unoptimised_ir_with_locations);
  tcase_add_test(results, the_first_error_has_its_place);
  tcase_add_test(results, sources_that_are_not_utf8_are_refused_at_their_place);
  tcase_add_test(results, sources_are_at_most_1_MiB);
  tcase_add_test(files, the_freestanding_headers_are_there);
  tcase_add_test(files, files_that_a_source_names_are_refused_before_they_are_opened);
  tcase_add_test(files, a_named_fifo_does_not_block);
  tcase_add_test(files, the_environment_does_not_reach_clang);
  tcase_add_test(limits, a_source_that_takes_too_long_is_stopped);
  tcase_add_test(limits, memory_is_limited);
  tcase_add_test(limits, a_child_that_hangs_is_killed_with_its_children);
  tcase_add_test(limits, output_is_limited);
  tcase_add_test(limits, a_clang_that_crashes_is_an_error);
  tcase_add_test(which, a_missing_clang_says_what_to_install);
  tcase_add_test(which, the_options_clang_comes_before_the_environments);
  tcase_add_test(which, a_clang_in_an_odd_place_is_asked_for_its_headers);
  tcase_add_test(which, a_clang_newer_than_our_llvm_says_what_to_install);
  tcase_add_test(guest, no_descriptors_are_left);
  tcase_add_test(guest, clang_gets_none_of_the_hosts_descriptors);
  tcase_add_test(guest, a_host_without_standard_streams_is_served);
  tcase_add_test(guest, a_host_that_ignores_its_children_is_served);
  tcase_add_test(guest, several_threads_compile_at_once);
  tcase_add_test(guest, running_out_of_memory_is_an_error);
  suite_add_tcase(suite, results);
  suite_add_tcase(suite, files);
  suite_add_tcase(suite, limits);
  suite_add_tcase(suite, which);
  suite_add_tcase(suite, guest);
  return suite;
}

FLY_TEST_MAIN(frontend_suite)
