// 4:19: a mask cannot use an integer or bit-field of an odd width
#include <flymask/mask.h>
bool mask(int b, int h, int q, int kv) {
  _BitInt(17) x = q;
  return x > kv;
}
