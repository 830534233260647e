/* settle.c: the exact answer for a tile that the nodes leave open: some of its pairs by the nodes, then all of them
 * by the compiled mask, until one visible and one hidden pair are seen. */
#include "survey.h"

enum { CHEAP_NODES = 64 }; /* an evaluation of more costs what the compiled mask's block does */
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

/* What one block shows, by its pairs. */
static int block(const flyi_survey *s, const flyi_box *t, int64_t q, int64_t kv) {
  uint64_t bits[FLYI_BLOCK], inside = block_bits(s, t, q, kv, bits), any = 0, all = inside;
  for (int r = 0; r < FLYI_BLOCK && q + r <= t->q1; r++) any |= bits[r], all &= bits[r];
  return (any ? SEEN_VISIBLE : 0) | (all != inside ? SEEN_HIDDEN : 0);
}

/* Block by block until both are seen. The nodes (scratch not NULL) may know enough of a block, which is cheaper. */
static int blocks(const flyi_survey *s, flyi_scratch *scratch, const flyi_box *t, int seen, bool *asked) {
  for (int64_t q = t->q0; q <= t->q1; q += FLYI_BLOCK) {
    for (int64_t kv = t->kv0; kv <= t->kv1; kv += FLYI_BLOCK) {
      flyi_box part = {q, q + FLYI_BLOCK - 1, kv, kv + FLYI_BLOCK - 1};
      if (part.q1 > t->q1) part.q1 = t->q1;
      if (part.kv1 > t->kv1) part.kv1 = t->kv1;
      fly_tile_kind kind = scratch ? evaluate(s, scratch, &part) : FLY_PARTIAL;
      seen |= kind == FLY_FULL ? SEEN_VISIBLE : kind == FLY_EMPTY ? SEEN_HIDDEN : block(s, t, q, kv);
      *asked |= kind == FLY_PARTIAL;
      if (seen == SEEN_BOTH) return seen;
    }
  }
  return seen;
}

fly_tile_kind flyi_settle_pairs(const flyi_survey *s, const flyi_box *t) {
  bool asked;
  return kind_of(blocks(s, NULL, t, 0, &asked));
}

/* ---- both -------------------------------------------------------------------------------------------------------- */

fly_tile_kind flyi_settle(const flyi_survey *s, flyi_scratch *scratch, const flyi_box *t) {
  if (s->fast) {
    scratch->undecided++;
    return FLY_PARTIAL;
  }
  bool known = !s->nodes->unknown;
  int seen = known ? witnesses(s, scratch, t) : 0;
  if (seen == SEEN_BOTH) return FLY_PARTIAL;
  bool asked = false;
  seen = blocks(s, known && s->nodes->count <= CHEAP_NODES ? scratch : NULL, t, seen, &asked);
  scratch->undecided += asked;
  return kind_of(seen);
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
