// 3:52: shift count >= width of type
#include <flymask/mask.h>
bool mask(int b, int h, int q, int kv) { return (q << 40) > kv; }
