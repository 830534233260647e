/* meanings.c: masks that use what the language allows beyond plain arithmetic, each beside a function that says the
 * same in another way, with every clamp written out. */
#include "meanings.h"

#include <stdlib.h>
#include <string.h>

const int32_t meaning_doc[MEANING_DOC] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3};

static int32_t at(const int32_t *array, int64_t count, int64_t i) {
  return array[i < 0 ? 0 : i >= count ? count - 1 : i];
}

static bool expect_pointers(int b, int h, int q, int kv) {
  (void)b, (void)h;
  return at(meaning_doc, MEANING_DOC, q > kv ? 2 + (int64_t)q : 5 + (int64_t)kv) + at(meaning_doc, MEANING_DOC, q - 1) >
         6;
}
static const char pointers[] = "#include <flymask/mask.h>\n"
                               "FLY_BUFFER(int32_t, doc, 1);\n"
                               "static void set(const int32_t **p, const int32_t *to) { *p = to - 1; }\n"
                               "bool mask(int b, int h, int q, int kv) {\n"
                               "  const int32_t *p = q > kv ? doc + 2 + q : doc + 5 + kv, *r;\n"
                               "  struct { int n; const int32_t *at; } s;\n"
                               "  set(&r, doc); s.at = r; s.n = q;\n"
                               "  return *p + s.at[s.n] > 6;\n"
                               "}\n";

static bool expect_walk(int b, int h, int q, int kv) {
  (void)b, (void)h;
  int sum = 0;
  for (int64_t i = q; i < kv; i += 2) sum += at(meaning_doc, MEANING_DOC, i);
  return sum % 3 == 1;
}
static const char walk[] = "#include <flymask/mask.h>\n"
                           "FLY_BUFFER(int32_t, doc, 1);\n"
                           "bool mask(int b, int h, int q, int kv) {\n"
                           "  int sum = 0;\n"
                           "  for (const int32_t *p = doc + q, *end = &doc[kv]; p < end; p += 2) sum += *p;\n"
                           "  return sum % 3 == 1;\n"
                           "}\n";

static bool expect_structs(int b, int h, int q, int kv) {
  static const struct {
    int lo, hi;
    double weight;
  } rows[3] = {{1, 20, 1.5}, {5, 40, 7.5}, {30, 60, 3.0}};
  int64_t row = (int64_t)q - 30 < 0 ? 0 : q - 30 > 2 ? 2 : q - 30;
  (void)b, (void)h;
  return rows[row].lo <= kv && kv < rows[row].hi && rows[row].weight + kv > 20;
}
static const char structs[] = "#include <flymask/mask.h>\n"
                              "typedef struct { int lo, hi; double weight; } row;\n"
                              "static const row rows[3] = {{1, 20, 1.5}, {5, 40, 7.5}, {30, 60, 3.0}};\n"
                              "static row get(int i) { return rows[i]; }\n"
                              "static bool inside(row r, int x) { return r.lo <= x && x < r.hi; }\n"
                              "bool mask(int b, int h, int q, int kv) {\n"
                              "  row r = get(q - 30);\n"
                              "  return inside(r, kv) && r.weight + kv > 20;\n"
                              "}\n";

static bool expect_locals(int b, int h, int q, int kv) {
  int32_t grid[12];
  (void)b;
  for (int i = 0; i < 12; i++) grid[i] = i * q;
  int64_t to = (int64_t)(kv - 5) * 4 + h;
  grid[to < 0 ? 0 : to > 11 ? 11 : to] = -1;
  return (at(grid, 12, (int64_t)(q - 20) * 4 + 3) ^ at(grid, 12, kv)) & 1;
}
static const char locals[] = "#include <flymask/mask.h>\n"
                             "static int get(int (*rows)[4], int i, int j) { return rows[i][j]; }\n"
                             "bool mask(int b, int h, int q, int kv) {\n"
                             "  int grid[3][4];\n"
                             "  for (int i = 0; i < 3; i++)\n"
                             "    for (int j = 0; j < 4; j++) grid[i][j] = (4 * i + j) * q;\n"
                             "  grid[kv - 5][h] = -1;\n"
                             "  return (get(grid, q - 20, 3) ^ grid[0][kv]) & 1;\n"
                             "}\n";

static bool expect_copies(int b, int h, int q, int kv) {
  int32_t a[8] = {1, 2, 3, 4, 5, 6, 7, 8}, r[2];
  int64_t from = q - 30 < 0 ? 0 : q - 30 > 3 ? 3 : q - 30, to = kv < 0 ? 0 : kv > 3 ? 3 : kv;
  (void)b, (void)h;
  memcpy(r, a + 2 * from, sizeof r);
  memset(a + 2 * to, 0, 8);
  return r[0] + a[5] + a[2] > r[1] + 6;
}
static const char copies[] = "#include <flymask/mask.h>\n"
                             "bool mask(int b, int h, int q, int kv) {\n"
                             "  int a[4][2] = {{1, 2}, {3, 4}, {5, 6}, {7, 8}}, r[2];\n"
                             "  __builtin_memcpy(r, a[q - 30], sizeof r);\n"
                             "  __builtin_memset(a[kv], 0, sizeof a[0]);\n"
                             "  return r[0] + a[2][1] + a[1][0] > r[1] + 6;\n"
                             "}\n";

static bool expect_unset(int b, int h, int q, int kv) {
  (void)b, (void)h;
  return q == 1 ? (kv & 1 ? 0 : kv) > 3 : q == 2;
}
static const char unset[] = "#include <flymask/mask.h>\n" /* jumps over the declaration of a local */
                            "bool mask(int b, int h, int q, int kv) {\n"
                            "  switch (q) {\n"
                            "    int z[2];\n"
                            "  case 1: z[0] = kv; return z[kv & 1] > 3;\n"
                            "  case 2: return z[kv & 1] == 0;\n"
                            "  default: return false;\n"
                            "  }\n"
                            "}\n";

static bool expect_builtins(int b, int h, int q, int kv) {
  uint32_t x = (uint32_t)(q * 77 - 900);
  int zeros = x ? __builtin_clz(x) : 32, ones = kv ? __builtin_ctz((unsigned)kv) : 32;
  (void)b, (void)h;
  return __builtin_popcount(x) + zeros > ones + 14 - abs(q - kv) / 16;
}
static const char builtins[] =
    "#include <flymask/mask.h>\n"
    "bool mask(int b, int h, int q, int kv) {\n"
    "  unsigned x = q * 77 - 900;\n"
    "  __builtin_assume(x == 3);\n"
    "  if (__builtin_expect(x > 7, 0) && __builtin_constant_p(x)) return b;\n"
    "  return __builtin_popcount(x) + __builtin_clz(x) > __builtin_ctz(kv) + 14 - __builtin_abs(q - kv) / 16;\n"
    "}\n";

static bool expect_attributes(int b, int h, int q, int kv) {
  (void)b, (void)h;
  return (q + 3) * 2 > kv && q >= 0;
}
static const char attributes[] =
    "#include <flymask/mask.h>\n" /* none of these promises is kept, and none is believed */
    "__attribute__((noinline, const, cold, returns_nonnull, assume_aligned(64)))\n"
    "static const int *same(const int *p) { return p; }\n"
    "#pragma clang optimize off\n"
    "__attribute__((weak, pure, nothrow, target(\"avx2\"))) int more(int x) { return x + 3; }\n"
    "#pragma clang optimize on\n"
    "static const int *const two = (const int[]){7, 2, 5} + 1;\n"
    "bool mask(int b, int h, int q, int kv) {\n"
    "#pragma clang fp contract(fast) reassociate(on)\n"
    "  const int *restrict p = same(two);\n"
    "#pragma clang loop vectorize(enable) unroll_count(3)\n"
    "  for (int i = 0; i < 5; i++) if (q < 0) return false;\n"
    "  return more(q) * (float)*p > kv;\n"
    "}\n";

static bool expect_cleanups(int b, int h, int q, int kv) {
  (void)b, (void)h;
  for (int i = 0; i < 10; i++)
    if (q + i == kv) return i < 5;
  return kv < 3;
}
static const char cleanups[] = "#include <flymask/mask.h>\n"
                               "static void leave(int *p) { *p = 0; }\n"
                               "bool mask(int b, int h, int q, int kv) {\n"
                               "  for (int i = 0; i < 10; i++) {\n"
                               "    __attribute__((cleanup(leave))) int x = q + i;\n"
                               "    if (x != kv) continue;\n"
                               "    return i < 5;\n"
                               "  }\n"
                               "  return kv < 3;\n"
                               "}\n";

static bool expect_unions(int b, int h, int q, int kv) {
  float f = (float)q;
  int32_t bits;
  (void)b, (void)h;
  memcpy(&bits, &f, sizeof bits);
  return ((bits >> 23) & 255) - 126 > (kv & 7) && (kv & 15) + ((unsigned)q & 3) > 2;
}
static const char unions[] = "#include <flymask/mask.h>\n"
                             "struct bits { unsigned a : 2, b : 4, c : 20; int d : 5; };\n"
                             "bool mask(int b, int h, int q, int kv) {\n"
                             "  union { float f; int i; } u;\n"
                             "  struct bits s = {q, kv, 0, -1};\n"
                             "  u.f = q;\n"
                             "  return ((u.i >> 23) & 255) - 126 > (kv & 7) && s.a + s.b > 2 && s.d == -1;\n"
                             "}\n";

static bool expect_large(int b, int h, int q, int kv) {
  (void)b;
  int64_t set = (int64_t)kv * 20 + h, get = (int64_t)q * 20;
  if (set > 1199) set = 1199;
  if (get > 1199) get = 1199;
  return get == set || (get + q) % 3 == 0;
}
static const char large[] = "#include <flymask/mask.h>\n" /* what a compiler would rather leave to memcpy and memset */
                            "typedef struct { int x[1200]; } block;\n"
                            "static bool get(block c, int i) { return c.x[i] % 3 == 0; }\n"
                            "bool mask(int b, int h, int q, int kv) {\n"
                            "  block a = {{0}}, c;\n"
                            "  for (int i = 0; i < 1200; i++) a.x[i] += i + q;\n"
                            "  c = a;\n"
                            "  c.x[kv * 20 + h] = 0;\n"
                            "  return get(c, q * 20);\n"
                            "}\n";

const meaning meanings[] = {{pointers, expect_pointers}, {walk, expect_walk},
                            {structs, expect_structs},   {locals, expect_locals},
                            {copies, expect_copies},     {unset, expect_unset},
                            {builtins, expect_builtins}, {attributes, expect_attributes},
                            {unions, expect_unions},     {cleanups, expect_cleanups},
                            {large, expect_large}};
const size_t meaning_count = sizeof meanings / sizeof *meanings;
