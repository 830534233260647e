/* mapwindow.c: a part of a block map: cropped to shorter lengths, or a slice of its queries.
 *
 * Tiles that are all inside keep their kind; those that are cut, or put together of two rows of tiles, are settled by
 * their pairs. So what comes out is what fly_map_build would give. Where the mask reads lengths or tokens, its pairs
 * may change with the part: then the map is built again. */
#include <inttypes.h>
#include <stdlib.h>

#include "mapops.h"

typedef struct window {
  const fly_map *map;
  fly_map *out;
  int64_t first; /* the first row of queries */
} window;

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* ---- tiles ------------------------------------------------------------------------------------------------------- */

/* A row of tiles of the window lies in rows `above` and `below` of the map, which may be the same. */
typedef struct row_of {
  int64_t above, below;
  bool whole; /* it is one row of the map */
} row_of;

static row_of find_rows(const window *w, const flyi_plane *p, int64_t row) {
  int64_t tile = w->map->info.tile_q, q0 = w->first + row * tile;
  int64_t q1 = least(q0 + tile, w->first + w->out->geometry.len_q), above = q0 / tile;
  return (row_of){above, (q1 - 1) / tile, q0 == above * tile && q1 == least(q0 + tile, p->len_q)};
}

static void fill_row(const window *w, int64_t b, int64_t h, const flyi_plane *p, flyi_plane_maker *maker) {
  const flyi_plane *out = maker->plane;
  row_of rows = find_rows(w, p, maker->row);
  flyi_cursor above = flyi_open_row(p, rows.above), below = flyi_open_row(p, rows.below);
  bool cut = out->len_kv % w->map->info.tile_kv != 0 && out->len_kv != p->len_kv; /* the last column */
  for (int32_t column = 0; column < out->columns && !maker->failed;) {
    while (above.until <= column) flyi_advance(&above);
    while (below.until <= column) flyi_advance(&below);
    int32_t until = above.until < below.until ? above.until : below.until;
    if (until > out->columns) until = out->columns;
    int32_t known = above.kind != below.kind       ? column
                    : above.kind != FLY_PARTIAL    ? until
                    : !rows.whole                  ? column
                    : until == out->columns && cut ? until - 1
                                                   : until;
    flyi_maker_add(maker, column, known - column, above.kind);
    for (; known < until; known++) flyi_maker_add(maker, known, 1, flyi_map_settle(w->out, b, h, maker->row, known));
    column = until;
  }
}

static void fill_plane(void *context, int64_t b, int64_t h, flyi_plane_maker *maker) {
  const window *w = context;
  const flyi_plane *p = flyi_map_plane(w->map, FLY_BY_QUERY, b, h);
  for (int32_t row = 0; row < maker->plane->rows && !maker->failed; row++) {
    fill_row(w, b, h, p, maker);
    flyi_maker_end_row(maker);
  }
}

/* ---- the window -------------------------------------------------------------------------------------------------- */

/* Pairs of the window are asked of the map while tiles are settled; then the mask decides them, where there is one. */
static fly_status fill(const window *w, fly_error *error) {
  fly_map *out = w->out;
  const fly_map *map = w->map;
  int64_t items = map->info.batch * map->info.heads;
  int64_t *alike = map->built ? flyi_alloc(items, sizeof *alike) : NULL;
  if (map->built && !alike) return flyi_no_memory(error);
  for (int64_t i = 0; alike && i < items; i++) alike[i] = map->plane_of[i];
  out->info.batch = map->info.batch, out->info.heads = map->info.heads;
  fly_status status = flyi_map_ask(out, NULL, map, NULL, error);
  if (!status) status = flyi_map_fill(out, alike, fill_plane, (void *)w, error);
  free(alike);
  if (status || !map->bound) return status;
  flyi_mask_args_free(out->args);
  out->args = NULL;
  fly_map_release(&out->part[0]);
  out->built = map->built;
  return flyi_map_bind(out, map->bound, error);
}

static fly_status make_window(const fly_map *map, const fly_geometry *g, int64_t first, fly_map **out,
                              fly_error *error) {
  const uint32_t call = FLYI_READS_TOKEN_Q | FLYI_READS_TOKEN_KV | FLYI_READS_LEN_Q | FLYI_READS_LEN_KV;
  bool reads = map->bound && map->bound->mask->image.reads & call;
  fly_map_options options = {FLY_INIT(fly_map_options),         .tile_q = (int)map->info.tile_q,
                             .tile_kv = (int)map->info.tile_kv, .fast = map->fast,
                             .threads = map->threads.limit,     .parallel_for = map->threads.parallel_for,
                             .parallel_user = map->threads.user};
  if (map->built && (reads || map->fast || first % map->info.tile_q))
    return fly_map_build(map->bound, g, &options, out, error);
  if (reads)
    return flyi_fail(error, FLY_ERROR_UNSUPPORTED,
                     "the map's mask reads the call's lengths or tokens, which change, and "
                     "the map was not built from it: take the part of what it was made "
                     "of, and bind the mask to that");
  window w = {.map = map, .first = first};
  fly_status status = flyi_map_create(g, &options, &w.out, error);
  if (!status) status = fill(&w, error);
  if (status)
    fly_map_release(&w.out);
  else
    *out = w.out;
  return status;
}

static fly_status check_window(const fly_map *map, fly_map **out, fly_error *error) {
  if (!out) return flyi_fail(error, FLY_ERROR_ARGUMENT, "out is NULL");
  *out = NULL;
  if (!map) return flyi_fail(error, FLY_ERROR_ARGUMENT, "map is NULL");
  if (map->geometry.cu_seqlens_q)
    return flyi_fail(error, FLY_ERROR_UNSUPPORTED, "the map is of a ragged batch (cu_seqlens): build one of the part");
  return FLY_OK;
}

fly_status fly_map_crop(const fly_map *map, int64_t len_q, int64_t len_kv, fly_map **out, fly_error *error) {
  fly_status status = check_window(map, out, error);
  if (status) return status;
  fly_geometry g = map->geometry;
  if (len_q < 0 || len_q > g.len_q || len_kv < 0 || len_kv > g.len_kv)
    return flyi_fail(error, FLY_ERROR_ARGUMENT,
                     "lengths %" PRId64 ", %" PRId64 " of a map of %" PRId64 ", %" PRId64
                     ": a map can become shorter only",
                     len_q, len_kv, g.len_q, g.len_kv);
  g.len_q = len_q, g.len_kv = len_kv;
  return make_window(map, &g, 0, out, error);
}

fly_status fly_map_slice(const fly_map *map, int64_t first, int64_t count, fly_map **out, fly_error *error) {
  fly_status status = check_window(map, out, error);
  if (status) return status;
  fly_geometry g = map->geometry;
  if (first < 0 || count < 0 || first > g.len_q || count > g.len_q - first)
    return flyi_fail(error, FLY_ERROR_ARGUMENT,
                     "queries from %" PRId64 " on, %" PRId64 " of them, of a map of %" PRId64, first, count, g.len_q);
  g.len_q = count, g.q_offset += first;
  if (g.q_rows.rows) g.q_rows.rows += first;
  return make_window(map, &g, first, out, error);
}
