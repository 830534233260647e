/* chunked: causal inside chunks of `size` positions; no query looks across a chunk's border.
 * Convention: Llama 4's chunked attention. */
#include <flymask/mask.h>

FLY_PARAM(int, size, 8192);

bool mask(int b, int h, int q, int kv) {
  (void)b, (void)h;
  return kv <= q && q / size == kv / size;
}
