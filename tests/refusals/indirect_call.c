// 6:54: a mask cannot take the address of a function ('one')
#include <flymask/mask.h>
static int one(int x) { return x + 1; }
static int two(int x) { return x + 2; }
static int call(int (*f)(int), int x) { return f(x); }
bool mask(int b, int h, int q, int kv) { return call(q > kv ? one : two, q); }
