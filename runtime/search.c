/* search.c: a pair that masks see, or the proof that there is none. Input: nodes and code of the masks for
 * one (b, h), and a budget. Output: the first pair found. Boxes are split; one that some mask sees nothing of is
 * dropped. */
#include <assert.h>
#include <stdlib.h>
#include <time.h>

#include "search.h"

int64_t flyi_nanoseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

enum { MOST_BOXES = 512 }; /* waiting: three for each of 26 levels or so */

typedef struct search {
  const flyi_searched *mask;
  int masks;
  int32_t b, h;
  flyi_interval *value[FLYI_MOST_SEARCHED];
  flyi_box waiting[MOST_BOXES];
  int count;
} search;

static fly_tile_kind evaluate(search *s, int mask, const flyi_box *box) {
  const flyi_nodes *n = s->mask[mask].nodes;
  flyi_nodes_evaluate(n, n->constants, n->count, box, s->value[mask]);
  return flyi_verdict(n, s->value[mask]);
}

static bool is_block(const flyi_box *box) { return box->q1 - box->q0 < FLYI_BLOCK && box->kv1 - box->kv0 < FLYI_BLOCK; }

/* Half of [lo, hi] in whole blocks, from lo on. */
static int64_t middle(int64_t lo, int64_t hi) {
  int64_t blocks = (hi - lo) / FLYI_BLOCK + 1;
  return lo + (blocks + 1) / 2 * FLYI_BLOCK;
}

/* Puts the parts of a box on the stack, so that the first queries and keys come off first. */
static void split(search *s, const flyi_box *box) {
  int64_t q = box->q1 - box->q0 < FLYI_BLOCK ? box->q1 + 1 : middle(box->q0, box->q1);
  int64_t kv = box->kv1 - box->kv0 < FLYI_BLOCK ? box->kv1 + 1 : middle(box->kv0, box->kv1);
  for (int i = 3; i >= 0; i--) {
    flyi_box part = {i & 2 ? q : box->q0, i & 2 ? box->q1 : q - 1, i & 1 ? kv : box->kv0, i & 1 ? box->kv1 : kv - 1};
    if (part.q0 > part.q1 || part.kv0 > part.kv1) continue;
    assert(s->count < MOST_BOXES);
    s->waiting[s->count++] = part;
  }
}

/* Asks the code of the masks that are open about a block. */
static bool find_in_block(const search *s, const flyi_box *box, const bool *open, int64_t *q, int64_t *kv) {
  uint64_t bits[FLYI_BLOCK], all[FLYI_BLOCK];
  int64_t columns = box->kv1 - box->kv0 + 1;
  uint64_t inside = columns >= FLYI_BLOCK ? ~0ull : ~(~0ull << columns);
  for (int r = 0; r < FLYI_BLOCK; r++) all[r] = inside;
  for (int i = 0; i < s->masks; i++) {
    if (!open[i]) continue;
    s->mask[i].tile(s->mask[i].args, s->b, s->h, (int32_t)box->q0, (int32_t)box->kv0, bits);
    for (int r = 0; r < FLYI_BLOCK; r++) all[r] &= bits[r];
  }
  for (int64_t r = 0; r <= box->q1 - box->q0; r++)
    if (all[r]) return *q = box->q0 + r, *kv = box->kv0 + __builtin_ctzll(all[r]), true;
  return false;
}

static flyi_found run(search *s, flyi_budget *budget, int64_t *q, int64_t *kv) {
  bool undecided = false;
  while (s->count) {
    flyi_box box = s->waiting[--s->count];
    bool open[FLYI_MOST_SEARCHED], any = false, none = false, codeless = false;
    if (budget->looks-- <= 0 || flyi_nanoseconds() > budget->until) return FLYI_FOUND_OPEN;
    for (int i = 0; i < s->masks && !none; i++) {
      fly_tile_kind kind = evaluate(s, i, &box);
      open[i] = kind == FLY_PARTIAL, none = kind == FLY_EMPTY;
      any |= open[i], codeless |= open[i] && !s->mask[i].tile;
    }
    if (none) continue;
    if (!any) return *q = box.q0, *kv = box.kv0, FLYI_FOUND_PAIR;
    if (!is_block(&box))
      split(s, &box);
    else if (codeless)
      undecided = true;
    else if (find_in_block(s, &box, open, q, kv))
      return FLYI_FOUND_PAIR;
  }
  return undecided ? FLYI_FOUND_OPEN : FLYI_FOUND_NONE;
}

flyi_found flyi_find_pair(const flyi_searched *masks, int count, int32_t b, int32_t h, flyi_budget *budget, int64_t *q,
                          int64_t *kv) {
  search *s = flyi_alloc(1, sizeof *s);
  flyi_found found = FLYI_FOUND_ERROR;
  if (!s) return found;
  *s = (search){.mask = masks, .masks = count, .b = b, .h = h, .count = 1};
  s->waiting[0] = masks[0].nodes->domain;
  for (int i = 0; i < count; i++) {
    const flyi_nodes *n = masks[i].nodes;
    if (!(s->value[i] = flyi_alloc(flyi_nodes_room(n), sizeof *s->value[i]))) goto done;
    flyi_nodes_evaluate(n, 0, n->constants, &n->domain, s->value[i]);
  }
  found = run(s, budget, q, kv);
done:
  for (int i = 0; i < count; i++) free(s->value[i]);
  free(s);
  return found;
}
