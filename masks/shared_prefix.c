/* shared_prefix: packed documents, causal inside each; a continuation also sees the whole document it continues.
 * Convention: attention-gym's shared prefix: prefix_of[d] is the document that d continues, itself where it
 * continues none. doc: int32 [n], offsets: int32 [documents + 1], as in packed_causal; prefix_of: int32 [documents]. */
#include <flymask/mask.h>

FLY_BUFFER(int32_t, doc, 1);
FLY_BUFFER(int32_t, offsets, 1);
FLY_BUFFER(int32_t, prefix_of, 1);

bool mask(int b, int h, int q, int kv) {
  (void)b, (void)h;
  int own = doc[q], prefix = prefix_of[own];
  int start = offsets[own], prefix_start = offsets[prefix], prefix_end = offsets[prefix + 1];
  bool in_own = kv >= start && kv <= q;
  bool in_prefix = own != prefix && kv >= prefix_start && kv < prefix_end;
  return in_own || in_prefix;
}
