/* natten_2d_morton: natten_2d over an image that is stored along the Morton (Z-order) curve.
 * Convention: attention-gym's: the even bits of a position are its x, the odd bits its y. Height and width need no
 * power of two: positions outside the canvas see nothing and are not seen. */
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

/* Bits 0, 2, 4, ... of x, moved together. */
static int even_bits(uint32_t x) {
  x &= 0x55555555;
  x = (x | x >> 1) & 0x33333333;
  x = (x | x >> 2) & 0x0f0f0f0f;
  x = (x | x >> 4) & 0x00ff00ff;
  return (x | x >> 8) & 0x0000ffff;
}

bool mask(int b, int h, int q, int kv) {
  (void)b, (void)h;
  uint32_t i = q, j = kv;
  int qy = even_bits(i >> 1), qx = even_bits(i), ky = even_bits(j >> 1), kx = even_bits(j);
  bool inside = q >= 0 && qy < height && qx < width;
  return inside && near(qy, ky, kernel_h, height) && near(qx, kx, kernel_w, width);
}
