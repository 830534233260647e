/* fetch.h: rows that are needed soon. Input: a flyi_fetch_part. */
#ifndef FLYMASK_FETCH_H
#define FLYMASK_FETCH_H

#include "block.h"

enum { TOGETHER = 32 }; /* rows of a map */

/* Into the nearest cache, although they wait in the next one: Zen 5 drops requests for that one alone at times. */
INLINE void fetch_bytes(const void *data, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch((const char *)data + i, 0, 3);
}

INLINE const char *row_of(const flyi_fetch_part *part, int row) {
  return part->plane + (part->rows ? part->rows[row] : row) * part->step;
}

/* A request whose address takes long to find holds up the core. Rows of a map have a page each: in a plane of more
 * pages than a core remembers, their first lines come side by side, ahead of the others. In a smaller one these would
 * only be many requests at once. */
INLINE void fetch_first_lines(const flyi_fetch_part *part, int row) {
  if (!part->far || row % TOGETHER) return;
  int first = row ? row + TOGETHER : 0, last = min(row + 2 * TOGETHER, part->count);
  for (int i = first; i < last; i++) fetch_row(row_of(part, i), 1, false);
}

#endif
