/* file.c: writing files whole or not at all, and removing directories of our own. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"

static bool write_all(int fd, const struct iovec *parts, int count) {
  for (int i = 0; i < count; i++) {
    const char *at = parts[i].iov_base;
    for (size_t left = parts[i].iov_len; left > 0;) {
      ssize_t n = write(fd, at, left < (1u << 30) ? left : 1u << 30);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return false;
      at += n;
      left -= (size_t)n;
    }
  }
  return true;
}

static fly_status save_directly(const char *path, const struct iovec *parts, int count, fly_error *error) {
  int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return fail(error, FLY_ERROR_IO, path, "cannot open: %s", strerror(errno));
  bool ok = write_all(fd, parts, count);
  if (close(fd) != 0) ok = false;
  if (!ok) return fail(error, FLY_ERROR_IO, path, "cannot write: %s", strerror(errno));
  return FLY_OK;
}

/* Behind what the command has printed. */
static fly_status save_to_output(const struct iovec *parts, int count, fly_error *error) {
  if (fflush(stdout) == 0 && write_all(STDOUT_FILENO, parts, count)) return FLY_OK;
  return fail(error, FLY_ERROR_IO, "standard output", "cannot write: %s", strerror(errno));
}

fly_status file_save(const char *path, const struct iovec *parts, int count, fly_error *error) {
  if (strcmp(path, "-") == 0) return save_to_output(parts, count, error);
  struct stat info;
  bool exists = stat(path, &info) == 0;
  if (exists && S_ISDIR(info.st_mode)) return fail(error, FLY_ERROR_IO, path, "is a directory");
  if (exists && !S_ISREG(info.st_mode)) return save_directly(path, parts, count, error);

  fly_status status = FLY_OK;
  char *real = exists ? realpath(path, NULL) : strdup(path); /* a link stays a link */
  char *temporary = NULL;
  int fd = -1;
  if (!real || asprintf(&temporary, "%s.XXXXXX", real) < 0) {
    temporary = NULL;
    status = fail_memory(error);
    goto done;
  }
  fd = mkostemp(temporary, O_CLOEXEC);
  if (fd < 0) {
    status = fail(error, FLY_ERROR_IO, path, "cannot create: %s", strerror(errno));
    goto done;
  }
  mode_t mask = umask(0);
  umask(mask);
  bool ok = fchmod(fd, exists ? info.st_mode & 07777 : 0666 & ~mask) == 0 && write_all(fd, parts, count);
  if (close(fd) != 0) ok = false;
  if (!ok || rename(temporary, real) != 0) {
    status = fail(error, FLY_ERROR_IO, path, "cannot write: %s", strerror(errno));
    unlink(temporary);
  }
done:
  free(temporary);
  free(real);
  return status;
}

/* A file that is not there yet: its directory, and its name in it. */
static bool same_place(const char *a, const char *b) {
  const char *slash_a = strrchr(a, '/'), *slash_b = strrchr(b, '/');
  if (strcmp(slash_a ? slash_a + 1 : a, slash_b ? slash_b + 1 : b) != 0) return false;
  char *in_a = slash_a ? strndup(a, (size_t)(slash_a - a + 1)) : strdup("."),
       *in_b = slash_b ? strndup(b, (size_t)(slash_b - b + 1)) : strdup(".");
  struct stat dir_a, dir_b;
  bool same = in_a && in_b && stat(in_a, &dir_a) == 0 && stat(in_b, &dir_b) == 0 && dir_a.st_dev == dir_b.st_dev &&
              dir_a.st_ino == dir_b.st_ino;
  free(in_a), free(in_b);
  return same;
}

bool file_same(const char *a, const char *b) {
  struct stat info_a, info_b;
  bool is_a = stat(a, &info_a) == 0, is_b = stat(b, &info_b) == 0;
  if (is_a != is_b) return false;
  if (!is_a) return strcmp(a, b) == 0 || same_place(a, b);
  return S_ISREG(info_a.st_mode) && info_a.st_dev == info_b.st_dev && info_a.st_ino == info_b.st_ino;
}

fly_status file_read_text(const char *path, char **text, fly_error *error) {
  enum { CHUNK = 1 << 16 };
  fly_status status = FLY_OK;
  char *data = NULL;
  size_t used = 0, got = 0;
  *text = NULL;
  FILE *file = fopen(path, "re");
  if (!file) return fail(error, FLY_ERROR_IO, path, "cannot open: %s", strerror(errno));
  do {
    char *grown = realloc(data, used + CHUNK + 1);
    if (!grown) {
      status = fail_memory(error);
      goto done;
    }
    data = grown;
    got = fread(data + used, 1, CHUNK, file);
    used += got;
    data[used] = 0;
  } while (got);
  if (ferror(file))
    status = fail(error, FLY_ERROR_IO, path, "cannot read: %s", strerror(errno));
  else if (strlen(data) != used)
    status = fail(error, FLY_ERROR_ARGUMENT, path, "not a text: it has zero bytes");
done:
  if (status == FLY_OK)
    *text = data;
  else
    free(data);
  fclose(file);
  return status;
}

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *walk) {
  (void)info, (void)kind, (void)walk;
  remove(path);
  return 0;
}

void remove_tree(const char *path) { nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS); }
