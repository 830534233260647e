/* document_inner: packed documents with a mask of positions inside each: a window, and a prefix that all of it sees.
 * Convention: attention-gym's document mask: doc[i] is the document of position i, which begins at offsets[doc[i]];
 * the inner mask sees q and kv counted from there. Here it is q - left <= kv <= q + right (inclusive, -1 is
 * unbounded), or kv < prefix: (-1, 0, 0) is causal, (-1, -1, 0) full. doc: int32 [n], offsets: int32 [documents +
 * 1]. Replace inner() by any other. */
#include <flymask/mask.h>

FLY_PARAM(int, left, -1);
FLY_PARAM(int, right, 0);
FLY_PARAM(int, prefix, 0);
FLY_BUFFER(int32_t, doc, 1);
FLY_BUFFER(int32_t, offsets, 1);

static bool inner(int q, int kv) {
  return ((left < 0 || q - kv <= left) && (right < 0 || kv - q <= right)) || kv < prefix;
}

bool mask(int b, int h, int q, int kv) {
  (void)b, (void)h;
  int doc_q = doc[q], doc_kv = doc[kv];
  int from_q = q - offsets[doc_q], from_kv = kv - offsets[doc_kv];
  return doc_q == doc_kv && inner(from_q, from_kv);
}
