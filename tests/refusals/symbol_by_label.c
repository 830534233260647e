// 4:1: a mask cannot use names of Flymask's own ('fly.count.doc')
#include <flymask/mask.h>
FLY_BUFFER(int32_t, doc, 1);
const long count __asm__("fly.count.doc") = 1L << 60;
bool mask(int b, int h, int q, int kv) { return doc[q] > count; }
