/* cache.c: images on disk, one file a key, in a directory that belongs to the user alone.
 *
 * The cache holds machine code: a directory that somebody else owns or may write to is not used. Entries appear by
 * rename, so that a reader sees a whole one or none, whoever else writes; what they hold is checked by the reader
 * (flyi_image_read), so that a file cut short by a crash costs a compilation and nothing more. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "runtime.h"

enum { MAX_ENTRY = 256 << 20 };

/* The XDG base directory specification: $XDG_CACHE_HOME, ignored where it is not absolute; else ~/.cache. */
static bool find_directory(const char *given, char path[PATH_MAX]) {
  const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  int length = -1;
  if (given)
    length = *given ? snprintf(path, PATH_MAX, "%s", given) : -1;
  else if (xdg && *xdg == '/')
    length = snprintf(path, PATH_MAX, "%s/flymask", xdg);
  else if (home && *home == '/')
    length = snprintf(path, PATH_MAX, "%s/.cache/flymask", home);
  return length > 0 && length < PATH_MAX;
}

/* Creates the directories of `path` that are missing, for the user alone. */
static bool make_directories(char *path) {
  for (char *at = path + 1;; at++) {
    if (*at != '/' && *at) continue;
    char held = *at;
    *at = 0;
    bool made = mkdir(path, 0700) == 0 || errno == EEXIST || errno == EROFS || errno == EACCES;
    *at = held;
    if (!made) return false;
    if (!held) return true;
  }
}

/* Opens the cache's directory, or gives -1: there is none, or it is not ours alone to write. */
static int open_directory(const char *given, bool create) {
  char path[PATH_MAX];
  struct stat info;
  if (!find_directory(given, path) || (create && !make_directories(path))) return -1;
  int directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) return -1;
  if (fstat(directory, &info) == 0 && info.st_uid == geteuid() && (info.st_mode & (S_IWGRP | S_IWOTH)) == 0)
    return directory;
  close(directory);
  return -1;
}

static void entry_name(flyi_hash key, char name[48]) {
  snprintf(name, 48, "%016" PRIx64 "%016" PRIx64 ".flymask", key.high, key.low);
}

static bool read_all(int file, size_t size, flyi_bytes *out) {
  out->data = flyi_alloc(size, 1);
  if (!out->data) return false;
  out->capacity = size;
  while (out->size < size) {
    ssize_t got = read(file, out->data + out->size, size - out->size);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    out->size += (size_t)got;
  }
  return true;
}

bool flyi_cache_read(const char *directory, flyi_hash key, flyi_bytes *out) {
  *out = (flyi_bytes){0};
  int at = open_directory(directory, false);
  if (at < 0) return false;
  char name[48];
  struct stat info;
  entry_name(key, name);
  /* Not blocking and not following: a FIFO, a device or a link in place of an entry is foreign. */
  int file = openat(at, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  bool good = file >= 0 && fstat(file, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == geteuid() &&
              (info.st_mode & (S_IWGRP | S_IWOTH)) == 0 && info.st_size > 0 && info.st_size <= MAX_ENTRY &&
              read_all(file, (size_t)info.st_size, out);
  if (file >= 0) close(file);
  close(at);
  if (!good) flyi_bytes_free(out);
  return good;
}

/* Temporary files of writers that were killed. A living one needs a moment: an hour is more than enough. */
static void remove_stale(int directory) {
  enum { HOUR = 3600 };
  int copy = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC); /* closedir closes it */
  DIR *listing = copy < 0 ? NULL : fdopendir(copy);
  if (!listing) {
    if (copy >= 0) close(copy);
    return;
  }
  const time_t now = time(NULL);
  for (struct dirent *file; (file = readdir(listing));) {
    struct stat info;
    if (strspn(file->d_name, "0123456789abcdef") != 32 || strncmp(file->d_name + 32, ".flymask.", 9) != 0) continue;
    if (fstatat(directory, file->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(info.st_mode) &&
        info.st_mtime < now - HOUR)
      unlinkat(directory, file->d_name, 0);
  }
  closedir(listing);
}

void flyi_cache_write(const char *directory, flyi_hash key, const void *data, size_t size) {
  static atomic_uint serial; /* keeps this process's temporary files apart */
  char name[48], temporary[96];
  if (size == 0 || size > MAX_ENTRY) return;
  int at = open_directory(directory, true);
  if (at < 0) return;
  remove_stale(at);
  entry_name(key, name);
  snprintf(temporary, sizeof temporary, "%s.%ld.%u", name, (long)getpid(), atomic_fetch_add(&serial, 1));
  int file = openat(at, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (file < 0 && errno == EEXIST) { /* left by a process of the same number that died */
    unlinkat(at, temporary, 0);
    file = openat(at, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  }
  if (file >= 0) {
    bool good = flyi_write_file(file, data, size);
    good = close(file) == 0 && good;
    if (!good || renameat(at, temporary, at, name) != 0) unlinkat(at, temporary, 0);
  }
  close(at);
}
