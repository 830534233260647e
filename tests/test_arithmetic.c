/* Arithmetic in a compiled mask is total and means what flymask/mask.h's table says: on every vector level, with
 * both loaders, against values worked out here in wider integers. */
#include "compiled.h"

#include <inttypes.h>

enum { N = FLYI_BLOCK };

/* ---- integer operators: bit h of the result for x[q] and y[kv], operator b --------------------------------------- */

__extension__ typedef __int128 wide;
__extension__ typedef unsigned __int128 unsigned_wide;

typedef struct int_type {
  const char *name;
  fly_type type;
  int bits;
  bool is_signed;
} int_type;

static const int_type int_types[] = {
    {"int8_t", FLY_I8, 8, true},      {"uint8_t", FLY_U8, 8, false},    {"int16_t", FLY_I16, 16, true},
    {"uint16_t", FLY_U16, 16, false}, {"int32_t", FLY_I32, 32, true},   {"uint32_t", FLY_U32, 32, false},
    {"int64_t", FLY_I64, 64, true},   {"uint64_t", FLY_U64, 64, false},
};
enum { INT_TYPES = sizeof int_types / sizeof *int_types };

static const char operators[] = "  switch (b) {\n"
                                "  case 0: z = x + y; break;\n"
                                "  case 1: z = x - y; break;\n"
                                "  case 2: z = x * y; break;\n"
                                "  case 3: z = x / y; break;\n"
                                "  case 4: z = x % y; break;\n"
                                "  case 5: z = x << y; break;\n"
                                "  case 6: z = x >> y; break;\n"
                                "  case 7: z = -x; break;\n"
                                "  case 8: z = x < y; break;\n"
                                "  default: z = ~x ^ (x & y); break;\n"
                                "  }\n";
enum { OPERATORS = 10 };

/* The value of the low `bits` bits of v. */
static wide truncate_to(wide v, int bits, bool is_signed) {
  unsigned_wide mask = ((unsigned_wide)1 << bits) - 1, low = (unsigned_wide)v & mask;
  return is_signed && low >> (bits - 1) ? (wide)low - ((wide)1 << bits) : (wide)low;
}

static wide operate(int op, wide x, wide y, int bits) {
  wide count = ((y % bits) + bits) % bits;
  switch (op) {
  case 0:
    return x + y;
  case 1:
    return x - y;
  case 2:
    return (wide)((unsigned_wide)x * (unsigned_wide)y);
  case 3:
    return y == 0 ? 0 : x / y;
  case 4:
    return y == 0 ? x : x % y;
  case 5:
    return (wide)((unsigned_wide)x << count);
  case 6:
    return x >> count;
  case 7:
    return -x;
  case 8:
    return x < y;
  default:
    return ~x ^ (x & y);
  }
}

/* C's promotion: narrow types become int. */
static wide expected_int(const int_type *t, int op, wide x, wide y) {
  int bits = t->bits < 32 ? 32 : t->bits;
  bool is_signed = t->bits < 32 || t->is_signed;
  return truncate_to(operate(op, x, y, bits), bits, is_signed);
}

static void interesting(const int_type *t, wide values[N], uint64_t seed) {
  test_random random = {seed};
  const wide least = t->is_signed ? -((wide)1 << (t->bits - 1)) : 0, most = least + ((wide)1 << t->bits) - 1;
  const wide edges[] = {0,  1,  2,  3,   7,   31,  32,    33,        63,   64,       65,       127,       -1,
                        -2, -3, -7, -31, -33, -64, least, least + 1, most, most - 1, most / 2, least / 2, most / 3};
  const int edge_count = sizeof edges / sizeof *edges;
  for (int i = 0; i < N; i++) {
    wide v = i < edge_count ? edges[i] : (wide)(test_next(&random) >> test_range(&random, 0, 63));
    values[i] = truncate_to(v, t->bits, t->is_signed);
  }
}

static fly_buffer *int_buffer(const int_type *t, const wide values[N]) {
  fly_error error = {0};
  fly_buffer *buffer;
  uint8_t data[N * 8];
  for (int i = 0; i < N; i++) {
    uint64_t low = (uint64_t)values[i];
    memcpy(data + i * t->bits / 8, &low, t->bits / 8);
  }
  ck_fly_ok(fly_buffer_create(t->type, 1, (int64_t[]){N}, data, &buffer, &error), error);
  return buffer;
}

static void check_int_type(const int_type *t, const char *target) {
  char source[2048];
  snprintf(source, sizeof source,
           "#include <flymask/mask.h>\nFLY_BUFFER(%s, xs, 1);\nFLY_BUFFER(%s, ys, 1);\n"
           "bool mask(int b, int h, int q, int kv) {\n  %s x = xs[q], y = ys[kv];\n  int64_t z;\n%s"
           "  return (uint64_t)z >> h & 1;\n}\n",
           t->name, t->name, t->name, operators);
  compiled c = compiled_from(source, target, NULL);
  wide x[N], y[N];
  interesting(t, x, 1), interesting(t, y, 2);
  fly_buffer *xs = int_buffer(t, x), *ys = int_buffer(t, y);
  const fly_geometry geometry = {FLY_INIT(fly_geometry), .batch = OPERATORS, .heads = 64, .len_q = N, .len_kv = N};
  compiled_call call = compiled_bind(&c, (fly_arg[]){FLY_CAPTURE("xs", xs), FLY_CAPTURE("ys", ys)}, 2, &geometry);
  for (int op = 0; op < OPERATORS; op++) {
    static uint64_t planes[64][N];
    for (int bit = 0; bit < 64; bit++) compiled_bits(&call, op, bit, 0, 0, planes[bit]);
    for (int q = 0; q < N; q++)
      for (int kv = 0; kv < N; kv++) {
        uint64_t found = 0, wanted = (uint64_t)(int64_t)expected_int(t, op, x[q], y[kv]);
        for (int bit = 0; bit < 64; bit++) found |= (planes[bit][q] >> kv & 1) << bit;
        ck_assert_msg(found == wanted,
                      "%s: %s, operator %d of %" PRId64 ", %" PRId64 ": %" PRIx64 ", expected %" PRIx64, target,
                      t->name, op, (int64_t)x[q], (int64_t)y[kv], found, wanted);
      }
  }
  compiled_call_free(&call);
  fly_buffer_release(&xs), fly_buffer_release(&ys);
  compiled_free(&c);
}

START_TEST(integer_operators_are_total) {
  for (const char *const *target = fly_cpu_targets(); *target; target++) check_int_type(&int_types[_i], *target);
}
END_TEST

/* ---- one operator alone: nothing but it in the code -------------------------------------------------------------- */

START_TEST(division_alone_is_total) {
  static const struct {
    const char *expression;
    int op;
  } cases[] = {{"xs[q] / ys[kv]", 3}, {"xs[q] % ys[kv]", 4}, {"xs[q] << ys[kv]", 5}, {"xs[q] >> ys[kv]", 6}};
  const int_type *t = &int_types[4];
  wide x[N], y[N], z[N];
  interesting(t, x, 3), interesting(t, y, 4);
  fly_buffer *xs = int_buffer(t, x), *ys = int_buffer(t, y);
  for (const char *const *target = fly_cpu_targets(); *target; target++) {
    char source[512];
    snprintf(source, sizeof source,
             "#include <flymask/mask.h>\nFLY_BUFFER(int32_t, xs, 1);\nFLY_BUFFER(int32_t, ys, 1);\n"
             "FLY_BUFFER(int32_t, zs, 1);\nbool mask(int b, int h, int q, int kv) { return %s == zs[kv]; }\n",
             cases[_i].expression);
    compiled c = compiled_from(source, *target, NULL);
    for (int row = 0; row < N; row += 5) { /* zs holds what is right for this row */
      for (int kv = 0; kv < N; kv++) z[kv] = expected_int(t, cases[_i].op, x[row], y[kv]);
      fly_buffer *zs = int_buffer(t, z);
      const fly_arg args[] = {FLY_CAPTURE("xs", xs), FLY_CAPTURE("ys", ys), FLY_CAPTURE("zs", zs)};
      const fly_geometry geometry = {FLY_INIT(fly_geometry), .batch = 1, .heads = 1, .len_q = N, .len_kv = N};
      compiled_call call = compiled_bind(&c, args, 3, &geometry);
      uint64_t bits[N];
      compiled_bits(&call, 0, 0, 0, 0, bits);
      for (int q = 0; q < N; q++)
        for (int kv = 0; kv < N; kv++)
          ck_assert_int_eq(bits[q] >> kv & 1, expected_int(t, cases[_i].op, x[q], y[kv]) == z[kv]);
      compiled_call_free(&call);
      fly_buffer_release(&zs);
    }
    compiled_free(&c);
  }
  fly_buffer_release(&xs), fly_buffer_release(&ys);
}
END_TEST

/* ---- floats ------------------------------------------------------------------------------------------------------ */

static int64_t saturate(double x, double low, double high, int64_t least, int64_t most) {
  return isnan(x) ? 0 : x <= low ? least : x >= high ? most : (int64_t)x;
}

static const float edges[] = {0,
                              -0.0f,
                              0.5f,
                              -0.5f,
                              0.99999994f,
                              1.5f,
                              -1.5f,
                              127.9f,
                              128,
                              -128.9f,
                              -129,
                              255.5f,
                              256,
                              2147483520.0f,
                              2147483648.0f,
                              -2147483648.0f,
                              -2147483904.0f,
                              4294967040.0f,
                              4294967296.0f,
                              9223371487098961920.0f,
                              9223372036854775808.0f,
                              -9223372036854775808.0f,
                              1e30f,
                              -1e30f,
                              3.4e38f,
                              -3.4e38f,
                              INFINITY,
                              -INFINITY,
                              NAN,
                              -NAN,
                              1e-40f,
                              -1e-40f};
enum { EDGES = sizeof edges / sizeof *edges, CONVERSIONS = 6 };

static const char conversions[] = "#include <flymask/mask.h>\nFLY_BUFFER(float, xs, 1);\n"
                                  "bool mask(int b, int h, int q, int kv) {\n  float x = xs[q]; double d = x;\n"
                                  "  int64_t z;\n  switch (b) {\n"
                                  "  case 0: z = (int)x; break;\n"
                                  "  case 1: z = (unsigned)x; break;\n"
                                  "  case 2: z = (int64_t)x; break;\n"
                                  "  case 3: z = (int64_t)(uint64_t)x; break;\n"
                                  "  case 4: z = (int)d; break;\n"
                                  "  default: z = (int8_t)(int)d; break;\n  }\n"
                                  "  return (uint64_t)z >> kv & 1;\n}\n";

static uint64_t converted(int conversion, double x) {
  int64_t as_int = saturate(x, INT32_MIN, 2147483647, INT32_MIN, INT32_MAX);
  switch (conversion) {
  case 1:
    return (uint64_t)saturate(x, 0, 4294967295, 0, UINT32_MAX);
  case 2:
    return (uint64_t)saturate(x, -0x1p63, 0x1p63, INT64_MIN, INT64_MAX);
  case 3:
    return isnan(x) || x <= 0 ? 0 : x >= 0x1p64 ? UINT64_MAX : (uint64_t)x;
  case 5:
    return (uint64_t)(int64_t)(int8_t)as_int;
  default:
    return (uint64_t)as_int;
  }
}

START_TEST(float_to_integer_saturates) {
  fly_error error = {0};
  fly_buffer *xs;
  ck_fly_ok(fly_buffer_create(FLY_F32, 1, (int64_t[]){EDGES}, edges, &xs, &error), error);
  for (const char *const *target = fly_cpu_targets(); *target; target++) {
    compiled c = compiled_from(conversions, *target, NULL);
    const fly_geometry geometry = {FLY_INIT(fly_geometry), .batch = CONVERSIONS, .heads = 1, .len_q = EDGES,
                                   .len_kv = 64};
    compiled_call call = compiled_bind(&c, (fly_arg[]){FLY_CAPTURE("xs", xs)}, 1, &geometry);
    for (int b = 0; b < CONVERSIONS; b++) {
      uint64_t bits[N];
      compiled_bits(&call, b, 0, 0, 0, bits);
      for (int q = 0; q < EDGES; q++)
        ck_assert_msg(bits[q] == converted(b, edges[q]), "%s: conversion %d of %g: %" PRIx64 ", expected %" PRIx64,
                      *target, b, edges[q], bits[q], converted(b, edges[q]));
    }
    compiled_call_free(&call);
    compiled_free(&c);
  }
  fly_buffer_release(&xs);
}
END_TEST

/* a * b + c rounds twice, sums are not reordered, and a NaN compares as IEEE 754 says. */
START_TEST(floats_are_neither_contracted_nor_reordered) {
  fly_error error = {0};
  float a[N], v[N];
  test_random random = {7};
  for (int i = 0; i < N; i++)
    a[i] = (float)test_normal(&random), v[i] = i % 9 == 8 ? NAN : (float)(1e6 * test_normal(&random));
  fly_buffer *as, *vs;
  ck_fly_ok(fly_buffer_create(FLY_F32, 1, (int64_t[]){N}, a, &as, &error), error);
  ck_fly_ok(fly_buffer_create(FLY_F32, 1, (int64_t[]){N}, v, &vs, &error), error);
  for (const char *const *target = fly_cpu_targets(); *target; target++) {
    compiled c = compiled_from(
        "#include <flymask/mask.h>\nFLY_BUFFER(float, as, 1);\nFLY_BUFFER(float, vs, 1);\n"
        "bool mask(int b, int h, int q, int kv) {\n  float a = as[q], v = vs[kv];\n"
        "  if (b == 0) { float r = a * v + a; int32_t i; __builtin_memcpy(&i, &r, 4); return i >> h & 1; }\n"
        "  if (b == 1) { float r = (a + v) - a; int32_t i; __builtin_memcpy(&i, &r, 4); return i >> h & 1; }\n"
        "  if (b == 2) return a < v;\n  return !(a < v) && !(a >= v);\n}\n",
        *target, NULL);
    const fly_geometry geometry = {FLY_INIT(fly_geometry), .batch = 4, .heads = 32, .len_q = N, .len_kv = N};
    compiled_call call = compiled_bind(&c, (fly_arg[]){FLY_CAPTURE("as", as), FLY_CAPTURE("vs", vs)}, 2, &geometry);
    for (int b = 0; b < 4; b++)
      for (int h = 0; h < (b < 2 ? 31 : 1); h++) { /* a NaN's sign is not the language's business */
        uint64_t bits[N];
        compiled_bits(&call, b, h, 0, 0, bits);
        for (int q = 0; q < N; q++)
          for (int kv = 0; kv < N; kv++) {
            volatile float product = a[q] * v[kv], sum = a[q] + v[kv];
            float r = b == 0 ? product + a[q] : sum - a[q];
            int32_t i;
            memcpy(&i, &r, sizeof i);
            bool wanted = b < 2 ? i >> h & 1 : b == 2 ? a[q] < v[kv] : isnan(v[kv]);
            if (b == 0 || b == 1)
              if (isnan(r)) continue;
            ck_assert_msg((bits[q] >> kv & 1) == wanted, "%s: case %d, bit %d of %a, %a", *target, b, h, a[q], v[kv]);
          }
      }
    compiled_call_free(&call);
    compiled_free(&c);
  }
  fly_buffer_release(&as), fly_buffer_release(&vs);
}
END_TEST

static Suite *suite(void) {
  Suite *s = suite_create("arithmetic");
  TCase *t = tcase_create("arithmetic");
  tcase_add_loop_test(t, integer_operators_are_total, 0, INT_TYPES);
  tcase_add_loop_test(t, division_alone_is_total, 0, 4);
  tcase_add_test(t, float_to_integer_saturates);
  tcase_add_test(t, floats_are_neither_contracted_nor_reordered);
  suite_add_tcase(s, t);
  return s;
}

FLY_TEST_MAIN(suite)
