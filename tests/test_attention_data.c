/* Attention on real inputs: the carried sample against our own float64 reference, in every type; and, where
 * FLYMASK_TEST_DATA names a larger set (.npy files layer14_q, _k, _v, perm and NAME_out, NAME_lse), against the
 * references that come with it. */
#include "support/call_case.h"

enum { HEADS = 9, KV_HEADS = 3, TOKENS = 2048, SAMPLE_TOKENS = 1024, DIM = 64 };

static const struct reference {
  const char *name, *mask;
  const char *parameter[2];
  int value[2];
  bool permuted;
} references[] = {
    {"full", "causal", {0}, {0}, false},
    {"swa256", "sliding_window", {"left", "right"}, {255, 0}, false},
    {"sa128", "stochastic", {"left", "right"}, {128, 128}, true},
};

/* ---- .npy files, version 1, little-endian, C order ------------------------------------------------------------- */

static void *read_npy(const char *folder, const char *name, const char *type, size_t count, size_t size) {
  char path[1024], header[512];
  unsigned char start[10];
  snprintf(path, sizeof path, "%s/%s.npy", folder, name);
  FILE *file = fopen(path, "rb");
  ck_assert_msg(file != NULL, "cannot open %s", path);
  ck_assert_int_eq(fread(start, 1, 10, file), 10);
  size_t length = start[8] + 256u * start[9];
  ck_assert_uint_lt(length, sizeof header);
  ck_assert_uint_eq(fread(header, 1, length, file), length);
  header[length] = 0;
  ck_assert_msg(strstr(header, type) && strstr(header, "'fortran_order': False"), "%s: %s", path, header);
  void *data = malloc(count * size);
  ck_assert_uint_eq(fread(data, size, count, file), count);
  fclose(file);
  return data;
}

static float *read_halves(const char *folder, const char *name, size_t count) {
  uint16_t *halves = read_npy(folder, name, "'<f2'", count, 2);
  float *out = malloc(count * sizeof *out);
  for (size_t i = 0; i < count; i++) out[i] = (float)test_from_f16(halves[i]);
  free(halves);
  return out;
}

/* ---- the call -------------------------------------------------------------------------------------------------- */

typedef struct inputs {
  int64_t tokens;
  float *q, *k, *v, *out, *lse; /* [1, heads, tokens, DIM]; the files' f16 values */
  int32_t *perm;
} inputs;

static inputs read_inputs(const char *folder, const char *prefix, int64_t tokens) {
  char name[3][64];
  for (int i = 0; i < 3; i++) snprintf(name[i], sizeof name[i], "%s%c", prefix, "qkv"[i]);
  return (inputs){.tokens = tokens,
                  .q = read_halves(folder, name[0], HEADS * tokens * DIM),
                  .k = read_halves(folder, name[1], KV_HEADS * tokens * DIM),
                  .v = read_halves(folder, name[2], KV_HEADS * tokens * DIM),
                  .out = malloc(HEADS * tokens * DIM * sizeof(float)),
                  .lse = malloc(HEADS * tokens * sizeof(float)),
                  .perm = read_npy(folder, "perm", "'<i4'", tokens, 4)};
}

static void free_inputs(inputs *in) {
  free(in->q), free(in->k), free(in->v), free(in->out), free(in->lse), free(in->perm);
}

static fly_attention make_call(inputs *in, const struct reference *r) {
  int64_t n = in->tokens;
  fly_attention call = {FLY_INIT(fly_attention), .scale = 0.125f};
  call.q = fly_tensor_dense(in->q, FLY_F32, 1, HEADS, n, DIM);
  call.k = fly_tensor_dense(in->k, FLY_F32, 1, KV_HEADS, n, DIM);
  call.v = fly_tensor_dense(in->v, FLY_F32, 1, KV_HEADS, n, DIM);
  call.out = fly_tensor_dense(in->out, FLY_F32, 1, HEADS, n, DIM);
  call.lse = fly_tensor_dense(in->lse, FLY_F32, 1, HEADS, n, 1);
  call.geometry = (fly_geometry){FLY_INIT(fly_geometry), .batch = 1, .heads = HEADS, .len_q = n, .len_kv = n};
  if (r->permuted) call.geometry.q_rows.rows = call.geometry.kv_rows.rows = in->perm;
  return call;
}

/* Compiles the reference's mask for the target and runs the call. */
static void run(fly_attention *call, const struct reference *r, const char *target) {
  fly_compile_options options = {FLY_INIT(fly_compile_options), .target = target};
  fly_kernel_desc desc = {FLY_INIT(fly_kernel_desc), call->q.type, DIM, DIM, NULL};
  fly_error error;
  fly_mask *mask;
  fly_bound *bound;
  fly_kernel *kernel;
  fly_arg args[2];
  char path[512];
  int count = 0;
  for (; count < 2 && r->parameter[count]; count++) args[count] = FLY_INT(r->parameter[count], r->value[count]);
  snprintf(path, sizeof path, "%s/masks/%s.c", FLYMASK_SOURCE, r->mask);
  ck_fly_ok(fly_mask_compile_file(path, &options, &mask, &error), error);
  ck_fly_ok(fly_mask_bind(mask, args, count, &bound, &error), error);
  ck_fly_ok(fly_kernel_create(mask, &desc, &kernel, &error), error);
  call->kernel = kernel, call->bound = bound;
  ck_fly_ok(fly_attention_forward(call, &error), error);
  fly_kernel_release(&kernel), fly_bound_release(&bound), fly_mask_release(&mask);
}

/* The largest difference, and the Frobenius norm of the difference over the reference's. */
static void compare(const float *got, const float *want, size_t count, double *most, double *relative) {
  double difference = 0, norm = 0;
  *most = 0;
  for (size_t i = 0; i < count; i++) {
    double d = (double)got[i] - want[i];
    if (!(fabs(d) <= *most)) *most = fabs(d);
    difference += d * d, norm += (double)want[i] * want[i];
  }
  *relative = sqrt(difference / norm);
}

START_TEST(f32_agrees_with_the_references) {
  const char *folder = getenv("FLYMASK_TEST_DATA");
  if (!folder) {
    puts("SKIPPED: set FLYMASK_TEST_DATA to compare with the references of a larger set");
    return;
  }
  const struct reference *r = &references[_i];
  char name[64];
  snprintf(name, sizeof name, "%s_out", r->name);
  float *out = read_npy(folder, name, "'<f4'", HEADS * TOKENS * DIM, 4);
  snprintf(name, sizeof name, "%s_lse", r->name);
  float *lse = read_npy(folder, name, "'<f4'", HEADS * TOKENS, 4);
  CALL_FOR_TARGETS(target) {
    inputs in = read_inputs(folder, "layer14_", TOKENS);
    fly_attention call = make_call(&in, r);
    double most, relative, lse_most, lse_relative;
    run(&call, r, target);
    compare(in.out, out, HEADS * TOKENS * DIM, &most, &relative);
    compare(in.lse, lse, HEADS * TOKENS, &lse_most, &lse_relative);
    printf("%s on %s: out within %.2g, relative %.2g, lse within %.2g\n", r->name, target, most, relative, lse_most);
    ck_assert_msg(most <= 2e-5 && relative <= 1e-6 && lse_most <= 2e-5, "%s on %s: %g, %g, %g", r->name, target, most,
                  relative, lse_most);
    free_inputs(&in);
  }
  free(out), free(lse);
}
END_TEST

/* ---- the sample, against our own reference, on some rows ------------------------------------------------------- */

typedef struct token_mask {
  const struct reference *reference;
  const int32_t *perm;
} token_mask;

static bool see_reference(void *context, int b, int h, int q, int kv) {
  const token_mask *m = context;
  (void)b, (void)h;
  if (m->reference->permuted) return abs(q - kv) <= 128 && m->perm[kv] <= m->perm[q];
  return kv <= q && (m->reference->value[0] == 0 || q - kv <= m->reference->value[0]);
}

/* A copy in another type. */
static fly_tensor convert(const fly_tensor *from, fly_type type) {
  fly_tensor to = *from;
  to.type = type, to.data = malloc(from->shape[1] * from->shape[2] * DIM * fly_type_size(type));
  for (int64_t h = 0; h < from->shape[1]; h++)
    for (int64_t s = 0; s < from->shape[2]; s++)
      for (int64_t d = 0; d < DIM; d++) oracle_set(&to, 0, h, s, d, oracle_get(from, 0, h, s, d));
  return to;
}

START_TEST(the_sample_agrees_with_the_oracle) {
  static const fly_type types[] = {FLY_F32, FLY_F16, FLY_BF16};
  static const double half_place[] = {0x1p-24, 0x1p-11, 0x1p-8};
  const struct reference *r = &references[_i % 3];
  fly_type type = types[_i / 3];
  double p_rounding = type == FLY_BF16 && strstr(fly_cpu_targets()[0], "bf16") ? 0x1p-8 : 0; /* of the default target */
  inputs in = read_inputs(FLYMASK_SOURCE "/tests/data/sample", "", SAMPLE_TOKENS);
  fly_attention call = make_call(&in, r);
  call.q = convert(&call.q, type), call.k = convert(&call.k, type), call.v = convert(&call.v, type);
  call.out = convert(&call.out, type);
  run(&call, r, NULL);
  token_mask mask = {r, in.perm};
  for (int64_t row = 0; row < SAMPLE_TOKENS; row += 31) {
    oracle_row want;
    int64_t h = row % HEADS, at = r->permuted ? in.perm[row] : row;
    oracle_attend(&call, see_reference, &mask, 0, h, row, &want);
    for (int64_t d = 0; d < DIM; d++) {
      double got = oracle_get(&call.out, 0, h, at, d);
      double bound = want.tolerance + half_place[_i / 3] * fabs(want.out[d]) + 0x1p-25 + p_rounding * want.size[d];
      if (!(fabs(got - want.out[d]) <= bound)) ck_abort_msg("row %d: %g, not %g", (int)row, got, want.out[d]);
    }
    ck_assert(fabs(in.lse[h * SAMPLE_TOKENS + at] - want.lse) <= want.lse_tolerance);
  }
  free(call.q.data), free(call.k.data), free(call.v.data), free(call.out.data);
  free_inputs(&in);
}
END_TEST

static Suite *make_suite(void) {
  Suite *suite = suite_create("attention_data");
  TCase *sample = tcase_create("sample"), *larger = tcase_create("references");
  tcase_add_loop_test(sample, the_sample_agrees_with_the_oracle, 0, 9);
  tcase_add_loop_test(larger, f32_agrees_with_the_references, 0, 3);
  suite_add_tcase(suite, sample);
  suite_add_tcase(suite, larger);
  return suite;
}

FLY_TEST_MAIN(make_suite)
