/* Each function of score.h in turn, of arguments that it is smooth at. */
#include <flymask/score.h>

FLY_PARAM(int, which, 0);

float score(float s, int b, int h, int q, int kv) {
  (void)b, (void)h;
  float x = s * 0.5f + (float)(q - kv) * 0.003f, up = x * x + 0.25f;
  switch (which) {
  case 0:
    return expf(x);
  case 1:
    return exp2f(x);
  case 2:
    return expm1f(x);
  case 3:
    return logf(up);
  case 4:
    return log2f(up);
  case 5:
    return log1pf(up);
  case 6:
    return sinf(x);
  case 7:
    return cosf(x);
  case 8:
    return tanhf(x);
  case 9:
    return powf(up, 1.5f);
  case 10:
    return powf(1.25f, x);
  case 11:
    return powf(up, x);
  case 12:
    return sqrtf(up);
  case 13:
    return fabsf(x) * x;
  case 14:
    return copysignf(up, x) * x;
  case 15:
    return fminf(x, up) * x + fmaxf(0.25f, x);
  case 16:
    return __builtin_sqrtf(up) + __builtin_fabsf(x) * x + __builtin_copysignf(x, up);
  default:
    return floorf(x) * 0 + ceilf(x) * 0 + truncf(x) * 0 + roundf(x) * 0 + rintf(x) * 0 + (float)(int)x * 0 + 3;
  }
}
