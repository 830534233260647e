/* The command's reader and writer of .npy files, against files written byte by byte here. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <dirent.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "support.h"

static char directory[64], path[128];

static void make_directory(void) {
  strcpy(directory, "/tmp/flymask-npy.XXXXXX");
  ck_assert_ptr_nonnull(mkdtemp(directory));
  snprintf(path, sizeof path, "%s/a.npy", directory);
}

static void remove_directory(void) { remove_tree(directory); }

/* ---- files by hand ----------------------------------------------------------------------------------------------- */

typedef struct bytes {
  uint8_t data[1024];
  size_t size;
} bytes;

static void add(bytes *b, const void *data, size_t size) {
  ck_assert(b->size + size <= sizeof b->data);
  if (size) memcpy(b->data + b->size, data, size);
  b->size += size;
}

/* A file with this header, as it stands, and these data. */
static bytes make_file(int major, const char *header, const void *data, size_t size) {
  bytes b = {0};
  size_t length = strlen(header);
  uint8_t start[] = {0x93, 'N', 'U', 'M', 'P', 'Y', (uint8_t)major, 0};
  uint8_t count[] = {(uint8_t)length, (uint8_t)(length >> 8), 0, 0};
  add(&b, start, sizeof start);
  add(&b, count, major == 1 ? 2 : 4);
  add(&b, header, length);
  add(&b, data, size);
  return b;
}

static void write_bytes(const void *data, size_t size) {
  FILE *file = fopen(path, "wb");
  ck_assert_ptr_nonnull(file);
  ck_assert_uint_eq(fwrite(data, 1, size, file), size);
  fclose(file);
}

static fly_status read_bytes(const bytes *b, npy_array *out, fly_error *error) {
  write_bytes(b->data, b->size);
  return npy_read(path, out, error);
}

static npy_array read_header(int major, const char *header, const void *data, size_t size) {
  bytes b = make_file(major, header, data, size);
  npy_array array;
  fly_error error;
  ck_fly_ok(read_bytes(&b, &array, &error), error);
  return array;
}

/* The message of a failure, which names the file and leaves nothing behind. */
static const char *refusal(const bytes *b) {
  static fly_error error;
  npy_array array;
  ck_assert_int_ne(read_bytes(b, &array, &error), FLY_OK);
  ck_assert_ptr_null(array.data);
  ck_assert_str_eq(error.file, path);
  ck_assert_int_eq(error.line, 0);
  return error.message;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

START_TEST(every_version_and_spelling_is_read) {
  static const float data[6] = {1, -2, 3.5f, 0, 1e30f, -0.25f};
  static const struct {
    int major;
    const char *header;
  } files[] = {
      {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }          \n"},
      {2, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n"},
      {3, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n"},
      {1, "{\"shape\": (2,3), \"fortran_order\":False,\"descr\":\"<f4\"}"},
      {1, " { 'shape' : ( 2L , 3L , ) , 'descr' : 'f4' , 'fortran_order' : False } \n"},
      {1, "{'descr': '=f4',\n'fortran_order': False,\n'shape': (2, 3)}"},
  };
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    npy_array a = read_header(files[i].major, files[i].header, data, sizeof data);
    ck_assert_int_eq(a.type, FLY_F32);
    ck_assert_int_eq(a.rank, 2);
    ck_assert_int_eq(a.shape[0], 2);
    ck_assert_int_eq(a.shape[1], 3);
    ck_assert_int_eq(a.count, 6);
    ck_assert_mem_eq(a.data, data, sizeof data);
    npy_free(&a);
  }
}
END_TEST

START_TEST(every_element_type_is_read) {
  static const struct {
    const char *code;
    fly_type type;
    size_t size;
  } types[] = {{"<f4", FLY_F32, 4}, {"<f2", FLY_F16, 2}, {"<f8", FLY_F64, 8}, {"|i1", FLY_I8, 1},
               {"<i2", FLY_I16, 2}, {"<i4", FLY_I32, 4}, {"<i8", FLY_I64, 8}, {"|u1", FLY_U8, 1},
               {"<u2", FLY_U16, 2}, {"<u4", FLY_U32, 4}, {"<u8", FLY_U64, 8}, {"|b1", FLY_BOOL, 1}};
  static const uint8_t data[16] = {1, 0, 1, 1, 0, 1, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1};
  for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
    char header[128];
    snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': False, 'shape': (2,)}\n", types[i].code);
    npy_array a = read_header(1, header, data, 2 * types[i].size);
    ck_assert_int_eq(a.type, types[i].type);
    ck_assert_mem_eq(a.data, data, 2 * types[i].size);
    npy_free(&a);
  }
}
END_TEST

START_TEST(big_endian_is_swapped) {
  static const uint8_t reals[] = {0x3f, 0x80, 0, 0, 0xc0, 0x49, 0x0f, 0xdb}; /* 1, -pi */
  npy_array a = read_header(1, "{'descr': '>f4', 'fortran_order': False, 'shape': (2,)}\n", reals, sizeof reals);
  ck_assert(((float *)a.data)[0] == 1.0f && ((float *)a.data)[1] == -3.14159274f);
  npy_free(&a);
  static const uint8_t shorts[] = {0x01, 0x02, 0xff, 0xfe};
  a = read_header(1, "{'descr': '>i2', 'fortran_order': True, 'shape': (2,)}\n", shorts, sizeof shorts);
  ck_assert(((int16_t *)a.data)[0] == 258 && ((int16_t *)a.data)[1] == -2);
  npy_free(&a);
  static const uint8_t byte[] = {0x80};
  a = read_header(1, "{'descr': '>i1', 'fortran_order': False, 'shape': ()}\n", byte, 1);
  ck_assert_int_eq(((int8_t *)a.data)[0], -128);
  npy_free(&a);
}
END_TEST

START_TEST(fortran_order_becomes_row_major) {
  int32_t data[24], at = 0;
  for (int k = 0; k < 4; k++) /* the first index runs fastest */
    for (int j = 0; j < 3; j++)
      for (int i = 0; i < 2; i++) data[at++] = 100 * i + 10 * j + k;
  npy_array a = read_header(1, "{'descr': '<i4', 'fortran_order': True, 'shape': (2, 3, 4)}\n", data, sizeof data);
  const int32_t *out = a.data;
  for (int i = 0; i < 2; i++)
    for (int j = 0; j < 3; j++)
      for (int k = 0; k < 4; k++) ck_assert_int_eq(out[(i * 3 + j) * 4 + k], 100 * i + 10 * j + k);
  npy_free(&a);
  a = read_header(1, "{'descr': '<i4', 'fortran_order': True, 'shape': (2, 0, 4)}\n", data, 0);
  ck_assert_int_eq(a.count, 0);
  npy_free(&a);
}
END_TEST

START_TEST(scalars_and_empty_arrays_are_read) {
  double pi = 3.25;
  npy_array a = read_header(1, "{'descr': '<f8', 'fortran_order': False, 'shape': ()}\n", &pi, 8);
  ck_assert_int_eq(a.rank, 0);
  ck_assert_int_eq(a.count, 1);
  ck_assert(*(double *)a.data == 3.25);
  npy_free(&a);
  a = read_header(1, "{'descr': '<f8', 'fortran_order': False, 'shape': (3, 0, 5)}\n", NULL, 0);
  ck_assert_int_eq(a.count, 0);
  ck_assert_ptr_nonnull(a.data);
  npy_free(&a);
}
END_TEST

START_TEST(bad_headers_are_refused_with_a_reason) {
  static const struct {
    const char *header, *reason;
  } files[] = {
      {"", "'{' expected"},
      {"{", "a string expected"},
      {"[]", "'{' expected"},
      {"x\n\ty", "'{' expected at 'x??y'"},
      {"{'descr': '<f4', 'fortran_order': False, 'sh\nape': (2,)}", "unknown key 'sh?ape'"},
      {"{'descr': '<f4', 'fortran_order': False}", "no 'shape'"},
      {"{'descr': '<f4', 'shape': (2,)}", "no 'fortran_order'"},
      {"{'shape': (2,), 'fortran_order': False}", "no 'descr'"},
      {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", "repeated key 'descr'"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'more': 1}", "unknown key 'more'"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)", "',' or '}' expected"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)} x", "the end expected"},
      {"{'descr' '<f4', 'fortran_order': False, 'shape': (2,)}", "':' expected"},
      {"{'descr': '<f4, 'fortran_order': False, 'shape': (2,)}", "not supported"},
      {"{'descr': '<f4', 'fortran_order': Falsehood, 'shape': (2,)}", "True or False expected"},
      {"{'descr': '<f4', 'fortran_order': 0, 'shape': (2,)}", "True or False expected"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2)}", "',' or ')' expected"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': 2}", "a tuple expected"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': [2]}", "a tuple expected"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}", "a dimension expected"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2.0,)}", "',' or ')' expected"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,2)}", "more than 8 dimensions"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}", "too large"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}", "too large"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (0, 4294967296, 4294967296)}", "too large"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904,)}", "too large"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (1152921504606846976,)}", "truncated"},
      {"{'descr': '<c8', 'fortran_order': False, 'shape': (1,)}", "'<c8' is not supported"},
      {"{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", "'|O' is not supported"},
      {"{'descr': '<U2', 'fortran_order': False, 'shape': (1,)}", "'<U2' is not supported"},
      {"{'descr': '<f16', 'fortran_order': False, 'shape': (1,)}", "'<f16' is not supported"},
      {"{'descr': '|f4', 'fortran_order': False, 'shape': (2,)}", "'|f4' is not supported"},
      {"{'descr': '<V2', 'fortran_order': False, 'shape': (4,)}", "'<V2' is not supported"},
      {"{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (2,)}", "structures"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", "more data than the shape says (4 bytes)"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}", "wants 12 bytes of data, there are 8"},
      {"{'descr': '|b1', 'fortran_order': False, 'shape': (8,)}", "element 1 is no bool: its byte is 2"},
  };
  static const uint8_t data[8] = {1, 2};
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    bytes b = make_file(1, files[i].header, data, sizeof data);
    const char *message = refusal(&b);
    ck_assert_msg(!strpbrk(message, "\n\t"), "%s", message); /* one line, whatever the file holds */
    ck_assert_msg(strstr(message, files[i].reason), "%s: '%s', not '%s'", files[i].header, message, files[i].reason);
  }
  bytes b = make_file(4, "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", data, sizeof data);
  ck_assert_ptr_nonnull(strstr(refusal(&b), "version 4.0"));
  b = make_file(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}  ", data, sizeof data);
  b.data[10 + 56] = 0;
  ck_assert_ptr_nonnull(strstr(refusal(&b), "zero byte"));
  b.data[0] = 'N';
  ck_assert_ptr_nonnull(strstr(refusal(&b), "magic"));
}
END_TEST

START_TEST(every_truncation_is_refused) {
  static const float data[5] = {1, 2, 3, 4, 5};
  for (int major = 1; major <= 3; major++) {
    bytes b = make_file(major, "{'descr': '<f4', 'fortran_order': False, 'shape': (5,), }\n", data, sizeof data);
    for (size_t whole = b.size, size = 0; size < whole; size++) {
      b.size = size;
      refusal(&b);
    }
  }
}
END_TEST

/* Whatever a byte becomes, the reader ends with an array that is as large as the file says, or with an error. */
START_TEST(no_single_byte_misleads_the_reader) {
  static const int16_t data[6] = {1, 2, 3, 4, 5, 6};
  bytes good = make_file(1, "{'descr': '<i2', 'fortran_order': True, 'shape': (2, 3), }\n", data, sizeof data);
  size_t header = good.size - sizeof data;
  static const uint8_t values[] = {0,   1,   ' ', '\n', '\'', '"', '(', ')', '{', '}',  ',',  ':',
                                   '0', '2', '9', 'L',  '<',  '>', 'f', 'u', 'b', 0x7f, 0x80, 0xff};
  for (size_t at = 0; at < good.size; at++)
    for (size_t i = 0; i < sizeof values; i++) {
      bytes b = good;
      b.data[at] = values[i];
      npy_array a;
      fly_error error;
      fly_status status = read_bytes(&b, &a, &error);
      if (status == FLY_OK) {
        ck_assert_uint_eq((size_t)a.count * fly_type_size(a.type), sizeof data);
        if (at >= header) ck_assert_int_eq(a.rank, 2);
        npy_free(&a);
      } else {
        ck_assert(status == FLY_ERROR_ARGUMENT);
        ck_assert_ptr_null(a.data);
        ck_assert_int_lt(at, header); /* data are never wrong */
      }
    }
}
END_TEST

START_TEST(files_that_are_none_are_refused) {
  npy_array a;
  fly_error error;
  ck_assert_int_eq(npy_read("/nonexistent/x.npy", &a, &error), FLY_ERROR_IO);
  ck_assert_str_eq(error.file, "/nonexistent/x.npy");
  ck_assert_ptr_nonnull(strstr(error.message, "No such file"));
  ck_assert_int_eq(npy_read(directory, &a, &error), FLY_ERROR_IO);
  ck_assert_ptr_nonnull(strstr(error.message, "directory"));
}
END_TEST

/* ---- pipes ------------------------------------------------------------------------------------------------------- */

typedef struct pipe_writer {
  int fd;
  const uint8_t *data;
  size_t size;
} pipe_writer;

static void *write_pipe(void *context) {
  pipe_writer *w = context;
  for (size_t at = 0; at < w->size;) {
    ssize_t n = write(w->fd, w->data + at, w->size - at < 1000 ? w->size - at : 1000);
    if (n <= 0) break;
    at += (size_t)n;
  }
  close(w->fd);
  return NULL;
}

static fly_status read_pipe(const void *data, size_t size, npy_array *out, fly_error *error) {
  int ends[2];
  char name[32];
  pthread_t thread;
  ck_assert_int_eq(pipe(ends), 0);
  pipe_writer writer = {ends[1], data, size};
  snprintf(name, sizeof name, "/dev/fd/%d", ends[0]);
  ck_assert_int_eq(pthread_create(&thread, NULL, write_pipe, &writer), 0);
  fly_status status = npy_read(name, out, error);
  close(ends[0]);
  pthread_join(thread, NULL);
  return status;
}

START_TEST(pipes_are_read_to_their_end) {
  enum { COUNT = 700000 }; /* more than one step of memory */
  const char *header = "{'descr': '<i4', 'fortran_order': False, 'shape': (700000,)}\n";
  bytes start = make_file(1, header, NULL, 0);
  size_t size = start.size + COUNT * sizeof(int32_t);
  uint8_t *file = malloc(size + 1);
  memcpy(file, start.data, start.size);
  for (int32_t i = 0; i < COUNT; i++) memcpy(file + start.size + sizeof i * (size_t)i, &i, sizeof i);
  npy_array a;
  fly_error error;
  signal(SIGPIPE, SIG_IGN);
  ck_fly_ok(read_pipe(file, size, &a, &error), error);
  for (int32_t i = 0; i < COUNT; i++) ck_assert(((int32_t *)a.data)[i] == i);
  npy_free(&a);
  ck_assert_int_eq(read_pipe(file, size - 1, &a, &error), FLY_ERROR_ARGUMENT);
  ck_assert_ptr_nonnull(strstr(error.message, "truncated"));
  file[size] = 0;
  ck_assert_int_eq(read_pipe(file, size + 1, &a, &error), FLY_ERROR_ARGUMENT);
  ck_assert_ptr_nonnull(strstr(error.message, "more data"));
  /* A pipe that promises an exabyte: memory follows what arrives. */
  bytes huge = make_file(1, "{'descr': '|u1', 'fortran_order': False, 'shape': (1152921504606846976,)}\n", "ab", 2);
  ck_assert_int_eq(read_pipe(huge.data, huge.size, &a, &error), FLY_ERROR_ARGUMENT);
  ck_assert_ptr_nonnull(strstr(error.message, "there are 2"));
  free(file);
}
END_TEST

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static size_t entries(void) {
  size_t count = 0;
  DIR *d = opendir(directory);
  ck_assert_ptr_nonnull(d);
  for (struct dirent *e; (e = readdir(d));) count += e->d_name[0] != '.';
  closedir(d);
  return count;
}

static void check_contents(const void *expected, size_t size) {
  uint8_t data[1024];
  FILE *file = fopen(path, "rb");
  ck_assert_ptr_nonnull(file);
  ck_assert_uint_eq(fread(data, 1, sizeof data, file), size);
  fclose(file);
  ck_assert_mem_eq(data, expected, size);
}

START_TEST(written_files_are_version_1_byte_for_byte) {
  static const float data[6] = {1, 2, 3, 4, 5, 6};
  fly_error error;
  ck_fly_ok(npy_write(path, FLY_F32, 2, (int64_t[]){2, 3}, data, &error), error);
  /* 10 + 118 bytes: the header is padded with spaces to a multiple of 64 and ends with a newline. */
  char expected[128 + sizeof data];
  memset(expected, ' ', sizeof expected);
  memcpy(expected, "\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", 10 + 59);
  expected[127] = '\n';
  memcpy(expected + 128, data, sizeof data);
  check_contents(expected, sizeof expected);
  ck_assert_uint_eq(entries(), 1);
}
END_TEST

START_TEST(what_is_written_is_read_again) {
  static const uint8_t data[64] = {1, 0, 1, 0, 0, 0, 1};
  static const int64_t shapes[][3] = {{2, 2, 2}, {8, 1, 1}, {0, 3, 3}};
  fly_error error;
  for (fly_type type = FLY_F32; type <= FLY_BOOL; type++)
    for (int s = 0; s < 3; s++)
      for (int rank = 0; rank <= 3; rank++) {
        if (type == FLY_BF16) continue;
        npy_array a;
        ck_fly_ok(npy_write(path, type, rank, shapes[s], data, &error), error);
        ck_fly_ok(npy_read(path, &a, &error), error);
        ck_assert_int_eq(a.type, type);
        ck_assert_int_eq(a.rank, rank);
        int64_t count = 1;
        for (int d = 0; d < rank; d++) {
          ck_assert_int_eq(a.shape[d], shapes[s][d]);
          count *= shapes[s][d];
        }
        ck_assert_int_eq(a.count, count);
        ck_assert(count == 0 || memcmp(a.data, data, (size_t)count * fly_type_size(type)) == 0);
        npy_free(&a);
      }
  ck_assert_int_eq(npy_write(path, FLY_BF16, 1, shapes[0], data, &error), FLY_ERROR_ARGUMENT);
  ck_assert_ptr_nonnull(strstr(error.message, "bf16"));
}
END_TEST

START_TEST(a_failed_write_leaves_the_old_file_and_nothing_else) {
  static uint8_t data[1 << 16];
  fly_error error;
  struct rlimit old, small;
  write_bytes("old", 3);
  ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &old), 0);
  small = old;
  small.rlim_cur = 4096;
  signal(SIGXFSZ, SIG_IGN);
  ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
  fly_status status = npy_write(path, FLY_U8, 1, (int64_t[]){sizeof data}, data, &error);
  ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &old), 0);
  ck_assert_int_eq(status, FLY_ERROR_IO);
  ck_assert_str_eq(error.file, path);
  check_contents("old", 3);
  ck_assert_uint_eq(entries(), 1);
  ck_assert_int_eq(npy_write("/nonexistent/x.npy", FLY_U8, 1, (int64_t[]){1}, data, &error), FLY_ERROR_IO);
  ck_assert_str_eq(error.file, "/nonexistent/x.npy");
  ck_assert_int_eq(npy_write(directory, FLY_U8, 1, (int64_t[]){1}, data, &error), FLY_ERROR_IO);
}
END_TEST

START_TEST(writing_keeps_links_modes_and_pipes) {
  static const uint8_t data[4] = {1, 2, 3, 4};
  char link[160];
  struct stat info;
  fly_error error;
  write_bytes("old", 3);
  ck_assert_int_eq(chmod(path, 0640), 0);
  snprintf(link, sizeof link, "%s/link", directory);
  ck_assert_int_eq(symlink(path, link), 0);
  ck_fly_ok(npy_write(link, FLY_U8, 1, (int64_t[]){4}, data, &error), error);
  ck_assert_int_eq(lstat(link, &info), 0);
  ck_assert(S_ISLNK(info.st_mode));
  ck_assert_int_eq(stat(path, &info), 0);
  ck_assert_int_eq(info.st_mode & 0777, 0640);
  ck_assert_int_eq(info.st_size, 132);
  int ends[2];
  ck_assert_int_eq(pipe(ends), 0);
  snprintf(link, sizeof link, "/dev/fd/%d", ends[1]);
  ck_fly_ok(npy_write(link, FLY_U8, 1, (int64_t[]){4}, data, &error), error);
  char got[256];
  ck_assert_int_eq(read(ends[0], got, sizeof got), 132);
  ck_assert_mem_eq(got + 128, data, 4);
  close(ends[0]);
  close(ends[1]);
}
END_TEST

/* ---- conversion -------------------------------------------------------------------------------------------------- */

static npy_array array_of(fly_type type, const void *data, int64_t count) {
  npy_array a = {.type = type, .rank = 1, .shape = {count}, .count = count};
  size_t size = (size_t)count * fly_type_size(type);
  a.data = malloc(size);
  memcpy(a.data, data, size);
  return a;
}

#define CONVERTS(FROM, TO, CTYPE, DTYPE, VALUE, EXPECTED)                                                              \
  do {                                                                                                                 \
    CTYPE value = VALUE;                                                                                               \
    npy_array a = array_of(FROM, &value, 1);                                                                           \
    fly_error error;                                                                                                   \
    ck_fly_ok(npy_convert(&a, TO, "x.npy", &error), error);                                                            \
    ck_assert_int_eq(a.type, TO);                                                                                      \
    ck_assert_msg(*(DTYPE *)a.data == (EXPECTED), #FROM " to " #TO ": " #VALUE);                                       \
    npy_free(&a);                                                                                                      \
  } while (0)

#define REFUSES(FROM, TO, CTYPE, VALUE, TEXT)                                                                          \
  do {                                                                                                                 \
    CTYPE values[2] = {0, VALUE};                                                                                      \
    npy_array a = array_of(FROM, values, 2);                                                                           \
    fly_error error;                                                                                                   \
    ck_assert_int_eq(npy_convert(&a, TO, "x.npy", &error), FLY_ERROR_ARGUMENT);                                        \
    ck_assert_str_eq(error.file, "x.npy");                                                                             \
    ck_assert_msg(strstr(error.message, "element 1 is " TEXT ":") != NULL, "%s", error.message);                       \
    ck_assert_int_eq(a.type, FROM);                                                                                    \
    npy_free(&a);                                                                                                      \
  } while (0)

START_TEST(values_that_fit_are_converted) {
  CONVERTS(FLY_I64, FLY_I32, int64_t, int32_t, INT32_MIN, INT32_MIN);
  CONVERTS(FLY_I64, FLY_I32, int64_t, int32_t, INT32_MAX, INT32_MAX);
  CONVERTS(FLY_U64, FLY_I64, uint64_t, int64_t, INT64_MAX, INT64_MAX);
  CONVERTS(FLY_I8, FLY_I64, int8_t, int64_t, -128, -128);
  CONVERTS(FLY_U8, FLY_I8, uint8_t, int8_t, 127, 127);
  CONVERTS(FLY_BOOL, FLY_I32, uint8_t, int32_t, 1, 1);
  CONVERTS(FLY_I32, FLY_BOOL, int32_t, uint8_t, 1, 1);
  CONVERTS(FLY_F64, FLY_I32, double, int32_t, -7.0, -7);
  CONVERTS(FLY_F64, FLY_U64, double, uint64_t, 0x1p63, UINT64_C(1) << 63);
  CONVERTS(FLY_F32, FLY_U8, float, uint8_t, 255.0f, 255);
  CONVERTS(FLY_F16, FLY_I32, uint16_t, int32_t, 0xe400, -1024);
  CONVERTS(FLY_F64, FLY_F32, double, float, 0.1, 0.1f);
  CONVERTS(FLY_F16, FLY_F32, uint16_t, float, 0x0001, 0x1p-24f);
  CONVERTS(FLY_F64, FLY_F32, double, float, INFINITY, INFINITY);
  CONVERTS(FLY_U64, FLY_F32, uint64_t, float, UINT64_MAX, 0x1p64f);
  CONVERTS(FLY_I64, FLY_F32, int64_t, float, -3, -3.0f);
}
END_TEST

START_TEST(values_that_do_not_fit_are_refused) {
  REFUSES(FLY_I64, FLY_I32, int64_t, INT64_C(2147483648), "2147483648");
  REFUSES(FLY_I64, FLY_I32, int64_t, INT64_C(-2147483649), "-2147483649");
  REFUSES(FLY_I64, FLY_U64, int64_t, INT64_MIN, "-9223372036854775808");
  REFUSES(FLY_U64, FLY_I64, uint64_t, UINT64_MAX, "18446744073709551615");
  REFUSES(FLY_U8, FLY_I8, uint8_t, 128, "128");
  REFUSES(FLY_I32, FLY_BOOL, int32_t, 2, "2");
  REFUSES(FLY_F64, FLY_I32, double, 0.5, "0.5");
  REFUSES(FLY_F64, FLY_I64, double, 0x1p63, "9.22337204e+18");
  REFUSES(FLY_F64, FLY_U64, double, 0x1p64, "1.84467441e+19");
  REFUSES(FLY_F64, FLY_I32, double, NAN, "nan");
  REFUSES(FLY_F32, FLY_I32, float, INFINITY, "inf");
  REFUSES(FLY_F64, FLY_F32, double, 1e39, "1e+39");
}
END_TEST

/* ---- half floats ------------------------------------------------------------------------------------------------- */

START_TEST(half_floats_agree_with_the_definition) {
  for (uint32_t bits = 0; bits < 65536; bits++) {
    double expected = test_from_f16((uint16_t)bits);
    float value = f16_to_f32((uint16_t)bits);
    if (isnan(expected)) {
      ck_assert(isnan(value));
      continue;
    }
    ck_assert(value == expected && !signbit(value) == !signbit(expected));
    ck_assert_uint_eq(f32_to_f16(value), bits);
  }
  test_random random = {7};
  for (int i = 0; i < 200000; i++) {
    uint32_t bits = (uint32_t)test_next(&random);
    if (i % 2) bits = 0x33000000u + bits % 0x15000000u; /* where f16 has its subnormal and largest numbers */
    float value;
    memcpy(&value, &bits, sizeof value);
    if (isnan(value)) continue;
    ck_assert_uint_eq(f32_to_f16(value), test_to_f16(value));
    ck_assert_uint_eq(f32_to_bf16(value), test_to_bf16(value));
  }
}
END_TEST

static Suite *make_suite(void) {
  Suite *suite = suite_create("npy");
  TCase *c = tcase_create("npy");
  tcase_add_checked_fixture(c, make_directory, remove_directory);
  tcase_add_test(c, every_version_and_spelling_is_read);
  tcase_add_test(c, every_element_type_is_read);
  tcase_add_test(c, big_endian_is_swapped);
  tcase_add_test(c, fortran_order_becomes_row_major);
  tcase_add_test(c, scalars_and_empty_arrays_are_read);
  tcase_add_test(c, bad_headers_are_refused_with_a_reason);
  tcase_add_test(c, every_truncation_is_refused);
  tcase_add_test(c, no_single_byte_misleads_the_reader);
  tcase_add_test(c, files_that_are_none_are_refused);
  tcase_add_test(c, pipes_are_read_to_their_end);
  tcase_add_test(c, written_files_are_version_1_byte_for_byte);
  tcase_add_test(c, what_is_written_is_read_again);
  tcase_add_test(c, a_failed_write_leaves_the_old_file_and_nothing_else);
  tcase_add_test(c, writing_keeps_links_modes_and_pipes);
  tcase_add_test(c, values_that_fit_are_converted);
  tcase_add_test(c, values_that_do_not_fit_are_refused);
  tcase_add_test(c, half_floats_agree_with_the_definition);
  suite_add_tcase(suite, c);
  return suite;
}

FLY_TEST_MAIN(make_suite)
