/* portable.h: functions of one thread that are compiled twice: by clang to PTX, and natively into the test that compares. They
 * are made of what LLVM's NVPTX backend has instructions of its own for. No rounding differs: contraction is off. */
#ifndef SIMCUDA_PORTABLE_H
#define SIMCUDA_PORTABLE_H

typedef unsigned u32;
typedef unsigned long long u64;
typedef long long s64;
__extension__ typedef unsigned __int128 wide_product;
__extension__ typedef _Float16 half;
#ifdef __NVPTX__
typedef half stored_half;
#else
typedef volatile half stored_half; /* rounded now, not when it suits the compiler */
#endif
#define KEEP_CALL static __attribute__((noinline))

typedef struct pair {
  s64 sum;
  int count;
  short parts[5];
} pair;

KEEP_CALL pair split(u32 x, pair before) {
  pair p = before;
  for (int k = 0; k < 5; k++) p.parts[k] = (short)(p.parts[k] + (short)(x >> (5 * k)));
  p.sum += (s64)(int)x * p.count;
  p.count ^= __builtin_popcount(x);
  return p;
}

static u64 integers(u32 a, u32 b) {
  u64 h = ((u64)a << 32 | b) * 0x9e3779b97f4a7c15ull;
  int s = (int)a, t = (int)b, over;
  u32 r = (u32)__builtin_clz(a | 1) + 3u * (u32)__builtin_ctz(b | 0x80000000u);
  h ^= __builtin_bswap64(h) + (u64)__builtin_clzll(h | 1) + (u64)__builtin_popcountll(h);
  r = (r << (a & 31)) | (r >> (-a & 31));
  r += (u32)(s >> (b & 31)) ^ (a >> (b & 15));
  r ^= __builtin_sadd_overflow(s, t, &over) ? 0x5555u : (u32)over;
  h += (u64)((s64)s * t) ^ (u64)((wide_product)h * (a | 1) >> 64);
  if (b & 0xff) h ^= (u64)(s / (int)(b & 0xff)) + a % (b & 0xff) + h / (b & 0xff) + (u64)((s64)h % (s64)(b & 0xff));
  h += (u64)(s < t ? s : t) + (u64)(unsigned short)r * (unsigned char)(r >> 9);
  return h ^ r ^ (u64)(s64)(signed char)a ^ (u64)(s64)(short)b;
}

static float floats(float x, float y) {
  float r = __builtin_fmaf(x, y, -0.5f) + __builtin_fabsf(x) / (1 + y * y);
  r += __builtin_sqrtf(__builtin_fabsf(y)) - __builtin_floorf(x) + __builtin_ceilf(y) - __builtin_truncf(x * 3);
  r = x < y ? r * 0.25f : r - __builtin_copysignf(2, y);
  r += (float)(int)(x * 100) + (float)(u32)__builtin_fabsf(y * 77) + (float)(s64)(x * 1e6f);
  return __builtin_fmaxf(r, -1e6f) + (float)((double)x * (double)y / 3 + __builtin_sqrt((double)__builtin_fabsf(x)));
}

static float halves(float x, float y) {
  stored_half a = (half)x, b = (half)y, c = a * b, d = a + b, e = c + d, f = e - a, g = a * (half)4;
  return (float)(a < b ? f : e) + (float)(int)g;
}

static int choices(int v) {
  switch (v & 15) {
  case 0:
    return v * 3;
  case 1:
    return v - 1000;
  case 2:
    return v ^ 0x1234;
  case 3:
    return v / 7;
  case 4:
    return v % 13;
  case 5:
    return -v;
  case 6:
    return v << 3;
  case 7:
    return v >> 2;
  case 9:
    return v * v;
  case 11:
    return ~v;
  default:
    return 17;
  }
}

/* Sorts eight values in an array that is indexed by data: local memory. */
static u32 sorted(u32 seed, u32 at) {
  u32 v[8];
  for (u32 k = 0; k < 8; k++) v[k] = seed = seed * 1664525u + 1013904223u;
  for (u32 k = 1; k < 8; k++)
    for (u32 j = k; j > 0 && v[j - 1] > v[j]; j--) {
      u32 t = v[j];
      v[j] = v[j - 1];
      v[j - 1] = t;
    }
  return v[at & 7] ^ v[v[0] & 7];
}

static u64 everything(u32 a, u32 b) {
  pair p = {1, 2, {3, 4, 5, 6, 7}};
  float x = (float)(int)(a & 0xffff) / 512 - 60, y = (float)(int)(b & 0xffff) / 4096 - 8, f, h;
  union {
    float f;
    u32 u;
  } bits;
  u64 r = integers(a, b);
  for (u32 k = 0; k < (b & 3); k++) p = split(a + k, p);
  f = floats(x, y);
  h = halves(y, x / 8);
  bits.f = f;
  r = r * 31 + bits.u;
  bits.f = h;
  r = r * 31 + bits.u + (u64)choices((int)(a ^ b)) + sorted(a, b);
  for (int k = 0; k < 5; k++) r = r * 7 + (u64)p.parts[k];
  return r + (u64)p.sum * 5 + (u64)p.count;
}

#endif
