/* bitmask: any mask at all, from a table with one bit for each pair.
 * Convention: numpy.packbits(visible, axis=1, bitorder="little"): bit kv % 8 of bits[q, kv / 8]. bits: uint8
 * [queries, bytes]. Positions outside the table see nothing and are not seen. */
#include <flymask/mask.h>

FLY_BUFFER(uint8_t, bits, 2);

bool mask(int b, int h, int q, int kv) {
  (void)b, (void)h;
  int rows = fly_dim(bits, 0), bytes = fly_dim(bits, 1);
  bool inside = q >= 0 && q < rows && kv / 8 < bytes;
  int byte = fly_at2(bits, fly_clamp(q, 0, rows - 1), fly_clamp(kv / 8, 0, bytes - 1));
  return inside && ((byte >> (kv % 8)) & 1) != 0;
}
