/* analyse.c: where the values of a program live in a warp's register file, and which reads may see a register that
 * nothing has written. Input: decoded code whose operands are value numbers; output: the same with byte offsets.
 * Values whose lives do not overlap share a slot, so that the registers in use fit a cache. Each lane follows one
 * path of the control flow, and writes only its own elements: what holds for one thread's path holds for each
 * lane. */
#include <stdlib.h>

#include "cfg.h"

typedef uint64_t word;
enum { BITS = 64 };

/* By block: registers alive where it begins and ends; written on every way to its begin. */
typedef struct sets {
  word *live_in, *live_out, *set_in;
} sets;

typedef struct analysis {
  program *p;
  const code_function *f;
  cfg cfg;
  uint32_t count, words; /* registers of the function; words of a set of them */
  uint32_t *index;       /* dense numbers of values that are registers; UINT32_MAX: none */
  sets *at;
  word *memory;
  uint32_t *begin, *end; /* life of each register, in instructions */
  bool *maybe;           /* read where it may not be written */
} analysis;

static bool has(const word *s, uint32_t n) { return s[n / BITS] >> (n % BITS) & 1; }
static void put(word *s, uint32_t n) { s[n / BITS] |= (word)1 << (n % BITS); }
static void drop(word *s, uint32_t n) { s[n / BITS] &= ~((word)1 << (n % BITS)); }

/* --- registers of an instruction ----------------------------------------------------------------- */
static uint32_t dense(const analysis *a, uint32_t v) { return v ? a->index[v] : UINT32_MAX; }

static void step_back(const analysis *a, const instr *x, word *live) {
  uint32_t r;
  for (uint32_t k = 0; k < x->nd; k++)
    if ((r = dense(a, x->d[k])) != UINT32_MAX && !x->guard) drop(live, r);
  for (uint32_t k = 0; k < x->nd; k++) /* a guarded write keeps the old value of other lanes */
    if ((r = dense(a, x->d[k])) != UINT32_MAX && x->guard) put(live, r);
  for (uint32_t k = 0; k < x->ns; k++)
    if ((r = dense(a, x->s[k])) != UINT32_MAX) put(live, r);
  if ((r = dense(a, x->guard)) != UINT32_MAX) put(live, r);
}

static void step_on(const analysis *a, const instr *x, word *set) {
  uint32_t r;
  bool whole = !x->guard;
  for (uint32_t k = 0; x->moves && k < x->ns; k++) whole &= (r = dense(a, x->s[k])) == UINT32_MAX || has(set, r);
  for (uint32_t k = 0; k < x->nd; k++)
    if ((r = dense(a, x->d[k])) != UINT32_MAX) {
      if (whole)
        put(set, r);
      else if (x->moves && !x->guard)
        drop(set, r);
    }
}

/* --- data flow ----------------------------------------------------------------------------------- */
static void flow_live(analysis *a, word *now) {
  for (bool changed = true; changed;) {
    changed = false;
    for (uint32_t b = a->cfg.block_count; b-- > 0;) {
      const block *k = &a->cfg.blocks[b];
      memset(now, 0, a->words * sizeof *now);
      for (uint32_t s = 0; s < cfg_successors(k); s++)
        for (uint32_t i = 0; i < a->words; i++) now[i] |= a->at[cfg_successor(&a->cfg, k, s)].live_in[i];
      memcpy(a->at[b].live_out, now, a->words * sizeof *now);
      for (uint32_t i = k->end; i-- > k->begin;) step_back(a, &a->p->code[i], now);
      if (memcmp(now, a->at[b].live_in, a->words * sizeof *now) != 0) {
        memcpy(a->at[b].live_in, now, a->words * sizeof *now);
        changed = true;
      }
    }
  }
}

static void flow_set(analysis *a, word *now) {
  for (uint32_t b = 0; b < a->cfg.block_count; b++) memset(a->at[b].set_in, b ? 0xff : 0, a->words * sizeof *now);
  for (bool changed = true; changed;) {
    changed = false;
    for (uint32_t b = 0; b < a->cfg.block_count; b++) {
      const block *k = &a->cfg.blocks[b];
      memcpy(now, a->at[b].set_in, a->words * sizeof *now);
      for (uint32_t i = k->begin; i < k->end; i++) step_on(a, &a->p->code[i], now);
      for (uint32_t s = 0; s < cfg_successors(k); s++) {
        word *in = a->at[cfg_successor(&a->cfg, k, s)].set_in;
        for (uint32_t i = 0; i < a->words; i++)
          if (in[i] & ~now[i]) {
            in[i] &= now[i];
            changed = true;
          }
      }
    }
  }
}

static void find_lives(analysis *a, word *now) {
  for (uint32_t r = 0; r < a->count; r++) a->begin[r] = UINT32_MAX;
  for (uint32_t b = 0; b < a->cfg.block_count; b++) {
    const block *k = &a->cfg.blocks[b];
    const sets *at = &a->at[b];
    memcpy(now, at->set_in, a->words * sizeof *now);
    for (uint32_t r = 0; r < a->count; r++) {
      uint32_t lo = has(at->live_in, r) ? k->begin : UINT32_MAX, hi = has(at->live_out, r) ? k->end : 0;
      if (lo < a->begin[r]) a->begin[r] = lo;
      if (hi > a->end[r]) a->end[r] = hi;
      if (has(at->live_out, r) && k->end - 1 < a->begin[r]) a->begin[r] = k->end - 1;
    }
    for (uint32_t i = k->begin; i < k->end; i++) {
      const instr *x = &a->p->code[i];
      for (uint32_t n = 0; n <= (uint32_t)x->ns + x->nd; n++) {
        uint32_t v = n < x->ns ? x->s[n] : n == x->ns ? x->guard : x->d[n - x->ns - 1], r = dense(a, v);
        if (r == UINT32_MAX) continue;
        if (i < a->begin[r]) a->begin[r] = i;
        if (i + 1 > a->end[r]) a->end[r] = i + 1;
        if (n <= x->ns && !has(now, r)) a->maybe[r] = true;
      }
      step_on(a, x, now);
    }
  }
}

/* --- slots --------------------------------------------------------------------------------------- */
typedef struct life {
  uint32_t begin, end, value;
} life;

static int by_begin(const void *x, const void *y) {
  const life *a = x, *b = y;
  return a->begin < b->begin ? -1 : a->begin > b->begin;
}

/* Linear scan, for one width. Returns the number of slots, which begin at *offset. */
static bool give_slots(program *p, life *lives, uint32_t n, uint32_t bytes, uint32_t *offset) {
  uint32_t *busy = calloc(n + 1, sizeof *busy), slots = 0;
  if (!busy) return false;
  qsort(lives, n, sizeof *lives, by_begin);
  for (uint32_t i = 0; i < n; i++) {
    uint32_t s = 0;
    while (s < slots && busy[s] > lives[i].begin) s++;
    if (s == slots) slots++;
    busy[s] = lives[i].end;
    p->values[lives[i].value].offset = *offset + s * bytes;
  }
  *offset += slots * bytes;
  free(busy);
  return true;
}

static bool place_function(analysis *a, uint32_t *offset) {
  program *p = a->p;
  life *lives = calloc(a->count + 1, sizeof *lives);
  bool ok = lives != NULL;
  for (unsigned width = 4; ok && width <= 8; width += 4) {
    uint32_t n = 0;
    for (uint32_t v = 1; v < p->value_count; v++) {
      uint32_t r = a->index[v];
      if (r == UINT32_MAX || p->values[v].width != width || a->begin[r] == UINT32_MAX) continue;
      bool own = a->maybe[r] || v == a->f->return_value; /* must keep what they hold */
      lives[n++] = (life){own ? 0 : a->begin[r], own ? UINT32_MAX : a->end[r], v};
      if (a->maybe[r]) p->values[v].tracked = 1;
    }
    ok = give_slots(p, lives, n, width * LANES, offset);
  }
  free(lives);
  return ok;
}

static void count_registers(const analysis *a, program *p, word *now) {
  for (uint32_t b = 0; b < a->cfg.block_count; b++) {
    const block *k = &a->cfg.blocks[b];
    memcpy(now, a->at[b].live_out, a->words * sizeof *now);
    uint32_t most = 0;
    for (uint32_t i = k->end; i-- > k->begin;) {
      step_back(a, &p->code[i], now);
      if ((i & 7) && i != k->begin) continue; /* now and then */
      uint32_t n = 0;
      for (uint32_t v = 1; v < p->value_count; v++)
        if (a->index[v] != UINT32_MAX && has(now, a->index[v]) && !p->values[v].predicate) n += p->values[v].width / 4;
      if (n > most) most = n;
    }
    if (most > p->registers) p->registers = most;
  }
}

static bool analyse_function(program *p, const code_function *f, uint32_t *offset) {
  analysis a = {.p = p, .f = f};
  bool ok = false;
  word *now = NULL;
  a.index = malloc(p->value_count * sizeof *a.index);
  if (!a.index || !cfg_create(&a.cfg, p, f->begin, f->end)) goto done;
  memset(a.index, 0xff, p->value_count * sizeof *a.index);
  for (uint32_t i = f->begin; i < f->end; i++) {
    const instr *x = &p->code[i];
    for (uint32_t n = 0; n <= (uint32_t)x->ns + x->nd; n++) {
      uint32_t v = n < x->ns ? x->s[n] : n == x->ns ? x->guard : x->d[n - x->ns - 1];
      if (v && p->values[v].kind == VALUE_REG && a.index[v] == UINT32_MAX) a.index[v] = a.count++;
    }
  }
  if (a.index[f->return_value] == UINT32_MAX) a.index[f->return_value] = a.count++;
  a.words = a.count / BITS + 1;
  now = calloc(a.words, sizeof *now);
  a.at = calloc(a.cfg.block_count, sizeof *a.at);
  a.memory = calloc((size_t)a.cfg.block_count * 3 * a.words, sizeof *a.memory);
  a.begin = calloc(a.count, sizeof *a.begin);
  a.end = calloc(a.count, sizeof *a.end);
  a.maybe = calloc(a.count, sizeof *a.maybe);
  if (!now || !a.at || !a.memory || !a.begin || !a.end || !a.maybe) goto done;
  for (uint32_t b = 0; b < a.cfg.block_count; b++) {
    word *m = a.memory + (size_t)b * 3 * a.words;
    a.at[b] = (sets){m, m + a.words, m + 2 * a.words};
  }
  flow_live(&a, now);
  flow_set(&a, now);
  find_lives(&a, now);
  a.begin[a.index[f->return_value]] = 0;
  a.maybe[a.index[f->return_value]] = false;
  count_registers(&a, p, now);
  ok = place_function(&a, offset);
done:
  free(a.index);
  cfg_release(&a.cfg);
  free(a.at);
  free(a.memory);
  free(a.begin);
  free(a.end);
  free(a.maybe);
  free(now);
  return ok;
}

/* --- the whole program --------------------------------------------------------------------------- */
static bool add_check(const program *p, instr *x) {
  bool needed = p->values[x->guard].tracked;
  for (uint32_t k = 0; k < x->ns; k++) needed |= p->values[x->s[k]].tracked != 0;
  for (uint32_t k = 0; k < x->nd; k++) needed |= p->values[x->d[k]].tracked != 0;
  if (!needed) return true;
  init_check *c = x->check = calloc(1, sizeof *c);
  if (!c) return false;
  for (uint32_t k = 0; k <= x->ns; k++) { /* the guard comes last */
    const value *v = &p->values[k < x->ns ? x->s[k] : x->guard];
    c->src[c->src_count] = v->tracked;
    c->src_name[c->src_count] = v->name;
    c->src_number[c->src_count++] = v->number;
  }
  for (uint32_t k = 0; k < x->nd; k++) c->dst[c->dst_count++] = p->values[x->d[k]].tracked;
  return true;
}

bool program_analyse(program *p) {
  uint32_t offset = 4 * LANES; /* the first slot is nobody's */
  for (uint32_t v = 1; v < p->value_count; v++)
    if (p->values[v].kind != VALUE_REG) {
      p->values[v].offset = offset;
      offset += (uint32_t)p->values[v].width * LANES;
    }
  for (uint32_t f = 0; f < p->function_count; f++)
    if (!analyse_function(p, &p->functions[f], &offset)) return false;
  p->tracked_first = offset;
  for (uint32_t v = 1; v < p->value_count; v++)
    if (p->values[v].tracked) {
      p->values[v].tracked = offset;
      offset += 4;
    }
  p->tracked_bytes = offset - p->tracked_first;
  p->register_bytes = offset;
  p->values[0].tracked = 0;
  for (uint32_t i = 0; i < p->count; i++) {
    instr *x = &p->code[i];
    if (!add_check(p, x)) return false;
    x->special = x->guard || x->check;
    for (uint32_t k = 0; k < x->ns; k++) x->s[k] = p->values[x->s[k]].offset;
    for (uint32_t k = 0; k < x->nd; k++) x->d[k] = p->values[x->d[k]].offset;
    if (x->guard) x->guard = p->values[x->guard].offset;
  }
  for (uint32_t f = 0; f < p->function_count; f++)
    p->functions[f].return_value = p->values[p->functions[f].return_value].offset;
  return true;
}
