// 6:14: a mask cannot recurse: 'even' calls itself, directly or through others
#include <flymask/mask.h>
static int odd(int x);
static int even(int x) { return x ? odd(x - 1) : 1; }
static int odd(int x) {
  return x ? even(x - 1) : 0;
}
bool mask(int b, int h, int q, int kv) { return even(q); }
