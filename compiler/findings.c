/* findings.c: the list of findings: adding one, its words, the order of all.
 *
 * Input: what diagnose.c and diagnose_places.c find. Output: the fly_findings of the caller. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "diagnose.h"

void fly_findings_free(fly_findings *findings) {
  if (!findings) return;
  free(findings->finding);
  *findings = (fly_findings){0};
}

const char *fly_finding_name(fly_finding_kind kind) {
  static const char *const names[] = {[FLY_FINDING_BLIND_ROWS] = "blind-rows",
                                      [FLY_FINDING_ALWAYS_TRUE] = "always-true",
                                      [FLY_FINDING_ALWAYS_FALSE] = "always-false",
                                      [FLY_FINDING_INDEX] = "index",
                                      [FLY_FINDING_OVERFLOW] = "overflow",
                                      [FLY_FINDING_DIVISION_BY_ZERO] = "division-by-zero",
                                      [FLY_FINDING_NEGATIVE_OPERAND] = "negative-operand",
                                      [FLY_FINDING_SHIFT] = "shift",
                                      [FLY_FINDING_READS_NOTHING] = "reads-nothing",
                                      [FLY_FINDING_NOT_FINITE] = "not-finite",
                                      [FLY_FINDING_READS_NO_SCORE] = "reads-no-score"};
  return (size_t)kind < sizeof names / sizeof *names ? names[kind] : "unknown";
}

fly_finding *flyi_finding_add(flyi_diagnosis *d, fly_finding_kind kind, int line, int column, const flyi_witness *w) {
  fly_findings *f = d->out;
  if (f->count == d->capacity) {
    int capacity = 2 * d->capacity + 16;
    fly_finding *grown = flyi_grow(f->finding, (size_t)capacity, sizeof *grown);
    if (!grown) return flyi_no_memory(d->error), NULL;
    f->finding = grown, d->capacity = capacity;
  }
  fly_finding *made = &f->finding[f->count++];
  *made = (fly_finding){.kind = kind, .line = line, .column = column, .b = -1, .h = -1, .s = NAN};
  if (w) made->b = w->b, made->h = w->h, made->q = w->q, made->kv = w->kv;
  if (w && w->reads_s) made->s = w->s;
  return made;
}

void flyi_finding_say(fly_finding *f, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(f->message, sizeof f->message, format, arguments);
  va_end(arguments);
}

void flyi_finding_where(const flyi_diagnosis *d, const flyi_witness *w, char *at, size_t size) {
  char score[32] = "";
  if (d->subject.is_score && w->reads_s) snprintf(score, sizeof score, ", s = %g", (double)w->s);
  snprintf(at, size, "for one at b = %" PRId64 ", h = %" PRId64 ", q = %" PRId64 ", kv = %" PRId64 "%s", w->b, w->h,
           w->q, w->kv, score);
}

/* By place; at one place, as they were found. Macros and loops may give the same finding twice. */
static int by_place(const void *left, const void *right) {
  const fly_finding *a = left, *b = right;
  return a->line != b->line       ? (a->line < b->line ? -1 : 1)
         : a->column != b->column ? (a->column < b->column ? -1 : 1)
         : a->kind != b->kind     ? (a->kind < b->kind ? -1 : 1)
                                  : strcmp(a->message, b->message);
}

void flyi_findings_sort(fly_findings *f) {
  int kept = 0;
  if (f->count) qsort(f->finding, (size_t)f->count, sizeof *f->finding, by_place);
  for (int i = 0; i < f->count; i++)
    if (!kept || by_place(&f->finding[kept - 1], &f->finding[i])) f->finding[kept++] = f->finding[i];
  f->count = kept;
}
