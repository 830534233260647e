/* pyramid.h: summaries of an array of integers over ranges of its indices, and over boxes where it is read as a table
 * of rows: minima and maxima, and, where masks look at bits, which of them are set in all elements and in any. Each
 * part is built when the first map needs it and then shared: what prepares one may be called from several threads.
 * Elements are read as signed numbers of their width. */
#ifndef FLYMASK_PYRAMID_H
#define FLYMASK_PYRAMID_H

#include <stddef.h>

#include "interval.h"
#include "runtime.h"

/* The array read as rows of `columns`: level 0 is the array itself, a cell of level 1 has 2 x 2 elements, or 2^aspect x
 * 1 (aspect > 0), or 1 x 2^-aspect; each further level has 2 x 2 of the last. */
typedef struct flyi_mip {
  int64_t columns, rows;
  int aspect;
  bool of_bits;      /* a summary of bits, not of ranges */
  int levels;        /* above 0 */
  void *cell[32];    /* [level]: minima, then maxima (bits: of all, then of any), in the array's own type */
  int64_t width[32]; /* cells in a row, and rows */
  int64_t height[32];
  int row_shift[32], column_shift[32]; /* of indices to cells */
  const void *data;
  int bytes;
  _Atomic(struct flyi_mip *) bits; /* of the same boxes */
  struct flyi_mip *next;
} flyi_mip;

typedef struct flyi_ranges flyi_ranges;

typedef struct flyi_pyramid {
  const void *data; /* not owned */
  int bytes;        /* of an element: 1, 2, 4, 8 */
  int64_t count;    /* elements, 1 or more */
  _Atomic(flyi_ranges *) ranges, bits;
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
/* The same for bits: prepares, and asks. */
bool flyi_pyramid_prepare_bits(flyi_pyramid *pyramid) FLYI_MUST_CHECK;
flyi_bits flyi_pyramid_bits(const flyi_pyramid *pyramid, flyi_interval index);
/* The array as a table. NULL where memory is short. */
flyi_mip *flyi_pyramid_mip(flyi_pyramid *pyramid, int64_t columns, int aspect);
bool flyi_mip_prepare_bits(flyi_mip *mip) FLYI_MUST_CHECK;
/* Minimum and maximum over rows u and columns v: a cover of at most 2 x 2 cells, exact for aligned powers of two. */
flyi_interval flyi_mip_range(const flyi_mip *mip, flyi_interval u, flyi_interval v);
flyi_bits flyi_mip_bits(const flyi_mip *mip, flyi_interval u, flyi_interval v);

#endif
