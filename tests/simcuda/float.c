/* float.c: f32 and f64 arithmetic (PTX ISA, "Floating Point Instructions"). A NaN result is the canonical one. The
 * approximations' model: the correctly rounded value of the C library's function in double, subnormals flushed with
 * .ftz; the ISA allows more error, never less. */
#include <math.h>

#include "lanes.h"

static inline float canon(float x) { return x != x ? as_f32(0x7fffffff) : x; }
static inline double canon64(double x) { return x != x ? NAN : x; }
static inline float saturate(float x) { return x > 0 ? (x < 1 ? x : 1) : 0; } /* NaN gives +0 */

/* What an instruction's modifiers say: kept in mode, with the rounding in type. */
enum { FTZ = 1, SAT = 2, NANS = 4, XORSIGN = 8 };

/* --- add, sub, mul, div, fma --------------------------------------------------------------------- */
#define F32(name, expr)                                                                                                \
  LANES2(name, float, float, float, float, float, float, canon(expr))                                                  \
  static void name##_ftz(warp *w, const instr *i) {                                                                    \
    const float *a = reg(w, i->s[0]), *b = reg(w, i->s[1]);                                                            \
    float *d = reg(w, i->d[0]);                                                                                        \
    const int32_t *m = w->m;                                                                                           \
    VECTOR {                                                                                                           \
      float x = flush(a[l]), y = flush(b[l]);                                                                          \
      float r = canon(flush(expr));                                                                                    \
      d[l] = m[l] ? r : d[l];                                                                                          \
    }                                                                                                                  \
  }
F32(add, x + y)
F32(sub, x - y)
F32(mul, x *y)
F32(divide, x / y)
LANES3(fma_rn, float, float, float, float, float, float, canon(__builtin_fmaf(x, y, z)))
LANES3(fma_ftz, float, float, float, float, float, float, canon(flush(__builtin_fmaf(flush(x), flush(y), flush(z)))))
LANES2(add64, double, double, double, double, double, double, canon64(x + y))
LANES2(sub64, double, double, double, double, double, double, canon64(x - y))
LANES2(mul64, double, double, double, double, double, double, canon64(x *y))
LANES2(div64, double, double, double, double, double, double, canon64(x / y))
LANES3(fma64, double, double, double, double, double, double, canon64(__builtin_fma(x, y, z)))

/* any rounding, saturation: imm is the operation of round_f32 */
static void rounded(warp *w, const instr *i) {
  const float *a = reg(w, i->s[0]), *b = reg(w, i->s[i->ns > 1 ? 1 : 0]), *c = reg(w, i->s[i->ns - 1]);
  float *d = reg(w, i->d[0]);
  bool ftz = i->mode & FTZ;
  EACH_LANE(w->active) {
    float x = ftz ? flush(a[l]) : a[l], y = ftz ? flush(b[l]) : b[l], z = ftz ? flush(c[l]) : c[l];
    float r = round_f32((char)i->imm, x, y, z, (rounding)i->type);
    if (ftz) r = flush(r);
    d[l] = i->mode & SAT ? saturate(r) : canon(r);
  }
}
static void rounded64(warp *w, const instr *i) {
  const double *a = reg(w, i->s[0]), *b = reg(w, i->s[i->ns > 1 ? 1 : 0]), *c = reg(w, i->s[i->ns - 1]);
  double *d = reg(w, i->d[0]);
  EACH_LANE(w->active) d[l] = canon64(round_f64((char)i->imm, a[l], b[l], c[l], (rounding)i->type));
}

static bool take_rounding(decoder *d, rounding *mode) {
  static const char *const names[] = {"rn", "rz", "rm", "rp"};
  for (int k = 0; k < 4; k++)
    if (mod_take(d, names[k])) {
      *mode = (rounding)k;
      return true;
    }
  *mode = RN;
  return false;
}

static bool decode_arith(decoder *d, char op, run_fn *plain, run_fn *ftz, run_fn *wide, bool must_round,
                         uint32_t sources) {
  rounding mode;
  if (mod_last_type(d) != T_F32 && mod_last_type(d) != T_F64) return decode_half(d);
  bool said = take_rounding(d, &mode);
  if (mod_take(d, "ftz")) d->out->mode |= FTZ;
  if (mod_take(d, "sat")) d->out->mode |= SAT;
  ptx_type type = mod_type(d);
  if (must_round && !said) return decode_fail(d, "a rounding is missing");
  if (type == T_F64 && d->out->mode) return decode_fail(d, ".ftz or .sat with .f64");
  d->out->imm = op;
  d->out->type = (uint8_t)mode;
  run_fn *run = type == T_F64                      ? (mode == RN ? wide : rounded64)
                : mode != RN || d->out->mode & SAT ? rounded
                : d->out->mode & FTZ               ? ftz
                                                   : plain;
  return same_type(d, sources, type) && decode_done(d, run);
}

bool decode_float_add(decoder *d) {
  return d->in->op[0] == 's' ? decode_arith(d, '-', sub, sub_ftz, sub64, false, 2)
                             : decode_arith(d, '+', add, add_ftz, add64, false, 2);
}
bool decode_float_mul(decoder *d) { return decode_arith(d, '*', mul, mul_ftz, mul64, false, 2); }
bool decode_fma(decoder *d) { return decode_arith(d, 'f', fma_rn, fma_ftz, fma64, true, 3); }
bool decode_float_div(decoder *d) {
  if (mod_take(d, "approx") || mod_take(d, "full")) {
    bool ftz = mod_take(d, "ftz");
    return mod_type(d) == T_F32 && same_type(d, 2, T_F32) && decode_done(d, ftz ? divide_ftz : divide);
  }
  return decode_arith(d, '/', divide, divide_ftz, div64, true, 2);
}

/* --- min, max, abs, neg -------------------------------------------------------------------------- */
/* As integers that order like the floats, -0 below +0; a NaN gives way to the other operand. */
static inline int32_t rank_of(float x) {
  int32_t bits = (int32_t)bits_f32(x);
  return bits < 0 ? bits ^ INT32_MAX : bits;
}
static inline float least(float x, float y) { return x != x ? y : y != y ? x : rank_of(x) < rank_of(y) ? x : y; }
static inline float most(float x, float y) { return x != x ? y : y != y ? x : rank_of(x) > rank_of(y) ? x : y; }
LANES2(min32, float, float, float, float, float, float, canon(least(x, y)))
LANES2(max32, float, float, float, float, float, float, canon(most(x, y)))
LANES2(min32_ftz, float, float, float, float, float, float, canon(least(flush(x), flush(y))))
LANES2(max32_ftz, float, float, float, float, float, float, canon(most(flush(x), flush(y))))
static inline double least64(double x, double y) {
  return x != x ? y : y != y ? x : x == y ? (signbit(x) ? x : y) : x < y ? x : y;
}
static inline double most64(double x, double y) {
  return x != x ? y : y != y ? x : x == y ? (signbit(x) ? y : x) : x > y ? x : y;
}
LANES2(min64, double, double, double, double, double, double, canon64(least64(x, y)))
LANES2(max64, double, double, double, double, double, double, canon64(most64(x, y)))
static void min_special(warp *w, const instr *i) { /* .NaN, .xorsign.abs; imm 1: max */
  const float *a = reg(w, i->s[0]), *b = reg(w, i->s[1]);
  float *d = reg(w, i->d[0]);
  EACH_LANE(w->active) {
    float x = a[l], y = b[l];
    bool minus = signbit(x) != signbit(y);
    if (i->mode & FTZ) x = flush(x), y = flush(y);
    if (i->mode & XORSIGN) x = fabsf(x), y = fabsf(y);
    float r = i->mode & NANS && (x != x || y != y) ? NAN : i->imm ? most(x, y) : least(x, y);
    d[l] = i->mode & XORSIGN && r == r ? (minus ? -r : r) : canon(r);
  }
}

bool decode_float_min(decoder *d) {
  bool max = d->in->op[1] == 'a';
  if (mod_last_type(d) != T_F32 && mod_last_type(d) != T_F64) return decode_half(d);
  if (mod_take(d, "ftz")) d->out->mode |= FTZ;
  if (mod_take(d, "NaN")) d->out->mode |= NANS;
  if (mod_take(d, "xorsign")) d->out->mode |= XORSIGN;
  if (d->out->mode & XORSIGN && !mod_take(d, "abs")) return decode_fail(d, ".xorsign.abs");
  ptx_type type = mod_type(d);
  if (d->out->mode & XORSIGN && d->module->ptx->target < 86) return decode_fail(d, ".xorsign needs sm_86");
  if (type == T_F64 && d->out->mode) return decode_fail(d, "modifiers with .f64");
  d->out->imm = max;
  run_fn *run = type == T_F64                     ? (max ? max64 : min64)
                : d->out->mode & (NANS | XORSIGN) ? min_special
                : d->out->mode & FTZ              ? (max ? max32_ftz : min32_ftz)
                : max                             ? max32
                                                  : min32;
  return same_type(d, 2, type) && decode_done(d, run);
}

LANES1(abs32, float, float, float, float, canon(fabsf(x)))
LANES1(neg32, float, float, float, float, canon(-x))
LANES1(abs32_ftz, float, float, float, float, canon(fabsf(flush(x))))
LANES1(neg32_ftz, float, float, float, float, canon(-flush(x)))
LANES1(abs64, double, double, double, double, canon64(fabs(x)))
LANES1(neg64, double, double, double, double, canon64(-x))

bool decode_float_neg(decoder *d) {
  bool abs = d->in->op[0] == 'a';
  if (mod_last_type(d) != T_F32 && mod_last_type(d) != T_F64) return decode_half(d);
  bool ftz = mod_take(d, "ftz");
  ptx_type type = mod_type(d);
  if (ftz && type == T_F64) return decode_fail(d, ".ftz with .f64");
  run_fn *run = type == T_F64 ? (abs ? abs64 : neg64) : ftz ? (abs ? abs32_ftz : neg32_ftz) : abs ? abs32 : neg32;
  return same_type(d, 1, type) && decode_done(d, run);
}

/* --- rcp, sqrt and the approximations ------------------------------------------------------------ */
static float approx(float x, char op) {
  switch (op) {
  case 'r':
    return 1 / x;
  case 'q':
    return sqrtf(x);
  case 'i':
    return (float)(1 / sqrt(x));
  case 's':
    return (float)sin(x);
  case 'c':
    return (float)cos(x);
  case 'l':
    return log2f(x);
  case 'e':
    return exp2f(x);
  default:
    return (float)tanh(x);
  }
}
/* .approx.f32 without .ftz takes subnormal operands too; the loop is one for each op, so that it may be vectorised */
#define APPROX(name, op)                                                                                               \
  static void name(warp *w, const instr *i) {                                                                          \
    const float *a = reg(w, i->s[0]);                                                                                  \
    float *d = reg(w, i->d[0]);                                                                                        \
    bool ftz = i->mode & FTZ;                                                                                          \
    EACH_LANE(w->active) {                                                                                             \
      float r = canon(approx(ftz ? flush(a[l]) : a[l], op));                                                           \
      d[l] = ftz ? flush(r) : r;                                                                                       \
    }                                                                                                                  \
  }
APPROX(rcp, 'r')
APPROX(square_root, 'q')
APPROX(rsqrt, 'i')
APPROX(sine, 's')
APPROX(cosine, 'c')
APPROX(lg2, 'l')
APPROX(ex2, 'e')
APPROX(tanh_, 't')
static void rcp64(warp *w, const instr *i) { /* .approx.ftz.f64: the high word alone */
  const double *a = reg(w, i->s[0]);
  double *d = reg(w, i->d[0]);
  EACH_LANE(w->active) {
    double r = i->imm == 'i' ? 1 / sqrt(a[l]) : 1 / a[l];
    uint64_t bits;
    memcpy(&bits, &r, sizeof bits);
    bits &= ~(uint64_t)ALL_LANES;
    memcpy(&r, &bits, sizeof bits);
    d[l] = canon64(r);
  }
}
static void rcp_rounded(warp *w, const instr *i) {
  EACH_LANE(w->active) {
    if (i->wide) {
      double *d = reg(w, i->d[0]), x = ((double *)reg(w, i->s[0]))[l];
      d[l] = canon64(i->imm == 'r' ? round_f64('/', 1, x, 0, (rounding)i->type)
                                   : round_f64('s', x, 0, 0, (rounding)i->type));
    } else {
      float *d = reg(w, i->d[0]), x = ((float *)reg(w, i->s[0]))[l];
      if (i->mode & FTZ) x = flush(x);
      float r = canon(i->imm == 'r' ? round_f32('/', 1, x, 0, (rounding)i->type)
                                    : round_f32('s', x, 0, 0, (rounding)i->type));
      d[l] = i->mode & FTZ ? flush(r) : r;
    }
  }
}

bool decode_approx(decoder *d) {
  static const struct {
    const char *op;
    char code;
    run_fn *run;
  } table[] = {{"rcp", 'r', rcp},    {"sqrt", 'q', square_root}, {"rsqrt", 'i', rsqrt}, {"sin", 's', sine},
               {"cos", 'c', cosine}, {"lg2", 'l', lg2},          {"ex2", 'e', ex2},     {"tanh", 't', tanh_}};
  rounding mode;
  int k = 0;
  if (mod_last_type(d) != T_F32 && mod_last_type(d) != T_F64) return decode_half(d);
  while (strcmp(table[k].op, d->in->op) != 0) k++;
  d->out->imm = table[k].code;
  bool near = mod_take(d, "approx"), exact = !near && k < 2 && take_rounding(d, &mode);
  if (mod_take(d, "ftz")) d->out->mode |= FTZ;
  ptx_type type = mod_type(d);
  if (!near && !exact) return decode_fail(d, ".approx or a rounding is missing");
  if (exact) d->out->type = (uint8_t)mode;
  d->out->wide = type == T_F64;
  run_fn *run = exact                                   ? rcp_rounded
                : type == T_F32                         ? table[k].run
                : k != 1 && k < 3 && d->out->mode & FTZ ? rcp64
                                                        : NULL;
  if (exact && type == T_F32 && mode == RN) run = table[k].run;
  return same_type(d, 1, type) && decode_done(d, run);
}
