/* bulk.c: cp.async.bulk: between global and shared memory by one thread, in multiples of 16 bytes (PTX ISA, "Bulk
 * copy"). These go through the async proxy: what threads have written to shared memory, an mbarrier's
 * initialisation too, is seen by it after fence.proxy.async alone. */
#include "copies.h"

static bool check_multiples(warp *w, const instr *i, uint32_t l, uint64_t shared, uint64_t global, uint32_t bytes) {
  uint64_t at = shared - SHARED_BASE, size = w->cta->shared_bytes;
  if (bytes == 0 || bytes % 16 || shared % 16 || global % 16) {
    fault(w, i, (int)l, CUDA_ERROR_MISALIGNED_ADDRESS,
          "misaligned: addresses and size of a bulk copy are multiples of 16 (0x%llx, 0x%llx, %u)",
          (unsigned long long)shared, (unsigned long long)global, bytes);
    return false;
  }
  if (at > size || bytes > size - at) {
    fault(w, i, (int)l, CUDA_ERROR_ILLEGAL_ADDRESS, "out of bounds: %u bytes at shared offset %lld of %llu", bytes,
          (long long)at, (unsigned long long)size);
    return false;
  }
  return true;
}

static void bulk_load(warp *w, const instr *i) { /* s: destination, source, bytes, mbarrier */
  EACH_LANE(w->active) {
    uint64_t to = copy_operand(w, i, 0, l) + (uint64_t)i->imm;
    uint64_t from = copy_operand(w, i, 1, l) + (uint64_t)(int64_t)(int32_t)i->target;
    uint32_t n = r32(w, i->s[2])[l], bar = (uint32_t)copy_operand(w, i, 3, l);
    if (!check_multiples(w, i, l, to, from, n)) return;
    uint8_t *source = data_at(w, i, (int)l, S_GLOBAL, from, n, 16, ACCESS_READ);
    if (!source || !mbarrier_prepare(w, i, (int)l, bar, false) || !mbarrier_fenced(w, i, (int)l, bar)) return;
    if (!shadow_begin_copy(w, i, (int)l, (uint32_t)to, n)) return;
    memset(w->cta->shared + (to - SHARED_BASE), 0xff, n);
    copy c = {.kind = COPY_BULK,
              .lane = l,
              .bytes = n,
              .from_bytes = n,
              .shared = (uint32_t)to,
              .global = source,
              .mbarrier = bar};
    if (!copies_add(w, i, c)) return;
  }
  copies_random(w);
}

static void bulk_store(warp *w, const instr *i) { /* s: destination, source, bytes */
  EACH_LANE(w->active) {
    uint64_t to = copy_operand(w, i, 0, l) + (uint64_t)i->imm;
    uint64_t from = copy_operand(w, i, 1, l) + (uint64_t)(int64_t)(int32_t)i->target;
    uint32_t n = r32(w, i->s[2])[l];
    if (!check_multiples(w, i, l, from, to, n)) return;
    uint8_t *dest = data_at(w, i, (int)l, S_GLOBAL, to, n, 16, ACCESS_WRITE);
    if (!dest || !shadow_begin_source(w, i, (int)l, (uint32_t)from, n)) return;
    memset(dest, 0xff, n);
    copy c = {.kind = COPY_STORE,
              .lane = l,
              .group = w->copies->bulk_groups[l],
              .bytes = n,
              .shared = (uint32_t)from,
              .global = dest};
    if (!copies_add(w, i, c)) return;
  }
  copies_random(w);
}

static void commit(warp *w, const instr *i) {
  (void)i;
  EACH_LANE(w->active) w->copies->bulk_groups[l]++;
}
/* .read waits for the source alone; here the copy is done then as well. */
static void wait_stores(warp *w, const instr *i) {
  copies_random(w);
  if (w->copies->count) copies_wait_stores(w, w->active, (int)i->imm);
}

bool decode_bulk(decoder *d) {
  const ptx_operand *o = d->in->operands;
  if (d->module->ptx->target < 90) return decode_fail(d, "needs sm_90");
  if (mod_take(d, "commit_group")) return want_operands(d, 0, 0) && decode_done(d, commit);
  if (mod_take(d, "wait_group")) {
    mod_take(d, "read");
    return want_operands(d, 1, 1) && decode_int_constant(d, &o[0], &d->out->imm) && decode_done(d, wait_stores);
  }
  if (mod_take(d, "global")) {
    if (!mod_take(d, "shared::cta") || !mod_take(d, "bulk_group")) return decode_fail(d, "this form is not supported");
    return want_operands(d, 3, 3) && copy_addresses(d) && use(d, &o[2], T_U32) && decode_done(d, bulk_store);
  }
  if ((!mod_take(d, "shared::cluster") && !mod_take(d, "shared::cta")) || !mod_take(d, "global") ||
      !mod_take(d, "mbarrier::complete_tx::bytes"))
    return decode_fail(d, "this form is not supported");
  if (!want_operands(d, 4, 4) || !copy_addresses(d) || !use(d, &o[2], T_U32)) return false;
  int64_t offset = d->out->imm;
  if (!use_address(d, &o[3])) return false;
  if (d->out->imm) return decode_fail(d, "an offset of the mbarrier's address is not supported");
  if (d->out->wide) d->out->mode |= 8;
  d->out->imm = offset;
  return decode_done(d, bulk_load);
}

static void proxy_fence(warp *w, const instr *i) {
  (void)i;
  w->fenced = w->clocks[w->index];
  sync_fence(w);
}
static void fence(warp *w, const instr *i) {
  (void)i;
  sync_fence(w);
}

/* membar and fence; those to the async proxy also let it see what was written. */
bool decode_fence(decoder *d) {
  static const char *const words[] = {
      "cta",     "gl",    "sys",   "gpu",         "cluster",         "sc",    "acq_rel", "acquire",
      "release", "proxy", "alias", "shared::cta", "shared::cluster", "global"};
  bool async = false;
  while (d->mod < d->in->mod_count) {
    bool known = mod_take(d, "async") || mod_take(d, "async::generic") || mod_take(d, "mbarrier_init");
    async |= known;
    for (size_t k = 0; k < sizeof words / sizeof words[0]; k++) known |= mod_take(d, words[k]);
    if (!known) break;
  }
  return want_operands(d, 0, 0) && decode_done(d, async ? proxy_fence : fence);
}
