/* cvt.c: conversions (PTX ISA, "cvt"). The common ones have vector loops of their own; the rest goes through one
 * function that reads a lane exactly, rounds and writes it. */
#include <math.h>

#include "lanes.h"

enum { FTZ = 1, SAT = 2, RELU = 4, FINITE = 8, TO_INT = 16 };

/* --- integers to integers of another width ------------------------------------------------------- */
LANES1(u8_to_32, uint32_t, uint32_t, uint32_t, uint8_t, x)
LANES1(s8_to_32, uint32_t, int32_t, uint32_t, int8_t, x)
LANES1(u16_to_32, uint32_t, uint32_t, uint32_t, uint16_t, x)
LANES1(s16_to_32, uint32_t, int32_t, uint32_t, int16_t, x)
LANES1(u8_to_64, uint64_t, uint64_t, uint32_t, uint8_t, x)
LANES1(s8_to_64, uint64_t, int64_t, uint32_t, int8_t, x)
LANES1(u16_to_64, uint64_t, uint64_t, uint32_t, uint16_t, x)
LANES1(s16_to_64, uint64_t, int64_t, uint32_t, int16_t, x)
LANES1(u32_to_64, uint64_t, uint64_t, uint32_t, uint32_t, x)
LANES1(s32_to_64, uint64_t, int64_t, uint32_t, int32_t, x)
LANES1(low_32, uint32_t, uint32_t, uint64_t, uint32_t, x)
LANES1(f32_to_64, double, double, float, float, x)
LANES1(s32_to_f32, float, float, uint32_t, int32_t, x)
LANES1(u32_to_f32, float, float, uint32_t, uint32_t, x)

/* --- 16-bit floats ------------------------------------------------------------------------------- */
static inline uint32_t bf16_rn(uint32_t x) {
  uint32_t r = (x + 0x7fff + (x >> 16 & 1)) >> 16;
  return (x & 0x7fffffff) > 0x7f800000 ? 0x7fff : r;
}
/* Subnormal results by an addition that shifts them to the right place, in float. */
static inline uint32_t f16_rn(uint32_t x) {
  uint32_t sign = x >> 16 & 0x8000, a = x & 0x7fffffff;
  uint32_t normal = (a + 0xc8000fff + (a >> 13 & 1)) >> 13;
  uint32_t small = bits_f32(as_f32(a) + 0.5f) - 0x3f000000;
  uint32_t r = a >= 0x47800000 ? 0x7c00 : a < 0x38800000 ? small : normal;
  return a > 0x7f800000 ? 0x7fff : sign | r;
}
LANES1(f32_to_bf16, uint32_t, uint32_t, uint32_t, uint32_t, bf16_rn(x))
LANES1(f32_to_f16, uint32_t, uint32_t, uint32_t, uint32_t, f16_rn(x))
LANES1(bf16_to_f32, uint32_t, uint32_t, uint32_t, uint32_t, x << 16)
LANES1(f16_to_f32, uint32_t, uint32_t, uint32_t, uint32_t, f16_bits(x))
LANES2(f32_to_bf16x2, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, bf16_rn(x) << 16 | bf16_rn(y))
LANES2(f32_to_f16x2, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, f16_rn(x) << 16 | f16_rn(y))

static uint16_t narrow16(const instr *i, double x) {
  bool is_bf16 = i->type == T_BF16 || i->type == T_BF16X2;
  if (i->mode & RELU && x < 0) x = 0;
  if (i->mode & RELU && x == 0) x = 0; /* -0 too */
  uint16_t h = is_bf16 ? to_bf16(x, (rounding)i->count) : to_f16(x, (rounding)i->count),
           most = is_bf16 ? 0x7f7f : 0x7bff;
  if (i->mode & FINITE && (h & 0x7fff) == most + 1) h = (h & 0x8000) | most;
  return h;
}
static void pack2(warp *w, const instr *i) { /* d = {high: a, low: b} */
  const float *a = reg(w, i->s[0]), *b = reg(w, i->s[1]);
  uint32_t *d = r32(w, i->d[0]);
  EACH_LANE(w->active) d[l] = (uint32_t)narrow16(i, a[l]) << 16 | narrow16(i, b[l]);
}
static void tf32(warp *w, const instr *i) {
  const float *a = reg(w, i->s[0]);
  uint32_t *d = r32(w, i->d[0]);
  EACH_LANE(w->active) {
    float x = a[l];
    if (i->mode & RELU && !(x > 0) && x == x) x = 0;
    d[l] = to_tf32(x, (rounding)i->count);
  }
}

/* --- everything else ----------------------------------------------------------------------------- */
typedef struct number {
  bool is_float, is_signed;
  double f;
  uint64_t u;
} number;

static number read_lane(const warp *w, uint32_t at, uint32_t l, ptx_type type, bool wide) {
  uint64_t bits = wide ? r64(w, at)[l] : r32(w, at)[l];
  number n = {.is_float = ptx_is_float(type), .is_signed = ptx_is_signed(type)};
  switch (type) {
  case T_U8:
  case T_B8:
    n.u = (uint8_t)bits;
    break;
  case T_S8:
    n.u = (uint64_t)(int64_t)(int8_t)bits;
    break;
  case T_U16:
  case T_B16:
    n.u = (uint16_t)bits;
    break;
  case T_S16:
    n.u = (uint64_t)(int64_t)(int16_t)bits;
    break;
  case T_U32:
  case T_B32:
    n.u = (uint32_t)bits;
    break;
  case T_S32:
    n.u = (uint64_t)(int64_t)(int32_t)bits;
    break;
  case T_F16:
    n.f = from_f16((uint16_t)bits);
    break;
  case T_BF16:
    n.f = from_bf16((uint16_t)bits);
    break;
  case T_F32:
    n.f = as_f32((uint32_t)bits);
    break;
  case T_F64:
    memcpy(&n.f, &bits, sizeof bits);
    break;
  default:
    n.u = bits;
    break;
  }
  return n;
}

static double round_int(double x, rounding mode) {
  return mode == RZ ? trunc(x) : mode == RM ? floor(x) : mode == RP ? ceil(x) : nearbyint(x);
}

/* Out of range saturates; NaN gives 0. */
static uint64_t float_to_int(double x, ptx_type type, rounding mode) {
  unsigned bits = 8 * ptx_bytes(type);
  if (isnan(x)) return 0;
  x = round_int(x, mode);
  if (ptx_is_signed(type)) {
    double top = ldexp(1, (int)bits - 1);
    int64_t most = (int64_t)(UINT64_MAX >> (65 - bits));
    return (uint64_t)(x >= top ? most : x < -top ? -most - 1 : (int64_t)x);
  }
  return x >= ldexp(1, (int)bits) ? UINT64_MAX >> (64 - bits) : x <= 0 ? 0 : (uint64_t)x;
}

static uint64_t int_to_int(number n, ptx_type type, bool sat) {
  unsigned bits = 8 * ptx_bytes(type);
  uint64_t most = ptx_is_signed(type) ? UINT64_MAX >> (65 - bits) : UINT64_MAX >> (64 - bits);
  if (!sat) return n.u;
  if (n.is_signed && (int64_t)n.u < 0) {
    if (!ptx_is_signed(type)) return 0;
    int64_t low = -(int64_t)most - 1;
    return (int64_t)n.u < low ? (uint64_t)low : n.u;
  }
  return n.u > most ? most : n.u;
}

static double int_to_double(number n, rounding mode, bool to_f32) {
  /* one rounding: 64-bit integers do not fit a double exactly */
  double high, low;
  if (n.is_signed) {
    high = (double)((int64_t)n.u >> 32) * 0x1p32;
    low = (double)(uint32_t)n.u;
  } else {
    high = (double)(n.u >> 32) * 0x1p32;
    low = (double)(uint32_t)n.u;
  }
  if (!to_f32) return round_f64('+', high, low, 0, mode);
  /* to odd in double, then to float */
  double s = round_f64('+', high, low, 0, RZ);
  double lost = low - (s - high);
  uint64_t bits;
  memcpy(&bits, &s, sizeof bits);
  if (lost != 0) bits |= 1;
  memcpy(&s, &bits, sizeof bits);
  return s;
}

static float double_to_float(double x, rounding mode) {
  float near = (float)x; /* round to nearest */
  if (mode == RN || isnan(x) || (double)near == x) return near;
  bool up = mode == RP || (mode == RZ && x < 0);
  if (up) return (double)near < x ? nextafterf(near, INFINITY) : near;
  return (double)near > x ? nextafterf(near, -INFINITY) : near;
}

static void write_float(warp *w, const instr *i, uint32_t l, double x, bool from_int, number n) {
  rounding mode = (rounding)i->count;
  uint32_t at = i->d[0];
  if (i->type == T_F64) {
    if (from_int) x = int_to_double(n, mode, false);
    if (i->mode & SAT) x = x > 0 ? (x < 1 ? x : 1) : 0;
    if (isnan(x)) x = NAN;
    memcpy(&r64(w, at)[l], &x, sizeof x);
    return;
  }
  if (from_int) x = int_to_double(n, mode, true);
  if (i->type == T_F32) {
    float f = double_to_float(x, mode);
    if (i->mode & FTZ) f = flush(f);
    if (i->mode & SAT) f = f > 0 ? (f < 1 ? f : 1) : 0;
    r32(w, at)[l] = f != f ? 0x7fffffff : bits_f32(f);
    return;
  }
  if (i->mode & SAT) x = x > 0 ? (x < 1 ? x : 1) : 0;
  uint32_t h = narrow16(i, x);
  r32(w, at)[l] = h;
}

static void cvt_any(warp *w, const instr *i) { /* from `space` to `type`, registers wide as in `bytes` */
  ptx_type to = (ptx_type)i->type, from = (ptx_type)i->space;
  EACH_LANE(w->active) {
    number n = read_lane(w, i->s[0], l, from, i->bytes & 1);
    if (n.is_float && from == T_F32 && i->mode & FTZ) n.f = flush((float)n.f);
    if (ptx_is_float(to)) {
      double x = n.f;
      if (n.is_float && i->mode & TO_INT) x = round_int(x, (rounding)i->count);
      write_float(w, i, l, x, !n.is_float, n);
      continue;
    }
    uint64_t r = n.is_float ? float_to_int(n.f, to, (rounding)i->count) : int_to_int(n, to, i->mode & SAT);
    unsigned bits = 8 * ptx_bytes(to);
    if (bits < 64)
      r = ptx_is_signed(to) ? (uint64_t)((int64_t)(r << (64 - bits)) >> (64 - bits)) : r & (UINT64_MAX >> (64 - bits));
    if (i->bytes & 2)
      r64(w, i->d[0])[l] = r;
    else
      r32(w, i->d[0])[l] = bits == 16 && i->bytes & 4  ? (uint16_t)r
                           : bits == 8 && i->bytes & 4 ? (uint16_t)r
                                                       : (uint32_t)r;
  }
}

/* --- decoding ------------------------------------------------------------------------------------ */
static run_fn *fast(const instr *i, ptx_type to, ptx_type from, bool dst_wide, bool src_wide, bool dst_16) {
  bool plain = i->mode == 0;
  unsigned a = ptx_bytes(from), b = ptx_bytes(to);
  if (!ptx_is_float(to) && !ptx_is_float(from) && plain) {
    bool s = ptx_is_signed(from);
    if (dst_wide && b == 8 && !src_wide)
      return a == 1 ? (s ? s8_to_64 : u8_to_64) : a == 2 ? (s ? s16_to_64 : u16_to_64) : s ? s32_to_64 : u32_to_64;
    if (!dst_wide && b == 4 && src_wide && a >= 4) return low_32;
    if (!dst_wide && b == 4 && !src_wide)
      return a == 1 ? (s ? s8_to_32 : u8_to_32) : a == 2 ? (s ? s16_to_32 : u16_to_32) : NULL;
    if (dst_16 && b == 2 && !src_wide && a >= 2) return u16_to_32;
  }
  if (!plain) return NULL;
  if (to == T_F64 && from == T_F32 && dst_wide) return f32_to_64;
  if (i->count != RN) return NULL;
  if (to == T_F32 && from == T_S32 && !src_wide) return s32_to_f32;
  if (to == T_F32 && from == T_U32 && !src_wide) return u32_to_f32;
  if (to == T_BF16 && from == T_F32) return f32_to_bf16;
  if (to == T_F16 && from == T_F32) return f32_to_f16;
  if (to == T_F32 && from == T_BF16) return bf16_to_f32;
  if (to == T_F32 && from == T_F16) return f16_to_f32;
  return NULL;
}

static bool take_rounding(decoder *d, bool *said, bool *to_int) {
  static const struct {
    const char *name;
    rounding mode;
    bool to_int;
  } table[] = {{"rn", RN, false}, {"rz", RZ, false}, {"rm", RM, false}, {"rp", RP, false}, {"rna", RNA, false},
               {"rni", RN, true}, {"rzi", RZ, true}, {"rmi", RM, true}, {"rpi", RP, true}};
  for (int k = 0; k < 9; k++)
    if (mod_take(d, table[k].name)) {
      d->out->count = table[k].mode;
      *said = true;
      *to_int = table[k].to_int;
      return true;
    }
  return true;
}

static bool decode_packed(decoder *d, ptx_type to, bool said) {
  const ptx_operand *o = d->in->operands;
  bool plain = d->out->mode == 0 && d->out->count == RN;
  if (mod_type(d) != T_F32) return decode_fail(d, "from .f32 only");
  if (!said) return decode_fail(d, "a rounding is missing");
  return want_operands(d, 3, 3) && def(d, &o[0], to) && use(d, &o[1], T_F32) && use(d, &o[2], T_F32) &&
         decode_done(d, !plain           ? pack2
                        : to == T_BF16X2 ? f32_to_bf16x2
                                         : f32_to_f16x2);
}

static bool check_rounding(decoder *d, ptx_type to, ptx_type from, bool said, bool to_int) {
  bool f_to = ptx_is_float(to), f_from = ptx_is_float(from);
  if (f_from && !f_to && !(said && to_int)) return decode_fail(d, "a rounding to an integer is missing");
  if (!f_from && f_to && (!said || to_int)) return decode_fail(d, "a rounding is missing");
  if (f_from && f_to && ptx_bytes(to) < ptx_bytes(from) && !said) return decode_fail(d, "a rounding is missing");
  if (!f_from && !f_to && said) return decode_fail(d, "rounding of an integer");
  return true;
}

bool decode_cvt(decoder *d) {
  const ptx_operand *o = d->in->operands;
  bool said = false, to_int = false;
  if (mod_take(d, "pack")) return decode_fail(d, "cvt.pack is not supported");
  take_rounding(d, &said, &to_int);
  if (mod_take(d, "ftz")) d->out->mode |= FTZ;
  if (mod_take(d, "satfinite")) d->out->mode |= FINITE;
  if (mod_take(d, "relu")) d->out->mode |= RELU;
  if (mod_take(d, "satfinite")) d->out->mode |= FINITE;
  if (mod_take(d, "sat")) d->out->mode |= SAT;
  ptx_type to = mod_type(d);
  d->out->type = to;
  if (to == T_F16X2 || to == T_BF16X2) return decode_packed(d, to, said);
  ptx_type from = mod_type(d);
  if (d->failed || !want_operands(d, 2, 2)) return false;
  if (to == T_TF32)
    return (said && from == T_F32) ? def(d, &o[0], T_B32) && use(d, &o[1], T_F32) && decode_done(d, tf32)
                                   : decode_fail(d, "cvt.rna.tf32.f32");
  if (!check_rounding(d, to, from, said, to_int)) return false;
  if (from == T_BF16 && to == T_F32 && d->module->ptx->target < 80) return decode_fail(d, "needs sm_80");
  if (from == T_BF16 && d->out->mode & FTZ) return decode_fail(d, ".ftz with .bf16");
  bool f_from = ptx_is_float(from);
  if (!(ptx_is_float(to) ? def(d, &o[0], to) : def_relaxed(d, &o[0], to))) return false;
  if (!(f_from ? use(d, &o[1], from) : use_relaxed(d, &o[1], from))) return false;
  d->out->space = from;
  if (to_int && ptx_is_float(to)) d->out->mode |= TO_INT;
  bool dst_wide = operand_width(d, &o[0]) == 8,
       src_wide = operand_width(d, &o[1]) == 8 || (o[1].kind != K_REG && ptx_bytes(from) == 8);
  bool dst_16 = o[0].kind == K_REG && ptx_bytes(d->function->source->regs[o[0].reg].type) == 2;
  d->out->bytes = (uint8_t)(src_wide | dst_wide << 1 | dst_16 << 2);
  run_fn *run = fast(d->out, to, from, dst_wide, src_wide, dst_16);
  return decode_done(d, run ? run : cvt_any);
}
