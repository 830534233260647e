/* block_selected: each head's own bitmap says which blocks of keys a block of queries sees.
 * Convention: VSA's and XAttention's tiles, without a causal rule: combine with causal for that. bitmap: uint8
 * [batch or 1, heads or 1, query blocks, key blocks], not 0 is visible; blocks of size_q queries and size_kv keys.
 * Positions behind the bitmap belong to its last row or column. */
#include <flymask/mask.h>

FLY_PARAM(int, size_q, 64);
FLY_PARAM(int, size_kv, 64);
FLY_BUFFER(uint8_t, bitmap, 4);

bool mask(int b, int h, int q, int kv) {
  int entry = fly_min(b, fly_dim(bitmap, 0) - 1), head = fly_min(h, fly_dim(bitmap, 1) - 1);
  int i = fly_clamp(q / size_q, 0, fly_dim(bitmap, 2) - 1), j = fly_clamp(kv / size_kv, 0, fly_dim(bitmap, 3) - 1);
  return fly_at4(bitmap, entry, head, i, j) != 0;
}
