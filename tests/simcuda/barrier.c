/* barrier.c: bar and barrier: named barriers with counts, arrivals without waiting, reductions; bar.warp.sync (PTX
 * ISA, "Parallel Synchronization"). Checks: aligned forms need the whole warp; counts are multiples of the warp's
 * size and agree among the participants; nobody arrives twice in a phase. */
#include "sim.h"

enum { SYNC, ARRIVE, RED_POPC, RED_AND, RED_OR };

static bool uniform(warp *w, const instr *i, uint32_t at, uint32_t *v, const char *what) {
  const uint32_t *x = r32(w, at);
  *v = x[__builtin_ctz(w->active)];
  EACH_LANE(w->active) {
    if (x[l] == *v) continue;
    fault(w, i, (int)l, CUDA_ERROR_LAUNCH_FAILED, "barrier misuse: the %s differs between lanes (%u, %u)", what, x[l],
          *v);
    return false;
  }
  return true;
}

static void give_result(const warp *w, const named_barrier *b, uint32_t lanes) {
  const instr *i = b->by[w->index];
  if (!i || i->type < RED_POPC) return;
  bool yes = i->type == RED_AND ? b->trues == b->expected : b->trues > 0;
  EACH_LANE(lanes) r32(w, i->d[0])[l] = i->type == RED_POPC ? b->trues : yes ? ALL_LANES : 0;
}

static void complete(cta *c, named_barrier *b) {
  for (uint32_t k = 0; k < c->warps; k++) {
    warp *w = &c->warp[k];
    if (!b->waiting[k]) continue;
    clocks_join(w->clocks, b->clocks, c->warps);
    clocks_release(w);
    give_result(w, b, b->waiting[k]);
    w->blocked &= ~b->waiting[k];
  }
  memset(b, 0, sizeof *b);
  c->progress = true;
}

static uint32_t threads_of(const cta *c) { return c->run->block[0] * c->run->block[1] * c->run->block[2]; }

/* mode 1: aligned; imm: how many operands say id and count */
static void bar(warp *w, const instr *i) {
  cta *c = w->cta;
  uint32_t id = 0, count = 0, lanes = w->active;
  bool aligned = i->mode & 1, counted = i->imm == 2;
  if (aligned && !need_whole_warp(w, i)) return;
  if (!uniform(w, i, i->s[0], &id, "barrier's number")) return;
  if (counted && !uniform(w, i, i->s[1], &count, "count")) return;
  if (id >= BARRIERS) {
    fault(w, i, -1, CUDA_ERROR_LAUNCH_FAILED, "barrier misuse: there are %d barriers, %u is none", BARRIERS, id);
    return;
  }
  if (counted && (count == 0 || count % LANES || count > c->warps * LANES)) {
    fault(w, i, -1, CUDA_ERROR_LAUNCH_FAILED, "barrier misuse: a count of %u threads in a block of %u", count,
          threads_of(c));
    return;
  }
  named_barrier *b = &c->barriers[id];
  uint32_t expected = counted ? count : threads_of(c), k = w->index;
  if (b->expected && b->expected != expected) {
    fault(w, i, -1, CUDA_ERROR_LAUNCH_FAILED,
          "barrier misuse: barrier %u is waited for with %u threads here and %u at PTX line %u", id, expected,
          b->expected, b->line);
    return;
  }
  if (b->seen[k] & lanes) {
    fault(w, i, -1, CUDA_ERROR_LAUNCH_FAILED, "barrier misuse: the warp arrives twice at barrier %u", id);
    return;
  }
  b->expected = expected;
  b->line = i->line;
  b->seen[k] |= lanes;
  b->arrived += counted && aligned ? LANES : (uint32_t)__builtin_popcount(lanes);
  clocks_join(b->clocks, w->clocks, c->warps);
  if (i->type >= RED_POPC) {
    const int32_t *p = reg(w, i->s[i->imm]);
    EACH_LANE(lanes) b->trues += (p[l] != 0) != ((i->mode & 0x80) != 0);
  }
  if (i->type == ARRIVE) {
    clocks_release(w);
  } else {
    b->waiting[k] |= lanes;
    b->by[k] = i;
    w->blocked |= lanes;
    warp_stop(w);
  }
  c->progress = true;
  if (b->arrived > b->expected)
    fault(w, i, -1, CUDA_ERROR_LAUNCH_FAILED, "barrier misuse: %u threads at barrier %u, which is for %u", b->arrived,
          id, b->expected);
  else if (b->arrived == b->expected)
    complete(c, b);
}

/* The lanes named by the mask; those that are elsewhere would be waited for: here an error. */
static void warp_sync(warp *w, const instr *i) {
  const uint32_t *mask = r32(w, i->s[0]);
  EACH_LANE(w->active) {
    if (mask[l] == w->active) continue;
    if ((mask[l] & w->exists & ~w->exited) == w->active && !(mask[l] & w->exited))
      continue; /* a short warp's full mask */
    fault(w, i, (int)l, CUDA_ERROR_LAUNCH_FAILED,
          "barrier misuse: member mask %08x, but lanes %08x are here (exited %08x)", mask[l], w->active, w->exited);
    return;
  }
  clocks_release(w);
}

static bool decode_reduction(decoder *d, bool *pred) {
  if (mod_take(d, "popc"))
    d->out->type = RED_POPC;
  else if (mod_take(d, "and"))
    d->out->type = RED_AND;
  else if (mod_take(d, "or"))
    d->out->type = RED_OR;
  else
    return decode_fail(d, ".popc, .and or .or is missing");
  if (mod_take(d, "aligned")) d->out->mode |= 1;
  ptx_type type = mod_type(d);
  *pred = d->out->type != RED_POPC;
  return type == (*pred ? T_PRED : T_U32) || decode_fail(d, "result of .%s", ptx_type_name(type));
}

bool decode_bar(decoder *d) {
  const ptx_operand *o = d->in->operands;
  uint32_t n = d->in->operand_count, at = 0;
  bool pred = false, short_form = !strcmp(d->in->op, "bar");
  if (mod_take(d, "warp")) {
    if (!mod_take(d, "sync")) return decode_fail(d, "bar.warp.sync");
    return want_operands(d, 1, 1) && use(d, &o[0], T_B32) && decode_done(d, warp_sync);
  }
  mod_take(d, "cta");
  d->out->mode = short_form;
  if (mod_take(d, "sync"))
    d->out->type = SYNC;
  else if (mod_take(d, "arrive"))
    d->out->type = ARRIVE;
  else if (!mod_take(d, "red"))
    return decode_fail(d, "not supported");
  else if (!decode_reduction(d, &pred) || n < 3 || !def(d, &o[at++], pred ? T_PRED : T_U32))
    return decode_fail(d, "a reduction's operands");
  if (mod_take(d, "aligned")) d->out->mode |= 1;
  uint32_t last = n - (d->out->type >= RED_POPC ? 1 : 0);
  if (n == 0 || last <= at || last - at > 2) return decode_fail(d, "%u operands", n);
  d->out->imm = last - at;
  if (d->out->type == ARRIVE && d->out->imm != 2) return decode_fail(d, "arrive needs a count");
  for (; at < last; at++)
    if (!use(d, &o[at], T_U32)) return false;
  if (d->out->type >= RED_POPC && !use_predicate(d, &o[last])) return false;
  return decode_done(d, bar);
}
