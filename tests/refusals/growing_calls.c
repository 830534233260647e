// 8:51: the mask is too large: with its calls inlined, more than 8192 instructions
#include <flymask/mask.h>
static int f0(int x) { return x * 3 + 1; }
static int f1(int x) { return f0(x) + f0(x + 1) + f0(x + 2) + f0(x + 3); }
static int f2(int x) { return f1(x) + f1(x + 1) + f1(x + 2) + f1(x + 3); }
static int f3(int x) { return f2(x) + f2(x + 1) + f2(x + 2) + f2(x + 3); }
static int f4(int x) { return f3(x) + f3(x + 1) + f3(x + 2) + f3(x + 3); }
static int f5(int x) { return f4(x) + f4(x + 1) + f4(x + 2) + f4(x + 3); }
bool mask(int b, int h, int q, int kv) { return f5(q) > kv; }
