/* mbarrier.c: mbarrier objects in shared memory (PTX ISA, "mbarrier"). Their state is kept beside shared memory, by
 * address: the eight bytes themselves are opaque. A phase is complete when nothing is pending and no bytes are
 * expected; who then finds it so has been synchronised with all who arrived. */
#include <stdlib.h>

#include "tables.h"

struct mbarrier {
  uint32_t address;
  bool alive;
  uint32_t phase;    /* the one in work */
  uint32_t by, when; /* warp and time of its initialisation */
  int64_t expected, pending, bytes;
  uint32_t clocks[MAX_WARPS], done_clocks[MAX_WARPS];
};

void mbarriers_reset(cta *c) { c->mbarrier_count = 0; }

static mbarrier *find(cta *c, uint32_t address) {
  for (uint32_t k = 0; k < c->mbarrier_count; k++)
    if (c->mbarriers[k].alive && c->mbarriers[k].address == address) return &c->mbarriers[k];
  return NULL;
}

static void try_complete(cta *c, mbarrier *m) {
  if (m->pending > 0 || m->bytes != 0) return;
  m->phase++;
  m->pending = m->expected;
  memcpy(m->done_clocks, m->clocks, sizeof m->clocks);
  c->progress = true;
}

/* The object at an address, which must have been initialised in an ordered way. */
static mbarrier *object(warp *w, const instr *i, int lane, uint32_t address) {
  if (!atomic_at(w, i, lane, S_SHARED, address, 8)) return NULL;
  mbarrier *m = find(w->cta, address);
  if (!m) {
    fault(w, i, lane, CUDA_ERROR_LAUNCH_FAILED, "barrier misuse: no initialised mbarrier at shared offset %u",
          address - SHARED_BASE);
    return NULL;
  }
  return shadow_access(w, i, lane, address, 8, ACCESS_READ | ACCESS_ATOMIC) ? m : NULL;
}

static bool arrive(warp *w, const instr *i, int lane, mbarrier *m, int64_t count) {
  if (m->pending < count) {
    fault(w, i, lane, CUDA_ERROR_LAUNCH_FAILED, "barrier misuse: %lld arrivals where %lld are pending",
          (long long)count, (long long)m->pending);
    return false;
  }
  m->pending -= count;
  clocks_join(m->clocks, w->clocks, w->cta->warps);
  return true;
}

bool mbarrier_prepare(warp *w, const instr *i, int lane, uint32_t address, bool more) {
  mbarrier *m = object(w, i, lane, address);
  if (m && more) m->pending++;
  return m != NULL;
}

bool mbarrier_fenced(warp *w, const instr *i, int lane, uint32_t address) {
  const mbarrier *m = find(w->cta, address);
  if (!m || m->when <= w->cta->warp[m->by].fenced) return true;
  fault(w, i, lane, CUDA_ERROR_LAUNCH_FAILED, "the mbarrier's initialisation is not fenced for the async proxy");
  return false;
}

void mbarrier_arrive_async(warp *w, uint32_t address) {
  mbarrier *m = find(w->cta, address);
  if (m && arrive(w, NULL, -1, m, 1)) try_complete(w->cta, m);
  clocks_release(w);
}

void mbarrier_complete_bytes(warp *w, uint32_t address, uint32_t bytes) {
  mbarrier *m = find(w->cta, address);
  if (!m) return;
  m->bytes -= bytes;
  clocks_join(m->clocks, w->clocks, w->cta->warps);
  try_complete(w->cta, m);
}

/* --- instructions -------------------------------------------------------------------------------- */
enum { INIT, INVAL, ARRIVE, ARRIVE_DROP, EXPECT, COMPLETE, TEST, TRY };
enum { PARITY = 1, EXPECT_TX = 2, NO_COMPLETE = 4 };

static uint32_t shared_address(uint64_t a) { return (uint32_t)(a >= SHARED_WINDOW ? a - SHARED_WINDOW : a); }

static bool init(warp *w, const instr *i, int lane, uint32_t address, uint32_t count) {
  cta *c = w->cta;
  uint8_t *p = data_at(w, i, lane, S_SHARED, address, 8, 8, ACCESS_WRITE);
  if (!p) return false;
  if (find(c, address)) {
    fault(w, i, lane, CUDA_ERROR_LAUNCH_FAILED,
          "barrier misuse: the mbarrier is initialised again without mbarrier.inval");
    return false;
  }
  if (count == 0 || count >= 1u << 20) {
    fault(w, i, lane, CUDA_ERROR_LAUNCH_FAILED, "barrier misuse: an mbarrier for %u arrivals", count);
    return false;
  }
  if (c->mbarrier_count == c->mbarrier_room) {
    uint32_t room = c->mbarrier_room ? 2 * c->mbarrier_room : 16;
    mbarrier *bigger = realloc(c->mbarriers, room * sizeof *bigger);
    if (!bigger) {
      fault(w, i, lane, CUDA_ERROR_OUT_OF_MEMORY, "out of memory");
      return false;
    }
    c->mbarriers = bigger;
    c->mbarrier_room = room;
  }
  c->mbarriers[c->mbarrier_count++] = (mbarrier){.address = address,
                                                 .alive = true,
                                                 .expected = count,
                                                 .pending = count,
                                                 .by = w->index,
                                                 .when = w->clocks[w->index]};
  memset(p, 0, 8);
  return true;
}

static bool wait_done(warp *w, const instr *i, mbarrier *m, uint64_t state) {
  bool done = i->mode & PARITY ? (m->phase & 1) != (state & 1) : m->phase != (uint32_t)state;
  if (!done) return false;
  clocks_join(w->clocks, m->done_clocks, w->cta->warps);
  return true;
}

static void run_mbarrier(warp *w, const instr *i) {
  uint64_t address[LANES];
  uint32_t second = i->ns > 1 ? i->s[1] : 0;
  bool released = false, joined = false, poll_failed = false;
  lane_addresses(w, i, 0, address);
  uint32_t lanes = w->active;
  EACH_LANE(lanes) {
    uint32_t at = shared_address(address[l]);
    uint64_t v = !second ? 1 : i->mode & 0x40 ? r64(w, second)[l] : r32(w, second)[l];
    if (i->type == INIT) {
      if (!init(w, i, (int)l, at, (uint32_t)v)) return;
      continue;
    }
    mbarrier *m = object(w, i, (int)l, at);
    if (!m) return;
    switch (i->type) {
    case INVAL:
      m->alive = false;
      break;
    case ARRIVE:
    case ARRIVE_DROP:
      if (i->nd) r64(w, i->d[0])[l] = m->phase;
      if (i->mode & EXPECT_TX) m->bytes += (int64_t)v;
      if (i->type == ARRIVE_DROP) m->expected -= i->mode & EXPECT_TX ? 1 : (int64_t)v;
      if (!arrive(w, i, (int)l, m, i->mode & EXPECT_TX ? 1 : (int64_t)v)) return;
      released = true;
      try_complete(w->cta, m);
      w->cta->progress = true;
      break;
    case EXPECT:
      m->bytes += (int64_t)v;
      break;
    case COMPLETE:
      m->bytes -= (int64_t)v;
      try_complete(w->cta, m);
      break;
    default: {
      bool done = wait_done(w, i, m, v);
      if (!done) {
        copies_for_mbarrier(w->cta, at);
        poll_failed = true; /* true only at the next look */
      }
      joined |= done;
      r32(w, i->d[0])[l] = done ? ALL_LANES : 0;
    }
    }
  }
  if (released || joined) clocks_release(w);
  if (poll_failed || joined) w->polling = poll_failed;
  if (poll_failed) {
    w->yield = true;
    warp_stop(w);
  }
}

static bool take_order(decoder *d) {
  static const char *const words[] = {"release", "acquire", "relaxed", "cta", "cluster"};
  for (int k = 0; k < 5; k++) mod_take(d, words[k]);
  if (!mod_take(d, "shared")) mod_take(d, "shared::cta");
  return true;
}

bool decode_mbarrier(decoder *d) {
  static const char *const names[] = {"init",      "inval",       "arrive",    "arrive_drop",
                                      "expect_tx", "complete_tx", "test_wait", "try_wait"};
  const ptx_operand *o = d->in->operands;
  uint8_t k = 0;
  while (k < 8 && !mod_take(d, names[k])) k++;
  if (k == 8) return decode_fail(d, "not supported");
  d->out->type = k;
  if ((k == TRY || k == EXPECT || k == COMPLETE) && d->module->ptx->target < 90) return decode_fail(d, "needs sm_90");
  if (mod_take(d, "expect_tx")) d->out->mode |= EXPECT_TX;
  if (mod_take(d, "parity")) d->out->mode |= PARITY;
  take_order(d);
  if (mod_type(d) != T_B64) return decode_fail(d, "not .b64");
  uint32_t n = d->in->operand_count, at = 0;
  bool test = k >= TEST, has_state = (k == ARRIVE || k == ARRIVE_DROP) && n && o[0].kind != K_ADDRESS;
  if (test && (n < 3 || !def(d, &o[at++], T_PRED))) return decode_fail(d, "a predicate is wanted");
  if (has_state && !def(d, &o[at++], T_B64)) return false;
  if (at == n || !use_address(d, &o[at++])) return decode_fail(d, "an address is wanted");
  if (at < n) {
    ptx_type type = test && !(d->out->mode & PARITY) ? T_B64 : T_U32;
    if (!use(d, &o[at++], type)) return false;
    if (type == T_B64) d->out->mode |= 0x40;
  } else if (k == INIT || test || k == EXPECT || k == COMPLETE || d->out->mode & EXPECT_TX) {
    return decode_fail(d, "an operand is missing");
  }
  if (at < n && k == TRY) at++; /* a time limit: a poll may fail early in any case */
  return at == n ? decode_done(d, run_mbarrier) : decode_fail(d, "%u operands", n);
}
