/* tiles.c: draws one plane of a block map: empty, full and partial tiles in their colours, and inside partial tiles,
 * where it is wanted, the visible pairs. Queries go down, keys to the right. */
#include <stdlib.h>
#include <string.h>

#include "picture.h"

/* Told apart by lightness too, for readers who do not tell the hues apart. */
static const struct kind_colors {
  color tile, visible;
} kinds[] = {
    [FLY_EMPTY] = {0xf1f2f5, 0xf1f2f5}, [FLY_FULL] = {0x1f5fa8, 0x1f5fa8}, [FLY_PARTIAL] = {0xfbd9a5, 0xe07b00}};

/* ---- tiles ------------------------------------------------------------------------------------------------------- */

/* The plane as sums over columns: count[kind][k] of tiles before column k, for one row of tiles. */
typedef struct row_sums {
  int64_t *count[3];
  int64_t columns;
} row_sums;

static void add_row(const tile_view *view, int64_t row, row_sums *sums) {
  const fly_run *runs;
  int64_t run_count = fly_map_row(view->map, FLY_BY_QUERY, view->b, view->h, row, &runs);
  for (int64_t i = 0; i < run_count; i++)
    for (int64_t k = runs[i].first; k < runs[i].first + runs[i].count && k < sums->columns; k++)
      sums->count[runs[i].kind][k + 1]++;
}

static color mix(const double share[3]) {
  double channel[3] = {0};
  for (int kind = 0; kind < 3; kind++)
    for (int c = 0; c < 3; c++) channel[c] += share[kind] * (kinds[kind].tile >> (16 - 8 * c) & 0xff);
  return (color)(channel[0] + 0.5) << 16 | (color)(channel[1] + 0.5) << 8 | (color)(channel[2] + 0.5);
}

/* A point's range of tiles [first, last): at least one tile, clipped to those that there are. */
static void point_tiles(int64_t point, int64_t points, int64_t length, int64_t tile, int64_t *first, int64_t *last) {
  int64_t from = point * length / points, to = (point + 1) * length / points;
  *first = from / tile;
  *last = to > from ? (to - 1) / tile + 1 : *first + 1;
}

/* Pairs are drawn by the middle pair of a point. */
static bool pair_visible(const tile_view *view, int i, int j, int width, int height) {
  int64_t q = (2 * j + 1) * view->len_q / (2 * height), kv = (2 * i + 1) * view->len_kv / (2 * width);
  return fly_map_visible(view->map, view->b, view->h, q, kv) == 1;
}

static void color_row(color *row, int j, int width, int height, const tile_view *view, const fly_map_info *info,
                      const row_sums *sums, int64_t rows) {
  for (int i = 0; i < width; i++) {
    int64_t first, last;
    point_tiles(i, width, view->len_kv, info->tile_kv, &first, &last);
    double share[3], all = (double)((last - first) * rows);
    for (int kind = FLY_FULL; kind <= FLY_PARTIAL; kind++)
      share[kind] = (double)(sums->count[kind][last] - sums->count[kind][first]) / all;
    share[FLY_EMPTY] = 1 - share[FLY_FULL] - share[FLY_PARTIAL];
    color c = mix(share);
    if (view->points && share[FLY_PARTIAL] > 0 && pair_visible(view, i, j, width, height))
      c = kinds[FLY_PARTIAL].visible;
    row[i] = c;
  }
}

/* Lines between tiles, where tiles are large enough. */
static void draw_grid(picture *p, int x, int y, int width, int height, const tile_view *view,
                      const fly_map_info *info) {
  double tile_x = (double)width * (double)info->tile_kv / (double)view->len_kv;
  double tile_y = (double)height * (double)info->tile_q / (double)view->len_q;
  if (tile_x < 12 || tile_y < 12) return;
  for (int k = 1; k < info->tiles_kv; k++) picture_fill(p, x + (int)(k * tile_x), y, 1, height, WHITE);
  for (int k = 1; k < info->tiles_q; k++) picture_fill(p, x, y + (int)(k * tile_y), width, 1, WHITE);
}

fly_status tiles_draw(picture *p, int x, int y, int width, int height, const tile_view *view, fly_error *error) {
  fly_map_info info;
  fly_map_get_info(view->map, &info);
  row_sums sums = {.columns = info.tiles_kv};
  color *points = malloc(sizeof *points * (size_t)width * (size_t)height);
  size_t size = sizeof(int64_t) * ((size_t)info.tiles_kv + 2);
  fly_status status = points ? FLY_OK : fail_memory(error);
  for (int kind = 0; kind < 3; kind++)
    if (!(sums.count[kind] = malloc(size))) status = fail_memory(error);
  int64_t shown_first = -1, shown_last = -1;
  for (int j = 0; status == FLY_OK && j < height; j++) {
    int64_t first, last;
    if (j % 64 == 0) progress("drawing, %d %%", 100 * j / height);
    point_tiles(j, height, view->len_q, info.tile_q, &first, &last);
    if (first != shown_first || last != shown_last) {
      for (int kind = 0; kind < 3; kind++) memset(sums.count[kind], 0, size);
      for (int64_t row = first; row < last; row++) add_row(view, row, &sums);
      for (int kind = 0; kind < 3; kind++)
        for (int64_t k = 0; k < sums.columns; k++) sums.count[kind][k + 1] += sums.count[kind][k];
      shown_first = first;
      shown_last = last;
    }
    color_row(points + (size_t)j * (size_t)width, j, width, height, view, &info, &sums, last - first);
  }
  progress_end();
  if (status == FLY_OK) {
    picture_points(p, x, y, width, height, points);
    draw_grid(p, x, y, width, height, view, &info);
  }
  free(points);
  for (int kind = 0; kind < 3; kind++) free(sums.count[kind]);
  return status;
}

color tiles_color(fly_tile_kind kind, bool visible) { return visible ? kinds[kind].visible : kinds[kind].tile; }
