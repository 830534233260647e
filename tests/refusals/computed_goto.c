// 3:1: a mask cannot jump to a computed label
#include <flymask/mask.h>
bool mask(int b, int h, int q, int kv) {
  static const void *const to[2] = {&&yes, &&no};
  goto *to[q > kv];
yes:
  return true;
no:
  return false;
}
