/* Comparisons that order keys become ranges of bits (compiler/ranges.c), and mean what the same expression means in C:
 * alone, joined, beside others; at the ends of a block, for bounds of any size. */
#include "compiled.h"

enum { N = FLYI_BLOCK };

typedef struct form {
  const char *text;
  bool (*see)(int32_t q, int32_t kv, int32_t x, int32_t y);
  bool only_ranges; /* nothing is left to be computed pair by pair */
} form;

/* The same text for the compiler and for this test, which is built so that arithmetic wraps (image.cmake): expressions,
 * and bodies with variables. */
#define FORMS(FORM)                                                                                                    \
  FORM(le, true, kv <= q)                                                                                              \
  FORM(lt, true, kv < q)                                                                                               \
  FORM(ge, true, kv >= q)                                                                                              \
  FORM(gt, true, kv > q)                                                                                               \
  FORM(swapped_le, true, q <= kv)                                                                                      \
  FORM(swapped_gt, true, q > kv)                                                                                       \
  FORM(bound_le, true, kv <= x)                                                                                        \
  FORM(bound_lt, true, x < kv)                                                                                         \
  FORM(behind_le, true, q - kv <= x)                                                                                   \
  FORM(behind_lt, true, q - kv < x)                                                                                    \
  FORM(behind_ge, true, q - kv >= x)                                                                                   \
  FORM(behind_gt, true, q - kv > x)                                                                                    \
  FORM(behind_swapped_le, true, x <= q - kv)                                                                           \
  FORM(behind_swapped_gt, true, x > q - kv)                                                                            \
  FORM(ahead_le, true, kv - q <= x)                                                                                    \
  FORM(ahead_lt, true, kv - q < x)                                                                                     \
  FORM(ahead_ge, true, kv - q >= x)                                                                                    \
  FORM(ahead_gt, true, kv - q > x)                                                                                     \
  FORM(ahead_swapped_lt, true, x < kv - q)                                                                             \
  FORM(ahead_swapped_ge, true, x >= kv - q)                                                                            \
  FORM(window, true, (x < 0 || q - kv <= x) && (y < 0 || kv - q <= y))                                                 \
  FORM(prefix, true, kv <= q || kv < x)                                                                                \
  FORM(negated, true, !(q - kv < x || kv >= q))                                                                        \
  FORM(exclusive, false, (kv <= q) != (q - kv <= x))                                                                   \
  FORM(chosen, true, x < y ? kv - q <= x : q - kv < y)                                                                \
  FORM(chosen_by_key, true, kv <= q ? q - kv <= x : kv - q <= y)                                                      \
  FORM(of_rows, true, kv <= q && q % 3 != 1)                                                                           \
  FORM(equal, false, kv - q == 3)                                                                                      \
  FORM(beside, false, kv <= q && (kv ^ q) % 5 != 0 && q - kv <= x)                                                     \
  FORM(either, false, kv <= q || (kv ^ q) % 5 == 0)                                                                    \
  FORM(parity, false, (kv ^ q) % 2 == 0 && (kv <= q || kv - q > x))

#define BODIES(BODY)                                                                                                   \
  BODY(locals, true, bool near = q - kv <= x, causal = kv <= q; return near && causal)                                 \
  BODY(documents, true, bool own = kv >= x && kv <= q, prefix = x != y && kv < y; return own || prefix)                \
  BODY(local_negated, true, bool far = q - kv > x; return !far && kv <= q)                                             \
  BODY(locals_of_bits, true, bool near = q - kv <= x, causal = kv <= q; return near & causal)                          \
  BODY(collected, true, bool see = kv <= q; see &= q - kv <= x; see |= kv < y; see ^= y < 0; return see)               \
  BODY(chosen_local, true, bool see = kv <= q; if (x < y) see = see && q - kv <= x; else see |= kv < y; return see)    \
  BODY(ints, true, int near = q - kv <= x, causal = kv <= q; return near ? causal : 0)                                 \
  BODY(local_beside, false, bool near = q - kv <= x, odd = (kv ^ q) % 5 != 0; return near & odd & (kv <= q))           \
  BODY(low_bit, false, int some = x & 3; return some & (kv <= q))                                                      \
  BODY(any_bit, false, int some = q & 6; return some | (kv <= q))                                                      \
  BODY(repeated, true, bool see = kv <= q; TWENTY(ALL) return see)                                                     \
  BODY(repeated_choice, false, bool see = kv == q; TWENTY(ANY) return see)

/* Each level has the one before it twice: a million of them, to whoever does not notice. */
#define ALL see = (see && q - kv <= x) && (see && kv - q <= y);
#define ANY see = (see || q - kv > x) || (see || kv - q > y);
#define FIVE(level) level level level level level
#define TWENTY(level) FIVE(level) FIVE(level) FIVE(level) FIVE(level)

#define SEE(name, ranges, ...)                                                                                         \
  static bool see_##name(int32_t q, int32_t kv, int32_t x, int32_t y) {                                                \
    (void)q, (void)kv, (void)x, (void)y;                                                                               \
    __VA_ARGS__;                                                                                                       \
  }
#define SEE_FORM(name, ranges, ...) SEE(name, ranges, return __VA_ARGS__)
FORMS(SEE_FORM)
BODIES(SEE)

#define TEXT(...) #__VA_ARGS__
#define FORM_ENTRY(name, ranges, ...) {"return " TEXT(__VA_ARGS__), see_##name, ranges},
#define ENTRY(name, ranges, ...) {TEXT(__VA_ARGS__), see_##name, ranges},
static const form forms[] = {FORMS(FORM_ENTRY) BODIES(ENTRY)};
enum { COUNT = sizeof forms / sizeof *forms };

static void write_source(const form *f, char *source, size_t size) {
  snprintf(source, size,
           "#include <flymask/mask.h>\nFLY_PARAM(int, x, 0);\nFLY_PARAM(int, y, 0);\n"
           "bool mask(int b, int h, int q, int kv) {\n  (void)b, (void)h;\n  %s;\n}\n",
           f->text);
}

static void check_blocks(const compiled *c, const form *f, int x, int y, const char *target) {
  static const int starts[][2] = {{0, 0},
                                  {64, 0},
                                  {0, 64},
                                  {100, 64},
                                  {64, 100},
                                  {128, 64},
                                  {7, 1 << 20},
                                  {1 << 20, 7},
                                  {1 << 30, (1 << 30) - 63},
                                  {500, 437},
                                  {INT32_MIN, 0},
                                  {INT32_MIN + 100, 64},
                                  {-20, INT32_MAX - 63},
                                  {-(1 << 30), (1 << 30) - 30},
                                  {-5, 0},
                                  {(1 << 30) - 5, 1 << 30}};
  const fly_geometry geometry = {FLY_INIT(fly_geometry), .batch = 1, .heads = 1, .len_q = INT32_MAX - 64,
                                 .len_kv = INT32_MAX - 64};
  compiled_call call = compiled_bind(c, (fly_arg[]){FLY_INT("x", x), FLY_INT("y", y)}, 2, &geometry);
  for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
    uint64_t bits[N];
    compiled_bits(&call, 0, 0, starts[i][0], starts[i][1], bits);
    for (int64_t r = 0; r < N; r++)
      for (int64_t k = 0; k < N; k++) {
        int64_t q = starts[i][0] + r, kv = starts[i][1] + k;
        if ((bits[r] >> k & 1) !=
            f->see((int32_t)q, (int32_t)kv, x, y)) /* an assertion for each pair would take minutes */
          ck_abort_msg("%s for %s: x %d, y %d, at %lld, %lld", f->text, target, x, y, (long long)q, (long long)kv);
      }
  }
  compiled_call_free(&call);
}

START_TEST(ranges_mean_what_their_expressions_do) {
  static const int bounds[] = {0, 1, -1, 3, 62, 63, 64, 65, -63, -64, 100, INT32_MAX, INT32_MIN, INT32_MIN + 1};
  enum { BOUNDS = sizeof bounds / sizeof *bounds };
  char source[4000];
  write_source(&forms[_i], source, sizeof source);
  const char *const *targets = fly_cpu_targets();
  int count = 0;
  while (targets[count]) count++;
  const char *target = targets[_i % count]; /* each has some: nothing here depends on it */
  compiled c = compiled_from(source, target, NULL);
  for (int i = 0; i < BOUNDS; i++)
    for (int j = 0; j < BOUNDS; j += 3) check_blocks(&c, &forms[_i], bounds[i], bounds[(i + j) % BOUNDS], target);
  compiled_free(&c);
}
END_TEST

/* Truth values of 16 pairs side by side: what the loop over pairs has. */
static bool has_pairs(const char *source) {
  const fly_compile_options options = {FLY_INIT(fly_compile_options), .cache = ""};
  fly_error error;
  char *text;
  ck_fly_ok(fly_mask_emit(source, "mask.c", &options, FLY_EMIT_LL, &text, &error), error);
  bool found = strstr(text, "<16 x i1>") != NULL;
  free(text);
  return found;
}

START_TEST(pairs_are_compared_only_where_they_must) {
  char source[4000];
  write_source(&forms[_i], source, sizeof source);
  ck_assert_msg(has_pairs(source) == !forms[_i].only_ranges, "%s", forms[_i].text);
}
END_TEST

static Suite *suite(void) {
  Suite *s = suite_create("ranges");
  TCase *bits = tcase_create("bits"), *code = tcase_create("code");
  tcase_add_loop_test(bits, ranges_mean_what_their_expressions_do, 0, COUNT);
  tcase_add_loop_test(code, pairs_are_compared_only_where_they_must, 0, COUNT);
  suite_add_tcase(s, bits);
  suite_add_tcase(s, code);
  return s;
}

FLY_TEST_MAIN(suite)
