/* buffer.c: element types, and captured buffers: immutable, reference-counted copies of host memory. */
#include <stdlib.h>
#include <string.h>

#include "pyramid.h"
#include "runtime.h"

static const struct {
  const char *name;
  size_t size;
} types[] = {
    [FLY_TYPE_NONE] = {"none", 0}, [FLY_F32] = {"f32", 4}, [FLY_F16] = {"f16", 2}, [FLY_BF16] = {"bf16", 2},
    [FLY_F64] = {"f64", 8},        [FLY_I8] = {"i8", 1},   [FLY_I16] = {"i16", 2}, [FLY_I32] = {"i32", 4},
    [FLY_I64] = {"i64", 8},        [FLY_U8] = {"u8", 1},   [FLY_U16] = {"u16", 2}, [FLY_U32] = {"u32", 4},
    [FLY_U64] = {"u64", 8},        [FLY_BOOL] = {"bool", 1},
};

static bool known(fly_type type) { return (unsigned)type < sizeof types / sizeof *types; }

size_t fly_type_size(fly_type type) { return known(type) ? types[type].size : 0; }

const char *fly_type_name(fly_type type) { return known(type) ? types[type].name : "unknown"; }

static fly_status check_shape(fly_type type, int rank, const int64_t *shape, int64_t *count, fly_error *error) {
  bool allowed = known(type) && (type == FLY_F32 || type >= FLY_I8);
  if (!allowed)
    return flyi_fail(error, FLY_ERROR_ARGUMENT, "a captured buffer cannot hold %s: use integers, bool or f32",
                     fly_type_name(type));
  if (rank < 1 || rank > 4)
    return flyi_fail(error, FLY_ERROR_ARGUMENT, "a captured buffer has rank 1 to 4, not %d", rank);
  if (!shape) return flyi_fail(error, FLY_ERROR_ARGUMENT, "shape is NULL");
  *count = 1;
  for (int i = 0; i < rank; i++) {
    if (shape[i] < 0)
      return flyi_fail(error, FLY_ERROR_ARGUMENT, "dimension %d of a captured buffer is %lld", i, (long long)shape[i]);
    if (__builtin_mul_overflow(*count, shape[i], count) || *count > PTRDIFF_MAX / 8)
      return flyi_fail(error, FLY_ERROR_ARGUMENT, "the dimensions of a captured buffer multiply to more than fits");
  }
  return FLY_OK;
}

static flyi_hash hash_buffer(const fly_buffer *buffer) {
  struct {
    int64_t type, rank, shape[4];
    flyi_hash contents;
  } key = {buffer->type, buffer->rank, {0}, flyi_hash_bytes(buffer->data, buffer->count * fly_type_size(buffer->type))};
  memcpy(key.shape, buffer->shape, sizeof key.shape);
  return flyi_hash_bytes(&key, sizeof key);
}

fly_status fly_buffer_create(fly_type type, int rank, const int64_t *shape, const void *data, fly_buffer **out,
                             fly_error *error) {
  int64_t count = 0;
  if (!out) return flyi_fail(error, FLY_ERROR_ARGUMENT, "out is NULL");
  *out = NULL;
  fly_status status = check_shape(type, rank, shape, &count, error);
  if (status) return status;
  if (count && !data) return flyi_fail(error, FLY_ERROR_ARGUMENT, "data is NULL");
  size_t bytes = count * fly_type_size(type);
  void *copy = flyi_alloc(bytes + 8, 1);
  if (!copy) return flyi_no_memory(error);
  if (bytes) memcpy(copy, data, bytes);
  return flyi_buffer_take(type, rank, shape, copy, out, error);
}

fly_status flyi_buffer_take(fly_type type, int rank, const int64_t *shape, void *data, fly_buffer **out,
                            fly_error *error) {
  *out = NULL;
  fly_buffer *buffer = flyi_alloc(1, sizeof *buffer);
  if (!buffer) {
    free(data);
    return flyi_no_memory(error);
  }
  buffer->references = 1;
  buffer->type = type;
  buffer->rank = rank;
  buffer->count = 1;
  for (int i = 0; i < rank; i++) buffer->count *= shape[i];
  for (int i = 0; i < 4; i++) buffer->shape[i] = i < rank ? shape[i] : 1;
  buffer->data = data;
  if (type == FLY_BOOL) /* a byte other than 0 and 1 would be no value of C's bool */
    for (int64_t i = 0; i < buffer->count; i++) ((uint8_t *)data)[i] = ((uint8_t *)data)[i] != 0;
  buffer->hash = hash_buffer(buffer);
  *out = buffer;
  return FLY_OK;
}

fly_buffer *fly_buffer_retain(fly_buffer *buffer) {
  if (buffer) atomic_fetch_add_explicit(&buffer->references, 1, memory_order_relaxed);
  return buffer;
}

void fly_buffer_release(fly_buffer **slot) {
  fly_buffer *buffer = slot ? *slot : NULL;
  if (!buffer) return;
  *slot = NULL;
  if (atomic_fetch_sub_explicit(&buffer->references, 1, memory_order_acq_rel) != 1) return;
  flyi_pyramid_free(buffer->pyramid);
  flyi_residents_free(&buffer->residents);
  free(buffer->data);
  free(buffer);
}
