/* warpops.c: exchanges within a warp: shfl, vote, match, activemask, redux, elect (PTX ISA, "Parallel
 * Synchronization", "Data Movement"). Lanes named by the member mask must be here: hardware would wait for them. */
#include "sim.h"

static bool members_here(warp *w, const instr *i, uint32_t at) {
  const uint32_t *mask = r32(w, at);
  uint32_t all = ALL_LANES;
  if (w->active == ALL_LANES) { /* every mask is full, most often */
    for (int l = 0; l < LANES; l++) all &= mask[l];
    if (all == ALL_LANES) return true;
  }
  EACH_LANE(w->active) {
    uint32_t wanted = mask[l] & w->exists;
    if (!(mask[l] >> l & 1)) {
      fault(w, i, (int)l, CUDA_ERROR_LAUNCH_FAILED, "the lane is not in its member mask %08x", mask[l]);
      return false;
    }
    if (wanted & ~w->active) {
      fault(w, i, (int)l, CUDA_ERROR_LAUNCH_FAILED, "member mask %08x, but lanes %08x are here (exited %08x)", mask[l],
            w->active, w->exited);
      return false;
    }
  }
  return true;
}

/* --- shfl ---------------------------------------------------------------------------------------- */
enum { UP, DOWN, BFLY, IDX };
/* Which lane each lane reads, and whether that is one of its segment; else itself. */
static inline void sources(const warp *w, const instr *i, int mode, uint32_t from[LANES], int32_t good[LANES]) {
  const uint32_t *b = r32(w, i->s[1]), *c = r32(w, i->s[2]);
  VECTOR {
    uint32_t lane = (uint32_t)l, seg = c[l] >> 8 & 31, cv = c[l] & 31, most = (lane & seg) | (cv & ~seg),
             by = b[l] & 31;
    uint32_t j = mode == UP     ? lane - by
                 : mode == DOWN ? lane + by
                 : mode == BFLY ? lane ^ by
                                : (lane & seg) | (by & ~seg);
    bool in = mode == UP ? (int32_t)j >= (int32_t)most : j <= most;
    from[l] = in ? j : lane;
    good[l] = -(int32_t)in;
  }
}

static void shfl(warp *w, const instr *i) {
  const uint32_t *a = r32(w, i->s[0]);
  uint32_t *d = r32(w, i->d[0]), r[LANES], from[LANES];
  int32_t good[LANES];
  if (!members_here(w, i, i->s[3])) return;
  switch (i->type) {
  case UP:
    sources(w, i, UP, from, good);
    break;
  case DOWN:
    sources(w, i, DOWN, from, good);
    break;
  case BFLY:
    sources(w, i, BFLY, from, good);
    break;
  default:
    sources(w, i, IDX, from, good);
    break;
  }
  if (w->active != ALL_LANES) EACH_LANE(w->active) {
      if (w->active >> from[l] & 1) continue;
      fault(w, i, (int)l, CUDA_ERROR_LAUNCH_FAILED, "shfl reads lane %u, which is not here (%08x are)", from[l],
            w->active);
      return;
    }
  for (int l = 0; l < LANES; l++) r[l] = a[from[l] & 31];
  VECTOR d[l] = w->m[l] ? r[l] : d[l];
  if (i->nd < 2) return;
  int32_t *p = reg(w, i->d[1]);
  VECTOR p[l] = w->m[l] ? good[l] : p[l];
}

bool decode_shfl(decoder *d) {
  static const char *const modes[] = {"up", "down", "bfly", "idx"};
  const ptx_operand *o = d->in->operands;
  if (!mod_take(d, "sync")) return decode_fail(d, "shfl without .sync");
  uint8_t k = 0;
  while (k < 4 && !mod_take(d, modes[k])) k++;
  if (k == 4) return decode_fail(d, ".up, .down, .bfly or .idx is missing");
  d->out->type = k;
  if (mod_type(d) != T_B32 || !want_operands(d, 5, 5))
    return decode_fail(d, "shfl.sync.%s.b32 with five operands", modes[k]);
  const ptx_operand *to = o[0].kind == K_PAIR ? &o[0].items[0] : &o[0];
  if (!def(d, to, T_B32) || (o[0].kind == K_PAIR && !def(d, &o[0].items[1], T_PRED))) return false;
  for (int s = 1; s < 5; s++)
    if (!use(d, &o[s], T_B32)) return false;
  return decode_done(d, shfl);
}

/* --- vote ---------------------------------------------------------------------------------------- */
enum { ALL, ANY, UNI, BALLOT };
static void vote(warp *w, const instr *i) {
  const int32_t *p = reg(w, i->s[0]);
  uint32_t yes = 0;
  if (!members_here(w, i, i->s[1])) return;
  EACH_LANE(w->active) yes |= (uint32_t)((p[l] != 0) != ((i->mode & 0x80) != 0)) << l;
  EACH_LANE(w->active) {
    uint32_t mask = r32(w, i->s[1])[l] & w->active, mine = yes & mask;
    bool r = i->type == ALL ? mine == mask : i->type == ANY ? mine != 0 : mine == mask || mine == 0;
    r32(w, i->d[0])[l] = i->type == BALLOT ? mine : r ? ALL_LANES : 0;
  }
}

bool decode_vote(decoder *d) {
  static const char *const modes[] = {"all", "any", "uni", "ballot"};
  const ptx_operand *o = d->in->operands;
  if (!mod_take(d, "sync")) return decode_fail(d, "vote without .sync");
  uint8_t k = 0;
  while (k < 4 && !mod_take(d, modes[k])) k++;
  d->out->type = k;
  ptx_type type = mod_type(d);
  if (k == 4 || type != (k == BALLOT ? T_B32 : T_PRED)) return decode_fail(d, "unknown vote");
  return want_operands(d, 3, 3) && def(d, &o[0], type) && use_predicate(d, &o[1]) && use(d, &o[2], T_B32) &&
         decode_done(d, vote);
}

/* --- match, activemask, elect -------------------------------------------------------------------- */
static void match(warp *w, const instr *i) {
  if (!members_here(w, i, i->s[1])) return;
  uint32_t active = w->active, r[LANES];
  EACH_LANE(active) {
    uint32_t same = 0, members = r32(w, i->s[1])[l] & active;
    for (uint32_t k = 0; k < LANES; k++) {
      if (!(members >> k & 1)) continue;
      bool equal = i->wide ? r64(w, i->s[0])[k] == r64(w, i->s[0])[l] : r32(w, i->s[0])[k] == r32(w, i->s[0])[l];
      same |= (uint32_t)equal << k;
    }
    r[l] = i->type == ANY ? same : same == members ? members : 0;
  }
  EACH_LANE(active) {
    r32(w, i->d[0])[l] = r[l];
    if (i->nd > 1) r32(w, i->d[1])[l] = r[l] ? ALL_LANES : 0;
  }
}
bool decode_match(decoder *d) {
  const ptx_operand *o = d->in->operands;
  bool any = mod_take(d, "any");
  if (!any && !mod_take(d, "all")) return decode_fail(d, ".any or .all is missing");
  if (!mod_take(d, "sync")) return decode_fail(d, "match without .sync");
  ptx_type type = mod_type(d);
  d->out->type = any ? ANY : ALL;
  d->out->wide = type == T_B64;
  const ptx_operand *to = o[0].kind == K_PAIR ? &o[0].items[0] : &o[0];
  if (type != T_B32 && type != T_B64) return decode_fail(d, "not .b32 or .b64");
  return want_operands(d, 3, 3) && def(d, to, T_B32) && (o[0].kind != K_PAIR || def(d, &o[0].items[1], T_PRED)) &&
         use(d, &o[1], type) && use(d, &o[2], T_B32) && decode_done(d, match);
}

static void activemask(warp *w, const instr *i) { EACH_LANE(w->active) r32(w, i->d[0])[l] = w->active; }
bool decode_activemask(decoder *d) {
  return mod_type(d) == T_B32 && want_operands(d, 1, 1) && def(d, &d->in->operands[0], T_B32) &&
         decode_done(d, activemask);
}

static void elect(warp *w, const instr *i) {
  if (!members_here(w, i, i->s[0])) return;
  uint32_t leader = (uint32_t)__builtin_ctz(w->active);
  EACH_LANE(w->active) {
    r32(w, i->d[0])[l] = leader;
    r32(w, i->d[1])[l] = l == leader ? ALL_LANES : 0;
  }
}
bool decode_elect(decoder *d) {
  const ptx_operand *o = d->in->operands;
  if (!mod_take(d, "sync") || d->module->ptx->target < 90) return decode_fail(d, "elect.sync needs sm_90");
  return want_operands(d, 2, 2) && o[0].kind == K_PAIR && def(d, &o[0].items[0], T_B32) &&
         def(d, &o[0].items[1], T_PRED) && use(d, &o[1], T_B32) && decode_done(d, elect);
}

/* --- redux --------------------------------------------------------------------------------------- */
enum { R_ADD, R_MIN, R_MAX, R_AND, R_OR, R_XOR };
static uint32_t reduce(uint32_t a, uint32_t b, int op, bool is_signed) {
  bool less = is_signed ? (int32_t)a < (int32_t)b : a < b;
  switch (op) {
  case R_ADD:
    return a + b;
  case R_MIN:
    return less ? a : b;
  case R_MAX:
    return less ? b : a;
  case R_AND:
    return a & b;
  case R_OR:
    return a | b;
  default:
    return a ^ b;
  }
}
static void redux(warp *w, const instr *i) {
  const uint32_t *a = r32(w, i->s[0]);
  uint32_t r[LANES];
  if (!members_here(w, i, i->s[1])) return;
  uint32_t active = w->active;
  EACH_LANE(active) {
    uint32_t members = r32(w, i->s[1])[l] & active, first = (uint32_t)__builtin_ctz(members);
    r[l] = a[first];
    for (uint32_t k = first + 1; k < LANES; k++)
      if (members >> k & 1) r[l] = reduce(r[l], a[k], i->type, i->mode);
  }
  EACH_LANE(active) r32(w, i->d[0])[l] = r[l];
}
bool decode_redux(decoder *d) {
  static const char *const ops[] = {"add", "min", "max", "and", "or", "xor"};
  const ptx_operand *o = d->in->operands;
  if (!mod_take(d, "sync")) return decode_fail(d, "redux without .sync");
  uint8_t k = 0;
  while (k < 6 && !mod_take(d, ops[k])) k++;
  d->out->type = k;
  ptx_type type = mod_type(d);
  d->out->mode = type == T_S32;
  if (k == 6 || (type != T_S32 && type != T_U32 && type != T_B32)) return decode_fail(d, "unknown reduction");
  return want_operands(d, 3, 3) && def(d, &o[0], type) && use(d, &o[1], type) && use(d, &o[2], T_B32) &&
         decode_done(d, redux);
}
