// 4:1: a mask cannot have an ifunc ('two')
#include <flymask/mask.h>
static int one(int x) { return x + 1; }
static void *resolve(void) { return one; }
int two(int x) __attribute__((ifunc("resolve")));
bool mask(int b, int h, int q, int kv) { return two(q) > kv; }
