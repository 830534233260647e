/* call_case.c: builds a forward call from a short description. */
#include "call_case.h"

static void *guarded(call_case *t, size_t bytes, size_t align) {
  for (int i = 0; i < 8; i++)
    if (!t->memory[i]) return t->memory[i] = guard_alloc(bytes ? bytes : align, align, (i + t->spec.seed) % 3 == 0);
  abort();
}

static int64_t total(const int32_t *cu, int64_t batch, int64_t otherwise) { return cu ? cu[batch] : otherwise; }

/* A tensor that ends at its last element. */
static fly_tensor make_tensor(call_case *t, int64_t heads, int64_t seq, int64_t dim, fly_type type, bool input) {
  int64_t batch = t->spec.cu_q ? 1 : t->spec.batch;
  fly_tensor x = fly_tensor_dense(NULL, type, batch, heads, seq, dim);
  switch (t->spec.layout) {
  case LAYOUT_BSHD:
    x.stride[0] = seq * heads * dim, x.stride[1] = dim, x.stride[2] = heads * dim;
    break;
  case LAYOUT_PADDED:
    x.stride[2] = dim + 3, x.stride[1] = seq * (dim + 3) + 5, x.stride[0] = heads * x.stride[1] + 1;
    break;
  case LAYOUT_BROADCAST:
    if (input) x.stride[0] = x.stride[1] = 0;
    break;
  default:
    break;
  }
  int64_t elements = x.stride[0] * (batch - 1) + x.stride[1] * (heads - 1) + x.stride[2] * (seq - 1) + dim;
  if (batch == 0 || heads == 0 || seq == 0) elements = 0;
  x.data = guarded(t, elements * fly_type_size(type), fly_type_size(type));
  return x;
}

static void fill(const fly_tensor *x, test_random *random, double amplitude) {
  for (int64_t b = 0; b < (x->stride[0] ? x->shape[0] : 1); b++)
    for (int64_t h = 0; h < (x->stride[1] ? x->shape[1] : 1); h++)
      for (int64_t s = 0; s < x->shape[2]; s++)
        for (int64_t d = 0; d < x->shape[3]; d++) oracle_set(x, b, h, s, d, amplitude * test_normal(random));
}

/* `n` rows below `limit`: distinct, or with `repeat` any. */
static void draw_rows(int32_t *rows, int64_t n, int64_t limit, bool repeat, test_random *random) {
  int32_t *all = malloc((limit + 1) * sizeof *all);
  for (int64_t i = 0; i < limit; i++) all[i] = (int32_t)i;
  for (int64_t i = 0; i < n; i++) {
    int64_t j = test_range(random, repeat ? 0 : i, limit - 1);
    int32_t x = all[j];
    if (!repeat) all[j] = all[i], all[i] = x;
    rows[i] = x;
  }
  free(all);
}

static fly_row_map make_rows(call_case *t, int which, int kind, int64_t n, int64_t limit, test_random *random) {
  const call_spec *s = &t->spec;
  if (!kind) return (fly_row_map){0};
  int64_t planes = kind == 1 ? 1 : s->heads * (s->cu_q ? 1 : s->batch);
  int32_t *rows = t->rows[which] = guard_alloc(planes * n * sizeof *rows + sizeof *rows, sizeof *rows, 0);
  for (int64_t p = 0; p < planes; p++) draw_rows(rows + p * n, n, limit, kind == 3, random);
  if (kind == 1) return (fly_row_map){.rows = rows};
  return (fly_row_map){.rows = rows, .stride_batch = s->cu_q ? 0 : s->heads * n, .stride_head = n};
}

static void complete(call_spec *s) {
  if (!s->type) s->type = FLY_F32;
  if (!s->value_dim) s->value_dim = s->dim;
  if (!s->batch) s->batch = 1;
  if (!s->heads) s->heads = 1;
  if (!s->kv_heads) s->kv_heads = s->heads;
  if (!s->tile_q) s->tile_q = 128;
  if (!s->tile_kv) s->tile_kv = 128;
  if (s->amplitude == 0) s->amplitude = 1;
}

void call_reset(call_case *t) {
  const fly_tensor *o = &t->call.out, *l = &t->call.lse;
  for (int64_t b = 0; b < o->shape[0]; b++)
    for (int64_t h = 0; h < o->shape[1]; h++)
      for (int64_t s = 0; s < o->shape[2]; s++) {
        for (int64_t d = 0; d < o->shape[3]; d++) oracle_set(o, b, h, s, d, CALL_UNTOUCHED);
        if (l->data) oracle_set(l, b, h, s, 0, CALL_UNTOUCHED);
      }
}

void call_init(call_case *t, const call_spec *spec, oracle_predicate *see, void *context) {
  memset(t, 0, sizeof *t);
  t->spec = *spec;
  complete(&t->spec);
  const call_spec *s = &t->spec;
  test_random random = {1000003 * (uint64_t)(s->seed + 1) + s->dim * 257 + s->len_q * 31 + s->len_kv};
  int64_t rows_q = total(s->cu_q, s->batch, s->len_q), rows_kv = total(s->cu_kv, s->batch, s->len_kv);
  int64_t seq_q = rows_q + (s->q_rows ? 7 : 0),
          seq_kv = s->kv_rows == 3 ? rows_kv / 2 + 1 : rows_kv + (s->kv_rows ? 5 : 0);
  int64_t seq_out = s->out_rows ? rows_q + 11 : seq_q;
  fly_attention *c = &t->call;
  c->size = sizeof *c;
  c->q = make_tensor(t, s->heads, seq_q, s->dim, s->type, false);
  c->k = make_tensor(t, s->kv_heads, seq_kv, s->dim, s->type, true);
  c->v = make_tensor(t, s->kv_heads, seq_kv, s->value_dim, s->type, true);
  c->out = make_tensor(t, s->heads, seq_out, s->value_dim, s->type, false);
  if (!s->no_lse) c->lse = make_tensor(t, s->heads, seq_out, 1, FLY_F32, false);
  fill(&c->q, &random, s->amplitude), fill(&c->k, &random, 1), fill(&c->v, &random, 1);
  c->geometry = (fly_geometry){FLY_INIT(fly_geometry),  .batch = s->batch,        .heads = s->heads,
                               .len_q = s->len_q,       .len_kv = s->len_kv,      .q_offset = s->q_offset,
                               .cu_seqlens_q = s->cu_q, .cu_seqlens_kv = s->cu_kv};
  c->geometry.q_rows = make_rows(t, 0, s->q_rows, rows_q, seq_q, &random);
  c->geometry.kv_rows = make_rows(t, 1, s->kv_rows, rows_kv, seq_kv, &random);
  c->out_rows = make_rows(t, 2, s->out_rows, rows_q, seq_out, &random);
  c->scale = s->scale;
  c->threads = s->threads;
  fly_kernel_desc desc = {FLY_INIT(fly_kernel_desc), s->type, s->dim, s->value_dim, s->target};
  handmade_init(&t->made, see, context, s->tile, &desc, &c->geometry, s->tile_q, s->tile_kv, s->demote);
  c->kernel = t->made.kernel, c->bound = &t->made.bound, c->map = &t->made.map;
  call_reset(t);
}

void call_run(call_case *t) {
  fly_error error = {0};
  ck_fly_ok(fly_attention_forward(&t->call, &error), error);
}

void call_free(call_case *t) {
  handmade_free(&t->made);
  for (int i = 0; i < 8; i++) guard_free(t->memory[i]);
  for (int i = 0; i < CALL_MAPS; i++) guard_free(t->rows[i]);
}

bool call_is_chosen(const call_spec *s) {
  static int calls;
  const char *share = getenv("FLYMASK_TEST_SHARE");
  if (!share || calls++ == 0) return true;
  uint64_t all = (uint64_t)(s->type * 3 + s->dim * 5 + s->value_dim * 7 + s->len_q * 11 + s->len_kv * 13 + calls);
  return test_next(&(test_random){all + 1}) >> 32 < UINT32_MAX / (uint64_t)atoi(share);
}

void call_test(const call_spec *spec, oracle_predicate *see, void *context) {
  call_case t;
  char what[256];
  if (!call_is_chosen(spec)) return;
  call_init(&t, spec, see, context);
  const call_spec *s = &t.spec;
  snprintf(what, sizeof what,
           "%s %s D %d DV %d batch %d heads %d/%d lengths %d, %d layout %d rows %d %d %d tile %d x %d",
           s->target ? s->target : "default", fly_type_name(s->type), s->dim, s->value_dim, (int)s->batch,
           (int)s->heads, (int)s->kv_heads, (int)s->len_q, (int)s->len_kv, s->layout, s->q_rows, s->kv_rows,
           s->out_rows, s->tile_q, s->tile_kv);
  call_run(&t);
  oracle_check(&t.call, see, context, CALL_UNTOUCHED, what);
  call_free(&t);
}

/* ---- predicates ------------------------------------------------------------------------------------------------ */

bool see_all(void *context, int b, int h, int q, int kv) {
  (void)context, (void)b, (void)h, (void)q, (void)kv;
  return true;
}

bool see_none(void *context, int b, int h, int q, int kv) { return !see_all(context, b, h, q, kv); }

bool see_causal(void *context, int b, int h, int q, int kv) {
  (void)context, (void)b, (void)h;
  return kv <= q;
}

bool see_window(void *context, int b, int h, int q, int kv) {
  const int *sides = context;
  (void)b, (void)h;
  return (sides[0] < 0 || q - kv <= sides[0]) && (sides[1] < 0 || kv - q <= sides[1]);
}

bool see_random(void *context, int b, int h, int q, int kv) {
  test_random random = {((uint64_t)b << 48 ^ (uint64_t)h << 40 ^ (uint64_t)q << 20 ^ (uint64_t)kv) +
                        0x9E3779B97F4A7C15};
  test_next(&random);
  return (int)(test_next(&random) >> 33 & 255) < *(const int *)context;
}
