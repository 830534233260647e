/* cfg.c: basic blocks (cfg.h), and the order in which a function's blocks lie. Lanes with lower program counters
 * run first (machine.c); so that lanes that part meet again where their ways join, a block must lie behind all
 * blocks on the ways to it, and a loop's blocks before those that follow the loop. That is a weak topological
 * order (F. Bourdoncle, "Efficient chaotic iteration strategies with widenings", 1993): components of strongly
 * connected blocks, each with its head first, nested, in topological order. Compilers often lay code out
 * otherwise, rare ways at the end. */
#include "cfg.h"

#include <stdlib.h>

/* --- blocks -------------------------------------------------------------------------------------- */
static void mark_starts(const cfg *c, bool *starts) {
  starts[0] = true;
  for (uint32_t i = c->begin; i < c->end; i++) {
    const instr *x = &c->p->code[i];
    if (!x->branches && !x->ends) continue;
    starts[i + 1 - c->begin] = true;
    if (x->run == run_brx) {
      const brx_info *t = x->extra;
      for (uint32_t k = 0; k < t->count; k++) starts[t->targets[k] - c->begin] = true;
    } else if (x->branches) {
      starts[x->target - c->begin] = true;
    }
  }
}

bool cfg_create(cfg *c, const program *p, uint32_t begin, uint32_t end) {
  uint32_t n = end - begin;
  bool *starts = calloc(n + 1, sizeof *starts);
  *c = (cfg){.p = p, .begin = begin, .end = end};
  c->blocks = calloc(n + 1, sizeof *c->blocks);
  c->block_of = calloc(n + 1, sizeof *c->block_of);
  if (!starts || !c->blocks || !c->block_of) {
    free(starts);
    return false;
  }
  mark_starts(c, starts);
  for (uint32_t i = 0; i < n; i++) {
    if (starts[i]) c->blocks[c->block_count++].begin = begin + i;
    c->block_of[i] = c->block_count - 1;
    c->blocks[c->block_count - 1].end = begin + i + 1;
  }
  for (uint32_t b = 0; b < c->block_count; b++) {
    block *k = &c->blocks[b];
    const instr *x = &p->code[k->end - 1];
    if (x->run == run_brx)
      k->table = x->extra;
    else if (x->branches)
      k->next[k->next_count++] = c->block_of[x->target - begin];
    if ((!x->ends || x->guard) && k->end < end) k->next[k->next_count++] = b + 1;
  }
  free(starts);
  return true;
}

void cfg_release(cfg *c) {
  free(c->blocks);
  free(c->block_of);
  *c = (cfg){0};
}

uint32_t cfg_successors(const block *b) { return b->next_count + (b->table ? b->table->count : 0); }

uint32_t cfg_successor(const cfg *c, const block *b, uint32_t k) {
  return k < b->next_count ? b->next[k] : c->block_of[b->table->targets[k - b->next_count] - c->begin];
}

/* --- weak topological order ---------------------------------------------------------------------- */
typedef struct ordering {
  const cfg *c;
  uint32_t *number, *stack, *order; /* number: 0 not seen, UINT32_MAX placed */
  uint32_t count, depth, at;        /* order is filled from its end */
} ordering;

static uint32_t visit(ordering *o, uint32_t b);

static void place_component(ordering *o, uint32_t b) {
  const block *k = &o->c->blocks[b];
  for (uint32_t s = 0; s < cfg_successors(k); s++) {
    uint32_t next = cfg_successor(o->c, k, s);
    if (o->number[next] == 0) visit(o, next);
  }
  o->order[--o->at] = b;
}

static uint32_t visit(ordering *o, uint32_t b) {
  const block *k = &o->c->blocks[b];
  uint32_t head = o->number[b] = ++o->count, mine = head;
  bool loop = false;
  o->stack[o->depth++] = b;
  for (uint32_t s = 0; s < cfg_successors(k); s++) {
    uint32_t next = cfg_successor(o->c, k, s), low = o->number[next] ? o->number[next] : visit(o, next);
    if (low <= head) {
      head = low;
      loop = true;
    }
  }
  if (head != mine) return head;
  o->number[b] = UINT32_MAX;
  uint32_t top = o->stack[--o->depth];
  if (!loop) {
    o->order[--o->at] = b;
    return head;
  }
  while (top != b) {
    o->number[top] = 0;
    top = o->stack[--o->depth];
  }
  place_component(o, b);
  return head;
}

/* --- laying the code out ------------------------------------------------------------------------- */
/* The function's code in the new order at `to`; returns its length. moved: where each block now begins. */
static uint32_t lay_out(const cfg *c, const uint32_t *order, instr *to, uint32_t *moved, uint32_t base) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < c->block_count; i++) {
    const block *k = &c->blocks[order[i]];
    const instr *last = &c->p->code[k->end - 1];
    moved[order[i]] = base + n;
    memcpy(to + n, &c->p->code[k->begin], (k->end - k->begin) * sizeof *to);
    n += k->end - k->begin;
    bool goes_on = (!last->ends || last->guard) && k->end < c->end;
    uint32_t next = c->block_of[k->end - c->begin];
    if (goes_on && (i + 1 == c->block_count || order[i + 1] != next))
      to[n++] = (instr){.run = run_bra,
                        .target = c->blocks[next].begin,
                        .branches = true,
                        .ends = true,
                        .line = last->line,
                        .text = "bra"};
  }
  return n;
}

static void retarget(const cfg *c, instr *code, uint32_t n, const uint32_t *moved) {
  for (uint32_t i = 0; i < n; i++) {
    instr *x = &code[i];
    if (!x->branches && x->run != run_brx) continue;
    if (x->run == run_brx) {
      brx_info *t = (brx_info *)(uintptr_t)x->extra;
      for (uint32_t k = 0; k < t->count; k++) t->targets[k] = moved[c->block_of[t->targets[k] - c->begin]];
    } else {
      x->target = moved[c->block_of[x->target - c->begin]];
    }
  }
}

static bool order_function(program *p, code_function *f, instr *to, uint32_t *count) {
  cfg c;
  bool ok = cfg_create(&c, p, f->begin, f->end);
  uint32_t n = c.block_count, *space = ok ? calloc(5 * (size_t)n + 1, sizeof *space) : NULL;
  if (space) {
    ordering o = {.c = &c, .number = space, .stack = space + n, .order = space + 2 * n, .at = n};
    uint32_t *moved = space + 3 * n, *order = space + 4 * n, at = 0, base = *count;
    visit(&o, 0);
    for (uint32_t i = o.at; i < n; i++) order[at++] = o.order[i];
    for (uint32_t b = 0; b < n; b++)
      if (o.number[b] == 0) order[at++] = b; /* nothing leads there */
    uint32_t length = lay_out(&c, order, to + base, moved, base);
    retarget(&c, to + base, length, moved);
    f->begin = base;
    f->end = *count = base + length;
  }
  free(space);
  cfg_release(&c);
  return space != NULL;
}

bool program_order(program *p) {
  instr *code = malloc((2 * (size_t)p->count + 16) * sizeof *code);
  uint32_t count = 0;
  if (!code) return false;
  for (uint32_t f = 0; f < p->function_count; f++)
    if (!order_function(p, &p->functions[f], code, &count)) {
      free(code);
      return false;
    }
  free(p->code);
  p->code = code;
  p->count = count;
  return true;
}
