/* timing.c: the clock, medians of repeated measurements, and the progress line on a terminal. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"

double now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

void timing_add(timing *t, double ms) {
  if (t->count == TIMING_MAX) return;
  t->ms[t->count++] = ms;
  t->total += ms;
}

bool timing_enough(const timing *t, double seconds) {
  return t->count == TIMING_MAX || (t->count >= 5 && t->total >= 1e3 * seconds);
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

double timing_median(const timing *t) {
  double sorted[TIMING_MAX];
  if (t->count == 0) return 0;
  memcpy(sorted, t->ms, sizeof(double) * (size_t)t->count);
  qsort(sorted, (size_t)t->count, sizeof(double), by_value);
  int middle = t->count / 2;
  return t->count % 2 ? sorted[middle] : 0.5 * (sorted[middle - 1] + sorted[middle]);
}

double timing_least(const timing *t) {
  double least = t->count ? t->ms[0] : 0;
  for (int i = 1; i < t->count; i++) least = t->ms[i] < least ? t->ms[i] : least;
  return least;
}

void progress(const char *format, ...) {
  static const char *shown;
  static double when;
  if (!isatty(STDERR_FILENO)) return;
  if (format == shown && now_ms() - when < 50) return; /* the same step again: not faster than eyes are */
  shown = format;
  when = now_ms();
  char line[160];
  va_list list;
  va_start(list, format);
  vsnprintf(line, sizeof line, format, list);
  va_end(list);
  fprintf(stderr, "\r\033[K%s ...", line);
  fflush(stderr);
}

void progress_end(void) {
  if (isatty(STDERR_FILENO)) fputs("\r\033[K", stderr);
}
