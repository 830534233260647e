/* npy_convert.c: an array's elements in another type. What cannot be kept is an error that names the element; reals
 * alone may round, to f32. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

/* One element, as what it is: a real or an integer (of 65 bits: a u64 or a negative number). */
typedef struct element {
  bool real, negative;
  double value;
  uint64_t bits; /* integer: two's complement */
} element;

static bool is_real(fly_type type) { return type == FLY_F32 || type == FLY_F16 || type == FLY_F64; }

static element integer(int64_t value) { return (element){.negative = value < 0, .bits = (uint64_t)value}; }

static element load(fly_type type, const void *at) {
  union {
    float f32;
    double f64;
    uint16_t f16;
    int8_t i8;
    int16_t i16;
    int32_t i32;
    int64_t i64;
    uint8_t u8;
    uint16_t u16;
    uint32_t u32;
    uint64_t u64;
  } u;
  memcpy(&u, at, fly_type_size(type));
  switch (type) {
  case FLY_F32:
    return (element){.real = true, .value = u.f32};
  case FLY_F64:
    return (element){.real = true, .value = u.f64};
  case FLY_F16:
    return (element){.real = true, .value = f16_to_f32(u.f16)};
  case FLY_I8:
    return integer(u.i8);
  case FLY_I16:
    return integer(u.i16);
  case FLY_I32:
    return integer(u.i32);
  case FLY_I64:
    return integer(u.i64);
  case FLY_U16:
    return integer(u.u16);
  case FLY_U32:
    return integer(u.u32);
  case FLY_U64:
    return (element){.bits = u.u64};
  default:
    return integer(u.u8); /* FLY_U8, FLY_BOOL */
  }
}

/* A whole real as an integer; false for fractions, NaN and what 64 bits do not hold. */
static bool make_integer(element *e) {
  if (!e->real) return true;
  if (!(e->value == trunc(e->value)) || e->value < -0x1p63 || e->value >= 0x1p64) return false;
  e->negative = e->value < 0;
  e->bits = e->negative ? (uint64_t)(int64_t)e->value : (uint64_t)e->value;
  e->real = false;
  return true;
}

static bool integer_fits(const element *e, fly_type type) {
  bool is_signed = type >= FLY_I8 && type <= FLY_I64;
  unsigned width = type == FLY_BOOL ? 1 : 8 * (unsigned)fly_type_size(type);
  if (!is_signed) return !e->negative && (width == 64 || e->bits >> width == 0);
  if (e->negative) return (int64_t)e->bits >= INT64_MIN >> (64 - width);
  return e->bits <= (uint64_t)(INT64_MAX >> (64 - width));
}

static bool store(element e, fly_type type, void *at) {
  if (type == FLY_F32 || type == FLY_F64) {
    double value = e.real ? e.value : e.negative ? (double)(int64_t)e.bits : (double)e.bits;
    float narrow = (float)value;
    if (type == FLY_F32 && isinf(narrow) && !isinf(value)) return false;
    if (type == FLY_F32)
      memcpy(at, &narrow, sizeof narrow);
    else
      memcpy(at, &value, sizeof value);
    return true;
  }
  if (!make_integer(&e) || !integer_fits(&e, type)) return false;
  memcpy(at, &e.bits, fly_type_size(type)); /* little-endian: the low bytes */
  return true;
}

fly_status npy_convert(npy_array *array, fly_type type, const char *path, fly_error *error) {
  if (array->type == type) return FLY_OK;
  if (type == FLY_F16 || type == FLY_BF16 || type == FLY_TYPE_NONE)
    return fail(error, FLY_ERROR_ARGUMENT, path, "holds %s, but %s is wanted", fly_type_name(array->type),
                fly_type_name(type));
  size_t from = fly_type_size(array->type), to = fly_type_size(type);
  uint8_t *data = calloc(array->count ? (size_t)array->count : 1, to);
  if (!data) return fail_memory(error);
  for (int64_t i = 0; i < array->count; i++) {
    element e = load(array->type, (uint8_t *)array->data + (size_t)i * from);
    if (store(e, type, data + (size_t)i * to)) continue;
    free(data);
    if (is_real(array->type))
      return fail(error, FLY_ERROR_ARGUMENT, path, "element %lld is %.9g: not a value of type %s", (long long)i,
                  e.value, fly_type_name(type));
    return fail(error, FLY_ERROR_ARGUMENT, path, "element %lld is %s%llu: not a value of type %s", (long long)i,
                e.negative ? "-" : "", (unsigned long long)(e.negative ? 0 - e.bits : e.bits), fly_type_name(type));
  }
  free(array->data);
  array->data = data;
  array->type = type;
  return FLY_OK;
}
