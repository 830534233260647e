// 5:49: the pointer may point into different objects: choose between values, not pointers
#include <flymask/mask.h>
static const int one = 1, two = 2;
static const int *const of[2] = {&one, &two};
bool mask(int b, int h, int q, int kv) { return *of[q & 1] > kv; }
