/* toolchain.c: which clang to run.
 *
 * Input: the caller's wish and the environment. Output: the executable, the directory of its resource headers, and the
 * environment it gets: CPATH and the like must not reach it. No process is started for a clang in its usual place. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "process.h"
#include "toolchain.h"

/* A formatted string of the caller's, or NULL. */
static char *print(const char *format, ...) FLYI_PRINTF(1, 2);
static char *print(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int size = vsnprintf(NULL, 0, format, arguments);
  va_end(arguments);
  char *text = size < 0 ? NULL : flyi_alloc((size_t)size + 1, 1);
  if (!text) return NULL;
  va_start(arguments, format);
  vsnprintf(text, (size_t)size + 1, format, arguments);
  va_end(arguments);
  return text;
}

static bool is_executable(const char *path) {
  struct stat s;
  return !stat(path, &s) && S_ISREG(s.st_mode) && !access(path, X_OK);
}

/* The executable that `name` means, as a shell would find it. NULL: there is none, or no memory (*failed). */
static char *find(const char *name, bool *failed) {
  if (strchr(name, '/')) {
    char *path = is_executable(name) ? print("%s", name) : NULL;
    *failed = !path && is_executable(name);
    return path;
  }
  const char *path = getenv("PATH");
  if (!path || !*path) path = "/usr/local/bin:/usr/bin:/bin";
  while (*path) {
    int size = (int)strcspn(path, ":");
    char *candidate = size ? print("%.*s/%s", size, path, name) : NULL;
    if (size && !candidate) return *failed = true, NULL;
    if (candidate && is_executable(candidate)) return candidate;
    free(candidate);
    path += size + (path[size] == ':');
  }
  return NULL;
}

static bool has_headers(const char *directory) {
  char *file = print("%s/stddef.h", directory);
  bool found = file && !access(file, R_OK);
  free(file);
  return found;
}

/* <prefix>/lib/clang/<version>/include beside <prefix>/bin/clang, of the highest version; NULL where it is not so. */
static char *resources_beside(const char *clang) {
  char *real = realpath(clang, NULL), *slash = real ? strrchr(real, '/') : NULL, *base = NULL, *best = NULL;
  if (slash) *slash = 0, base = print("%s/../lib/clang", real);
  DIR *directory = base ? opendir(base) : NULL;
  int best_version = 0;
  for (struct dirent *entry; directory && (entry = readdir(directory));) {
    int version = atoi(entry->d_name);
    char *candidate = version > best_version ? print("%s/%s/include/", base, entry->d_name) : NULL;
    if (candidate && has_headers(candidate)) {
      free(best);
      best = candidate;
      best_version = version;
    } else {
      free(candidate);
    }
  }
  if (directory) closedir(directory);
  free(base);
  free(real);
  return best;
}

/* Asks clang itself. */
static fly_status resources_by_asking(flyi_toolchain *tools, const fly_compile_options *options, fly_error *error) {
  flyi_bytes output = {0}, errors = {0};
  flyi_end end;
  int code;
  const flyi_child child = {.path = tools->clang,
                            .arguments = (char *[]){"clang", "-print-resource-dir", NULL},
                            .environment = tools->environment,
                            .seconds = options->clang_seconds,
                            .memory = options->clang_bytes,
                            .output = 65536};
  fly_status status = flyi_child_run(&child, &output, &errors, &end, &code, error);
  if (!status) {
    const char *text = (const char *)output.data;
    tools->resources = print("%.*s/include/", (int)strcspn(text, "\n"), text);
    if (!tools->resources)
      status = flyi_no_memory(error);
    else if (end != FLYI_END_EXIT || code > 0 || !has_headers(tools->resources))
      status = flyi_fail(error, FLY_ERROR_TOOL,
                         "%s does not know where its headers are (clang -print-resource-dir): apt install clang-%d",
                         tools->clang, FLYI_LLVM_MAJOR);
  }
  flyi_bytes_free(&output);
  flyi_bytes_free(&errors);
  return status;
}

/* The executable, or NULL: there is none, or no memory (*failed). *wanted is the name that the caller or the
 * environment gives, NULL: none. */
static char *locate(const fly_compile_options *options, const char **wanted, bool *failed) {
  const char *name = options->clang && *options->clang ? options->clang : getenv("FLYMASK_CLANG");
  char versioned[32];
  *wanted = name && *name ? name : NULL;
  *failed = false;
  snprintf(versioned, sizeof versioned, "clang-%d", FLYI_LLVM_MAJOR);
  char *found = find(*wanted ? *wanted : versioned, failed);
  return !found && !*failed && !*wanted ? find("clang", failed) : found;
}

bool flyi_toolchain_fingerprint(const fly_compile_options *options, flyi_bytes *out) {
  const char *wanted;
  bool failed;
  struct stat s;
  char *clang = locate(options, &wanted, &failed), *real = clang ? realpath(clang, NULL) : NULL;
  if (real && stat(real, &s) == 0) {
    const int64_t state[] = {s.st_size, s.st_mtim.tv_sec, s.st_mtim.tv_nsec};
    failed = !flyi_bytes_add(out, real, strlen(real) + 1) || !flyi_bytes_add(out, state, sizeof state);
  }
  free(real);
  free(clang);
  return !failed;
}

fly_status flyi_toolchain_find(const fly_compile_options *options, flyi_toolchain *out, fly_error *error) {
  char versioned[32];
  snprintf(versioned, sizeof versioned, "clang-%d", FLYI_LLVM_MAJOR);
  const char *from;
  bool failed;
  *out = (flyi_toolchain){0};

  out->clang = locate(options, &from, &failed);
  if (failed) goto no_memory;
  if (!out->clang && from)
    return flyi_fail(error, FLY_ERROR_TOOL, "%s, which %s names, is not an executable: apt install %s", from,
                     from == options->clang ? "the option clang" : "FLYMASK_CLANG", versioned);
  if (!out->clang)
    return flyi_fail(error, FLY_ERROR_TOOL, "clang is missing (neither %s nor clang is in PATH): apt install %s",
                     versioned, versioned);
  const char *path = getenv("PATH"), *libraries = getenv("LD_LIBRARY_PATH");
  out->environment[0] = print("LC_ALL=C");
  out->environment[1] = print("PATH=%s", path ? path : "/usr/bin:/bin");
  if (!out->environment[0] || !out->environment[1]) goto no_memory;
  if (libraries && !(out->environment[2] = print("LD_LIBRARY_PATH=%s", libraries))) goto no_memory;
  out->resources = resources_beside(out->clang);
  fly_status status = out->resources ? FLY_OK : resources_by_asking(out, options, error);
  if (status) flyi_toolchain_free(out);
  return status;

no_memory:
  flyi_toolchain_free(out);
  return flyi_no_memory(error);
}

void flyi_toolchain_free(flyi_toolchain *tools) {
  free(tools->clang);
  free(tools->resources);
  for (int i = 0; i < (int)(sizeof tools->environment / sizeof *tools->environment); i++) free(tools->environment[i]);
  *tools = (flyi_toolchain){0};
}
