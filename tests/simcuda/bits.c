/* bits.c: logic, shifts and bit fields (PTX ISA, "Logic and Shift Instructions", "bfe", "bfi", "prmt"). */
#include "lanes.h"

#define BITS2(name, expr)                                                                                              \
  LANES2(name##_32, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, expr)                                  \
  LANES2(name##_64, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, expr)
BITS2(and, x &y)
BITS2(or, x | y)
BITS2(xor, x ^ y)

static ptx_type bit_type(decoder *d) { /* .pred .b16 .b32 .b64 only */
  ptx_type type = mod_type(d);
  if (type != T_PRED && type != T_B16 && type != T_B32 && type != T_B64)
    decode_fail(d, ".%s is no bit type", ptx_type_name(type));
  return type;
}

bool decode_bits2(decoder *d) {
  char op = d->in->op[0];
  ptx_type type = bit_type(d);
  bool wide = type == T_B64;
  return same_type(d, 2, type) && decode_done(d, op == 'a'   ? (wide ? and_64 : and_32)
                                                 : op == 'o' ? (wide ? or_64 : or_32)
                                                 : wide      ? xor_64
                                                             : xor_32);
}

LANES1(not_16, uint32_t, uint16_t, uint32_t, uint16_t, ~x)
LANES1(not_32, uint32_t, uint32_t, uint32_t, uint32_t, ~x)
LANES1(not_64, uint64_t, uint64_t, uint64_t, uint64_t, ~x)
LANES1(cnot_32, uint32_t, uint32_t, uint32_t, uint32_t, x == 0)
LANES1(cnot_64, uint64_t, uint64_t, uint64_t, uint64_t, x == 0)

bool decode_not(decoder *d) {
  bool c = d->in->op[0] == 'c';
  ptx_type type = bit_type(d);
  if (c && type == T_PRED) return decode_fail(d, "cnot of a predicate");
  return same_type(d, 1, type) && decode_done(d, c               ? (type == T_B64 ? cnot_64 : cnot_32)
                                                 : type == T_B64 ? not_64
                                                 : type == T_B16 ? not_16
                                                                 : not_32);
}

/* Shift counts above the width act as the width. */
LANES2(shl_16, uint32_t, uint16_t, uint32_t, uint16_t, uint32_t, uint32_t, y > 15 ? 0 : (uint32_t)x << y)
LANES2(shl_32, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, y > 31 ? 0 : x << (y & 31))
LANES2(shl_64, uint64_t, uint64_t, uint64_t, uint64_t, uint32_t, uint32_t, y > 63 ? 0 : x << (y & 63))
LANES2(shr_u16, uint32_t, uint16_t, uint32_t, uint16_t, uint32_t, uint32_t, y > 15 ? 0 : x >> y)
LANES2(shr_s16, uint32_t, uint16_t, uint32_t, int16_t, uint32_t, uint32_t, x >> (y > 15 ? 15 : y))
LANES2(shr_u32, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, y > 31 ? 0 : x >> (y & 31))
LANES2(shr_s32, uint32_t, uint32_t, uint32_t, int32_t, uint32_t, uint32_t, x >> (y > 31 ? 31 : y))
LANES2(shr_u64, uint64_t, uint64_t, uint64_t, uint64_t, uint32_t, uint32_t, y > 63 ? 0 : x >> (y & 63))
LANES2(shr_s64, uint64_t, uint64_t, uint64_t, int64_t, uint32_t, uint32_t, x >> (y > 63 ? 63 : y))
static run_fn *const shr[INT_TYPES] = {shr_u16, shr_s16, shr_u32, shr_s32, shr_u64, shr_s64};
static run_fn *const shl[INT_TYPES] = {shl_16, NULL, shl_32, NULL, shl_64, NULL};

bool decode_shift(decoder *d) {
  const ptx_operand *o = d->in->operands;
  ptx_type type = mod_type(d);
  return want_operands(d, 3, 3) && def(d, &o[0], type) && use(d, &o[1], type) && use(d, &o[2], T_U32) &&
         decode_done(d, pick_int(d->in->op[2] == 'l' ? shl : shr, type));
}

/* Funnel shift of the 64 bits b:a; .l gives the high word, .r the low one. */
LANES3(shf_l_wrap, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t,
       (((uint64_t)y << 32 | x) << (z & 31)) >> 32)
LANES3(shf_r_wrap, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, ((uint64_t)y << 32 | x) >> (z & 31))
LANES3(shf_l_clamp, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t,
       (((uint64_t)y << 32 | x) << (z > 32 ? 32 : z)) >> 32)
LANES3(shf_r_clamp, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t,
       ((uint64_t)y << 32 | x) >> (z > 32 ? 32 : z))

bool decode_shf(decoder *d) {
  bool left = mod_take(d, "l"), right = !left && mod_take(d, "r"), wrap = mod_take(d, "wrap"),
       clamp = !wrap && mod_take(d, "clamp");
  if ((!left && !right) || (!wrap && !clamp)) return decode_fail(d, ".l or .r, and .wrap or .clamp");
  return mod_type(d) == T_B32 && same_type(d, 3, T_B32) &&
         decode_done(d, left   ? (wrap ? shf_l_wrap : shf_l_clamp)
                        : wrap ? shf_r_wrap
                               : shf_r_clamp);
}

static void lop3(warp *w, const instr *i) {
  const uint32_t *a = r32(w, i->s[0]), *b = r32(w, i->s[1]), *c = r32(w, i->s[2]);
  uint32_t *d = r32(w, i->d[0]), t[8];
  const int32_t *m = w->m;
  for (int k = 0; k < 8; k++) t[k] = i->imm >> k & 1 ? ALL_LANES : 0;
  VECTOR {
    uint32_t x = a[l], y = b[l], z = c[l];
    uint32_t r = (~x & ~y & ~z & t[0]) | (~x & ~y & z & t[1]) | (~x & y & ~z & t[2]) | (~x & y & z & t[3]) |
                 (x & ~y & ~z & t[4]) | (x & ~y & z & t[5]) | (x & y & ~z & t[6]) | (x & y & z & t[7]);
    d[l] = m[l] ? r : d[l];
  }
}

bool decode_lop3(decoder *d) {
  const ptx_operand *o = d->in->operands;
  return mod_type(d) == T_B32 && want_operands(d, 5, 5) && def(d, &o[0], T_B32) && use(d, &o[1], T_B32) &&
         use(d, &o[2], T_B32) && use(d, &o[3], T_B32) && decode_int_constant(d, &o[4], &d->out->imm) &&
         decode_done(d, lop3);
}

/* prmt: each result byte is one of the eight bytes of b:a, or its sign; modes give the selectors by a formula. */
static uint32_t permute(uint32_t a, uint32_t b, uint32_t c, int mode) {
  uint64_t bytes = (uint64_t)b << 32 | a;
  uint32_t r = 0;
  for (uint32_t k = 0; k < 4; k++) {
    uint32_t s = 0, n = c & 3;
    bool sign = false;
    switch (mode) {
    case 0:
      s = c >> (4 * k) & 7, sign = c >> (4 * k) & 8;
      break;
    case 1:
      s = n + k;
      break; /* f4e */
    case 2:
      s = (n - k) & 7;
      break; /* b4e */
    case 3:
      s = n;
      break; /* rc8 */
    case 4:
      s = k > n ? k : n;
      break; /* ecl */
    case 5:
      s = k < n ? k : n;
      break; /* ecr */
    default:
      s = (n & 1) * 2 + (k & 1);
      break; /* rc16 */
    }
    uint32_t byte = bytes >> (8 * s) & 0xff;
    if (sign) byte = byte & 0x80 ? 0xff : 0;
    r |= byte << (8 * k);
  }
  return r;
}
static void prmt(warp *w, const instr *i) {
  const uint32_t *a = r32(w, i->s[0]), *b = r32(w, i->s[1]), *c = r32(w, i->s[2]);
  uint32_t *d = r32(w, i->d[0]);
  EACH_LANE(w->active) d[l] = permute(a[l], b[l], c[l], i->mode);
}

bool decode_prmt(decoder *d) {
  static const char *const modes[] = {"", "f4e", "b4e", "rc8", "ecl", "ecr", "rc16"};
  if (mod_type(d) != T_B32) return decode_fail(d, "prmt is for .b32");
  for (uint8_t k = 1; k < 7; k++)
    if (mod_take(d, modes[k])) d->out->mode = k;
  return same_type(d, 3, T_B32) && decode_done(d, prmt);
}

/* --- bit fields ---------------------------------------------------------------------------------- */
static uint64_t extract(uint64_t a, uint32_t pos, uint32_t len, unsigned bits, bool is_signed) {
  pos &= 0xff, len &= 0xff;
  uint64_t sign = 0, r = 0;
  if (is_signed && len) {
    uint32_t at = pos + len - 1 < bits - 1 ? pos + len - 1 : bits - 1;
    sign = a >> at & 1;
  }
  for (uint32_t k = 0; k < bits; k++) {
    uint64_t bit = k < len && pos + k < bits ? a >> (pos + k) & 1 : sign;
    r |= bit << k;
  }
  return r;
}
static void bfe_32(warp *w, const instr *i) {
  const uint32_t *a = r32(w, i->s[0]), *b = r32(w, i->s[1]), *c = r32(w, i->s[2]);
  uint32_t *d = r32(w, i->d[0]);
  const int32_t *m = w->m;
  if (i->mode) {
    EACH_LANE(w->active) d[l] = (uint32_t)extract(a[l], b[l], c[l], 32, true);
    return;
  }
  VECTOR {
    uint32_t pos = b[l] & 0xff, len = c[l] & 0xff;
    uint32_t field = pos > 31 ? 0 : a[l] >> (pos & 31), mask = len > 31 ? ALL_LANES : (1u << (len & 31)) - 1;
    d[l] = m[l] ? field & mask : d[l];
  }
}
static void bfe_64(warp *w, const instr *i) {
  const uint64_t *a = r64(w, i->s[0]);
  const uint32_t *b = r32(w, i->s[1]), *c = r32(w, i->s[2]);
  uint64_t *d = r64(w, i->d[0]);
  EACH_LANE(w->active) d[l] = extract(a[l], b[l], c[l], 64, i->mode);
}

bool decode_bfe(decoder *d) {
  const ptx_operand *o = d->in->operands;
  ptx_type type = mod_type(d);
  if (int_index(type) < 2) return decode_fail(d, "not a type of 32 or 64 bits");
  d->out->mode = ptx_is_signed(type);
  return want_operands(d, 4, 4) && def(d, &o[0], type) && use(d, &o[1], type) && use(d, &o[2], T_U32) &&
         use(d, &o[3], T_U32) && decode_done(d, ptx_bytes(type) == 8 ? bfe_64 : bfe_32);
}

static uint64_t insert(uint64_t a, uint64_t b, uint32_t pos, uint32_t len, unsigned bits) {
  pos &= 0xff, len &= 0xff;
  for (uint32_t k = 0; k < len && pos + k < bits; k++)
    b = (b & ~(UINT64_C(1) << (pos + k))) | (a >> k & 1) << (pos + k);
  return b;
}
static void bfi_32(warp *w, const instr *i) {
  const uint32_t *a = r32(w, i->s[0]), *b = r32(w, i->s[1]), *p = r32(w, i->s[2]), *n = r32(w, i->s[3]);
  uint32_t *d = r32(w, i->d[0]);
  EACH_LANE(w->active) d[l] = (uint32_t)insert(a[l], b[l], p[l], n[l], 32);
}
static void bfi_64(warp *w, const instr *i) {
  const uint64_t *a = r64(w, i->s[0]), *b = r64(w, i->s[1]);
  const uint32_t *p = r32(w, i->s[2]), *n = r32(w, i->s[3]);
  uint64_t *d = r64(w, i->d[0]);
  EACH_LANE(w->active) d[l] = insert(a[l], b[l], p[l], n[l], 64);
}

bool decode_bfi(decoder *d) {
  const ptx_operand *o = d->in->operands;
  ptx_type type = mod_type(d);
  if (type != T_B32 && type != T_B64) return decode_fail(d, "not .b32 or .b64");
  return want_operands(d, 5, 5) && def(d, &o[0], type) && use(d, &o[1], type) && use(d, &o[2], type) &&
         use(d, &o[3], T_U32) && use(d, &o[4], T_U32) && decode_done(d, type == T_B64 ? bfi_64 : bfi_32);
}

/* bmsk.clamp/.wrap d, a, b: b ones from bit a on */
static void bmsk(warp *w, const instr *i) {
  const uint32_t *a = r32(w, i->s[0]), *b = r32(w, i->s[1]);
  uint32_t *d = r32(w, i->d[0]);
  EACH_LANE(w->active) {
    uint32_t pos = a[l], len = b[l];
    if (i->mode) pos &= 31, len &= 31;
    d[l] = (uint32_t)insert(UINT64_MAX, 0, pos > 255 ? 255 : pos, len > 255 ? 255 : len, 32);
  }
}
bool decode_bmsk(decoder *d) {
  if (mod_take(d, "wrap"))
    d->out->mode = 1;
  else if (!mod_take(d, "clamp"))
    return decode_fail(d, ".clamp or .wrap is missing");
  return mod_type(d) == T_B32 && same_type(d, 2, T_B32) && decode_done(d, bmsk);
}

/* --- counting ------------------------------------------------------------------------------------ */
static inline uint32_t reverse32(uint32_t x) {
  x = (x >> 1 & 0x55555555) | (x & 0x55555555) << 1;
  x = (x >> 2 & 0x33333333) | (x & 0x33333333) << 2;
  x = (x >> 4 & 0x0f0f0f0f) | (x & 0x0f0f0f0f) << 4;
  return __builtin_bswap32(x);
}
static inline uint32_t find_top(uint64_t x, bool shift, unsigned bits) { /* bfind */
  if (!x) return ALL_LANES;
  uint32_t at = 63 - (uint32_t)__builtin_clzll(x);
  return shift ? bits - 1 - at : at;
}
LANES1(popc_32, uint32_t, uint32_t, uint32_t, uint32_t, __builtin_popcount(x))
LANES1(popc_64, uint32_t, uint32_t, uint64_t, uint64_t, __builtin_popcountll(x))
LANES1(clz_32, uint32_t, uint32_t, uint32_t, uint32_t, x ? __builtin_clz(x) : 32)
LANES1(clz_64, uint32_t, uint32_t, uint64_t, uint64_t, x ? __builtin_clzll(x) : 64)
LANES1(brev_32, uint32_t, uint32_t, uint32_t, uint32_t, reverse32(x))
LANES1(brev_64, uint64_t, uint64_t, uint64_t, uint64_t,
       (uint64_t)reverse32((uint32_t)x) << 32 | reverse32((uint32_t)(x >> 32)))
LANES1(bfind_u32, uint32_t, uint32_t, uint32_t, uint32_t, find_top(x, i->mode, 32))
LANES1(bfind_s32, uint32_t, uint32_t, uint32_t, uint32_t, find_top(x >> 31 ? (uint32_t)~x : x, i->mode, 32))
LANES1(bfind_u64, uint32_t, uint32_t, uint64_t, uint64_t, find_top(x, i->mode, 64))
LANES1(bfind_s64, uint32_t, uint32_t, uint64_t, uint64_t, find_top(x >> 63 ? ~x : x, i->mode, 64))

bool decode_int1(decoder *d) {
  const ptx_operand *o = d->in->operands;
  char c = d->in->op[1];
  if (c == 'f' && mod_take(d, "shiftamt")) d->out->mode = 1;
  ptx_type type = mod_type(d);
  if (int_index(type) < 2) return decode_fail(d, "not a type of 32 or 64 bits");
  bool wide = ptx_bytes(type) == 8, is_signed = ptx_is_signed(type);
  run_fn *run = c == 'o'   ? (wide ? popc_64 : popc_32)
                : c == 'l' ? (wide ? clz_64 : clz_32)
                : c == 'r' ? (wide ? brev_64 : brev_32)
                : wide     ? (is_signed ? bfind_s64 : bfind_u64)
                           : (is_signed ? bfind_s32 : bfind_u32);
  return want_operands(d, 2, 2) && def(d, &o[0], c == 'r' ? type : T_U32) && use(d, &o[1], type) && decode_done(d, run);
}
