/* bigbird: blocks of `size`: the neighbours, the first and the last block globally, and three random blocks a row.
 * Convention: BigBird as Hugging Face has it (block_size 64, num_random_blocks 3): block i sees blocks i - 1, i, i +
 * 1; the first and the last block see all blocks and are seen by all. picks: int32 [heads or 1, blocks, 3], the
 * random key blocks of each block of queries (-1: none). Positions behind the last block belong to it. */
#include <flymask/mask.h>

FLY_PARAM(int, size, 64);
FLY_BUFFER(int32_t, picks, 3);

bool mask(int b, int h, int q, int kv) {
  (void)b;
  int last = fly_dim(picks, 1) - 1;
  int i = fly_clamp(q / size, 0, last), j = fly_clamp(kv / size, 0, last);
  int head = fly_min(h, fly_dim(picks, 0) - 1);
  bool picked = false;
  for (int k = 0; k < 3; k++) picked |= fly_at3(picks, head, i, k) == j;
  return picked || fly_abs(i - j) <= 1 || i == 0 || j == 0 || i == last || j == last;
}
