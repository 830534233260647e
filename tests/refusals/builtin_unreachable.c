// 4:14: a mask cannot end without a result: return true or false for every pair
#include <flymask/mask.h>
bool mask(int b, int h, int q, int kv) {
  if (q < 0) __builtin_unreachable();
  return q > kv;
}
