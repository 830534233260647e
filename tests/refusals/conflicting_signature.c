// 3:6: conflicting types for 'mask'
#include <flymask/mask.h>
bool mask(int q, int kv) { return q > kv; }
