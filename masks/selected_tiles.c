/* selected_tiles: each row sees selected blocks of one tile of keys; a query that sees several tiles is several rows.
 * Convention: queries grouped by what they selected (MoBA, arXiv 2502.13189, and the like): row maps repeat them, and
 * their partial outputs merge. A tile is `count` blocks, at most 64, of `size` keys. tile: int32 [batch or 1, heads or
 * 1, rows]; blocks: uint64, likewise, bit i is block i of the row's tile. causal: no key behind token + offset. */
#include <flymask/mask.h>

FLY_PARAM(int, size, 128);
FLY_PARAM(int, count, 1);
FLY_PARAM(int, causal, 1);
FLY_PARAM(int, offset, 0);
FLY_BUFFER(int32_t, tile, 3);
FLY_BUFFER(uint64_t, blocks, 3);

bool mask(int b, int h, int q, int kv) {
  int at = fly_clamp(q, 0, fly_dim(tile, 2) - 1), bits_at = fly_clamp(q, 0, fly_dim(blocks, 2) - 1);
  int own = fly_at3(tile, fly_min(b, fly_dim(tile, 0) - 1), fly_min(h, fly_dim(tile, 1) - 1), at);
  uint64_t bits = fly_at3(blocks, fly_min(b, fly_dim(blocks, 0) - 1), fly_min(h, fly_dim(blocks, 1) - 1), bits_at);
  int keys = size * count, first = own * keys, last = first + (keys - 1);
  if (causal) last = fly_min(last, fly_token_q(b, h, q) + offset);
  return first <= kv && kv <= last && (bits >> (kv / size % count) & 1) != 0;
}
