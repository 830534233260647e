/* scene_call.c: attention calls over scenes. */
#include "scene_call.h"

bool scene_sees(void *context, int b, int h, int q, int kv) {
  const scene *s = context;
  int row = q - s->q_offset;
  return s->seen[(((size_t)b * s->heads + h) * s->len_q + row) * s->len_kv + kv];
}

fly_bound *scene_bind(fly_mask *mask, const scene *s) {
  fly_arg args[SCENE_ARGS];
  fly_error error;
  fly_bound *bound;
  for (int i = 0; i < s->arg_count; i++) {
    const scene_arg *arg = &s->args[i];
    args[i] = FLY_INT(arg->name, arg->value);
    if (!arg->data) continue;
    args[i] = FLY_CAPTURE(arg->name, NULL);
    ck_fly_ok(fly_buffer_create(arg->type, arg->rank, arg->shape, arg->data, &args[i].buffer, &error), error);
  }
  ck_fly_ok(fly_mask_bind(mask, args, s->arg_count, &bound, &error), error);
  for (int i = 0; i < s->arg_count; i++)
    if (args[i].kind == FLY_ARG_BUFFER) fly_buffer_release(&args[i].buffer);
  return bound;
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

/* Dense, with heads inside of rows, or with rows an odd number of elements apart. Ends at its last element. */
static fly_tensor make_tensor(scene_call *t, int which, int64_t heads, int64_t rows, int64_t dim, fly_type type,
                              int layout) {
  int64_t batch = t->scene->ragged ? 1 : t->scene->batch;
  fly_tensor x = fly_tensor_dense(NULL, type, batch, heads, rows, dim);
  if (layout == 1) x.stride[0] = rows * heads * dim, x.stride[1] = dim, x.stride[2] = heads * dim;
  if (layout == 2) x.stride[2] = dim + 3, x.stride[1] = rows * (dim + 3) + 5, x.stride[0] = heads * x.stride[1] + 1;
  int64_t elements = x.stride[0] * (batch - 1) + x.stride[1] * (heads - 1) + x.stride[2] * (rows - 1) + dim;
  x.data = t->memory[which] = guard_alloc((size_t)elements * fly_type_size(type), fly_type_size(type), 0);
  return x;
}

static void fill(const fly_tensor *x, test_random *random, double constant) {
  for (int64_t b = 0; b < x->shape[0]; b++)
    for (int64_t h = 0; h < x->shape[1]; h++)
      for (int64_t r = 0; r < x->shape[2]; r++)
        for (int64_t d = 0; d < x->shape[3]; d++) oracle_set(x, b, h, r, d, random ? test_normal(random) : constant);
}

static int32_t most(const int32_t *rows, int64_t count, int32_t at_least) {
  for (int64_t i = 0; rows && i < count; i++)
    if (rows[i] >= at_least) at_least = rows[i] + 1;
  return at_least;
}

/* Forward, no output row may be written twice: they have rows of their own where queries repeat, in reverse. */
static void make_out_rows(scene_call *t, int64_t rows) {
  t->out_rows = malloc(((size_t)rows + 1) * sizeof *t->out_rows);
  for (int64_t r = 0; r < rows; r++) t->out_rows[r] = (int32_t)(rows - 1 - r);
  t->call.out_rows = (fly_row_map){.rows = t->out_rows};
}

static void make_geometry(scene_call *t, int64_t rows_q, int64_t rows_kv) {
  const scene *s = t->scene;
  fly_geometry *g = &t->call.geometry;
  *g = (fly_geometry){FLY_INIT(fly_geometry), .batch = s->batch, .heads = s->heads};
  g->len_q = s->len_q, g->len_kv = s->len_kv, g->q_offset = s->q_offset;
  if (s->q_rows) g->q_rows = (fly_row_map){s->q_rows, s->ragged ? 0 : rows_q * s->heads, rows_q};
  if (s->kv_rows) g->kv_rows = (fly_row_map){s->kv_rows, s->ragged ? 0 : rows_kv * s->heads, rows_kv};
  if (s->ragged) g->cu_seqlens_q = s->cu_q, g->cu_seqlens_kv = s->cu_kv;
}

static void make_gradients(scene_call *t, int64_t kv_heads, int64_t seq_q, int64_t seq_kv, int64_t seq_out, int layout,
                           test_random *random) {
  fly_attention *c = &t->call;
  fly_type type = c->q.type;
  int heads = t->scene->heads;
  int64_t dim = c->q.shape[3], value_dim = c->v.shape[3];
  c->d_out = make_tensor(t, 5, heads, seq_out, value_dim, type, layout == 1);
  c->d_lse = make_tensor(t, 6, heads, seq_out, 1, FLY_F32, 0);
  c->d_q = make_tensor(t, 7, heads, seq_q, dim, type, layout);
  c->d_k = make_tensor(t, 8, kv_heads, seq_kv, dim, type, layout);
  c->d_v = make_tensor(t, 9, kv_heads, seq_kv, value_dim, type, layout);
  fill(&c->d_out, random, 0), fill(&c->d_lse, random, 0);
  fill(&c->d_q, NULL, 1234), fill(&c->d_k, NULL, 1234), fill(&c->d_v, NULL, 1234);
  oracle_forward(c, scene_sees, (void *)t->scene);
}

void scene_call_init(scene_call *t, const scene *s, fly_mask *mask, fly_type type, int dim, int value_dim, int variant,
                     bool backward) {
  *t = (scene_call){.scene = s, .call = {FLY_INIT(fly_attention)}};
  test_random random = {0x9e3779b97f4a7c15u * (uint64_t)(variant + 1) + (uint64_t)s->len_q};
  int64_t planes = (s->ragged ? 1 : s->batch) * (int64_t)s->heads;
  int64_t rows_q = s->ragged ? s->cu_q[s->batch] : s->len_q, rows_kv = s->ragged ? s->cu_kv[s->batch] : s->len_kv;
  int64_t seq_q = most(s->q_rows, planes * rows_q, (int32_t)rows_q) + (s->q_rows ? 2 : 0);
  int64_t seq_kv = most(s->kv_rows, planes * rows_kv, (int32_t)rows_kv) + (s->kv_rows ? 3 : 0);
  int64_t seq_out = s->q_rows ? rows_q + 4 : seq_q, kv_heads = variant % 2 ? 1 : s->heads;
  int layout = variant % 3;
  fly_attention *c = &t->call;
  c->q = make_tensor(t, 0, s->heads, seq_q, dim, type, layout);
  c->k = make_tensor(t, 1, kv_heads, seq_kv, dim, type, layout);
  c->v = make_tensor(t, 2, kv_heads, seq_kv, value_dim, type, layout);
  c->out = make_tensor(t, 3, s->heads, seq_out, value_dim, type, layout);
  c->lse = make_tensor(t, 4, s->heads, seq_out, 1, FLY_F32, layout == 1);
  fill(&c->q, &random, 0), fill(&c->k, &random, 0), fill(&c->v, &random, 0);
  fill(&c->out, NULL, SCENE_UNTOUCHED), fill(&c->lse, NULL, SCENE_UNTOUCHED);
  make_geometry(t, rows_q, rows_kv);
  if (s->q_rows) make_out_rows(t, rows_q);
  c->bound = t->bound = scene_bind(mask, s);
  snprintf(t->what, sizeof t->what, "%s %d x %d, D %d DV %d, %d/%d heads, layout %d%s%s", fly_type_name(type), s->len_q,
           s->len_kv, dim, value_dim, s->heads, (int)kv_heads, layout, s->ragged ? ", ragged" : "",
           s->q_rows ? ", row maps" : "");
  if (backward) make_gradients(t, kv_heads, seq_q, seq_kv, seq_out, layout, &random);
}

void scene_call_free(scene_call *t) {
  for (int i = 0; i < 10; i++)
    if (t->memory[i]) guard_free(t->memory[i]);
  free(t->out_rows);
  fly_bound_release(&t->bound);
}
