/* careless: one of everything that `flymask check` finds. The lines are counted in tests/golden/findings_*.txt. */
#include <flymask/mask.h>

FLY_PARAM(int, stride, 0);
FLY_BUFFER(int32_t, doc, 1);

static int half(int x) { return x / 2; }

bool mask(int b, int h, int q, int kv) {
  (void)b, (void)h;
  static const int table[4] = {1, 2, 3, 4};
  int big = q * 100000 + kv;
  bool same = doc[q + 1] == doc[kv - 2];
  bool near = (q - kv) % 64 < 8 && table[kv / 64] > 0;
  bool never = kv < 0 || (q >= kv && q < kv);
  if (half(q - kv) > 3 && kv % stride == 0) return kv <= 2147483647;
  return (same && near && kv > 90 && (1 << kv) > 5) || never || big < 0;
}
