// 3:1: a mask cannot have constructors or destructors
#include <flymask/mask.h>
__attribute__((constructor)) static void begin(void) {}
bool mask(int b, int h, int q, int kv) { return q > kv; }
