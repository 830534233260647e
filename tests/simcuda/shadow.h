/* shadow.h: what shared.c keeps of each word of shared memory, and the quick checks of the common case. Where a
 * quick check says no, shadow_access looks closer and reports. */
#ifndef SIMCUDA_SHADOW_H
#define SIMCUDA_SHADOW_H

#include "sim.h"

enum { IN_FLIGHT = 1, ATOMIC = 2, SOURCE = 4, NO_LANE = 0xff };
typedef struct last_write {
  uint32_t clock, plain_clock;      /* plain: of the last write that was not atomic, under an atomic one */
  uint8_t warp, lane, bytes, flags; /* bytes: mask; 0: none */
  uint8_t plain_warp;
} last_write;

struct shadow {
  uint32_t words, bytes, warps;
  bool races;
  uint8_t *init; /* mask of bytes */
  last_write *written;
  uint32_t *reads; /* [warp][word]: clock << 4 | mask of bytes */
};

/* Is the last write ordered before what this lane does now? lane WHOLE_WARP: whichever lane wrote. */
enum { WHOLE_WARP = 256 };
static inline bool plainly_after(const warp *w, const last_write *e, uint32_t lane) {
  return !e->flags && e->clock <= w->clocks[e->warp] - (e->warp == w->index && e->lane != lane);
}

/* Whole words inside, written and ordered before: notes the read. `at` is an offset, `bytes` a multiple of 4. */
static inline bool quick_read(const warp *w, shadow *s, uint64_t at, uint32_t bytes, uint32_t lane) {
  if (at & 3 || at > s->bytes || bytes > s->bytes - at) return false;
  uint32_t word = (uint32_t)at / 4, now = w->clocks[w->index] << 4 | 15;
  uint32_t *reads = &s->reads[(size_t)w->index * s->words + word];
  for (uint32_t k = 0; k < bytes / 4; k++) {
    if (s->init[word + k] != 15 || !plainly_after(w, &s->written[word + k], lane)) return false;
    reads[k] = now;
  }
  return true;
}

/* Whole words inside, whose last write and reads are ordered before: notes the write. */
static inline bool quick_write(const warp *w, shadow *s, uint64_t at, uint32_t bytes, uint32_t lane) {
  if (at & 3 || at > s->bytes || bytes > s->bytes - at) return false;
  uint32_t word = (uint32_t)at / 4;
  for (uint32_t k = 0; k < bytes / 4; k++) {
    if (!plainly_after(w, &s->written[word + k], lane)) return false;
    for (uint32_t r = 0; r < s->warps; r++)
      if (s->reads[(size_t)r * s->words + word + k] >> 4 > w->clocks[r]) return false;
    s->init[word + k] = 15;
    s->written[word + k] = (last_write){
        .clock = w->clocks[w->index], .warp = (uint8_t)w->index, .lane = (uint8_t)lane, .bytes = 15};
  }
  return true;
}

#endif
