// 5:10: the pointer may point into different objects: choose between values, not pointers
#include <flymask/mask.h>
bool mask(int b, int h, int q, int kv) {
  int x[3] = {q, kv, h}, *p[3] = {&x[0], &x[1], &x[2]};
  return *p[q % 3] > kv;
}
