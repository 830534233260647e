// 4:49: a mask cannot call 'expf', which has no body here: only its own functions and fly_...
#include <flymask/mask.h>
float expf(float);
bool mask(int b, int h, int q, int kv) { return expf(q) > kv; }
