/* mapops.h: what the files share that make maps of maps: mapbits.c, mapops.c, mapwindow.c, maparrays.c, maptext.c. */
#ifndef FLYMASK_MAPOPS_H
#define FLYMASK_MAPOPS_H

#include "survey.h"

/* ---- the runs of one row, read from left to right ---------------------------------------------------------------- */

/* Tiles [.., until) are of `kind`. */
typedef struct flyi_cursor {
  const fly_run *run, *end;
  int32_t columns, until;
  fly_tile_kind kind;
} flyi_cursor;

/* At column 0, before the first flyi_advance. A row that does not exist is empty. */
static inline flyi_cursor flyi_open_row(const flyi_plane *p, int64_t row) {
  flyi_cursor c = {NULL, NULL, p->columns, 0, FLY_EMPTY};
  if (row >= 0 && row < p->rows) c.run = p->runs + p->start[row], c.end = p->runs + p->start[row + 1];
  return c;
}

static inline void flyi_advance(flyi_cursor *c) {
  bool inside = c->run < c->end && c->run->first <= c->until;
  c->kind = inside ? (fly_tile_kind)c->run->kind : FLY_EMPTY;
  c->until = inside ? c->run->first + c->run->count : c->run < c->end ? c->run->first : c->columns;
  if (inside) c->run++;
}

/* ---- a plane that grows row by row ------------------------------------------------------------------------------- */

typedef struct flyi_plane_maker {
  flyi_plane *plane;
  int32_t row; /* the one that is being filled */
  int64_t count, capacity, full, partial;
  bool failed; /* memory was short */
} flyi_plane_maker;

/* The plane's lengths and tile counts are set; it is the map's, also after a failure. */
void flyi_maker_begin(flyi_plane_maker *maker, flyi_plane *plane);
/* Tiles behind those that the row has; empty ones are left out. */
void flyi_maker_add(flyi_plane_maker *maker, int32_t first, int32_t count, fly_tile_kind kind);
void flyi_maker_end_row(flyi_plane_maker *maker);

/* Fills the plane of (b, h); called from several threads. */
typedef void flyi_fill_plane(void *context, int64_t b, int64_t h, flyi_plane_maker *maker);
/* Fills the planes of a map from flyi_map_create, whose batch and heads are set (each 1 or the geometry's), and counts.
 * `alike` (or NULL) has a number for each of its (b, h): those with equal numbers share a plane. */
fly_status flyi_map_fill(fly_map *map, const int64_t *alike, flyi_fill_plane *fill, void *context, fly_error *error);

/* ---- pairs (mapbits.c) ------------------------------------------------------------------------------------------- */

/* The truth of a map whose partial tiles are decided, by its tiles and by what decides these: as flyi_tile_fn, from a
 * pair inside the map on; rows and columns outside are 0. */
void flyi_map_bits(const fly_map *map, int32_t b, int32_t h, int32_t q, int32_t kv, uint64_t bits[FLYI_BLOCK]);

/* Lets `out` ask these maps for the pairs of its partial tiles: both of them, or the left one (right NULL), as it is
 * or its opposite. Where one is undecided, so is out. */
fly_status flyi_map_ask(fly_map *out, const fly_combine *how, const fly_map *left, const fly_map *right,
                        fly_error *error);
/* The same for a buffer of bytes [B, H, Q, KV], B and H 1 or the geometry's. */
fly_status flyi_map_ask_bitmap(fly_map *out, fly_buffer *bitmap, fly_error *error);

/* The kind of a tile of the map by its pairs alone; FLY_PARTIAL where these are undecided. */
fly_tile_kind flyi_map_settle(const fly_map *map, int64_t b, int64_t h, int32_t row, int32_t column);

#endif
