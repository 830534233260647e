/* handmade.h: masks, bound masks and block maps made by hand from a predicate, so that kernels are tested without the
 * compiler and without the analysis. The tile function answers with noise beyond the lengths, which kernels have to
 * ignore. */
#ifndef TEST_HANDMADE_H
#define TEST_HANDMADE_H

#include "oracle.h"
#include "runtime/runtime.h"

typedef struct handmade {
  fly_mask mask;
  fly_bound bound;
  fly_map map;
  fly_kernel *kernel;
  flyi_domain domain;
} handmade;

/* A kernel of the type and dimensions for `target`, and a map with tiles of tile_q x tile_kv for the geometry, which
 * must be complete. tile NULL: one that asks the predicate. `demote`: so many of 256 full tiles are called partial,
 * as a fast map may. */
void handmade_init(handmade *m, oracle_predicate *see, void *context, flyi_tile_fn *tile, const fly_kernel_desc *desc,
                   const fly_geometry *geometry, int tile_q, int tile_kv, int demote);
void handmade_free(handmade *m);

#endif
