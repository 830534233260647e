// 6:7: a mask cannot write to buffer 'doc', only to its own locals
#include <flymask/mask.h>
FLY_BUFFER(int32_t, doc, 1);
FLY_BUFFER(int32_t, other, 1);
bool mask(int b, int h, int q, int kv) {
  doc = other;
  return doc[q];
}
