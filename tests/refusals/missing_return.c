// 5:1: non-void function does not return a value in all control paths
#include <flymask/mask.h>
bool mask(int b, int h, int q, int kv) {
  if (q > kv) return true;
}
