/* async.c: cp.async and its groups, and the bulk copies that complete on an mbarrier (PTX ISA, "Asynchronous copy").
 * From its issue to the wait that covers it a copy's destination is in flight: filled with ones, which are NaNs, and
 * marked, so that any access is reported. The data are moved at once, as late as is legal, or at a random moment
 * between. */
#include <stdlib.h>

#include "copies.h"

copy_queue *copies_create(void) { return calloc(1, sizeof(copy_queue)); }

void copies_destroy(copy_queue *q) {
  if (q) free(q->items);
  free(q);
}

void copies_reset(copy_queue *q) {
  q->count = 0;
  memset(q->groups, 0, sizeof q->groups);
}

bool copies_pending(const warp *w) { return w->copies->count > 0; }

void copies_move(const warp *w, copy *c) {
  if (c->landed || c->kind == COPY_ARRIVAL) return;
  uint8_t *shared = w->cta->shared + (c->shared - SHARED_BASE);
  if (c->kind == COPY_STORE) {
    memcpy(c->global, shared, c->bytes);
  } else {
    memcpy(shared, c->global, c->from_bytes);
    memset(shared + c->from_bytes, 0, c->bytes - c->from_bytes);
  }
  c->landed = true;
}

static void land(warp *w, copy *c) {
  copies_move(w, c);
  if (c->kind == COPY_STORE)
    shadow_end_source(w, c->shared, c->bytes);
  else
    shadow_end_copy(w, (int)c->lane, c->shared, c->bytes);
}

bool copies_add(warp *w, const instr *i, copy c) {
  copy_queue *q = w->copies;
  if (w->cta->run->config.copies == SIMCUDA_EAGER) copies_move(w, &c);
  if (q->count == q->room) {
    uint32_t room = q->room ? 2 * q->room : 256;
    copy *bigger = realloc(q->items, room * sizeof *bigger);
    if (!bigger) {
      fault(w, i, -1, CUDA_ERROR_OUT_OF_MEMORY, "out of memory");
      return false;
    }
    q->items = bigger;
    q->room = room;
  }
  q->items[q->count++] = c;
  return true;
}

static void wait_kind(warp *w, copy_kind kind, const uint32_t *groups, uint32_t lanes, int keep) {
  copy_queue *q = w->copies;
  uint32_t kept = 0;
  for (uint32_t k = 0; k < q->count; k++) {
    copy *c = &q->items[k];
    bool mine = c->kind == kind && lanes >> c->lane & 1;
    if (mine && (keep < 0 || (int64_t)c->group < (int64_t)groups[c->lane] - keep))
      land(w, c);
    else
      q->items[kept++] = *c;
  }
  q->count = kept;
}

void copies_wait(warp *w, uint32_t lanes, int keep) { wait_kind(w, COPY_GROUP, w->copies->groups, lanes, keep); }
void copies_wait_stores(warp *w, uint32_t lanes, int keep) {
  wait_kind(w, COPY_STORE, w->copies->bulk_groups, lanes, keep);
}

void copies_random(warp *w) {
  if (w->cta->run->config.copies != SIMCUDA_RANDOM) return;
  for (uint32_t k = 0; k < w->copies->count; k++)
    if (random_next(&w->cta->random) & 1) copies_move(w, &w->copies->items[k]);
}

/* A thread may end with loads that nobody waits for: they land. A store's source would vanish under it. */
void copies_exit(warp *w, uint32_t lanes) {
  for (uint32_t k = 0; k < w->copies->count; k++) {
    const copy *c = &w->copies->items[k];
    if (c->kind != COPY_STORE || !(lanes >> c->lane & 1)) continue;
    fault(w, NULL, (int)c->lane, CUDA_ERROR_LAUNCH_FAILED,
          "the thread ends while its bulk copy from shared memory is in flight: a wait is missing");
    return;
  }
  if (w->copies->count) copies_wait(w, lanes, -1);
}

/* Copies and arrivals that an mbarrier waits for happen: as late as is legal is when somebody looks. */
void copies_for_mbarrier(cta *c, uint32_t address) {
  for (uint32_t k = 0; k < c->warps; k++) {
    warp *w = &c->warp[k];
    copy_queue *q = w->copies;
    for (uint32_t n = 0; n < q->count;) {
      copy x = q->items[n];
      if ((x.kind != COPY_BULK && x.kind != COPY_ARRIVAL) || x.mbarrier != address) {
        n++;
        continue;
      }
      memmove(&q->items[n], &q->items[n + 1], (q->count - n - 1) * sizeof x);
      q->count--;
      if (x.kind == COPY_ARRIVAL) {
        copies_wait(w, 1u << x.lane, -1);
        mbarrier_arrive_async(w, address);
        n = 0; /* the queue has changed */
      } else {
        land(w, &x);
        mbarrier_complete_bytes(w, address, x.bytes);
      }
    }
  }
}

/* --- cp.async ------------------------------------------------------------------------------------ */
/* s: destination, source{, source bytes}; their offsets in imm and target; bytes: of the copy */
static void cp_async(warp *w, const instr *i) {
  EACH_LANE(w->active) {
    uint64_t to = copy_operand(w, i, 0, l) + (uint64_t)i->imm,
             from = copy_operand(w, i, 1, l) + (uint64_t)(int64_t)(int32_t)i->target;
    uint32_t n = i->ns > 2 ? (i->type ? (r32(w, i->s[2])[l] ? 0 : i->bytes) : r32(w, i->s[2])[l]) : i->bytes;
    if (i->space == S_GENERIC && to >= SHARED_WINDOW) to -= SHARED_WINDOW;
    if (n > i->bytes) {
      fault(w, i, (int)l, CUDA_ERROR_ILLEGAL_INSTRUCTION, "a source of %u bytes for a copy of %u", n, i->bytes);
      return;
    }
    if (from % i->bytes) {
      fault(w, i, (int)l, CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned: source 0x%llx is no multiple of %u",
            (unsigned long long)from, i->bytes);
      return;
    }
    uint8_t *source = n ? data_at(w, i, (int)l, S_GLOBAL, from, n, 1, ACCESS_READ) : w->local;
    if (!source) return;
    uint8_t *dest = atomic_at(w, i, (int)l, S_SHARED, to, i->bytes);
    if (!dest || !shadow_begin_copy(w, i, (int)l, (uint32_t)to, i->bytes)) return;
    memset(dest, 0xff, i->bytes);
    copy c = {.lane = l,
              .group = w->copies->groups[l],
              .bytes = i->bytes,
              .from_bytes = n,
              .shared = (uint32_t)to,
              .global = source};
    if (!copies_add(w, i, c)) return;
  }
  copies_random(w);
}

static void commit_group(warp *w, const instr *i) {
  (void)i;
  EACH_LANE(w->active) w->copies->groups[l]++;
}
static void wait_group(warp *w, const instr *i) { /* imm -1: all */
  copies_random(w);
  if (w->copies->count) copies_wait(w, w->active, (int)i->imm);
}

/* --- cp.async.mbarrier.arrive -------------------------------------------------------------------- */
static void arrive_later(warp *w, const instr *i) { /* mode 1: .noinc */
  uint64_t address[LANES];
  lane_addresses(w, i, 0, address);
  EACH_LANE(w->active) {
    uint32_t at = (uint32_t)(address[l] >= SHARED_WINDOW ? address[l] - SHARED_WINDOW : address[l]);
    if (!mbarrier_prepare(w, i, (int)l, at, !(i->mode & 1))) return;
    if (!copies_add(w, i, (copy){.kind = COPY_ARRIVAL, .lane = l, .mbarrier = at})) return;
  }
}

/* --- decoding ------------------------------------------------------------------------------------ */
bool copy_addresses(decoder *d) {
  const ptx_operand *o = d->in->operands;
  if (!use_address(d, &o[0])) return false;
  int64_t offset = d->out->imm;
  if (d->out->wide) d->out->mode |= 1;
  if (!use_address(d, &o[1])) return false;
  if (d->out->wide) d->out->mode |= 2;
  d->out->target = (uint32_t)d->out->imm;
  d->out->imm = offset;
  return true;
}

bool decode_cp(decoder *d) {
  const ptx_operand *o = d->in->operands;
  if (!mod_take(d, "async")) return decode_fail(d, "cp.async");
  if (mod_take(d, "commit_group")) return want_operands(d, 0, 0) && decode_done(d, commit_group);
  if (mod_take(d, "wait_all")) {
    d->out->imm = -1;
    return want_operands(d, 0, 0) && decode_done(d, wait_group);
  }
  if (mod_take(d, "wait_group"))
    return want_operands(d, 1, 1) && decode_int_constant(d, &o[0], &d->out->imm) && decode_done(d, wait_group);
  if (mod_take(d, "bulk")) return decode_bulk(d);
  if (mod_take(d, "mbarrier")) {
    if (!mod_take(d, "arrive")) return decode_fail(d, "cp.async.mbarrier.arrive");
    d->out->mode = mod_take(d, "noinc");
    if (!mod_take(d, "shared")) mod_take(d, "shared::cta");
    return mod_type(d) == T_B64 && want_operands(d, 1, 1) && use_address(d, &o[0]) && decode_done(d, arrive_later);
  }
  bool cg = mod_take(d, "cg");
  if (!cg && !mod_take(d, "ca")) return decode_fail(d, ".ca or .cg is missing");
  if ((!mod_take(d, "shared") && !mod_take(d, "shared::cta")) || !mod_take(d, "global"))
    return decode_fail(d, ".shared.global is missing");
  if (!mod_take(d, "L2::64B") && !mod_take(d, "L2::128B")) mod_take(d, "L2::256B");
  d->out->space = S_SHARED;
  int64_t bytes = 0;
  if (!want_operands(d, 3, 4) || !copy_addresses(d) || !decode_int_constant(d, &o[2], &bytes)) return false;
  if (bytes != 16 && (cg || (bytes != 4 && bytes != 8)))
    return decode_fail(d, "a copy of %lld bytes", (long long)bytes);
  d->out->bytes = (uint8_t)bytes;
  if (d->in->operand_count == 4) {
    bool ignore = o[3].kind == K_REG && d->function->source->regs[o[3].reg].type == T_PRED;
    d->out->type = ignore;
    if (!use(d, &o[3], ignore ? T_PRED : T_U32)) return false;
  }
  return decode_done(d, cp_async);
}
