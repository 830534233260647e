/* loop.h: the loops of a function and how often they run (loop.c, round.c). */
#ifndef FLYMASK_LOOP_H
#define FLYMASK_LOOP_H

#include "cfg.h"

enum { FLYI_MOST_LOOPS = 128 }; /* LLVM's time grows with their number squared, and cubed where they nest */

/* A natural loop: its header dominates all of it. Blocks are places in flyi_cfg.blocks. */
typedef struct flyi_loop {
  int header;
  int bottom;    /* the last block that every round passes: of its back edges' sources the closest common dominator */
  bool *members; /* [cfg.count] */
} flyi_loop;

typedef struct flyi_loops {
  int count;
  flyi_loop loops[FLYI_MOST_LOOPS];
} flyi_loops;

static inline bool flyi_is_back_edge(int from, int to) { return to <= from; } /* in reverse postorder */

/* Refuses loops that can be entered at several blocks, and more than FLYI_MOST_LOOPS of them. */
fly_status flyi_loops_find(const flyi_verifier *v, const flyi_cfg *cfg, flyi_loops *out);
void flyi_loops_free(flyi_loops *loops);

/* How often the back edge is taken, at most, each time the loop is entered: by running what decides on its exit where
 * that depends on constants alone. -1: not known. *budget limits the work of all calls. */
int64_t flyi_loop_rounds(const flyi_cfg *cfg, const flyi_loop *loop, int *budget);

#endif
