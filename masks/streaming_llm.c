/* streaming_llm: causal, the first `sinks` keys and the last `window` ones.
 * Convention: StreamingLLM's attention sinks: kv <= q and (kv < sinks or q - kv < window); the window counts the
 * query itself. */
#include <flymask/mask.h>

FLY_PARAM(int, sinks, 4);
FLY_PARAM(int, window, 1024);

bool mask(int b, int h, int q, int kv) {
  (void)b, (void)h;
  return kv <= q && (kv < sinks || q - kv < window);
}
