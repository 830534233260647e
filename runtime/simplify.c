/* simplify.c: the rules by which nodes are made. Each replaces an expression by one with the same value everywhere
 * in the domain, which is faster to evaluate over a tile, or more precise: intervals forget that two operands move
 * together, one node does not. */
#include <math.h>

#include "nodes.h"

static const flyi_node *at(const flyi_nodes *n, int32_t a) { return &n->node[a]; }
static bool is_constant(const flyi_nodes *n, int32_t a) { return at(n, a)->op == FLYI_NODE_CONSTANT; }
static bool is_value(const flyi_nodes *n, int32_t a, int64_t k) { return is_constant(n, a) && at(n, a)->k == k; }
/* A constant counts as affine: its q and kv are 0. */
static bool is_affine(const flyi_nodes *n, int32_t a) { return is_constant(n, a) || at(n, a)->op == FLYI_NODE_AFFINE; }
static bool not_negative(const flyi_nodes *n, int32_t a) { return n->range[a].lo >= 0; }
static bool power_of_two(int64_t k) { return k > 0 && !(k & (k - 1)); }
static void swap(int32_t *a, int32_t *b) {
  int32_t t = *a;
  *a = *b, *b = t;
}

static flyi_node make(flyi_node_op op, int width, int32_t a, int32_t b, int32_t c) {
  return (flyi_node){.op = (uint8_t)op, .width = (uint8_t)width, .a = a, .b = b, .c = c};
}

/* ---- affine nodes ------------------------------------------------------------------------------------------------ */

typedef struct affine {
  flyi_int128 q, kv, k;
} affine;

static affine affine_of(const flyi_nodes *n, int32_t a) { return (affine){at(n, a)->q, at(n, a)->kv, at(n, a)->k}; }

static flyi_node affine_node(flyi_node_op op, int width, affine f) {
  flyi_node node = make(op, width, 0, 0, 0);
  node.q = (int64_t)f.q, node.kv = (int64_t)f.kv, node.k = (int64_t)f.k;
  return node;
}

static affine combine(affine x, affine y, int sign) {
  return (affine){x.q + sign * y.q, x.kv + sign * y.kv, x.k + sign * y.k};
}

static flyi_int128 span(flyi_int128 coefficient, int64_t lo, int64_t hi, flyi_int128 *most) {
  flyi_int128 a = coefficient * lo, b = coefficient * hi;
  *most += a > b ? a : b;
  return a < b ? a : b;
}

/* Its range over the domain; false where evaluating it in 64 bits might overflow. */
static bool affine_range(const flyi_nodes *n, affine f, flyi_interval *range) {
  const flyi_int128 limit = (flyi_int128)1 << 61;
  if (f.q <= -limit || f.q >= limit || f.kv <= -limit || f.kv >= limit || f.k <= -limit || f.k >= limit) return false;
  flyi_int128 parts[2] = {0, 0}, lo, hi = f.k;
  lo = f.k + span(f.q, n->domain.q0, n->domain.q1, &parts[0]) + span(f.kv, n->domain.kv0, n->domain.kv1, &parts[1]);
  hi += parts[0] + parts[1];
  for (int i = 0; i < 2; i++)
    if (parts[i] <= -limit || parts[i] >= limit) return false;
  if (lo <= -limit || hi >= limit) return false;
  *range = (flyi_interval){(int64_t)lo, (int64_t)hi};
  return true;
}

/* The affine node, where its value fits the width everywhere; otherwise 0. */
static int32_t try_affine(flyi_nodes *n, int width, affine f) {
  flyi_interval range;
  if (!affine_range(n, f, &range) || !flyi_fits(width, range)) return 0;
  return flyi_node_intern(n, affine_node(FLYI_NODE_AFFINE, width, f));
}

int32_t flyi_node_affine(flyi_nodes *n, int width, int64_t q, int64_t kv, int64_t k) {
  int32_t node = try_affine(n, width, (affine){q, kv, k});
  return node || n->failed ? node : flyi_node_unknown(n, width);
}

static int32_t affine_result(flyi_nodes *n, flyi_node_op op, int width, int32_t a, int32_t b) {
  if (!is_affine(n, a) || !is_affine(n, b)) return 0;
  affine x = affine_of(n, a), y = affine_of(n, b);
  if (op == FLYI_NODE_ADD) return try_affine(n, width, combine(x, y, 1));
  if (op == FLYI_NODE_SUB) return try_affine(n, width, combine(x, y, -1));
  bool shift = op == FLYI_NODE_SHL && is_constant(n, b) && y.k >= 0 && y.k < 62 && y.k < width;
  if (!shift && !(op == FLYI_NODE_MUL && is_constant(n, b))) return 0;
  flyi_int128 c = shift ? (flyi_int128)1 << (int)y.k : y.k;
  return try_affine(n, width, (affine){x.q * c, x.kv * c, x.k * c});
}

/* ---- arithmetic -------------------------------------------------------------------------------------------------- */

static bool commutes(flyi_node_op op) {
  return op == FLYI_NODE_ADD || op == FLYI_NODE_MUL || (op >= FLYI_NODE_AND && op <= FLYI_NODE_UMIN);
}

/* Where no operand is negative, signed and unsigned agree, and intervals are signed. */
static flyi_node_op signed_op(const flyi_nodes *n, flyi_node_op op, int32_t a, int32_t b) {
  if (!not_negative(n, a) || !not_negative(n, b)) return op;
  switch (op) {
  case FLYI_NODE_UDIV:
    return FLYI_NODE_SDIV;
  case FLYI_NODE_UREM:
    return FLYI_NODE_SREM;
  case FLYI_NODE_UMAX:
    return FLYI_NODE_SMAX;
  case FLYI_NODE_UMIN:
    return FLYI_NODE_SMIN;
  case FLYI_NODE_LSHR:
    return FLYI_NODE_ASHR;
  case FLYI_NODE_BELOW:
    return FLYI_NODE_LESS;
  default:
    return op;
  }
}

/* x op identity = x, and the like; -1 where there is nothing of the kind. */
static int32_t trivial(flyi_nodes *n, flyi_node_op op, int width, int32_t a, int32_t b) {
  flyi_interval x = n->range[a], y = n->range[b];
  switch (op) {
  case FLYI_NODE_ADD:
  case FLYI_NODE_SUB:
  case FLYI_NODE_SHL:
  case FLYI_NODE_LSHR:
  case FLYI_NODE_ASHR:
    return is_value(n, b, 0) ? a : -1;
  case FLYI_NODE_MUL:
    return is_value(n, b, 1) ? a : is_value(n, b, 0) ? b : -1;
  case FLYI_NODE_SDIV:
  case FLYI_NODE_UDIV:
    return is_value(n, b, 1) ? a : -1;
  case FLYI_NODE_AND:
    return a == b || is_value(n, b, -1) ? a : is_value(n, b, 0) ? b : -1;
  case FLYI_NODE_OR:
    return a == b || is_value(n, b, 0) ? a : is_value(n, b, -1) ? b : -1;
  case FLYI_NODE_XOR:
    return is_value(n, b, 0) ? a : a == b ? flyi_node_constant(n, width, 0) : -1;
  case FLYI_NODE_SMAX:
    return a == b || x.lo >= y.hi ? a : y.lo >= x.hi ? b : -1;
  case FLYI_NODE_SMIN:
    return a == b || x.hi <= y.lo ? a : y.hi <= x.lo ? b : -1;
  case FLYI_NODE_UMAX:
  case FLYI_NODE_UMIN:
    return a == b ? a : -1;
  default:
    return -1;
  }
}

/* x - x % c and x / c * c step down to a multiple of c. The quotient may be narrower than x, and then the product
 * can wrap where the multiple of c does not. */
static int32_t rounding(flyi_nodes *n, flyi_node_op op, int width, int32_t a, int32_t b) {
  int32_t x = 0;
  int64_t c = 0;
  if (op == FLYI_NODE_SUB && at(n, b)->op == FLYI_NODE_SREM && at(n, b)->a == a && is_constant(n, at(n, b)->b))
    x = a, c = at(n, at(n, b)->b)->k;
  if (op == FLYI_NODE_MUL && at(n, a)->op == FLYI_NODE_SDIV && is_constant(n, b) && at(n, a)->b == b)
    x = at(n, a)->a, c = at(n, b)->k;
  if ((op == FLYI_NODE_MUL || op == FLYI_NODE_SHL) && at(n, a)->op == FLYI_NODE_ASHR && is_constant(n, b) &&
      is_constant(n, at(n, a)->b) && not_negative(n, at(n, a)->a)) { /* shifts, for powers of two */
    int64_t down = at(n, at(n, a)->b)->k, up = at(n, b)->k;
    if (down > 0 && down < 62 && (op == FLYI_NODE_SHL ? up == down : up == 1ll << down))
      x = at(n, a)->a, c = 1ll << down;
  }
  if (c == 0 || c == INT64_MIN) return 0;
  if (c < 0) c = -c;
  if (!flyi_fits(width, flyi_round_down(n->range[x], c))) return 0;
  return flyi_node_intern(n, (flyi_node){.op = FLYI_NODE_ROUND, .width = (uint8_t)width, .a = x, .k = c});
}

int32_t flyi_node_binary(flyi_nodes *n, flyi_node_op op, int width, int32_t a, int32_t b) {
  if (n->failed) return 0;
  if (width == 1 && op == FLYI_NODE_AND) return flyi_node_and(n, a, b);
  if (width == 1 && op == FLYI_NODE_OR) return flyi_node_or(n, a, b);
  if (commutes(op) && (is_constant(n, a) || (!is_constant(n, b) && a > b))) swap(&a, &b);
  if (width == 1 && op == FLYI_NODE_XOR && is_value(n, b, 1)) return flyi_node_not(n, a);
  op = signed_op(n, op, a, b);
  int32_t node = trivial(n, op, width, a, b);
  if (node >= 0) return node;
  if ((node = affine_result(n, op, width, a, b))) return node;
  if (op == FLYI_NODE_SDIV && not_negative(n, a) && is_constant(n, b) && power_of_two(at(n, b)->k))
    op = FLYI_NODE_ASHR, b = flyi_node_constant(n, width, __builtin_ctzll((uint64_t)at(n, b)->k));
  if (op == FLYI_NODE_SUB && at(n, b)->op == FLYI_NODE_ROUND && at(n, b)->a == a) /* x - (x - x % k) */
    return flyi_node_binary(n, FLYI_NODE_SREM, width, a, flyi_node_constant(n, width, at(n, b)->k));
  if ((node = rounding(n, op, width, a, b))) return node;
  return n->failed ? 0 : flyi_node_intern(n, make(op, width, a, b, 0));
}

int32_t flyi_node_unary(flyi_nodes *n, flyi_node_op op, int width, int32_t a) {
  if (n->failed) return 0;
  if (op == FLYI_NODE_ABS && not_negative(n, a)) return a;
  if (op == FLYI_NODE_ABS && n->range[a].hi <= 0)
    return flyi_node_binary(n, FLYI_NODE_SUB, width, flyi_node_constant(n, width, 0), a);
  return flyi_node_intern(n, make(op, width, a, 0, 0));
}

int32_t flyi_node_convert(flyi_nodes *n, flyi_node_op op, int width, int from, int32_t a) {
  if (n->failed) return 0;
  bool same = op == FLYI_NODE_SEXT   ? from > 1
              : op == FLYI_NODE_ZEXT ? not_negative(n, a)
                                     : flyi_fits(width, n->range[a]);
  if (same) return a; /* the same number, and nodes are numbers */
  return flyi_node_intern(n, (flyi_node){.op = op, .width = (uint8_t)width, .from = (uint8_t)from, .a = a});
}

/* ---- comparisons ------------------------------------------------------------------------------------------------- */

/* x < 0 or x == 0 of a difference, as one node; 0 where it may overflow. */
static int32_t compare_affine(flyi_nodes *n, flyi_node_op op, int32_t a, int32_t b) {
  flyi_interval range;
  if (!is_affine(n, a) || !is_affine(n, b)) return 0;
  affine d = combine(affine_of(n, a), affine_of(n, b), -1);
  if (!affine_range(n, d, &range)) return 0;
  return flyi_node_intern(n, affine_node(op == FLYI_NODE_LESS ? FLYI_NODE_NEGATIVE : FLYI_NODE_ZERO, 1, d));
}

/* Unsigned a < b where one side is a constant that is not negative: 0 <= a && a < b. */
static int32_t range_check(flyi_nodes *n, int from, int32_t a, int32_t b) {
  int32_t zero = flyi_node_constant(n, from, 0);
  if (is_constant(n, b) && at(n, b)->k >= 0 && is_affine(n, a))
    return flyi_node_and(n, flyi_node_not(n, flyi_node_compare(n, FLYI_NODE_LESS, from, a, zero)),
                         flyi_node_compare(n, FLYI_NODE_LESS, from, a, b));
  if (is_constant(n, a) && at(n, a)->k >= 0 && is_affine(n, b))
    return flyi_node_or(n, flyi_node_compare(n, FLYI_NODE_LESS, from, b, zero),
                        flyi_node_compare(n, FLYI_NODE_LESS, from, a, b));
  return 0;
}

int32_t flyi_node_compare(flyi_nodes *n, flyi_node_op op, int from, int32_t a, int32_t b) {
  if (n->failed) return 0;
  if (a == b) return flyi_node_constant(n, 1, op == FLYI_NODE_EQUAL);
  op = signed_op(n, op, a, b);
  if (op == FLYI_NODE_EQUAL && a > b) swap(&a, &b);
  int32_t node = op == FLYI_NODE_BELOW ? range_check(n, from, a, b) : compare_affine(n, op, a, b);
  if (node || n->failed) return node;
  flyi_node i = make(op, 1, a, b, 0);
  i.from = (uint8_t)from;
  return flyi_node_intern(n, i);
}

/* ---- truth ------------------------------------------------------------------------------------------------------- */

int32_t flyi_node_not(flyi_nodes *n, int32_t a) {
  if (n->failed) return 0;
  flyi_node i = *at(n, a);
  switch (i.op) {
  case FLYI_NODE_CONSTANT:
    return flyi_node_constant(n, 1, !i.k);
  case FLYI_NODE_NOT:
    return i.a;
  case FLYI_NODE_NEGATIVE:
    i.q = -i.q, i.kv = -i.kv, i.k = -i.k - 1;
    break; /* not d < 0: -d - 1 < 0 */
  case FLYI_NODE_ZERO:
  case FLYI_NODE_EQUAL:
  case FLYI_NODE_LESS:
  case FLYI_NODE_BELOW:
    i.negate = !i.negate;
    break;
  default:
    i = make(FLYI_NODE_NOT, 1, a, 0, 0);
  }
  return flyi_node_intern(n, i);
}

static bool has_operand(const flyi_nodes *n, int32_t a, flyi_node_op op, int32_t b) {
  return at(n, a)->op == op && (at(n, a)->a == b || at(n, a)->b == b);
}

/* Of p & c and p & !c: p, and c for the first; false for anything else. */
static bool forks(flyi_nodes *n, int32_t a, int32_t b, int32_t *p, int32_t *c) {
  if (at(n, a)->op != FLYI_NODE_AND || at(n, b)->op != FLYI_NODE_AND) return false;
  int32_t x[2] = {at(n, a)->a, at(n, a)->b}, y[2] = {at(n, b)->a, at(n, b)->b};
  for (int i = 0; i < 2; i++)
    for (int j = 0; j < 2; j++)
      if (x[i] == y[j] && flyi_node_not(n, x[!i]) == y[!j] && !n->failed) return *p = x[i], *c = x[!i], true;
  return false;
}

int32_t flyi_node_and(flyi_nodes *n, int32_t a, int32_t b) {
  if (n->failed) return 0;
  if (is_constant(n, a)) return at(n, a)->k ? b : a;
  if (is_constant(n, b)) return at(n, b)->k ? a : b;
  if (a == b || has_operand(n, a, FLYI_NODE_AND, b) || has_operand(n, b, FLYI_NODE_OR, a)) return a;
  if (has_operand(n, b, FLYI_NODE_AND, a) || has_operand(n, a, FLYI_NODE_OR, b)) return b;
  if (flyi_node_not(n, a) == b) return flyi_node_constant(n, 1, 0);
  if (a > b) swap(&a, &b);
  return flyi_node_intern(n, make(FLYI_NODE_AND, 1, a, b, 0));
}

int32_t flyi_node_or(flyi_nodes *n, int32_t a, int32_t b) {
  int32_t p, c;
  if (n->failed) return 0;
  if (is_constant(n, a)) return at(n, a)->k ? a : b;
  if (is_constant(n, b)) return at(n, b)->k ? b : a;
  if (a == b || has_operand(n, a, FLYI_NODE_OR, b) || has_operand(n, b, FLYI_NODE_AND, a)) return a;
  if (has_operand(n, b, FLYI_NODE_OR, a) || has_operand(n, a, FLYI_NODE_AND, b)) return b;
  if (flyi_node_not(n, a) == b) return flyi_node_constant(n, 1, 1);
  if (forks(n, a, b, &p, &c)) return p; /* what joins again is as certain as it was before */
  if (a > b) swap(&a, &b);
  return n->failed ? 0 : flyi_node_intern(n, make(FLYI_NODE_OR, 1, a, b, 0));
}

int32_t flyi_node_select(flyi_nodes *n, int width, int32_t condition, int32_t yes, int32_t no) {
  if (n->failed) return 0;
  if (is_constant(n, condition)) return at(n, condition)->k ? yes : no;
  if (yes == no) return yes;
  if (at(n, condition)->op == FLYI_NODE_NOT) {
    condition = at(n, condition)->a;
    swap(&yes, &no);
  }
  if (width == 1 && is_constant(n, yes))
    return at(n, yes)->k ? flyi_node_or(n, condition, no) : flyi_node_and(n, flyi_node_not(n, condition), no);
  if (width == 1 && is_constant(n, no))
    return at(n, no)->k ? flyi_node_or(n, flyi_node_not(n, condition), yes) : flyi_node_and(n, condition, yes);
  return flyi_node_intern(n, make(FLYI_NODE_SELECT, width, condition, yes, no));
}

int32_t flyi_node_join(flyi_nodes *n, int width, const int32_t *pairs, int32_t count) {
  if (n->failed) return 0;
  if (count == 0) return flyi_node_unknown(n, width); /* never reached */
  int32_t p, c, differ = 0, visible = 0, last = 0;
  for (int32_t i = 0; i < count; i++) {
    differ += pairs[2 * i + 1] != pairs[1];
    if (!is_value(n, pairs[2 * i + 1], 0)) visible++, last = i;
  }
  if (!differ) return pairs[1];
  if (width == 1 && visible == 1) return flyi_node_and(n, pairs[2 * last], pairs[2 * last + 1]);
  if (count == 2) {
    if (flyi_node_not(n, pairs[0]) == pairs[2]) return flyi_node_select(n, width, pairs[0], pairs[1], pairs[3]);
    if (forks(n, pairs[0], pairs[2], &p, &c)) return flyi_node_select(n, width, c, pairs[1], pairs[3]);
  }
  return flyi_node_join_pairs(n, width, pairs, count);
}

/* ---- loads ------------------------------------------------------------------------------------------------------- */

/* Whether all rows u are within the array's whole rows. */
static bool rows_within(const flyi_nodes *n, const flyi_pyramid *array, int32_t u, int64_t columns) {
  return !n->failed && n->range[u].lo >= 0 && n->range[u].hi < array->count / columns;
}

/* Splits an index into u * columns + v with 0 <= v < columns, all rows u within the array. A product or sum that
 * wraps in its own width is no such index, even where its interval looks like one. */
static bool split_index(flyi_nodes *n, const flyi_pyramid *array, int32_t index, int32_t *u, int32_t *v,
                        int64_t *columns) {
  const flyi_node sum = *at(n, index); /* a copy: making nodes moves them */
  for (int i = 0; i < 2 && sum.op == FLYI_NODE_ADD; i++) {
    int32_t product = i ? sum.b : sum.a;
    const flyi_node m = *at(n, product);
    *v = i ? sum.a : sum.b;
    bool constant = (m.op == FLYI_NODE_MUL || m.op == FLYI_NODE_SHL) && is_constant(n, m.b);
    int64_t c = !constant ? 0 : m.op == FLYI_NODE_MUL ? at(n, m.b)->k : at(n, m.b)->k < 40 ? 1ll << at(n, m.b)->k : 0;
    if (m.op == FLYI_NODE_AFFINE && (m.q == 0) != (m.kv == 0) && m.k == 0) c = m.q + m.kv; /* c q */
    if (c <= 1 || n->range[*v].lo < 0 || n->range[*v].hi >= c) continue;
    *u = constant ? m.a : flyi_node_affine(n, 64, m.q != 0, m.kv != 0, 0);
    *columns = c;
    if (!rows_within(n, array, *u, c)) return false;
    int64_t product_most = n->range[*u].hi * c; /* less than the array's count, as is the sum below */
    return product_most <= flyi_greatest(m.width) && product_most + n->range[*v].hi <= flyi_greatest(sum.width);
  }
  if (sum.op != FLYI_NODE_AFFINE || !sum.q || !sum.kv) return false;
  /* c q + kv + k, or the transpose */
  bool by_q = sum.kv == 1;
  int64_t c = by_q ? sum.q : sum.kv, k = sum.k;
  int64_t lo = by_q ? n->domain.kv0 : n->domain.q0, hi = by_q ? n->domain.kv1 : n->domain.q1;
  if (c <= 1 || (!by_q && sum.q != 1)) return false;
  int64_t whole = (lo + k) / c - ((lo + k) % c < 0); /* rows in k, so that v starts within 0 .. c - 1 */
  if (hi + k - whole * c >= c) return false;
  *u = flyi_node_affine(n, 64, by_q, !by_q, whole);
  *v = flyi_node_affine(n, 64, !by_q, by_q, k - whole * c);
  *columns = c;
  return rows_within(n, array, *u, c);
}

/* How far a node goes for one step of the query or key that it depends on, in powers of two; 0
 * where it depends on both. */
static double pace(const flyi_nodes *n, int32_t a) {
  bool by_q = n->depends[a] == FLYI_ON_Q;
  double span = (double)n->range[a].hi - (double)n->range[a].lo + 1;
  int64_t positions = by_q ? n->domain.q1 - n->domain.q0 + 1 : n->domain.kv1 - n->domain.kv0 + 1;
  return n->depends[a] == FLYI_ON_Q || n->depends[a] == FLYI_ON_KV ? log2(span / (double)positions) : 0;
}

/* The shape of the boxes of a table that square tiles read, as a mip's aspect. */
static int aspect_of(const flyi_nodes *n, int32_t u, int32_t v) {
  double aspect = rint(pace(n, u) - pace(n, v));
  return aspect > 12 ? 12 : aspect < -12 ? -12 : (int)aspect;
}

int32_t flyi_node_load(flyi_nodes *n, flyi_pyramid *array, int32_t index) {
  int32_t u, v;
  int64_t columns;
  if (n->failed) return 0;
  int width = 8 * array->bytes;
  if (split_index(n, array, index, &u, &v, &columns)) {
    flyi_mip *mip = flyi_pyramid_mip(array, columns, aspect_of(n, u, v));
    if (!mip) return n->failed = true, 0;
    return flyi_node_intern(n, make(FLYI_NODE_LOAD_BOX, width, u, v, flyi_nodes_mip(n, mip)));
  }
  if (n->failed || (!is_constant(n, index) && !flyi_pyramid_ranges(array))) return n->failed = true, 0;
  return flyi_node_intern(n, make(FLYI_NODE_LOAD, width, index, 0, flyi_nodes_array(n, array)));
}
