/* maptext.c: a plane of a block map as text: a character for each tile, or for a square of tiles where there are more
 * than fit. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "mapops.h"

enum { HAS_EMPTY = 1, HAS_FULL = 2, HAS_PARTIAL = 4 };

static char character(int has) { return has == HAS_EMPTY ? '.' : has == HAS_FULL ? '#' : '+'; }

/* Adds what a row of tiles has to the cells that it falls in. */
static void mark_row(const flyi_plane *p, int32_t row, int32_t step, uint8_t *has) {
  static const uint8_t bit[] = {[FLY_EMPTY] = HAS_EMPTY, [FLY_FULL] = HAS_FULL, [FLY_PARTIAL] = HAS_PARTIAL};
  flyi_cursor c = flyi_open_row(p, row);
  for (int32_t column = 0; column < p->columns; column = c.until) {
    while (c.until <= column) flyi_advance(&c);
    for (int32_t cell = column / step; cell <= (c.until - 1) / step; cell++) has[cell] |= bit[c.kind];
  }
}

fly_status fly_map_text(const fly_map *map, int64_t b, int64_t h, int columns, char **text, fly_error *error) {
  if (!text) return flyi_fail(error, FLY_ERROR_ARGUMENT, "text is NULL");
  *text = NULL;
  const flyi_plane *p = map ? flyi_map_plane(map, FLY_BY_QUERY, b, h) : NULL;
  if (!p)
    return flyi_fail(error, FLY_ERROR_ARGUMENT,
                     map ? "the map has no (batch %" PRId64 ", head %" PRId64 ")" : "map is NULL", b, h);
  if (columns < 0) return flyi_fail(error, FLY_ERROR_ARGUMENT, "%d columns", columns);
  if (columns == 0) columns = 64;
  int32_t longest = p->columns > p->rows ? p->columns : p->rows, step = longest / columns + (longest % columns != 0);
  if (step == 0) step = 1;
  size_t width = (size_t)(p->columns + step - 1) / step, lines = (size_t)(p->rows + step - 1) / step;
  uint8_t *has = flyi_alloc(width, 1);
  char *out = has ? flyi_alloc(lines * (width + 1) + 1, 1) : NULL, *end = out;
  if (!out) return free(has), flyi_no_memory(error);
  for (int32_t row = 0; row < p->rows; row += step) {
    memset(has, 0, width);
    for (int32_t r = row; r < p->rows && r < row + step; r++) mark_row(p, r, step, has);
    for (size_t i = 0; i < width; i++) *end++ = character(has[i]);
    *end++ = '\n';
  }
  free(has);
  *text = out;
  return FLY_OK;
}
