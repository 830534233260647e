/* load.c: ld and st of every space, with vectors; cache hints are read and ignored, orders and scopes are taken for
 * what the checks need (PTX ISA, "ld", "st"). */
#include "shadow.h"

/* --- elements ------------------------------------------------------------------------------------ */
/* A value of `bytes` goes to a register: sign- or zero-extended to its width. */
static inline void put_element(const warp *w, const instr *i, uint32_t k, uint32_t l, const uint8_t *p) {
  bool is_signed = i->mode & 1;
  uint64_t v = 0;
  if (i->bytes == 4) {
    uint32_t x;
    memcpy(&x, p, 4);
    v = is_signed ? (uint64_t)(int64_t)(int32_t)x : x;
  } else if (i->bytes == 8) {
    memcpy(&v, p, 8);
  } else if (i->bytes == 2) {
    uint16_t x;
    memcpy(&x, p, 2);
    v = is_signed ? (uint64_t)(int64_t)(int16_t)x : x;
  } else {
    v = is_signed ? (uint64_t)(int64_t)(int8_t)*p : *p;
  }
  if (i->mode & 2)
    r64(w, i->d[k])[l] = v;
  else
    r32(w, i->d[k])[l] = i->mode & 4 ? (uint16_t)v : (uint32_t)v;
}

static bool is_shared(ptx_space space, uint64_t address) {
  return space == S_SHARED || (space == S_GENERIC && address - SHARED_WINDOW < WINDOW_BYTES);
}

/* The quick way to a lane's bytes in shared memory, or in the allocation that the lane before has used; else NULL. */
static inline uint8_t *quick_at(const warp *w, const instr *i, uint32_t l, ptx_space space, uint64_t address,
                                uint32_t total, const allocation *last, bool write) {
  if (i->type || address & (total - 1)) return NULL;
  if (space == S_SHARED && total >= 4) {
    shadow *s = w->cta->shadow;
    uint64_t at = address - SHARED_BASE;
    return (write ? quick_write(w, s, at, total, l) : quick_read(w, s, at, total, l)) ? w->cta->shared + at : NULL;
  }
  if (space == S_GLOBAL && last) {
    uint64_t at = address - last->base;
    return at < last->size && total <= last->size - at ? last->host + at : NULL;
  }
  return NULL;
}

/* The allocation of an address that has passed the checks, if nothing more is to be checked within it. */
static const allocation *settled(const warp *w, ptx_space space, uint64_t address) {
  allocation *a = space == S_GLOBAL ? memory_find(address) : NULL;
  bool free = a && (w->cta->p->communicates || !atomic_load_explicit(&a->touched, memory_order_relaxed));
  return free ? a : NULL;
}

static inline void load(warp *w, const instr *i, ptx_space space) {
  uint64_t address[LANES];
  uint32_t total = (uint32_t)i->bytes * i->count;
  int kind = i->type ? ACCESS_READ | ACCESS_ATOMIC : ACCESS_READ;
  const allocation *last = NULL;
  lane_addresses(w, i, 0, address);
  EACH_LANE(w->active) {
    const uint8_t *p = quick_at(w, i, l, space, address[l], total, last, false);
    if (!p) {
      p = data_at(w, i, (int)l, space, address[l], total, total, kind);
      if (!p) return;
      if (i->type && is_shared(space, address[l])) sync_load(w, (uint32_t)address[l], i->type);
      last = settled(w, space, address[l]);
    }
    if (i->bytes == 4 && !(i->mode & 2)) {
      for (uint32_t k = 0; k < i->count; k++) memcpy(&r32(w, i->d[k])[l], p + 4 * k, 4);
    } else {
      for (uint32_t k = 0; k < i->count; k++) put_element(w, i, k, l, p + i->bytes * k);
    }
  }
}
static void load_generic(warp *w, const instr *i) { load(w, i, S_GENERIC); }
static void load_global(warp *w, const instr *i) { load(w, i, S_GLOBAL); }
static void load_shared(warp *w, const instr *i) { load(w, i, S_SHARED); }
static void load_local(warp *w, const instr *i) { load(w, i, S_LOCAL); }
static void load_const(warp *w, const instr *i) { load(w, i, S_CONST); }
static void load_param(warp *w, const instr *i) { load(w, i, S_PARAM); }

static inline void store(warp *w, const instr *i, ptx_space space) {
  uint64_t address[LANES];
  uint32_t total = (uint32_t)i->bytes * i->count;
  int kind = i->type ? ACCESS_WRITE | ACCESS_ATOMIC : ACCESS_WRITE;
  lane_addresses(w, i, 0, address);
  EACH_LANE(w->active) {
    uint8_t *p = quick_at(w, i, l, space, address[l], total, NULL, true);
    if (!p) p = data_at(w, i, (int)l, space, address[l], total, total, kind);
    if (!p) return;
    if (i->type && is_shared(space, address[l])) sync_store(w, (uint32_t)address[l], i->type, false);
    for (uint32_t k = 0; k < i->count; k++) { /* little-endian hosts only */
      if (i->mode >> k & 1)
        memcpy(p + i->bytes * k, &r64(w, i->s[1 + k])[l], i->bytes);
      else
        memcpy(p + i->bytes * k, &r32(w, i->s[1 + k])[l], i->bytes);
    }
  }
}
static void store_generic(warp *w, const instr *i) { store(w, i, S_GENERIC); }
static void store_global(warp *w, const instr *i) { store(w, i, S_GLOBAL); }
static void store_shared(warp *w, const instr *i) { store(w, i, S_SHARED); }
static void store_local(warp *w, const instr *i) { store(w, i, S_LOCAL); }
static void store_param(warp *w, const instr *i) { store(w, i, S_PARAM); }

/* --- decoding ------------------------------------------------------------------------------------ */
/* Takes what only hints at caches. */
static void take_hints(decoder *d) {
  static const char *const hints[] = {"ca",
                                      "cg",
                                      "cs",
                                      "lu",
                                      "cv",
                                      "wb",
                                      "wt",
                                      "nc",
                                      "L1::evict_normal",
                                      "L1::evict_unchanged",
                                      "L1::evict_first",
                                      "L1::evict_last",
                                      "L1::no_allocate",
                                      "L2::64B",
                                      "L2::128B",
                                      "L2::256B",
                                      "unified"};
  for (bool found = true; found;) {
    found = false;
    for (size_t k = 0; k < sizeof hints / sizeof hints[0]; k++) found |= mod_take(d, hints[k]);
  }
}

static uint8_t take_order(decoder *d) {
  static const char *const orders[] = {"volatile", "relaxed", "mmio", "acquire", "release"};
  uint8_t order = ORDER_WEAK;
  mod_take(d, "weak");
  for (int k = 0; k < 5; k++)
    if (mod_take(d, orders[k])) order = k < 3 ? ORDER_RELAXED : ORDER_STRONG;
  if (order && !mod_take(d, "cta") && !mod_take(d, "gpu") && !mod_take(d, "sys")) mod_take(d, "cluster");
  return order;
}

static ptx_space take_space(decoder *d) {
  static const struct {
    const char *name;
    ptx_space space;
  } spaces[] = {{"global", S_GLOBAL}, {"shared", S_SHARED}, {"shared::cta", S_SHARED}, {"local", S_LOCAL},
                {"const", S_CONST},   {"param", S_PARAM},   {"param::entry", S_PARAM}, {"param::func", S_PARAM}};
  for (int k = 0; k < 8; k++)
    if (mod_take(d, spaces[k].name)) return spaces[k].space;
  return S_GENERIC;
}

/* .param of a function is each thread's own; a kernel's is the launch's. */
static ptx_space real_space(const decoder *d, ptx_space space, const ptx_operand *address) {
  const ptx_operand *base = address->kind == K_ADDRESS ? &address->items[0] : NULL;
  if (space != S_PARAM || !base || base->kind != K_NAME || !base->var) return space;
  for (ptx_var *v = d->function->source->params; d->function->source->is_entry && v; v = v->next)
    if (v == base->var) return S_PARAM;
  return S_LOCAL;
}

static uint8_t take_vector(decoder *d) {
  return mod_take(d, "v2") ? 2 : mod_take(d, "v4") ? 4 : mod_take(d, "v8") ? 8 : 1;
}

static bool decode_access(decoder *d, bool is_load, ptx_space *space) {
  const ptx_operand *o = d->in->operands, *at = &o[is_load ? 1 : 0], *data = &o[is_load ? 0 : 1];
  take_hints(d);
  d->out->type = take_order(d);
  *space = take_space(d);
  take_hints(d);
  uint8_t count = take_vector(d);
  ptx_type type = mod_type(d);
  if (d->failed || !want_operands(d, 2, 2)) return false;
  if (type == T_PRED || type == T_B128) return decode_fail(d, ".%s in memory", ptx_type_name(type));
  if (count > 4 || (count > 1 && (data->kind != K_VECTOR || data->count != count)))
    return decode_fail(d, "a vector of the wrong size");
  d->out->bytes = (uint8_t)ptx_bytes(type);
  d->out->count = count;
  if (count * d->out->bytes > 16) return decode_fail(d, "more than 16 bytes");
  *space = real_space(d, *space, at);
  if (!use_address(d, at)) return false;
  for (uint32_t k = 0; k < count; k++) {
    const ptx_operand *e = data->kind == K_VECTOR ? &data->items[k] : data;
    if (!(is_load ? def_relaxed(d, e, type) : use_relaxed(d, e, type))) return false;
    if (is_load) {
      if (operand_width(d, e) == 8) d->out->mode |= 2;
      if (e->kind == K_REG && ptx_bytes(d->function->source->regs[e->reg].type) == 2) d->out->mode |= 4;
    } else if (operand_width(d, e) == 8 || (e->kind != K_REG && ptx_bytes(type) == 8)) {
      d->out->mode |= (uint8_t)(1u << k);
    }
  }
  if (is_load && ptx_is_signed(type)) d->out->mode |= 1;
  if (d->out->type && *space <= S_GLOBAL) d->p->communicates = true;
  return true;
}

bool decode_ld(decoder *d) {
  static run_fn *const runs[] = {load_generic, load_global, load_shared, load_local, load_const, load_param};
  ptx_space space = S_GENERIC;
  return decode_access(d, true, &space) && decode_done(d, runs[space]);
}

bool decode_st(decoder *d) {
  static run_fn *const runs[] = {store_generic, store_global, store_shared, store_local, NULL, store_param};
  ptx_space space = S_GENERIC;
  return decode_access(d, false, &space) && decode_done(d, runs[space]);
}

static void nothing(warp *w, const instr *i) {
  (void)w;
  (void)i;
}

/* Hints: what they name is parsed, nothing is done. */
bool decode_nothing(decoder *d) {
  d->mod = d->in->mod_count;
  return decode_done(d, nothing);
}
