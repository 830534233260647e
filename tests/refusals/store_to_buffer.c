// 5:24: a mask cannot write to buffer 'doc', only to its own locals
#include <flymask/mask.h>
FLY_BUFFER(int32_t, doc, 1);
bool mask(int b, int h, int q, int kv) {
  ((int32_t *)doc)[kv] = q;
  return kv <= q;
}
