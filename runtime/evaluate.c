/* evaluate.c: nodes over a box of pairs. This is the loop that building a map spends its time in: a few nanoseconds
 * a node. */
#include "nodes.h"

static inline flyi_interval affine(const flyi_node *i, const flyi_box *box) {
  int64_t a = i->q * box->q0, b = i->q * box->q1, c = i->kv * box->kv0, d = i->kv * box->kv1;
  return (flyi_interval){i->k + (a < b ? a : b) + (c < d ? c : d), i->k + (a < b ? b : a) + (c < d ? d : c)};
}

/* The hull of the values whose condition may hold; a condition that is certain excludes the others. */
static flyi_interval join(const flyi_nodes *nodes, const flyi_node *i, const flyi_interval *value) {
  flyi_interval r = {1, 0};
  const int32_t *pair = nodes->arg + i->c;
  for (int64_t n = 0; n < i->k; n++, pair += 2) {
    flyi_interval condition = value[pair[0]];
    if (condition.lo) return value[pair[1]];
    if (condition.hi) r = r.lo > r.hi ? value[pair[1]] : flyi_hull(r, value[pair[1]]);
  }
  return r.lo > r.hi ? flyi_top(i->width) : r;
}

static inline flyi_interval negated(const flyi_node *i, flyi_interval truth) {
  return i->negate ? flyi_not(truth) : truth;
}

static inline flyi_interval node_value(const flyi_nodes *nodes, const flyi_node *i, const flyi_interval *value,
                                       const flyi_box *box) {
  int w = i->width;
  flyi_interval x = value[i->a], y = value[i->b], d;
  switch ((flyi_node_op)i->op) {
  case FLYI_NODE_UNKNOWN:
    return flyi_top(w);
  case FLYI_NODE_CONSTANT:
    return (flyi_interval){i->k, i->k};
  case FLYI_NODE_AFFINE:
    return affine(i, box);
  case FLYI_NODE_NEGATIVE:
    d = affine(i, box);
    return flyi_truth(d.lo < 0, d.hi < 0);
  case FLYI_NODE_ZERO:
    d = affine(i, box);
    return negated(i, flyi_truth(d.lo <= 0 && d.hi >= 0, d.lo == 0 && d.hi == 0));
  case FLYI_NODE_ADD:
    return flyi_add(w, x, y);
  case FLYI_NODE_SUB:
    return flyi_sub(w, x, y);
  case FLYI_NODE_MUL:
    return flyi_mul(w, x, y);
  case FLYI_NODE_UDIV:
    return flyi_udiv(w, x, y);
  case FLYI_NODE_SDIV:
    return flyi_sdiv(w, x, y);
  case FLYI_NODE_UREM:
    return flyi_urem(w, x, y);
  case FLYI_NODE_SREM:
    return flyi_srem(w, x, y);
  case FLYI_NODE_SHL:
    return flyi_shl(w, x, y);
  case FLYI_NODE_LSHR:
    return flyi_lshr(w, x, y);
  case FLYI_NODE_ASHR:
    return flyi_ashr(w, x, y);
  case FLYI_NODE_AND:
    return flyi_and(w, x, y);
  case FLYI_NODE_OR:
    return flyi_or(w, x, y);
  case FLYI_NODE_XOR:
    return flyi_xor(w, x, y);
  case FLYI_NODE_SMAX:
    return flyi_smax(x, y);
  case FLYI_NODE_SMIN:
    return flyi_smin(x, y);
  case FLYI_NODE_UMAX:
    return flyi_umax(w, x, y);
  case FLYI_NODE_UMIN:
    return flyi_umin(w, x, y);
  case FLYI_NODE_ABS:
    return flyi_abs(w, x);
  case FLYI_NODE_POPCOUNT:
    return flyi_popcount(w, x);
  case FLYI_NODE_CTLZ:
    return flyi_ctlz(w, x);
  case FLYI_NODE_CTTZ:
    return flyi_cttz(w, x);
  case FLYI_NODE_ZEXT:
    return flyi_zext(i->from, x);
  case FLYI_NODE_SEXT:
    return flyi_sext(i->from, x);
  case FLYI_NODE_TRUNC:
    return flyi_trunc(w, x);
  case FLYI_NODE_EQUAL:
    return negated(i, flyi_equal(x, y));
  case FLYI_NODE_LESS:
    return negated(i, flyi_less(x, y));
  case FLYI_NODE_BELOW:
    return negated(i, flyi_below(i->from, x, y));
  case FLYI_NODE_NOT:
    return flyi_not(x);
  case FLYI_NODE_SELECT:
    return x.lo ? y : !x.hi ? value[i->c] : flyi_hull(y, value[i->c]);
  case FLYI_NODE_JOIN:
    return join(nodes, i, value);
  case FLYI_NODE_ROUND:
    return flyi_round_down(x, i->k);
  case FLYI_NODE_LOAD:
    return flyi_pyramid_range(nodes->array[i->c], x);
  case FLYI_NODE_LOAD_BOX:
    return flyi_mip_range(nodes->mip[i->c], x, y);
  }
  return flyi_top(w);
}

flyi_interval flyi_node_value(const flyi_nodes *nodes, const flyi_node *node, const flyi_interval *value,
                              const flyi_box *box) {
  return node_value(nodes, node, value, box);
}

_Static_assert(sizeof(flyi_bits) == sizeof(flyi_interval), "they share an array");

void flyi_nodes_evaluate(const flyi_nodes *nodes, int32_t from, int32_t to, const flyi_box *box, flyi_interval *value) {
  flyi_bits *bits = (flyi_bits *)(value + nodes->count);
  if (!nodes->bitwise) {
    for (int32_t j = from; j < to; j++) value[j] = node_value(nodes, &nodes->node[j], value, box);
    return;
  }
  for (int32_t j = from; j < to; j++) {
    value[j] = node_value(nodes, &nodes->node[j], value, box);
    if (nodes->bitwise[j]) value[j] = flyi_node_bits(nodes, j, value, value[j], bits);
  }
}
