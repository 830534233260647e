/* nodes.h: a mask as expressions of q and kv alone, for one (b, h), lengths, parameters and buffers: what decode.c
 * makes of a program, and what is evaluated over tiles.
 *
 * Nodes are shared (an expression occurs once) and folded: what is constant over the whole domain is a constant, a
 * sum of q, kv and constants that cannot wrap there is one affine node, and signed replaces unsigned where no
 * operand is negative. So a verdict holds only inside the domain q x kv that the nodes were made for.
 *
 * After flyi_nodes_seal they stand in order of what they depend on: constants, q alone, kv alone, both. */
#ifndef FLYMASK_NODES_H
#define FLYMASK_NODES_H

#include "interval.h"
#include "program.h"
#include "pyramid.h"

typedef enum flyi_node_op {
  FLYI_NODE_UNKNOWN,  /* any value; two of them are never the same */
  FLYI_NODE_CONSTANT, /* k */
  FLYI_NODE_AFFINE,   /* q Q + kv KV + k, which does not wrap */
  FLYI_NODE_NEGATIVE, /* q Q + kv KV + k < 0 */
  FLYI_NODE_ZERO,     /* q Q + kv KV + k == 0 */
  FLYI_NODE_ADD,
  FLYI_NODE_SUB,
  FLYI_NODE_MUL,
  FLYI_NODE_UDIV,
  FLYI_NODE_SDIV,
  FLYI_NODE_UREM,
  FLYI_NODE_SREM,
  FLYI_NODE_SHL,
  FLYI_NODE_LSHR,
  FLYI_NODE_ASHR,
  FLYI_NODE_AND,
  FLYI_NODE_OR,
  FLYI_NODE_XOR,
  FLYI_NODE_SMAX,
  FLYI_NODE_SMIN,
  FLYI_NODE_UMAX,
  FLYI_NODE_UMIN,
  FLYI_NODE_ABS,
  FLYI_NODE_POPCOUNT,
  FLYI_NODE_CTLZ,
  FLYI_NODE_CTTZ,
  FLYI_NODE_ZEXT,
  FLYI_NODE_SEXT,
  FLYI_NODE_TRUNC, /* from: the operand's width */
  FLYI_NODE_EQUAL,
  FLYI_NODE_LESS,
  FLYI_NODE_BELOW,   /* of operands `from` bits wide; BELOW is unsigned */
  FLYI_NODE_NOT,     /* of a bit */
  FLYI_NODE_SELECT,  /* a ? b : c */
  FLYI_NODE_JOIN,    /* k pairs (condition, value) at arg[c], of which exactly one condition holds */
  FLYI_NODE_ROUND,   /* a - a % k */
  FLYI_NODE_LOAD,    /* array c at index a */
  FLYI_NODE_LOAD_BOX /* table c at row a, column b */
} flyi_node_op;

typedef struct flyi_node {
  uint8_t op, width, from;
  uint8_t negate; /* ZERO, EQUAL, LESS, BELOW: the opposite */
  int32_t a, b, c;
  int64_t q, kv, k;
} flyi_node;

/* What a node depends on. */
enum { FLYI_ON_Q = 1, FLYI_ON_KV = 2 };

/* A box of pairs, bounds included. */
typedef struct flyi_box {
  int64_t q0, q1, kv0, kv1;
} flyi_box;

typedef struct flyi_nodes {
  flyi_box domain;      /* q has the call's offset */
  flyi_node *node;      /* node 0 is unknown */
  flyi_interval *range; /* over the domain */
  uint8_t *depends;     /* FLYI_ON_... */
  int32_t count, capacity;
  int32_t answer;                   /* the mask */
  int32_t constants, q_end, kv_end; /* when sealed: [0, constants), [.., q_end), [.., kv_end), [.., count) */
  bool unknown;                     /* when sealed: some node is unknown */
  uint8_t *bitwise;                 /* when sealed: the nodes whose bits others look at (bits.c); NULL: none */
  int32_t *arg;
  int32_t args, arg_capacity;
  int32_t *slot; /* a hash table of nodes, 0: free */
  int32_t slots;
  flyi_pyramid **array; /* borrowed */
  flyi_mip **mip;
  int32_t arrays, mips;
  bool failed; /* memory was short: everything is void */
} flyi_nodes;

/* At most so many: beyond, evaluating costs more than asking the compiled mask. */
enum { FLYI_NODE_LIMIT = 4096 };

/* ---- making (nodes.c, simplify.c). All return a node, which is 0 where memory is short --------------------------- */

void flyi_nodes_init(flyi_nodes *nodes, flyi_box domain);
void flyi_nodes_free(flyi_nodes *nodes);
/* Adds the node, or finds an equal one, or the constant that it is all over the domain. */
int32_t flyi_node_intern(flyi_nodes *nodes, flyi_node node);

int32_t flyi_node_unknown(flyi_nodes *nodes, int width);
int32_t flyi_node_constant(flyi_nodes *nodes, int width, int64_t value);
int32_t flyi_node_affine(flyi_nodes *nodes, int width, int64_t q, int64_t kv, int64_t k);
int32_t flyi_node_unary(flyi_nodes *nodes, flyi_node_op op, int width, int32_t a);
int32_t flyi_node_binary(flyi_nodes *nodes, flyi_node_op op, int width, int32_t a, int32_t b);
int32_t flyi_node_convert(flyi_nodes *nodes, flyi_node_op op, int width, int from, int32_t a);
/* op: EQUAL, LESS, BELOW */
int32_t flyi_node_compare(flyi_nodes *nodes, flyi_node_op op, int from, int32_t a, int32_t b);
int32_t flyi_node_not(flyi_nodes *nodes, int32_t a);
int32_t flyi_node_and(flyi_nodes *nodes, int32_t a, int32_t b); /* of bits, as is the next */
int32_t flyi_node_or(flyi_nodes *nodes, int32_t a, int32_t b);
int32_t flyi_node_select(flyi_nodes *nodes, int width, int32_t condition, int32_t yes, int32_t no);
int32_t flyi_node_join(flyi_nodes *nodes, int width, const int32_t *pairs, int32_t count);
int32_t flyi_node_load(flyi_nodes *nodes, flyi_pyramid *array, int32_t index);

/* Inside nodes.c and simplify.c: a join as it is, and the index of an array or table. */
int32_t flyi_node_join_pairs(flyi_nodes *nodes, int width, const int32_t *pairs, int32_t count);
int32_t flyi_nodes_array(flyi_nodes *nodes, flyi_pyramid *array);
int32_t flyi_nodes_mip(flyi_nodes *nodes, flyi_mip *mip);

/* Drops what the answer does not need, and orders the rest. False where memory is short. */
bool flyi_nodes_seal(flyi_nodes *nodes) FLYI_MUST_CHECK;
/* Sealed nodes with the same meaning. */
bool flyi_nodes_equal(const flyi_nodes *a, const flyi_nodes *b);
flyi_hash flyi_nodes_hash(const flyi_nodes *nodes);

/* ---- evaluating (evaluate.c, bits.c) ----------------------------------------------------------------------------- */

/* The value of one node over a box, from those of its operands. */
flyi_interval flyi_node_value(const flyi_nodes *nodes, const flyi_node *node, const flyi_interval *value,
                              const flyi_box *box);
/* value[from .. to - 1]; where nodes are bitwise, their bits stand behind, as flyi_bits value[count + from .. ]. */
void flyi_nodes_evaluate(const flyi_nodes *nodes, int32_t from, int32_t to, const flyi_box *box, flyi_interval *value);
/* How many values an evaluation needs room for. */
static inline size_t flyi_nodes_room(const flyi_nodes *nodes) {
  return (nodes->bitwise ? 2 : 1) * (size_t)nodes->count;
}

/* Finds the bitwise nodes of sealed ones, and prepares the arrays that they read. False where memory is short. */
bool flyi_nodes_find_bits(flyi_nodes *nodes) FLYI_MUST_CHECK;
/* Sets the bits of node j, whose interval is `known`, and returns what they make of the interval. */
flyi_interval flyi_node_bits(const flyi_nodes *nodes, int32_t j, const flyi_interval *value, flyi_interval known,
                             flyi_bits *bits);

/* ---- decoding (decode.c) ----------------------------------------------------------------------------------------- */

/* Pyramids of tables and row maps, shared by the nodes of one map. Thread-safe. */
typedef struct flyi_arrays {
  _Atomic(flyi_pyramid *) first;
} flyi_arrays;
void flyi_arrays_free(flyi_arrays *arrays);

/* Decodes a program for (b, h) of the geometry, whose lengths there are not 0. Loops are unrolled while their
 * condition is decided by constants; where that takes too many nodes, the mask is unknown there, which is sound. */
fly_status flyi_decode(const flyi_program *program, const fly_bound *bound, const fly_geometry *geometry, int64_t b,
                       int64_t h, flyi_arrays *arrays, flyi_nodes *out, fly_error *error);

#endif
