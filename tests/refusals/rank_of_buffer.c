// 3:1: the rank of buffer 'doc' must be 1 to 4
#include <flymask/mask.h>
FLY_BUFFER(int32_t, doc, 5);
bool mask(int b, int h, int q, int kv) { return doc[q] > kv; }
