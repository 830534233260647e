// 4:1: mask is declared differently: it must be bool mask(int b, int h, int q, int kv)
#include <stdbool.h>

bool mask(int q, int kv) { return q > kv; }
