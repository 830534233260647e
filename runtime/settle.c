/* settle.c: the exact answer for a tile that the nodes leave open: some of its pairs by the nodes, then all of them
 * by the compiled mask, until one visible and one hidden pair are seen. */
#include "survey.h"

enum { SEEN_HIDDEN = 1, SEEN_VISIBLE = 2, SEEN_BOTH = 3 };

static fly_tile_kind kind_of(int seen) {
  return seen == SEEN_BOTH ? FLY_PARTIAL : seen == SEEN_VISIBLE ? FLY_FULL : FLY_EMPTY;
}

/* ---- by the nodes ------------------------------------------------------------------------------------------------ */

static fly_tile_kind evaluate(const flyi_survey *s, flyi_scratch *scratch, const flyi_box *box) {
  const flyi_nodes *n = s->nodes;
  flyi_nodes_evaluate(n, n->constants, n->count, box, scratch->value);
  return flyi_verdict(n, scratch->value);
}

static int seen_at(const flyi_survey *s, flyi_scratch *scratch, int64_t q, int64_t kv) {
  fly_tile_kind kind = evaluate(s, scratch, &(flyi_box){q, q, kv, kv});
  return kind == FLY_PARTIAL ? 0 : kind == FLY_FULL ? SEEN_VISIBLE : SEEN_HIDDEN;
}

/* Pairs at corners first: an edge that runs through the tile leaves two of them on different sides. */
static int witnesses(const flyi_survey *s, flyi_scratch *scratch, const flyi_box *t) {
  static const struct {
    uint8_t q, kv; /* sixteenths of the tile */
  } at[] = {{0, 16}, {16, 0}, {0, 0}, {16, 16}, {8, 8}, {3, 11}, {13, 6}, {6, 2}};
  int seen = 0;
  for (size_t i = 0; i < sizeof at / sizeof *at && seen != SEEN_BOTH; i++)
    seen |= seen_at(s, scratch, t->q0 + (t->q1 - t->q0) * at[i].q / 16, t->kv0 + (t->kv1 - t->kv0) * at[i].kv / 16);
  return seen;
}

/* ---- by the compiled mask ---------------------------------------------------------------------------------------- */

/* The bits of one block; those outside the box are 0. Returns the mask of columns inside. */
static uint64_t block_bits(const flyi_survey *s, const flyi_box *t, int64_t q, int64_t kv, uint64_t bits[FLYI_BLOCK]) {
  int64_t rows = t->q1 - q + 1, columns = t->kv1 - kv + 1;
  uint64_t inside = columns >= FLYI_BLOCK ? ~0ull : ~(~0ull << columns);
  s->tile(s->args, s->b, s->h, (int32_t)q, (int32_t)kv, bits);
  for (int r = 0; r < FLYI_BLOCK; r++) bits[r] = r < rows ? bits[r] & inside : 0;
  return inside;
}

static int blocks(const flyi_survey *s, const flyi_box *t, int seen) {
  uint64_t bits[FLYI_BLOCK];
  for (int64_t q = t->q0; q <= t->q1; q += FLYI_BLOCK) {
    for (int64_t kv = t->kv0; kv <= t->kv1; kv += FLYI_BLOCK) {
      uint64_t inside = block_bits(s, t, q, kv, bits), any = 0, all = inside;
      for (int r = 0; r < FLYI_BLOCK && q + r <= t->q1; r++) any |= bits[r], all &= bits[r];
      seen |= (any ? SEEN_VISIBLE : 0) | (all != inside ? SEEN_HIDDEN : 0);
      if (seen == SEEN_BOTH) return seen;
    }
  }
  return seen;
}

fly_tile_kind flyi_settle_pairs(const flyi_survey *s, const flyi_box *t) { return kind_of(blocks(s, t, 0)); }

/* ---- both -------------------------------------------------------------------------------------------------------- */

fly_tile_kind flyi_settle(const flyi_survey *s, flyi_scratch *scratch, const flyi_box *t) {
  if (s->fast) {
    scratch->undecided++;
    return FLY_PARTIAL;
  }
  int seen = s->nodes->unknown ? 0 : witnesses(s, scratch, t);
  if (seen == SEEN_BOTH) return FLY_PARTIAL;
  scratch->undecided++;
  return kind_of(blocks(s, t, seen));
}

int64_t flyi_visible_pairs(const flyi_survey *s, const flyi_box *t) {
  uint64_t bits[FLYI_BLOCK];
  int64_t pairs = 0;
  for (int64_t q = t->q0; q <= t->q1; q += FLYI_BLOCK) {
    for (int64_t kv = t->kv0; kv <= t->kv1; kv += FLYI_BLOCK) {
      block_bits(s, t, q, kv, bits);
      for (int r = 0; r < FLYI_BLOCK; r++) pairs += __builtin_popcountll(bits[r]);
    }
  }
  return pairs;
}
