/* mapmake.c: the planes of a map that is not built from a mask: rows are added one after the other, by a function
 * that knows their tiles. Input: a map from flyi_map_create and such a function. Output: its planes and counts. */
#include <stdlib.h>
#include <string.h>

#include "mapops.h"

/* ---- one plane --------------------------------------------------------------------------------------------------- */

void flyi_maker_begin(flyi_plane_maker *m, flyi_plane *plane) {
  *m = (flyi_plane_maker){.plane = plane};
  plane->start = flyi_alloc(plane->rows + (size_t)1, sizeof *plane->start);
  m->failed = !plane->start;
}

void flyi_maker_add(flyi_plane_maker *m, int32_t first, int32_t count, fly_tile_kind kind) {
  if (m->failed || kind == FLY_EMPTY || count == 0) return;
  flyi_plane *p = m->plane;
  *(kind == FLY_FULL ? &m->full : &m->partial) += count;
  fly_run *last = m->count > p->start[m->row] ? &p->runs[m->count - 1] : NULL;
  if (last && last->kind == kind && last->first + last->count == first) {
    last->count += count;
    return;
  }
  if (m->count == m->capacity) {
    int64_t capacity = 2 * m->capacity + 64;
    fly_run *moved = flyi_grow(p->runs, capacity, sizeof *moved);
    if (!moved) {
      m->failed = true;
      return;
    }
    p->runs = moved, m->capacity = capacity;
  }
  p->runs[m->count++] = (fly_run){.first = first, .count = count, .kind = kind};
}

void flyi_maker_end_row(flyi_plane_maker *m) {
  if (!m->failed) m->plane->start[++m->row] = m->count;
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

typedef struct filling {
  fly_map *map;
  flyi_fill_plane *fill;
  void *context;
  const int64_t *first; /* [planes]: the (b, h) of the map that is filled in */
  int64_t (*count)[2];  /* [planes]: full, partial */
  atomic_bool failed;
} filling;

static void fill_item(void *context, int64_t item, int worker) {
  (void)worker;
  filling *f = context;
  flyi_plane *p = &f->map->planes[item];
  flyi_plane_maker maker;
  int64_t b = f->first[item] / f->map->info.heads, h = f->first[item] % f->map->info.heads;
  flyi_survey s = flyi_survey_of(f->map, b, h, NULL);
  *p = (flyi_plane){.len_q = s.len_q, .len_kv = s.len_kv, .rows = s.rows, .columns = s.columns};
  flyi_maker_begin(&maker, p);
  if (!maker.failed) f->fill(f->context, b, h, &maker);
  fly_run *fit = maker.failed ? NULL : flyi_grow(p->runs, maker.count, sizeof *fit);
  if (fit) p->runs = fit;
  f->count[item][0] = maker.full, f->count[item][1] = maker.partial;
  if (!fit) f->failed = true;
}

/* Numbers the planes; first[plane] becomes the first (b, h) of each. */
static bool number_planes(fly_map *map, const int64_t *alike, int64_t *first) {
  int64_t items = map->info.batch * map->info.heads;
  uint64_t slots = 16;
  while ((int64_t)slots < 2 * items) slots *= 2;
  int32_t *table = alike ? flyi_alloc(slots, sizeof *table) : NULL; /* planes + 1 */
  if (alike && !table) return false;
  for (int64_t i = 0; i < items; i++) {
    uint64_t at = alike ? (uint64_t)alike[i] * 0x9E3779B97F4A7C15u >> 32 : 0;
    while (table && table[at & (slots - 1)] && alike[first[table[at & (slots - 1)] - 1]] != alike[i]) at++;
    int32_t *slot = table ? &table[at & (slots - 1)] : NULL;
    if (!slot || !*slot) {
      first[map->plane_count++] = i;
      if (slot) *slot = map->plane_count;
    }
    map->plane_of[i] = (slot ? *slot : map->plane_count) - 1;
  }
  free(table);
  return true;
}

static void count_tiles(fly_map *map, const filling *f) {
  fly_map_info *info = &map->info;
  for (int64_t i = 0; i < info->batch * info->heads; i++) {
    const flyi_plane *p = &map->planes[map->plane_of[i]];
    const int64_t *count = f->count[map->plane_of[i]];
    info->tiles_full += count[0], info->tiles_partial += count[1];
    info->tiles_empty += (int64_t)p->rows * p->columns - count[0] - count[1];
  }
  for (int32_t i = 0; i < map->plane_count; i++) {
    const flyi_plane *p = &map->planes[i];
    info->bytes += sizeof *p + (p->rows + 1) * sizeof *p->start + p->start[p->rows] * sizeof *p->runs;
  }
  flyi_map_complete(map);
}

fly_status flyi_map_fill(fly_map *map, const int64_t *alike, flyi_fill_plane *fill, void *context, fly_error *error) {
  int64_t items = map->info.batch * map->info.heads;
  int64_t *first = flyi_alloc(items, sizeof *first);
  filling f = {.map = map, .fill = fill, .context = context, .first = first};
  map->plane_of = flyi_alloc(items, sizeof *map->plane_of);
  f.count = flyi_alloc(items, sizeof *f.count);
  bool ok = first && map->plane_of && f.count && number_planes(map, alike, first);
  if (ok) {
    map->planes = flyi_alloc(map->plane_count, sizeof *map->planes);
    ok = map->planes != NULL;
    if (!ok) map->plane_count = 0;
  }
  if (ok) flyi_parallel(&map->threads, map->plane_count, fill_item, &f);
  ok = ok && !f.failed;
  if (ok) count_tiles(map, &f);
  free(first), free(f.count);
  return ok ? FLY_OK : flyi_no_memory(error);
}
