/* lanes.h: handlers of instructions that compute each lane from that lane alone, made from an expression in x, y, z.
 * The loops run over all lanes and keep the old value where the mask is off, so that compilers turn them into vector
 * code. */
#ifndef SIMCUDA_LANES_H
#define SIMCUDA_LANES_H

#include "sim.h"

/* NAME(storage of the result, its type, storage of the sources, their type, expression) */
#define LANES1(name, D, TD, A, TA, expr)                                                                               \
  static void name(warp *w, const instr *i) {                                                                          \
    const A *a = reg(w, i->s[0]);                                                                                      \
    D *d = reg(w, i->d[0]);                                                                                            \
    const int32_t *m = w->m;                                                                                           \
    VECTOR {                                                                                                           \
      TA x = (TA)a[l];                                                                                                 \
      TD r = (TD)(expr);                                                                                               \
      d[l] = m[l] ? (D)r : d[l];                                                                                       \
    }                                                                                                                  \
  }
#define LANES2(name, D, TD, A, TA, B, TB, expr)                                                                        \
  static void name(warp *w, const instr *i) {                                                                          \
    const A *a = reg(w, i->s[0]);                                                                                      \
    const B *b = reg(w, i->s[1]);                                                                                      \
    D *d = reg(w, i->d[0]);                                                                                            \
    const int32_t *m = w->m;                                                                                           \
    VECTOR {                                                                                                           \
      TA x = (TA)a[l];                                                                                                 \
      TB y = (TB)b[l];                                                                                                 \
      TD r = (TD)(expr);                                                                                               \
      d[l] = m[l] ? (D)r : d[l];                                                                                       \
    }                                                                                                                  \
  }
#define LANES3(name, D, TD, A, TA, C, TC, expr)                                                                        \
  static void name(warp *w, const instr *i) {                                                                          \
    const A *a = reg(w, i->s[0]), *b = reg(w, i->s[1]);                                                                \
    const C *c = reg(w, i->s[2]);                                                                                      \
    D *d = reg(w, i->d[0]);                                                                                            \
    const int32_t *m = w->m;                                                                                           \
    VECTOR {                                                                                                           \
      TA x = (TA)a[l], y = (TA)b[l];                                                                                   \
      TC z = (TC)c[l];                                                                                                 \
      TD r = (TD)(expr);                                                                                               \
      d[l] = m[l] ? (D)r : d[l];                                                                                       \
    }                                                                                                                  \
  }

/* The six integer types; 16-bit values lie zero-extended in 32-bit lanes. */
enum { INT_TYPES = 6 };
static inline int int_index(ptx_type type) {
  switch (type) {
  case T_B16:
  case T_U16:
    return 0;
  case T_S16:
    return 1;
  case T_B32:
  case T_U32:
    return 2;
  case T_S32:
    return 3;
  case T_B64:
  case T_U64:
    return 4;
  case T_S64:
    return 5;
  default:
    return -1;
  }
}
#define INT2(name, expr)                                                                                               \
  LANES2(name##_u16, uint32_t, uint16_t, uint32_t, uint16_t, uint32_t, uint16_t, expr)                                 \
  LANES2(name##_s16, uint32_t, uint16_t, uint32_t, int16_t, uint32_t, int16_t, expr)                                   \
  LANES2(name##_u32, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, expr)                                 \
  LANES2(name##_s32, uint32_t, uint32_t, uint32_t, int32_t, uint32_t, int32_t, expr)                                   \
  LANES2(name##_u64, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, expr)                                 \
  LANES2(name##_s64, uint64_t, uint64_t, uint64_t, int64_t, uint64_t, int64_t, expr)                                   \
  static run_fn *const name[INT_TYPES] = {name##_u16, name##_s16, name##_u32, name##_s32, name##_u64, name##_s64};
#define INT3(name, expr)                                                                                               \
  LANES3(name##_u16, uint32_t, uint16_t, uint32_t, uint16_t, uint32_t, uint16_t, expr)                                 \
  LANES3(name##_s16, uint32_t, uint16_t, uint32_t, int16_t, uint32_t, int16_t, expr)                                   \
  LANES3(name##_u32, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, expr)                                 \
  LANES3(name##_s32, uint32_t, uint32_t, uint32_t, int32_t, uint32_t, int32_t, expr)                                   \
  LANES3(name##_u64, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, expr)                                 \
  LANES3(name##_s64, uint64_t, uint64_t, uint64_t, int64_t, uint64_t, int64_t, expr)                                   \
  static run_fn *const name[INT_TYPES] = {name##_u16, name##_s16, name##_u32, name##_s32, name##_u64, name##_s64};

static inline run_fn *pick_int(run_fn *const table[INT_TYPES], ptx_type type) {
  int n = int_index(type);
  return n < 0 ? NULL : table[n];
}

/* d and the n sources that follow it have this type. */
static inline bool same_type(decoder *d, uint32_t sources, ptx_type type) {
  const ptx_operand *o = d->in->operands;
  if (!want_operands(d, sources + 1, sources + 1) || !def(d, &o[0], type)) return false;
  for (uint32_t k = 1; k <= sources; k++)
    if (!use(d, &o[k], type)) return false;
  return true;
}

#endif
