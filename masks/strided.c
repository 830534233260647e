/* strided: causal, the last `stride` keys before the query and every stride-th key of the past.
 * Convention: the strided pattern of Sparse Transformers (arXiv 1904.10509), both of its heads merged: q - kv <=
 * stride (inclusive) or (q - kv) % stride == 0. */
#include <flymask/mask.h>

FLY_PARAM(int, stride, 128);

bool mask(int b, int h, int q, int kv) {
  (void)b, (void)h;
  int distance = q - kv;
  return distance >= 0 && (distance <= stride || distance % stride == 0);
}
