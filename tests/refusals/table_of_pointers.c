// 7:10: the pointer may point into different objects: choose between values, not pointers
#include <flymask/mask.h>
FLY_BUFFER(int32_t, doc, 1);
FLY_BUFFER(int32_t, group, 1);
bool mask(int b, int h, int q, int kv) {
  const int32_t *of[2] = {doc, group};
  return of[h & 1][q] == of[h & 1][kv];
}
