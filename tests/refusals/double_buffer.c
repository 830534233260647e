// 3:1: the elements of buffer 'weights' must be integers, bool or float
#include <flymask/mask.h>
FLY_BUFFER(double, weights, 1);
bool mask(int b, int h, int q, int kv) { return weights[q] > kv; }
