/* maplists.c: what is made of a finished map: the transposed order, lists of tile indices, visible pairs. */
#include <stdlib.h>
#include <string.h>

#include "mapops.h"

/* ---- the transpose ----------------------------------------------------------------------------------------------- */

/* Goes down the rows. Where a row differs from the one above, columns end a run and begin another; nothing else
 * costs time. Without `runs` it counts the runs of column c in next[c]; with them, it writes the next one to
 * runs[next[c]++]. */
static void sweep(const flyi_plane *p, int32_t *since, int64_t *next, fly_run *runs) {
  for (int32_t row = 0; row <= p->rows; row++) {
    flyi_cursor above = flyi_open_row(p, (int64_t)row - 1), here = flyi_open_row(p, row);
    for (int32_t column = 0; column < p->columns;) {
      if (above.until == column) flyi_advance(&above);
      if (here.until == column) flyi_advance(&here);
      int32_t until = above.until < here.until ? above.until : here.until;
      for (int32_t c = column; above.kind != here.kind && c < until; c++) {
        if (above.kind != FLY_EMPTY && runs)
          runs[next[c]] = (fly_run){.first = since[c], .count = row - since[c], .kind = above.kind};
        next[c] += above.kind != FLY_EMPTY;
        since[c] = row;
      }
      column = until;
    }
  }
}

static bool transpose_plane(const flyi_plane *p, flyi_plane *out) {
  *out = (flyi_plane){.len_q = p->len_q, .len_kv = p->len_kv, .rows = p->columns, .columns = p->rows};
  int32_t *since = flyi_alloc(p->columns, sizeof *since);
  int64_t *next = flyi_alloc(p->columns, sizeof *next);
  int64_t *start = out->start = flyi_alloc(p->columns + (size_t)1, sizeof *start);
  bool ok = since && next && start;
  if (ok) {
    sweep(p, since, next, NULL);
    for (int32_t c = 0; c < p->columns; c++) {
      start[c + 1] = start[c] + next[c];
      next[c] = start[c];
    }
    out->runs = flyi_grow(NULL, start[p->columns], sizeof *out->runs);
    if ((ok = out->runs != NULL)) sweep(p, since, next, out->runs);
  }
  free(since), free(next);
  return ok;
}

typedef struct transposing {
  const fly_map *map;
  flyi_plane *out;
  atomic_bool failed;
} transposing;

static void transpose_item(void *context, int64_t item, int worker) {
  (void)worker;
  transposing *t = context;
  if (!transpose_plane(&t->map->planes[item], &t->out[item])) t->failed = true;
}

fly_status flyi_map_transpose(fly_map *map, const flyi_threads *threads, fly_error *error) {
  if (atomic_load_explicit(&map->transposed, memory_order_acquire)) return FLY_OK;
  transposing t = {.map = map, .out = flyi_alloc(map->plane_count, sizeof *t.out)};
  if (!t.out) return flyi_no_memory(error);
  flyi_parallel(threads, map->plane_count, transpose_item, &t);
  flyi_plane *none = NULL;
  if (!t.failed && atomic_compare_exchange_strong(&map->transposed, &none, t.out)) return FLY_OK;
  flyi_planes_free(t.out, map->plane_count);
  return t.failed ? flyi_no_memory(error) : FLY_OK; /* another thread was first */
}

fly_status fly_map_transpose(fly_map *map, fly_error *error) {
  if (!map) return flyi_fail(error, FLY_ERROR_ARGUMENT, "map is NULL");
  return flyi_map_transpose(map, &map->threads, error);
}

/* ---- lists ------------------------------------------------------------------------------------------------------- */

void fly_map_lists_free(fly_map_lists *lists) {
  if (!lists) return;
  free(lists->num), free(lists->full_num), free(lists->start), free(lists->full_start), free(lists->index);
  free(lists->full_index);
  *lists = (fly_map_lists){0};
}

static void count_row(const flyi_plane *p, int64_t row, int64_t *partial, int64_t *full) {
  *partial = *full = 0;
  for (int64_t i = row < p->rows ? p->start[row] : 0; row < p->rows && i < p->start[row + 1]; i++)
    *(p->runs[i].kind == FLY_FULL ? full : partial) += p->runs[i].count;
}

static void write_row(const flyi_plane *p, int64_t row, int32_t *partial, int32_t *full) {
  for (int64_t i = row < p->rows ? p->start[row] : 0; row < p->rows && i < p->start[row + 1]; i++) {
    int32_t **to = p->runs[i].kind == FLY_FULL ? &full : &partial;
    for (int32_t k = 0; k < p->runs[i].count; k++) *(*to)++ = p->runs[i].first + k;
  }
}

fly_status fly_map_expand(const fly_map *map, fly_order order, fly_map_lists *out, fly_error *error) {
  if (!out) return flyi_fail(error, FLY_ERROR_ARGUMENT, "out is NULL");
  *out = (fly_map_lists){0};
  if (!map) return flyi_fail(error, FLY_ERROR_ARGUMENT, "map is NULL");
  if (order != FLY_BY_QUERY && order != FLY_BY_KEY)
    return flyi_fail(error, FLY_ERROR_ARGUMENT, "order is %d: it must be FLY_BY_QUERY or FLY_BY_KEY", (int)order);
  const flyi_plane *planes = order == FLY_BY_QUERY ? map->planes : ((fly_map *)map)->transposed;
  if (!planes) return flyi_fail(error, FLY_ERROR_ARGUMENT, "the map has not been transposed: call fly_map_transpose");
  out->batch = map->info.batch, out->heads = map->info.heads;
  out->rows = order == FLY_BY_QUERY ? map->info.tiles_q : map->info.tiles_kv;
  int64_t rows = out->rows, lists = out->batch * out->heads * rows;
  out->num = flyi_alloc(lists, sizeof *out->num), out->full_num = flyi_alloc(lists, sizeof *out->full_num);
  out->start = flyi_alloc(lists + (size_t)1, sizeof *out->start);
  out->full_start = flyi_alloc(lists + (size_t)1, sizeof *out->full_start);
  if (!out->num || !out->full_num || !out->start || !out->full_start) goto no_memory;
  for (int64_t r = 0; r < lists; r++) {
    int64_t partial, full;
    count_row(&planes[map->plane_of[r / rows]], r % rows, &partial, &full);
    out->num[r] = (int32_t)partial, out->full_num[r] = (int32_t)full;
    out->start[r + 1] = out->start[r] + partial, out->full_start[r + 1] = out->full_start[r] + full;
  }
  out->index = flyi_grow(NULL, out->start[lists], sizeof *out->index);
  out->full_index = flyi_grow(NULL, out->full_start[lists], sizeof *out->full_index);
  if (!out->index || !out->full_index) goto no_memory;
  for (int64_t r = 0; r < lists; r++)
    write_row(&planes[map->plane_of[r / rows]], r % rows, out->index + out->start[r],
              out->full_index + out->full_start[r]);
  return FLY_OK;
no_memory:
  fly_map_lists_free(out);
  return flyi_no_memory(error);
}

/* ---- pairs ------------------------------------------------------------------------------------------------------- */

typedef struct counting {
  const flyi_plane *plane;
  const flyi_survey *survey;
  atomic_llong pairs;
} counting;

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static void count_pairs(void *context, int64_t row, int worker) {
  (void)worker;
  counting *c = context;
  const flyi_survey *s = c->survey;
  int64_t q0 = row * s->tile_q, q1 = least(q0 + s->tile_q, s->len_q), pairs = 0;
  for (int64_t i = c->plane->start[row]; i < c->plane->start[row + 1]; i++) {
    const fly_run *run = &c->plane->runs[i];
    int64_t kv0 = run->first * s->tile_kv, kv1 = least((run->first + (int64_t)run->count) * s->tile_kv, s->len_kv);
    int64_t seen = (q1 - q0) * (kv1 - kv0);
    if (run->kind == FLY_PARTIAL)
      seen = flyi_visible_pairs(s, &(flyi_box){q0 + s->q_offset, q1 + s->q_offset - 1, kv0, kv1 - 1});
    pairs += seen;
  }
  atomic_fetch_add_explicit(&c->pairs, pairs, memory_order_relaxed);
}

/* The pairs of one plane, of which (b, h) `item` of the map is one. */
static int64_t plane_pairs(const fly_map *map, int32_t plane, int64_t item) {
  flyi_survey survey = flyi_survey_of(map, item / map->info.heads, item % map->info.heads, NULL);
  counting c = {.plane = &map->planes[plane], .survey = &survey};
  if (c.plane->start[c.plane->rows]) flyi_parallel(&map->threads, c.plane->rows, count_pairs, &c);
  return c.pairs;
}

fly_status fly_map_visible_pairs(const fly_map *map, int64_t *pairs, fly_error *error) {
  if (!map || !pairs) return flyi_fail(error, FLY_ERROR_ARGUMENT, "map or pairs is NULL");
  *pairs = 0;
  if (!map->tile && map->info.tiles_partial)
    return flyi_fail(error, FLY_ERROR_ARGUMENT,
                     "nothing decides the pairs of the map's partial tiles: bind a mask with "
                     "fly_map_bind");
  int64_t items = map->info.batch * map->info.heads;
  if (items == 0) return FLY_OK;
  int64_t copies = map->geometry.batch / map->info.batch * (map->geometry.heads / map->info.heads);
  int64_t *seen = flyi_alloc(map->plane_count, sizeof *seen);
  if (!seen) return flyi_no_memory(error);
  int32_t known = 0; /* planes are numbered in the order of their first (b, h) */
  for (int64_t i = 0; i < items; i++) {
    if (map->plane_of[i] == known) {
      seen[known] = plane_pairs(map, known, i);
      known++;
    }
    *pairs += seen[map->plane_of[i]] * copies;
  }
  free(seen);
  return FLY_OK;
}

int fly_map_visible(const fly_map *map, int64_t b, int64_t h, int64_t q_row, int64_t kv_row) {
  const flyi_plane *plane = map ? flyi_map_plane(map, FLY_BY_QUERY, b, h) : NULL;
  if (!plane || q_row < 0 || q_row >= plane->len_q || kv_row < 0 || kv_row >= plane->len_kv) return -1;
  int64_t q = q_row + map->geometry.q_offset;
  if (map->built) { /* by its code alone, so that tiles can be held to it */
    flyi_survey survey = flyi_survey_of(map, b, h, NULL);
    return (int)flyi_visible_pairs(&survey, &(flyi_box){q, q, kv_row, kv_row});
  }
  flyi_cursor c = flyi_open_row(plane, q_row / map->info.tile_q);
  while (c.until <= kv_row / map->info.tile_kv) flyi_advance(&c);
  if (c.kind != FLY_PARTIAL) return c.kind == FLY_FULL;
  if (!map->tile) return -1;
  uint64_t bits[FLYI_BLOCK];
  map->tile(map->args, (int32_t)b, (int32_t)h, (int32_t)q, (int32_t)kv_row, bits);
  return (int)(bits[0] & 1);
}
