/* key_padding: every query sees the first lengths[b] keys of its batch entry.
 * Convention: right-padded batches (key_padding_mask elsewhere). lengths: int32 [batch]; entries behind its end have
 * the last length. Combine with causal for decoders; ragged batches without padding need no mask but cu_seqlens. */
#include <flymask/mask.h>

FLY_BUFFER(int32_t, lengths, 1);

bool mask(int b, int h, int q, int kv) {
  (void)h, (void)q;
  return kv < lengths[b];
}
