// 4:53: 'errno_like' is declared but not defined here: a mask is one file
#include <flymask/mask.h>
extern int errno_like;
bool mask(int b, int h, int q, int kv) { return q > errno_like; }
