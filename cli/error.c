/* error.c: errors of the command, in the library's own fly_error, and how they are printed. */
#include <stdarg.h>
#include <string.h>

#include "cli.h"

fly_status fail(fly_error *error, fly_status status, const char *file, const char *format, ...) {
  memset(error, 0, sizeof *error);
  error->status = status;
  if (file) snprintf(error->file, sizeof error->file, "%s", file);
  va_list list;
  va_start(list, format);
  vsnprintf(error->message, sizeof error->message, format, list);
  va_end(list);
  for (char *c = error->message; *c; c++) /* of files' contents: a message is one line */
    if ((unsigned char)*c < ' ' || *c == 127) *c = '?';
  return status;
}

fly_status fail_memory(fly_error *error) { return fail(error, FLY_ERROR_MEMORY, NULL, "out of memory"); }

void print_error(const fly_error *error) {
  progress_end();
  fflush(stdout);
  if (error->line > 0)
    fprintf(stderr, "%s:%d:%d: error: %s\n", error->file, error->line, error->column, error->message);
  else if (error->file[0])
    fprintf(stderr, "flymask: %s: %s\n", error->file, error->message);
  else
    fprintf(stderr, "flymask: %s\n", error->message);
}
