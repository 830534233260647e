/* npy_header.c: parses the header of a .npy file. Input: a text such as
 *     {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
 * Output: element type, byte order, order of dimensions, shape. Keys in any order, each once; spaces anywhere;
 * either kind of quotes; what follows the closing brace must be blank. */
#include <ctype.h>
#include <string.h>

#include "cli.h"
#include "npy_header.h"

typedef struct parser {
  const char *at, *path;
  fly_error *error;
} parser;

static const struct type_code {
  const char *code; /* without the byte order */
  fly_type type;
  const char *written;
} type_codes[] = {
    {"f4", FLY_F32, "<f4"}, {"f2", FLY_F16, "<f2"}, {"f8", FLY_F64, "<f8"}, {"i1", FLY_I8, "|i1"},
    {"i2", FLY_I16, "<i2"}, {"i4", FLY_I32, "<i4"}, {"i8", FLY_I64, "<i8"}, {"u1", FLY_U8, "|u1"},
    {"u2", FLY_U16, "<u2"}, {"u4", FLY_U32, "<u4"}, {"u8", FLY_U64, "<u8"}, {"b1", FLY_BOOL, "|b1"},
};
enum { TYPE_CODES = sizeof type_codes / sizeof *type_codes };

const char *npy_type_code(fly_type type) {
  for (int i = 0; i < TYPE_CODES; i++)
    if (type_codes[i].type == type) return type_codes[i].written;
  return NULL;
}

static void skip_space(parser *p) {
  while (isspace((unsigned char)*p->at)) p->at++;
}

static bool accept(parser *p, char c) {
  skip_space(p);
  if (*p->at != c) return false;
  p->at++;
  return true;
}

static fly_status bad(parser *p, const char *wanted) {
  return fail(p->error, FLY_ERROR_ARGUMENT, p->path, "bad header: %s expected at '%.20s'", wanted, p->at);
}

static fly_status parse_string(parser *p, char *out, size_t size) {
  skip_space(p);
  char quote = *p->at;
  if (quote != '\'' && quote != '"') return bad(p, "a string");
  const char *start = p->at + 1, *end = strchr(start, quote);
  if (!end || (size_t)(end - start) >= size) return bad(p, "a short string");
  memcpy(out, start, (size_t)(end - start));
  out[end - start] = 0;
  p->at = end + 1;
  return FLY_OK;
}

static fly_status parse_type(parser *p, npy_header *out) {
  char text[32];
  skip_space(p);
  if (*p->at == '[') return fail(p->error, FLY_ERROR_ARGUMENT, p->path, "arrays of structures are not supported");
  fly_status status = parse_string(p, text, sizeof text);
  if (status != FLY_OK) return status;
  const char *code = text;
  char order = '=';
  if (*code && strchr("<>=|", *code)) order = *code++;
  for (int i = 0; i < TYPE_CODES; i++) {
    if (strcmp(code, type_codes[i].code) != 0) continue;
    if (order == '|' && fly_type_size(type_codes[i].type) > 1) break;
    out->array.type = type_codes[i].type;
    out->swapped = order == '>' && fly_type_size(type_codes[i].type) > 1;
    return FLY_OK;
  }
  return fail(p->error, FLY_ERROR_ARGUMENT, p->path,
              "element type '%s' is not supported (f2, f4, f8, integers of 1 to 8 bytes and bool are)", text);
}

static fly_status parse_order(parser *p, npy_header *out) {
  skip_space(p);
  if (strncmp(p->at, "True", 4) == 0) {
    out->fortran = true;
    p->at += 4;
  } else if (strncmp(p->at, "False", 5) == 0) {
    p->at += 5;
  } else {
    return bad(p, "True or False");
  }
  return isalnum((unsigned char)*p->at) || *p->at == '_' ? bad(p, "True or False") : FLY_OK;
}

static fly_status parse_dimension(parser *p, int64_t *out) {
  skip_space(p);
  if (!isdigit((unsigned char)*p->at)) return bad(p, "a dimension");
  int64_t value = 0;
  for (; isdigit((unsigned char)*p->at); p->at++)
    if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, *p->at - '0', &value))
      return fail(p->error, FLY_ERROR_ARGUMENT, p->path, "the shape is too large");
  if (*p->at == 'L') p->at++; /* Python 2 wrote long integers so */
  *out = value;
  return FLY_OK;
}

static fly_status parse_shape(parser *p, npy_header *out) {
  npy_array *array = &out->array;
  if (!accept(p, '(')) return bad(p, "a tuple");
  while (!accept(p, ')')) {
    if (array->rank == NPY_MAX_RANK)
      return fail(p->error, FLY_ERROR_ARGUMENT, p->path, "more than %d dimensions", NPY_MAX_RANK);
    fly_status status = parse_dimension(p, &array->shape[array->rank]);
    if (status != FLY_OK) return status;
    array->rank++;
    if (accept(p, ',')) continue;
    if (array->rank == 1 || !accept(p, ')')) return bad(p, "',' or ')'"); /* (3) is no tuple */
    break;
  }
  return FLY_OK;
}

/* The number of elements. Dimensions of 0 do not excuse an overflow of the others: strides are made of them. */
static fly_status count_elements(parser *p, npy_array *array) {
  int64_t bytes = (int64_t)fly_type_size(array->type);
  bool empty = false;
  for (int d = 0; d < array->rank; d++) {
    if (array->shape[d] == 0)
      empty = true;
    else if (__builtin_mul_overflow(bytes, array->shape[d], &bytes))
      return fail(p->error, FLY_ERROR_ARGUMENT, p->path, "the shape is too large");
  }
  array->count = empty ? 0 : bytes / (int64_t)fly_type_size(array->type);
  return FLY_OK;
}

fly_status npy_header_parse(const char *text, const char *path, npy_header *out, fly_error *error) {
  static const struct {
    const char *key;
    fly_status (*parse)(parser *p, npy_header *out);
  } entries[] = {{"descr", parse_type}, {"fortran_order", parse_order}, {"shape", parse_shape}};
  parser p = {.at = text, .path = path, .error = error};
  unsigned seen = 0;
  fly_status status;
  *out = (npy_header){0};
  if (!accept(&p, '{')) return bad(&p, "'{'");
  while (!accept(&p, '}')) {
    char key[32];
    if ((status = parse_string(&p, key, sizeof key)) != FLY_OK) return status;
    int i = 0;
    while (i < 3 && strcmp(entries[i].key, key) != 0) i++;
    if (i == 3 || seen >> i & 1)
      return fail(error, FLY_ERROR_ARGUMENT, path, "bad header: %s key '%s'", i == 3 ? "unknown" : "repeated", key);
    seen |= 1u << i;
    if (!accept(&p, ':')) return bad(&p, "':'");
    if ((status = entries[i].parse(&p, out)) != FLY_OK) return status;
    if (accept(&p, ',')) continue;
    if (!accept(&p, '}')) return bad(&p, "',' or '}'");
    break;
  }
  skip_space(&p);
  if (*p.at) return bad(&p, "the end");
  for (int i = 0; i < 3; i++)
    if (!(seen >> i & 1)) return fail(error, FLY_ERROR_ARGUMENT, path, "bad header: no '%s'", entries[i].key);
  return count_elements(&p, &out->array);
}
