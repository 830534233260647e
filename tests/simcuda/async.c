/* async.c: cp.async and its groups, and the bulk copies that complete on an mbarrier (PTX ISA, "Asynchronous copy").
 * From its issue to the wait that covers it a copy's destination is in flight: filled with ones, which are NaNs, and
 * marked, so that any access is reported. The data are moved at once, as late as is legal, or at a random moment
 * between. */
#include <stdlib.h>

#include "tables.h"

typedef struct copy {
  uint32_t lane, group, bytes, from_bytes, to;
  const uint8_t *from;
  bool landed, bulk, arrival;
  uint32_t mbarrier; /* of bulk copies and arrivals */
} copy;

struct copy_queue {
  copy *items;
  uint32_t count, room;
  uint32_t groups[LANES]; /* committed so far */
};

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

static void move_data(const warp *w, copy *c) {
  if (c->landed || c->arrival) return;
  uint8_t *to = w->cta->shared + (c->to - SHARED_BASE);
  memcpy(to, c->from, c->from_bytes);
  memset(to + c->from_bytes, 0, c->bytes - c->from_bytes);
  c->landed = true;
}

static void land(warp *w, copy *c) {
  move_data(w, c);
  shadow_end_copy(w, (int)c->lane, c->to, c->bytes);
}

static bool add_copy(warp *w, const instr *i, copy c) {
  copy_queue *q = w->copies;
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

void copies_wait(warp *w, uint32_t lanes, int keep) {
  copy_queue *q = w->copies;
  uint32_t kept = 0;
  for (uint32_t k = 0; k < q->count; k++) {
    copy *c = &q->items[k];
    bool mine = lanes >> c->lane & 1 && !c->bulk && !c->arrival;
    if (mine && (keep < 0 || (int64_t)c->group < (int64_t)q->groups[c->lane] - keep))
      land(w, c);
    else
      q->items[kept++] = *c;
  }
  q->count = kept;
}

void copies_random(warp *w) {
  if (w->cta->run->config.copies != SIMCUDA_RANDOM) return;
  for (uint32_t k = 0; k < w->copies->count; k++)
    if (random_next(&w->cta->random) & 1) move_data(w, &w->copies->items[k]);
}

/* A thread may end with copies that nobody waits for: they land. */
void copies_exit(warp *w, uint32_t lanes) {
  if (w->copies->count) copies_wait(w, lanes, -1);
}

/* Copies and arrivals that an mbarrier waits for happen: as late as is legal is when somebody looks. */
void copies_for_mbarrier(cta *c, uint32_t address) {
  for (uint32_t k = 0; k < c->warps; k++) {
    warp *w = &c->warp[k];
    copy_queue *q = w->copies;
    for (uint32_t n = 0; n < q->count;) {
      copy x = q->items[n];
      if (!(x.bulk || x.arrival) || x.mbarrier != address) {
        n++;
        continue;
      }
      memmove(&q->items[n], &q->items[n + 1], (q->count - n - 1) * sizeof x);
      q->count--;
      if (x.arrival) {
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
static uint64_t operand(const warp *w, const instr *i, uint32_t k, uint32_t l) {
  return i->mode >> k & 1 ? r64(w, i->s[k])[l] : r32(w, i->s[k])[l];
}

/* s: destination, source{, source bytes}; their offsets in imm and target; bytes: of the copy */
static void cp_async(warp *w, const instr *i) {
  simcuda_config *config = &w->cta->run->config;
  EACH_LANE(w->active) {
    uint64_t to = operand(w, i, 0, l) + (uint64_t)i->imm,
             from = operand(w, i, 1, l) + (uint64_t)(int64_t)(int32_t)i->target;
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
    static const uint8_t nothing[16];
    const uint8_t *source = n ? data_at(w, i, (int)l, S_GLOBAL, from, n, 1, false) : nothing;
    if (!source) return;
    uint8_t *dest = atomic_at(w, i, (int)l, S_SHARED, to, i->bytes);
    if (!dest || !shadow_begin_copy(w, i, (int)l, (uint32_t)to, i->bytes)) return;
    memset(dest, 0xff, i->bytes);
    copy c = {.lane = l,
              .group = w->copies->groups[l],
              .bytes = i->bytes,
              .from_bytes = n,
              .to = (uint32_t)to,
              .from = source};
    if (config->copies == SIMCUDA_EAGER) move_data(w, &c);
    if (!add_copy(w, i, c)) return;
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
    if (!add_copy(w, i, (copy){.lane = l, .arrival = true, .mbarrier = at})) return;
  }
}

/* --- cp.async.bulk from global to shared memory -------------------------------------------------- */
static void cp_bulk(warp *w, const instr *i) { /* s: destination, source, bytes, mbarrier */
  EACH_LANE(w->active) {
    uint64_t to = operand(w, i, 0, l) + (uint64_t)i->imm,
             from = operand(w, i, 1, l) + (uint64_t)(int64_t)(int32_t)i->target;
    uint32_t n = r32(w, i->s[2])[l], bar = (uint32_t)operand(w, i, 3, l);
    if (n == 0 || n % 16 || from % 16 || to % 16) {
      fault(w, i, (int)l, CUDA_ERROR_MISALIGNED_ADDRESS,
            "misaligned: addresses and size of a bulk copy are multiples of 16 (0x%llx, 0x%llx, %u)",
            (unsigned long long)to, (unsigned long long)from, n);
      return;
    }
    const uint8_t *source = data_at(w, i, (int)l, S_GLOBAL, from, n, 16, false);
    uint8_t *dest = source ? atomic_at(w, i, (int)l, S_SHARED, to, 1) : NULL;
    if (!dest || !mbarrier_prepare(w, i, (int)l, bar, false)) return;
    if (to - SHARED_BASE + n > w->cta->shared_bytes) {
      fault(w, i, (int)l, CUDA_ERROR_ILLEGAL_ADDRESS, "out of bounds: %u bytes at shared offset %llu", n,
            (unsigned long long)(to - SHARED_BASE));
      return;
    }
    if (!shadow_begin_copy(w, i, (int)l, (uint32_t)to, n)) return;
    memset(dest, 0xff, n);
    copy c = {
        .lane = l, .bytes = n, .from_bytes = n, .to = (uint32_t)to, .from = source, .bulk = true, .mbarrier = bar};
    if (w->cta->run->config.copies == SIMCUDA_EAGER) move_data(w, &c);
    if (!add_copy(w, i, c)) return;
  }
}

/* --- decoding ------------------------------------------------------------------------------------ */
static bool two_addresses(decoder *d) {
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

static bool decode_bulk(decoder *d) {
  const ptx_operand *o = d->in->operands;
  if (d->module->ptx->target < 90) return decode_fail(d, "needs sm_90");
  if ((!mod_take(d, "shared::cluster") && !mod_take(d, "shared::cta")) || !mod_take(d, "global") ||
      !mod_take(d, "mbarrier::complete_tx::bytes"))
    return decode_fail(d, "this form is not supported");
  if (!want_operands(d, 4, 4) || !two_addresses(d) || !use(d, &o[2], T_U32)) return false;
  int64_t offset = d->out->imm;
  if (!use_address(d, &o[3])) return false;
  if (d->out->imm) return decode_fail(d, "an offset of the mbarrier's address is not supported");
  if (d->out->wide) d->out->mode |= 8;
  d->out->imm = offset;
  return decode_done(d, cp_bulk);
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
  if (!want_operands(d, 3, 4) || !two_addresses(d) || !decode_int_constant(d, &o[2], &bytes)) return false;
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
