/* Stochastic Attention as a call: equal to gathering, windowed attention and scattering, bit for bit; equal to dense
 * attention over tokens in double precision, forward and backward; documents that do not leak; draws as documented. */
#include "sa/scene.h"

/* ---- windows over a permutation, by token ------------------------------------------------------------------------ */

/* What token i of a sample sees, from the definition: positions are the inverse of the permutation. */
typedef struct tokens {
  int left, right;
  fly_sa_causal causal;
  bool ring;
  int n, heads;
  const int32_t *position; /* [batch or 1, heads or 1][n] */
  int64_t stride_b, stride_h;
  const int32_t *start, *end; /* by token: its document; NULL: one */
} tokens;

static bool sees(void *context, int b, int h, int i, int j) {
  const tokens *t = context;
  const int32_t *position = t->position + b * t->stride_b + h * t->stride_h;
  int first = t->start ? t->start[i] : 0, n = (t->end ? t->end[i] : t->n) - first;
  if (j < first || j >= first + n) return false;
  int ahead = position[j] - position[i];
  bool near = (t->left < 0 || -ahead <= t->left) && (t->right < 0 || ahead <= t->right);
  if (t->ring) {
    near = t->left < 0 || t->right < 0;
    for (int wrap = -n; wrap <= n; wrap += n) near |= ahead + wrap >= -t->left && ahead + wrap <= t->right;
  }
  bool by_token = t->causal == FLY_SA_BY_TOKEN || t->causal == FLY_SA_BY_BOTH;
  bool by_position = t->causal == FLY_SA_BY_POSITION || t->causal == FLY_SA_BY_BOTH;
  return near && (!by_token || j <= i) && (!by_position || position[j] <= position[i]);
}

static const uint64_t sample_step = 0x9E3779B97F4A7C15;

/* The positions that the header documents. */
static int32_t *documented_positions(const fly_sa_desc *d, tokens *t) {
  int64_t heads = d->per_head ? d->heads : 1, batch = d->per_sample ? d->batch : 1, n = d->length;
  int32_t *position = malloc((size_t)(batch * heads * n + 1) * sizeof *position),
          *rows = malloc((size_t)(n + 1) * sizeof *rows);
  for (int64_t b = 0; b < batch; b++)
    for (int64_t h = 0; h < heads; h++) {
      ck_assert_int_eq(
          fly_permutation(n, d->seed + (uint64_t)b * sample_step, d->layer, d->step, (uint32_t)h, rows, NULL), FLY_OK);
      for (int64_t p = 0; p < n; p++) position[(b * heads + h) * n + rows[p]] = (int32_t)p;
    }
  free(rows);
  *t = (tokens){.left = d->left,
                .right = d->right,
                .causal = d->causal,
                .n = (int)n,
                .position = position,
                .stride_b = d->per_sample ? heads * n : 0,
                .stride_h = d->per_head ? n : 0};
  return position;
}

/* The same call over tokens: no row maps, no documents; the predicate has it all. */
static fly_attention by_token(const fly_attention *c) {
  fly_attention t = *c;
  t.geometry = (fly_geometry){FLY_INIT(fly_geometry), .batch = c->q.shape[0], .heads = c->q.shape[1],
                              .len_q = c->q.shape[2], .len_kv = c->k.shape[2]};
  t.out_rows = (fly_row_map){0};
  return t;
}

static void run_both(const fly_attention *call) {
  fly_error error = {0};
  ck_fly_ok(fly_attention_forward(call, &error), error);
  ck_fly_ok(fly_attention_backward(call, &error), error);
}

static void check_by_token(const fly_attention *call, tokens *t, const char *what) {
  fly_attention c = by_token(call);
  oracle_check(&c, sees, t, CALL_UNTOUCHED, what);
  oracle_check_backward(&c, sees, t, what);
}

typedef struct shape {
  fly_type type;
  int dim, value_dim;
  int64_t batch, heads, kv_heads, n;
} shape;

static void make_call(const shape *s, fly_mask *mask, fly_attention *c) {
  *c = (fly_attention){FLY_INIT(fly_attention), .kernel = scene_kernel(mask, s->type, s->dim, s->value_dim)};
  c->q = scene_tensor(s->type, s->batch, s->heads, s->n, s->dim, 1);
  c->k = scene_tensor(s->type, s->batch, s->kv_heads, s->n, s->dim, 2);
  c->v = scene_tensor(s->type, s->batch, s->kv_heads, s->n, s->value_dim, 3);
  scene_outputs(c, 4);
}

static void free_call(fly_attention *c) {
  fly_kernel_release((fly_kernel **)&c->kernel);
  scene_free_call(c);
}

static const struct {
  int left, right;
  fly_sa_causal causal;
  bool per_head, per_sample;
} windows[] = {
    {16, 16, FLY_SA_BY_TOKEN, false, false},   {16, 16, FLY_SA_BY_TOKEN, true, true},
    {40, 0, FLY_SA_NOT_CAUSAL, false, true},   {0, 30, FLY_SA_BY_BOTH, true, false},
    {9, 70, FLY_SA_BY_POSITION, true, true},   {-1, 20, FLY_SA_BY_TOKEN, false, false},
    {-1, -1, FLY_SA_BY_TOKEN, true, false},    {0, 0, FLY_SA_BY_TOKEN, false, false},
    {300, 300, FLY_SA_NOT_CAUSAL, true, true},
};
enum { WINDOWS = sizeof windows / sizeof *windows };

static fly_sa_desc desc_of(int i, const shape *s) {
  return (fly_sa_desc){FLY_INIT(fly_sa_desc),
                       .left = windows[i].left,
                       .right = windows[i].right,
                       .causal = windows[i].causal,
                       .batch = s->batch,
                       .heads = s->heads,
                       .length = s->n,
                       .seed = 7 + (uint64_t)i,
                       .layer = 2,
                       .step = 5,
                       .per_head = windows[i].per_head,
                       .per_sample = windows[i].per_sample};
}

START_TEST(attention_is_dense_attention_over_documented_positions) { /* _i: the window */
  static const shape shapes[] = {{FLY_F32, 16, 8, 2, 4, 2, 150},
                                 {FLY_BF16, 32, 32, 1, 2, 2, 129},
                                 {FLY_F16, 8, 24, 3, 3, 1, 65},
                                 {FLY_F32, 64, 64, 1, 1, 1, 1}};
  fly_mask *mask = scene_mask("stochastic");
  for (int i = 0; i < 4; i++) {
    fly_attention c;
    fly_sa *sa;
    fly_error error;
    tokens t;
    fly_sa_desc d = desc_of(_i, &shapes[i]);
    make_call(&shapes[i], mask, &c);
    ck_fly_ok(fly_sa_create(mask, &d, &sa, &error), error);
    ck_fly_ok(fly_sa_apply(sa, &c, &error), error);
    run_both(&c);
    int32_t *position = documented_positions(&d, &t);
    check_by_token(&c, &t, "by token");
    free(position);
    fly_sa_release(&sa);
    free_call(&c);
  }
  fly_mask_release(&mask);
}
END_TEST

/* ---- three steps ------------------------------------------------------------------------------------------------- */

static const char three_steps[] = "#include <flymask/mask.h>\n"
                                  "FLY_PARAM(int, left, 0);\n"
                                  "FLY_PARAM(int, right, 0);\n"
                                  "FLY_PARAM(int, by_token, 0);\n"
                                  "FLY_PARAM(int, by_position, 0);\n"
                                  "FLY_BUFFER(int32_t, token, 3);\n"
                                  "bool mask(int b, int h, int q, int kv) {\n"
                                  "  if (left >= 0 && q - kv > left) return false;\n"
                                  "  if (right >= 0 && kv - q > right) return false;\n"
                                  "  if (by_position && kv > q) return false;\n"
                                  "  return !by_token || fly_at3(token, b, h, kv) <= fly_at3(token, b, h, q);\n"
                                  "}\n";

/* to[b, h, p] = from[b, h / share, rows[p]], or back: to[b, h, rows[p]] = from[b, h, p]. */
static fly_tensor permute(const fly_tensor *from, const fly_attention *c, int64_t heads, bool back) {
  fly_tensor to = scene_tensor(from->type, from->shape[0], heads, from->shape[2], from->shape[3], -1);
  const fly_row_map *map = &c->geometry.q_rows;
  int64_t share = heads / from->shape[1];
  for (int64_t b = 0; b < to.shape[0]; b++)
    for (int64_t h = 0; h < heads; h++)
      for (int64_t p = 0; p < to.shape[2]; p++) {
        int64_t row = map->rows[b * map->stride_batch + h * map->stride_head + p];
        for (int64_t d = 0; d < to.shape[3]; d++)
          oracle_set(&to, b, h, back ? row : p, d, oracle_get(from, b, h / share, back ? p : row, d));
      }
  return to;
}

static fly_bound *bind_three_steps(fly_mask *mask, const fly_sa_desc *d, const fly_attention *c) {
  const fly_row_map *map = &c->geometry.q_rows;
  int64_t shape[3] = {d->batch, d->heads, d->length};
  int32_t *token = malloc((size_t)(d->batch * d->heads * d->length) * sizeof *token);
  for (int64_t i = 0; i < d->batch * d->heads; i++)
    memcpy(token + i * d->length, map->rows + i / d->heads * map->stride_batch + i % d->heads * map->stride_head,
           (size_t)d->length * sizeof *token);
  fly_buffer *buffer = NULL;
  fly_bound *bound = NULL;
  fly_error error;
  ck_fly_ok(fly_buffer_create(FLY_I32, 3, shape, token, &buffer, &error), error);
  fly_arg args[] = {FLY_INT("left", d->left), FLY_INT("right", d->right),
                    FLY_INT("by_token", d->causal == FLY_SA_BY_TOKEN || d->causal == FLY_SA_BY_BOTH),
                    FLY_INT("by_position", d->causal == FLY_SA_BY_POSITION || d->causal == FLY_SA_BY_BOTH),
                    FLY_CAPTURE("token", buffer)};
  ck_fly_ok(fly_mask_bind(mask, args, 5, &bound, &error), error);
  fly_buffer_release(&buffer);
  free(token);
  return bound;
}

static void expect_bits(const fly_tensor *got, const fly_tensor *step, const fly_attention *c, const char *what) {
  fly_tensor back = permute(step, c, step->shape[1], true);
  ck_assert_msg(scene_equal(got, &back), "%s differs", what);
  scene_free(&back);
}

static void check_three_steps(const fly_attention *c, fly_mask *steps, const fly_sa_desc *d) {
  fly_attention s = {FLY_INIT(fly_attention),
                     .kernel = scene_kernel(steps, c->q.type, (int)c->q.shape[3], (int)c->v.shape[3])};
  int64_t heads = d->per_head ? c->q.shape[1] : c->k.shape[1]; /* heads that share keys see them in one order */
  s.bound = bind_three_steps(steps, d, c);
  s.q = permute(&c->q, c, c->q.shape[1], false), s.k = permute(&c->k, c, heads, false),
  s.v = permute(&c->v, c, heads, false);
  s.d_out = permute(&c->d_out, c, c->q.shape[1], false), s.d_lse = permute(&c->d_lse, c, c->q.shape[1], false);
  scene_outputs(&s, 0);
  run_both(&s);
  expect_bits(&c->out, &s.out, c, "out"), expect_bits(&c->lse, &s.lse, c, "lse"),
      expect_bits(&c->d_q, &s.d_q, c, "d_q");
  if (heads == c->k.shape[1]) expect_bits(&c->d_k, &s.d_k, c, "d_k"), expect_bits(&c->d_v, &s.d_v, c, "d_v");
  fly_bound_release(&s.bound);
  free_call(&s);
}

START_TEST(one_call_has_the_bits_of_three_steps) {
  static const shape shapes[] = {
      {FLY_F32, 64, 64, 2, 2, 1, 500}, {FLY_F16, 40, 64, 1, 4, 4, 321}, {FLY_BF16, 64, 16, 2, 2, 2, 200}};
  fly_mask *mask = scene_mask("stochastic"), *steps = scene_source(three_steps);
  for (int i = 0; i < 3; i++) {
    fly_attention c;
    fly_sa *sa;
    fly_error error;
    fly_sa_desc d = desc_of(_i, &shapes[i]);
    make_call(&shapes[i], mask, &c);
    ck_fly_ok(fly_sa_create(mask, &d, &sa, &error), error);
    ck_fly_ok(fly_sa_apply(sa, &c, &error), error);
    run_both(&c);
    check_three_steps(&c, steps, &d);
    fly_sa_release(&sa);
    free_call(&c);
  }
  fly_mask_release(&mask), fly_mask_release(&steps);
}
END_TEST

/* Heads [first, first + heads) of rows that hold several tensors side by side. */
static fly_tensor heads_of(const fly_tensor *all, int64_t first, int64_t heads, int64_t dim) {
  fly_tensor t = *all;
  t.data = (char *)all->data + first * dim * (int64_t)fly_type_size(all->type);
  t.shape[1] = heads, t.shape[3] = dim, t.stride[1] = dim;
  return t;
}

static void copy_rows(const fly_tensor *to, const fly_tensor *from) {
  for (int64_t i = 0; i < from->shape[0] * from->shape[1] * from->shape[2]; i++) {
    int64_t b = i / (from->shape[1] * from->shape[2]), h = i / from->shape[2] % from->shape[1], r = i % from->shape[2];
    for (int64_t d = 0; d < from->shape[3]; d++) oracle_set(to, b, h, r, d, oracle_get(from, b, h, r, d));
  }
}

static void expect_same(const fly_tensor *got, const fly_tensor *want, const char *what) {
  fly_tensor dense = scene_like(want, -1);
  copy_rows(&dense, got);
  ck_assert_msg(scene_equal(&dense, want), "%s differs", what);
  scene_free(&dense);
}

/* As a fused projection leaves them: q, k and v of a token in one row, and their gradients likewise. */
START_TEST(tokens_may_have_q_k_and_v_side_by_side) {
  static const shape shapes[] = {{FLY_F32, 64, 64, 2, 2, 1, 700}, {FLY_BF16, 32, 32, 1, 4, 4, 321}};
  fly_mask *mask = scene_mask("stochastic");
  for (int i = 0; i < 2; i++) {
    fly_attention c;
    fly_sa *sa;
    fly_error error;
    const shape *s = &shapes[i];
    fly_sa_desc d = desc_of(_i, s);
    make_call(s, mask, &c);
    ck_fly_ok(fly_sa_create(mask, &d, &sa, &error), error);
    ck_fly_ok(fly_sa_apply(sa, &c, &error), error);
    run_both(&c);
    fly_tensor all = scene_tensor(s->type, s->batch, 1, s->n, (s->heads + 2 * s->kv_heads) * s->dim, -1);
    fly_tensor d_all = scene_like(&all, -1);
    fly_attention packed = c;
    packed.q = heads_of(&all, 0, s->heads, s->dim), packed.d_q = heads_of(&d_all, 0, s->heads, s->dim);
    packed.k = heads_of(&all, s->heads, s->kv_heads, s->dim);
    packed.d_k = heads_of(&d_all, s->heads, s->kv_heads, s->dim);
    packed.v = heads_of(&all, s->heads + s->kv_heads, s->kv_heads, s->dim);
    packed.d_v = heads_of(&d_all, s->heads + s->kv_heads, s->kv_heads, s->dim);
    packed.out = scene_like(&c.out, -1), packed.lse = scene_like(&c.lse, -1);
    copy_rows(&packed.q, &c.q), copy_rows(&packed.k, &c.k), copy_rows(&packed.v, &c.v);
    run_both(&packed);
    expect_same(&packed.out, &c.out, "out"), expect_same(&packed.lse, &c.lse, "lse");
    expect_same(&packed.d_q, &c.d_q, "d_q");
    expect_same(&packed.d_k, &c.d_k, "d_k"), expect_same(&packed.d_v, &c.d_v, "d_v");
    scene_free(&all), scene_free(&d_all), scene_free(&packed.out), scene_free(&packed.lse);
    fly_sa_release(&sa);
    free_call(&c);
  }
  fly_mask_release(&mask);
}
END_TEST

START_TEST(the_ring_closes_over_the_ends) {
  static const shape s = {FLY_F32, 16, 16, 2, 2, 1, 140};
  fly_mask *mask = scene_mask("stochastic_ring");
  fly_attention c;
  fly_sa *sa;
  fly_error error;
  tokens t;
  fly_sa_desc d = desc_of(_i, &s);
  make_call(&s, mask, &c);
  ck_fly_ok(fly_sa_create(mask, &d, &sa, &error), error);
  ck_fly_ok(fly_sa_apply(sa, &c, &error), error);
  run_both(&c);
  int32_t *position = documented_positions(&d, &t);
  t.ring = true;
  check_by_token(&c, &t, "ring");
  free(position);
  fly_sa_release(&sa);
  free_call(&c);
  fly_mask_release(&mask);
}
END_TEST

/* ---- documents --------------------------------------------------------------------------------------------------- */

enum { DOCUMENTS = 6 };
static const int32_t cu[DOCUMENTS + 1] = {0, 90, 91, 91, 230, 320, 397}; /* 90, 1, none, 139, 90, 77 tokens */

static void document_positions(const fly_sa_desc *d, tokens *t) {
  int n = cu[DOCUMENTS], heads = d->per_head ? (int)d->heads : 1;
  int32_t *position = malloc((size_t)n * heads * sizeof *position), *rows = malloc((size_t)n * sizeof *rows);
  int32_t *start = malloc((size_t)n * sizeof *start), *end = malloc((size_t)n * sizeof *end);
  for (int b = 0; b < DOCUMENTS; b++)
    for (int h = 0; h < heads; h++) {
      int length = cu[b + 1] - cu[b];
      uint64_t seed = d->seed + (d->per_sample ? (uint64_t)b * sample_step : 0);
      ck_assert_int_eq(fly_permutation(length, seed, d->layer, d->step, (uint32_t)h, rows, NULL), FLY_OK);
      for (int p = 0; p < length; p++) position[h * n + cu[b] + rows[p]] = p;
      for (int i = cu[b]; i < cu[b + 1]; i++) start[i] = cu[b], end[i] = cu[b + 1];
    }
  free(rows);
  *t = (tokens){.left = d->left,
                .right = d->right,
                .causal = d->causal,
                .n = n,
                .position = position,
                .stride_h = d->per_head ? n : 0,
                .start = start,
                .end = end};
}

START_TEST(documents_are_permuted_within_themselves) { /* and a ring closes over the ends of a document */
  shape s = {_i % 2 ? FLY_F16 : FLY_F32, 16, 16, 1, 4, 2, cu[DOCUMENTS]};
  for (int ring = 0; ring < 2; ring++) {
    fly_mask *mask = scene_mask(ring ? "stochastic_ring" : "stochastic");
    fly_attention c;
    fly_sa *sa;
    fly_error error;
    tokens t;
    fly_sa_desc d = desc_of(_i, &s);
    d.batch = DOCUMENTS, d.length = 0, d.cu_seqlens = cu;
    make_call(&s, mask, &c);
    ck_fly_ok(fly_sa_create(mask, &d, &sa, &error), error);
    ck_fly_ok(fly_sa_apply(sa, &c, &error), error);
    run_both(&c);
    document_positions(&d, &t);
    t.ring = ring;
    check_by_token(&c, &t, ring ? "ring in documents" : "documents");
    free((void *)t.position), free((void *)t.start), free((void *)t.end);
    fly_sa_release(&sa);
    free_call(&c);
    fly_mask_release(&mask);
  }
}
END_TEST

START_TEST(no_token_leaks_to_another_document) { /* NaNs in one document reach no other, forward and backward */
  shape s = {FLY_F32, 16, 16, 1, 2, 1, cu[DOCUMENTS]};
  fly_mask *mask = scene_mask("stochastic");
  fly_attention clean, dirty;
  fly_sa *sa;
  fly_error error;
  fly_sa_desc d = {FLY_INIT(fly_sa_desc), .left = -1, .right = -1,      .causal = FLY_SA_NOT_CAUSAL,
                   .batch = DOCUMENTS,    .heads = 2, .cu_seqlens = cu, .per_head = true};
  ck_fly_ok(fly_sa_create(mask, &d, &sa, &error), error);
  make_call(&s, mask, &clean), make_call(&s, mask, &dirty);
  fly_tensor *inputs[] = {&dirty.q, &dirty.k, &dirty.v, &dirty.d_out};
  for (int i = 0; i < 4; i++)
    for (int64_t h = 0; h < inputs[i]->shape[1]; h++)
      for (int row = cu[3]; row < cu[4]; row++) oracle_set(inputs[i], 0, h, row, row % 16, NAN);
  ck_fly_ok(fly_sa_apply(sa, &clean, &error), error);
  ck_fly_ok(fly_sa_apply(sa, &dirty, &error), error);
  run_both(&clean), run_both(&dirty);
  const fly_tensor *a[] = {&clean.out, &clean.lse, &clean.d_q, &clean.d_k, &clean.d_v};
  const fly_tensor *b[] = {&dirty.out, &dirty.lse, &dirty.d_q, &dirty.d_k, &dirty.d_v};
  for (int i = 0; i < 5; i++)
    for (int64_t h = 0; h < a[i]->shape[1]; h++)
      for (int row = 0; row < cu[DOCUMENTS]; row++)
        for (int64_t k = 0; k < a[i]->shape[3] && (row < cu[3] || row >= cu[4]); k++)
          ck_assert(oracle_get(a[i], 0, h, row, k) == oracle_get(b[i], 0, h, row, k));
  fly_sa_release(&sa);
  free_call(&clean), free_call(&dirty);
  fly_mask_release(&mask);
}
END_TEST

/* ---- draws ------------------------------------------------------------------------------------------------------- */

START_TEST(heads_and_samples_draw_their_own) {
  enum { N = 500 };
  fly_mask *mask = scene_mask("stochastic");
  for (int which = 0; which < 4; which++) {
    fly_sa *sa;
    fly_error error;
    fly_attention c = {FLY_INIT(fly_attention)};
    fly_sa_desc d = {
        FLY_INIT(fly_sa_desc),  .left = 3, .right = 3, .batch = 3, .heads = 4, .length = N, .per_head = which & 1,
        .per_sample = which & 2};
    ck_fly_ok(fly_sa_create(mask, &d, &sa, &error), error);
    ck_fly_ok(fly_sa_apply(sa, &c, &error), error);
    const fly_row_map *map = &c.geometry.q_rows;
    for (int i = 0; i < 12; i++)
      for (int j = 0; j < i; j++) {
        const int32_t *a = map->rows + i / 4 * map->stride_batch + i % 4 * map->stride_head;
        const int32_t *b = map->rows + j / 4 * map->stride_batch + j % 4 * map->stride_head;
        int same = 0;
        for (int p = 0; p < N; p++) same += a[p] == b[p];
        bool shared = (i / 4 == j / 4 || !d.per_sample) && (i % 4 == j % 4 || !d.per_head);
        ck_assert_msg(shared ? same == N : same < 15, "%d: draws %d and %d share %d of %d", which, i, j, same, N);
      }
    fly_sa_release(&sa);
  }
  fly_mask_release(&mask);
}
END_TEST

START_TEST(the_callers_own_permutation_is_taken) {
  shape s = {FLY_F32, 16, 16, 2, 2, 2, 100};
  fly_mask *mask = scene_mask("stochastic");
  fly_attention c, own;
  fly_sa *sa, *again;
  fly_error error;
  fly_sa_desc d = desc_of(1, &s); /* per head and sample */
  make_call(&s, mask, &c), make_call(&s, mask, &own);
  ck_fly_ok(fly_sa_create(mask, &d, &sa, &error), error);
  ck_fly_ok(fly_sa_apply(sa, &c, &error), error);
  int32_t *rows = malloc(400 * sizeof *rows);
  memcpy(rows, c.geometry.q_rows.rows, 400 * sizeof *rows);
  d.rows = (fly_row_map){rows, 200, 100}, d.seed = 99, d.per_head = false;
  ck_fly_ok(fly_sa_create(mask, &d, &again, &error), error);
  free(rows); /* copied */
  ck_fly_ok(fly_sa_apply(again, &own, &error), error);
  run_both(&c), run_both(&own);
  ck_assert(scene_equal(&c.out, &own.out) && scene_equal(&c.d_k, &own.d_k));
  fly_sa_release(&sa), fly_sa_release(&again);
  free_call(&c), free_call(&own);
  fly_mask_release(&mask);
}
END_TEST

/* The rows of a fly_sa are not looked at again; others that come with its map are, and so are
 * its own once it is gone. */
START_TEST(only_its_own_rows_are_trusted) {
  shape s = {FLY_F32, 16, 16, 2, 2, 2, 100};
  fly_mask *mask = scene_mask("stochastic");
  fly_attention c;
  fly_sa *sa;
  fly_error error;
  fly_sa_desc d = desc_of(0, &s);
  make_call(&s, mask, &c);
  ck_fly_ok(fly_sa_create(mask, &d, &sa, &error), error);
  ck_fly_ok(fly_sa_apply(sa, &c, &error), error);
  fly_map *map = fly_map_retain((fly_map *)c.map);
  fly_bound *bound = fly_bound_retain(c.bound);
  ck_fly_ok(fly_attention_forward(&c, &error), error);
  fly_attention shorter = c; /* tensors that the rows do not fit */
  shorter.q.shape[2] = shorter.out.shape[2] = shorter.lse.shape[2] = 99;
  ck_assert_int_eq(fly_attention_forward(&shorter, &error), FLY_ERROR_ARGUMENT);
  int32_t own[100];
  memcpy(own, c.geometry.q_rows.rows, sizeof own);
  fly_attention other = c;
  other.geometry.q_rows.rows = other.geometry.kv_rows.rows = own;
  ck_fly_ok(fly_attention_forward(&other, &error), error);
  own[7] = own[8];
  ck_assert_int_eq(fly_attention_forward(&other, &error), FLY_ERROR_ARGUMENT);
  other = c;
  other.geometry.q_offset = 1;
  ck_assert_int_eq(fly_attention_forward(&other, &error), FLY_ERROR_ARGUMENT);
  ck_assert_ptr_nonnull(map->known);
  fly_sa_release(&sa);
  ck_assert_ptr_null(map->known);
  fly_bound_release(&bound);
  fly_map_release(&map);
  free_call(&c);
  fly_mask_release(&mask);
}
END_TEST

START_TEST(draws_do_not_depend_on_threads) {
  fly_mask *mask = scene_mask("stochastic");
  fly_attention c[3];
  fly_sa *sa[3];
  fly_error error;
  for (int i = 0; i < 3; i++) {
    fly_sa_desc d = {FLY_INIT(fly_sa_desc),
                     .left = 3,
                     .batch = 3,
                     .heads = 4,
                     .length = 300,
                     .per_head = true,
                     .per_sample = true,
                     .threads = 1 + i,
                     .parallel_for = i == 2 ? test_backwards : NULL};
    c[i] = (fly_attention){FLY_INIT(fly_attention)};
    ck_fly_ok(fly_sa_create(mask, &d, &sa[i], &error), error);
    ck_fly_ok(fly_sa_apply(sa[i], &c[i], &error), error);
    ck_assert_mem_eq(c[i].geometry.q_rows.rows, c[0].geometry.q_rows.rows, 3 * 4 * 300 * sizeof(int32_t));
  }
  for (int i = 0; i < 3; i++) fly_sa_release(&sa[i]);
  fly_mask_release(&mask);
}
END_TEST

/* ---- real inputs ------------------------------------------------------------------------------------------------- */

static void compare(const char *name, const fly_tensor *got, double most, double frobenius, bool relative) {
  fly_tensor want = scene_load(name);
  scene_difference d = scene_compare(got, &want);
  printf("%s: at most %.2g of %.2g, relative Frobenius %.2g\n", name, d.worst, d.largest, d.frobenius);
  ck_assert_double_le(d.worst, relative ? most * d.largest : most);
  ck_assert_double_le(d.frobenius, frobenius);
  scene_free(&want);
}

START_TEST(real_inputs_agree_with_float64_references) {
  fly_mask *mask = scene_mask("stochastic");
  fly_sa *sa;
  fly_error error;
  int64_t count;
  int32_t *rows = scene_load_rows("perm", &count);
  fly_attention c = {FLY_INIT(fly_attention),      .q = scene_load("layer14_q"),
                     .k = scene_load("layer14_k"), .v = scene_load("layer14_v"),
                     .d_out = scene_load("dout"),  .kernel = scene_kernel(mask, FLY_F32, 64, 64)};
  scene_outputs(&c, 0);
  scene_free(&c.d_lse);
  fly_sa_desc d = {FLY_INIT(fly_sa_desc), .left = 128,     .right = 128,          .batch = 1,
                   .heads = c.q.shape[1], .length = count, .rows = {.rows = rows}};
  ck_fly_ok(fly_sa_create(mask, &d, &sa, &error), error);
  ck_fly_ok(fly_sa_apply(sa, &c, &error), error);
  run_both(&c);
  compare("sa128_out", &c.out, 2e-5, 1e-6, false);
  compare("sa128_lse", &c.lse, 2e-5, 1e-6, false);
  compare("sa128_dq", &c.d_q, 5e-6, 5e-6, true);
  compare("sa128_dk", &c.d_k, 5e-6, 5e-6, true);
  compare("sa128_dv", &c.d_v, 5e-6, 5e-6, true);
  free(rows);
  fly_sa_release(&sa);
  free_call(&c);
  fly_mask_release(&mask);
}
END_TEST

static Suite *suite(void) {
  Suite *suite = suite_create("stochastic");
  TCase *tests = tcase_create("stochastic");
  tcase_add_loop_test(tests, attention_is_dense_attention_over_documented_positions, 0, WINDOWS);
  tcase_add_loop_test(tests, one_call_has_the_bits_of_three_steps, 0, WINDOWS);
  tcase_add_loop_test(tests, tokens_may_have_q_k_and_v_side_by_side, 0, WINDOWS);
  tcase_add_loop_test(tests, the_ring_closes_over_the_ends, 0, WINDOWS);
  tcase_add_loop_test(tests, documents_are_permuted_within_themselves, 0, WINDOWS);
  tcase_add_test(tests, no_token_leaks_to_another_document);
  tcase_add_test(tests, heads_and_samples_draw_their_own);
  tcase_add_test(tests, the_callers_own_permutation_is_taken);
  tcase_add_test(tests, draws_do_not_depend_on_threads);
  tcase_add_test(tests, only_its_own_rows_are_trusted);
  TCase *references = tcase_create("references");
  if (scene_data()) tcase_add_test(references, real_inputs_agree_with_float64_references);
  suite_add_tcase(suite, tests);
  suite_add_tcase(suite, references);
  return suite;
}

FLY_TEST_MAIN(suite)
