// 4:49: a mask cannot call 'puts', which has no body here: only its own functions and fly_...
#include <flymask/mask.h>
int puts(const char *);
bool mask(int b, int h, int q, int kv) { return puts("hello") + q; }
