/* pyramid.h: minima and maxima of an array of integers over ranges of its indices, and over boxes where it is read
 * as a table of rows. Each part is built when the first map needs it and then shared: flyi_pyramid_ranges and _mip
 * may be called from several threads. Elements are read as signed numbers of their width. */
#ifndef FLYMASK_PYRAMID_H
#define FLYMASK_PYRAMID_H

#include <stddef.h>

#include "interval.h"
#include "runtime.h"

/* The array read as rows of `columns`: level l has cells of 2^l x 2^l elements; level 0 is the array itself. */
typedef struct flyi_mip {
  int64_t columns, rows;
  int levels;        /* above 0 */
  void *cell[32];    /* [level]: minima, then maxima, in the array's own type */
  int64_t width[32]; /* cells in a row, and rows */
  int64_t height[32];
  const void *data;
  int bytes;
  struct flyi_mip *next;
} flyi_mip;

typedef struct flyi_ranges flyi_ranges;

typedef struct flyi_pyramid {
  const void *data; /* not owned */
  int bytes;        /* of an element: 1, 2, 4, 8 */
  int64_t count;    /* elements, 1 or more */
  _Atomic(flyi_ranges *) ranges;
  _Atomic(flyi_mip *) mips;
  struct flyi_pyramid *next; /* for lists of them */
} flyi_pyramid;

/* NULL where memory is short. */
flyi_pyramid *flyi_pyramid_create(const void *data, int bytes, int64_t count);
void flyi_pyramid_free(flyi_pyramid *pyramid); /* NULL is fine */
/* The buffer's own, made by the first call. An empty buffer has one element, 0. */
flyi_pyramid *flyi_pyramid_of(fly_buffer *buffer);

/* Prepares flyi_pyramid_range. False where memory is short. */
bool flyi_pyramid_ranges(flyi_pyramid *pyramid) FLYI_MUST_CHECK;
/* Minimum and maximum over the indices that exist; everything where none does. */
flyi_interval flyi_pyramid_range(const flyi_pyramid *pyramid, flyi_interval index);
/* The array as a table. NULL where memory is short. */
const flyi_mip *flyi_pyramid_mip(flyi_pyramid *pyramid, int64_t columns);
/* Minimum and maximum over rows u and columns v: a cover of at most 2 x 2 cells, exact for aligned powers of two. */
flyi_interval flyi_mip_range(const flyi_mip *mip, flyi_interval u, flyi_interval v);

#endif
