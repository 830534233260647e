// 3:1: a mask cannot have variables that live on ('buffer'): make it const, or a parameter by FLY_PARAM
#include <flymask/mask.h>
static void *buffer[5];
bool mask(int b, int h, int q, int kv) {
  if (__builtin_setjmp(buffer)) return true;
  return q > kv;
}
