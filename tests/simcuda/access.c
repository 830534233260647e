/* access.c: where a lane's address leads: its space, bounds, alignment and life are checked on every access. */
#include "sim.h"

void lane_addresses(const warp *w, const instr *i, uint32_t at, uint64_t address[LANES]) {
  uint64_t offset = (uint64_t)i->imm;
  if (i->wide) {
    const uint64_t *a = r64(w, i->s[at]);
    VECTOR address[l] = a[l] + offset;
  } else {
    const uint32_t *a = r32(w, i->s[at]);
    VECTOR address[l] = a[l] + offset;
  }
}

/* Who touched a word of global memory, in 64 bits: launch 12, block + 1 27, warp 5, lane 6, the warp's time 14. */
enum { TIME_BITS = 14, LANE_AT = 14, WARP_AT = 20, BLOCK_AT = 25, LAUNCH_AT = 52, SEVERAL = 63 /* lanes */ };
static uint64_t bits_of(uint64_t touch, int from, int to) { return touch >> from & ((UINT64_C(1) << (to - from)) - 1); }

static bool report_global(warp *w, const instr *i, int lane, uint64_t address, bool write, const char *other,
                          const char *who, uint64_t by, const char *rest) {
  fault(w, i, lane, CUDA_ERROR_LAUNCH_FAILED, "race: this %s of 0x%llx is not ordered after a %s by %s %llu%s",
        write ? "write" : "read", (unsigned long long)address, other, who, (unsigned long long)by, rest);
  return false;
}

/* Whether what `mine` does comes after `last`, which a `other` left: blocks of one launch are never ordered, warps
 * of a block and lanes of a warp by barriers. */
static bool in_order(warp *w, const instr *i, uint64_t address, bool write, uint64_t mine, uint64_t last,
                     const char *other) {
  uint64_t block = bits_of(last, BLOCK_AT, LAUNCH_AT), by = bits_of(last, WARP_AT, BLOCK_AT);
  uint64_t lane = bits_of(last, LANE_AT, WARP_AT), time = bits_of(last, 0, TIME_BITS);
  int me = (int)bits_of(mine, LANE_AT, WARP_AT);
  if (!last || last == mine || last >> LAUNCH_AT != mine >> LAUNCH_AT) return true;
  if (block != bits_of(mine, BLOCK_AT, LAUNCH_AT))
    return report_global(w, i, me, address, write, other, "block", block - 1, " of the same launch");
  if (by != w->index) return time <= w->clocks[by] || report_global(w, i, me, address, write, other, "warp", by, "");
  if (lane == (uint64_t)me || time < w->clocks[by]) return true;
  return lane == SEVERAL ? report_global(w, i, me, address, write, other, "warp", by, ", its other lanes")
                         : report_global(w, i, me, address, write, other, "lane", lane, " of the same warp");
}

/* A lane has read a word: who has read it since it was last written. */
static void note_read(atomic_uint_fast64_t *reader, uint64_t mine) {
  const uint64_t lane_bits = (uint64_t)SEVERAL << LANE_AT;
  uint64_t last = atomic_load_explicit(reader, memory_order_relaxed);
  if (last != mine && (last | lane_bits) == (mine | lane_bits)) mine |= lane_bits;
  atomic_store_explicit(reader, mine, memory_order_relaxed);
}

/* Blocks that cannot synchronise must not touch what another one stores in the same launch; within a block barriers
 * order warps and lanes, as for shared memory. Called for plain accesses. Reads are noted where a kernel has written
 * before. */
static bool after_others(warp *w, const instr *i, int lane, allocation *a, uint64_t at, uint32_t bytes, bool write) {
  const launch *run = w->cta->run;
  uint64_t block = w->cta->index + 1, now = w->clocks[w->index];
  touched *words = write ? memory_touched(a) : atomic_load_explicit(&a->touched, memory_order_acquire);
  if (!words || block >> (LAUNCH_AT - BLOCK_AT) || now >> TIME_BITS) return true;
  if (write && bytes < 4) return true; /* neighbours may share a word */
  uint64_t mine = (run->serial & 0xfff) << LAUNCH_AT | block << BLOCK_AT | (uint64_t)w->index << WARP_AT |
                  (uint64_t)(uint32_t)lane << LANE_AT | now;
  for (uint64_t word = at / 4; word * 4 < at + bytes; word++) {
    uint64_t last = write ? atomic_exchange_explicit(&words[word].writer, mine, memory_order_relaxed)
                          : atomic_load_explicit(&words[word].writer, memory_order_relaxed);
    if (!in_order(w, i, a->base + word * 4, write, mine, last, "write")) return false;
    if (write) {
      last = atomic_load_explicit(&words[word].reader, memory_order_relaxed);
      if (!in_order(w, i, a->base + word * 4, write, mine, last, "read")) return false;
    } else {
      note_read(&words[word].reader, mine);
    }
  }
  return true;
}

static uint8_t *global_at(warp *w, const instr *i, int lane, uint64_t address, uint32_t bytes, bool write,
                          ptx_space space, bool plain) {
  unsigned long long shown = address;
  allocation *a = memory_find(address);
  if (!a) {
    fault(w, i, lane, CUDA_ERROR_ILLEGAL_ADDRESS, "out of bounds: nothing is at 0x%llx", shown);
    return NULL;
  }
  uint64_t at = address - a->base; /* wraps where it lies before */
  if (a->freed) {
    fault(w, i, lane, CUDA_ERROR_ILLEGAL_ADDRESS, "use after free: 0x%llx", shown);
    return NULL;
  }
  if (at >= a->size || bytes > a->size - at) {
    long long beyond = (long long)(at - a->size);
    fault(w, i, lane, CUDA_ERROR_ILLEGAL_ADDRESS,
          "out of bounds: %u bytes at 0x%llx, %lld bytes from the end of an allocation of %llu", bytes, shown, beyond,
          (unsigned long long)a->size);
    return NULL;
  }
  if (write && a->kind == MEMORY_CONST) {
    fault(w, i, lane, CUDA_ERROR_ILLEGAL_ADDRESS, "write to constant memory at 0x%llx", shown);
    return NULL;
  }
  if ((space == S_CONST) != (a->kind == MEMORY_CONST) && space != S_GENERIC) {
    fault(w, i, lane, CUDA_ERROR_INVALID_ADDRESS_SPACE, "0x%llx is %s constant memory", shown,
          space == S_CONST ? "not in" : "in");
    return NULL;
  }
  if (plain && !w->cta->p->communicates && !w->cta->run->config.no_races && a->kind != MEMORY_CONST &&
      !after_others(w, i, lane, a, at, bytes, write))
    return NULL;
  return a->host + at;
}

static uint8_t *window_at(warp *w, const instr *i, int lane, ptx_space space, uint64_t address, uint32_t bytes,
                          bool write) {
  const cta *c = w->cta;
  uint64_t size = space == S_SHARED ? c->shared_bytes : space == S_LOCAL ? c->p->local_bytes : c->p->param_bytes;
  uint64_t at = address - (space == S_SHARED ? SHARED_BASE : 0);
  const char *name = space == S_SHARED ? "shared" : space == S_LOCAL ? "local" : "parameter";
  if (at >= size || bytes > size - at) {
    fault(w, i, lane, CUDA_ERROR_ILLEGAL_ADDRESS, "out of bounds: %u bytes at offset %lld of %llu bytes of %s memory",
          bytes, (long long)at, (unsigned long long)size, name);
    return NULL;
  }
  if (space == S_PARAM) {
    if (!write) return c->run->params + at;
    fault(w, i, lane, CUDA_ERROR_ILLEGAL_ADDRESS, "write to a kernel parameter");
    return NULL;
  }
  return space == S_SHARED ? c->shared + at : w->local + (uint64_t)(uint32_t)lane * c->p->local_bytes + at;
}

static bool in_window(uint64_t address, uint64_t window) {
  return address >= window && address - window < WINDOW_BYTES;
}

static bool check_align(warp *w, const instr *i, int lane, uint64_t address, uint32_t align) {
  if (!(address & (align - 1))) return true;
  fault(w, i, lane, CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned: 0x%llx is no multiple of %u",
        (unsigned long long)address, align);
  return false;
}

uint8_t *data_at(warp *w, const instr *i, int lane, ptx_space space, uint64_t address, uint32_t bytes, uint32_t align,
                 int kind) {
  bool write = kind & ACCESS_WRITE;
  if (!check_align(w, i, lane, address, align)) return NULL;
  if (space == S_GENERIC) {
    if (in_window(address, SHARED_WINDOW))
      space = S_SHARED, address -= SHARED_WINDOW;
    else if (in_window(address, LOCAL_WINDOW))
      space = S_LOCAL, address -= LOCAL_WINDOW;
    else if (in_window(address, PARAM_WINDOW))
      space = S_PARAM;
  }
  if (space == S_PARAM) address -= PARAM_WINDOW;
  if (space == S_SHARED && !shadow_access(w, i, lane, (uint32_t)address, bytes, kind)) return NULL;
  if (space == S_SHARED || space == S_LOCAL || space == S_PARAM)
    return window_at(w, i, lane, space, address, bytes, write);
  return global_at(w, i, lane, address, bytes, write, space, true);
}

uint8_t *atomic_at(warp *w, const instr *i, int lane, ptx_space space, uint64_t address, uint32_t bytes) {
  if (!check_align(w, i, lane, address, bytes)) return NULL;
  return space == S_SHARED ? window_at(w, i, lane, space, address, bytes, true)
                           : global_at(w, i, lane, address, bytes, true, space, false);
}
