/* Gated sums of attentions on a CUDA device, simulated here: SA, a window, and a part that has some of the rows alone,
 * with logits that are given or projected. Outputs and gradients against double precision: attention by the oracle,
 * gates by their formula. */
#include "cuda_case.h"
#include "oracle_backward.h"
#include "scene_tensors.h"

enum { PARTS = 3, BATCH = 2, HEADS = 4, KV_HEADS = 2, N = 150, SOME = 100, D = 32, WIDTH = 70 };

static fly_cuda *cuda; /* NULL: images are packed, nothing runs */

static void open_device(void) { cuda = cuda_open_to_run(); }
static void close_device(void) { fly_cuda_release(&cuda); }

/* Host tensors, and objects that both sides use. */
typedef struct gated_case {
  fly_type type;
  bool by_channel, forget; /* forget: no outputs of the parts' own */
  bool projected;          /* all logits but those of part 1 */
  fly_kernel *kernel[2];   /* of SA's mask, of a window's */
  fly_bound *window;
  fly_sa *sa;
  int32_t some[SOME];
  fly_gated_part parts[PARTS];
  fly_gated_call call;
} gated_case;

/* A part of a larger tensor: rows, heads and entries are farther apart than they are long. */
static fly_tensor padded(fly_type type, int64_t batch, int64_t heads, int64_t rows, int64_t dim, int seed) {
  fly_tensor x = scene_tensor(type, batch, heads, rows + 3, dim + 5, seed);
  x.shape[2] = rows, x.shape[3] = dim;
  return x;
}

static void init_gate(gated_case *t, int i, fly_gate *g) {
  const int64_t channels = t->by_channel ? D : 1;
  if (!t->projected || i == 1) {
    g->logits = scene_tensor(i == 1 ? t->type : FLY_F32, BATCH, HEADS, N, channels, 20 + i);
    g->d_logits = scene_like(&g->logits, -1);
    return;
  }
  g->weight = padded(i ? t->type : FLY_F32, 1, HEADS, channels, WIDTH, 30 + i);
  for (int64_t h = 0; h < HEADS; h++) /* logits of about 1 */
    for (int64_t c = 0; c < channels; c++)
      for (int64_t k = 0; k < WIDTH; k++)
        oracle_set(&g->weight, 0, h, c, k, oracle_get(&g->weight, 0, h, c, k) / sqrt(WIDTH));
  g->d_weight = padded(g->weight.type, 1, HEADS, channels, WIDTH, -1);
  if (i) return; /* the others without a bias */
  g->bias = scene_tensor(t->type, 1, HEADS, channels, 1, 40 + i);
  g->d_bias = scene_like(&g->bias, -1);
}

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
  init_gate(t, i, &p->gate);
}

/* False where images are packed: the kernels' are written. */
static bool init(gated_case *t, const gated_case *spec) {
  fly_error error;
  fly_arg args[] = {FLY_INT("left", 6), FLY_INT("right", 0)};
  *t = *spec;
  t->kernel[0] = cuda_kernel("stochastic", NULL, t->type, D, D);
  t->kernel[1] = cuda_kernel("sliding_window", NULL, t->type, D, D);
  if (!cuda) {
    fly_kernel_release(&t->kernel[0]), fly_kernel_release(&t->kernel[1]);
    return false;
  }
  ck_fly_ok(fly_mask_bind(fly_kernel_mask(t->kernel[1]), args, 2, &t->window, &error), error);
  fly_sa_desc d = {FLY_INIT(fly_sa_desc), .left = 9,   .right = 8, .batch = BATCH,
                   .heads = HEADS,        .length = N, .seed = 3,  .per_head = true};
  ck_fly_ok(fly_sa_create(fly_kernel_mask(t->kernel[0]), &d, &t->sa, &error), error);
  for (int i = 0; i < SOME; i++) t->some[i] = i;
  for (int i = 0; i < PARTS; i++) init_part(t, i);
  fly_gated_call *c = &t->call;
  *c = (fly_gated_call){FLY_INIT(fly_gated_call), .parts = t->parts, .count = PARTS};
  c->q = scene_tensor(t->type, BATCH, HEADS, N, D, 1), c->k = scene_tensor(t->type, BATCH, KV_HEADS, N, D, 2);
  c->v = scene_tensor(t->type, BATCH, KV_HEADS, N, D, 3), c->out = scene_like(&c->q, -1);
  c->d_out = scene_like(&c->q, 5);
  c->d_q = scene_like(&c->q, -1), c->d_k = scene_like(&c->k, -1), c->d_v = scene_like(&c->v, -1);
  if (t->projected) c->x = padded(t->type, BATCH, 1, N, WIDTH, 6), c->d_x = padded(t->type, BATCH, 1, N, WIDTH, -1);
  return true;
}

enum { OF_CALL = 10, OF_PART = 8, TENSORS = OF_CALL + OF_PART * PARTS };

static void tensors_of(fly_gated_call *c, fly_gated_part *parts, fly_tensor *all[TENSORS]) {
  fly_tensor *own[OF_CALL] = {&c->q, &c->k, &c->v, &c->out, &c->d_out, &c->d_q, &c->d_k, &c->d_v, &c->x, &c->d_x};
  memcpy(all, own, sizeof own);
  for (int i = 0; i < PARTS; i++) {
    fly_gated_part *p = &parts[i];
    fly_gate *g = &p->gate;
    fly_tensor *of_part[OF_PART] = {&p->attention.out, &p->attention.lse, &g->logits,   &g->d_logits,
                                    &g->weight,        &g->bias,          &g->d_weight, &g->d_bias};
    memcpy(all + OF_CALL + OF_PART * i, of_part, sizeof of_part);
  }
}

static void finish(gated_case *t) {
  fly_tensor *all[TENSORS];
  tensors_of(&t->call, t->parts, all);
  for (int i = 0; i < TENSORS; i++) scene_free(all[i]);
  fly_sa_release(&t->sa);
  fly_bound_release(&t->window);
  for (int i = 0; i < 2; i++) fly_kernel_release(&t->kernel[i]);
}

/* ---- on the device ----------------------------------------------------------------------------------------------- */

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

static double logit(const gated_case *t, int i, int64_t b, int64_t h, int64_t s, int64_t c) {
  const fly_gate *g = &t->parts[i].gate;
  if (g->logits.data) return oracle_get(&g->logits, b, h, s, c);
  double sum = g->bias.data ? oracle_get(&g->bias, 0, h, c, 0) : 0;
  for (int64_t k = 0; k < WIDTH; k++) sum += oracle_get(&g->weight, 0, h, c, k) * oracle_get(&t->call.x, b, 0, s, k);
  return sum;
}

static double gate(const gated_case *t, int i, int64_t b, int64_t h, int64_t s, int64_t d) {
  return 1 / (1 + exp(-logit(t, i, b, h, s, t->by_channel ? d : 0)));
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

/* d_logit = g (1 - g) <d_out, out>, from the outputs that the device was given; the sum of its terms' sizes. */
static double d_logit(const gated_case *t, int i, int p, int r, int c, double *size) {
  double sum = 0, x = gate(t, i, p / HEADS, p % HEADS, r, c);
  *size = 0;
  for (int d = t->by_channel ? c : 0; d < (t->by_channel ? c + 1 : D); d++) {
    double term = oracle_get(&t->call.d_out, p / HEADS, p % HEADS, r, d) *
                  oracle_get(&t->parts[i].attention.out, p / HEADS, p % HEADS, r, d) * x * (1 - x);
    sum += term, *size += fabs(term);
  }
  return sum;
}

/* What `terms`, of this size in all, may be off by in f32, and what storing the sum adds. */
static void check_element(const char *name, int i, const fly_tensor *t, const int64_t at[4], double want,
                          double terms) {
  const double eps = t->type == FLY_F32 ? 0x1p-23 : t->type == FLY_F16 ? 0x1p-11 : 0x1p-8;
  double got = oracle_get(t, at[0], at[1], at[2], at[3]);
  ck_assert_msg(fabs(got - want) <= eps * fabs(want) + terms + (t->type == FLY_F16 ? 0x1p-25 : 1e-30),
                "%s %d [%d, %d, %d, %d]: %g, not %g", name, i, (int)at[0], (int)at[1], (int)at[2], (int)at[3], got,
                want);
}

static void check_logits(const gated_case *t, int i) {
  const fly_gate *g = &t->parts[i].gate;
  double size;
  for (int p = 0; p < BATCH * HEADS; p++)
    for (int r = 0; r < N; r++)
      for (int c = 0; c < (t->by_channel ? D : 1); c++) {
        double want = d_logit(t, i, p, r, c, &size);
        check_element("d_logits", i, &g->d_logits, (int64_t[]){p / HEADS, p % HEADS, r, c}, want, 2e-6 * size);
      }
}

/* Gradients of what logits are projected from, and their terms' sizes. */
typedef struct projected {
  double x[BATCH][N][WIDTH], x_size[BATCH][N][WIDTH];
  double weight[HEADS][D][WIDTH + 1], weight_size[HEADS][D][WIDTH + 1]; /* the bias behind */
} projected;

/* Adds those of part i. */
static void project_back(const gated_case *t, int i, projected *g) {
  const fly_tensor *weight = &t->parts[i].gate.weight;
  double size;
  memset(g->weight, 0, sizeof g->weight), memset(g->weight_size, 0, sizeof g->weight_size);
  for (int p = 0; p < BATCH * HEADS; p++)
    for (int r = 0; r < N; r++)
      for (int c = 0; c < (t->by_channel ? D : 1); c++) {
        const int b = p / HEADS, h = p % HEADS;
        const double from = d_logit(t, i, p, r, c, &size);
        g->weight[h][c][WIDTH] += from, g->weight_size[h][c][WIDTH] += size;
        for (int k = 0; k < WIDTH; k++) {
          const double w = oracle_get(weight, 0, h, c, k), x = oracle_get(&t->call.x, b, 0, r, k);
          g->x[b][r][k] += from * w, g->x_size[b][r][k] += size * fabs(w);
          g->weight[h][c][k] += from * x, g->weight_size[h][c][k] += size * fabs(x);
        }
      }
}

static void check_projection(const gated_case *t) {
  projected *g = calloc(1, sizeof *g);
  for (int i = 0; i < PARTS; i += 2) {
    const fly_gate *gate = &t->parts[i].gate;
    project_back(t, i, g);
    for (int h = 0; h < HEADS; h++)
      for (int c = 0; c < (t->by_channel ? D : 1); c++) {
        for (int k = 0; k < WIDTH; k++)
          check_element("d_weight", i, &gate->d_weight, (int64_t[]){0, h, c, k}, g->weight[h][c][k],
                        4e-6 * g->weight_size[h][c][k]);
        if (gate->bias.data)
          check_element("d_bias", i, &gate->d_bias, (int64_t[]){0, h, c, 0}, g->weight[h][c][WIDTH],
                        4e-6 * g->weight_size[h][c][WIDTH]);
      }
  }
  for (int r = 0; r < BATCH * N; r++)
    for (int k = 0; k < WIDTH; k++)
      check_element("d_x", 0, &t->call.d_x, (int64_t[]){r / N, 0, r % N, k}, g->x[r / N][r % N][k],
                    4e-6 * g->x_size[r / N][r % N][k]);
  free(g);
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
  for (int i = 0; i < 8; i++) {
    gated_case t;
    if (!init(&t, &(gated_case){.type = types[_i], .by_channel = i & 1, .forget = i & 2, .projected = i & 4})) return;
    run(&t, false);
    check_forward(&t);
    finish(&t);
  }
}
END_TEST

START_TEST(gradients_follow_the_formula) {
  for (int i = 0; i < 4; i++) {
    gated_case t;
    if (!init(&t, &(gated_case){.type = types[_i], .by_channel = i & 1, .projected = i & 2})) return;
    run(&t, true);
    for (int part = 0; part < PARTS; part++)
      if (t.parts[part].gate.logits.data) check_logits(&t, part);
    if (t.projected) check_projection(&t);
    check_gradients(&t);
    finish(&t);
  }
}
END_TEST

/* Each gradient of a projection is there alone as it is with all others, bit by bit. */
START_TEST(gradients_that_are_not_wanted_are_left_out) {
  gated_case t, all;
  if (!init(&t, &(gated_case){.type = FLY_F32, .projected = true})) return;
  run(&t, true);
  all = t;
  fly_gate *gate = &t.parts[0].gate;
  fly_tensor *wanted[] = {&t.call.d_x, &gate->d_weight, &gate->d_bias};
  const fly_tensor *first[] = {&all.call.d_x, &all.parts[0].gate.d_weight, &all.parts[0].gate.d_bias};
  for (int i = 0; i < 3; i++) {
    t.call.d_q.data = t.call.d_k.data = t.call.d_v.data = t.call.d_x.data = NULL;
    for (int part = 0; part < PARTS; part++) {
      fly_gate *g = &t.parts[part].gate;
      g->d_logits.data = g->d_weight.data = g->d_bias.data = NULL;
    }
    fly_tensor x = scene_like(first[i], -1);
    *wanted[i] = x;
    run(&t, true);
    for (int64_t b = 0; b < x.shape[0]; b++)
      for (int64_t h = 0; h < x.shape[1]; h++)
        for (int64_t r = 0; r < x.shape[2]; r++)
          for (int64_t k = 0; k < x.shape[3]; k++)
            ck_assert(oracle_get(&x, b, h, r, k) == oracle_get(first[i], b, h, r, k));
    scene_free(&x);
  }
  finish(&all);
}
END_TEST

/* Sums over nothing are 0. */
START_TEST(gradients_of_weights_over_no_tokens_are_zero) {
  gated_case t;
  fly_error error;
  if (!init(&t, &(gated_case){.type = FLY_F32, .projected = true})) return;
  fly_gated_part part = t.parts[1];
  fly_gated_call c = t.call;
  c.parts = &part, c.count = 1, c.cuda = cuda;
  part.gate = t.parts[0].gate;
  part.gate.weight = cuda_tensor_put(cuda, &t.parts[0].gate.weight);
  part.gate.bias = cuda_tensor_put(cuda, &t.parts[0].gate.bias);
  part.gate.d_weight = cuda_tensor_put(cuda, &t.parts[0].gate.d_weight);
  part.gate.d_bias = cuda_tensor_put(cuda, &t.parts[0].gate.d_bias);
  part.attention.geometry.batch = 0;
  fly_tensor *none[] = {&c.q,
                        &c.k,
                        &c.v,
                        &c.out,
                        &c.d_out,
                        &c.d_q,
                        &c.d_k,
                        &c.d_v,
                        &c.x,
                        &c.d_x,
                        &part.attention.out,
                        &part.attention.lse};
  for (int i = 0; i < 12; i++) none[i]->shape[0] = 0;
  cuda_ok(fly_gated_backward(&c, &error), &error);
  cuda_ok(fly_cuda_synchronize(cuda, NULL, &error), &error);
  const fly_gate *host = &t.parts[0].gate;
  cuda_tensor_get(cuda, &part.gate.d_weight, &host->d_weight), cuda_tensor_get(cuda, &part.gate.d_bias, &host->d_bias);
  for (int64_t h = 0; h < HEADS; h++) {
    for (int64_t k = 0; k < WIDTH; k++) ck_assert(oracle_get(&host->d_weight, 0, h, 0, k) == 0);
    ck_assert(oracle_get(&host->d_bias, 0, h, 0, 0) == 0);
  }
  fly_tensor *made[] = {&part.gate.weight, &part.gate.bias, &part.gate.d_weight, &part.gate.d_bias};
  for (int i = 0; i < 4; i++) cuda_tensor_free(cuda, made[i]);
  finish(&t);
}
END_TEST

static void refuse(const fly_gated_call *c, fly_status status, const char *words) {
  fly_error error;
  ck_assert_int_eq(fly_gated_forward(c, &error), status);
  ck_assert_msg(strstr(error.message, words), "%s", error.message);
}

START_TEST(misuse_is_refused) {
  gated_case t;
  if (!init(&t, &(gated_case){.type = FLY_F32, .forget = true, .projected = true})) return;
  fly_gated_call *c = &t.call;
  refuse(c, FLY_ERROR_ARGUMENT, "cuda is NULL");
  c->cuda = cuda;
  refuse(c, FLY_ERROR_ARGUMENT, "out.data is not in device memory");
  fly_tensor out = c->out, x = c->x, weight = t.parts[0].gate.weight;
  c->out = cuda_tensor_put(cuda, &out);
  fly_tensor logits = t.parts[1].gate.logits;
  t.parts[1].gate.logits = cuda_tensor_put(cuda, &logits);
  refuse(c, FLY_ERROR_ARGUMENT, "x.data is not in device memory");
  c->x = cuda_tensor_put(cuda, &x);
  refuse(c, FLY_ERROR_ARGUMENT, "parts[0].gate.weight.data is not in device memory");
  t.parts[0].gate.weight = cuda_tensor_put(cuda, &weight);
  refuse(c, FLY_ERROR_ARGUMENT, "parts[0].gate.bias.data is not in device memory");
  cuda_tensor_free(cuda, &c->out), cuda_tensor_free(cuda, &c->x);
  cuda_tensor_free(cuda, &t.parts[0].gate.weight), cuda_tensor_free(cuda, &t.parts[1].gate.logits);
  c->out = out, c->x = x, t.parts[0].gate.weight = weight, t.parts[1].gate.logits = logits;
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
    if (i == 3) tcase_add_test(test, gradients_that_are_not_wanted_are_left_out);
    if (i == 3) tcase_add_test(test, gradients_of_weights_over_no_tokens_are_zero);
    suite_add_tcase(suite, test);
  }
  return suite;
}

FLY_TEST_MAIN(make_suite)
