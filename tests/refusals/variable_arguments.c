// 3:1: a mask cannot have variable argument lists ('first')
#include <flymask/mask.h>
static int first(int count, ...) {
  __builtin_va_list list;
  __builtin_va_start(list, count);
  int x = __builtin_va_arg(list, int);
  __builtin_va_end(list);
  return x;
}
bool mask(int b, int h, int q, int kv) { return first(1, q) > kv; }
