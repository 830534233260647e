/* atom.c: atom and red on global, shared and generic addresses (PTX ISA, "atom", "red"). Blocks run on several host
 * threads, so a global operation is a host compare-and-swap. */
#include <math.h>

#include "sim.h"

enum { A_ADD, A_MIN, A_MAX, A_INC, A_DEC, A_CAS, A_EXCH, A_AND, A_OR, A_XOR, OPS };

static uint64_t apply_int(int op, uint64_t old, uint64_t b, uint64_t c, ptx_type type) {
  bool is_signed = ptx_is_signed(type), narrow = ptx_bytes(type) == 4;
  bool less = !is_signed ? old < b : narrow ? (int32_t)old < (int32_t)b : (int64_t)old < (int64_t)b;
  switch (op) {
  case A_ADD:
    return old + b;
  case A_MIN:
    return less ? old : b;
  case A_MAX:
    return less ? b : old;
  case A_INC:
    return old >= b ? 0 : old + 1;
  case A_DEC:
    return old == 0 || old > b ? b : old - 1;
  case A_CAS:
    return old == b ? c : old;
  case A_EXCH:
    return b;
  case A_AND:
    return old & b;
  case A_OR:
    return old | b;
  default:
    return old ^ b;
  }
}

static uint32_t add_halves(uint32_t a, uint32_t b, bool is_bf16) {
  uint32_t r = 0;
  for (int s = 0; s < 32; s += 16) {
    uint16_t x = (uint16_t)(a >> s), y = (uint16_t)(b >> s);
    uint16_t sum = is_bf16 ? to_bf16((double)from_bf16(x) + from_bf16(y), RN)
                           : to_f16((double)from_f16(x) + from_f16(y), RN);
    r |= (uint32_t)sum << s;
  }
  return r;
}

static uint64_t apply(const instr *i, uint64_t old, uint64_t b, uint64_t c) {
  ptx_type type = (ptx_type)i->type;
  if (i->count != A_ADD || !ptx_is_float(type)) return apply_int(i->count, old, b, c, type);
  if (type == T_F32) {
    float r = as_f32((uint32_t)old) + as_f32((uint32_t)b);
    return r != r ? 0x7fffffff : bits_f32(r);
  }
  if (type == T_F64) {
    double x, y;
    memcpy(&x, &old, 8);
    memcpy(&y, &b, 8);
    x += y;
    memcpy(&old, &x, 8);
    return old;
  }
  return add_halves((uint32_t)old, (uint32_t)b, type == T_BF16X2);
}

static uint64_t change(const instr *i, uint8_t *p, uint64_t b, uint64_t c) {
  if (i->bytes == 4) {
    uint32_t *at = (uint32_t *)(void *)p, old = __atomic_load_n(at, __ATOMIC_SEQ_CST);
    while (!__atomic_compare_exchange_n(at, &old, (uint32_t)apply(i, old, (uint32_t)b, (uint32_t)c), false,
                                        __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
      continue;
    return old;
  }
  uint64_t *at = (uint64_t *)(void *)p, old = __atomic_load_n(at, __ATOMIC_SEQ_CST);
  while (!__atomic_compare_exchange_n(at, &old, apply(i, old, b, c), false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
    continue;
  return old;
}

static uint64_t operand(const warp *w, const instr *i, uint32_t k, uint32_t l) {
  return k >= i->ns ? 0 : i->bytes == 8 ? r64(w, i->s[k])[l] : r32(w, i->s[k])[l];
}

static void atomic(warp *w, const instr *i) {
  uint64_t address[LANES];
  lane_addresses(w, i, 0, address);
  EACH_LANE(w->active) {
    ptx_space space = (ptx_space)i->space;
    uint64_t a = address[l];
    if (space == S_GENERIC && a - SHARED_WINDOW < WINDOW_BYTES) space = S_SHARED, a -= SHARED_WINDOW;
    if (space == S_SHARED &&
        !shadow_access(w, i, (int)l, (uint32_t)a, i->bytes, ACCESS_READ | ACCESS_WRITE | ACCESS_ATOMIC))
      return;
    uint8_t *p = atomic_at(w, i, (int)l, space, a, i->bytes);
    if (!p) return;
    if (space == S_SHARED) {
      sync_load(w, (uint32_t)a, i->mode);
      sync_store(w, (uint32_t)a, i->mode, true);
    }
    uint64_t old = change(i, p, operand(w, i, 1, l), operand(w, i, 2, l));
    if (!i->nd) continue;
    if (i->bytes == 8)
      r64(w, i->d[0])[l] = old;
    else
      r32(w, i->d[0])[l] = (uint32_t)old;
  }
}

static bool decode_atomic(decoder *d, bool has_result) {
  static const char *const ops[OPS] = {"add", "min", "max", "inc", "dec", "cas", "exch", "and", "or", "xor"};
  static const char *const words[] = {"relaxed", "acquire", "release", "acq_rel", "cta", "cluster", "gpu", "sys"};
  const ptx_operand *o = d->in->operands;
  d->out->mode = ORDER_RELAXED;
  for (int k = 0; k < 8; k++)
    if (mod_take(d, words[k]) && k >= 1 && k <= 3) d->out->mode = ORDER_STRONG;
  d->out->space = mod_take(d, "global")                                 ? S_GLOBAL
                  : mod_take(d, "shared") || mod_take(d, "shared::cta") ? S_SHARED
                                                                        : S_GENERIC;
  uint8_t op = 0;
  while (op < OPS && !mod_take(d, ops[op])) op++;
  bool noftz = mod_take(d, "noftz");
  ptx_type type = mod_type(d);
  if (d->failed || op == OPS) return decode_fail(d, "unknown operation");
  unsigned bytes = ptx_bytes(type);
  if (bytes != 4 && bytes != 8) return decode_fail(d, ".%s is not supported", ptx_type_name(type));
  if (ptx_is_float(type) && (op != A_ADD || type == T_TF32)) return decode_fail(d, "with .%s", ptx_type_name(type));
  if (noftz != (type == T_F16X2 || type == T_BF16X2)) return decode_fail(d, ".noftz belongs to 16-bit floats");
  if (type == T_BF16X2 && d->module->ptx->target < 90) return decode_fail(d, "needs sm_90");
  if (d->out->space != S_SHARED) d->p->communicates = true;
  d->out->count = op;
  d->out->type = type;
  d->out->bytes = (uint8_t)bytes;
  uint32_t first = has_result ? 1 : 0, sources = op == A_CAS ? 2 : 1;
  if (!want_operands(d, first + 1 + sources, first + 1 + sources)) return false;
  if (has_result && !def(d, &o[0], type)) return false;
  if (!use_address(d, &o[first])) return false;
  for (uint32_t k = 1; k <= sources; k++)
    if (!use(d, &o[first + k], type)) return false;
  return decode_done(d, atomic);
}
bool decode_atom(decoder *d) { return decode_atomic(d, true); }
bool decode_red(decoder *d) { return decode_atomic(d, false); }
