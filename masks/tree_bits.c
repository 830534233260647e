/* tree_bits: as tree, for at most 64 nodes, with a word of ancestor bits for each.
 * Convention: bit j of ancestors[i] is set if node j is i or above it; ancestors: uint64 [nodes]. Positions below
 * `prefix` are causal, position prefix + i is node i; positions behind the tree see the prefix and are not seen. */
#include <flymask/mask.h>

FLY_PARAM(int, prefix, 0);
FLY_BUFFER(uint64_t, ancestors, 1);

bool mask(int b, int h, int q, int kv) {
  (void)b, (void)h;
  int nodes = fly_dim(ancestors, 0), i = q - prefix, j = kv - prefix;
  uint64_t above = ancestors[fly_clamp(i, 0, nodes - 1)] >> (j & 63) & 1;
  bool inside = i >= 0 && i < nodes && j < 64;
  return j < 0 ? kv <= q : inside && above != 0;
}
