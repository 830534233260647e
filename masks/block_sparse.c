/* block_sparse: bitmap[i, j] says whether the queries of block i see the keys of block j; blocks of `size` positions.
 * Convention: block-selected attention (VSA, MoBA and the like, without the causal rule inside a block): combine
 * with causal for that. Positions behind the bitmap belong to its last row or column. */
#include <flymask/mask.h>

FLY_PARAM(int, size, 128);
FLY_BUFFER(uint8_t, bitmap, 2);

bool mask(int b, int h, int q, int kv) {
  (void)b, (void)h;
  int i = fly_clamp(q / size, 0, fly_dim(bitmap, 0) - 1), j = fly_clamp(kv / size, 0, fly_dim(bitmap, 1) - 1);
  return fly_at2(bitmap, i, j) != 0;
}
