// 4:49: a mask cannot convert between pointers and integers
#include <flymask/mask.h>
FLY_BUFFER(int32_t, doc, 1);
bool mask(int b, int h, int q, int kv) { return (int64_t)&doc[q] > kv; }
