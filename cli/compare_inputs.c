/* compare_inputs.c: what the mechanisms attend over: three .npy files, random numbers, or the sample of the sources;
 * all in f32, so that differences between mechanisms are not those of rounding. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "compare.h"

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

void *compare_alloc(size_t bytes) {
  enum { HUGE_PAGE = 2 << 20 };
  if (bytes < 2 * HUGE_PAGE) return calloc(bytes + 64, 1);
  size_t whole = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
  void *data = aligned_alloc(HUGE_PAGE, whole);
  if (!data) return NULL;
  madvise(data, whole, MADV_HUGEPAGE);
  return memset(data, 0, whole);
}

fly_status tensor_create(int64_t batch, int64_t heads, int64_t length, int64_t dim, fly_tensor *out, fly_error *error) {
  int64_t count;
  *out = (fly_tensor){0};
  if (__builtin_mul_overflow(batch, heads, &count) || __builtin_mul_overflow(count, length, &count) ||
      __builtin_mul_overflow(count, dim, &count) || count > INT64_MAX / 8)
    return fail_memory(error);
  float *data = compare_alloc((size_t)count * sizeof *data);
  *out = fly_tensor_dense(data, FLY_F32, batch, heads, length, dim);
  return data ? FLY_OK : fail_memory(error);
}

static fly_status draw(int64_t batch, int64_t heads, int64_t length, int64_t dim, uint64_t seed, fly_tensor *out,
                       fly_error *error) {
  fly_status status = tensor_create(batch, heads, length, dim, out, error);
  if (status != FLY_OK) return status;
  int64_t count = batch * heads * length * dim;
  float *numbers = random_normal(FLY_F32, count, seed);
  if (!numbers) return fail_memory(error);
  memcpy(out->data, numbers, (size_t)count * sizeof *numbers);
  free(numbers);
  return FLY_OK;
}

static fly_status create_outputs(tensors *t, int64_t value_dim, fly_error *error) {
  const int64_t *s = t->q.shape;
  fly_status status = tensor_create(s[0], s[1], s[2], value_dim, &t->out, error);
  if (status == FLY_OK) status = tensor_create(s[0], s[1], s[2], 1, &t->lse, error);
  return status;
}

fly_status inputs_draw(int64_t batch, int64_t heads, int64_t length, int64_t dim, int64_t value_dim, bool backward,
                       tensors *out, fly_error *error) {
  *out = (tensors){0};
  fly_status status = draw(batch, heads, length, dim, 1, &out->q, error);
  if (status == FLY_OK) status = draw(batch, heads, length, dim, 2, &out->k, error);
  if (status == FLY_OK) status = draw(batch, heads, length, value_dim, 3, &out->v, error);
  if (status == FLY_OK) status = create_outputs(out, value_dim, error);
  if (status == FLY_OK && backward) {
    status = draw(batch, heads, length, value_dim, 4, &out->d_out, error);
    if (status == FLY_OK) status = tensor_create(batch, heads, length, dim, &out->d_q, error);
    if (status == FLY_OK) status = tensor_create(batch, heads, length, dim, &out->d_k, error);
    if (status == FLY_OK) status = tensor_create(batch, heads, length, value_dim, &out->d_v, error);
  }
  if (status != FLY_OK) tensors_free(out);
  return status;
}

void tensors_free(tensors *t) {
  fly_tensor *all[] = {&t->q, &t->k, &t->v, &t->out, &t->lse, &t->d_out, &t->d_q, &t->d_k, &t->d_v};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    free(all[i]->data);
    *all[i] = (fly_tensor){0};
  }
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static fly_status read_tensor(const char *path, fly_tensor *out, fly_error *error) {
  npy_array array = {0};
  fly_status status = npy_read(path, &array, error);
  if (status == FLY_OK && array.rank != 4)
    status = fail(error, FLY_ERROR_ARGUMENT, path, "has %d dimensions; [batch, heads, seq, head_dim] has 4",
                  array.rank);
  if (status == FLY_OK && array.type != FLY_F32 && array.type != FLY_F16)
    status = fail(error, FLY_ERROR_ARGUMENT, path, "holds %s; f32 and f16 are supported", fly_type_name(array.type));
  if (status == FLY_OK) {
    const int64_t *s = array.shape;
    status = tensor_create(s[0], s[1], s[2], s[3], out, error);
  }
  for (int64_t i = 0; status == FLY_OK && i < array.count; i++) {
    float x = array.type == FLY_F16 ? f16_to_f32(((uint16_t *)array.data)[i]) : ((float *)array.data)[i];
    if (!isfinite(x))
      status = fail(error, FLY_ERROR_ARGUMENT, path, "holds %f: only finite numbers can be compared", (double)x);
    ((float *)out->data)[i] = x;
  }
  npy_free(&array);
  return status;
}

static fly_status check_shapes(const char *const *paths, const tensors *t, fly_error *error) {
  const int64_t *q = t->q.shape, *k = t->k.shape, *v = t->v.shape;
  if (q[0] != k[0] || q[2] != k[2] || q[3] != k[3])
    return fail(error, FLY_ERROR_ARGUMENT, paths[1],
                "queries and keys must have the same batch, length and head_dim to be compared");
  if (k[0] != v[0] || k[1] != v[1] || k[2] != v[2])
    return fail(error, FLY_ERROR_ARGUMENT, paths[2], "keys and values differ in batch, heads or length");
  if (q[3] < 1 || q[3] > 512 || v[3] < 1 || v[3] > 512)
    return fail(error, FLY_ERROR_ARGUMENT, paths[0], "head_dim must be 1 to 512");
  if (q[0] < 1 || q[1] < 1 || q[2] < 2) return fail(error, FLY_ERROR_ARGUMENT, paths[0], "holds fewer than 2 tokens");
  if (k[1] < 1 || q[1] % k[1] != 0)
    return fail(error, FLY_ERROR_ARGUMENT, paths[1], "%lld key heads do not divide %lld query heads", (long long)k[1],
                (long long)q[1]);
  return FLY_OK;
}

static fly_status read_files(const char *const *paths, tensors *out, fly_error *error) {
  fly_status status = read_tensor(paths[0], &out->q, error);
  if (status == FLY_OK) status = read_tensor(paths[1], &out->k, error);
  if (status == FLY_OK) status = read_tensor(paths[2], &out->v, error);
  if (status == FLY_OK) status = check_shapes(paths, out, error);
  if (status == FLY_OK) status = create_outputs(out, out->v.shape[3], error);
  if (status != FLY_OK) tensors_free(out);
  return status;
}

/* What the numbers are: "1024 tokens, ... (KIND)"; of a file's name, what is not printable ASCII shows as '?'. */
static void describe(const char *kind, tensors *t) {
  const int64_t *q = t->q.shape;
  snprintf(t->description, sizeof t->description,
           "%lld tokens, %lld query heads, %lld key/value heads, head dimension %lld, batch %lld (%s)", (long long)q[2],
           (long long)q[1], (long long)t->k.shape[1], (long long)q[3], (long long)q[0], kind);
  for (char *at = t->description; *at; at++)
    if (*at < ' ' || *at > '~') *at = '?';
}

fly_status inputs_read(const compare_options *options, tensors *out, fly_error *error) {
  static const char *const sample[] = {FLYMASK_SOURCE_SAMPLE "/q.npy", FLYMASK_SOURCE_SAMPLE "/k.npy",
                                       FLYMASK_SOURCE_SAMPLE "/v.npy"};
  const char *const files[] = {options->q, options->k, options->v};
  const int64_t *s = options->shape;
  char kind[384];
  fly_status status;
  *out = (tensors){0};
  if (options->random) {
    snprintf(kind, sizeof kind, "random normal numbers, which real queries and keys are not");
    status = inputs_draw(s[0], s[1], s[2], s[3], s[3], false, out, error);
  } else {
    if (!options->q && access(sample[0], R_OK) != 0)
      return fail(error, FLY_ERROR_ARGUMENT, sample[0],
                  "the sample of the sources is not there: give --q, --k and --v, or --random B,H,N,D");
    if (options->q)
      snprintf(kind, sizeof kind, "%.120s, %.120s, %.120s", options->q, options->k, options->v);
    else
      snprintf(kind, sizeof kind, "the sample of the sources: layer 14 of a real language model reading a real text");
    status = read_files(options->q ? files : sample, out, error);
  }
  if (status == FLY_OK) describe(kind, out);
  return status;
}
