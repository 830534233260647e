// 4:16: expected ';' after return statement
#include <flymask/mask.h>
bool mask(int b, int h, int q, int kv) {
  return q > kv
}
