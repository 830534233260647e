// 3:1: a mask cannot have an alias ('two')
#include <flymask/mask.h>
int one(int x) { return x + 1; }
int two(int x) __attribute__((alias("one")));
bool mask(int b, int h, int q, int kv) { return two(q) > kv; }
