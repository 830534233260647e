/* packed_causal: packed documents, causal inside each, as one interval of keys for each query.
 * Convention: attention-gym's packed causal documents: doc[i] is the document of position i and offsets[d] where
 * document d begins (offsets: int32 [documents + 1], as cu_seqlens; doc: int32 [n]). The same pairs as `document`,
 * if doc is sorted. */
#include <flymask/mask.h>

FLY_BUFFER(int32_t, doc, 1);
FLY_BUFFER(int32_t, offsets, 1);

bool mask(int b, int h, int q, int kv) {
  (void)b, (void)h;
  int start = offsets[doc[q]];
  return kv >= start && kv <= q;
}
