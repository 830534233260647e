/* mechanisms.c: what Stochastic Attention, gated SA + SWA and MoBA cost beside the plain windows of as many keys,
 * forward and backward, and a permutation of a million rows. One row a comparison; times are medians of runs in turn,
 * so that all meet the same machine; with one thread they are the processor's, which other work on the machine disturbs
 * less.
 *
 * Usage: bench_mechanisms [permutation|sa|passes|gated|moba|linear]... [n=TOKENS] [heads=H] [kv_heads=H] [dim=D]
 *        [block=B] [top=K] [threads=N]   (default: all) */
#include <flymask/flymask.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { MOST_RUNS = 60, MOST_DIM = 512 };

static int64_t n = 8192, heads = 4, kv_heads = 4, dim = 64, block = 128, top = 3;
static int threads = 1;
static fly_error error;

static void check(fly_status status) {
  if (status == FLY_OK) return;
  fprintf(stderr, "%s %s:%d: %s\n", fly_status_name(status), error.file, error.line, error.message);
  exit(1);
}

/* ---- things ------------------------------------------------------------------------------------------------------ */

static fly_mask *baked_mask(const char *name, const fly_arg *bake, int count) {
  char path[512];
  fly_mask *mask;
  fly_compile_options how = {FLY_INIT(fly_compile_options), .bake = bake, .bake_count = count};
  snprintf(path, sizeof path, "%s/masks/%s.c", FLYMASK_SOURCE, name);
  check(fly_mask_compile_file(path, &how, &mask, &error));
  return mask;
}

static fly_mask *mask_of(const char *name) { return baked_mask(name, NULL, 0); }

static fly_kernel *kernel_of(fly_mask *mask) {
  fly_kernel *kernel;
  fly_kernel_desc desc = {FLY_INIT(fly_kernel_desc), .type = FLY_F32, .head_dim = (int)dim};
  check(fly_kernel_create(mask, &desc, &kernel, &error));
  return kernel;
}

static fly_tensor tensor(int64_t h, int64_t d) {
  size_t bytes = ((size_t)(h * n * d * 4) + (2 << 20) - 1) / (2 << 20) * (2 << 20);
  float *data = aligned_alloc(2 << 20, bytes);
  madvise(data, bytes, MADV_HUGEPAGE);
  static uint64_t state = 88172645463325252;
  for (int64_t i = 0; i < h * n * d; i++) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    data[i] = (float)((double)(state >> 11) * 0x1p-52 - 1);
  }
  return fly_tensor_dense(data, FLY_F32, 1, h, n, d);
}

/* Inputs, one output and one set of gradients for all contenders of a comparison. */
static fly_attention base_call(void) {
  fly_attention c = {FLY_INIT(fly_attention), .threads = threads};
  c.q = tensor(heads, dim), c.k = tensor(kv_heads, dim), c.v = tensor(kv_heads, dim), c.out = tensor(heads, dim);
  c.lse = tensor(heads, 1), c.d_out = tensor(heads, dim);
  c.d_q = tensor(heads, dim), c.d_k = tensor(kv_heads, dim), c.d_v = tensor(kv_heads, dim);
  return c;
}

/* Columns [first, first + d) of rows. */
static fly_tensor columns(const fly_tensor *rows, int64_t first, int64_t d) {
  fly_tensor t = *rows;
  t.data = (float *)rows->data + first;
  t.shape[3] = d;
  return t;
}

/* One head whose q, k and v are side by side in a token's row, as a fused projection leaves them, and their gradients
 * likewise. */
static fly_attention packed_call(void) {
  fly_attention c = {FLY_INIT(fly_attention), .threads = threads};
  fly_tensor qkv = tensor(1, 3 * dim), d_qkv = tensor(1, 3 * dim);
  c.q = columns(&qkv, 0, dim), c.k = columns(&qkv, dim, dim), c.v = columns(&qkv, 2 * dim, dim);
  c.d_q = columns(&d_qkv, 0, dim), c.d_k = columns(&d_qkv, dim, dim), c.d_v = columns(&d_qkv, 2 * dim, dim);
  c.out = tensor(1, dim), c.lse = tensor(1, 1), c.d_out = tensor(1, dim);
  return c;
}

static fly_attention window_call(const fly_attention *base, int left, int right) {
  fly_attention c = *base;
  fly_mask *mask = mask_of("sliding_window");
  fly_arg args[] = {FLY_INT("left", left), FLY_INT("right", right)};
  fly_geometry g = {FLY_INIT(fly_geometry), .batch = 1, .heads = heads, .len_q = n, .len_kv = n};
  fly_map *map;
  c.kernel = kernel_of(mask);
  check(fly_mask_bind(mask, args, 2, &c.bound, &error));
  check(fly_map_build(c.bound, &g, NULL, &map, &error));
  c.map = map;
  return c;
}

static fly_attention sa_call(const fly_attention *base, int left, int right, fly_sa_causal causal) {
  fly_attention c = *base;
  fly_mask *mask = mask_of("stochastic");
  fly_sa *sa;
  fly_sa_desc d = {FLY_INIT(fly_sa_desc), .left = left, .right = right, .causal = causal, .batch = 1,
                   .heads = heads,        .length = n,  .seed = 1};
  check(fly_sa_create(mask, &d, &sa, &error));
  check(fly_sa_apply(sa, &c, &error));
  c.kernel = kernel_of(mask);
  return c;
}

/* ---- timing ------------------------------------------------------------------------------------------------------ */

static double now(void) {
  struct timespec t;
  clock_gettime(threads == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

typedef struct contender {
  const char *name;
  void (*run)(void *context);
  void *context;
  double ms[MOST_RUNS], median;
} contender;

/* In turn, for three seconds or 60 runs. */
static void race(contender *all, int count) {
  double start = now();
  int runs = 0;
  for (int i = 0; i < count; i++) all[i].run(all[i].context);
  while (runs < MOST_RUNS && (runs < 5 || now() - start < 3000)) {
    for (int i = 0; i < count; i++) {
      double before = now();
      all[i].run(all[i].context);
      all[i].ms[runs] = now() - before;
    }
    runs++;
  }
  for (int i = 0; i < count; i++) {
    qsort(all[i].ms, (size_t)runs, sizeof *all[i].ms, compare);
    all[i].median = all[i].ms[runs / 2];
    printf("  %-44s %10.3f ms   (least %.3f)\n", all[i].name, all[i].median, all[i].ms[0]);
  }
}

static void forward(void *context) { check(fly_attention_forward(context, &error)); }
static void backward(void *context) { check(fly_attention_backward(context, &error)); }

/* ---- comparisons ------------------------------------------------------------------------------------------------- */

static void draw(void *context) { check(fly_permutation(1000000, 1, 0, 0, 0, context, &error)); }

static void bench_permutation(void) {
  int32_t *rows = malloc(1000000 * sizeof *rows);
  contender all[] = {{.name = "permutation of 1,000,000 rows", .run = draw, .context = rows}};
  race(all, 1);
  free(rows);
}

static void bench_sa(void) {
  fly_attention base = base_call(), window = window_call(&base, 128, 128);
  fly_attention sa = sa_call(&base, 128, 128, FLY_SA_NOT_CAUSAL), by_token = sa_call(&base, 128, 128, FLY_SA_BY_TOKEN);
  contender f[] = {{.name = "window 128 + 128, forward", .run = forward, .context = &window},
                   {.name = "SA 128 + 128, forward", .run = forward, .context = &sa},
                   {.name = "SA 128 + 128, causal by token, forward", .run = forward, .context = &by_token}};
  race(f, 3);
  printf("  SA / window %.3f, causal by token / window %.3f\n", f[1].median / f[0].median, f[2].median / f[0].median);
  contender b[] = {{.name = "window 128 + 128, backward", .run = backward, .context = &window},
                   {.name = "SA 128 + 128, backward", .run = backward, .context = &sa},
                   {.name = "SA 128 + 128, causal by token, backward", .run = backward, .context = &by_token}};
  race(b, 3);
  printf("  SA / window %.3f, causal by token / window %.3f\n", b[1].median / b[0].median, b[2].median / b[0].median);
}

/* SA in three passes over memory: rows gathered into tensors of their own, windowed attention there, rows scattered.
 * The backward pass finds q, k, v, out and lse gathered, as the forward pass left them. */
typedef struct passes {
  fly_attention token, place; /* tensors in the order of tokens; gathered ones */
  const int32_t *rows;
} passes;

static void move_rows(const fly_tensor *from, const fly_tensor *to, const int32_t *rows, bool back) {
  int64_t width = from->shape[3];
  for (int64_t h = 0; h < from->shape[1]; h++)
    for (int64_t i = 0; i < n; i++) {
      int64_t there = h * n + rows[i], here = h * n + i;
      memcpy((float *)to->data + (back ? there : here) * width, (float *)from->data + (back ? here : there) * width,
             (size_t)width * sizeof(float));
    }
}

static void passes_forward(void *context) {
  passes *p = context;
  move_rows(&p->token.q, &p->place.q, p->rows, false);
  move_rows(&p->token.k, &p->place.k, p->rows, false);
  move_rows(&p->token.v, &p->place.v, p->rows, false);
  check(fly_attention_forward(&p->place, &error));
  move_rows(&p->place.out, &p->token.out, p->rows, true);
}

static void passes_backward(void *context) {
  passes *p = context;
  move_rows(&p->token.d_out, &p->place.d_out, p->rows, false);
  check(fly_attention_backward(&p->place, &error));
  move_rows(&p->place.d_q, &p->token.d_q, p->rows, true);
  move_rows(&p->place.d_k, &p->token.d_k, p->rows, true);
  move_rows(&p->place.d_v, &p->token.d_v, p->rows, true);
}

static void bench_passes(void) {
  fly_attention base = base_call(), gathered = base_call(), sa = sa_call(&base, 128, 128, FLY_SA_NOT_CAUSAL);
  passes p = {base, window_call(&gathered, 128, 128), sa.geometry.q_rows.rows};
  contender f[] = {{.name = "SA 128 + 128, one call, forward", .run = forward, .context = &sa},
                   {.name = "SA in three passes, forward", .run = passes_forward, .context = &p}};
  race(f, 2);
  printf("  three passes / one call %.3f\n", f[1].median / f[0].median);
  contender b[] = {{.name = "SA 128 + 128, one call, backward", .run = backward, .context = &sa},
                   {.name = "SA in three passes, backward", .run = passes_backward, .context = &p}};
  race(b, 2);
  printf("  three passes / one call %.3f\n", b[1].median / b[0].median);
}

static void gated_forward(void *context) { check(fly_gated_forward(context, &error)); }
static void gated_backward(void *context) { check(fly_gated_backward(context, &error)); }

static void bench_gated(void) {
  fly_attention base = base_call(), window = window_call(&base, 255, 0), sa = sa_call(&base, 128, 128, FLY_SA_BY_TOKEN);
  fly_tensor x = tensor(1, heads * dim), d_x = tensor(1, heads * dim);
  window.out = tensor(heads, dim), window.lse = tensor(heads, 1);
  fly_gated_part given[2] = {{.attention = sa}, {.attention = window}},
                 projected[2] = {{.attention = sa}, {.attention = window}};
  for (int i = 0; i < 2; i++) {
    given[i].gate = (fly_gate){.logits = tensor(heads, 1), .d_logits = tensor(heads, 1)};
    fly_tensor weight = tensor(1, heads * heads * dim / n + heads * dim),
               d_weight = tensor(1, heads * heads * dim / n + heads * dim);
    weight = fly_tensor_dense(weight.data, FLY_F32, 1, heads, 1, heads * dim);
    d_weight = fly_tensor_dense(d_weight.data, FLY_F32, 1, heads, 1, heads * dim);
    projected[i].gate = (fly_gate){.weight = weight, .d_weight = d_weight};
  }
  fly_gated_call a = {FLY_INIT(fly_gated_call),
                      .parts = given,
                      .count = 2,
                      .q = base.q,
                      .k = base.k,
                      .v = base.v,
                      .out = tensor(heads, dim),
                      .d_out = base.d_out,
                      .d_q = base.d_q,
                      .d_k = base.d_k,
                      .d_v = base.d_v,
                      .threads = threads};
  fly_gated_call b = a;
  b.parts = projected, b.x = x, b.d_x = d_x;
  contender f[] = {{.name = "SA 128 + 128, causal by token, forward", .run = forward, .context = &sa},
                   {.name = "SWA 256, forward", .run = forward, .context = &window},
                   {.name = "gated SA + SWA, logits given, forward", .run = gated_forward, .context = &a},
                   {.name = "gated SA + SWA, projected, forward", .run = gated_forward, .context = &b}};
  race(f, 4);
  double sum = f[0].median + f[1].median;
  printf("  gated / (SA plus SWA) %.3f, projected %.3f\n", f[2].median / sum, f[3].median / sum);
  contender g[] = {{.name = "SA 128 + 128, causal by token, backward", .run = backward, .context = &sa},
                   {.name = "SWA 256, backward", .run = backward, .context = &window},
                   {.name = "gated SA + SWA, logits given, backward", .run = gated_backward, .context = &a},
                   {.name = "gated SA + SWA, projected, backward", .run = gated_backward, .context = &b}};
  race(g, 4);
  sum = g[0].median + g[1].median;
  printf("  gated / (SA plus SWA) %.3f, projected %.3f\n", g[2].median / sum, g[3].median / sum);
}

typedef struct moba_run {
  fly_attention call;
  fly_mask *mask;
  fly_moba_desc desc;
  fly_selection *selection;
} moba_run;

static void moba_select(void *context) {
  moba_run *m = context;
  fly_selection_release(&m->selection);
  check(fly_moba_select(m->mask, &m->desc, &m->selection, &error));
}

static void moba_forward(void *context) {
  moba_run *m = context;
  moba_select(m);
  check(fly_selection_forward(m->selection, &m->call, &error));
}

static void moba_backward(void *context) {
  moba_run *m = context;
  check(fly_selection_backward(m->selection, &m->call, &error));
}

/* As a program would that calls more than once. */
static void keep_workspace(fly_attention *call, size_t bytes) {
  call->workspace_size = (bytes + (2 << 20) - 1) / (2 << 20) * (2 << 20);
  call->workspace = aligned_alloc(2 << 20, call->workspace_size);
  madvise(call->workspace, call->workspace_size, MADV_HUGEPAGE);
  memset(call->workspace, 0, call->workspace_size);
}

static void bench_moba(void) {
  fly_attention base = base_call(), window = window_call(&base, (int)(block * top) - 1, 0);
  fly_arg bake[] = {FLY_INT("size", block), FLY_INT("count", 1), FLY_INT("causal", 1), FLY_INT("offset", 0)};
  moba_run m = {.call = base, .mask = baked_mask("selected_tiles", bake, block >= 64 ? 4 : 0)};
  m.call.kernel = kernel_of(m.mask);
  size_t bytes[2];
  moba_run first = m;
  first.desc = (fly_moba_desc){FLY_INIT(fly_moba_desc), .block = (int)block, .top = (int)top, .q = base.q, .k = base.k,
                               .threads = threads};
  moba_select(&first);
  check(fly_selection_workspace(first.selection, &m.call, &bytes[0], &error));
  check(fly_selection_backward_workspace(first.selection, &m.call, &bytes[1], &error));
  keep_workspace(&m.call, bytes[0] > bytes[1] ? bytes[0] : bytes[1]);
  check(fly_attention_workspace(&window, &bytes[0], &error));
  check(fly_attention_backward_workspace(&window, &bytes[1], &error));
  keep_workspace(&window, bytes[0] > bytes[1] ? bytes[0] : bytes[1]);
  m.desc = (fly_moba_desc){FLY_INIT(fly_moba_desc), .block = (int)block, .top = (int)top, .q = base.q, .k = base.k,
                           .threads = threads};
  printf("  blocks of %lld keys, %lld of them\n", (long long)block, (long long)top);
  contender f[] = {{.name = "causal window of k B keys, forward", .run = forward, .context = &window},
                   {.name = "MoBA, its gate and grouping", .run = moba_select, .context = &m},
                   {.name = "MoBA, gate included, forward", .run = moba_forward, .context = &m}};
  race(f, 3);
  printf("  MoBA / window %.3f, without its gate and grouping %.3f\n", f[2].median / f[0].median,
         (f[2].median - f[1].median) / f[0].median);
  contender b[] = {{.name = "causal window of k B keys, backward", .run = backward, .context = &window},
                   {.name = "MoBA, backward", .run = moba_backward, .context = &m}};
  race(b, 2);
  printf("  MoBA / window %.3f\n", b[1].median / b[0].median);
}

/* packed: k, v, d_k and d_v are parts of q's and d_q's arrays. */
static void free_call(fly_attention *c, bool packed) {
  fly_tensor *all[] = {&c->q, &c->out, &c->lse, &c->d_out, &c->d_q, &c->k, &c->v, &c->d_k, &c->d_v};
  for (int i = 0; i < (packed ? 5 : 9); i++) free(all[i]->data);
}

/* The rows that a call reads and writes, moved by a plain loop without attention: what their places in memory cost
 * alone. Not the least: the loop writes through the cache, and kernels past it. */
typedef struct moves {
  const int32_t *rows;
  const fly_tensor *from[5], *to[3];
} moves;

static float *row_of(const fly_tensor *t, int64_t row) { return (float *)t->data + row * t->stride[2]; }

static void fetch_row(const fly_tensor *t, int64_t row) {
  for (int64_t d = 0; d < dim; d += 16) __builtin_prefetch(row_of(t, row) + d);
}

static void move_alone(void *context) {
  enum { AHEAD = 32 };
  const moves *m = context;
  for (int64_t i = 0; i < n; i++) {
    float sum[MOST_DIM] = {0};
    int64_t row = m->rows[i], soon = m->rows[i + AHEAD < n ? i + AHEAD : n - 1];
    for (int k = 0; k < 5 && m->from[k]; k++) fetch_row(m->from[k], soon);
    for (int k = 0; k < 3 && m->to[k]; k++) fetch_row(m->to[k], soon);
    for (int k = 0; k < 5 && m->from[k]; k++)
      for (int64_t d = 0; d < dim; d++) sum[d] += row_of(m->from[k], row)[d];
    for (int k = 0; k < 3 && m->to[k]; k++) memcpy(row_of(m->to[k], row), sum, sizeof(float) * (size_t)dim);
  }
}

enum { WAYS = 4 }; /* SA forward and backward, and their rows alone */

/* Nanoseconds a token of SA, one head. */
static void time_length(int64_t tokens, bool packed, double ns[WAYS]) {
  n = tokens;
  fly_attention base = packed ? packed_call() : base_call(), sa = sa_call(&base, 128, 128, FLY_SA_BY_TOKEN);
  const int32_t *rows = sa.geometry.q_rows.rows;
  moves ahead = {rows, {&sa.q, &sa.k, &sa.v}, {&sa.out}};
  moves back = {rows, {&sa.q, &sa.k, &sa.v, &sa.out, &sa.d_out}, {&sa.d_q, &sa.d_k, &sa.d_v}};
  size_t bytes[2];
  check(fly_attention_workspace(&sa, &bytes[0], &error));
  check(fly_attention_backward_workspace(&sa, &bytes[1], &error));
  keep_workspace(&sa, bytes[0] > bytes[1] ? bytes[0] : bytes[1]);
  contender all[] = {{.name = "SA 128 + 128, causal by token, forward", .run = forward, .context = &sa},
                     {.name = "SA 128 + 128, causal by token, backward", .run = backward, .context = &sa}};
  contender alone[] = {{.name = "q, k, v read and out written by rows", .run = move_alone, .context = &ahead},
                       {.name = "8 tensors' rows of the backward pass", .run = move_alone, .context = &back}};
  printf("  %lld tokens, workspace %.1f MiB\n", (long long)n, (double)sa.workspace_size / (1 << 20));
  race(all, 2);
  race(alone, 2); /* in turn with attention it would find other rows in the cache */
  const contender *timed[WAYS] = {&all[0], &all[1], &alone[0], &alone[1]};
  for (int way = 0; way < WAYS; way++) ns[way] = timed[way]->median * 1e6 / (double)n;
  free(sa.workspace);
  free_call(&base, packed);
}

/* Growing lengths, all of them in turn and several times: between the first and the last a machine's pace may drift. */
static void time_lengths(bool packed) {
  static const int64_t lengths[] = {8192, 32768, 131072, 524288, 1048576};
  enum { LENGTHS = sizeof lengths / sizeof *lengths, ROUNDS = 5 };
  double ns[LENGTHS][ROUNDS][WAYS], median[LENGTHS][WAYS];
  int64_t was = n, heads_were = heads, kv_heads_were = kv_heads;
  heads = kv_heads = 1;
  for (int round = 0; round < ROUNDS; round++)
    for (int i = 0; i < LENGTHS; i++) time_length(lengths[i], packed, ns[i][round]);
  printf("  medians of %d rounds, ns a token: forward, backward; by those at %lld tokens; their rows alone\n", ROUNDS,
         (long long)lengths[0]);
  for (int i = 0; i < LENGTHS; i++) {
    for (int way = 0; way < WAYS; way++) {
      double rounds[ROUNDS];
      for (int round = 0; round < ROUNDS; round++) rounds[round] = ns[i][round][way];
      qsort(rounds, ROUNDS, sizeof *rounds, compare);
      median[i][way] = rounds[ROUNDS / 2];
    }
    const double *m = median[i];
    printf("  %8lld %6.0f %6.0f   %.3f %.3f   %6.0f %6.0f\n", (long long)lengths[i], m[0], m[1], m[0] / median[0][0],
           m[1] / median[0][1], m[2], m[3]);
  }
  n = was, heads = heads_were, kv_heads = kv_heads_were;
}

static void bench_linear(void) {
  printf("  q, k, v in tensors of their own\n");
  time_lengths(false);
  printf("  q, k, v of a token side by side\n");
  time_lengths(true);
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static const struct {
  const char *name;
  void (*run)(void);
} benches[] = {{"permutation", bench_permutation},
               {"sa", bench_sa},
               {"passes", bench_passes},
               {"gated", bench_gated},
               {"moba", bench_moba},
               {"linear", bench_linear}};
enum { BENCHES = sizeof benches / sizeof *benches };

static bool take_number(const char *argument) {
  const struct {
    const char *name;
    int64_t *value;
  } numbers[] = {{"n=", &n},     {"heads=", &heads}, {"kv_heads=", &kv_heads},
                 {"dim=", &dim}, {"block=", &block}, {"top=", &top}};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    if (strncmp(argument, numbers[i].name, strlen(numbers[i].name)) == 0)
      return *numbers[i].value = atoll(argument + strlen(numbers[i].name)), true;
  if (strncmp(argument, "threads=", 8) == 0) return threads = atoi(argument + 8), true;
  return false;
}

int main(int argc, char **argv) {
  bool wanted[BENCHES] = {false}, any = false;
  for (int i = 1; i < argc; i++) {
    bool known = take_number(argv[i]);
    for (int k = 0; k < BENCHES; k++)
      if (strcmp(argv[i], benches[k].name) == 0) known = any = wanted[k] = true;
    if (!known) return fprintf(stderr, "%s: %s?\n", argv[0], argv[i]), 2;
  }
  /* As in a program that has run for a while: freed memory stays with the process. */
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 256 << 20);
  printf("n = %lld, %lld heads, %lld key/value heads, D = %lld, f32, %d thread%s\n", (long long)n, (long long)heads,
         (long long)kv_heads, (long long)dim, threads, threads == 1 ? "" : "s");
  for (int k = 0; k < BENCHES; k++)
    if (!any || wanted[k]) printf("%s\n", benches[k].name), benches[k].run();
  return 0;
}
