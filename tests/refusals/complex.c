// 5:21: a mask cannot multiply or divide complex numbers
#include <flymask/mask.h>
bool mask(int b, int h, int q, int kv) {
  float _Complex z = q;
  return __real__(z * z) > kv;
}
