// 7:10: a mask cannot use a vector (or a struct of floats passed by value; pass its address instead)
#include <flymask/mask.h>
typedef struct { float x, y; } point;
static float length(point p) { return p.x * p.x + p.y * p.y; }
bool mask(int b, int h, int q, int kv) {
  point p = {q, kv};
  return length(p) > 100;
}
