/* command.c: runs the command and collects what it prints. */
#include "command.h"

#include <ftw.h>
#include <stdarg.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support.h"

static char own_directory[64];

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *walk) {
  (void)info, (void)kind, (void)walk;
  return remove(path);
}

const char *command_make_directory(void) {
  strcpy(own_directory, "/tmp/flymask-test.XXXXXX");
  ck_assert_ptr_nonnull(mkdtemp(own_directory));
  return own_directory;
}

void command_remove_directory(void) { nftw(own_directory, remove_entry, 16, FTW_DEPTH | FTW_PHYS); }

const char *command_path(const char *name) {
  static char paths[4][320];
  static int next;
  char *path = paths[next++ % 4];
  snprintf(path, sizeof paths[0], "%s/%s", own_directory, name);
  return path;
}

char *command_read_file(const char *path) {
  FILE *file = fopen(path, "rb");
  ck_assert_msg(file != NULL, "cannot open %s", path);
  size_t size = 0, got;
  char *text = NULL;
  do {
    text = realloc(text, size + 65537);
    ck_assert_ptr_nonnull(text);
    got = fread(text + size, 1, 65536, file);
    size += got;
  } while (got);
  text[size] = 0;
  fclose(file);
  return text;
}

command_result command_run(const char *directory, const char *format, ...) {
  char *arguments, *line, out[] = "/tmp/flymask-out.XXXXXX", err[] = "/tmp/flymask-err.XXXXXX";
  int out_fd = mkstemp(out), err_fd = mkstemp(err);
  ck_assert(out_fd >= 0 && err_fd >= 0);
  va_list list;
  va_start(list, format);
  ck_assert_int_ge(vasprintf(&arguments, format, list), 0);
  va_end(list);
  /* The arguments come last, so that they may redirect. */
  ck_assert_int_ge(asprintf(&line, "cd '%s' && exec >'%s' 2>'%s' && unset ARGP_HELP_FMT && '%s/flymask' %s",
                            directory ? directory : ".", out, err, FLYMASK_BUILD, arguments),
                   0);
  int status = system(line);
  command_result result = {.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1};
  result.out = command_read_file(out);
  result.err = command_read_file(err);
  close(out_fd);
  close(err_fd);
  unlink(out);
  unlink(err);
  free(arguments);
  free(line);
  return result;
}

void command_free(command_result *result) {
  free(result->out);
  free(result->err);
  *result = (command_result){0};
}

void command_check_golden(const char *name, int code, const char *arguments) {
  char path[512];
  snprintf(path, sizeof path, "%s/tests/golden/%s.txt", FLYMASK_SOURCE, name);
  command_result r = command_run(FLYMASK_SOURCE, "%s", arguments);
  ck_assert_msg(r.code == code, "flymask %s: exit %d: %s", arguments, r.code, r.err);
  ck_assert_str_eq(r.err, "");
  const char *mode = getenv("FLYMASK_GOLDEN");
  if (mode && strcmp(mode, "write") == 0) {
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fputs(r.out, file);
    fclose(file);
  }
  char *expected = command_read_file(path);
  ck_assert_str_eq(r.out, expected);
  free(expected);
  command_free(&r);
}
