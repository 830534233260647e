/* scene.c: see scene.h. */
#include "scene.h"

#include "cli/npy.h"

fly_mask *scene_mask(const char *name) {
  fly_mask *mask = NULL;
  fly_error error = {0};
  char path[512];
  snprintf(path, sizeof path, "%s/masks/%s.c", FLYMASK_SOURCE, name);
  ck_fly_ok(fly_mask_compile_file(path, NULL, &mask, &error), error);
  return mask;
}

fly_mask *scene_source(const char *source) {
  fly_mask *mask = NULL;
  fly_error error = {0};
  ck_fly_ok(fly_mask_compile(source, "test.c", NULL, &mask, &error), error);
  return mask;
}

fly_kernel *scene_kernel(fly_mask *mask, fly_type type, int dim, int value_dim) {
  fly_kernel *kernel = NULL;
  fly_error error = {0};
  fly_kernel_desc desc = {FLY_INIT(fly_kernel_desc), .type = type, .head_dim = dim, .value_dim = value_dim};
  ck_fly_ok(fly_kernel_create(mask, &desc, &kernel, &error), error);
  return kernel;
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

static int64_t elements(const fly_tensor *t) { return t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3]; }

static size_t bytes_of(const fly_tensor *t) { return (size_t)elements(t) * fly_type_size(t->type); }

fly_tensor scene_tensor(fly_type type, int64_t batch, int64_t heads, int64_t rows, int64_t dim, int seed) {
  fly_tensor t = fly_tensor_dense(NULL, type, batch, heads, rows, dim);
  size_t size = fly_type_size(type);
  test_random random = {0x5eed0001 + (uint64_t)(seed + 1) * 7919};
  t.data = guard_alloc(bytes_of(&t) ? bytes_of(&t) : size, size, seed % 3 == 0);
  for (int64_t b = 0; b < batch; b++)
    for (int64_t h = 0; h < heads; h++)
      for (int64_t r = 0; r < rows; r++)
        for (int64_t d = 0; d < dim; d++) oracle_set(&t, b, h, r, d, seed < 0 ? CALL_UNTOUCHED : test_normal(&random));
  return t;
}

fly_tensor scene_like(const fly_tensor *t, int seed) {
  return scene_tensor(t->type, t->shape[0], t->shape[1], t->shape[2], t->shape[3], seed);
}

void scene_free(fly_tensor *t) {
  if (t->data) guard_free(t->data);
  t->data = NULL;
}

bool scene_equal(const fly_tensor *a, const fly_tensor *b) {
  return elements(a) == elements(b) && a->type == b->type && memcmp(a->data, b->data, bytes_of(a)) == 0;
}

void scene_copy(const fly_tensor *to, const fly_tensor *from) { memcpy(to->data, from->data, bytes_of(from)); }

void scene_outputs(fly_attention *c, int seed) {
  fly_tensor like_out = c->q;
  like_out.shape[3] = c->v.shape[3];
  if (!c->out.data) c->out = scene_like(&like_out, -1);
  if (!c->lse.data) c->lse = scene_tensor(FLY_F32, c->q.shape[0], c->q.shape[1], c->q.shape[2], 1, -1);
  if (!c->d_out.data) c->d_out = scene_like(&c->out, seed);
  if (!c->d_lse.data) c->d_lse = scene_like(&c->lse, seed + 1);
  if (!c->d_q.data) c->d_q = scene_like(&c->q, -1);
  if (!c->d_k.data) c->d_k = scene_like(&c->k, -1);
  if (!c->d_v.data) c->d_v = scene_like(&c->v, -1);
}

void scene_free_call(fly_attention *c) {
  fly_tensor *all[] = {&c->q, &c->k, &c->v, &c->out, &c->lse, &c->d_out, &c->d_lse, &c->d_q, &c->d_k, &c->d_v};
  for (int i = 0; i < 10; i++) scene_free(all[i]);
}

/* ---- real inputs ------------------------------------------------------------------------------------------------- */

/* ---- failing allocations ----------------------------------------------------------------------------------------- */

typedef struct selecting {
  fly_mask *mask;
  const fly_moba_desc *desc;
  const fly_attention *call;
  fly_selection *selection;
} selecting;

static fly_status select_blocks(void *context) {
  selecting *s = context;
  fly_error error;
  return fly_moba_select(s->mask, s->desc, &s->selection, &error);
}

static fly_status selected_forward(void *context) {
  selecting *s = context;
  fly_error error;
  return fly_selection_forward(s->selection, s->call, &error);
}

static fly_status selected_backward(void *context) {
  selecting *s = context;
  fly_error error;
  return fly_selection_backward(s->selection, s->call, &error);
}

void scene_failing_selection(fly_mask *mask, const fly_moba_desc *desc, const fly_attention *call) {
  selecting s = {mask, desc, call, NULL};
  ck_assert_int_gt(test_failing_allocations(select_blocks, &s), 1);
  ck_assert_int_gt(test_failing_allocations(selected_forward, &s), 1);
  ck_assert_int_gt(test_failing_allocations(selected_backward, &s), 1);
  fly_selection_release(&s.selection);
}

const char *scene_data(void) {
  const char *directory = getenv("FLYMASK_TEST_DATA");
  if (!directory) puts("SKIPPED: set FLYMASK_TEST_DATA to compare with its references");
  return directory;
}

static npy_array load(const char *name) {
  char path[512];
  npy_array a;
  fly_error error = {0};
  snprintf(path, sizeof path, "%s/%s.npy", getenv("FLYMASK_TEST_DATA"), name);
  ck_fly_ok(npy_read(path, &a, &error), error);
  return a;
}

fly_tensor scene_load(const char *name) {
  npy_array a = load(name);
  ck_assert(a.type == FLY_F16 || a.type == FLY_F32);
  ck_assert(a.rank == 3 || a.rank == 4);
  fly_tensor t = scene_tensor(FLY_F32, a.shape[0], a.shape[1], a.shape[2], a.rank == 4 ? a.shape[3] : 1, -1);
  for (int64_t i = 0; i < a.count; i++)
    ((float *)t.data)[i] = a.type == FLY_F16 ? (float)test_from_f16(((uint16_t *)a.data)[i]) : ((float *)a.data)[i];
  npy_free(&a);
  return t;
}

int32_t *scene_load_rows(const char *name, int64_t *count) {
  npy_array a = load(name);
  ck_assert_int_eq(a.type, FLY_I32);
  int32_t *rows = malloc((size_t)a.count * sizeof *rows);
  memcpy(rows, a.data, (size_t)a.count * sizeof *rows);
  *count = a.count;
  npy_free(&a);
  return rows;
}

scene_difference scene_compare(const fly_tensor *got, const fly_tensor *want) {
  scene_difference d = {0};
  double sum = 0, norm = 0;
  ck_assert_int_eq(elements(got), elements(want));
  for (int64_t i = 0; i < elements(got); i++) {
    double x = ((float *)got->data)[i], y = ((float *)want->data)[i];
    ck_assert_msg(!isnan(x), "element %lld is NaN", (long long)i);
    if (x == y)
      sum += 0;
    else
      sum += (x - y) * (x - y), d.worst = fmax(d.worst, fabs(x - y));
    norm += isfinite(y) ? y * y : 0;
    if (isfinite(y)) d.largest = fmax(d.largest, fabs(y));
  }
  d.frobenius = sqrt(sum / norm);
  return d;
}
