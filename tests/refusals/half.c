// 4:16: a mask cannot use a floating-point type other than float and double
#include <flymask/mask.h>
bool mask(int b, int h, int q, int kv) {
  _Float16 x = q;
  return x > kv;
}
