/* check_tensors.c: the tensors of a call: shapes and strides that make sense, and memory that two of them share. */
#include <inttypes.h>

#include "call.h"

fly_tensor fly_tensor_dense(void *data, fly_type type, int64_t batch, int64_t heads, int64_t seq, int64_t dim) {
  return (fly_tensor){
      .data = data, .type = type, .shape = {batch, heads, seq, dim}, .stride = {heads * seq * dim, seq * dim, dim, 1}};
}

static bool is_empty(const fly_tensor *t) {
  return t->shape[0] == 0 || t->shape[1] == 0 || t->shape[2] == 0 || t->shape[3] == 0;
}

/* Elements from the first to behind the last. False for an overflow, with room for bytes. */
static bool extent(const fly_tensor *t, int64_t *out) {
  *out = t->shape[3];
  for (int i = 0; i < 3; i++) {
    int64_t last;
    if (__builtin_mul_overflow(t->stride[i], t->shape[i] - 1, &last) || __builtin_add_overflow(*out, last, out))
      return false;
  }
  return *out <= PTRDIFF_MAX / 8;
}

/* Rows of a tensor that is written must be apart: from the smallest stride to the largest, each at least as large as
 * what it steps over. */
static bool is_injective(const fly_tensor *t) {
  int64_t covered = t->shape[3];
  bool done[3] = {t->shape[0] <= 1, t->shape[1] <= 1, t->shape[2] <= 1};
  for (int round = 0; round < 3; round++) {
    int next = -1;
    for (int i = 0; i < 3; i++)
      if (!done[i] && (next < 0 || t->stride[i] < t->stride[next])) next = i;
    if (next < 0) break;
    if (t->stride[next] < covered) return false;
    covered += t->stride[next] * (t->shape[next] - 1);
    done[next] = true;
  }
  return true;
}

/* Whether rows, planes and bytes can be counted, whatever the strides are, and where a dimension is 0: dimensions'
 * products are taken in any order, of some of them. */
static bool is_countable(const fly_tensor *t) {
  int64_t count = 1;
  for (int i = 0; i < 4; i++)
    if (__builtin_mul_overflow(count, t->shape[i] > 1 ? t->shape[i] : 1, &count)) return false;
  return count <= PTRDIFF_MAX / 8;
}

fly_status flyi_tensor_check(const char *name, const fly_tensor *t, fly_type type, int64_t dim, bool written,
                             fly_error *error) {
  if (t->type != type)
    return flyi_fail(error, FLY_ERROR_ARGUMENT, "%s.type is %s, wanted %s", name, fly_type_name(t->type),
                     fly_type_name(type));
  for (int i = 0; i < 4; i++)
    if (t->shape[i] < 0) return flyi_fail(error, FLY_ERROR_ARGUMENT, "%s.shape[%d] is %" PRId64, name, i, t->shape[i]);
  if (t->shape[3] != dim)
    return flyi_fail(error, FLY_ERROR_ARGUMENT, "%s.shape[3] is %" PRId64 ", wanted %" PRId64, name, t->shape[3], dim);
  if (!is_countable(t))
    return flyi_fail(error, FLY_ERROR_ARGUMENT,
                     "%s.shape is %" PRId64 " x %" PRId64 " x %" PRId64 " x %" PRId64
                     ": more elements than the address space has room for",
                     name, t->shape[0], t->shape[1], t->shape[2], t->shape[3]);
  if (is_empty(t)) return FLY_OK;
  for (int i = 0; i < 3; i++)
    if (t->stride[i] < 0)
      return flyi_fail(error, FLY_ERROR_ARGUMENT, "%s.stride[%d] is %" PRId64 ": negative strides are not supported",
                       name, i, t->stride[i]);
  if (t->shape[3] > 1 && t->stride[3] != 1)
    return flyi_fail(error, FLY_ERROR_ARGUMENT, "%s.stride[3] is %" PRId64 ": the last dimension must be contiguous",
                     name, t->stride[3]);
  int64_t elements;
  if (!extent(t, &elements))
    return flyi_fail(error, FLY_ERROR_ARGUMENT, "%s: shape and strides reach beyond the address space", name);
  if (written && !is_injective(t))
    return flyi_fail(error, FLY_ERROR_ARGUMENT, "%s: strides %" PRId64 ", %" PRId64 ", %" PRId64 " make rows overlap",
                     name, t->stride[0], t->stride[1], t->stride[2]);
  if (!t->data) return flyi_fail(error, FLY_ERROR_ARGUMENT, "%s.data is NULL", name);
  if ((uintptr_t)t->data % fly_type_size(type))
    return flyi_fail(error, FLY_ERROR_ARGUMENT, "%s.data is not aligned to its elements", name);
  return FLY_OK;
}

static int64_t gcd(int64_t a, int64_t b) {
  while (b) {
    int64_t rest = a % b;
    a = b, b = rest;
  }
  return a;
}

/* Pieces begin at base modulo the common divisor of all strides between them: where the two tensors' places on that
 * circle are apart, no bytes meet. A piece is a row, with those of the dimensions `inside`. */
static bool pieces_apart(const fly_tensor *a, const fly_tensor *b, unsigned inside) {
  int64_t size_a = (int64_t)fly_type_size(a->type), size_b = (int64_t)fly_type_size(b->type), circle = 0;
  int64_t piece_a = a->shape[3] * size_a, piece_b = b->shape[3] * size_b;
  for (int i = 0; i < 3; i++) {
    int64_t step_a = a->shape[i] > 1 ? a->stride[i] * size_a : 0, step_b = b->shape[i] > 1 ? b->stride[i] * size_b : 0;
    if (inside >> i & 1)
      piece_a += (a->shape[i] - 1) * step_a, piece_b += (b->shape[i] - 1) * step_b;
    else
      circle = gcd(gcd(circle, step_a), step_b);
  }
  if (circle == 0) return false;
  int64_t from_a = (int64_t)((uintptr_t)b->data - (uintptr_t)a->data) % circle;
  if (from_a < 0) from_a += circle;
  return from_a >= piece_a && circle - from_a >= piece_b;
}

/* As with Q and out in one array of [token][q, k, v, out], or with several heads of each. */
static bool interleave(const fly_tensor *a, const fly_tensor *b) {
  for (unsigned inside = 0; inside < 7; inside++)
    if (pieces_apart(a, b, inside)) return true;
  return false;
}

bool flyi_tensors_overlap(const fly_tensor *a, const fly_tensor *b) {
  int64_t elements_a, elements_b;
  if (!a->data || !b->data || is_empty(a) || is_empty(b)) return false;
  if (!extent(a, &elements_a) || !extent(b, &elements_b)) return false;
  uintptr_t start_a = (uintptr_t)a->data, end_a = start_a + elements_a * fly_type_size(a->type);
  uintptr_t start_b = (uintptr_t)b->data, end_b = start_b + elements_b * fly_type_size(b->type);
  return start_a < end_b && start_b < end_a && !interleave(a, b);
}
