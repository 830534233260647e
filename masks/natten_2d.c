/* natten_2d: neighbourhoods of kernel_h x kernel_w pixels in a row-major image; at its borders they are moved inwards.
 * Convention: NATTEN's rule on both axes (natten_1d says it): position y width + x is the pixel (y, x) of a canvas
 * of height x width. Positions outside the canvas see nothing and are not seen. For odd kernels and a square canvas
 * as attention-gym's. */
#include <flymask/mask.h>

FLY_PARAM(int, height, 64);
FLY_PARAM(int, width, 64);
FLY_PARAM(int, kernel_h, 7);
FLY_PARAM(int, kernel_w, 7);

static bool near(int q, int kv, int kernel, int length) {
  int before = kernel / 2, behind = kernel - 1 - before;
  int centre = fly_clamp(q, before, length - 1 - behind);
  return centre - kv <= before && kv - centre <= behind;
}

bool mask(int b, int h, int q, int kv) {
  (void)b, (void)h;
  int qy = q / width, qx = q % width, ky = kv / width, kx = kv % width;
  bool inside = q >= 0 && qy < height;
  return inside && near(qy, ky, kernel_h, height) && near(qx, kx, kernel_w, width);
}
