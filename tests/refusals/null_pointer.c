// 7:10: the pointer may be null: let it point into an array
#include <flymask/mask.h>
FLY_BUFFER(int32_t, doc, 1);
bool mask(int b, int h, int q, int kv) {
  const int32_t *p = NULL;
  if (q > kv) p = doc;
  return p[q];
}
