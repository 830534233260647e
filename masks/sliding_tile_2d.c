/* sliding_tile_2d: an image stored by tiles, whose tiles see a window of tiles around them; then text that sees all.
 * Convention: Sliding Tile Attention as in FastVideo and attention-gym, counted in tiles: a canvas of tiles_h x
 * tiles_w tiles of `tile` pixels each, row by row, a window of kernel_h x kernel_w tiles that is moved inwards at
 * the borders (an even window has one tile more before than behind). `text` positions follow the image: seen by all,
 * they see all; what is behind is not seen. */
#include <flymask/mask.h>

FLY_PARAM(int, tiles_h, 8);
FLY_PARAM(int, tiles_w, 8);
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
  int image = tiles_h * tiles_w * tile, i = q / tile, j = kv / tile;
  bool window = near(i / tiles_w, j / tiles_w, kernel_h, tiles_h) && near(i % tiles_w, j % tiles_w, kernel_w, tiles_w);
  return kv < image ? q >= image || window : kv - image < text;
}
