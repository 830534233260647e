/* sync.c: order that threads make themselves: a fence, then an atomic or volatile store of a flag in shared
 * memory; a load of it, then a fence (PTX ISA, "Memory Consistency Model": release and acquire patterns). What a
 * warp had seen at its last fence goes along with what it stores; what it finds there counts for it after its next
 * fence. */
#include <stdlib.h>

#include "sim.h"

struct flag_clocks {
  uint32_t word;
  uint32_t clocks[MAX_WARPS];
};

void sync_reset(cta *c) { c->flag_count = 0; }

static flag_clocks *find(cta *c, uint32_t word) {
  for (uint32_t k = 0; k < c->flag_count; k++)
    if (c->flags[k].word == word) return &c->flags[k];
  return NULL;
}

static flag_clocks *find_or_add(cta *c, uint32_t word) {
  flag_clocks *f = find(c, word);
  if (f) return f;
  if (c->flag_count == c->flag_room) {
    uint32_t room = c->flag_room ? 2 * c->flag_room : 16;
    flag_clocks *bigger = realloc(c->flags, room * sizeof *bigger);
    if (!bigger) return NULL; /* then the order is not known: stricter */
    c->flags = bigger;
    c->flag_room = room;
  }
  f = &c->flags[c->flag_count++];
  *f = (flag_clocks){.word = word};
  return f;
}

void sync_fence(warp *w) {
  clocks_join(w->clocks, w->found, w->cta->warps);
  memcpy(w->released, w->clocks, sizeof w->released);
  clocks_release(w);
}

void sync_load(warp *w, uint32_t address, int order) {
  const flag_clocks *f = find(w->cta, address / 4);
  if (w->fuel > 1000) w->fuel -= 500; /* who polls leaves the others their turn soon */
  if (!f) return;
  clocks_join(w->found, f->clocks, w->cta->warps);
  if (order == ORDER_STRONG) clocks_join(w->clocks, f->clocks, w->cta->warps);
}

void sync_store(warp *w, uint32_t address, int order, bool also_reads) {
  flag_clocks *f = find_or_add(w->cta, address / 4);
  if (!f) return;
  if (!also_reads) memset(f->clocks, 0, sizeof f->clocks);
  clocks_join(f->clocks, order == ORDER_STRONG ? w->clocks : w->released, w->cta->warps);
  if (order == ORDER_STRONG) clocks_release(w);
  w->cta->progress = true;
}
