// 5:8: a mask cannot use a vector (or a struct of floats passed by value; pass its address instead)
#include <flymask/mask.h>
typedef int four __attribute__((vector_size(16)));
bool mask(int b, int h, int q, int kv) {
  four v = {q, kv, b, h};
  return v[q & 3] > 0;
}
