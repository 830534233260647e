/* Random modifiers: what they give and their slopes, on every target in turn, against the same expressions evaluated in
 * double precision and differentiated by central differences. FLYMASK_FUZZ_SECONDS: go on for so long;
 * FLYMASK_FUZZ_SEED: from another seed. */
#include <stdarg.h>
#include <time.h>

#include "call_case.h"
#include "score_case.h"

/* An expression: smooth, and at most about 10 in size for scores around 0. */
typedef enum op {
  SCORE,
  POSITION,
  HEAD,
  CONSTANT,
  ADD,
  SUB,
  MUL,
  DIV,
  SIN,
  COS,
  TANH,
  EXP,
  LOG,
  SQRT,
  PICK,
  SUM,
  OPS
} op;

typedef struct expression {
  op op;
  double value; /* of a constant, or a factor */
  const struct expression *a, *b;
} expression;

enum { MOST = 256, TEXT = 1 << 15, ROUNDS = 3 };

typedef struct program {
  expression all[MOST];
  int count;
  char text[TEXT];
  size_t used;
} program;

static const expression *make(program *p, test_random *random, int depth) {
  expression *e = &p->all[p->count++];
  *e = (expression){.op = CONSTANT, .value = (double)test_range(random, -15, 15) / 8};
  if (p->count > MOST - 8) return e;
  e->op = (op)(depth <= 0 ? test_range(random, SCORE, CONSTANT) : test_range(random, SCORE, OPS - 1));
  if (depth > 2 && e->op < ADD) e->op = ADD;
  if (e->op >= ADD) e->a = make(p, random, depth - 1);
  if (e->op >= ADD && (e->op <= DIV || e->op == PICK || e->op == SUM)) e->b = make(p, random, depth - 1);
  return e;
}

static double evaluate(const expression *e, double s, int h, int q, int kv) {
  double a = 0, b = 0, sum;
  if (e->a && e->op != SUM) a = evaluate(e->a, s, h, q, kv);
  if (e->b && e->op != SUM) b = evaluate(e->b, s, h, q, kv);
  switch (e->op) {
  case SCORE:
    return s;
  case POSITION:
    return (q - kv) * 0.015625;
  case HEAD:
    return h * 0.25;
  case CONSTANT:
    return e->value;
  case ADD:
    return a + b;
  case SUB:
    return a - b;
  case MUL:
    return tanh(a) * b;
  case DIV:
    return a / (1.5 + b * b);
  case SIN:
    return sin(a);
  case COS:
    return cos(a);
  case TANH:
    return 2 * tanh(a);
  case EXP:
    return exp(-a * a);
  case LOG:
    return log(1 + a * a);
  case SQRT:
    return sqrt(a * a + 0.5);
  case PICK:
    return (q ^ kv) & 2 ? a : b;
  default: /* a loop, whose rounds see what the last one made */
    sum = s;
    for (int i = 0; i < ROUNDS; i++)
      sum = 0.5 * tanh(evaluate(e->a, sum, h, q, kv)) + (kv % ROUNDS == i ? evaluate(e->b, s, h, q, kv) : 0);
    return sum;
  }
}

static void write_text(program *p, const char *format, ...) {
  va_list list;
  va_start(list, format);
  int n = vsnprintf(p->text + p->used, TEXT - p->used, format, list);
  va_end(list);
  ck_assert(n >= 0 && p->used + (size_t)n < TEXT);
  p->used += (size_t)n;
}

/* A helper function for each expression: eN(s, h, q, kv). */
static void write_expression(program *p, const expression *e) {
  static const char *const forms[OPS] = {
      [SCORE] = "s",
      [POSITION] = "(float)(q - kv) * 0.015625f",
      [HEAD] = "(float)h * 0.25f",
      [ADD] = "a + b",
      [SUB] = "a - b",
      [MUL] = "tanhf(a) * b",
      [DIV] = "a / (1.5f + b * b)",
      [SIN] = "sinf(a)",
      [COS] = "cosf(a)",
      [TANH] = "2 * tanhf(a)",
      [EXP] = "expf(-a * a)",
      [LOG] = "log1pf(a * a)",
      [SQRT] = "sqrtf(a * a + 0.5f)",
      [PICK] = "a",
  };
  int a = e->a ? (int)(e->a - p->all) : 0, b = e->b ? (int)(e->b - p->all) : 0;
  if (e->a) write_expression(p, e->a);
  if (e->b) write_expression(p, e->b);
  write_text(p, "static float e%d(float s, int h, int q, int kv) {\n  (void)s, (void)h, (void)q, (void)kv;\n",
             (int)(e - p->all));
  if (e->op == CONSTANT)
    write_text(p, "  return %.6ff;\n", e->value); /* eighths: exact */
  else if (e->op == PICK)
    write_text(p, "  if ((q ^ kv) & 2) return e%d(s, h, q, kv);\n  return e%d(s, h, q, kv);\n", a, b);
  else if (e->op == SUM)
    write_text(p,
               "  float part[%d] = {0}, sum = s;\n  part[kv %% %d] = e%d(s, h, q, kv);\n"
               "  for (int i = 0; i < %d; i++) sum = 0.5f * tanhf(e%d(sum, h, q, kv)) + part[i];\n  return sum;\n",
               ROUNDS, ROUNDS, b, ROUNDS, a);
  else {
    if (e->a) write_text(p, "  float a = e%d(s, h, q, kv);\n", a);
    if (e->b) write_text(p, "  float b = e%d(s, h, q, kv);\n", b);
    write_text(p, "  return %s;\n", forms[e->op]);
  }
  write_text(p, "}\n");
}

static double slope_of(const expression *e, double s, int h, int q, int kv, double step) {
  return (evaluate(e, s + step, h, q, kv) - evaluate(e, s - step, h, q, kv)) / (2 * step);
}

/* False: the program has more instructions than a modifier may have. */
static bool check(uint64_t seed, const char *target) {
  program *p = calloc(1, sizeof *p);
  test_random random = {seed};
  fly_score *score = NULL;
  fly_error error = {0};
  const expression *e = make(p, &random, 4);
  write_text(p, "#include <flymask/score.h>\n");
  write_expression(p, e);
  write_text(p, "float score(float s, int b, int h, int q, int kv) {\n  (void)b;\n  return e0(s, h, q, kv);\n}\n");
  fly_compile_options options = {FLY_INIT(fly_compile_options), .cache = "", .target = target};
  fly_status status = fly_score_compile(p->text, "fuzz.c", &options, &score, &error);
  if (status != FLY_OK) {
    ck_assert_msg(strstr(error.message, "too large"), "seed %lu: %s\n%s", (unsigned long)seed, error.message, p->text);
    free(p);
    return false;
  }
  score_case c = score_case_of(score, NULL, 0, NULL);
  float before[4 * FLYI_BLOCK], s[4 * FLYI_BLOCK], slope[4 * FLYI_BLOCK];
  for (int i = 0; i < 4 * FLYI_BLOCK; i++) before[i] = s[i] = (float)(1.5 * test_normal(&random));
  score_case_run(&c, 0, 1, 60, 20, 4, NULL, s, slope);
  for (int i = 0; i < 4 * FLYI_BLOCK; i++) {
    int q = 60 + i / FLYI_BLOCK, kv = 20 + i % FLYI_BLOCK;
    double want = evaluate(e, before[i], 1, q, kv), by = slope_of(e, before[i], 1, q, kv, 1e-5);
    /* How far float may go: what a change of the score by a few of its units makes, and units of the result. */
    double size = 1 + fabs(want) + fabs(by), bend = fabs(by - slope_of(e, before[i] + 1e-4, 1, q, kv, 1e-5)) * 1e4;
    ck_assert_msg(fabs(s[i] - want) <= 1e-5 * size, "seed %lu, %s: score %.9g of %.9g at (%d, %d), not %.9g\n%s",
                  (unsigned long)seed, target, s[i], before[i], q, kv, want, p->text);
    ck_assert_msg(fabs(slope[i] - by) <= 5e-5 * (size + bend),
                  "seed %lu, %s: slope %.9g at %.9g (%d, %d), not %.9g\n%s", (unsigned long)seed, target, slope[i],
                  before[i], q, kv, by, p->text);
  }
  score_case_free(&c);
  free(p);
  return true;
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

START_TEST(random_modifiers_and_their_slopes) {
  const char *seconds = getenv("FLYMASK_FUZZ_SECONDS"), *first = getenv("FLYMASK_FUZZ_SEED");
  const char *const *targets = fly_cpu_targets();
  uint64_t seed = first ? strtoull(first, NULL, 10) : 1;
  double end = now() + (seconds ? atof(seconds) : 0);
  int checked = 0, kinds = 0;
  while (targets[kinds]) kinds++;
  for (int i = 0; i < 12 || now() < end; i++) checked += check(seed * 1000003 + (uint64_t)i, targets[i % kinds]);
  ck_assert_int_gt(checked, 6);
  printf("%d modifiers\n", checked);
}
END_TEST

static Suite *make_suite(void) {
  Suite *suite = suite_create("score_fuzz");
  TCase *tests = tcase_create("fuzz");
  tcase_add_test(tests, random_modifiers_and_their_slopes);
  suite_add_tcase(suite, tests);
  return suite;
}

FLY_TEST_MAIN(make_suite)
