/* The command's texts, exit codes, JSON and files. Help and reports are compared with golden texts in tests/golden. */
#include <jansson.h>
#include <png.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/npy.h"
#include "command.h"
#include "support.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#define SANITIZED (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#else
#define SANITIZED 0
#endif

static const char *directory;

static void make_directory(void) { directory = command_make_directory(); }

static void write_text(const char *name, const char *text) {
  FILE *file = fopen(command_path(name), "w");
  ck_assert_ptr_nonnull(file);
  fputs(text, file);
  fclose(file);
}

static void write_array(const char *name, fly_type type, int rank, const int64_t *shape, const void *data) {
  fly_error error;
  ck_fly_ok(npy_write(command_path(name), type, rank, shape, data, &error), error);
}

/* ---- golden texts ------------------------------------------------------------------------------------------------ */

static const char *const commands[] = {"run", "check", "map", "show", "bench", "build", "demo", "list", "compare"};
enum { COMMANDS = sizeof commands / sizeof *commands };

START_TEST(help_is_the_golden_text_on_every_level) {
  command_check_golden("help", 0, "--help");
  for (int i = 0; i < COMMANDS; i++) {
    char name[32], arguments[32];
    snprintf(name, sizeof name, "help_%s", commands[i]);
    snprintf(arguments, sizeof arguments, "%s --help", commands[i]);
    command_check_golden(name, 0, arguments);
  }
}
END_TEST

START_TEST(check_reports_what_a_mask_declares_and_reads) {
  command_check_golden("check_causal", 0, "check masks/causal.c");
  command_check_golden("check_sliding_window", 0, "check masks/sliding_window.c left=7 right=-1");
  command_check_golden("check_stochastic", 0, "check masks/stochastic.c");
  command_check_golden("check_document", 0, "check masks/document.c");
  command_check_golden("check_full", 0, "check masks/full.c");
}
END_TEST

START_TEST(version_is_printed) {
  command_result r = command_run(NULL, "--version");
  ck_assert_int_eq(r.code, 0);
  ck_assert_str_eq(r.out, "flymask " FLY_VERSION "\n");
  command_free(&r);
}
END_TEST

/* ---- exit codes -------------------------------------------------------------------------------------------------- */

/* Exit code, nothing on stdout, and this text on stderr. */
static void check_failure(int code, const char *arguments, const char *text) {
  command_result r = command_run(directory, "%s", arguments);
  ck_assert_msg(r.code == code, "flymask %s: exit %d, not %d: %s", arguments, r.code, code, r.err);
  ck_assert_msg(strstr(r.err, text) != NULL, "flymask %s: '%s', not '%s'", arguments, r.err, text);
  ck_assert_str_eq(r.out, "");
  command_free(&r);
}

#define FILES " --q q.npy --k k.npy --v v.npy"
#define SHAPE " --lengths 64 --heads 1 --head-dim 32 --dtype f32"

START_TEST(wrong_usage_exits_with_2_and_says_what_is_wrong) {
  static const struct {
    const char *arguments, *text;
  } cases[] = {
      {"", "no COMMAND given"},
      {"frobnicate", "no command 'frobnicate'"},
      {"--frobnicate", "unrecognized option '--frobnicate'"},
      {"run --frobnicate", "unrecognized option '--frobnicate'"},
      {"run", "no MASK given"},
      {"check", "no MASK given"},
      {"run causal", "--q F, --k F and --v F are needed"},
      {"run causal --q q.npy --k k.npy", "--q F, --k F and --v F are needed"},
      {"run causal left" FILES, "NAME=VALUE expected, not 'left'"},
      {"run causal =3" FILES, "NAME=VALUE expected, not '=3'"},
      {"run causal a-b=3" FILES, "NAME=VALUE expected, not 'a-b=3'"},
      {"run causal a=3 a=4" FILES, "'a' is given twice"},
      {"run causal --q-offset middle" FILES, "--q-offset wants an integer"},
      {"run causal --q-offset 99999999999" FILES, "--q-offset wants an integer"},
      {"run causal --rows random:x" FILES, "--rows random:SEED wants a seed"},
      {"run causal --rows random:-1" FILES, "--rows random:SEED wants a seed"},
      {"run causal --rows random:" FILES, "--rows random:SEED wants a seed"},
      {"run causal --scale 0" FILES, "--scale wants a finite number"},
      {"run causal --scale inf" FILES, "--scale wants a finite number"},
      {"run causal --scale 1x" FILES, "--scale wants a finite number"},
      {"run causal" FILES " --out /tmp/../tmp/no.npy --lse /tmp/no.npy", "--out and --lse are the same file"},
      {"run causal" FILES " --dout o.npy --dk no.npy --dv ./no.npy", "--dk and --dv are the same"},
      {"run causal" FILES " --out no.npy --lse no.npy", "--out and --lse are the same file, no.npy"},
      {"run causal" FILES " --sink s --dout o --dq " FLYMASK_SOURCE "/README.md --dsink " FLYMASK_SOURCE
       "/docs/../README.md",
       "--dq and --dsink are the same"},
      {"run causal --threads 0" FILES, "--threads wants an integer of 1 to 4096"},
      {"map causal", "--lengths NQ,NKV is missing"},
      {"map causal --lengths 5,6,7", "--lengths wants an integer"},
      {"map causal --lengths -5", "--lengths wants an integer"},
      {"map causal --lengths 5 --tile 64", "--tile wants two integers"},
      {"map causal --lengths 5 --tile 0,64", "--tile wants an integer of 1"},
      {"map causal --lengths 5 --batch 0", "--batch wants an integer of 1"},
      {"map causal --lengths 5 --heads 8,2", "--heads wants an integer"},
      {"map causal --lengths 5 -o x.png", "invalid option -- 'o'"},
      {"show causal --lengths 5", "-o F.png is missing"},
      {"show causal -o x.png", "--lengths NQ,NKV is missing"},
      {"bench causal" SHAPE " --dtype f64", "--dtype wants f32, f16 or bf16, not 'f64'"},
      {"bench causal" SHAPE " --heads 3,2", "HKV must divide HQ"},
      {"bench causal" SHAPE " --head-dim 513", "--head-dim wants an integer of 1 to 512"},
      {"bench causal" SHAPE " --head-dim 0", "--head-dim wants an integer of 1 to 512"},
      {"bench causal --lengths 64 --head-dim 32", "--dtype f32|f16|bf16 is missing"},
      {"bench causal --lengths 64 --dtype f32", "--head-dim D[,DV] is missing"},
      {"build causal --dtype f32 -o x", "--head-dim D[,DV] is missing"},
      {"build causal --head-dim 32 -o x", "--dtype f32|f16|bf16 is missing"},
      {"build causal --head-dim 32 --dtype f32", "-o F is missing"},
      {"build causal --head-dim 32 --dtype f32 -o x --emit elf", "--emit wants image, ll, asm or ptx"},
      {"build causal --head-dim 32 --dtype f32 -o x --emit ptx", "--emit ptx goes with --target sm_NN"},
      {"build causal --head-dim 32 --dtype f32 -o x --backward", "--backward goes with --target sm_NN"},
      {"demo causal", "unexpected argument 'causal'"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    check_failure(2, cases[i].arguments, cases[i].text);
    check_failure(2, cases[i].arguments, "--help' or `flymask");
  }
}
END_TEST

static const char window[] =
    "#include <flymask/mask.h>\n"
    "FLY_PARAM(int, left, 3);\n"
    "FLY_PARAM(bool, strict, true);\n"
    "FLY_PARAM(float, slope, 0.5f);\n"
    "FLY_PARAM(uint8_t, small, 7);\n"
    "FLY_BUFFER(int32_t, doc, 1);\n"
    "bool mask(int b, int h, int q, int kv) {\n"
    "  (void)b, (void)h;\n"
    "  return doc[q] == doc[kv] && q - kv <= left + small && (!strict || slope * q >= kv * slope);\n"
    "}\n";

START_TEST(failures_exit_with_1_and_name_the_culprit) {
  static const int32_t doc[64];
  static const float fraction[2] = {0, 0.5f};
  write_text("own.c", window);
  write_array("doc.npy", FLY_I32, 1, (int64_t[]){64}, doc);
  write_array("matrix.npy", FLY_I32, 2, (int64_t[]){8, 8}, doc);
  write_array("fraction.npy", FLY_F32, 1, (int64_t[]){2}, fraction);
  write_text("junk.npy", "junk");
  static const struct {
    const char *arguments, *text;
  } cases[] = {
      {"check nosuch", "flymask: no mask 'nosuch'"},
      {"check ./nosuch.c", "./nosuch.c"},
      {"check own.c rigth=3", "has no parameter or buffer 'rigth'"},
      {"check own.c left=3.5", "left is an integer (i32), not '3.5'"},
      {"check own.c left=", "left is an integer (i32), not ''"},
      {"check own.c 'left= 3'", "left is an integer (i32), not ' 3'"},
      {"check own.c left=2147483648", "left"},
      {"check own.c small=256", "small"},
      {"check own.c small=-1", "small"},
      {"check own.c left=0x", "left is an integer (i32), not '0x'"},
      {"check own.c left=08x", "left is an integer (i32), not '08x'"},
      {"check own.c strict=yes", "strict is true or false, not 'yes'"},
      {"check own.c slope=steep", "slope is a number (f32), not 'steep'"},
      {"check own.c slope=1e400", "slope is a number (f32), not '1e400'"},
      {"check own.c slope=-1e400", "slope is a number (f32), not '-1e400'"},
      {"check own.c doc=nosuch.npy", "flymask: nosuch.npy: cannot open"},
      {"check own.c doc=junk.npy", "flymask: junk.npy: not a .npy file"},
      {"check own.c doc=matrix.npy", "flymask: matrix.npy: has 2 dimensions, but the buffer doc has 1"},
      {"check own.c doc=fraction.npy", "flymask: fraction.npy: element 1 is 0.5"},
      {"map own.c --lengths 64", "doc"},
      {"map causal --lengths 64 --rows doc.npy --heads 2 --batch 2 --rows nosuch.npy", "nosuch.npy: cannot open"},
      {"map causal --lengths 65 --rows doc.npy", "doc.npy: 64 rows, but there are 65 queries and 65 keys"},
      {"map causal --lengths 8 --heads 3 --rows matrix.npy", "matrix.npy: rows for 1 batch entries and 8 heads"},
      {"map causal --lengths 8,9 --rows random:1", "--rows random permutes queries and keys alike"},
      {"show causal --lengths 0 -o x.png", "there are no pairs to draw"},
      {"show causal --lengths 8 --at 0,1 -o x.png", "--at 0,1 is outside"},
      {"show causal --lengths 8 -o /nonexistent/x.png", "/nonexistent/x.png: cannot create"},
      {"build own.c doc=doc.npy --head-dim 8 --dtype f32 -o x", "doc is a buffer"},
      {"build causal --head-dim 8 --dtype f32 --target pdp-11 -o x", "pdp-11"},
      {"demo --sample /nonexistent", "/nonexistent/q.npy: cannot open"},
      {"check causal >/dev/full", "cannot write to standard output"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_failure(1, cases[i].arguments, cases[i].text);
}
END_TEST

START_TEST(run_refuses_tensors_that_do_not_belong_together) {
  static const float data[4096];
  static const struct {
    int64_t q[4], k[4], v[4];
    const char *text;
  } cases[] = {
      {{1, 2, 8, 16}, {1, 2, 8, 8}, {1, 2, 8, 16}, "queries and keys differ in batch or head_dim"},
      {{2, 2, 8, 16}, {1, 2, 8, 16}, {1, 2, 8, 16}, "queries and keys differ in batch or head_dim"},
      {{1, 2, 8, 16}, {1, 2, 8, 16}, {1, 2, 7, 16}, "keys and values differ"},
      {{1, 3, 8, 16}, {1, 2, 8, 16}, {1, 2, 8, 16}, "2 key heads do not divide 3 query heads"},
      {{1, 1, 8, 513}, {1, 1, 8, 513}, {1, 1, 8, 16}, "head_dim must be 1 to 512"},
      {{1, 1, 8, 16}, {1, 1, 8, 16}, {1, 1, 8, 0}, "v.npy: head_dim must be 1 to 512"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    write_array("q.npy", FLY_F32, 4, cases[i].q, data);
    write_array("k.npy", FLY_F32, 4, cases[i].k, data);
    write_array("v.npy", FLY_F32, 4, cases[i].v, data);
    check_failure(1, "run causal" FILES, cases[i].text);
  }
  static const int64_t shape[4] = {1, 1, 8, 16};
  write_array("q.npy", FLY_F32, 4, shape, data);
  write_array("k.npy", FLY_F32, 4, shape, data);
  write_array("v.npy", FLY_F16, 4, shape, data);
  check_failure(1, "run causal" FILES, "v.npy: holds f16, but q.npy holds f32");
  write_array("v.npy", FLY_F64, 4, shape, data);
  check_failure(1, "run causal" FILES, "v.npy: holds f64; f32 and f16 are supported");
  write_array("v.npy", FLY_F32, 3, shape, data);
  check_failure(1, "run causal" FILES, "v.npy: has 3 dimensions");
}
END_TEST

START_TEST(an_error_in_a_mask_has_file_line_and_column) {
  write_text("broken.c", "#include <flymask/mask.h>\n"
                         "bool mask(int b, int h, int q, int kv) {\n"
                         "  return kv <= qq;\n"
                         "}\n");
  check_failure(1, "check ./broken.c", "./broken.c:3:16: error: ");
  check_failure(1, "run ./broken.c --q x --k x --v x", "x: cannot open");
  check_failure(1, "map broken.c --lengths 8", "broken.c:3:16: error: ");
  write_text("store.c", "#include <flymask/mask.h>\n"
                        "static int count;\n"
                        "bool mask(int b, int h, int q, int kv) {\n"
                        "  (void)b, (void)h;\n"
                        "  count = q;\n"
                        "  return kv <= count;\n"
                        "}\n");
  check_failure(1, "check store.c", "store.c:");
}
END_TEST

START_TEST(masks_are_found_by_path_and_name) {
  command_result r = command_run(directory, "check causal");
  ck_assert_int_eq(r.code, 0);
  ck_assert_ptr_nonnull(strstr(r.out, "masks/causal.c: ok\n"));
  command_free(&r);
  ck_assert_int_eq(mkdir(command_path("own"), 0777), 0);
  write_text("own/mine.c", "#include <flymask/mask.h>\n"
                           "bool mask(int b, int h, int q, int kv) { return (b | h) == 0 && q < kv; }\n");
  r = command_run("/", "check mine");
  ck_assert_int_eq(r.code, 1);
  command_free(&r);
  setenv("FLYMASK_MASKS", command_path("own"), 1);
  r = command_run("/", "check mine");
  unsetenv("FLYMASK_MASKS");
  ck_assert_int_eq(r.code, 0);
  ck_assert_ptr_nonnull(strstr(r.out, "own/mine.c: ok\n"));
  command_free(&r);
}
END_TEST

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static json_t *run_json(const char *arguments) {
  command_result r = command_run(directory, "%s --json", arguments);
  ck_assert_msg(r.code == 0, "flymask %s: %s", arguments, r.err);
  json_error_t error;
  json_t *object = json_loads(r.out, JSON_REJECT_DUPLICATES, &error);
  ck_assert_msg(json_is_object(object), "%s in %s", error.text, r.out);
  command_free(&r);
  return object;
}

/* Exactly these keys. */
static void check_keys(json_t *object, const char *const *keys, size_t count) {
  ck_assert_uint_eq(json_object_size(object), count);
  for (size_t i = 0; i < count; i++) ck_assert_msg(json_object_get(object, keys[i]) != NULL, "no %s", keys[i]);
}

static double number(json_t *object, const char *key) { return json_number_value(json_object_get(object, key)); }

START_TEST(map_json_has_its_keys_and_counts) {
  static const char *const keys[] = {"tiles_empty", "tiles_full", "tiles_partial", "undecided", "sparsity",
                                     "bytes",       "map_ms",     "transposed_ms", "expand_ms"};
  json_t *map = run_json("map causal --lengths 1000 --tile 64,128 --batch 3 --heads 2");
  check_keys(map, keys, sizeof keys / sizeof *keys);
  int empty = 0, full = 0, partial = 0; /* causal reads neither b nor h: one plane */
  for (int q = 0; q < 1000; q += 64)
    for (int kv = 0; kv < 1000; kv += 128) {
      int last_q = q + 63 < 999 ? q + 63 : 999, last_kv = kv + 127 < 999 ? kv + 127 : 999;
      if (kv > last_q)
        empty++;
      else if (last_kv <= q)
        full++;
      else
        partial++;
    }
  ck_assert_int_eq(json_integer_value(json_object_get(map, "tiles_empty")), empty);
  ck_assert_int_eq(json_integer_value(json_object_get(map, "tiles_full")), full);
  ck_assert_int_eq(json_integer_value(json_object_get(map, "tiles_partial")), partial);
  ck_assert_double_eq_tol(number(map, "sparsity"), (double)empty / (empty + full + partial), 1e-8);
  ck_assert(json_is_integer(json_object_get(map, "bytes")) && number(map, "bytes") > 0);
  for (size_t i = 6; i < 9; i++) ck_assert(json_is_real(json_object_get(map, keys[i])) && number(map, keys[i]) > 0);
  json_decref(map);
}
END_TEST

/* 2^31 tiles are 8 GiB of lists: twice what the process may have. */
START_TEST(a_map_whose_lists_do_not_fit_is_reported_without_them) {
  if (SANITIZED) return; /* they reserve terabytes */
  struct rlimit before, limit;
  ck_assert_int_eq(getrlimit(RLIMIT_AS, &before), 0);
  limit = (struct rlimit){(rlim_t)1 << 32, before.rlim_max};
  ck_assert_int_eq(setrlimit(RLIMIT_AS, &limit), 0); /* the command inherits it */
  json_t *map = run_json("map causal --lengths 8388608 --threads 1");
  ck_assert(json_is_null(json_object_get(map, "expand_ms")));
  ck_assert_int_eq(json_integer_value(json_object_get(map, "tiles_full")), INT64_C(65536) * 65535 / 2);
  ck_assert(number(map, "map_ms") > 0 && number(map, "transposed_ms") > 0);
  json_decref(map);
  command_result r = command_run(directory, "map causal --lengths 8388608 --threads 1");
  ck_assert_msg(r.code == 0, "%s", r.err);
  ck_assert_ptr_nonnull(strstr(r.out, "\nexpand               -\n"));
  command_free(&r);
  ck_assert_int_eq(setrlimit(RLIMIT_AS, &before), 0);
}
END_TEST

START_TEST(integers_are_decimal_or_hexadecimal) { /* a diagonal, in tiles of one pair */
  static const struct {
    const char *text;
    int left;
  } cases[] = {{"010", 10}, {"0x1f", 31}, {"-008", -8}};
  write_text("diagonal.c", "#include <flymask/mask.h>\n"
                           "FLY_PARAM(int, left, 3);\n"
                           "bool mask(int b, int h, int q, int kv) { return (b | h) == 0 && q - kv == left; }\n");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char arguments[128];
    snprintf(arguments, sizeof arguments, "map diagonal.c left=%s --lengths 64 --tile 1,1", cases[i].text);
    json_t *map = run_json(arguments);
    ck_assert_int_eq(json_integer_value(json_object_get(map, "tiles_full")), 64 - abs(cases[i].left));
    json_decref(map);
  }
}
END_TEST

START_TEST(bench_json_has_its_keys_and_they_agree) {
  static const char *const keys[] = {"compile_cold_ms", "compile_cached_ms", "map_ms",    "forward_ms", "visible_pairs",
                                     "gflops",          "peak_gflops",       "peak_kind", "peak_ratio", "threads"};
  json_t *bench = run_json("bench sliding_window left=9 --lengths 300,500 --q-offset end --batch 2 --heads 4,2 "
                           "--head-dim 48,32 --dtype bf16 --threads 2");
  check_keys(bench, keys, sizeof keys / sizeof *keys);
  ck_assert_int_eq(json_integer_value(json_object_get(bench, "visible_pairs")), 2 * 4 * 300 * 10);
  ck_assert_int_eq(json_integer_value(json_object_get(bench, "threads")), 2);
  double flops = 2.0 * (48 + 32) * 2 * 4 * 300 * 10;
  double rate = number(bench, "gflops"), peak = number(bench, "peak_gflops");
  ck_assert_double_eq_tol(rate / (flops / number(bench, "forward_ms") * 1e-6), 1, 1e-6);
  ck_assert_double_eq_tol(number(bench, "peak_ratio") / (rate / peak), 1, 1e-6);
  ck_assert(json_is_string(json_object_get(bench, "peak_kind")));
  for (size_t i = 0; i < 4; i++) ck_assert_msg(number(bench, keys[i]) > 0, "%s", keys[i]);
  ck_assert(number(bench, "compile_cached_ms") < number(bench, "compile_cold_ms"));
  json_decref(bench);
}
END_TEST

START_TEST(bench_sweep_has_the_choice_and_others) { /* _i: of tiles, of ranges of keys */
  static const char *const keys[] = {"tile", "item_queries", "split_keys", "phase_bytes", "ms", "ratio", "chosen"};
  json_t *bench = run_json(_i ? "bench full --lengths 1,3000 --heads 2,1 --head-dim 16 --dtype f32 --threads 1 --sweep"
                              : "bench causal --lengths 300 --heads 2,2 --head-dim 16 --dtype f32 --threads 1 --sweep");
  json_t *sweep = json_object_get(bench, "sweep"), *one;
  size_t i;
  json_array_foreach(sweep, i, one) {
    check_keys(one, keys, sizeof keys / sizeof *keys);
    ck_assert_int_eq(json_is_true(json_object_get(one, "chosen")), i == 0);
    ck_assert(number(one, "ms") > 0 && number(one, "ratio") > 0);
  }
  ck_assert_double_eq_tol(number(json_array_get(sweep, 0), "ratio"), 1, 1e-12);
  /* 64, 128, 256 in tiles and items, and two other phases; 512, 1024, 2048, 4096 keys */
  ck_assert_uint_eq(json_array_size(sweep), _i ? 4 : 7);
  json_decref(bench);
}
END_TEST

START_TEST(buffers_and_rows_reach_the_map) {
  int64_t doc[96], rows[96];
  for (int i = 0; i < 96; i++) {
    doc[i] = i / 32; /* converted from i64 */
    rows[i] = i;
  }
  write_array("doc.npy", FLY_I64, 1, (int64_t[]){96}, doc);
  write_array("rows.npy", FLY_I64, 3, (int64_t[]){1, 1, 96}, rows);
  json_t *map = run_json("map document doc=doc.npy --lengths 96 --tile 32,32 --rows rows.npy");
  ck_assert_int_eq(json_integer_value(json_object_get(map, "tiles_empty")), 6);
  ck_assert_int_eq(json_integer_value(json_object_get(map, "tiles_partial")), 3);
  json_decref(map);
}
END_TEST

START_TEST(text_reports_name_every_figure) {
  command_result r = command_run(directory, "map causal --lengths 2000");
  ck_assert_int_eq(r.code, 0);
  static const char *const map[] = {"2,000 x 2,000", "empty", "full",       "partial", "sparsity",
                                    "bytes",         "map ",  "transposed", "expand "};
  for (size_t i = 0; i < sizeof map / sizeof *map; i++) ck_assert_ptr_nonnull(strstr(r.out, map[i]));
  command_free(&r);
  r = command_run(directory, "bench causal --lengths 100 --heads 1 --head-dim 16 --dtype f32 --threads 1");
  ck_assert_int_eq(r.code, 0);
  static const char *const bench[] = {"compile, cold", "compile, cached", "map ",
                                      "forward",       "visible pairs",   "5,050",
                                      "GFLOP/s",       "1 thread)",       "share of the peak"};
  for (size_t i = 0; i < sizeof bench / sizeof *bench; i++)
    ck_assert_msg(strstr(r.out, bench[i]) != NULL, "no '%s' in %s", bench[i], r.out);
  command_free(&r);
}
END_TEST

/* ---- pictures ---------------------------------------------------------------------------------------------------- */

typedef struct pixels {
  png_image image;
  uint8_t *rgb;
} pixels;

static pixels read_picture(const char *name) {
  pixels p = {.image = {.version = PNG_IMAGE_VERSION}};
  ck_assert_msg(png_image_begin_read_from_file(&p.image, command_path(name)), "%s", p.image.message);
  p.image.format = PNG_FORMAT_RGB;
  p.rgb = malloc(PNG_IMAGE_SIZE(p.image));
  ck_assert(png_image_finish_read(&p.image, NULL, p.rgb, 0, NULL));
  return p;
}

static double count_color(const pixels *p, uint32_t color) {
  size_t count = 0, size = (size_t)p->image.width * p->image.height;
  for (size_t i = 0; i < size; i++)
    count += p->rgb[3 * i] == color >> 16 && p->rgb[3 * i + 1] == (color >> 8 & 255) &&
             p->rgb[3 * i + 2] == (color & 255);
  return (double)count;
}

enum { FULL = 0x1f5fa8, PARTIAL = 0xfbd9a5, SEEN = 0xe07b00, EMPTY = 0xf1f2f5, LEGEND = 16 * 16 };

START_TEST(a_small_picture_shows_tiles_and_pairs_in_their_shares) {
  command_result r = command_run(directory, "show causal --lengths 512 --tile 64,64 -o map.png");
  ck_assert_msg(r.code == 0, "%s", r.err);
  ck_assert_ptr_nonnull(strstr(r.out, "map.png"));
  pixels p = read_picture("map.png");
  ck_assert(p.image.width >= 200 && p.image.width <= 2000 && p.image.height >= 200 && p.image.height <= 2000);
  double full = count_color(&p, FULL) - LEGEND, hidden = count_color(&p, PARTIAL) - LEGEND;
  double seen = count_color(&p, SEEN) - LEGEND, empty = count_color(&p, EMPTY) - LEGEND;
  /* 28 of 64 tiles are full and empty, the 8 on the diagonal are seen in 65 of 128 parts; lines between tiles cost
   * some. */
  double all = full + hidden + seen + empty;
  ck_assert_double_eq_tol(full / all, 28.0 / 64, 0.01);
  ck_assert_double_eq_tol(empty / all, 28.0 / 64, 0.01);
  ck_assert_double_eq_tol(seen / all, 8.0 / 64 * 65 / 128, 0.01);
  ck_assert_double_eq_tol(hidden / all, 8.0 / 64 * 63 / 128, 0.01);
  free(p.rgb);
  command_free(&r);
}
END_TEST

START_TEST(pictures_of_any_shape_have_a_sensible_size) {
  static const char *const shapes[] = {"1,1", "1,8192", "8192,1", "3,200", "100000,100000", "700,700", "2000,100"};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    command_result r = command_run(directory, "show causal --lengths %s --q-offset end -o map.png", shapes[i]);
    ck_assert_msg(r.code == 0, "%s: %s", shapes[i], r.err);
    pixels p = read_picture("map.png");
    ck_assert(p.image.width >= 200 && p.image.width <= 2000 && p.image.height >= 200 && p.image.height <= 2000);
    ck_assert(count_color(&p, EMPTY) >= LEGEND);
    free(p.rgb);
    command_free(&r);
  }
}
END_TEST

START_TEST(a_name_of_any_bytes_is_drawn) {
  write_text("caf\xe9.c", "#include <flymask/mask.h>\nbool mask(int b, int h, int q, int kv) { return kv <= q; }\n");
  command_result r = command_run(directory, "show caf\xe9.c --lengths 64 --no-legend -o map.png");
  ck_assert_msg(r.code == 0, "%s", r.err);
  pixels p = read_picture("map.png");
  ck_assert(count_color(&p, SEEN) > count_color(&p, PARTIAL));
  free(p.rgb);
  command_free(&r);
}
END_TEST

/* ---- images ------------------------------------------------------------------------------------------------------ */

static void *read_binary(const char *name, size_t *size) {
  struct stat info;
  ck_assert_int_eq(stat(command_path(name), &info), 0);
  *size = (size_t)info.st_size;
  return command_read_file(command_path(name));
}

START_TEST(a_built_image_loads_and_holds_its_constants) {
  command_result r = command_run(directory, "build sliding_window left=5 --head-dim 40,24 --dtype f16 -o window.image");
  ck_assert_msg(r.code == 0, "%s", r.err);
  command_free(&r);
  size_t size;
  void *bytes = read_binary("window.image", &size);
  fly_kernel *kernel;
  fly_bound *bound = NULL;
  fly_error error;
  ck_fly_ok(fly_kernel_load(bytes, size, &kernel, &error), error);
  fly_mask *mask = fly_kernel_mask(kernel);
  ck_fly_ok(fly_mask_bind(mask, (fly_arg[]){FLY_INT("left", 5)}, 1, &bound, &error), error);
  fly_bound_release(&bound);
  ck_assert_int_eq(fly_mask_bind(mask, (fly_arg[]){FLY_INT("left", 6)}, 1, &bound, &error), FLY_ERROR_ARGUMENT);
  ck_fly_ok(fly_mask_bind(mask, (fly_arg[]){FLY_INT("right", 6)}, 1, &bound, &error), error);
  fly_bound_release(&bound);
  fly_kernel_release(&kernel);
  free(bytes);
}
END_TEST

START_TEST(emitted_texts_are_llvm_and_assembly) {
  command_result r = command_run(directory, "build causal --head-dim 8 --dtype f32 --emit ll -o mask.ll");
  ck_assert_msg(r.code == 0, "%s", r.err);
  ck_assert_str_eq(r.out, "");
  command_free(&r);
  char *text = command_read_file(command_path("mask.ll"));
  ck_assert_ptr_nonnull(strstr(text, "define "));
  free(text);
  for (int i = 0; i < 2; i++) {
    r = command_run(directory, "build causal --head-dim 8 --dtype f32 --emit asm -o %s | cat", i ? "-" : "/dev/stdout");
    ck_assert_int_eq(r.code, 0);
    ck_assert_ptr_nonnull(strstr(r.out, "fly_tile_bits:"));
    command_free(&r);
  }
  ck_assert_int_ne(access(command_path("-"), F_OK), 0);
}
END_TEST

static Suite *make_suite(void) {
  Suite *suite = suite_create("cli");
  TCase *c = tcase_create("cli");
  tcase_add_checked_fixture(c, make_directory, command_remove_directory);
  tcase_add_test(c, help_is_the_golden_text_on_every_level);
  tcase_add_test(c, check_reports_what_a_mask_declares_and_reads);
  tcase_add_test(c, version_is_printed);
  tcase_add_test(c, wrong_usage_exits_with_2_and_says_what_is_wrong);
  tcase_add_test(c, failures_exit_with_1_and_name_the_culprit);
  tcase_add_test(c, run_refuses_tensors_that_do_not_belong_together);
  tcase_add_test(c, an_error_in_a_mask_has_file_line_and_column);
  tcase_add_test(c, masks_are_found_by_path_and_name);
  tcase_add_test(c, integers_are_decimal_or_hexadecimal);
  tcase_add_test(c, map_json_has_its_keys_and_counts);
  tcase_add_test(c, a_map_whose_lists_do_not_fit_is_reported_without_them);
  tcase_add_test(c, bench_json_has_its_keys_and_they_agree);
  tcase_add_loop_test(c, bench_sweep_has_the_choice_and_others, 0, 2);
  tcase_add_test(c, buffers_and_rows_reach_the_map);
  tcase_add_test(c, text_reports_name_every_figure);
  tcase_add_test(c, a_small_picture_shows_tiles_and_pairs_in_their_shares);
  tcase_add_test(c, pictures_of_any_shape_have_a_sensible_size);
  tcase_add_test(c, a_name_of_any_bytes_is_drawn);
  tcase_add_test(c, a_built_image_loads_and_holds_its_constants);
  tcase_add_test(c, emitted_texts_are_llvm_and_assembly);
  suite_add_tcase(suite, c);
  return suite;
}

FLY_TEST_MAIN(make_suite)
