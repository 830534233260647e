// 4:30: a mask cannot write to the constant 'table', only to its own locals
#include <flymask/mask.h>
static const int table[4] = {1, 2, 3, 4};
static void set(int *p) { *p = 0; }
bool mask(int b, int h, int q, int kv) {
  set((int *)&table[q & 3]);
  return table[kv & 3];
}
