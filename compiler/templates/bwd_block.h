/* bwd_block.h: a block of 64 x 64 pairs of the backward pass: P and G, the mask's bits, and which rows and keys each
 * product of a partial block is cut to. Input: a block, its mask. Output: a `work`. */
#ifndef FLYMASK_BWD_BLOCK_H
#define FLYMASK_BWD_BLOCK_H

#include "block.h"

enum { GROUPS = BLOCK / ROWS, NEAR_WORDS = 160 /* of 64 keys: 40 KiB */ };

/* A range of rows: [first, last). */
typedef struct range {
  uint8_t first, last;
} range;

typedef struct work {
  word p[BLOCK * BLOCK / PAIR] __attribute__((aligned(64))); /* [PAIR queries][key] */
  word g[BLOCK * BLOCK / PAIR];                              /* likewise */
#ifdef FLYI_DOTS
  word g_rows[BLOCK * BLOCK / PAIR]; /* [query][PAIR keys] */
  float weights[BLOCK * BLOCK];      /* scale P of the rows in work */
  float scores[BLOCK * BLOCK];       /* with a modifier: these, and their derivatives */
  float slopes[BLOCK * BLOCK];
#endif
  uint64_t bits[BLOCK];
  uint64_t some[GROUPS]; /* the keys that one of ROWS queries sees */
  range keys[GROUPS];    /* from the first of them to the last */
  range queries[GROUPS]; /* that see ROWS keys, in whole ROWS */
} work;

/* From the first set bit to the last. */
INLINE range range_of(uint64_t bits) {
  return bits ? (range){(uint8_t)__builtin_ctzll(bits), (uint8_t)(BLOCK - __builtin_clzll(bits))} : (range){0, 0};
}

/* The keys that some query sees, and those that all see. */
typedef struct seen {
  uint64_t some, all;
} seen;

/* The bits of the pairs that exist, and the keys that each ROWS queries see. */
INLINE seen find_keys(const flyi_backward_cpu *b, work *w) {
  uint64_t there = b->keys == BLOCK ? ~0ull : (1ull << b->keys) - 1;
  seen seen = {0, ~0ull};
  if (b->full)
    memset(w->bits, 0xff, sizeof w->bits);
  else
    b->tile(b->args, b->b, b->h, b->q0, b->kv0, w->bits);
  for (int r = 0; r < BLOCK && (b->queries < BLOCK || b->keys < BLOCK); r++) w->bits[r] &= r < b->queries ? there : 0;
  for (int i = 0; i < GROUPS; i++) {
    const uint64_t *bits = w->bits + i * ROWS;
    w->some[i] = bits[0] | bits[1] | bits[2] | bits[3];
    w->keys[i] = range_of(w->some[i]);
    seen.some |= w->some[i];
    seen.all &= bits[0] & bits[1] & bits[2] & bits[3];
  }
  return seen;
}

/* Bit 4 i says whether one of bits 4 i .. 4 i + 3 is set. */
INLINE uint64_t fours(uint64_t x) {
  x |= x >> 2;
  return (x | x >> 1) & 0x1111111111111111;
}

/* The queries that see each ROWS keys: so many ROWS have no such bit up to their own, so many have one from their own
 * on. Keys that nobody sees get a range that ends before it begins. */
INLINE void find_queries(work *w) {
  typedef uint32_t columns __attribute__((ext_vector_type(8)));
  typedef uint16_t ranges __attribute__((ext_vector_type(8)));
  const columns bit = {1, 1 << 4, 1 << 8, 1 << 12, 1 << 16, 1 << 20, 1 << 24, 1 << 28};
  uint64_t before[GROUPS], behind[GROUPS], up = 0, down = 0;
  _Static_assert(ROWS == 4 && GROUPS == 16, "fours, and two halves");
  for (int i = 0; i < GROUPS; i++) {
    before[i] = up |= fours(w->some[i]);
    behind[GROUPS - 1 - i] = down |= fours(w->some[GROUPS - 1 - i]);
  }
  for (int half = 0; half < 2; half++) {
    columns first = 0, last = 0;
    for (int i = 0; i < GROUPS; i++) {
      first -= (columns)(((columns)(uint32_t)(before[i] >> 32 * half) & bit) == 0);
      last -= (columns)(((columns)(uint32_t)(behind[i] >> 32 * half) & bit) != 0);
    }
    ranges both = __builtin_convertvector(first * ROWS | last * ROWS << 8, ranges);
    for (int j = 0; j < 8; j++) w->queries[half * 8 + j] = (range){(uint8_t)both[j], (uint8_t)(both[j] >> 8)};
  }
}

/* The sums over queries run down columns of P and G, from the first to the last query that sees one of the keys:
 * where rows between them have none of these keys and were not computed, they are zero. */
INLINE void fill_holes(work *w) {
  unsigned computed[GROUPS], behind[GROUPS], before = 0, seen = 0; /* bits of vectors of keys */
  for (int i = GROUPS - 1; i >= 0; i--) {
    computed[i] = (1u << (w->keys[i].last + W - 1) / W) - (1u << w->keys[i].first / W);
    behind[i] = seen;
    seen |= computed[i];
  }
  for (int i = 0; i < GROUPS; before |= computed[i++])
    for (unsigned holes = before & behind[i] & ~computed[i]; holes; holes &= holes - 1)
      for (int r = i * ROWS / PAIR; r < (i + 1) * ROWS / PAIR; r++) {
        int at = r * BLOCK + __builtin_ctz(holes) * W;
        store_words(w->p + at, (vw)(word)0);
        store_words(w->g + at, (vw)(word)0);
      }
}

#endif
