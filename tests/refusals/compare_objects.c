// 5:57: a mask cannot compare pointers into different objects
#include <flymask/mask.h>
FLY_BUFFER(int32_t, doc, 1);
FLY_BUFFER(int32_t, group, 1);
bool mask(int b, int h, int q, int kv) { return doc + q < group + kv; }
