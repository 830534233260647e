/* natten_2d_tiled: natten_2d over an image that is stored tile by tile.
 * Convention: attention-gym's tiled NATTEN: tiles of tile_h x tile_w pixels follow each other row by row, and so do
 * the pixels in a tile; a row has width / tile_w tiles, the tiles cover the canvas. Positions outside it see nothing
 * and are not seen. */
#include <flymask/mask.h>

FLY_PARAM(int, height, 64);
FLY_PARAM(int, width, 64);
FLY_PARAM(int, kernel_h, 7);
FLY_PARAM(int, kernel_w, 7);
FLY_PARAM(int, tile_h, 8);
FLY_PARAM(int, tile_w, 8);

static bool near(int q, int kv, int kernel, int length) {
  int before = kernel / 2, behind = kernel - 1 - before;
  int centre = fly_clamp(q, before, length - 1 - behind);
  return centre - kv <= before && kv - centre <= behind;
}

static int row(int i) {
  int tile = i / (tile_h * tile_w);
  return tile / (width / tile_w) * tile_h + i % (tile_h * tile_w) / tile_w;
}

static int column(int i) {
  int tile = i / (tile_h * tile_w);
  return tile % (width / tile_w) * tile_w + i % tile_w;
}

bool mask(int b, int h, int q, int kv) {
  (void)b, (void)h;
  bool inside = q >= 0 && row(q) < height;
  return inside && near(row(q), row(kv), kernel_h, height) && near(column(q), column(kv), kernel_w, width);
}
