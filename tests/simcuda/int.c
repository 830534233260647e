/* int.c: integer arithmetic (PTX ISA, "Integer Arithmetic Instructions", "Extended-Precision"). Unsigned C
 * arithmetic wraps as the registers do; division by zero, which the ISA leaves open, gives all ones as the
 * hardware's code does. */
#include "lanes.h"

__extension__ typedef unsigned __int128 u128;
__extension__ typedef __int128 s128;

/* 16-bit operands promote to int: wrap in 64-bit unsigned arithmetic */
#define U(v) ((uint64_t)(v))
INT2(add, U(x) + U(y))
INT2(sub, U(x) - U(y))
INT2(mul_lo, U(x) * U(y))
INT2(min, x < y ? x : y)
INT2(max, x > y ? x : y)
INT3(mad_lo, U(x) * U(y) + U(z))
INT3(sad, U(z) + (x < y ? U(y) - U(x) : U(x) - U(y)))

#define MINUS_OVERFLOW(y) ((y) == -1) /* the quotient wraps, the remainder is 0 */
LANES2(div_u16, uint32_t, uint16_t, uint32_t, uint16_t, uint32_t, uint16_t, y ? x / y : 0xffff)
LANES2(div_s16, uint32_t, uint16_t, uint32_t, int16_t, uint32_t, int16_t, y ? x / y : -1)
LANES2(div_u32, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, y ? x / y : ALL_LANES)
LANES2(div_s32, uint32_t, uint32_t, uint32_t, int32_t, uint32_t, int32_t,
       y == 0              ? ALL_LANES
       : MINUS_OVERFLOW(y) ? 0 - (uint32_t)x
                           : (uint32_t)(x / y))
LANES2(div_u64, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, y ? x / y : UINT64_MAX)
LANES2(div_s64, uint64_t, uint64_t, uint64_t, int64_t, uint64_t, int64_t,
       y == 0              ? UINT64_MAX
       : MINUS_OVERFLOW(y) ? 0 - (uint64_t)x
                           : (uint64_t)(x / y))
static run_fn *const divide[INT_TYPES] = {div_u16, div_s16, div_u32, div_s32, div_u64, div_s64};
LANES2(rem_u16, uint32_t, uint16_t, uint32_t, uint16_t, uint32_t, uint16_t, y ? x % y : x)
LANES2(rem_s16, uint32_t, uint16_t, uint32_t, int16_t, uint32_t, int16_t, y ? x % y : x)
LANES2(rem_u32, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, y ? x % y : x)
LANES2(rem_s32, uint32_t, uint32_t, uint32_t, int32_t, uint32_t, int32_t, y == 0 ? x : MINUS_OVERFLOW(y) ? 0 : x % y)
LANES2(rem_u64, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, y ? x % y : x)
LANES2(rem_s64, uint64_t, uint64_t, uint64_t, int64_t, uint64_t, int64_t, y == 0 ? x : MINUS_OVERFLOW(y) ? 0 : x % y)
static run_fn *const rem[INT_TYPES] = {rem_u16, rem_s16, rem_u32, rem_s32, rem_u64, rem_s64};

/* the high half of a product, and products of twice the width */
LANES2(mul_hi_u16, uint32_t, uint16_t, uint32_t, uint16_t, uint32_t, uint16_t, (uint32_t)x *y >> 16)
LANES2(mul_hi_s16, uint32_t, uint16_t, uint32_t, int16_t, uint32_t, int16_t, x *y >> 16)
LANES2(mul_hi_u32, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, (uint64_t)x *y >> 32)
LANES2(mul_hi_s32, uint32_t, uint32_t, uint32_t, int32_t, uint32_t, int32_t, (int64_t)x *y >> 32)
LANES2(mul_hi_u64, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, (u128)x *y >> 64)
LANES2(mul_hi_s64, uint64_t, uint64_t, uint64_t, int64_t, uint64_t, int64_t, (s128)x *y >> 64)
static run_fn *const mul_hi[INT_TYPES] = {mul_hi_u16, mul_hi_s16, mul_hi_u32, mul_hi_s32, mul_hi_u64, mul_hi_s64};
LANES2(mul_wide_u16, uint32_t, uint32_t, uint32_t, uint16_t, uint32_t, uint16_t, (uint32_t)x *y)
LANES2(mul_wide_s16, uint32_t, uint32_t, uint32_t, int16_t, uint32_t, int16_t, (int32_t)x *y)
LANES2(mul_wide_u32, uint64_t, uint64_t, uint32_t, uint32_t, uint32_t, uint32_t, (uint64_t)x *y)
LANES2(mul_wide_s32, uint64_t, uint64_t, uint32_t, int32_t, uint32_t, int32_t, (int64_t)x *y)
static run_fn *const mul_wide[INT_TYPES] = {mul_wide_u16, mul_wide_s16, mul_wide_u32, mul_wide_s32, NULL, NULL};
LANES3(mad_hi_u32, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, (uint32_t)((uint64_t)x *y >> 32) + z)
LANES3(mad_hi_s32, uint32_t, uint32_t, uint32_t, int32_t, uint32_t, uint32_t, (uint32_t)((int64_t)x *y >> 32) + z)
LANES3(mad_hi_u64, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, (uint64_t)((u128)x *y >> 64) + z)
LANES3(mad_hi_s64, uint64_t, uint64_t, uint64_t, int64_t, uint64_t, uint64_t, (uint64_t)((s128)x *y >> 64) + z)
static run_fn *const mad_hi[INT_TYPES] = {NULL, NULL, mad_hi_u32, mad_hi_s32, mad_hi_u64, mad_hi_s64};
LANES3(mad_wide_u16, uint32_t, uint32_t, uint32_t, uint16_t, uint32_t, uint32_t, (uint32_t)x *y + z)
LANES3(mad_wide_s16, uint32_t, uint32_t, uint32_t, int16_t, uint32_t, uint32_t, (uint32_t)((int32_t)x *y) + z)
LANES3(mad_wide_u32, uint64_t, uint64_t, uint32_t, uint32_t, uint64_t, uint64_t, (uint64_t)x *y + z)
LANES3(mad_wide_s32, uint64_t, uint64_t, uint32_t, int32_t, uint64_t, uint64_t, (uint64_t)((int64_t)x *y) + z)
static run_fn *const mad_wide[INT_TYPES] = {mad_wide_u16, mad_wide_s16, mad_wide_u32, mad_wide_s32, NULL, NULL};
LANES2(mul24_lo_u32, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t,
       (uint64_t)(x & 0xffffff) * (y & 0xffffff))
LANES2(mul24_lo_s32, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t,
       (uint64_t)((int64_t)((int32_t)(x << 8) >> 8) * ((int32_t)(y << 8) >> 8)))

static inline int32_t saturate32(int64_t v) {
  return (int32_t)(v > INT32_MAX ? INT32_MAX : v < INT32_MIN ? INT32_MIN : v);
}
LANES2(add_sat, uint32_t, int32_t, uint32_t, int32_t, uint32_t, int32_t, saturate32((int64_t)x + y))
LANES2(sub_sat, uint32_t, int32_t, uint32_t, int32_t, uint32_t, int32_t, saturate32((int64_t)x - y))

/* carries: add.cc, addc{.cc}, sub.cc, subc{.cc}, mad.lo.cc, madc.lo/.hi{.cc}. mode: 1 reads, 2 writes the carry;
 * type: 0 add, 1 subtract, 2 mad.lo, 3 mad.hi. */
static uint64_t with_carry(warp *w, const instr *i, uint32_t l, uint64_t a, uint64_t b, uint64_t c, unsigned bits) {
  u128 mask = bits == 64 ? (u128)UINT64_MAX : (u128)ALL_LANES, in = i->mode & 1 ? w->carry[l] : 0, r;
  bool minus = i->type == 1;
  if (i->type >= 2) {
    bool is_signed = i->count;
    u128 product = !is_signed   ? (u128)a * b
                   : bits == 64 ? (u128)((s128)(int64_t)a * (int64_t)b)
                                : (u128)((s128)(int32_t)a * (int32_t)b);
    a = (uint64_t)((i->type == 3 ? product >> bits : product) & mask);
    b = c;
  }
  r = minus ? (u128)a - b - in : (u128)a + b + in;
  if (i->mode & 2) w->carry[l] = (uint32_t)(r >> bits) & 1; /* of a difference: the borrow */
  return (uint64_t)(r & mask);
}
static void carry_32(warp *w, const instr *i) {
  uint32_t *d = r32(w, i->d[0]);
  const uint32_t *a = r32(w, i->s[0]), *b = r32(w, i->s[1]), *c = r32(w, i->s[i->ns - 1]);
  EACH_LANE(w->active) d[l] = (uint32_t)with_carry(w, i, l, a[l], b[l], c[l], 32);
}
static void carry_64(warp *w, const instr *i) {
  uint64_t *d = r64(w, i->d[0]);
  const uint64_t *a = r64(w, i->s[0]), *b = r64(w, i->s[1]), *c = r64(w, i->s[i->ns - 1]);
  EACH_LANE(w->active) d[l] = with_carry(w, i, l, a[l], b[l], c[l], 64);
}

bool decode_carry(decoder *d) {
  const char *op = d->in->op;
  bool mad = op[0] == 'm';
  if (op[strlen(op) - 1] == 'c') d->out->mode |= 1;
  d->out->type = mad ? 2 : op[0] == 's' ? 1 : 0;
  if (mad && mod_take(d, "hi"))
    d->out->type = 3;
  else if (mad)
    mod_take(d, "lo");
  if (mod_take(d, "cc")) d->out->mode |= 2;
  ptx_type type = mod_type(d);
  int n = int_index(type);
  d->out->count = ptx_is_signed(type);
  if (n < 2) return decode_fail(d, "not an integer type of 32 or 64 bits");
  return same_type(d, mad ? 3 : 2, type) && decode_done(d, n < 4 ? carry_32 : carry_64);
}

static bool has_cc(const decoder *d) {
  for (uint32_t k = 0; k < d->in->mod_count; k++)
    if (!strcmp(d->in->mods[k], "cc")) return true;
  return false;
}

bool decode_add(decoder *d) {
  bool minus = d->in->op[0] == 's';
  if (ptx_is_float(mod_last_type(d))) return decode_float_add(d);
  if (has_cc(d)) return decode_carry(d);
  bool sat = mod_take(d, "sat");
  ptx_type type = mod_type(d);
  if (sat && type != T_S32) return decode_fail(d, ".sat is for .s32");
  run_fn *run = sat ? (minus ? sub_sat : add_sat) : pick_int(minus ? sub : add, type);
  return same_type(d, 2, type) && decode_done(d, run);
}

static ptx_type twice(ptx_type type) {
  static const ptx_type wide[INT_TYPES] = {T_U32, T_S32, T_U64, T_S64, T_NONE, T_NONE};
  int n = int_index(type);
  return n < 0 ? T_NONE : wide[n];
}

bool decode_mul(decoder *d) {
  const ptx_operand *o = d->in->operands;
  if (ptx_is_float(mod_last_type(d))) return decode_float_mul(d);
  bool is24 = d->in->op[3] == '2', hi = mod_take(d, "hi"), wide = !hi && mod_take(d, "wide"),
       lo = !hi && !wide && mod_take(d, "lo");
  ptx_type type = mod_type(d);
  if (!hi && !wide && !lo) return decode_fail(d, ".lo, .hi or .wide is missing");
  if (is24)
    return same_type(d, 2, type) && decode_done(d, !lo             ? NULL
                                                   : type == T_U32 ? mul24_lo_u32
                                                   : type == T_S32 ? mul24_lo_s32
                                                                   : NULL);
  if (!wide) return same_type(d, 2, type) && decode_done(d, pick_int(hi ? mul_hi : mul_lo, type));
  if (twice(type) == T_NONE) return decode_fail(d, ".wide of .%s", ptx_type_name(type));
  return want_operands(d, 3, 3) && def(d, &o[0], twice(type)) && use(d, &o[1], type) && use(d, &o[2], type) &&
         decode_done(d, pick_int(mul_wide, type));
}

bool decode_mad(decoder *d) {
  const ptx_operand *o = d->in->operands;
  if (ptx_is_float(mod_last_type(d))) return decode_fma(d);
  if (d->in->op[0] == 's') {
    ptx_type type = mod_type(d);
    return same_type(d, 3, type) && decode_done(d, pick_int(sad, type));
  }
  if (has_cc(d)) return decode_carry(d);
  bool hi = mod_take(d, "hi"), wide = !hi && mod_take(d, "wide"), lo = !hi && !wide && mod_take(d, "lo");
  ptx_type type = mod_type(d);
  if (!hi && !wide && !lo) return decode_fail(d, ".lo, .hi or .wide is missing");
  if (!wide) return same_type(d, 3, type) && decode_done(d, pick_int(hi ? mad_hi : mad_lo, type));
  if (twice(type) == T_NONE) return decode_fail(d, ".wide of .%s", ptx_type_name(type));
  return want_operands(d, 4, 4) && def(d, &o[0], twice(type)) && use(d, &o[1], type) && use(d, &o[2], type) &&
         use(d, &o[3], twice(type)) && decode_done(d, pick_int(mad_wide, type));
}

bool decode_div(decoder *d) {
  if (ptx_is_float(mod_last_type(d))) return decode_float_div(d);
  ptx_type type = mod_type(d);
  return same_type(d, 2, type) && decode_done(d, pick_int(d->in->op[0] == 'd' ? divide : rem, type));
}

bool decode_min(decoder *d) {
  if (ptx_is_float(mod_last_type(d))) return decode_float_min(d);
  bool relu = mod_take(d, "relu");
  ptx_type type = mod_type(d);
  if (relu) return decode_fail(d, ".relu is not supported");
  return same_type(d, 2, type) && decode_done(d, pick_int(d->in->op[1] == 'i' ? min : max, type));
}

LANES1(abs_s16, uint32_t, uint16_t, uint32_t, int16_t, x < 0 ? -x : x)
LANES1(abs_s32, uint32_t, uint32_t, uint32_t, int32_t, x < 0 ? 0 - (uint32_t)x : (uint32_t)x)
LANES1(abs_s64, uint64_t, uint64_t, uint64_t, int64_t, x < 0 ? 0 - (uint64_t)x : (uint64_t)x)
LANES1(neg_s16, uint32_t, uint16_t, uint32_t, uint16_t, -x)
LANES1(neg_s32, uint32_t, uint32_t, uint32_t, uint32_t, 0 - x)
LANES1(neg_s64, uint64_t, uint64_t, uint64_t, uint64_t, 0 - x)

bool decode_neg(decoder *d) {
  if (ptx_is_float(mod_last_type(d))) return decode_float_neg(d);
  bool abs = d->in->op[0] == 'a';
  ptx_type type = mod_type(d);
  run_fn *run = type == T_S16   ? (abs ? abs_s16 : neg_s16)
                : type == T_S32 ? (abs ? abs_s32 : neg_s32)
                : type == T_S64 ? (abs ? abs_s64 : neg_s64)
                                : NULL;
  return same_type(d, 1, type) && decode_done(d, run);
}

/* dp4a.atype.btype d, a, b, c: four products of bytes added to c; dp2a.lo/.hi: two of halves and bytes. mode: 1, 2
 * signed a, b. */
static inline int64_t part(uint32_t x, int at, int bits, bool is_signed) {
  uint32_t v = x >> at & ((1u << bits) - 1);
  return is_signed && v >> (bits - 1) ? (int64_t)v - (1 << bits) : (int64_t)v;
}
static void dot4(warp *w, const instr *i) {
  const uint32_t *a = r32(w, i->s[0]), *b = r32(w, i->s[1]), *c = r32(w, i->s[2]);
  uint32_t *d = r32(w, i->d[0]);
  EACH_LANE(w->active) {
    int64_t sum = c[l];
    for (int k = 0; k < 32; k += 8) sum += part(a[l], k, 8, i->mode & 1) * part(b[l], k, 8, i->mode & 2);
    d[l] = (uint32_t)sum;
  }
}
static void dot2(warp *w, const instr *i) {
  const uint32_t *a = r32(w, i->s[0]), *b = r32(w, i->s[1]), *c = r32(w, i->s[2]);
  uint32_t *d = r32(w, i->d[0]);
  EACH_LANE(w->active) {
    int64_t sum = c[l];
    for (int k = 0; k < 2; k++)
      sum += part(a[l], 16 * k, 16, i->mode & 1) * part(b[l], 8 * k + (i->mode & 4 ? 16 : 0), 8, i->mode & 2);
    d[l] = (uint32_t)sum;
  }
}
bool decode_dot(decoder *d) {
  bool two = d->in->op[2] == '2';
  if (two && mod_take(d, "hi"))
    d->out->mode |= 4;
  else if (two && !mod_take(d, "lo"))
    return decode_fail(d, ".lo or .hi is missing");
  ptx_type a = mod_type(d), b = mod_type(d);
  d->out->mode |= (uint8_t)((a == T_S32) | (b == T_S32) << 1);
  return same_type(d, 3, T_B32) && decode_done(d, two ? dot2 : dot4);
}
