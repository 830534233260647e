/* The meaning of a compiled mask is what flymask/mask.h says of buffers, locals, loops and the call: on every vector
 * level, with both loaders. (Of arithmetic: test_arithmetic.c.) */
#include "compiled.h"

#include <inttypes.h>

enum { N = FLYI_BLOCK };

/* ---- buffers, tables, locals ------------------------------------------------------------------------------------- */

static int64_t clamp64(int64_t i, int64_t count) { return i < 0 ? 0 : i >= count ? count - 1 : i; }

START_TEST(indices_are_clamped) {
  static const char source[] =
      "#include <flymask/mask.h>\nFLY_BUFFER(int32_t, data, 1);\nFLY_BUFFER(uint8_t, grid, 2);\n"
      "static const short table[5] = {1, 0, -7, 0, 3};\n"
      "bool mask(int b, int h, int q, int kv) {\n"
      "  int local[3] = {q, kv, q - kv};\n"
      "  switch (b) {\n"
      "  case 0: return data[q - 30] == data[kv - 30];\n"
      "  case 1: return fly_at2(grid, q - 20, kv - 20) != 0;\n"
      "  case 2: return table[q - 20] == table[kv - 20];\n"
      "  case 3: return local[q - kv] == kv;\n"
      "  default: return data[(int64_t)q * 0x4000000000 - 1] == data[-(int64_t)kv * 0x4000000000];\n"
      "  }\n}\n";
  enum { COUNT = 11, ROWS = 5, COLUMNS = 7 };
  static const int16_t table[5] = {1, 0, -7, 0, 3};
  int32_t data[COUNT];
  uint8_t grid[ROWS * COLUMNS];
  test_random random = {11};
  for (int i = 0; i < COUNT; i++) data[i] = (int32_t)test_range(&random, 0, 3);
  for (int i = 0; i < ROWS * COLUMNS; i++) grid[i] = (uint8_t)test_range(&random, 0, 1);
  fly_error error = {0};
  fly_buffer *d, *g;
  ck_fly_ok(fly_buffer_create(FLY_I32, 1, (int64_t[]){COUNT}, data, &d, &error), error);
  ck_fly_ok(fly_buffer_create(FLY_U8, 2, (int64_t[]){ROWS, COLUMNS}, grid, &g, &error), error);
  for (const char *const *target = fly_cpu_targets(); *target; target++) {
    compiled c = compiled_from(source, *target, NULL);
    const fly_geometry geometry = {FLY_INIT(fly_geometry), .batch = 5, .heads = 1, .len_q = N, .len_kv = N};
    compiled_call call = compiled_bind(&c, (fly_arg[]){FLY_CAPTURE("data", d), FLY_CAPTURE("grid", g)}, 2, &geometry);
    for (int b = 0; b < 5; b++) {
      uint64_t bits[N];
      compiled_bits(&call, b, 0, 0, 0, bits);
      for (int64_t q = 0; q < N; q++)
        for (int64_t kv = 0; kv < N; kv++) {
          const int64_t local[3] = {q, kv, q - kv};
          int64_t flat = (q - 20) * COLUMNS + kv - 20;
          bool wanted = b == 0   ? data[clamp64(q - 30, COUNT)] == data[clamp64(kv - 30, COUNT)]
                        : b == 1 ? grid[clamp64(flat, ROWS * COLUMNS)] != 0
                        : b == 2 ? table[clamp64(q - 20, 5)] == table[clamp64(kv - 20, 5)]
                        : b == 3 ? local[clamp64(q - kv, 3)] == kv
                                 : data[q == 0 ? 0 : COUNT - 1] == data[0];
          ck_assert_msg((bits[q] >> kv & 1) == wanted, "%s: case %d at %d, %d", *target, b, (int)q, (int)kv);
        }
    }
    compiled_call_free(&call);
    compiled_free(&c);
  }
  fly_buffer_release(&d), fly_buffer_release(&g);
}
END_TEST

/* All element types, with the buffer's memory between inaccessible pages: nothing outside is read. */
START_TEST(nothing_outside_a_buffer_is_read) {
  static const struct {
    const char *name;
    fly_type type;
  } types[] = {{"bool", FLY_BOOL},    {"int8_t", FLY_I8},   {"uint8_t", FLY_U8},   {"int16_t", FLY_I16},
               {"uint16_t", FLY_U16}, {"int32_t", FLY_I32}, {"uint32_t", FLY_U32}, {"int64_t", FLY_I64},
               {"uint64_t", FLY_U64}, {"float", FLY_F32}};
  size_t size = fly_type_size(types[_i].type);
  enum { COUNT = 37 };
  for (const char *const *target = fly_cpu_targets(); *target; target++) {
    char source[512];
    snprintf(source, sizeof source,
             "#include <flymask/mask.h>\nFLY_BUFFER(%s, v, 1);\n"
             "bool mask(int b, int h, int q, int kv) { return b ? v[q] == v[kv] : v[q * 3 - kv] == v[kv - q]; }\n",
             types[_i].name);
    compiled c = compiled_from(source, *target, NULL);
    for (int front = 0; front < 2; front++) {
      fly_error error = {0};
      fly_buffer *buffer;
      char *guarded = guard_alloc(COUNT * size, size, front);
      for (size_t i = 0; i < COUNT * size; i++) guarded[i] = i % size == 0 ? (char)(i / size % 5 == 1) : 0;
      ck_fly_ok(fly_buffer_create(types[_i].type, 1, (int64_t[]){COUNT}, guarded, &buffer, &error), error);
      void *own = buffer->data;
      buffer->data = guarded; /* the library's copy has slack behind it; this has none */
      const fly_geometry geometry = {FLY_INIT(fly_geometry), .batch = 2, .heads = 1, .len_q = COUNT, .len_kv = COUNT};
      compiled_call call = compiled_bind(&c, (fly_arg[]){FLY_CAPTURE("v", buffer)}, 1, &geometry);
      for (int b = 0; b < 2; b++) {
        uint64_t bits[N];
        compiled_bits(&call, b, 0, 0, 0, bits);
        for (int q = 0; q < N; q++)
          for (int kv = 0; kv < N; kv++) {
            int64_t i = clamp64(b ? q : q * 3 - kv, COUNT), j = clamp64(b ? kv : kv - q, COUNT);
            ck_assert_int_eq(bits[q] >> kv & 1, (i % 5 == 1) == (j % 5 == 1));
          }
      }
      compiled_call_free(&call);
      buffer->data = own;
      fly_buffer_release(&buffer);
      guard_free(guarded);
    }
    compiled_free(&c);
  }
}
END_TEST

START_TEST(an_empty_buffer_reads_0_and_has_dimension_0) {
  fly_error error = {0};
  for (const char *const *target = fly_cpu_targets(); *target; target++) {
    compiled c = compiled_from("#include <flymask/mask.h>\nFLY_BUFFER(int64_t, v, 1);\nFLY_BUFFER(uint8_t, g, 3);\n"
                               "bool mask(int b, int h, int q, int kv) {\n  if (b == 1) return fly_dim(g, 0) + 2 * "
                               "fly_dim(g, 1) + 4 * fly_dim(g, 2) == kv;\n"
                               "  return v[q] == 0 && fly_at3(g, q, kv, h) == 0 && fly_dim(v, 0) == 0;\n}\n",
                               *target, NULL);
    fly_buffer *v, *g;
    ck_fly_ok(fly_buffer_create(FLY_I64, 1, (int64_t[]){0}, NULL, &v, &error), error);
    ck_fly_ok(fly_buffer_create(FLY_U8, 3, (int64_t[]){5, 0, 9}, NULL, &g, &error), error);
    const fly_geometry geometry = {FLY_INIT(fly_geometry), .batch = 2, .heads = 4, .len_q = 64, .len_kv = 64};
    compiled_call call = compiled_bind(&c, (fly_arg[]){FLY_CAPTURE("v", v), FLY_CAPTURE("g", g)}, 2, &geometry);
    uint64_t bits[N];
    compiled_bits(&call, 0, 0, 0, 0, bits);
    for (int q = 0; q < N; q++) ck_assert_uint_eq(bits[q], UINT64_MAX);
    compiled_bits(&call, 1, 0, 0, 0, bits);
    for (int q = 0; q < N; q++) ck_assert_uint_eq(bits[q], (uint64_t)1 << 41);
    compiled_call_free(&call);
    fly_buffer_release(&v), fly_buffer_release(&g);
    compiled_free(&c);
  }
}
END_TEST

START_TEST(parameters_of_every_type_reach_the_code) {
  static const char source[] =
      "#include <flymask/mask.h>\nFLY_PARAM(bool, p0, false);\nFLY_PARAM(int8_t, p1, 0);\nFLY_PARAM(uint8_t, p2, 0);\n"
      "FLY_PARAM(int16_t, p3, 0);\nFLY_PARAM(uint16_t, p4, 0);\nFLY_PARAM(int32_t, p5, 0);\nFLY_PARAM(uint32_t, p6, "
      "0);\n"
      "FLY_PARAM(int64_t, p7, 0);\nFLY_PARAM(uint64_t, p8, 0);\nFLY_PARAM(float, p9, 0);\nFLY_PARAM(double, p10, 0);\n"
      "bool mask(int b, int h, int q, int kv) {\n  int64_t z = b == 0 ? p0 : b == 1 ? p1 : b == 2 ? p2 : b == 3 ? p3\n"
      "    : b == 4 ? p4 : b == 5 ? p5 : b == 6 ? (int64_t)p6 : b == 7 ? p7 : b == 8 ? (int64_t)p8\n"
      "    : b == 9 ? (int64_t)(p9 * 4) : (int64_t)(p10 * 4);\n  return (uint64_t)z >> kv & 1;\n}\n";
  static const int64_t values[2][9] = {{1, -100, 200, -30000, 60000, -2000000000, 4000000000, INT64_MIN + 5, -3},
                                       {0, 100, 7, 30000, 3, 2000000000, 5, INT64_MAX - 5, 12345678901}};
  for (const char *const *target = fly_cpu_targets(); *target; target++) {
    for (int baked = 0; baked < 2; baked++) {
      for (int set = 0; set < 2; set++) {
        fly_arg args[11];
        static char names[11][16];
        for (int i = 0; i < 11; i++) {
          snprintf(names[i], sizeof names[i], "p%d", i);
          args[i] = i < 9 ? FLY_INT(names[i], values[set][i]) : FLY_REAL(names[i], set ? -2.25 : 1234.5);
        }
        const fly_compile_options options = {FLY_INIT(fly_compile_options), .bake = args, .bake_count = 11};
        compiled c = compiled_from(source, *target, baked ? &options : NULL);
        const fly_geometry geometry = {FLY_INIT(fly_geometry), .batch = 11, .heads = 1, .len_q = 1, .len_kv = 64};
        compiled_call call = compiled_bind(&c, args, 11, &geometry);
        for (int b = 0; b < 11; b++) {
          uint64_t bits[N], wanted = (uint64_t)(b < 9 ? values[set][b] : set ? -9 : 4938);
          compiled_bits(&call, b, 0, 0, 0, bits);
          for (int r = 0; r < N; r++)
            ck_assert_msg(bits[r] == wanted, "%s, baked %d: p%d is %" PRIx64 ", expected %" PRIx64, *target, baked, b,
                          bits[r], wanted);
        }
        compiled_call_free(&call);
        compiled_free(&c);
      }
    }
  }
}
END_TEST

/* ---- loops and locals -------------------------------------------------------------------------------------------- */

START_TEST(a_loop_ends_after_65536_rounds_with_false) {
  for (const char *const *target = fly_cpu_targets(); *target; target++) {
    compiled c = compiled_from("#include <flymask/mask.h>\nFLY_PARAM(int, n, 0);\n"
                               "bool mask(int b, int h, int q, int kv) {\n"
                               "  if (kv > 0 || q > 0) return true;\n  unsigned x = 1;\n"
                               "  for (int i = 0; i < n; i++) x = x * 1664525u + 1013904223u;\n"
                               "  return b ? x == 1 : true;\n}\n",
                               *target, NULL);
    static const struct {
      int n;
      bool answer;
    } cases[] = {{0, true}, {1, true}, {65535, true}, {65536, true}, {65537, false}, {INT32_MAX, false}};
    const fly_geometry geometry = {FLY_INIT(fly_geometry), .batch = 1, .heads = 1, .len_q = 64, .len_kv = 64};
    for (int i = 0; i < 6; i++) {
      compiled_call call = compiled_bind(&c, (fly_arg[]){FLY_INT("n", cases[i].n)}, 1, &geometry);
      uint64_t bits[N];
      compiled_bits(&call, 0, 0, 0, 0, bits);
      ck_assert_msg((bits[0] & 1) == cases[i].answer, "%s: %d rounds", *target, cases[i].n);
      ck_assert_uint_eq(bits[0] | 1, UINT64_MAX);
      ck_assert_uint_eq(bits[63], UINT64_MAX);
      compiled_call_free(&call);
    }
    compiled_free(&c);
  }
}
END_TEST

/* The number of steps of Collatz' sequence, which no optimiser finds a formula for. */
static int collatz(unsigned x) {
  int steps = 0;
  while (x > 1 && steps < 1000) x = x % 2 ? 3 * x + 1 : x / 2, steps++;
  return steps;
}

START_TEST(loops_with_data_dependent_ends_work) {
  for (const char *const *target = fly_cpu_targets(); *target; target++) {
    compiled c = compiled_from(
        "#include <flymask/mask.h>\n"
        "static int steps_of(unsigned x) {\n  int steps = 0;\n"
        "  while (x > 1 && steps < 1000) { x = x % 2 ? 3 * x + 1 : x / 2; steps++; }\n  return steps;\n}\n"
        "bool mask(int b, int h, int q, int kv) { return steps_of(q + kv) > steps_of(q ^ kv); }\n",
        *target, NULL);
    const fly_geometry geometry = {FLY_INIT(fly_geometry), .batch = 1, .heads = 1, .len_q = 64, .len_kv = 64};
    compiled_call call = compiled_bind(&c, NULL, 0, &geometry);
    uint64_t bits[N];
    compiled_bits(&call, 0, 0, 0, 0, bits);
    for (int q = 0; q < N; q++)
      for (int kv = 0; kv < N; kv++)
        ck_assert_int_eq(bits[q] >> kv & 1, collatz((unsigned)(q + kv)) > collatz((unsigned)(q ^ kv)));
    compiled_call_free(&call);
    compiled_free(&c);
  }
}
END_TEST

/* Arrays that are filled and cleared by loops: LLVM makes memset and memcpy of them. */
START_TEST(local_arrays_work_and_start_at_0) {
  for (const char *const *target = fly_cpu_targets(); *target; target++) {
    compiled c = compiled_from("#include <flymask/mask.h>\nFLY_PARAM(int, n, 100);\n"
                               "bool mask(int b, int h, int q, int kv) {\n  unsigned char seen[256], copy[256];\n"
                               "  for (int i = 0; i < n; i++) seen[i] = (unsigned char)q;\n"
                               "  for (int i = 0; i < n; i++) copy[i] = seen[i];\n"
                               "  copy[q] += 1;\n  return copy[kv] != seen[kv + h];\n}\n",
                               *target, NULL);
    const fly_geometry geometry = {FLY_INIT(fly_geometry), .batch = 1, .heads = 200, .len_q = 64, .len_kv = 64};
    for (int n = 0; n <= 256; n += 32) {
      compiled_call call = compiled_bind(&c, (fly_arg[]){FLY_INT("n", n)}, 1, &geometry);
      for (int h = 0; h < 200; h += 50) {
        uint64_t bits[N];
        compiled_bits(&call, 0, h, 0, 0, bits);
        for (int q = 0; q < N; q++)
          for (int kv = 0; kv < N; kv++) {
            int copy = (kv < n ? q : 0) + (kv == q), seen = kv + h < n ? q : 0;
            ck_assert_msg((bits[q] >> kv & 1) == (copy != seen), "%s: n %d, h %d, q %d, kv %d", *target, n, h, q, kv);
          }
      }
      compiled_call_free(&call);
    }
    compiled_free(&c);
  }
}
END_TEST

/* ---- the call: tokens, lengths, positions ------------------------------------------------------------------------ */

static const char call_source[] =
    "#include <flymask/mask.h>\n"
    "FLY_PARAM(int, what, 0);\n"
    "bool mask(int b, int h, int q, int kv) {\n"
    "  int z = what == 0 ? fly_token_q(b, h, q) : what == 1 ? fly_token_kv(b, h, kv)\n"
    "        : what == 2 ? fly_len_q(b) : what == 3 ? fly_len_kv(b)\n"
    "        : what == 4 ? fly_token_q(b, h, kv - 40) : fly_token_kv(b + 1, h - 1, q * 3);\n"
    "  return z > (kv ^ q) * 2 - 30;\n}\n";

typedef struct context {
  int64_t batch, heads, len_q, len_kv, offset;
  const int32_t *cu_q, *cu_kv, *q_rows, *kv_rows;
  int64_t q_strides[2], kv_strides[2];
} context;

/* mask.h: "With a row map, the index the map holds for that row (counted from the start of the sequence, plus
 * q_offset for queries); without one, q and kv themselves. b, h and the row are clamped to the call's." */
static int64_t token(const context *x, bool query, int64_t b, int64_t h, int64_t position) {
  const int32_t *cu = query ? x->cu_q : x->cu_kv, *rows = query ? x->q_rows : x->kv_rows;
  const int64_t *strides = query ? x->q_strides : x->kv_strides;
  int64_t offset = query ? x->offset : 0;
  b = clamp64(b, x->batch), h = clamp64(h, x->heads);
  int64_t start = cu ? cu[b] : 0, length = cu ? cu[b + 1] - cu[b] : query ? x->len_q : x->len_kv;
  if (length == 0) return offset;
  int64_t row = start + clamp64(position - offset, length);
  return (rows ? rows[b * strides[0] + h * strides[1] + row] : row) - start + offset;
}

static int64_t length(const context *x, bool query, int64_t b) {
  const int32_t *cu = query ? x->cu_q : x->cu_kv;
  b = clamp64(b, x->batch);
  return cu ? cu[b + 1] - cu[b] : query ? x->len_q : x->len_kv;
}

static void check_context(const compiled *c, const context *x, const char *target) {
  const fly_geometry geometry = {FLY_INIT(fly_geometry),
                                 .batch = x->batch,
                                 .heads = x->heads,
                                 .len_q = x->len_q,
                                 .len_kv = x->len_kv,
                                 .q_offset = x->offset,
                                 .q_rows = {x->q_rows, x->q_strides[0], x->q_strides[1]},
                                 .kv_rows = {x->kv_rows, x->kv_strides[0], x->kv_strides[1]},
                                 .cu_seqlens_q = x->cu_q,
                                 .cu_seqlens_kv = x->cu_kv};
  for (int what = 0; what < 6; what++) {
    compiled_call call = compiled_bind(c, (fly_arg[]){FLY_INT("what", what)}, 1, &geometry);
    for (int b = 0; b < x->batch; b++)
      for (int h = 0; h < x->heads; h++) {
        uint64_t bits[N];
        int q0 = (int)x->offset;
        compiled_bits(&call, b, h, q0, 0, bits);
        for (int r = 0; r < N && r < length(x, true, b); r++)
          for (int kv = 0; kv < N && kv < length(x, false, b); kv++) {
            int q = q0 + r;
            int64_t z = what == 0   ? token(x, true, b, h, q)
                        : what == 1 ? token(x, false, b, h, kv)
                        : what == 2 ? length(x, true, b)
                        : what == 3 ? length(x, false, b)
                        : what == 4 ? token(x, true, b, h, kv - 40)
                                    : token(x, false, b + 1, h - 1, q * 3);
            ck_assert_msg((bits[r] >> kv & 1) == (z > (kv ^ q) * 2 - 30), "%s: what %d at b %d h %d q %d kv %d: z %d",
                          target, what, b, h, q, kv, (int)z);
          }
      }
    compiled_call_free(&call);
  }
}

START_TEST(tokens_and_lengths_follow_the_call) {
  enum { BATCH = 3, HEADS = 2, LEN_Q = 50, LEN_KV = 61, TOTAL = 120 };
  static int32_t rows_q[BATCH * HEADS * TOTAL], rows_kv[BATCH * HEADS * TOTAL];
  static const int32_t cu_q[] = {0, 40, 40, 90}, cu_kv[] = {0, 33, 70, TOTAL};
  test_random random = {23};
  for (int i = 0; i < BATCH * HEADS * TOTAL; i++)
    rows_q[i] = (int32_t)test_range(&random, 0, 99), rows_kv[i] = (int32_t)test_range(&random, 0, 99);
  const context plain = {.batch = BATCH, .heads = HEADS, .len_q = LEN_Q, .len_kv = LEN_KV};
  context cases[8];
  for (int i = 0; i < 8; i++) cases[i] = plain;
  cases[1].offset = LEN_KV - LEN_Q;
  cases[2].q_rows = rows_q, cases[2].q_strides[0] = HEADS * TOTAL, cases[2].q_strides[1] = TOTAL;
  cases[3] = cases[2], cases[3].kv_rows = rows_kv, cases[3].kv_strides[1] = TOTAL, cases[3].offset = -17;
  cases[4].kv_rows = rows_kv, cases[4].offset = 1000;
  cases[5].cu_q = cu_q, cases[5].cu_kv = cu_kv;
  cases[6] = cases[5], cases[6].q_rows = rows_q, cases[6].q_strides[1] = TOTAL, cases[6].offset = 9;
  cases[7] = cases[6], cases[7].kv_rows = rows_kv, cases[7].kv_strides[0] = TOTAL;
  for (const char *const *target = fly_cpu_targets(); *target; target++) {
    compiled c = compiled_from(call_source, *target, NULL);
    ck_assert(c.mask->info.reads_token_q && c.mask->info.reads_token_kv && c.mask->info.reads_len_q);
    ck_assert(c.mask->info.reads_b && c.mask->info.reads_h && c.mask->info.reads_len_kv);
    for (int i = 0; i < 8; i++) check_context(&c, &cases[i], *target);
    compiled_free(&c);
  }
}
END_TEST

START_TEST(blocks_may_start_anywhere) {
  for (const char *const *target = fly_cpu_targets(); *target; target++) {
    compiled c = compiled_from("#include <flymask/mask.h>\nbool mask(int b, int h, int q, int kv) {\n"
                               "  return (uint32_t)q * 3u + (uint32_t)kv * 7u + b + h & 4u;\n}\n",
                               *target, NULL);
    const fly_geometry geometry = {FLY_INIT(fly_geometry), .batch = 9, .heads = 9, .len_q = 10, .len_kv = 10};
    compiled_call call = compiled_bind(&c, NULL, 0, &geometry);
    static const int32_t starts[] = {0, 64, -64, -1, 1, 12345, INT32_MAX - 63, INT32_MAX - 5, INT32_MIN, INT32_MIN + 1};
    for (int i = 0; i < 10; i++)
      for (int j = 0; j < 10; j++) {
        uint64_t bits[N];
        compiled_bits(&call, i % 9, j % 9, starts[i], starts[j], bits);
        for (uint32_t r = 0; r < N; r++)
          for (uint32_t k = 0; k < N; k++) {
            uint32_t z = ((uint32_t)starts[i] + r) * 3u + ((uint32_t)starts[j] + k) * 7u + (uint32_t)(i % 9 + j % 9);
            ck_assert_int_eq(bits[r] >> k & 1, (z & 4u) != 0);
          }
      }
    compiled_call_free(&call);
    compiled_free(&c);
  }
}
END_TEST

static Suite *suite(void) {
  Suite *s = suite_create("semantics");
  TCase *memory = tcase_create("memory"), *control = tcase_create("control");
  tcase_add_test(memory, indices_are_clamped);
  tcase_add_loop_test(memory, nothing_outside_a_buffer_is_read, 0, 10);
  tcase_add_test(memory, an_empty_buffer_reads_0_and_has_dimension_0);
  tcase_add_test(memory, parameters_of_every_type_reach_the_code);
  tcase_add_test(memory, local_arrays_work_and_start_at_0);
  suite_add_tcase(s, memory);
  tcase_add_test(control, a_loop_ends_after_65536_rounds_with_false);
  tcase_add_test(control, loops_with_data_dependent_ends_work);
  tcase_add_test(control, tokens_and_lengths_follow_the_call);
  tcase_add_test(control, blocks_may_start_anywhere);
  suite_add_tcase(s, control);
  return s;
}

FLY_TEST_MAIN(suite)
