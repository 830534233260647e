/* half.c: arithmetic of f16, bf16 and their packed pairs. Input: 16- or 32-bit lanes; output alike. Each result is
 * rounded once: sums and fused products are formed in double with the last bit set where anything was lost (round to
 * odd), which leaves the final rounding right. */
#include <math.h>

#include "lanes.h"

enum { FTZ = 1, SAT = 2, NANS = 4, RELU = 8, XORSIGN = 16 };
enum { OP_ADD, OP_SUB, OP_MUL, OP_FMA, OP_MIN, OP_MAX, OP_ABS, OP_NEG, OP_EX2, OP_TANH };

static double load(uint16_t h, bool is_bf16) { return is_bf16 ? from_bf16(h) : from_f16(h); }

static double sum_to_odd(double a, double b) {
  double s = a + b, t = s - a, lost = (a - (s - t)) + (b - t);
  uint64_t bits;
  if (lost == 0 || lost != lost || isinf(s)) return s;
  memcpy(&bits, &s, sizeof bits);
  if (!(bits & 1)) bits += (lost > 0) == (s > 0) ? 1 : (uint64_t)-1;
  memcpy(&s, &bits, sizeof bits);
  return s;
}

static double limit(double x, double y, bool max, bool nans) {
  if (nans && (x != x || y != y)) return NAN;
  if (x != x) return y;
  if (y != y) return x;
  if (x == y) return signbit(x) == max ? y : x;
  return (x < y) != max ? x : y;
}

static uint16_t compute(const instr *i, uint16_t a, uint16_t b, uint16_t c) {
  bool is_bf16 = i->type == T_BF16 || i->type == T_BF16X2, ftz = i->mode & FTZ;
  if (i->imm == OP_ABS) return a & 0x7fff;
  if (i->imm == OP_NEG) return a ^ 0x8000;
  double least = is_bf16 ? 0x1p-126 : 0x1p-14, x = load(a, is_bf16), y = load(b, is_bf16), z = load(c, is_bf16), r;
  if (ftz) {
    if (fabs(x) < least) x = copysign(0, x);
    if (fabs(y) < least) y = copysign(0, y);
    if (fabs(z) < least) z = copysign(0, z);
  }
  switch (i->imm) {
  case OP_ADD:
    r = sum_to_odd(x, y);
    break;
  case OP_SUB:
    r = sum_to_odd(x, -y);
    break;
  case OP_MUL:
    r = x * y;
    break;
  case OP_FMA:
    r = sum_to_odd(x * y, z);
    break;
  case OP_MIN:
  case OP_MAX: {
    bool minus = signbit(x) != signbit(y);
    if (i->mode & XORSIGN) x = fabs(x), y = fabs(y);
    r = limit(x, y, i->imm == OP_MAX, i->mode & NANS);
    if (i->mode & XORSIGN && minus) r = -r;
    break;
  }
  case OP_EX2:
    r = exp2(x);
    break;
  default:
    r = tanh(x);
    break;
  }
  uint16_t h = is_bf16 ? to_bf16(r, RN) : to_f16(r, RN);
  if (ftz && fabs(load(h, is_bf16)) < least) h &= 0x8000;
  if (i->mode & SAT) { /* to [0, 1], NaN to 0 */
    double v = load(h, is_bf16);
    h = v > 0 ? (v < 1 ? h : is_bf16 ? 0x3f80 : 0x3c00) : 0;
  }
  if (i->mode & RELU && !(load(h, is_bf16) > 0) && (h & 0x7fff) <= (is_bf16 ? 0x7f80 : 0x7c00)) h = 0;
  return h;
}

static void half(warp *w, const instr *i) {
  const uint32_t *a = r32(w, i->s[0]), *b = r32(w, i->s[i->ns > 1 ? 1 : 0]), *c = r32(w, i->s[i->ns - 1]);
  uint32_t *d = r32(w, i->d[0]);
  bool two = i->type == T_F16X2 || i->type == T_BF16X2;
  EACH_LANE(w->active) {
    uint32_t r = compute(i, (uint16_t)a[l], (uint16_t)b[l], (uint16_t)c[l]);
    if (two) r |= (uint32_t)compute(i, (uint16_t)(a[l] >> 16), (uint16_t)(b[l] >> 16), (uint16_t)(c[l] >> 16)) << 16;
    d[l] = r;
  }
}

bool decode_half(decoder *d) {
  static const char *const ops[] = {"add", "sub", "mul", "fma", "min", "max", "abs", "neg", "ex2", "tanh"};
  static const struct {
    const char *name;
    uint8_t bit;
  } modifiers[] = {{"ftz", FTZ}, {"sat", SAT}, {"NaN", NANS}, {"relu", RELU}};
  int op = 0;
  while (op < 10 && strcmp(ops[op], d->in->op) != 0) op++;
  if (op == 10) return decode_fail(d, "not known with 16-bit floats");
  bool near = (op >= OP_EX2) == mod_take(d, "approx");
  mod_take(d, "rn");
  for (int k = 0; k < 4; k++)
    if (mod_take(d, modifiers[k].name)) d->out->mode |= modifiers[k].bit;
  if (mod_take(d, "xorsign") && mod_take(d, "abs")) d->out->mode |= XORSIGN;
  ptx_type type = mod_type(d);
  bool is_bf16 = type == T_BF16 || type == T_BF16X2;
  if (!near) return decode_fail(d, ".approx belongs to ex2 and tanh");
  if (type != T_F16 && type != T_F16X2 && !is_bf16) return decode_fail(d, "not a 16-bit float");
  if (is_bf16 && d->module->ptx->target < 90 && op < OP_FMA) return decode_fail(d, "needs sm_90");
  d->out->imm = op;
  d->out->type = type;
  return same_type(d, op == OP_FMA ? 3 : op >= OP_ABS ? 1 : 2, type) && decode_done(d, half);
}
