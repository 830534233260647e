/* nodes.c: the store of nodes: finding equal ones, folding constants, dropping and ordering at the end. simplify.c
 * has the rules by which nodes are made. */
#include <stdlib.h>
#include <string.h>

#include "nodes.h"

void flyi_nodes_init(flyi_nodes *n, flyi_box domain) {
  *n = (flyi_nodes){.domain = domain};
  flyi_node_unknown(n, 1); /* node 0 */
}

void flyi_nodes_free(flyi_nodes *n) {
  free(n->node), free(n->range), free(n->depends), free(n->arg), free(n->slot), free(n->array), free(n->mip);
  free(n->bitwise);
  *n = (flyi_nodes){0};
}

/* ---- adding ------------------------------------------------------------------------------------------------------ */

/* Grows *array; on failure it stays, and nodes->failed is set. */
static bool grow(flyi_nodes *n, void *array, int32_t capacity, size_t size) {
  void *old, *moved;
  memcpy(&old, array, sizeof old);
  moved = flyi_grow(old, capacity, size);
  if (!moved) return n->failed = true, false;
  memcpy(array, &moved, sizeof moved);
  return true;
}

static uint8_t dependencies(const flyi_nodes *n, const flyi_node *i) {
  if (i->op <= FLYI_NODE_CONSTANT) return 0;
  if (i->op <= FLYI_NODE_ZERO) return (i->q ? FLYI_ON_Q : 0) | (i->kv ? FLYI_ON_KV : 0);
  uint8_t depends = 0;
  if (i->op == FLYI_NODE_JOIN)
    for (int64_t k = 0; k < 2 * i->k; k++) depends |= n->depends[n->arg[i->c + k]];
  else
    depends = n->depends[i->a] | n->depends[i->b] | (i->op == FLYI_NODE_SELECT ? n->depends[i->c] : 0);
  return depends;
}

static int32_t append(flyi_nodes *n, flyi_node node, flyi_interval range) {
  if (n->count == n->capacity) {
    int32_t capacity = n->capacity ? 2 * n->capacity : 64;
    if (!grow(n, &n->node, capacity, sizeof *n->node) || !grow(n, &n->range, capacity, sizeof *n->range) ||
        !grow(n, &n->depends, capacity, sizeof *n->depends))
      return 0;
    n->capacity = capacity;
  }
  n->node[n->count] = node;
  n->range[n->count] = range;
  n->depends[n->count] = dependencies(n, &node);
  return n->count++;
}

/* What tells nodes apart: for a join its pairs, wherever they lie. */
static uint64_t key(const flyi_nodes *n, const flyi_node *node) {
  if (node->op != FLYI_NODE_JOIN) return flyi_hash_bytes(node, sizeof *node).low;
  return flyi_hash_bytes(n->arg + node->c, 2 * node->k * sizeof *n->arg).low ^ node->width;
}

static bool same(const flyi_nodes *n, const flyi_node *a, const flyi_node *b) {
  if (a->op != FLYI_NODE_JOIN || b->op != FLYI_NODE_JOIN) return !memcmp(a, b, sizeof *a);
  return a->width == b->width && a->k == b->k && !memcmp(n->arg + a->c, n->arg + b->c, 2 * a->k * sizeof *n->arg);
}

static bool rehash(flyi_nodes *n) {
  int32_t slots = n->slots ? 2 * n->slots : 256;
  int32_t *table = flyi_alloc(slots, sizeof *table);
  if (!table) return n->failed = true, false;
  for (int32_t j = 1; j < n->count; j++) {
    if (n->node[j].op == FLYI_NODE_UNKNOWN) continue;
    uint64_t at = key(n, &n->node[j]);
    while (table[at & (slots - 1)]) at++;
    table[at & (slots - 1)] = j;
  }
  free(n->slot);
  n->slot = table, n->slots = slots;
  return true;
}

int32_t flyi_node_intern(flyi_nodes *n, flyi_node node) {
  if (n->failed) return 0;
  flyi_interval range = flyi_node_value(n, &node, n->range, &n->domain);
  if (flyi_is_point(range) && node.op != FLYI_NODE_CONSTANT) return flyi_node_constant(n, node.width, range.lo);
  if (2 * n->count >= n->slots && !rehash(n)) return 0;
  uint64_t at = key(n, &node);
  for (; n->slot[at & (n->slots - 1)]; at++) {
    int32_t j = n->slot[at & (n->slots - 1)];
    if (same(n, &n->node[j], &node)) return j;
  }
  int32_t j = append(n, node, range);
  if (j) n->slot[at & (n->slots - 1)] = j;
  return j;
}

int32_t flyi_node_unknown(flyi_nodes *n, int width) {
  if (n->failed) return 0;
  return append(n, (flyi_node){.op = FLYI_NODE_UNKNOWN, .width = width}, flyi_top(width));
}

int32_t flyi_node_constant(flyi_nodes *n, int width, int64_t value) {
  return flyi_node_intern(n, (flyi_node){.op = FLYI_NODE_CONSTANT, .width = width, .k = value});
}

/* Keeps the pairs of a join; false where memory is short. */
static bool add_args(flyi_nodes *n, const int32_t *pairs, int32_t count) {
  while (n->args + count > n->arg_capacity) {
    int32_t capacity = n->arg_capacity ? 2 * n->arg_capacity : 64;
    if (!grow(n, &n->arg, capacity, sizeof *n->arg)) return false;
    n->arg_capacity = capacity;
  }
  memcpy(n->arg + n->args, pairs, count * sizeof *pairs);
  n->args += count;
  return true;
}

/* A join as it is; flyi_node_join looks for something simpler first. */
int32_t flyi_node_join_pairs(flyi_nodes *n, int width, const int32_t *pairs, int32_t count) {
  int32_t first = n->args;
  if (n->failed || !add_args(n, pairs, 2 * count)) return 0;
  int32_t last = n->count;
  int32_t j = flyi_node_intern(n, (flyi_node){.op = FLYI_NODE_JOIN, .width = width, .c = first, .k = count});
  if (j != last || n->count == last) n->args = first; /* an equal one was there */
  return j;
}

/* ---- arrays ------------------------------------------------------------------------------------------------------ */

int32_t flyi_nodes_array(flyi_nodes *n, flyi_pyramid *array) {
  for (int32_t i = 0; i < n->arrays; i++)
    if (n->array[i] == array) return i;
  if (!grow(n, &n->array, n->arrays + 1, sizeof *n->array)) return 0;
  n->array[n->arrays] = array;
  return n->arrays++;
}

int32_t flyi_nodes_mip(flyi_nodes *n, flyi_mip *mip) {
  for (int32_t i = 0; i < n->mips; i++)
    if (n->mip[i] == mip) return i;
  if (!grow(n, &n->mip, n->mips + 1, sizeof *n->mip)) return 0;
  n->mip[n->mips] = mip;
  return n->mips++;
}

/* ---- sealing ----------------------------------------------------------------------------------------------------- */

/* Calls visit on each operand of a node. */
static void operands(flyi_nodes *n, flyi_node *i, void (*visit)(int32_t *operand, int32_t *map), int32_t *map) {
  if (i->op <= FLYI_NODE_ZERO) return;
  if (i->op == FLYI_NODE_JOIN) {
    for (int64_t k = 0; k < 2 * i->k; k++) visit(&n->arg[i->c + k], map);
    return;
  }
  visit(&i->a, map), visit(&i->b, map);
  if (i->op == FLYI_NODE_SELECT) visit(&i->c, map);
}

static void mark(int32_t *operand, int32_t *live) { live[*operand] = 1; }
static void rename_operand(int32_t *operand, int32_t *to) { *operand = to[*operand]; }

/* Copies the live nodes of one class behind the others; number[j] becomes the new number of node j. Operands stand
 * before their users, so theirs are known. */
static int32_t keep_class(flyi_nodes *n, uint8_t depends, flyi_node *node, int32_t *arg, int32_t *number,
                          int32_t kept) {
  for (int32_t j = 1; j < n->count; j++) {
    flyi_node i = n->node[j];
    if (!number[j] || n->depends[j] != depends) continue;
    operands(n, &i, rename_operand, number);
    if (i.op == FLYI_NODE_JOIN) {
      memcpy(arg + n->args, n->arg + i.c, 2 * i.k * sizeof *arg);
      i.c = n->args;
      n->args += 2 * (int32_t)i.k;
    }
    n->unknown |= i.op == FLYI_NODE_UNKNOWN;
    node[kept] = i;
    number[j] = kept++;
  }
  return kept;
}

bool flyi_nodes_seal(flyi_nodes *n) {
  int32_t *number = flyi_alloc(n->failed ? 0 : n->count, sizeof *number), end[4], kept = 1;
  int32_t *arg = flyi_alloc(n->args, sizeof *arg);
  flyi_node *node = flyi_alloc(n->failed ? 0 : n->count, sizeof *node);
  if (n->failed || !number || !node || !arg) {
    free(number), free(node), free(arg);
    return n->failed = true, false;
  }
  number[n->answer] = 1; /* first only a mark: live */
  for (int32_t j = n->count - 1; j > 0; j--)
    if (number[j]) operands(n, &n->node[j], mark, number);
  number[0] = 0;
  node[0] = n->node[0];
  n->args = 0;
  for (int depends = 0; depends < 4; depends++)
    end[depends] = kept = keep_class(n, (uint8_t)depends, node, arg, number, kept);
  n->unknown |= n->answer == 0;
  n->answer = number[n->answer];
  free(n->node), free(n->range), free(n->depends), free(n->slot), free(n->arg), free(number);
  n->node = node, n->arg = arg, n->range = NULL, n->depends = NULL, n->slot = NULL;
  n->slots = n->capacity = n->arg_capacity = 0;
  n->constants = end[0], n->q_end = end[FLYI_ON_Q], n->kv_end = end[FLYI_ON_KV], n->count = kept;
  if (!flyi_nodes_find_bits(n)) n->failed = true;
  return !n->failed;
}

bool flyi_nodes_equal(const flyi_nodes *a, const flyi_nodes *b) {
  if (memcmp(&a->domain, &b->domain, sizeof a->domain) || a->count != b->count || a->answer != b->answer ||
      a->arrays != b->arrays || a->mips != b->mips || a->args != b->args)
    return false;
  return !memcmp(a->node, b->node, a->count * sizeof *a->node) &&
         (!a->args || !memcmp(a->arg, b->arg, a->args * sizeof *a->arg)) &&
         (!a->arrays || !memcmp(a->array, b->array, a->arrays * sizeof *a->array)) &&
         (!a->mips || !memcmp(a->mip, b->mip, a->mips * sizeof *a->mip));
}

flyi_hash flyi_nodes_hash(const flyi_nodes *n) { return flyi_hash_bytes(n->node, n->count * sizeof *n->node); }
