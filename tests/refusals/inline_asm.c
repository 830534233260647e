// 4:6: GNU-style inline assembly is disabled
#include <flymask/mask.h>
bool mask(int b, int h, int q, int kv) {
  asm("nop");
  return q > kv;
}
