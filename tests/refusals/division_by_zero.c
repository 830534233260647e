// 3:51: division by zero is undefined
#include <flymask/mask.h>
bool mask(int b, int h, int q, int kv) { return q / 0 > kv; }
