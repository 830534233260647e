/* tree: tree decoding: a prefix, then the nodes of a draft tree, each of which sees the prefix and its ancestors.
 * Convention: SpecInfer's and JetSpec's tree-causal mask. Positions below `prefix` are causal, position prefix + i
 * is node i: for queries that are the nodes alone, q_offset = prefix. ancestors: uint8 [nodes, nodes], ancestors[i,
 * j] not 0 if j is i or above it. Positions behind the tree see the prefix and are not seen. */
#include <flymask/mask.h>

FLY_PARAM(int, prefix, 0);
FLY_BUFFER(uint8_t, ancestors, 2);

bool mask(int b, int h, int q, int kv) {
  (void)b, (void)h;
  int nodes = fly_dim(ancestors, 0), i = q - prefix, j = kv - prefix;
  bool above = fly_at2(ancestors, fly_clamp(i, 0, nodes - 1), fly_clamp(j, 0, nodes - 1)) != 0;
  bool inside = i >= 0 && i < nodes && j < nodes;
  return j < 0 ? kv <= q : inside && above;
}
