/* scene_tensors.c: see scene_tensors.h. */
#include "scene_tensors.h"

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
