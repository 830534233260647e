/* global_window: a two-sided window; the first `globals` positions see everything and are seen by all.
 * Convention: Longformer's pattern with its global tokens in front (BigBird's ITC at the grain of tokens): |q - kv|
 * <= window, inclusive. Global tokens anywhere: longformer. */
#include <flymask/mask.h>

FLY_PARAM(int, window, 128);
FLY_PARAM(int, globals, 16);

bool mask(int b, int h, int q, int kv) {
  (void)b, (void)h;
  return fly_abs(q - kv) <= window || q < globals || kv < globals;
}
