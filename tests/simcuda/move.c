/* move.c: mov with packing and unpacking, selections, comparisons, address conversions (PTX ISA, "Comparison and
 * Selection", "Data Movement"). A predicate's lane is -1 or 0. */
#include <math.h>

#include "lanes.h"
#include "tables.h"

/* --- mov ----------------------------------------------------------------------------------------- */
LANES1(mov_32, uint32_t, uint32_t, uint32_t, uint32_t, x)
LANES1(mov_64, uint64_t, uint64_t, uint64_t, uint64_t, x)

static void mov_clock(warp *w, const instr *i) {
  uint64_t now = w->cta->instructions * 4 + w->cta->id[0];
  if (i->imm == SR_CLOCK_HI) now >>= 32;
  EACH_LANE(w->active) {
    if (i->wide)
      r64(w, i->d[0])[l] = now;
    else
      r32(w, i->d[0])[l] = (uint32_t)now;
  }
}

/* bytes: of each part */
static void pack(warp *w, const instr *i) {
  EACH_LANE(w->active) {
    uint64_t v = 0;
    for (uint32_t k = 0; k < i->ns; k++) v |= (uint64_t)r32(w, i->s[k])[l] << (8 * i->bytes * k);
    if (i->wide)
      r64(w, i->d[0])[l] = v;
    else
      r32(w, i->d[0])[l] = (uint32_t)v;
  }
}
static void unpack(warp *w, const instr *i) {
  uint64_t mask = i->bytes == 2 ? 0xffff : i->bytes == 4 ? ALL_LANES : 0xff;
  EACH_LANE(w->active) {
    uint64_t v = i->wide ? r64(w, i->s[0])[l] : r32(w, i->s[0])[l];
    for (uint32_t k = 0; k < i->nd; k++) r32(w, i->d[k])[l] = (uint32_t)(v >> (8 * i->bytes * k) & mask);
  }
}

static ptx_type part_type(unsigned bytes) {
  return bytes == 1 ? T_B8 : bytes == 2 ? T_B16 : bytes == 4 ? T_B32 : T_NONE;
}

static bool decode_pack(decoder *d, ptx_type type) {
  const ptx_operand *to = &d->in->operands[0], *from = &d->in->operands[1];
  bool out = to->kind == K_VECTOR;
  const ptx_operand *parts = out ? to : from;
  unsigned bytes = parts->count ? ptx_bytes(type) / parts->count : 0;
  if (parts->count > 4 || part_type(bytes) == T_NONE || bytes * parts->count != ptx_bytes(type))
    return decode_fail(d, "a vector of the wrong size");
  d->out->bytes = (uint8_t)bytes;
  d->out->wide = ptx_bytes(type) == 8;
  if (!(out ? use(d, from, type) : def(d, to, type))) return false;
  for (uint32_t k = 0; k < parts->count; k++)
    if (!(out ? def(d, &parts->items[k], part_type(bytes)) : use(d, &parts->items[k], part_type(bytes)))) return false;
  d->out->moves = out || bytes * parts->count <= 8;
  return decode_done(d, out ? unpack : pack);
}

bool decode_mov(decoder *d) {
  const ptx_operand *o = d->in->operands;
  ptx_type type = mod_type(d);
  if (!want_operands(d, 2, 2)) return false;
  if (o[0].kind == K_VECTOR || o[1].kind == K_VECTOR) return decode_pack(d, type);
  bool wide = ptx_bytes(type) == 8;
  if (!def(d, &o[0], type)) return false;
  if (o[1].kind == K_NAME && o[1].name[0] == '%') {
    static const char *const changing[] = {"%clock", "%clock_hi", "%clock64", "%globaltimer"};
    for (int k = 0; k < 4; k++)
      if (!strcmp(o[1].name, changing[k])) {
        d->out->imm = SR_CLOCK + k;
        d->out->wide = wide;
        return decode_done(d, mov_clock);
      }
  }
  d->out->moves = true;
  return use(d, &o[1], type) && decode_done(d, wide ? mov_64 : mov_32);
}

/* --- selp, slct ---------------------------------------------------------------------------------- */
LANES3(selp_32, uint32_t, uint32_t, uint32_t, uint32_t, int32_t, int32_t, z ? x : y)
LANES3(selp_64, uint64_t, uint64_t, uint64_t, uint64_t, int32_t, int32_t, z ? x : y)
LANES3(selp_not_32, uint32_t, uint32_t, uint32_t, uint32_t, int32_t, int32_t, z ? y : x)
LANES3(selp_not_64, uint64_t, uint64_t, uint64_t, uint64_t, int32_t, int32_t, z ? y : x)
LANES3(slct_s_32, uint32_t, uint32_t, uint32_t, uint32_t, int32_t, int32_t, z >= 0 ? x : y)
LANES3(slct_s_64, uint64_t, uint64_t, uint64_t, uint64_t, int32_t, int32_t, z >= 0 ? x : y)
LANES3(slct_f_32, uint32_t, uint32_t, uint32_t, uint32_t, float, float, z >= 0 ? x : y)
LANES3(slct_f_64, uint64_t, uint64_t, uint64_t, uint64_t, float, float, z >= 0 ? x : y)

bool decode_selp(decoder *d) {
  const ptx_operand *o = d->in->operands;
  ptx_type type = mod_type(d);
  if (!want_operands(d, 4, 4) || !def(d, &o[0], type) || !use(d, &o[1], type) || !use(d, &o[2], type) ||
      !use_predicate(d, &o[3]))
    return false;
  bool wide = ptx_bytes(type) == 8, no = d->out->mode & 0x80;
  return decode_done(d, wide ? (no ? selp_not_64 : selp_64) : no ? selp_not_32 : selp_32);
}

bool decode_slct(decoder *d) {
  const ptx_operand *o = d->in->operands;
  bool ftz = mod_take(d, "ftz"); /* -0 and what is flushed to it select as +0 does */
  ptx_type type = mod_type(d), by = mod_type(d);
  if (by != T_S32 && by != T_F32) return decode_fail(d, "selects by .s32 or .f32");
  if (ftz && by == T_S32) return decode_fail(d, ".ftz with .s32");
  if (ftz) return decode_fail(d, ".ftz is not supported");
  bool wide = ptx_bytes(type) == 8;
  return want_operands(d, 4, 4) && def(d, &o[0], type) && use(d, &o[1], type) && use(d, &o[2], type) &&
         use(d, &o[3], by) &&
         decode_done(d, by == T_F32 ? (wide ? slct_f_64 : slct_f_32)
                        : wide      ? slct_s_64
                                    : slct_s_32);
}

/* --- comparisons --------------------------------------------------------------------------------- */
/* A comparison as a set of outcomes: 1 less, 2 equal, 4 greater, 8 unordered. */
enum { LESS = 1, EQUAL = 2, GREATER = 4, UNORDERED = 8 };
static int comparison(const char *name) {
  static const struct {
    const char *name;
    int outcomes;
  } table[] = {
      {"eq", 2}, {"ne", 5},   {"lt", 1},   {"le", 3},  {"gt", 4},   {"ge", 6},   {"lo", 1},   {"ls", 3},  {"hi", 4},
      {"hs", 6}, {"equ", 10}, {"neu", 13}, {"ltu", 9}, {"leu", 11}, {"gtu", 12}, {"geu", 14}, {"num", 7}, {"nan", 8},
  };
  for (size_t k = 0; k < sizeof table / sizeof table[0]; k++)
    if (!strcmp(table[k].name, name)) return table[k].outcomes;
  return 0;
}

/* r = does the comparison hold? as 0 or -1, for every lane; imm holds the outcomes, mode 1: flush subnormals */
#define COMPARE(name, A, TA, PREPARE)                                                                                  \
  static void compare_##name(const warp *w, const instr *i, int32_t r[LANES]) {                                        \
    const A *a = reg(w, i->s[0]), *b = reg(w, i->s[1]);                                                                \
    int32_t lt = -(int32_t)(i->imm & 1), eq = -(int32_t)(i->imm >> 1 & 1), gt = -(int32_t)(i->imm >> 2 & 1),           \
            un = -(int32_t)(i->imm >> 3 & 1);                                                                          \
    VECTOR {                                                                                                           \
      TA x = (TA)a[l], y = (TA)b[l];                                                                                   \
      PREPARE;                                                                                                         \
      int32_t less = -(x < y), same = -(x == y), more = -(x > y);                                                      \
      r[l] = (less & lt) | (same & eq) | (more & gt) | (~(less | same | more) & un);                                   \
    }                                                                                                                  \
  }
COMPARE(u16, uint32_t, uint16_t, )
COMPARE(s16, uint32_t, int16_t, )
COMPARE(u32, uint32_t, uint32_t, )
COMPARE(s32, uint32_t, int32_t, )
COMPARE(u64, uint64_t, uint64_t, )
COMPARE(s64, uint64_t, int64_t, )
COMPARE(f32, float, float, )
COMPARE(f32_ftz, float, float, (x = flush(x), y = flush(y)))
COMPARE(f64, double, double, )
static void compare_half(const warp *w, const instr *i, int32_t r[LANES]) {
  const uint32_t *a = r32(w, i->s[0]), *b = r32(w, i->s[1]);
  for (int l = 0; l < LANES; l++) {
    float x = i->type == T_F16 ? from_f16((uint16_t)a[l]) : from_bf16((uint16_t)a[l]);
    float y = i->type == T_F16 ? from_f16((uint16_t)b[l]) : from_bf16((uint16_t)b[l]);
    int64_t outcome = x < y ? LESS : x == y ? EQUAL : x > y ? GREATER : UNORDERED;
    r[l] = i->imm & outcome ? -1 : 0;
  }
}
typedef void compare_fn(const warp *w, const instr *i, int32_t r[LANES]);

/* count: 1 and, 2 or, 3 xor with the predicate s[2]; its bit 0x80 in mode: negated */
static inline void combine(const warp *w, const instr *i, int32_t r[LANES]) {
  if (!i->count) return;
  const int32_t *c = reg(w, i->s[2]);
  int32_t flip = i->mode & 0x80 ? -1 : 0;
  VECTOR {
    int32_t other = c[l] ^ flip;
    r[l] = i->count == 1 ? r[l] & other : i->count == 2 ? r[l] | other : r[l] ^ other;
  }
}

static inline void setp(warp *w, const instr *i, compare_fn *compare) {
  _Alignas(64) int32_t r[LANES], other[LANES];
  const int32_t *m = w->m;
  int32_t *p = reg(w, i->d[0]);
  compare(w, i, r);
  if (i->nd == 2) { /* q: the opposite, combined alike */
    for (int l = 0; l < LANES; l++) other[l] = ~r[l];
    combine(w, i, other);
  }
  combine(w, i, r);
  VECTOR p[l] = m[l] ? r[l] : p[l];
  if (i->nd == 2) {
    int32_t *q = reg(w, i->d[1]);
    VECTOR q[l] = m[l] ? other[l] : q[l];
  }
}
/* set: all ones or 0; 1.0 or 0.0 for a float result (type T_F32) */
static inline void set(warp *w, const instr *i, compare_fn *compare) {
  _Alignas(64) int32_t r[LANES];
  compare(w, i, r);
  combine(w, i, r);
  EACH_LANE(w->active) r32(w, i->d[0])[l] = i->bytes ? (r[l] ? 0x3f800000 : 0) : (uint32_t)r[l];
}
#define COMPARISONS(name)                                                                                              \
  static void setp_##name(warp *w, const instr *i) { setp(w, i, compare_##name); }                                     \
  static void set_##name(warp *w, const instr *i) { set(w, i, compare_##name); }
COMPARISONS(u16)
COMPARISONS(s16)
COMPARISONS(u32)
COMPARISONS(s32)
COMPARISONS(u64)
COMPARISONS(s64)
COMPARISONS(f32)
COMPARISONS(f32_ftz)
COMPARISONS(f64)
COMPARISONS(half)
static run_fn *const setp_int[INT_TYPES] = {setp_u16, setp_s16, setp_u32, setp_s32, setp_u64, setp_s64};
static run_fn *const set_int[INT_TYPES] = {set_u16, set_s16, set_u32, set_s32, set_u64, set_s64};

static bool decode_compare(decoder *d, bool is_set) {
  const ptx_operand *o = d->in->operands;
  bool ftz = false;
  int outcomes = d->in->mod_count ? comparison(d->in->mods[0]) : 0;
  if (!outcomes) return decode_fail(d, "unknown comparison");
  d->mod++;
  if (mod_take(d, "and"))
    d->out->count = 1;
  else if (mod_take(d, "or"))
    d->out->count = 2;
  else if (mod_take(d, "xor"))
    d->out->count = 3;
  ftz = mod_take(d, "ftz");
  ptx_type to = is_set ? mod_type(d) : T_PRED, type = mod_type(d);
  bool is_float = ptx_is_float(type);
  if (!is_float && outcomes == 7) return decode_fail(d, "comparison of floats");
  d->out->imm = is_float || outcomes < 8 ? outcomes : 0;
  if (!d->out->imm) return decode_fail(d, "comparison of floats");
  if (is_float && outcomes == 5) d->out->imm = LESS | GREATER;
  d->out->type = type;
  d->out->bytes = to == T_F32;
  const ptx_operand *p = &o[0];
  if (p->kind == K_PAIR) {
    if (is_set || !def(d, &p->items[0], T_PRED) || !def(d, &p->items[1], T_PRED))
      return decode_fail(d, "two destinations");
  } else if (!def(d, p, to)) {
    return false;
  }
  if (!want_operands(d, d->out->count ? 4 : 3, d->out->count ? 4 : 3) || !use(d, &o[1], type) || !use(d, &o[2], type))
    return false;
  if (d->out->count && !use_predicate(d, &o[3])) return false;
  if (is_set && to != T_U32 && to != T_S32 && to != T_F32) return decode_fail(d, "result of .%s", ptx_type_name(to));
  run_fn *run = pick_int(is_set ? set_int : setp_int, type);
  if (type == T_F32) run = is_set ? (ftz ? set_f32_ftz : set_f32) : ftz ? setp_f32_ftz : setp_f32;
  if (type == T_F64) run = is_set ? set_f64 : setp_f64;
  if (type == T_F16 || type == T_BF16) run = is_set ? set_half : setp_half;
  return decode_done(d, run);
}
bool decode_setp(decoder *d) { return decode_compare(d, false); }
bool decode_set(decoder *d) { return decode_compare(d, true); }

/* --- testp, copysign ----------------------------------------------------------------------------- */
static bool test(double x, bool narrow, int what) {
  double least = narrow ? 0x1p-126 : 0x1p-1022;
  switch (what) {
  case 0:
    return isfinite(x);
  case 1:
    return isinf(x);
  case 2:
    return !isnan(x);
  case 3:
    return isnan(x);
  case 4:
    return isfinite(x) && fabs(x) >= least;
  default:
    return x != 0 && fabs(x) < least;
  }
}
static void testp(warp *w, const instr *i) {
  int32_t *p = reg(w, i->d[0]);
  EACH_LANE(w->active)
  p[l] = test(i->wide ? ((double *)reg(w, i->s[0]))[l] : ((float *)reg(w, i->s[0]))[l], !i->wide, i->mode) ? -1 : 0;
}
bool decode_testp(decoder *d) {
  static const char *const names[] = {"finite", "infinite", "number", "notanumber", "normal", "subnormal"};
  const ptx_operand *o = d->in->operands;
  uint8_t k = 0;
  while (k < 6 && !mod_take(d, names[k])) k++;
  d->out->mode = k;
  ptx_type type = mod_type(d);
  d->out->wide = type == T_F64;
  if (k == 6 || (type != T_F32 && type != T_F64)) return decode_fail(d, "unknown test");
  return want_operands(d, 2, 2) && def(d, &o[0], T_PRED) && use(d, &o[1], type) && decode_done(d, testp);
}

LANES2(copysign_32, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, (x & 0x80000000) | (y & 0x7fffffff))
LANES2(copysign_64, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
       (x & UINT64_C(1) << 63) | (y & INT64_MAX))
bool decode_copysign(decoder *d) {
  ptx_type type = mod_type(d);
  if (type != T_F32 && type != T_F64) return decode_fail(d, "not .f32 or .f64");
  return same_type(d, 2, type) && decode_done(d, type == T_F64 ? copysign_64 : copysign_32);
}

/* --- generic addresses --------------------------------------------------------------------------- */
static uint64_t window_of(ptx_space space) {
  return space == S_SHARED ? SHARED_WINDOW : space == S_LOCAL ? LOCAL_WINDOW : 0;
}
static bool inside(uint64_t address, uint64_t window) { return address >= window && address - window < WINDOW_BYTES; }

static void cvta(warp *w, const instr *i) { /* imm: the window; mode: to the space */
  EACH_LANE(w->active) {
    uint64_t a = i->wide ? r64(w, i->s[0])[l] : r32(w, i->s[0])[l];
    if (i->mode && i->imm && !inside(a, (uint64_t)i->imm)) {
      fault(w, i, (int)l, CUDA_ERROR_INVALID_ADDRESS_SPACE, "the generic address 0x%llx is not of this space",
            (unsigned long long)a);
      return;
    }
    a = i->mode ? a - (uint64_t)i->imm : a + (uint64_t)i->imm;
    r64(w, i->d[0])[l] = a;
  }
}
static bool take_space(decoder *d, ptx_space *space) {
  static const struct {
    const char *name;
    ptx_space space;
  } spaces[] = {{"global", S_GLOBAL}, {"shared", S_SHARED}, {"shared::cta", S_SHARED},
                {"local", S_LOCAL},   {"const", S_CONST},   {"param", S_PARAM}};
  for (int k = 0; k < 6; k++)
    if (mod_take(d, spaces[k].name)) {
      *space = spaces[k].space;
      return true;
    }
  return decode_fail(d, "a state space is missing");
}
bool decode_cvta(decoder *d) {
  const ptx_operand *o = d->in->operands;
  ptx_space space = S_GENERIC;
  d->out->mode = mod_take(d, "to");
  if (!take_space(d, &space)) return false;
  d->out->imm = (int64_t)window_of(space);
  ptx_type type = mod_type(d);
  if (ptx_bytes(type) != 8) return decode_fail(d, "addresses have 64 bits");
  d->out->wide = true;
  return want_operands(d, 2, 2) && def(d, &o[0], T_U64) && use(d, &o[1], T_U64) && decode_done(d, cvta);
}
static void isspacep(warp *w, const instr *i) {
  int32_t *p = reg(w, i->d[0]);
  EACH_LANE(w->active) {
    uint64_t a = r64(w, i->s[0])[l];
    bool shared = inside(a, SHARED_WINDOW), local = inside(a, LOCAL_WINDOW), param = inside(a, PARAM_WINDOW);
    allocation *found = shared || local || param ? NULL : memory_find(a);
    bool is_const = found && found->kind == MEMORY_CONST;
    bool yes = i->mode == S_SHARED  ? shared
               : i->mode == S_LOCAL ? local
               : i->mode == S_PARAM ? param
               : i->mode == S_CONST ? is_const
                                    : !shared && !local && !param && !is_const;
    p[l] = yes ? -1 : 0;
  }
}
bool decode_isspacep(decoder *d) {
  const ptx_operand *o = d->in->operands;
  ptx_space space = S_GENERIC;
  if (!take_space(d, &space)) return false;
  d->out->mode = (uint8_t)space;
  return want_operands(d, 2, 2) && def(d, &o[0], T_PRED) && use(d, &o[1], T_U64) && decode_done(d, isspacep);
}
