/* prefix_lm: causal, but everybody sees the first `prefix` keys.
 * Convention: prefix-LM of T5 and UniLM: inside the prefix attention is bidirectional. */
#include <flymask/mask.h>

FLY_PARAM(int, prefix, 128);

bool mask(int b, int h, int q, int kv) {
  (void)b, (void)h;
  return kv < prefix || kv <= q;
}
