/* order.c: puts the blocks of a function in an order in which each comes after its forward predecessors and each
 * loop is contiguous behind its header: reverse postorder, but a header brings its whole loop along.
 *
 * That is still such an order: what follows a header in reverse postorder and is outside of its loop cannot lead
 * into the loop, or the loop would have a second way in, or the block would stand before the header. */
#include <stdlib.h>

#include "order.h"

typedef struct search {
  flyi_order *order;
  int *inner;  /* of each block: the header of the innermost loop that it is in, itself if it is one; -1: none */
  int *outer;  /* of each header: the header of the loop around its own; -1: none */
  int *size;   /* of each header: the blocks of its loop; 0: no header */
  int *marked; /* of each block: the last header whose loop it was found in */
  int *stack;
  int *first, *predecessors; /* of block i: predecessors[first[i]] .. [first[i + 1] - 1] */
} search;

static int successors(const flyi_cfg *cfg, int block) {
  return (int)LLVMGetNumSuccessors(LLVMGetBasicBlockTerminator(cfg->blocks[block]));
}

static int successor(const flyi_cfg *cfg, int block, int which) {
  return flyi_cfg_index(cfg, LLVMGetSuccessor(LLVMGetBasicBlockTerminator(cfg->blocks[block]), (unsigned)which));
}

/* Fills `first` and `predecessors`, and counts back edges in size. False where an edge leads back but to no
 * dominator. */
static bool find_edges(search *s) {
  const flyi_cfg *cfg = &s->order->cfg;
  for (int b = 0; b < cfg->count; b++) {
    for (int k = 0; k < successors(cfg, b); k++) {
      int to = successor(cfg, b, k);
      s->first[to + 1]++;
      if (to > b) continue;
      if (!flyi_cfg_dominates(cfg, to, b)) return false;
      s->size[to] = 1;
    }
  }
  for (int b = 0; b < cfg->count; b++) s->first[b + 1] += s->first[b];
  for (int b = 0; b < cfg->count; b++)
    for (int k = 0; k < successors(cfg, b); k++) {
      int to = successor(cfg, b, k);
      s->predecessors[s->first[to] + s->marked[to]++] = b; /* marked serves as a counter here */
    }
  for (int b = 0; b < cfg->count; b++) s->marked[b] = -1;
  return true;
}

/* Puts a block, and with it the loops known around it, into the loop of a header. */
static void include(search *s, int header, int block, int *depth) {
  if (s->marked[block] == header) return;
  s->marked[block] = header;
  s->size[header]++;
  s->stack[(*depth)++] = block;
  int around = s->inner[block];
  while (around >= 0 && s->outer[around] >= 0) around = s->outer[around];
  if (around < 0)
    s->inner[block] = header;
  else if (around != header)
    s->outer[around] = header;
}

/* The loops, inner ones first: an inner header stands behind the outer one. */
static void find_loops(search *s) {
  int count = s->order->cfg.count;
  for (int b = 0; b < count; b++) s->inner[b] = s->outer[b] = -1;
  for (int h = count - 1; h >= 0; h--) {
    if (!s->size[h]) continue;
    int depth = 0;
    s->size[h] = 0;
    include(s, h, h, &depth);
    depth = 0;
    for (int k = s->first[h]; k < s->first[h + 1]; k++)
      if (s->predecessors[k] >= h) include(s, h, s->predecessors[k], &depth);
    while (depth > 0) {
      int b = s->stack[--depth];
      for (int k = s->first[b]; k < s->first[b + 1]; k++) include(s, h, s->predecessors[k], &depth);
    }
  }
}

static void put(search *s, int block) {
  flyi_order *o = s->order;
  o->loop[o->count] = s->size[block];
  o->place[block] = o->count;
  o->block[o->count++] = block;
}

/* The blocks of one loop (header -1: of the function) that are in no inner one, and inner loops at their headers'
 * places. */
static void emit(search *s, int header) {
  if (header >= 0) put(s, header);
  for (int b = header + 1; b < s->order->cfg.count; b++) {
    if (s->inner[b] == header && !s->size[b])
      put(s, b);
    else if (s->size[b] && s->outer[b] == header)
      emit(s, b);
  }
}

static bool alloc_ints(int **out, int count) {
  *out = flyi_alloc((size_t)count, sizeof **out);
  return *out != NULL;
}

fly_status flyi_order_blocks(LLVMValueRef function, flyi_order *out, bool *found, fly_error *error) {
  *out = (flyi_order){0};
  *found = false;
  fly_status status = flyi_cfg_build(function, &out->cfg, error);
  if (status) return status;
  int n = out->cfg.count, edges = 0;
  for (int b = 0; b < n; b++) edges += successors(&out->cfg, b);
  search s = {.order = out};
  bool ok = alloc_ints(&out->block, n) && alloc_ints(&out->place, n) && alloc_ints(&out->loop, n) &&
            alloc_ints(&s.inner, n) && alloc_ints(&s.outer, n) && alloc_ints(&s.size, n) && alloc_ints(&s.marked, n) &&
            alloc_ints(&s.stack, n) && alloc_ints(&s.first, n + 1) && alloc_ints(&s.predecessors, edges);
  if (ok && find_edges(&s)) {
    find_loops(&s);
    emit(&s, -1);
    *found = true;
  }
  free(s.inner), free(s.outer), free(s.size), free(s.marked), free(s.stack), free(s.first), free(s.predecessors);
  return ok ? FLY_OK : flyi_no_memory(error);
}

void flyi_order_free(flyi_order *order) {
  flyi_cfg_free(&order->cfg);
  free(order->block), free(order->place), free(order->loop);
  *order = (flyi_order){0};
}
