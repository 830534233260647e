// 3:1: a mask cannot put 'helper' into a section ('.init')
#include <flymask/mask.h>
__attribute__((section(".init"))) int helper(int x) { return x; }
bool mask(int b, int h, int q, int kv) { return helper(q) > kv; }
