/* machine.c: a block's execution: warps in turn, each as far as it can go; within a warp the lanes that share a
 * program counter run together, the deepest call and then the lowest counter first, so that lanes that took different
 * ways meet again. A block that cannot go on is a deadlock. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "tables.h"

enum { FUEL = 20000 }; /* branches backward before another warp has its turn; with a seed at random */

uint64_t random_next(uint64_t *state) { /* splitmix64 */
  uint64_t z = *state += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

/* --- faults -------------------------------------------------------------------------------------- */
void fault(warp *w, const instr *i, int lane, CUresult code, const char *format, ...) {
  launch *run = w->cta->run;
  int expected = 0;
  w->failed = true;
  warp_stop(w);
  if (!atomic_compare_exchange_strong(&run->failed, &expected, 1)) return;
  run->result = code;
  int n = snprintf(run->report, sizeof run->report, "kernel %s, block (%u,%u,%u), warp %u", run->kernel, w->cta->id[0],
                   w->cta->id[1], w->cta->id[2], w->index);
  if (lane >= 0) n += snprintf(run->report + n, sizeof run->report - (size_t)n, ", lane %d", lane);
  if (i) n += snprintf(run->report + n, sizeof run->report - (size_t)n, ", PTX line %u '%s'", i->line, i->text);
  n += snprintf(run->report + n, sizeof run->report - (size_t)n, ": ");
  va_list list;
  va_start(list, format);
  vsnprintf(run->report + n, sizeof run->report - (size_t)n, format, list);
  va_end(list);
}

bool need_whole_warp(warp *w, const instr *i) {
  if (w->active == w->exists && w->exists) return true;
  if (w->exited)
    fault(w, i, -1, CUDA_ERROR_LAUNCH_FAILED, "aligned operation with exited lanes (running %08x, exited %08x)",
          w->active, w->exited);
  else
    fault(w, i, -1, CUDA_ERROR_LAUNCH_FAILED, "aligned operation with a part of the warp (running %08x of %08x)",
          w->active, w->exists);
  return false;
}

/* --- lanes that run together --------------------------------------------------------------------- */
void warp_stop(warp *w) { w->limit = 0; }

static void set_group(warp *w, uint32_t group) {
  w->group = w->active = group;
  for (uint32_t l = 0; l < LANES; l++) w->lanes[l] = group >> l & 1 ? -1 : 0;
}

/* Deeper calls first, then lower counters. */
static uint64_t order_of(const warp *w, uint32_t l) { return ((uint64_t)(0xffff - w->depth[l]) << 32) | w->lane_pc[l]; }

/* Chooses the lanes to run next. False: none can. */
static bool settle(warp *w) {
  uint32_t ready = w->exists & ~w->exited & ~w->blocked, group = 0;
  uint64_t first = UINT64_MAX, second = UINT64_MAX;
  if (w->failed) return false;
  EACH_LANE(w->group & ~w->exited) w->lane_pc[l] = w->pc;
  EACH_LANE(ready) {
    uint64_t order = order_of(w, l);
    if (order < first) {
      second = first;
      first = order;
      group = 0;
    } else if (order > first && order < second) {
      second = order;
    }
    if (order == first) group |= 1u << l;
  }
  set_group(w, group);
  if (!group) return false;
  w->pc = (uint32_t)first;
  /* lanes of the same depth wait at `second`; shallower ones wait for a return, which settles anew */
  w->limit = second >> 32 == first >> 32 ? (uint32_t)second : UINT32_MAX;
  return true;
}

void warp_diverge(warp *w, uint32_t taken, uint32_t target) {
  if (taken == w->group) {
    w->pc = target;
  } else {
    EACH_LANE(w->group & ~taken) w->lane_pc[l] = w->pc;
    EACH_LANE(taken) w->lane_pc[l] = target;
    w->group = 0; /* counters are set already */
    warp_stop(w);
  }
}

void warp_exit(warp *w, uint32_t lanes) {
  copies_exit(w, lanes);
  w->exited |= lanes;
  w->cta->progress = true;
  warp_stop(w);
}

/* --- instructions with a guard or a check -------------------------------------------------------- */
static bool check_registers(warp *w, const instr *i) {
  const init_check *c = i->check;
  uint32_t good = ALL_LANES;
  for (uint32_t k = 0; k < c->src_count; k++) {
    if (!c->src[k]) continue;
    uint32_t mask = *r32(w, c->src[k]);
    if (!i->moves && (w->active & ~mask)) {
      fault(w, i, __builtin_ctz(w->active & ~mask), CUDA_ERROR_LAUNCH_FAILED, "read of an uninitialised register %s%u",
            c->src_name[k], c->src_number[k]);
      return false;
    }
    good &= mask;
  }
  for (uint32_t k = 0; k < c->dst_count; k++)
    if (c->dst[k]) {
      uint32_t *mask = r32(w, c->dst[k]);
      *mask = i->moves ? (*mask & ~w->active) | (good & w->active) : *mask | w->active;
    }
  return true;
}

static void run_special(warp *w, const instr *i) {
  w->m = w->lanes;
  w->active = w->group;
  if (i->guard) {
    const int32_t *p = reg(w, i->guard);
    int32_t flip = i->guard_negated ? -1 : 0;
    uint32_t bits = 0;
    if (i->check && i->check->src[i->check->src_count - 1]) { /* the guard is the last of the checked sources */
      uint32_t bad = w->group & ~*r32(w, i->check->src[i->check->src_count - 1]);
      if (bad) {
        fault(w, i, __builtin_ctz(bad), CUDA_ERROR_LAUNCH_FAILED, "guard is an uninitialised predicate");
        return;
      }
    }
    for (uint32_t l = 0; l < LANES; l++) {
      w->guarded[l] = (p[l] ^ flip) & w->lanes[l];
      bits |= (uint32_t)(w->guarded[l] & 1) << l;
    }
    if (!bits) return;
    w->m = w->guarded;
    w->active = bits;
  }
  if (!i->check || check_registers(w, i)) i->run(w, i);
  w->m = w->lanes;
  w->active = w->group;
}

/* Runs a warp until it waits, ends or has used its turn. */
static void run_warp(warp *w, const instr *code) {
  uint64_t count = 0;
  w->fuel = w->cta->run->config.seed ? 1 + (uint32_t)random_next(&w->cta->random) % 64 : FUEL;
  w->yield = false;
  while (settle(w)) {
    w->m = w->lanes;
    while (w->pc < w->limit) {
      const instr *i = &code[w->pc++];
      count++;
      if (!i->special)
        i->run(w, i);
      else
        run_special(w, i);
    }
    if (w->yield) {
      settle(w); /* keeps the counters */
      break;
    }
  }
  w->cta->instructions += count;
}

/* --- a block ------------------------------------------------------------------------------------- */
static uint32_t special_value(const cta *c, const warp *w, uint32_t l, special which) {
  const launch *run = c->run;
  uint32_t t = w->index * LANES + l, bit = 1u << l;
  switch (which) {
  case SR_TID_X:
    return t % run->block[0];
  case SR_TID_Y:
    return t / run->block[0] % run->block[1];
  case SR_TID_Z:
    return t / run->block[0] / run->block[1];
  case SR_NTID_X:
  case SR_NTID_Y:
  case SR_NTID_Z:
    return run->block[which - SR_NTID_X];
  case SR_CTAID_X:
  case SR_CTAID_Y:
  case SR_CTAID_Z:
    return c->id[which - SR_CTAID_X];
  case SR_NCTAID_X:
  case SR_NCTAID_Y:
  case SR_NCTAID_Z:
    return run->grid[which - SR_NCTAID_X];
  case SR_LANEID:
    return l;
  case SR_WARPID:
    return w->index;
  case SR_NWARPID:
    return c->warps;
  case SR_SMID:
    return (c->id[0] + c->id[1]) % (uint32_t)run->config.sms;
  case SR_NSMID:
    return (uint32_t)run->config.sms;
  case SR_LANEMASK_EQ:
    return bit;
  case SR_LANEMASK_LT:
    return bit - 1;
  case SR_LANEMASK_LE:
    return bit | (bit - 1);
  case SR_LANEMASK_GT:
    return ~(bit | (bit - 1));
  case SR_LANEMASK_GE:
    return ~(bit - 1);
  case SR_DYNAMIC_SMEM:
    return run->dynamic;
  case SR_TOTAL_SMEM:
    return run->total_shared;
  default:
    return 0;
  }
}

static void set_specials(const cta *c, warp *w) {
  for (uint32_t v = 0; v < c->p->value_count; v++) {
    const value *x = &c->p->values[v];
    if (x->kind != VALUE_SPECIAL) continue;
    for (uint32_t l = 0; l < LANES; l++) {
      uint32_t n = special_value(c, w, l, (special)x->bits);
      if (x->width == 8)
        r64(w, x->offset)[l] = n;
      else
        r32(w, x->offset)[l] = n;
    }
  }
}

static void set_constants(const program *p, warp *w) {
  for (uint32_t v = 1; v < p->value_count; v++) {
    const value *x = &p->values[v];
    if (x->kind != VALUE_CONST) continue;
    for (uint32_t l = 0; l < LANES; l++) {
      if (x->width == 8)
        r64(w, x->offset)[l] = x->bits;
      else
        r32(w, x->offset)[l] = (uint32_t)x->bits;
    }
  }
}

bool cta_create(cta *c, launch *run) {
  *c = (cta){.run = run, .p = run->p};
  uint32_t threads = run->block[0] * run->block[1] * run->block[2];
  size_t local = (run->p->local_bytes + 15) & ~15u;
  c->warps = (threads + LANES - 1) / LANES;
  c->shared_bytes = run->total_shared;
  c->shared = malloc(run->total_shared + 16);
  c->warp = aligned_alloc(64, c->warps * sizeof *c->warp);
  if (!c->shared || !c->warp) return false;
  memset(c->warp, 0, c->warps * sizeof *c->warp);
  if (!shadow_create(&c->shadow, run->total_shared, c->warps, !run->config.no_races)) return false;
  for (uint32_t k = 0; k < c->warps; k++) {
    warp *w = &c->warp[k];
    w->index = k;
    w->cta = c;
    w->regs = aligned_alloc(64, (run->p->register_bytes + 127) & ~(size_t)127);
    w->local = malloc(local * LANES + 16);
    w->copies = copies_create();
    if (!w->regs || !w->local || !w->copies) return false;
    set_constants(run->p, w);
  }
  return true;
}

void cta_destroy(cta *c) {
  for (uint32_t k = 0; c->warp && k < c->warps; k++) {
    free(c->warp[k].regs);
    free(c->warp[k].local);
    copies_destroy(c->warp[k].copies);
  }
  free(c->warp);
  free(c->shared);
  free(c->mbarriers);
  free(c->flags);
  shadow_release(c->shadow);
}

static void cta_reset(cta *c, uint64_t index) {
  launch *run = c->run;
  uint32_t threads = run->block[0] * run->block[1] * run->block[2];
  c->id[0] = (uint32_t)(index % run->grid[0]);
  c->id[1] = (uint32_t)(index / run->grid[0] % run->grid[1]);
  c->id[2] = (uint32_t)(index / run->grid[0] / run->grid[1]);
  c->index = index;
  c->instructions = 0;
  c->random = run->config.seed * 0x9e3779b97f4a7c15u + index;
  memset(c->barriers, 0, sizeof c->barriers);
  memset(c->shared, 0xff, c->shared_bytes);
  shadow_reset(c->shadow);
  mbarriers_reset(c);
  sync_reset(c);
  for (uint32_t k = 0; k < c->warps; k++) {
    warp *w = &c->warp[k];
    uint32_t first = k * LANES, n = threads - first < LANES ? threads - first : LANES;
    w->exists = n == LANES ? ALL_LANES : (1u << n) - 1;
    w->exited = w->blocked = w->group = w->pc = 0;
    w->failed = w->polling = false;
    w->fenced = 0;
    memset(w->lane_pc, 0, sizeof w->lane_pc);
    memset(w->depth, 0, sizeof w->depth);
    memset(w->clocks, 0, sizeof w->clocks);
    memset(w->released, 0, sizeof w->released);
    memset(w->found, 0, sizeof w->found);
    memset(w->local, 0xff, (size_t)c->p->local_bytes * LANES);
    memset(w->regs + c->p->tracked_first, 0, c->p->tracked_bytes);
    w->clocks[k] = 1;
    copies_reset(w->copies);
    set_specials(c, w);
  }
}

static void report_deadlock(cta *c) {
  char text[300] = "";
  size_t n = 0;
  warp *first = NULL;
  for (uint32_t k = 0; k < c->warps; k++) {
    warp *w = &c->warp[k];
    if (w->exited == w->exists) continue;
    if (!first) first = w;
    uint32_t waits = w->exists & ~w->exited, at = w->lane_pc[__builtin_ctz(waits)];
    if (n < sizeof text - 60)
      n += (size_t)snprintf(text + n, sizeof text - n, "; warp %u waits at PTX line %u", k,
                            c->p->code[w->blocked && at ? at - 1 : at].line);
  }
  fault(first, NULL, -1, CUDA_ERROR_LAUNCH_TIMEOUT, "deadlock%s", text);
}

void cta_run(cta *c, uint64_t index) {
  launch *run = c->run;
  cta_reset(c, index);
  for (uint32_t idle = 0; !atomic_load_explicit(&run->failed, memory_order_relaxed);) {
    uint32_t alive = 0, shift = run->config.seed ? (uint32_t)random_next(&c->random) % c->warps : 0;
    c->progress = false;
    for (uint32_t k = 0; k < c->warps; k++) {
      warp *w = &c->warp[(k + shift) % c->warps];
      uint32_t runnable = w->exists & ~w->exited & ~w->blocked;
      alive += w->exited != w->exists;
      if (runnable) run_warp(w, c->p->code);
      if (w->failed) break;
    }
    if (!alive) break;
    /* a warp that polls is runnable for ever: hung where many rounds bring nothing new */
    idle = c->progress ? 0 : idle + 1;
    bool runnable = false;
    for (uint32_t k = 0; k < c->warps; k++)
      runnable |= (c->warp[k].exists & ~c->warp[k].exited & ~c->warp[k].blocked) != 0;
    if (atomic_load_explicit(&run->failed, memory_order_relaxed)) break;
    bool done = true;
    for (uint32_t k = 0; k < c->warps; k++) done &= c->warp[k].exited == c->warp[k].exists;
    if (!done && (!runnable || idle > 1000)) {
      report_deadlock(c);
    } else if (c->instructions > run->config.instructions) {
      fault(&c->warp[0], NULL, -1, CUDA_ERROR_LAUNCH_TIMEOUT, "the block has taken %llu instructions",
            (unsigned long long)c->instructions);
    }
  }
  atomic_fetch_add(&run->instructions, c->instructions);
}
