// 5:8: a mask cannot write to parameter 'left', only to its own locals
#include <flymask/mask.h>
FLY_PARAM(int, left, 255);
bool mask(int b, int h, int q, int kv) {
  left = q;
  return kv <= q;
}
