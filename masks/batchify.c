/* batchify: a batch laid out as one sequence: entries of `size` positions, with a mask of positions inside each.
 * Convention: attention-gym's batchify: q / size == kv / size and inner(q % size, kv % size). Here the inner mask is
 * q - left <= kv <= q + right (inclusive, -1 is unbounded), or kv < prefix; (-1, 0, 0) is causal. Replace inner() by
 * any other. */
#include <flymask/mask.h>

FLY_PARAM(int, size, 1024);
FLY_PARAM(int, left, -1);
FLY_PARAM(int, right, 0);
FLY_PARAM(int, prefix, 0);

static bool inner(int q, int kv) {
  return ((left < 0 || q - kv <= left) && (right < 0 || kv - q <= right)) || kv < prefix;
}

bool mask(int b, int h, int q, int kv) {
  (void)b, (void)h;
  return q / size == kv / size && inner(q % size, kv % size);
}
