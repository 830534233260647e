/* bits.c: what is known of the single bits of nodes over a box, where intervals forget them: a word of flags has hardly
 * an interval, but its bits tell whether two words share one, or whether any of those that a shift may pick is set.
 *
 * Input: a node, and what is known of its operands, as intervals and bits. Output: its bits, of the 64-bit
 * sign-extended number. Only nodes whose bits some other node looks at take part (flyi_nodes.bitwise). */
#include <stdlib.h>

#include "nodes.h"

static inline uint64_t any(flyi_bits x) { return x.one | x.open; }
static inline flyi_bits from_any(uint64_t one, uint64_t any_of) { return (flyi_bits){one, any_of & ~one}; }
static inline flyi_bits either(flyi_bits a, flyi_bits b) { return from_any(a.one & b.one, any(a) | any(b)); }

/* The low w bits, unsigned. */
static flyi_bits low(int w, flyi_bits x) {
  uint64_t mask = w == 64 ? ~0ull : ~(~0ull << w);
  return (flyi_bits){x.one & mask, x.open & mask};
}

/* Bit w - 1 repeated above: where it is open, so are they. One bit is 0 or 1. */
static flyi_bits extend(int w, flyi_bits x) {
  x = low(w, x);
  uint64_t above = w == 64 || w == 1 ? 0 : ~0ull << w;
  if (x.one >> (w - 1) & 1) x.one |= above;
  if (x.open >> (w - 1) & 1) x.open |= above;
  return x;
}

/* By any count of the interval that is within the width; others may give anything. */
static flyi_bits shift(const flyi_node *i, flyi_bits x, flyi_interval count) {
  int w = i->width;
  if (count.lo < 0 || count.hi >= w) return (flyi_bits){0, ~0ull};
  flyi_bits r = {~0ull, 0};
  x = i->op == FLYI_NODE_ASHR ? x : low(w, x);
  for (int64_t c = count.lo; c <= count.hi; c++) {
    flyi_bits y = i->op == FLYI_NODE_SHL ? from_any(x.one << c, any(x) << c)
                  : i->op == FLYI_NODE_LSHR
                      ? from_any(x.one >> c, any(x) >> c)
                      : from_any((uint64_t)((int64_t)x.one >> c), (uint64_t)((int64_t)any(x) >> c));
    r = c == count.lo ? y : either(r, y);
  }
  return extend(w, r);
}

static flyi_bits of_join(const flyi_nodes *n, const flyi_node *i, const flyi_interval *value, const flyi_bits *bits) {
  flyi_bits r = {0, 0};
  const int32_t *pair = n->arg + i->c;
  bool first = true;
  for (int64_t k = 0; k < i->k; k++, pair += 2) {
    if (!value[pair[0]].hi) continue;
    r = first ? bits[pair[1]] : either(r, bits[pair[1]]);
    first = false;
  }
  return first ? (flyi_bits){0, ~0ull} : r;
}

static flyi_bits of_node(const flyi_nodes *n, const flyi_node *i, const flyi_interval *value, const flyi_bits *bits) {
  flyi_bits x = bits[i->a], y = bits[i->b];
  switch (i->op) {
  case FLYI_NODE_AND:
    return from_any(x.one & y.one, any(x) & any(y));
  case FLYI_NODE_ADD: /* without carries */
    return any(x) & any(y) ? (flyi_bits){0, ~0ull} : from_any(x.one | y.one, any(x) | any(y));
  case FLYI_NODE_OR:
    return from_any(x.one | y.one, any(x) | any(y));
  case FLYI_NODE_XOR:
    return (flyi_bits){(x.one ^ y.one) & ~(x.open | y.open), x.open | y.open};
  case FLYI_NODE_SHL:
  case FLYI_NODE_LSHR:
  case FLYI_NODE_ASHR:
    return shift(i, x, value[i->b]);
  case FLYI_NODE_ZEXT:
    return low(i->from, x);
  case FLYI_NODE_TRUNC:
    return extend(i->width, x);
  case FLYI_NODE_SEXT:
    return i->from > 1 ? x : (flyi_bits){0, ~0ull};
  case FLYI_NODE_SELECT:
    return value[i->a].lo ? y : !value[i->a].hi ? bits[i->c] : either(y, bits[i->c]);
  case FLYI_NODE_JOIN:
    return of_join(n, i, value, bits);
  case FLYI_NODE_LOAD:
    return flyi_pyramid_bits(n->array[i->c], value[i->a]);
  case FLYI_NODE_LOAD_BOX:
    return flyi_mip_bits(n->mip[i->c], value[i->a], value[i->b]);
  default:
    return (flyi_bits){0, ~0ull};
  }
}

/* Where one operand can have no bits but those that the other surely has, it is the result. */
static flyi_interval of_and(const flyi_node *i, const flyi_interval *value, const flyi_bits *bits,
                            flyi_interval known) {
  if (!(any(bits[i->b]) & ~bits[i->a].one)) return value[i->b];
  return any(bits[i->a]) & ~bits[i->b].one ? known : value[i->a];
}

flyi_interval flyi_node_bits(const flyi_nodes *n, int32_t j, const flyi_interval *value, flyi_interval known,
                             flyi_bits *bits) {
  const flyi_node *i = &n->node[j];
  if (i->op == FLYI_NODE_AND) known = of_and(i, value, bits, known);
  flyi_bits x = of_node(n, i, value, bits), own = flyi_bits_of(known);
  flyi_bits both = from_any(x.one | own.one, any(x) & any(own));
  flyi_interval r = flyi_from_bits(i->width, both);
  bits[j] = own;
  if ((both.one & ~(any(x) & any(own))) || r.lo > known.hi || r.hi < known.lo) return known; /* never reached */
  bits[j] = both;
  return (flyi_interval){r.lo > known.lo ? r.lo : known.lo, r.hi < known.hi ? r.hi : known.hi};
}

/* ---- which nodes ------------------------------------------------------------------------------------------------- */

static bool is_logic(const flyi_node *i) {
  return i->width > 1 && (i->op == FLYI_NODE_AND || i->op == FLYI_NODE_OR || i->op == FLYI_NODE_XOR);
}

static bool keeps_bits(const flyi_node *i) {
  return i->op == FLYI_NODE_SHL || i->op == FLYI_NODE_LSHR || i->op == FLYI_NODE_ASHR || i->op == FLYI_NODE_ZEXT ||
         i->op == FLYI_NODE_SEXT || i->op == FLYI_NODE_TRUNC;
}

/* Whether a node's bits say more than its interval: words that are read, and what logic made. */
static bool has_bits(const flyi_node *i, const uint8_t *source) {
  if (i->op == FLYI_NODE_SELECT) return source[i->b] || source[i->c];
  if (i->op == FLYI_NODE_ADD) return source[i->a] && source[i->b]; /* LLVM's for an or without common bits */
  return i->op == FLYI_NODE_LOAD || i->op == FLYI_NODE_LOAD_BOX || is_logic(i) || (keeps_bits(i) && source[i->a]);
}

/* The operands whose bits a node looks at. */
static void want_operands(const flyi_nodes *n, const flyi_node *i, uint8_t *wants) {
  if (is_logic(i) || i->op == FLYI_NODE_ADD) wants[i->a] = wants[i->b] = 1;
  if (keeps_bits(i)) wants[i->a] = 1;
  if (i->op == FLYI_NODE_SELECT) wants[i->b] = wants[i->c] = 1;
  for (int64_t k = 0; i->op == FLYI_NODE_JOIN && k < i->k; k++) wants[n->arg[i->c + 2 * k + 1]] = 1;
}

static bool prepare(const flyi_nodes *n, const flyi_node *i) {
  if (i->op == FLYI_NODE_LOAD) return flyi_pyramid_prepare_bits(n->array[i->c]);
  return i->op != FLYI_NODE_LOAD_BOX || flyi_mip_prepare_bits(n->mip[i->c]);
}

bool flyi_nodes_find_bits(flyi_nodes *n) {
  uint8_t *source = flyi_alloc(n->count, 1), *wants = flyi_alloc(n->count, 1);
  bool ok = source && wants, some = false;
  for (int32_t j = 1; ok && j < n->count; j++) {
    const flyi_node *i = &n->node[j];
    source[j] = has_bits(i, source);
    bool looks = (is_logic(i) && (source[i->a] || source[i->b])) || (i->op == FLYI_NODE_TRUNC && source[i->a]);
    some |= wants[j] = looks;
  }
  for (int32_t j = n->count - 1; ok && some && j > 0; j--) {
    if (!wants[j]) continue;
    want_operands(n, &n->node[j], wants);
    ok = prepare(n, &n->node[j]);
  }
  free(source);
  if (ok && some)
    n->bitwise = wants;
  else
    free(wants);
  return ok;
}
