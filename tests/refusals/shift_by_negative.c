// 3:52: shift count is negative
#include <flymask/mask.h>
bool mask(int b, int h, int q, int kv) { return (q << -1) > kv; }
