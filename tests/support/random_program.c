/* random_program.c: random mask programs: structured control flow, every operation, values of any width, all of them
 * defined. */
#include "interpret.h"

enum { MOST_VALUES = 512 };

typedef struct maker {
  test_random *random;
  flyi_program *p;
  bool unknowns;
  int32_t first;              /* of the open block */
  int phis, loop;             /* of the open block */
  int32_t value[MOST_VALUES]; /* that may be used here */
  int values, budget;
} maker;

static int64_t range(maker *m, int64_t lo, int64_t hi) { return test_range(m->random, lo, hi); }
static int width_of(const maker *m, int32_t value) { return flyi_value_width(m->p, value); }

static int32_t keep(maker *m, int32_t value) {
  if (m->values < MOST_VALUES) m->value[m->values++] = value;
  return value;
}

static int32_t constant(maker *m, int width, int64_t k) {
  return put_k(m->p, FLYI_OP_CONST, width, 0, number_of(width, (uint64_t)k));
}

static int32_t pick(maker *m) {
  return m
      ->value[range(m, 0, 1) ? range(m, 0, m->values - 1) : range(m, m->values > 8 ? m->values - 8 : 0, m->values - 1)];
}

/* Some value, converted to the width. */
static int32_t of_width(maker *m, int width) {
  if (range(m, 0, 5) == 0) {
    int64_t k = range(m, 0, 2) ? range(m, -70, 70) : (int64_t)(test_next(m->random) >> range(m, 0, 63));
    return constant(m, width, k);
  }
  int32_t v = pick(m);
  int from = width_of(m, v);
  if (from == width) return v;
  if (from > width) return put(m->p, FLYI_OP_TRUNC, width, v, 0);
  return put(m->p, range(m, 0, 1) ? FLYI_OP_SEXT : FLYI_OP_ZEXT, width, v, 0);
}

static int some_width(maker *m) {
  static const int common[] = {8, 16, 32, 32, 32, 64};
  return range(m, 0, 6) ? common[range(m, 0, 5)] : (int)range(m, 2, 64);
}

static int32_t truth(maker *m) {
  static const flyi_op ops[] = {FLYI_OP_EQ, FLYI_OP_NE, FLYI_OP_SLT, FLYI_OP_SLE, FLYI_OP_ULT, FLYI_OP_ULE};
  int w = some_width(m);
  int32_t a = of_width(m, w), b = of_width(m, w);
  return put(m->p, ops[range(m, 0, 5)], 1, a, b);
}

static int32_t nonzero(maker *m, int w) {
  int32_t d = of_width(m, w), zero = put(m->p, FLYI_OP_EQ, 1, d, constant(m, w, 0));
  return put3(m->p, FLYI_OP_SELECT, w, zero, constant(m, w, 1), d);
}

static int32_t load(maker *m) {
  int which = (int)range(m, 0, 1);
  int32_t count = put_k(m->p, FLYI_OP_COUNT, 64, 0, which), index = of_width(m, 64);
  int32_t last = put(m->p, FLYI_OP_SUB, 64, count, constant(m, 64, 1));
  index = put(m->p, FLYI_OP_SMAX, 64, put(m->p, FLYI_OP_SMIN, 64, index, last), constant(m, 64, 0));
  return put_k(m->p, FLYI_OP_LOAD, which ? 8 : 32, index, which);
}

/* table[row * columns + column], as two-dimensional buffers are read. */
static int32_t load_table(maker *m) {
  int64_t columns = range(m, 2, 9);
  int32_t row = put(m->p, FLYI_OP_UDIV, 64, put(m->p, FLYI_OP_ZEXT, 64, of_width(m, 32), 0),
                    constant(m, 64, range(m, 1, 40)));
  int32_t column = put(m->p, FLYI_OP_ZEXT, 64, of_width(m, 32), 0);
  if (range(m, 0, 2)) column = put(m->p, FLYI_OP_UREM, 64, column, constant(m, 64, columns));
  int32_t index = put(m->p, FLYI_OP_ADD, 64, put(m->p, FLYI_OP_MUL, 64, row, constant(m, 64, columns)), column);
  int32_t last = put(m->p, FLYI_OP_SUB, 64, put_k(m->p, FLYI_OP_COUNT, 64, 0, 0), constant(m, 64, 1));
  index = put(m->p, FLYI_OP_SMAX, 64, put(m->p, FLYI_OP_SMIN, 64, index, last), constant(m, 64, 0));
  return put_k(m->p, FLYI_OP_LOAD, 32, index, 0);
}

/* The same in widths where product and sum wrap. */
static int32_t load_wrapped(maker *m) {
  int w = (int)range(m, 3, 9), wider = w + (int)range(m, 0, 3), columns = 1 << range(m, 1, w - 2);
  int32_t row = put(m->p, FLYI_OP_UREM, w, of_width(m, w), constant(m, w, range(m, 1, (1 << (w - 1)) - 1)));
  row = put(m->p, FLYI_OP_ADD, w, row, constant(m, w, range(m, 0, (1 << (w - 1)) - 1)));
  if (range(m, 0, 1))
    row = put(m->p, FLYI_OP_MUL, w, row, constant(m, w, columns));
  else
    row = put(m->p, FLYI_OP_SHL, w, row, constant(m, w, __builtin_ctz((unsigned)columns)));
  int32_t column = put(m->p, FLYI_OP_AND, w, of_width(m, w), constant(m, w, columns - 1));
  if (wider > w) {
    row = put(m->p, range(m, 0, 1) ? FLYI_OP_ZEXT : FLYI_OP_SEXT, wider, row, 0);
    column = put(m->p, FLYI_OP_ZEXT, wider, column, 0);
  }
  int32_t index = put(m->p, FLYI_OP_ZEXT, 64, put(m->p, FLYI_OP_ADD, wider, row, column), 0);
  int32_t last = put(m->p, FLYI_OP_SUB, 64, put_k(m->p, FLYI_OP_COUNT, 64, 0, 0), constant(m, 64, 1));
  index = put(m->p, FLYI_OP_SMAX, 64, put(m->p, FLYI_OP_SMIN, 64, index, last), constant(m, 64, 0));
  return put_k(m->p, FLYI_OP_LOAD, 32, index, 0);
}

static int32_t outside(maker *m) {
  switch (range(m, 0, 8)) {
  case 8:
    return load_wrapped(m);
  case 0:
    return put_k(m->p, FLYI_OP_PARAM, 32, 0, range(m, 0, 1));
  case 1:
    return put_k(m->p, FLYI_OP_DIM, 64, 0, range(m, 0, 7));
  case 2:
    return put(m->p, range(m, 0, 1) ? FLYI_OP_LEN_Q : FLYI_OP_LEN_KV, 32, range(m, 0, 2) ? 0 : of_width(m, 32), 0);
  case 3:
    return put3(m->p, FLYI_OP_TOKEN_Q, 32, 0, 1, range(m, 0, 2) ? 2 : of_width(m, 32));
  case 4:
    return put3(m->p, FLYI_OP_TOKEN_KV, 32, 0, 1, range(m, 0, 2) ? 3 : of_width(m, 32));
  case 5:
    return load_table(m);
  default:
    return load(m);
  }
}

static void instruction(maker *m) {
  int w = some_width(m);
  int32_t a, b;
  m->budget--;
  if (m->unknowns && range(m, 0, 9) == 0) {
    keep(m, put(m->p, FLYI_OP_UNKNOWN, range(m, 0, 1) ? 1 : w, 0, 0));
    return;
  }
  switch (range(m, 0, 12)) {
  case 0:
  case 1:
    keep(m, outside(m));
    break;
  case 2:
  case 3:
    keep(m, truth(m));
    break;
  case 4:
    a = truth(m), b = truth(m), keep(m, put(m->p, FLYI_OP_AND + (flyi_op)range(m, 0, 2), 1, a, b));
    break;
  case 5:
    a = truth(m), b = of_width(m, w), keep(m, put3(m->p, FLYI_OP_SELECT, w, a, b, of_width(m, w)));
    break;
  case 6:
    a = of_width(m, w), keep(m, put(m->p, FLYI_OP_UDIV + (flyi_op)range(m, 0, 3), w, a, nonzero(m, w)));
    break;
  case 7:
    a = of_width(m, w), b = constant(m, w, range(m, 0, w - 1 < 100 ? w - 1 : 63) & (w < 8 ? 1 : 63)),
    keep(m, put(m->p, FLYI_OP_SHL + (flyi_op)range(m, 0, 2), w, a, b));
    break;
  case 8:
    keep(m, put(m->p, FLYI_OP_ABS + (flyi_op)range(m, 0, 3), w, of_width(m, w), 0));
    break;
  case 9:
    a = of_width(m, 32), keep(m, put(m->p, range(m, 0, 1) ? FLYI_OP_ADD : FLYI_OP_SUB, 32, a, of_width(m, 32)));
    break;
  default:
    a = of_width(m, w), b = of_width(m, w);
    flyi_op op = range(m, 0, 1) ? FLYI_OP_ADD + (flyi_op)range(m, 0, 2) : FLYI_OP_AND + (flyi_op)range(m, 0, 6);
    keep(m, put(m->p, op, w, a, b));
  }
}

static void close_block(maker *m, flyi_end end, int32_t value, int32_t edge) {
  end_block(m->p, m->first, m->phis, m->loop, end, value, edge);
  m->first = m->p->instructions, m->phis = m->loop = 0;
}

static int32_t open_phi(maker *m, int width) {
  m->phis++;
  return put(m->p, FLYI_OP_PHI, width, 0, 0);
}

static void statements(maker *m, int depth);

/* if (c) ..; else ..; or a switch: arms that join with one phi. */
static void fork_and_join(maker *m, int depth) {
  int arms = (int)range(m, 2, 4), width = range(m, 0, 3) ? some_width(m) : 1;
  int32_t value = arms == 2 ? truth(m) : of_width(m, 32), edge = m->p->edges, jump[4];
  for (int k = 0; k < arms; k++) add_edge(m->p, 0, k - 1, NULL, 0); /* targets below */
  close_block(m, arms == 2 ? FLYI_END_BRANCH : FLYI_END_SWITCH, value, edge);
  int outer = m->values;
  for (int k = 0; k < arms; k++) {
    m->p->edge[edge + k].target = m->p->blocks;
    statements(m, depth - 1);
    int32_t arg = of_width(m, width);
    jump[k] = m->p->edges;
    add_edge(m->p, 0, 0, &arg, 1);
    close_block(m, FLYI_END_JUMP, 0, jump[k]);
    m->values = outer;
  }
  for (int k = 0; k < arms; k++) m->p->edge[jump[k]].target = m->p->blocks;
  keep(m, open_phi(m, width));
}

/* for (i = 0, x = ..; i < n; i++) { ..; if (c) break; x = ..; } */
static void loop(maker *m, int depth) {
  int width = some_width(m);
  int32_t start[2] = {constant(m, 32, 0), of_width(m, width)}, edge = m->p->edges;
  add_edge(m->p, m->p->blocks + 1, 0, start, 2);
  close_block(m, FLYI_END_JUMP, 0, edge);
  int32_t header = m->p->blocks, outer = m->values;
  int32_t i = open_phi(m, 32), x = open_phi(m, width);
  int32_t limit = range(m, 0, 1)
                      ? constant(m, 32, range(m, 0, 6))
                      : put(m->p, FLYI_OP_SMIN, 32, put_k(m->p, FLYI_OP_PARAM, 32, 0, 0), constant(m, 32, 6));
  int32_t more = put(m->p, FLYI_OP_SLT, 1, i, limit), out = m->p->edges, leave = -1;
  add_edge(m->p, header + 1, 0, NULL, 0);
  add_edge(m->p, 0, 0, &x, 1);
  close_block(m, FLYI_END_BRANCH, more, out);
  keep(m, i), keep(m, x);
  statements(m, depth - 1);
  if (range(m, 0, 1)) {
    int32_t stop = truth(m), value = of_width(m, width);
    leave = m->p->edges;
    add_edge(m->p, 0, 0, &value, 1);
    add_edge(m->p, m->p->blocks + 1, 0, NULL, 0);
    close_block(m, FLYI_END_BRANCH, stop, leave);
  }
  int32_t next[2] = {put(m->p, FLYI_OP_ADD, 32, i, constant(m, 32, 1)), of_width(m, width)}, back = m->p->edges;
  add_edge(m->p, header, 0, next, 2);
  close_block(m, FLYI_END_JUMP, 0, back);
  m->p->block[header].loop = m->p->blocks - header;
  m->p->edge[out + 1].target = m->p->blocks;
  if (leave >= 0) m->p->edge[leave].target = m->p->blocks;
  m->values = outer;
  keep(m, open_phi(m, width));
}

static void statements(maker *m, int depth) {
  for (int64_t n = range(m, 1, 4); n > 0 && m->budget > 0; n--) {
    int64_t kind = depth > 0 ? range(m, 0, 9) : 9;
    if (kind == 0)
      loop(m, depth);
    else if (kind < 3)
      fork_and_join(m, depth);
    else
      instruction(m);
  }
}

void random_program(test_random *random, bool unknowns, flyi_program *out) {
  *out = (flyi_program){.reads = FLYI_READS_DIRECT_B | FLYI_READS_DIRECT_H | 0xff};
  maker m = {.random = random, .p = out, .unknowns = unknowns, .budget = 30};
  for (int32_t v = 0; v < FLYI_VALUE_FIRST; v++) keep(&m, v);
  keep(&m, put(out, FLYI_OP_SUB, 32, FLYI_VALUE_Q, FLYI_VALUE_KV));
  statements(&m, 3);
  int32_t a = truth(&m), b = truth(&m);
  int32_t answer = put(out, range(&m, 0, 1) ? FLYI_OP_AND : FLYI_OP_OR, 1, a, b);
  close_block(&m, FLYI_END_RETURN, answer, out->edges);
}
