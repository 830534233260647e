/* report.c: what a command prints on stdout: lines of a table, or one JSON object. */
#include <errno.h>
#include <stdarg.h>
#include <string.h>

#include "cli.h"

void report_line(const char *name, const char *format, ...) {
  printf("%-20s ", name);
  va_list list;
  va_start(list, format);
  vprintf(format, list);
  va_end(list);
  putchar('\n');
}

fly_status report_json(json_t *object, fly_error *error) {
  if (!object) return fail_memory(error);
  int failed = json_dumpf(object, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
  json_decref(object);
  putchar('\n');
  if (failed) return fail(error, FLY_ERROR_IO, NULL, "cannot print JSON");
  return FLY_OK;
}

fly_status report_end(fly_error *error) {
  if (fflush(stdout) != 0 || ferror(stdout))
    return fail(error, FLY_ERROR_IO, NULL, "cannot write to standard output: %s", strerror(errno));
  return FLY_OK;
}

const char *grouped(int64_t value) {
  static char texts[8][32];
  static int next;
  char digits[24], *out = texts[next++ % 8];
  int length = snprintf(digits, sizeof digits, "%lld", (long long)value), used = 0;
  for (int i = 0; i < length; i++) {
    out[used++] = digits[i];
    int left = length - 1 - i;
    if (left > 0 && left % 3 == 0 && digits[i] != '-') out[used++] = ',';
  }
  out[used] = 0;
  return out;
}
