/* sliding_tile_3d: a video stored by tiles, whose tiles see a window of tiles around them; then text that sees all.
 * Convention: as sliding_tile_2d, with time as the slowest axis: tiles_t x tiles_h x tiles_w tiles of `tile` pixels
 * each and a window of kernel_t x kernel_h x kernel_w tiles (FastVideo's tile of 6 x 8 x 8 is tile = 384). */
#include <flymask/mask.h>

FLY_PARAM(int, tiles_t, 6);
FLY_PARAM(int, tiles_h, 6);
FLY_PARAM(int, tiles_w, 6);
FLY_PARAM(int, kernel_t, 3);
FLY_PARAM(int, kernel_h, 3);
FLY_PARAM(int, kernel_w, 3);
FLY_PARAM(int, tile, 64);
FLY_PARAM(int, text, 0);

static bool near(int q, int kv, int kernel, int length) {
  int before = kernel / 2, behind = kernel - 1 - before;
  int centre = fly_clamp(q, before, length - 1 - behind);
  return centre - kv <= before && kv - centre <= behind;
}

bool mask(int b, int h, int q, int kv) {
  (void)b, (void)h;
  int image = tiles_t * tiles_h * tiles_w * tile, i = q / tile, j = kv / tile;
  bool t = near(i / (tiles_h * tiles_w), j / (tiles_h * tiles_w), kernel_t, tiles_t);
  bool y = near(i / tiles_w % tiles_h, j / tiles_w % tiles_h, kernel_h, tiles_h);
  bool x = near(i % tiles_w, j % tiles_w, kernel_w, tiles_w);
  return kv < image ? q >= image || (t && y && x) : kv - image < text;
}
