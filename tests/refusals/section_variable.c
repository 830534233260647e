// 3:1: a mask cannot put 'table' into a section ('.init_array')
#include <flymask/mask.h>
__attribute__((section(".init_array"))) const long table[1] = {1};
bool mask(int b, int h, int q, int kv) { return q > kv; }
