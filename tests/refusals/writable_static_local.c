// 4:1: a mask cannot have variables that live on ('mask.seen'): make it const, or a parameter by FLY_PARAM
#include <flymask/mask.h>
bool mask(int b, int h, int q, int kv) {
  static int seen[8];
  return seen[q & 7]++ < kv;
}
