/* strided_fixed: causal, the query's own block of `stride` keys and the last `summary` keys of every block.
 * Convention: the fixed pattern of Sparse Transformers (arXiv 1904.10509), both of its heads merged: q / stride ==
 * kv / stride or kv % stride >= stride - summary. */
#include <flymask/mask.h>

FLY_PARAM(int, stride, 128);
FLY_PARAM(int, summary, 8);

bool mask(int b, int h, int q, int kv) {
  (void)b, (void)h;
  return kv <= q && (q / stride == kv / stride || kv % stride >= stride - summary);
}
