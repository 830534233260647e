/* loop.c: the loops of a function.
 *
 * Input: its control-flow graph. Output: the natural loops, each with the blocks it is made of. */
#include <stdlib.h>

#include "loop.h"

/* The loop of a header, to which `latch` leads back; a new one where there is none yet. NULL after an error. */
static flyi_loop *loop_of(const flyi_verifier *v, const flyi_cfg *cfg, int header, LLVMValueRef latch,
                          flyi_loops *loops) {
  for (int i = 0; i < loops->count; i++)
    if (loops->loops[i].header == header) return &loops->loops[i];
  if (loops->count == FLYI_MOST_LOOPS) {
    flyi_refuse(v, latch, "a mask cannot have more than %d loops, with its calls inlined", FLYI_MOST_LOOPS);
    return NULL;
  }
  flyi_loop *loop = &loops->loops[loops->count];
  *loop = (flyi_loop){.header = header, .bottom = -1, .members = flyi_alloc((size_t)cfg->count, sizeof *loop->members)};
  if (!loop->members) return flyi_no_memory(v->error), NULL;
  loop->members[header] = true;
  loops->count++;
  return loop;
}

/* Adds to the loop what can reach its latch without passing its header, by sweeps from back to front; the graph is
 * reducible, so one sweep a nesting level is enough. */
static void grow(const flyi_cfg *cfg, flyi_loop *loop, int latch) {
  loop->members[latch] = true;
  for (bool changed = true; changed;) {
    changed = false;
    for (int i = cfg->count - 1; i > loop->header; i--) {
      LLVMValueRef end = LLVMGetBasicBlockTerminator(cfg->blocks[i]);
      for (unsigned k = 0; k < LLVMGetNumSuccessors(end) && !loop->members[i]; k++) {
        int to = flyi_cfg_index(cfg, LLVMGetSuccessor(end, k));
        if (to == loop->header || !loop->members[to]) continue;
        loop->members[i] = changed = true;
      }
    }
  }
}

fly_status flyi_loops_find(const flyi_verifier *v, const flyi_cfg *cfg, flyi_loops *out) {
  *out = (flyi_loops){0};
  for (int from = 0; from < cfg->count; from++) {
    LLVMValueRef end = LLVMGetBasicBlockTerminator(cfg->blocks[from]);
    for (unsigned k = 0; k < LLVMGetNumSuccessors(end); k++) {
      int to = flyi_cfg_index(cfg, LLVMGetSuccessor(end, k));
      if (!flyi_is_back_edge(from, to)) continue;
      if (!flyi_cfg_dominates(cfg, to, from))
        return flyi_refuse(v, end,
                           "the loop is entered at several places, by goto or switch: write it as for or while");
      flyi_loop *loop = loop_of(v, cfg, to, end, out);
      if (!loop) return v->error->status;
      loop->bottom = loop->bottom < 0 ? from : flyi_cfg_common(cfg, loop->bottom, from);
      grow(cfg, loop, from);
    }
  }
  return FLY_OK;
}

void flyi_loops_free(flyi_loops *loops) {
  for (int i = 0; i < loops->count; i++) free(loops->loops[i].members);
  *loops = (flyi_loops){0};
}
