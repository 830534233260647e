// 4:14: a mask cannot trap: return true or false for every pair
#include <flymask/mask.h>
bool mask(int b, int h, int q, int kv) {
  if (q < 0) __builtin_trap();
  return q > kv;
}
