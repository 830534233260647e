/* quadtree.c: the tiles of a band of rows, from coarse to fine: boxes that the nodes find empty or full are not
 * looked into, so that the work follows the mask's edge. Rows are visited so that each gets its rectangles from left
 * to right; they become runs. */
#include <stdlib.h>
#include <string.h>

#include "survey.h"

enum { LEVELS = 32 };

/* ---- scratch ----------------------------------------------------------------------------------------------------- */

bool flyi_scratch_create(flyi_scratch *s, const flyi_survey *survey, int64_t count) {
  int32_t nodes = 1, kv = 0;
  for (int64_t i = 0; i < count; i++) {
    const flyi_nodes *n = survey[i].nodes;
    if (n && (int32_t)flyi_nodes_room(n) > nodes) nodes = (int32_t)flyi_nodes_room(n);
    if (n && n->kv_end - n->q_end > kv) kv = n->kv_end - n->q_end;
  }
  *s = (flyi_scratch){0};
  s->value = flyi_alloc(nodes, sizeof *s->value);
  s->kept = flyi_alloc(4 * LEVELS * (size_t)kv, sizeof *s->kept); /* two columns; values and bits */
  return s->value && s->kept;
}

void flyi_scratch_free(flyi_scratch *s) {
  free(s->value), free(s->kept), free(s->rectangle);
  *s = (flyi_scratch){0};
}

/* ---- refining ---------------------------------------------------------------------------------------------------- */

typedef struct walk {
  const flyi_survey *survey;
  flyi_scratch *scratch;
  int32_t first, end; /* the band's rows */
} walk;

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* The tiles of node (level, row, column) inside the band; false where there are none. */
static bool tiles_of(const walk *w, int level, int64_t row, int64_t column, flyi_rectangle *r) {
  int64_t r0 = row << level, r1 = (row + 1) << level, c0 = column << level;
  if (r0 < w->first) r0 = w->first;
  r1 = least(r1, w->end);
  if (r0 >= r1 || c0 >= w->survey->columns) return false;
  r->row = (int32_t)r0, r->rows = (int32_t)(r1 - r0);
  r->column = (int32_t)c0, r->columns = (int32_t)least(1ll << level, w->survey->columns - c0);
  return true;
}

static flyi_box box_of(const flyi_survey *s, const flyi_rectangle *r) {
  flyi_box box = {s->q_offset + r->row * s->tile_q,
                  s->q_offset + least((r->row + (int64_t)r->rows) * s->tile_q, s->len_q) - 1, r->column * s->tile_kv,
                  least((r->column + (int64_t)r->columns) * s->tile_kv, s->len_kv) - 1};
  return box;
}

static void emit(flyi_scratch *s, const flyi_rectangle *r) {
  if (s->rectangles == s->capacity) {
    int64_t capacity = s->capacity ? 2 * s->capacity : 256;
    flyi_rectangle *grown = flyi_grow(s->rectangle, capacity, sizeof *grown);
    if (!grown) {
      s->failed = true;
      return;
    }
    s->rectangle = grown, s->capacity = capacity;
  }
  s->rectangle[s->rectangles++] = *r;
}

/* Copies what depends on kv alone between the values and what is kept of them: intervals, then bits. */
static void copy_kept(const flyi_nodes *n, flyi_interval *value, flyi_interval *kept, bool keep) {
  size_t count = (size_t)(n->kv_end - n->q_end), bytes = count * sizeof *kept;
  flyi_interval *bits = value + n->count + n->q_end;
  value += n->q_end;
  if (bytes) memcpy(keep ? kept : value, keep ? value : kept, bytes);
  if (bytes && n->bitwise) memcpy(keep ? kept + count : bits, keep ? bits : kept + count, bytes);
}

/* Evaluates what depends on kv alone for both columns of children, and keeps it. */
static void keep_columns(const walk *w, int level, int64_t row, int64_t column, flyi_interval *kept[2]) {
  const flyi_nodes *n = w->survey->nodes;
  int32_t count = n->kv_end - n->q_end;
  flyi_rectangle r;
  for (int k = 0; k < 2; k++) {
    kept[k] = w->scratch->kept + 2 * (2 * level + k) * (size_t)count;
    if (count == 0 || (!tiles_of(w, level, row, column + k, &r) && !tiles_of(w, level, row + 1, column + k, &r)))
      continue;
    flyi_box box = box_of(w->survey, &r);
    flyi_nodes_evaluate(n, n->q_end, n->kv_end, &box, w->scratch->value);
    copy_kept(n, w->scratch->value, kept[k], true);
  }
}

/* Where the time is up, nothing more is looked at. */
static bool is_over(walk *w) {
  if (w->survey->until && flyi_nanoseconds() > w->survey->until) w->scratch->failed = w->scratch->late = true;
  return w->scratch->failed;
}

/* ---- by rows ----------------------------------------------------------------------------------------------------- */

/* Where a mask reads arrays without order by the query, nothing is known of several rows of tiles, and much of one. */

/* Looks at tiles [column, column + columns) of a row, whose part that depends on q alone has been evaluated, from
 * coarse to fine; without `emits` it only counts the evaluations that this takes. */
static int32_t refine_row(walk *w, int32_t row, int32_t column, int32_t columns, bool emits) {
  const flyi_survey *s = w->survey;
  const flyi_nodes *n = s->nodes;
  flyi_interval *value = w->scratch->value;
  flyi_rectangle r = {row, 1, column, columns, FLY_EMPTY};
  flyi_box box = box_of(s, &r);
  if (is_over(w)) return 0;
  flyi_nodes_evaluate(n, n->q_end, n->count, &box, value);
  r.kind = flyi_verdict(n, value);
  if (r.kind == FLY_PARTIAL && columns > 1) {
    int32_t half = columns / 2, count = refine_row(w, row, column, half, emits);
    return 1 + count + refine_row(w, row, column + half, columns - half, emits);
  }
  if (r.kind == FLY_EMPTY || !emits || w->scratch->failed) return 1;
  if (r.kind == FLY_PARTIAL) {
    r.kind = flyi_settle(s, w->scratch, &box);
    flyi_nodes_evaluate(n, n->constants, n->q_end, &box, value); /* settling is about parts of the tile */
  }
  if (r.kind != FLY_EMPTY) emit(w->scratch, &r);
  return 1;
}

static void begin_row(const walk *w, int32_t row) {
  const flyi_nodes *n = w->survey->nodes;
  flyi_box box = box_of(w->survey, &(flyi_rectangle){row, 1, 0, 1, FLY_EMPTY});
  flyi_nodes_evaluate(n, n->constants, n->q_end, &box, w->scratch->value);
}

/* Whether a row in the middle is much cheaper by itself than as a part of squares, which all turn out partial. */
static bool rows_are_cheap(walk *w, const flyi_rectangle *r) {
  int32_t row = r->row + r->rows / 2;
  begin_row(w, row);
  return refine_row(w, row, r->column, r->columns, false) < r->columns / 4;
}

static void refine_rows(walk *w, const flyi_rectangle *r) {
  for (int32_t row = r->row; row < r->row + r->rows && !w->scratch->failed; row++) {
    begin_row(w, row);
    refine_row(w, row, r->column, r->columns, true);
  }
}

/* ---- by squares -------------------------------------------------------------------------------------------------- */

/* So many levels of squares without a decision, and a row is tried. */
enum { VAIN_LEVELS = 5, LEAST_LEVEL = 3 };

/* Evaluates the four children of a node, of which (level, row, column) is the first: two evaluations of what depends on
 * q alone, two for kv, four for both. Returns whether all are partial. */
static bool look_at_children(walk *w, int level, int64_t row, int64_t column, flyi_rectangle child[4]) {
  const flyi_survey *s = w->survey;
  const flyi_nodes *n = s->nodes;
  flyi_scratch *scratch = w->scratch;
  flyi_interval *kept[2];
  bool vain = true;
  keep_columns(w, level, row, column, kept);
  for (int i = 0; i < 4; i++) {
    child[i].kind = FLY_EMPTY;
    if (!tiles_of(w, level, row + i / 2, column + i % 2, &child[i])) {
      child[i].rows = 0;
      continue;
    }
    flyi_box box = box_of(s, &child[i]);
    if (i % 2 == 0) flyi_nodes_evaluate(n, n->constants, n->q_end, &box, scratch->value);
    copy_kept(n, scratch->value, kept[i % 2], false);
    flyi_nodes_evaluate(n, n->kv_end, n->count, &box, scratch->value);
    child[i].kind = flyi_verdict(n, scratch->value);
    vain &= child[i].kind == FLY_PARTIAL;
  }
  return vain;
}

/* `vain`: of the levels above, how many had partial children alone; -1: rows have been tried. */
static void refine(walk *w, int level, int64_t row, int64_t column, int vain) {
  flyi_rectangle child[4];
  if (is_over(w)) return;
  bool all = look_at_children(w, level, row, column, child);
  if (vain >= 0) vain = all ? vain + 1 : 0;
  for (int i = 0; i < 4 && !w->scratch->failed; i++) {
    flyi_rectangle *r = &child[i];
    if (r->kind == FLY_EMPTY) continue;
    if (r->kind == FLY_PARTIAL && level > 0) {
      bool tried = vain >= VAIN_LEVELS && level >= LEAST_LEVEL;
      if (tried && rows_are_cheap(w, r))
        refine_rows(w, r);
      else
        refine(w, level - 1, 2 * (row + i / 2), 2 * (column + i % 2), tried ? -1 : vain);
      continue;
    }
    if (r->kind == FLY_PARTIAL && !is_over(w)) {
      flyi_box box = box_of(w->survey, r);
      r->kind = flyi_settle(w->survey, w->scratch, &box);
    }
    if (r->kind != FLY_EMPTY) emit(w->scratch, r);
  }
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

/* Appends tiles to a row, to its last run where that is of the same kind and adjoins. */
static void append(fly_run *runs, int64_t *count, const flyi_rectangle *r) {
  fly_run *last = *count ? &runs[*count - 1] : NULL;
  if (last && last->kind == r->kind && last->first + last->count == r->column)
    last->count += r->columns;
  else
    runs[(*count)++] = (fly_run){.first = r->column, .count = r->columns, .kind = r->kind};
}

static bool make_runs(flyi_band *band, const flyi_scratch *s) {
  int64_t *start = flyi_alloc(band->rows + 1, sizeof *start), total = 0;
  band->count = flyi_alloc(band->rows, sizeof *band->count);
  if (!start || !band->count) return free(start), false;
  for (int64_t i = 0; i < s->rectangles; i++) {
    const flyi_rectangle *r = &s->rectangle[i];
    *(r->kind == FLY_FULL ? &band->full : &band->partial) += (int64_t)r->rows * r->columns;
    for (int32_t k = 0; k < r->rows; k++) start[r->row - band->row + k + 1]++;
  }
  for (int32_t k = 0; k < band->rows; k++) start[k + 1] += start[k];
  fly_run *runs = band->runs = flyi_grow(NULL, start[band->rows], sizeof *runs);
  if (runs) {
    for (int64_t i = 0; i < s->rectangles; i++) {
      const flyi_rectangle *r = &s->rectangle[i];
      for (int32_t k = r->row - band->row; k < r->row - band->row + r->rows; k++)
        append(runs + start[k], &band->count[k], r);
    }
    for (int32_t k = 0; k < band->rows; k++) {
      memmove(runs + total, runs + start[k], band->count[k] * sizeof *runs);
      total += band->count[k];
    }
    fly_run *fit = flyi_grow(runs, total, sizeof *runs);
    if (fit) band->runs = fit;
  }
  free(start);
  return runs != NULL;
}

void flyi_band_free(flyi_band *band) {
  free(band->runs), free(band->count);
  band->runs = NULL, band->count = NULL;
}

bool flyi_band_build(flyi_band *band, flyi_scratch *scratch) {
  const flyi_survey *s = band->survey;
  walk w = {s, scratch, band->row, band->row + band->rows};
  scratch->rectangles = scratch->undecided = 0;
  memset(scratch->step, 0, sizeof scratch->step);
  scratch->failed = scratch->late = false;
  int level = 0; /* of the root's children: 2^level tiles */
  while (2ll << level < s->rows || 2ll << level < s->columns) level++;
  flyi_nodes_evaluate(s->nodes, 0, s->nodes->constants, &s->nodes->domain, scratch->value);
  refine(&w, level, 0, 0, 0);
  band->undecided = scratch->undecided;
  return !scratch->failed && make_runs(band, scratch);
}
