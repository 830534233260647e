/* headwise: reads neither q nor kv, and hides everything from some heads. */
#include <flymask/mask.h>

FLY_PARAM(int, visible, 2);

bool mask(int b, int h, int q, int kv) {
  (void)b, (void)q, (void)kv;
  return h < visible;
}
