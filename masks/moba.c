/* moba: causal, each query sees the blocks of `size` keys that were selected for it.
 * Convention: MoBA (arXiv 2502.13189) after its gate: the query's own block must be among the selected ones; inside
 * it, causal. selected: uint8 [batch or 1, heads or 1, queries, key blocks], not 0 is selected. size = 1 makes it a
 * choice of tokens. Positions behind the table belong to its last row or column. */
#include <flymask/mask.h>

FLY_PARAM(int, size, 512);
FLY_BUFFER(uint8_t, selected, 4);

bool mask(int b, int h, int q, int kv) {
  int entry = fly_min(b, fly_dim(selected, 0) - 1), head = fly_min(h, fly_dim(selected, 1) - 1);
  int i = fly_clamp(q, 0, fly_dim(selected, 2) - 1), j = fly_clamp(kv / size, 0, fly_dim(selected, 3) - 1);
  bool chosen = fly_at4(selected, entry, head, i, j) != 0;
  return chosen && kv <= q;
}
