// 4:49: a mask cannot read buffer 'doc' as something else than its i32 elements
#include <flymask/mask.h>
FLY_BUFFER(int32_t, doc, 1);
bool mask(int b, int h, int q, int kv) { return *(const int32_t *)((const char *)doc + q) > kv; }
