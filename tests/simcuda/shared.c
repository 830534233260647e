/* shared.c: what is known of each word of shared memory beside its value: which bytes have been written, who wrote
 * last and when, when each warp last read it, whether an asynchronous copy to it is under way. Time is a vector clock
 * for each warp: clocks[v] is how far into warp v's past this warp has been synchronised by barriers; an access that
 * the other side has not been synchronised with is a race. Lanes of one warp are ordered by bar.warp.sync and by
 * barriers alone. */
#include <stdlib.h>

#include "shadow.h"

bool shadow_create(shadow **out, uint32_t bytes, uint32_t warps, bool races) {
  shadow *s = *out = calloc(1, sizeof *s);
  if (!s) return false;
  s->words = (bytes + 3) / 4 + 4;
  s->bytes = bytes;
  s->warps = warps;
  s->races = races;
  s->init = malloc(s->words);
  s->written = malloc(s->words * sizeof *s->written);
  s->reads = malloc((size_t)s->words * warps * sizeof *s->reads);
  return s->init && s->written && s->reads;
}

void shadow_release(shadow *s) {
  if (!s) return;
  free(s->init);
  free(s->written);
  free(s->reads);
  free(s);
}

void shadow_reset(shadow *s) {
  memset(s->init, 0, s->words);
  memset(s->written, 0, s->words * sizeof *s->written);
  memset(s->reads, 0, (size_t)s->words * s->warps * sizeof *s->reads);
}

void clocks_join(uint32_t *into, const uint32_t *from, uint32_t warps) {
  for (uint32_t k = 0; k < warps; k++)
    if (from[k] > into[k]) into[k] = from[k];
}

void clocks_release(warp *w) { w->clocks[w->index]++; }

static const char *name_of(int kind) {
  return kind & ACCESS_ATOMIC ? "atomic operation" : kind & ACCESS_WRITE ? "write" : "read";
}

static bool report_race(warp *w, const instr *i, int lane, uint32_t word, int kind, const char *other, uint32_t warp,
                        uint32_t other_lane) {
  const char *name = name_of(kind);
  if (other_lane < LANES)
    fault(w, i, lane, CUDA_ERROR_LAUNCH_FAILED,
          "race: this %s of shared byte %u is not ordered after a %s by warp %u, lane %u", name, word * 4, other, warp,
          other_lane);
  else
    fault(w, i, lane, CUDA_ERROR_LAUNCH_FAILED, "race: this %s of shared byte %u is not ordered after a %s by warp %u",
          name, word * 4, other, warp);
  return false;
}

/* Is the last write ordered before this access? */
static bool after_write(warp *w, const instr *i, int lane, uint32_t word, const last_write *e, int kind) {
  if (e->flags & IN_FLIGHT) {
    fault(w, i, lane, CUDA_ERROR_LAUNCH_FAILED,
          "%s of shared byte %u while an asynchronous copy of warp %u, lane %u to it is in flight: a wait is missing",
          name_of(kind), word * 4, e->warp, e->lane);
    return false;
  }
  if (e->flags & SOURCE && kind & ACCESS_WRITE) {
    fault(w, i, lane, CUDA_ERROR_LAUNCH_FAILED,
          "write to shared byte %u while a bulk copy from it is in flight: a wait is missing", word * 4);
    return false;
  }
  if (!w->cta->shadow->races) return true;
  if (e->flags & ATOMIC && kind & ACCESS_ATOMIC)
    return e->plain_clock <= w->clocks[e->plain_warp] ||
           report_race(w, i, lane, word, kind, "write", e->plain_warp, LANES);
  if (e->warp != w->index)
    return e->clock <= w->clocks[e->warp] || report_race(w, i, lane, word, kind, "write", e->warp, e->lane);
  if (e->clock < w->clocks[w->index] || e->lane == lane || e->lane == NO_LANE) return true;
  return report_race(w, i, lane, word, kind, "write", e->warp, e->lane);
}

static bool after_reads(warp *w, const instr *i, int lane, uint32_t word, uint32_t mask, int kind) {
  const shadow *s = w->cta->shadow;
  if (!s->races) return true;
  for (uint32_t r = 0; r < s->warps; r++) {
    uint32_t read = s->reads[(size_t)r * s->words + word];
    if (r != w->index && read & mask && read >> 4 > w->clocks[r])
      return report_race(w, i, lane, word, kind, "read", r, LANES);
  }
  return true;
}

static void note_read(warp *w, shadow *s, uint32_t word, uint32_t mask) {
  uint32_t *read = &s->reads[(size_t)w->index * s->words + word], now = w->clocks[w->index] << 4;
  *read = (*read & ~15u) == now ? *read | mask : now | mask;
}

static void note_write(const warp *w, int lane, last_write *e, uint32_t mask, int kind) {
  last_write now = {.clock = w->clocks[w->index],
                    .warp = (uint8_t)w->index,
                    .lane = lane < 0 ? NO_LANE : (uint8_t)lane,
                    .bytes = (uint8_t)mask};
  if (kind & ACCESS_ATOMIC) {
    now.flags = ATOMIC;
    now.plain_clock = e->flags & ATOMIC ? e->plain_clock : e->bytes ? e->clock : 0;
    now.plain_warp = e->flags & ATOMIC ? e->plain_warp : e->warp;
  }
  *e = now;
}

static bool outside(const shadow *s, uint32_t at, uint32_t bytes) {
  return at > s->words * 4 || bytes > s->words * 4 - at;
}

bool shadow_access(warp *w, const instr *i, int lane, uint32_t address, uint32_t bytes, int kind) {
  shadow *s = w->cta->shadow;
  uint32_t at = address - SHARED_BASE, end = at + bytes;
  if (outside(s, at, bytes)) return true; /* the bounds check reports it */
  for (uint32_t word = at / 4; word * 4 < end; word++) {
    uint32_t from = word * 4 < at ? at - word * 4 : 0, to = end - word * 4 < 4 ? end - word * 4 : 4;
    uint32_t mask = ((1u << to) - 1) & ~((1u << from) - 1);
    last_write *e = &s->written[word];
    if (e->bytes & mask && !after_write(w, i, lane, word, e, kind)) return false;
    if (kind & ACCESS_READ) {
      if (mask & ~s->init[word]) {
        fault(w, i, lane, CUDA_ERROR_LAUNCH_FAILED, "read of uninitialised shared memory, byte %u",
              word * 4 + (uint32_t)__builtin_ctz(mask & ~s->init[word]));
        return false;
      }
      if (!(kind & ACCESS_ATOMIC)) note_read(w, s, word, mask);
    }
    if (kind & ACCESS_WRITE) {
      if (!after_reads(w, i, lane, word, mask, kind)) return false;
      s->init[word] |= (uint8_t)mask;
      note_write(w, lane, e, mask, kind);
    }
  }
  return true;
}

/* The destination of an asynchronous copy: a write that has begun. */
bool shadow_begin_copy(warp *w, const instr *i, int lane, uint32_t address, uint32_t bytes) {
  shadow *s = w->cta->shadow;
  if (!shadow_access(w, i, lane, address, bytes, ACCESS_WRITE)) return false;
  uint32_t at = address - SHARED_BASE;
  for (uint32_t word = at / 4; word * 4 < at + bytes; word++) s->written[word].flags = IN_FLIGHT;
  return true;
}

void shadow_end_copy(warp *w, int lane, uint32_t address, uint32_t bytes) {
  shadow *s = w->cta->shadow;
  uint32_t at = address - SHARED_BASE;
  for (uint32_t word = at / 4; word * 4 < at + bytes; word++)
    s->written[word] = (last_write){
        .clock = w->clocks[w->index], .warp = (uint8_t)w->index, .lane = (uint8_t)lane, .bytes = 15};
}

bool shadow_begin_source(warp *w, const instr *i, int lane, uint32_t address, uint32_t bytes) {
  shadow *s = w->cta->shadow;
  if (!shadow_access(w, i, lane, address, bytes, ACCESS_READ)) return false;
  uint32_t at = address - SHARED_BASE;
  for (uint32_t word = at / 4; word * 4 < at + bytes; word++) {
    last_write *e = &s->written[word];
    if (e->bytes && e->clock > w->cta->warp[e->warp].fenced) {
      fault(w, i, lane, CUDA_ERROR_LAUNCH_FAILED,
            "shared byte %u, written by warp %u, is not fenced for the async proxy", word * 4, e->warp);
      return false;
    }
    e->flags |= SOURCE;
  }
  return true;
}

void shadow_end_source(warp *w, uint32_t address, uint32_t bytes) {
  uint32_t at = address - SHARED_BASE;
  for (uint32_t word = at / 4; word * 4 < at + bytes; word++) w->cta->shadow->written[word].flags &= (uint8_t)~SOURCE;
}
