/* document: packed documents, causal inside each; doc[i] is the number of the document that position i belongs to.
 * Convention: FlexAttention's document mask with a causal inner mask. The ids need not be sorted. */
#include <flymask/mask.h>

FLY_BUFFER(int32_t, doc, 1);

bool mask(int b, int h, int q, int kv) {
  (void)b, (void)h;
  return doc[q] == doc[kv] && kv <= q;
}
