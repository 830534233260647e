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

/* Single pairs of the tile, until both are seen. */
enum { CORNERS = 2, WITNESSES = 8 };
static int witnesses(const flyi_survey *s, flyi_scratch *scratch, const flyi_box *t, int from, int to, int seen) {
  static const struct {
    uint8_t q, kv; /* sixteenths of the tile; an edge that runs through it leaves two corners on different sides */
  } at[WITNESSES] = {{0, 16}, {16, 0}, {0, 0}, {16, 16}, {8, 8}, {3, 11}, {13, 6}, {6, 2}};
  for (int i = from; i < to && seen != SEEN_BOTH; i++)
    seen |= seen_at(s, scratch, t->q0 + (t->q1 - t->q0) * at[i].q / 16, t->kv0 + (t->kv1 - t->kv0) * at[i].kv / 16);
  return seen;
}

/* ---- by blocks --------------------------------------------------------------------------------------------------- */

/* The part of a tile that its block at (q, kv) is. */
static flyi_box block_of(const flyi_box *t, int64_t q, int64_t kv) {
  flyi_box part = {q, q + FLYI_BLOCK - 1, kv, kv + FLYI_BLOCK - 1};
  if (part.q1 > t->q1) part.q1 = t->q1;
  if (part.kv1 > t->kv1) part.kv1 = t->kv1;
  return part;
}

/* What the nodes know of the tile's blocks. *open gets a bit for each of the first 64 that stays open, one
 * above all for the rest. */
static int known_blocks(const flyi_survey *s, flyi_scratch *scratch, const flyi_box *t, int seen, uint64_t *open) {
  int i = 0;
  *open = 0;
  for (int64_t q = t->q0; q <= t->q1; q += FLYI_BLOCK) {
    for (int64_t kv = t->kv0; kv <= t->kv1; kv += FLYI_BLOCK, i++) {
      flyi_box part = block_of(t, q, kv);
      fly_tile_kind kind = i < 63 ? evaluate(s, scratch, &part) : FLY_PARTIAL;
      if (kind == FLY_PARTIAL) *open |= 1ull << (i < 63 ? i : 63);
      seen |= kind == FLY_FULL ? SEEN_VISIBLE : kind == FLY_EMPTY ? SEEN_HIDDEN : 0;
      if (seen == SEEN_BOTH) return seen;
    }
  }
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

/* The blocks that are open, until both are seen. */
static int ask_blocks(const flyi_survey *s, const flyi_box *t, uint64_t open, int seen) {
  int i = 0;
  for (int64_t q = t->q0; q <= t->q1; q += FLYI_BLOCK)
    for (int64_t kv = t->kv0; kv <= t->kv1; kv += FLYI_BLOCK, i++)
      if (seen != SEEN_BOTH && open >> (i < 63 ? i : 63) & 1) seen |= block(s, t, q, kv);
  return seen;
}

fly_tile_kind flyi_settle_pairs(const flyi_survey *s, const flyi_box *t) { return kind_of(ask_blocks(s, t, ~0ull, 0)); }

/* ---- both -------------------------------------------------------------------------------------------------------- */

/* Whether a step is worth its time: it is, until it has helped less than one tile in eight of this band. */
static bool is_worth(const flyi_steps *step) { return step->tried < 64 || 8 * step->helped >= step->tried; }

static void note(flyi_steps *step, bool helped) { step->tried++, step->helped += helped; }

/* What the nodes tell of a tile, and which of its blocks they leave open. */
static int known_of(const flyi_survey *s, flyi_scratch *scratch, const flyi_box *t, uint64_t *open) {
  flyi_steps *corners = &scratch->step[0], *parts = &scratch->step[1], *points = &scratch->step[2];
  int seen = 0;
  if (is_worth(corners)) {
    seen = witnesses(s, scratch, t, 0, CORNERS, seen);
    note(corners, seen == SEEN_BOTH);
  }
  if (seen != SEEN_BOTH && is_worth(parts)) {
    seen = known_blocks(s, scratch, t, seen, open);
    note(parts, seen == SEEN_BOTH || __builtin_popcountll(*open) < 4);
  }
  if (seen != SEEN_BOTH && *open && is_worth(points)) {
    seen = witnesses(s, scratch, t, CORNERS, WITNESSES, seen);
    note(points, seen == SEEN_BOTH);
  }
  return seen;
}

fly_tile_kind flyi_settle(const flyi_survey *s, flyi_scratch *scratch, const flyi_box *t) {
  if (s->fast) {
    scratch->undecided++;
    return FLY_PARTIAL;
  }
  bool known = !s->nodes->unknown && s->nodes->count <= CHEAP_NODES;
  uint64_t open = ~0ull;
  int seen = known ? known_of(s, scratch, t, &open) : 0;
  if (seen == SEEN_BOTH || !open) return kind_of(seen);
  scratch->undecided++;
  return kind_of(ask_blocks(s, t, open, seen));
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
