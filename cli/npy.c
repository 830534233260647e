/* npy.c: reading and writing numpy's .npy files. Input: a file or a pipe; output: a row-major array in the machine's
 * byte order. The format: numpy.lib.format, versions 1.0 to 3.0. Nothing in a file is trusted: sizes are checked
 * before memory is asked for, and a pipe's data is only given memory as it arrives. */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"
#include "npy_header.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "elements are read as they lie");

static const char magic[6] = "\x93NUMPY";

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* Reads up to `size` bytes; fewer only at the end of the file. */
static fly_status read_some(int fd, const char *path, void *out, size_t size, size_t *got, fly_error *error) {
  *got = 0;
  while (*got < size) {
    size_t want = size - *got < (1u << 30) ? size - *got : 1u << 30;
    ssize_t n = read(fd, (char *)out + *got, want);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail(error, FLY_ERROR_IO, path, "cannot read: %s", strerror(errno));
    if (n == 0) break;
    *got += (size_t)n;
  }
  return FLY_OK;
}

static fly_status read_exactly(int fd, const char *path, void *out, size_t size, const char *what, fly_error *error) {
  size_t got;
  fly_status status = read_some(fd, path, out, size, &got, error);
  if (status == FLY_OK && got < size)
    status = fail(error, FLY_ERROR_ARGUMENT, path, "not a .npy file: it ends inside the %s", what);
  return status;
}

/* Magic, version and the header's text, without its length; NUL-terminated. */
static fly_status read_header(int fd, const char *path, char **text, fly_error *error) {
  uint8_t start[8], length[4] = {0};
  size_t got;
  fly_status status = read_some(fd, path, start, sizeof start, &got, error);
  if (status != FLY_OK) return status;
  if (got < sizeof start || memcmp(start, magic, sizeof magic) != 0)
    return fail(error, FLY_ERROR_ARGUMENT, path, "not a .npy file: it does not begin with numpy's magic");
  int major = start[6], minor = start[7];
  if (major < 1 || major > 3 || minor != 0)
    return fail(error, FLY_ERROR_ARGUMENT, path, "version %d.%d of .npy is unknown (1.0, 2.0 and 3.0 are known)", major,
                minor);
  status = read_exactly(fd, path, length, major == 1 ? 2 : 4, "header", error);
  if (status != FLY_OK) return status;
  size_t size = length[0] | (size_t)length[1] << 8 | (size_t)length[2] << 16 | (size_t)length[3] << 24;
  if (size > NPY_MAX_HEADER) return fail(error, FLY_ERROR_ARGUMENT, path, "a header of %zu bytes is too long", size);
  char *header = calloc(size + 1, 1);
  if (!header) return fail_memory(error);
  status = read_exactly(fd, path, header, size, "header", error);
  if (status == FLY_OK && strlen(header) != size)
    status = fail(error, FLY_ERROR_ARGUMENT, path, "bad header: a zero byte in it");
  if (status != FLY_OK) {
    free(header);
    return status;
  }
  *text = header;
  return FLY_OK;
}

/* Reads `size` bytes of a file whose length is unknown: memory grows with what arrives. */
static fly_status read_stream(int fd, const char *path, size_t size, void **out, fly_error *error) {
  char *data = NULL;
  size_t used = 0, capacity = 0;
  fly_status status = FLY_OK;
  do {
    size_t next = capacity ? 2 * capacity : 1 << 20;
    capacity = next < size ? next : size;
    char *grown = realloc(data, capacity ? capacity : 1);
    if (!grown) {
      status = fail_memory(error);
      break;
    }
    data = grown;
    size_t got;
    status = read_some(fd, path, data + used, capacity - used, &got, error);
    used += got;
    if (status == FLY_OK && used < capacity)
      status = fail(error, FLY_ERROR_ARGUMENT, path, "truncated: the shape wants %zu bytes of data, there are %zu",
                    size, used);
  } while (status == FLY_OK && used < size);
  if (status != FLY_OK)
    free(data);
  else
    *out = data;
  return status;
}

/* The data behind the header: exactly `size` bytes and nothing after them. */
static fly_status read_data(int fd, const char *path, size_t size, void **out, fly_error *error) {
  struct stat info;
  off_t at = lseek(fd, 0, SEEK_CUR);
  if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && at >= 0) {
    size_t left = info.st_size > at ? (size_t)(info.st_size - at) : 0;
    if (left < size)
      return fail(error, FLY_ERROR_ARGUMENT, path, "truncated: the shape wants %zu bytes of data, there are %zu", size,
                  left);
  }
  fly_status status = read_stream(fd, path, size, out, error);
  if (status != FLY_OK) return status;
  char extra;
  size_t got;
  status = read_some(fd, path, &extra, 1, &got, error);
  if (status == FLY_OK && got)
    status = fail(error, FLY_ERROR_ARGUMENT, path, "there is more data than the shape says (%zu bytes)", size);
  if (status != FLY_OK) {
    free(*out);
    *out = NULL;
  }
  return status;
}

/* ---- layout ------------------------------------------------------------------------------------------------------ */

static void swap_bytes(uint8_t *data, int64_t count, size_t size) {
  for (int64_t i = 0; i < count; i++, data += size)
    for (size_t j = 0; j < size / 2; j++) {
      uint8_t byte = data[j];
      data[j] = data[size - 1 - j];
      data[size - 1 - j] = byte;
    }
}

/* Column-major to row-major. */
static fly_status to_row_major(npy_array *array, fly_error *error) {
  size_t size = fly_type_size(array->type);
  int64_t stride[NPY_MAX_RANK], index[NPY_MAX_RANK] = {0};
  for (int d = 0; d < array->rank; d++) stride[d] = d ? stride[d - 1] * array->shape[d - 1] : 1;
  uint8_t *rows = malloc(array->count ? (size_t)array->count * size : 1);
  if (!rows) return fail_memory(error);
  int64_t from = 0;
  for (int64_t to = 0; to < array->count; to++) {
    memcpy(rows + (size_t)to * size, (uint8_t *)array->data + (size_t)from * size, size);
    for (int d = array->rank - 1; d >= 0; d--) { /* the next index in row-major order */
      from += stride[d];
      if (++index[d] < array->shape[d]) break;
      from -= stride[d] * array->shape[d];
      index[d] = 0;
    }
  }
  free(array->data);
  array->data = rows;
  return FLY_OK;
}

static fly_status check_bools(const npy_array *array, const char *path, fly_error *error) {
  const uint8_t *bytes = array->data;
  for (int64_t i = 0; i < array->count; i++)
    if (bytes[i] > 1)
      return fail(error, FLY_ERROR_ARGUMENT, path, "element %lld is no bool: its byte is %d", (long long)i, bytes[i]);
  return FLY_OK;
}

fly_status npy_read(const char *path, npy_array *out, fly_error *error) {
  *out = (npy_array){0};
  char *text = NULL;
  npy_header header;
  fly_status status;
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return fail(error, FLY_ERROR_IO, path, "cannot open: %s", strerror(errno));
  if ((status = read_header(fd, path, &text, error)) != FLY_OK) goto done;
  if ((status = npy_header_parse(text, path, &header, error)) != FLY_OK) goto done;
  *out = header.array;
  size_t bytes = (size_t)out->count * fly_type_size(out->type);
  if ((status = read_data(fd, path, bytes, &out->data, error)) != FLY_OK) goto done;
  if (header.swapped) swap_bytes(out->data, out->count, fly_type_size(out->type));
  if (header.fortran && out->rank > 1 && (status = to_row_major(out, error)) != FLY_OK) goto done;
  if (out->type == FLY_BOOL) status = check_bools(out, path, error);
done:
  if (status != FLY_OK) npy_free(out);
  free(text);
  close(fd);
  return status;
}

void npy_free(npy_array *array) {
  free(array->data);
  *array = (npy_array){0};
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

fly_status npy_write(const char *path, fly_type type, int rank, const int64_t *shape, const void *data,
                     fly_error *error) {
  const char *code = npy_type_code(type);
  if (!code || rank < 0 || rank > NPY_MAX_RANK)
    return fail(error, FLY_ERROR_ARGUMENT, path, ".npy has no arrays of type %s and rank %d", fly_type_name(type),
                rank);
  char header[512] = {0}, dims[NPY_MAX_RANK * 24] = "";
  size_t count = 1, used = 0;
  for (int d = 0; d < rank; d++) {
    count *= (size_t)shape[d];
    used += (size_t)snprintf(dims + used, sizeof dims - used, "%s%lld", d ? ", " : "", (long long)shape[d]);
  }
  int length = snprintf(header + 10, sizeof header - 10, "{'descr': '%s', 'fortran_order': False, 'shape': (%s%s), }",
                        code, dims, rank == 1 ? "," : "");
  size_t total = (10 + (size_t)length + 1 + 63) / 64 * 64; /* data begin at a multiple of 64 */
  memset(header + 10 + length, ' ', total - 10 - (size_t)length);
  header[total - 1] = '\n';
  memcpy(header, magic, sizeof magic);
  header[6] = 1;
  header[8] = (char)((total - 10) & 0xff);
  header[9] = (char)((total - 10) >> 8);
  struct iovec parts[] = {{header, total}, {(void *)data, count * fly_type_size(type)}};
  return file_save(path, parts, 2, error);
}
