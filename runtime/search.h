/* search.h: whether a mask sees any pair at all, and where: for questions about masks (compiler/diagnose.c). */
#ifndef FLYMASK_SEARCH_H
#define FLYMASK_SEARCH_H

#include "survey.h"

typedef enum flyi_found {
  FLYI_FOUND_NONE, /* there is none */
  FLYI_FOUND_PAIR,
  FLYI_FOUND_OPEN, /* the nodes do not decide, and there is no code to ask, or it would take too long */
  FLYI_FOUND_ERROR /* memory was short */
} flyi_found;

/* Blocks and boxes that may be looked at, and until when; what is used is taken off. */
typedef struct flyi_budget {
  int64_t looks, until; /* until: of flyi_nanoseconds */
} flyi_budget;

/* A mask of one (b, h): the nodes decide boxes, from coarse to fine, and `tile` what they leave open in blocks of 64 x
 * 64 (NULL: nothing does). */
typedef struct flyi_searched {
  const flyi_nodes *nodes;
  flyi_tile_fn *tile;
  const flyi_mask_args *args;
} flyi_searched;
enum { FLYI_MOST_SEARCHED = 2 };

/* Looks for a pair that all `count` masks see; their domains are the same. *q and *kv are positions: q has the offset
 * added. */
flyi_found flyi_find_pair(const flyi_searched *masks, int count, int32_t b, int32_t h, flyi_budget *budget, int64_t *q,
                          int64_t *kv);

/* fly_map_build, but no longer than until a time of flyi_nanoseconds, one question to the compiled mask aside: FLY_OK
 * with *out NULL where that is over first. */
fly_status flyi_map_build_until(fly_bound *bound, const fly_geometry *geometry, int64_t until, fly_map **out,
                                fly_error *error);

/* The query rows of (b, h) that see no key. */
typedef struct flyi_blind {
  int64_t count, first, last; /* the first row, and the last one of those that follow it without a gap */
} flyi_blind;
/* `map` is exact. False: the time was up before. */
bool flyi_find_blind(const fly_map *map, int64_t b, int64_t h, int64_t until, flyi_blind *out);

#endif
