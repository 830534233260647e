/* Gated sums of attentions on a CUDA device, simulated here: SA, a window, and a part that has some of the rows alone.
 * Outputs and gradients against double precision: attention by the oracle, gates by their formula. */
#include "cuda_call.h"
#include "cuda_kernel.h"
#include "sa/scene.h"

enum { PARTS = 3, BATCH = 2, HEADS = 4, KV_HEADS = 2, N = 150, SOME = 100, D = 32 };

static fly_cuda *cuda;

static void open_device(void) { cuda = cuda_open(); }
static void close_device(void) { fly_cuda_release(&cuda); }

/* Host tensors, and objects that both sides use. */
typedef struct gated_case {
  fly_type type;
  bool by_channel, forget; /* forget: no outputs of the parts' own */
  fly_kernel *kernel[2];   /* of SA's mask, of a window's */
  fly_bound *window;
  fly_sa *sa;
  int32_t some[SOME];
  fly_gated_part parts[PARTS];
  fly_gated_call call;
} gated_case;

static void init_part(gated_case *t, int i) {
  fly_gated_part *p = &t->parts[i];
  fly_attention *a = &p->attention;
  fly_error error;
  *a = (fly_attention){FLY_INIT(fly_attention), .kernel = t->kernel[i > 0]};
  if (i == 0)
    ck_fly_ok(fly_sa_apply(t->sa, a, &error), error);
  else
    a->bound = t->window;
  a->geometry.size = sizeof a->geometry;
  a->geometry.batch = BATCH, a->geometry.heads = HEADS;
  a->geometry.len_q = i == 2 ? SOME : N, a->geometry.len_kv = N;
  if (i == 2) a->geometry.q_rows = (fly_row_map){.rows = t->some};
  if (!t->forget) {
    a->out = scene_tensor(t->type, BATCH, HEADS, N, D, -1);
    a->lse = scene_tensor(FLY_F32, BATCH, HEADS, N, 1, -1);
    if (i == 2) memset(a->lse.data, 0, BATCH * HEADS * N * sizeof(float)); /* rows that it does not write */
  }
  p->gate.logits = scene_tensor(i == 1 ? t->type : FLY_F32, BATCH, HEADS, N, t->by_channel ? D : 1, 20 + i);
  p->gate.d_logits = scene_like(&p->gate.logits, -1);
}

static void init(gated_case *t, fly_type type, bool by_channel, bool forget) {
  fly_error error;
  fly_arg args[] = {FLY_INT("left", 6), FLY_INT("right", 0)};
  *t = (gated_case){.type = type, .by_channel = by_channel, .forget = forget};
  t->kernel[0] = cuda_kernel("stochastic", NULL, type, D, D);
  t->kernel[1] = cuda_kernel("sliding_window", NULL, type, D, D);
  ck_fly_ok(fly_mask_bind(fly_kernel_mask(t->kernel[1]), args, 2, &t->window, &error), error);
  fly_sa_desc d = {FLY_INIT(fly_sa_desc), .left = 9,   .right = 8, .batch = BATCH,
                   .heads = HEADS,        .length = N, .seed = 3,  .per_head = true};
  ck_fly_ok(fly_sa_create(fly_kernel_mask(t->kernel[0]), &d, &t->sa, &error), error);
  for (int i = 0; i < SOME; i++) t->some[i] = i;
  for (int i = 0; i < PARTS; i++) init_part(t, i);
  fly_gated_call *c = &t->call;
  *c = (fly_gated_call){FLY_INIT(fly_gated_call), .parts = t->parts, .count = PARTS};
  c->q = scene_tensor(type, BATCH, HEADS, N, D, 1), c->k = scene_tensor(type, BATCH, KV_HEADS, N, D, 2);
  c->v = scene_tensor(type, BATCH, KV_HEADS, N, D, 3), c->out = scene_like(&c->q, -1), c->d_out = scene_like(&c->q, 5);
  c->d_q = scene_like(&c->q, -1), c->d_k = scene_like(&c->k, -1), c->d_v = scene_like(&c->v, -1);
}

static void finish(gated_case *t) {
  fly_gated_call *c = &t->call;
  fly_tensor *all[] = {&c->q, &c->k, &c->v, &c->out, &c->d_out, &c->d_q, &c->d_k, &c->d_v};
  for (int i = 0; i < 8; i++) scene_free(all[i]);
  for (int i = 0; i < PARTS; i++) {
    fly_gated_part *p = &t->parts[i];
    scene_free(&p->gate.logits), scene_free(&p->gate.d_logits);
    scene_free(&p->attention.out), scene_free(&p->attention.lse);
  }
  fly_sa_release(&t->sa);
  fly_bound_release(&t->window);
  for (int i = 0; i < 2; i++) fly_kernel_release(&t->kernel[i]);
}

/* ---- on the device ----------------------------------------------------------------------------------------------- */

enum { TENSORS = 8 + 4 * PARTS };

static void tensors_of(fly_gated_call *c, fly_gated_part *parts, fly_tensor *all[TENSORS]) {
  fly_tensor *own[] = {&c->q, &c->k, &c->v, &c->out, &c->d_out, &c->d_q, &c->d_k, &c->d_v};
  memcpy(all, own, sizeof own);
  for (int i = 0; i < PARTS; i++) {
    fly_gated_part *p = &parts[i];
    fly_tensor *of_part[] = {&p->attention.out, &p->attention.lse, &p->gate.logits, &p->gate.d_logits};
    memcpy(all + 8 + 4 * i, of_part, sizeof of_part);
  }
}

static void run(gated_case *t, bool backward) {
  fly_gated_part parts[PARTS];
  fly_gated_call call = t->call;
  fly_tensor *host[TENSORS], *device[TENSORS];
  fly_error error;
  memcpy(parts, t->parts, sizeof parts);
  call.parts = parts, call.cuda = cuda;
  tensors_of(&t->call, t->parts, host);
  tensors_of(&call, parts, device);
  for (int i = 0; i < TENSORS; i++) *device[i] = cuda_tensor_put(cuda, host[i]);
  cuda_ok(fly_gated_forward(&call, &error), &error);
  if (backward) cuda_ok(fly_gated_backward(&call, &error), &error);
  cuda_ok(fly_cuda_synchronize(cuda, NULL, &error), &error);
  for (int i = 0; i < TENSORS; i++) cuda_tensor_get(cuda, device[i], host[i]), cuda_tensor_free(cuda, device[i]);
}

/* ---- the reference ----------------------------------------------------------------------------------------------- */

typedef struct part_context {
  const gated_case *t;
  int i;
} part_context;

static bool sees(void *context, int b, int h, int q, int kv) {
  const part_context *x = context;
  if (x->i) return kv <= q && q - kv <= 6;
  const fly_row_map *map = &x->t->parts[0].attention.geometry.q_rows;
  const int32_t *rows = map->rows + b * map->stride_batch + h * map->stride_head;
  return q - kv <= 9 && kv - q <= 8 && rows[kv] <= rows[q];
}

static double gate(const gated_case *t, int i, int64_t b, int64_t h, int64_t s, int64_t d) {
  return 1 / (1 + exp(-oracle_get(&t->parts[i].gate.logits, b, h, s, t->by_channel ? d : 0)));
}

/* The part as a complete attention call. */
static fly_attention part_call(const gated_case *t, int i) {
  fly_attention a = t->parts[i].attention;
  a.q = t->call.q, a.k = t->call.k, a.v = t->call.v;
  if (!a.out.data) a.out = t->call.out;
  return a;
}

/* Its output, by token: zero where it has none; what a kernel may be off by. */
static double (*attend(const gated_case *t, int i, double (*tolerance)[N][D]))[N][D] {
  double(*out)[N][D] = calloc(BATCH * HEADS, sizeof *out);
  part_context context = {t, i};
  fly_attention a = part_call(t, i);
  oracle_row row;
  for (int p = 0; p < BATCH * HEADS; p++)
    for (int64_t r = 0; r < a.geometry.len_q; r++) {
      const fly_row_map *map = &a.geometry.q_rows;
      const int64_t b = p / HEADS, h = p % HEADS;
      const int64_t at = map->rows ? map->rows[b * map->stride_batch + h * map->stride_head + r] : r;
      oracle_attend(&a, sees, &context, b, h, r, &row);
      for (int d = 0; d < D; d++) {
        out[p][at][d] = row.out[d];
        tolerance[p][at][d] = row.tolerance + (t->type == FLY_F32 ? 0 : 0x1p-8 * row.size[d]);
      }
    }
  return out;
}

static void check_forward(const gated_case *t) {
  const double eps = t->type == FLY_F32 ? 0x1p-23 : 0x1p-8;
  double(*want)[N][D] = calloc(BATCH * HEADS, sizeof *want), (*size)[N][D] = calloc(BATCH * HEADS, sizeof *size);
  double(*slack)[N][D] = calloc(BATCH * HEADS, sizeof *slack);
  for (int i = 0; i < PARTS; i++) {
    double(*out)[N][D] = attend(t, i, slack);
    for (int p = 0; p < BATCH * HEADS; p++)
      for (int r = 0; r < N; r++)
        for (int d = 0; d < D; d++) {
          double g = gate(t, i, p / HEADS, p % HEADS, r, d), x = out[p][r][d];
          want[p][r][d] += g * x;
          size[p][r][d] += g * (slack[p][r][d] + 2 * eps * fabs(x)) + 1e-6 * fabs(x);
        }
    memset(slack, 0, BATCH * HEADS * sizeof *slack);
    free(out);
  }
  for (int p = 0; p < BATCH * HEADS; p++)
    for (int r = 0; r < N; r++)
      for (int d = 0; d < D; d++) {
        double got = oracle_get(&t->call.out, p / HEADS, p % HEADS, r, d);
        if (!(fabs(got - want[p][r][d]) <= size[p][r][d]))
          ck_abort_msg("%s: out[%d, %d, %d] is %g, not %g within %g", fly_type_name(t->type), p, r, d, got,
                       want[p][r][d], size[p][r][d]);
      }
  free(want), free(size), free(slack);
}

/* d_logit = g (1 - g) <d_out, out>, from the outputs that the device was given. */
static void check_logits(const gated_case *t, int i) {
  const fly_gate *g = &t->parts[i].gate;
  const fly_tensor *out = &t->parts[i].attention.out;
  const double eps = g->logits.type == FLY_F32 ? 0x1p-23 : 0x1p-8;
  for (int p = 0; p < BATCH * HEADS; p++)
    for (int r = 0; r < N; r++)
      for (int c = 0; c < (t->by_channel ? D : 1); c++) {
        double want = 0, size = 0, x = gate(t, i, p / HEADS, p % HEADS, r, c);
        for (int d = c; d < (t->by_channel ? c + 1 : D); d++) {
          double term = oracle_get(&t->call.d_out, p / HEADS, p % HEADS, r, d) *
                        oracle_get(out, p / HEADS, p % HEADS, r, d) * x * (1 - x);
          want += term, size += fabs(term);
        }
        double got = oracle_get(&g->d_logits, p / HEADS, p % HEADS, r, c);
        ck_assert_msg(fabs(got - want) <=
                          eps * fabs(want) + 2e-6 * size + (g->logits.type == FLY_F16 ? 0x1p-25 : 1e-30),
                      "d_logits %d [%d, %d, %d]: %g, not %g", i, p, r, c, got, want);
      }
}

/* Of all elements, the relative norm of the difference; in f32 also none by more than rounding explains. */
static void check_sum(const gated_case *t, const char *name, const fly_tensor *got, const double *want,
                      double largest) {
  double off = 0, norm = 0, worst = 0;
  const int64_t *s = got->shape;
  for (int64_t i = 0; i < s[0] * s[1] * s[2] * s[3]; i++) {
    int64_t row = i / s[3];
    double x = oracle_get(got, row / s[2] / s[1], row / s[2] % s[1], row % s[2], i % s[3]) - want[i];
    off += x * x, norm += want[i] * want[i], worst = fmax(worst, fabs(x));
  }
  ck_assert_msg(sqrt(off / norm) < (t->type == FLY_F32 ? 2e-6 : 0x1p-7), "%s: relative norm %g", name,
                sqrt(off / norm));
  if (t->type == FLY_F32) ck_assert_msg(worst < 4e-6 * (1 + largest), "%s: %g", name, worst);
}

/* d_q, d_k and d_v are sums of those of the parts, each with its share of d_out. */
static void check_gradients(const gated_case *t) {
  const fly_tensor *got[] = {&t->call.d_q, &t->call.d_k, &t->call.d_v};
  static const char *const names[] = {"d_q", "d_k", "d_v"};
  double *sum[3], largest[3] = {0};
  for (int k = 0; k < 3; k++) sum[k] = calloc((size_t)(BATCH * got[k]->shape[1] * N * D), sizeof *sum[k]);
  for (int i = 0; i < PARTS; i++) {
    fly_attention a = part_call(t, i);
    part_context context = {t, i};
    a.d_out = scene_tensor(FLY_F32, BATCH, HEADS, N, D, -1);
    for (int p = 0; p < BATCH * HEADS * N; p++)
      for (int d = 0; d < D; d++) {
        int64_t b = p / N / HEADS, h = p / N % HEADS;
        oracle_set(&a.d_out, b, h, p % N, d, gate(t, i, b, h, p % N, d) * oracle_get(&t->call.d_out, b, h, p % N, d));
      }
    a.d_q = t->call.d_q, a.d_k = t->call.d_k, a.d_v = t->call.d_v, a.out_rows = a.geometry.q_rows;
    oracle_gradients g = oracle_backward(&a, sees, &context);
    const oracle_gradient *of[] = {&g.q, &g.k, &g.v};
    for (int k = 0; k < 3; k++)
      for (int64_t j = 0; j < BATCH * got[k]->shape[1] * N * D; j++) {
        sum[k][j] += of[k]->value[j];
        largest[k] = fmax(largest[k], fabs(sum[k][j]));
      }
    oracle_gradients_free(&g);
    scene_free(&a.d_out);
  }
  for (int k = 0; k < 3; k++) check_sum(t, names[k], got[k], sum[k], largest[k]), free(sum[k]);
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static const fly_type types[] = {FLY_F32, FLY_F16, FLY_BF16};

START_TEST(outputs_follow_the_formula) {
  for (int by_channel = 0; by_channel < 2; by_channel++)
    for (int forget = 0; forget < 2; forget++) {
      gated_case t;
      init(&t, types[_i], by_channel, forget);
      run(&t, false);
      check_forward(&t);
      finish(&t);
    }
}
END_TEST

START_TEST(gradients_follow_the_formula) {
  for (int by_channel = 0; by_channel < 2; by_channel++) {
    gated_case t;
    init(&t, types[_i], by_channel, false);
    run(&t, true);
    for (int i = 0; i < PARTS; i++) check_logits(&t, i);
    check_gradients(&t);
    finish(&t);
  }
}
END_TEST

START_TEST(misuse_is_refused) {
  gated_case t;
  fly_error error;
  init(&t, FLY_F32, false, true);
  ck_assert_int_eq(fly_gated_forward(&t.call, &error), FLY_ERROR_ARGUMENT);
  ck_assert_msg(strstr(error.message, "cuda is NULL"), "%s", error.message);
  t.call.cuda = cuda;
  ck_assert_int_eq(fly_gated_forward(&t.call, &error), FLY_ERROR_ARGUMENT);
  ck_assert_msg(strstr(error.message, "out.data is not in device memory"), "%s", error.message);
  fly_tensor weight = scene_tensor(FLY_F32, 1, HEADS, 1, 8, 1), x = scene_tensor(FLY_F32, BATCH, 1, N, 8, 1), logits;
  logits = t.parts[0].gate.logits;
  t.parts[0].gate.logits.data = NULL, t.parts[0].gate.weight = weight, t.call.x = x;
  fly_tensor out = t.call.out;
  t.call.out = cuda_tensor_put(cuda, &out);
  ck_assert_int_eq(fly_gated_forward(&t.call, &error), FLY_ERROR_UNSUPPORTED);
  ck_assert_msg(strstr(error.message, "parts[0].gate is projected: on a GPU gates are given as logits"), "%s",
                error.message);
  cuda_tensor_free(cuda, &t.call.out);
  t.call.out = out, t.parts[0].gate.logits = logits;
  scene_free(&weight), scene_free(&x);
  finish(&t);
}
END_TEST

static Suite *make_suite(void) {
  static const char *const names[] = {"gated.fwd.f32", "gated.fwd.f16", "gated.fwd.bf16",
                                      "gated.bwd.f32", "gated.bwd.f16", "gated.bwd.bf16"};
  Suite *suite = suite_create("cuda_gated");
  for (int i = 0; i < 6; i++) {
    TCase *test = tcase_create(names[i]);
    tcase_add_checked_fixture(test, open_device, close_device);
    if (i < 3)
      tcase_add_loop_test(test, outputs_follow_the_formula, i, i + 1);
    else
      tcase_add_loop_test(test, gradients_follow_the_formula, i - 3, i - 2);
    if (i == 0) tcase_add_test(test, misuse_is_refused);
    suite_add_tcase(suite, test);
  }
  return suite;
}

FLY_TEST_MAIN(make_suite)
