/* decode.c: a mask program joined with parameters, buffers, a geometry and (b, h): nodes (nodes.h).
 *
 * Control flow becomes conditions: a block's condition is the disjunction of those on its edges, a phi joins the
 * values that the edges carry. A loop is decoded again and again, with what its back edges carry, until their
 * condition folds to false: so loops unroll whose bounds are constants, parameters, or lengths, whatever else may
 * leave them early. */
#include <stdlib.h>

#include "nodes.h"

/* Instructions and blocks decoded, loops counted as often as they run. */
enum { STEPS_LIMIT = 1 << 18 };

/* A way into a block that is still to be decoded: taken under `condition`, carrying values from args on. */
typedef struct way {
  int32_t condition, args, next;
} way;

typedef struct decoder {
  const flyi_program *program;
  const fly_bound *bound;
  const fly_geometry *geometry;
  int64_t b, h;
  flyi_arrays *arrays;
  flyi_nodes *nodes;
  int32_t *value;   /* node of each value of the program; 0: not yet */
  int32_t *waiting; /* of each block: the first way in, 0: none */
  way *way;         /* from 1 */
  int32_t *arg;
  int32_t ways, way_capacity, args, arg_capacity;
  int32_t *answer; /* pairs (condition, value) of the returns */
  int32_t answers, answer_capacity;
  int32_t steps;
} decoder;

/* ---- small things ------------------------------------------------------------------------------------------------ */

/* Room for `more` elements behind `used`; false (and nodes->failed) where memory is short. */
static bool reserve(decoder *d, int32_t **array, int32_t *capacity, int32_t used, int32_t more) {
  if (used + more <= *capacity) return true;
  int32_t grown = 2 * (used + more) + 32;
  int32_t *moved = flyi_grow(*array, grown, sizeof **array);
  if (!moved) return d->nodes->failed = true, false;
  *array = moved, *capacity = grown;
  return true;
}

static bool reserve_way(decoder *d) {
  if (d->ways + 1 < d->way_capacity) return true;
  int32_t grown = 2 * d->way_capacity + 64;
  way *moved = flyi_grow(d->way, grown, sizeof *moved);
  if (!moved) return d->nodes->failed = true, false;
  d->way = moved, d->way_capacity = grown;
  return true;
}

static bool never(const decoder *d, int32_t condition) {
  const flyi_node *i = &d->nodes->node[condition];
  return i->op == FLYI_NODE_CONSTANT && !i->k;
}

static int32_t get(decoder *d, int32_t value) {
  int32_t node = d->value[value];
  return node ? node : flyi_node_unknown(d->nodes, flyi_value_width(d->program, value));
}

static bool get_constant(decoder *d, int32_t value, int64_t *k) {
  int32_t node = get(d, value); /* which may move the array */
  if (d->nodes->failed || d->nodes->node[node].op != FLYI_NODE_CONSTANT) return false;
  *k = d->nodes->node[node].k;
  return true;
}

static int64_t clamp(int64_t x, int64_t count) { return x < 0 ? 0 : x >= count ? count - 1 : x; }

/* ---- what a mask reads from outside (templates/mask_tile.c has the same meanings) -------------------------------- */

void flyi_arrays_free(flyi_arrays *arrays) {
  for (flyi_pyramid *p = arrays->first, *next; p; p = next) {
    next = p->next;
    flyi_pyramid_free(p);
  }
  arrays->first = NULL;
}

static flyi_pyramid *find_array(flyi_pyramid *first, const void *data, int bytes, int64_t count) {
  while (first && !(first->data == data && first->count == count && first->bytes == bytes)) first = first->next;
  return first;
}

/* One and the same pyramid for all threads: nodes are equal where their arrays are. */
static flyi_pyramid *shared_array(flyi_arrays *arrays, const void *data, int bytes, int64_t count) {
  flyi_pyramid *first = atomic_load_explicit(&arrays->first, memory_order_acquire);
  flyi_pyramid *found = find_array(first, data, bytes, count), *made;
  if (found || !(made = flyi_pyramid_create(data, bytes, count))) return found;
  do {
    if ((found = find_array(first, data, bytes, count))) return flyi_pyramid_free(made), found; /* another thread's */
    made->next = first;
  } while (!atomic_compare_exchange_weak(&arrays->first, &first, made));
  return made;
}

static int32_t load(decoder *d, flyi_pyramid *array, int32_t index) {
  if (!array) return d->nodes->failed = true, 0;
  return flyi_node_load(d->nodes, array, index);
}

static int32_t read_buffer(decoder *d, const flyi_instruction *i) {
  fly_buffer *buffer = d->bound->buffers[i->op == FLYI_OP_DIM ? i->k / 4 : i->k];
  if (i->op == FLYI_OP_COUNT) return flyi_node_constant(d->nodes, 64, buffer->count);
  if (i->op == FLYI_OP_DIM) return flyi_node_constant(d->nodes, 64, buffer->shape[i->k % 4]);
  return load(d, flyi_pyramid_of(buffer), get(d, i->a));
}

static int32_t read_table(decoder *d, const flyi_instruction *i) {
  const flyi_table *table = &d->program->table[i->k];
  return load(d, shared_array(d->arrays, table->data, table->bytes, table->count), get(d, i->a));
}

static int32_t read_length(decoder *d, const flyi_instruction *i) {
  int64_t b;
  if (!get_constant(d, i->a, &b)) return flyi_node_unknown(d->nodes, 32);
  b = clamp(b, d->geometry->batch);
  return flyi_node_constant(d->nodes, 32,
                            i->op == FLYI_OP_LEN_Q ? flyi_len_q(d->geometry, b) : flyi_len_kv(d->geometry, b));
}

static int32_t read_token(decoder *d, const flyi_instruction *i) {
  const fly_geometry *g = d->geometry;
  bool query = i->op == FLYI_OP_TOKEN_Q;
  const fly_row_map *map = query ? &g->q_rows : &g->kv_rows;
  const int32_t *cu = query ? g->cu_seqlens_q : g->cu_seqlens_kv;
  int64_t b, h, offset = query ? g->q_offset : 0;
  flyi_nodes *n = d->nodes;
  if (!get_constant(d, i->a, &b) || !get_constant(d, i->b, &h)) return flyi_node_unknown(n, 32);
  b = clamp(b, g->batch), h = clamp(h, g->heads);
  int64_t length = query ? flyi_len_q(g, b) : flyi_len_kv(g, b), start = cu ? cu[b] : 0;
  if (length == 0) return flyi_node_constant(n, 32, offset);
  int32_t row = flyi_node_convert(n, FLYI_NODE_SEXT, 64, 32, get(d, i->c));
  row = flyi_node_binary(n, FLYI_NODE_SUB, 64, row, flyi_node_constant(n, 64, offset));
  row = flyi_node_binary(n, FLYI_NODE_SMAX, 64, row, flyi_node_constant(n, 64, 0));
  row = flyi_node_binary(n, FLYI_NODE_SMIN, 64, row, flyi_node_constant(n, 64, length - 1));
  if (!map->rows)
    return flyi_node_convert(n, FLYI_NODE_TRUNC, 32, 64,
                             flyi_node_binary(n, FLYI_NODE_ADD, 64, row, flyi_node_constant(n, 64, offset)));
  const int32_t *rows = map->rows + b * map->stride_batch + h * map->stride_head + start;
  int32_t token = load(d, shared_array(d->arrays, rows, 4, length), row);
  return flyi_node_binary(n, FLYI_NODE_ADD, 32, token,
                          flyi_node_constant(n, 32, flyi_sign_extend(32, (uint64_t)(offset - start))));
}

/* ---- instructions ------------------------------------------------------------------------------------------------ */

static int32_t compare(decoder *d, const flyi_instruction *i) {
  int from = flyi_value_width(d->program, i->a);
  int32_t a = get(d, i->a), b = get(d, i->b);
  switch (i->op) {
  case FLYI_OP_EQ:
    return flyi_node_compare(d->nodes, FLYI_NODE_EQUAL, from, a, b);
  case FLYI_OP_NE:
    return flyi_node_not(d->nodes, flyi_node_compare(d->nodes, FLYI_NODE_EQUAL, from, a, b));
  case FLYI_OP_SLT:
    return flyi_node_compare(d->nodes, FLYI_NODE_LESS, from, a, b);
  case FLYI_OP_SLE:
    return flyi_node_not(d->nodes, flyi_node_compare(d->nodes, FLYI_NODE_LESS, from, b, a));
  case FLYI_OP_ULT:
    return flyi_node_compare(d->nodes, FLYI_NODE_BELOW, from, a, b);
  default:
    return flyi_node_not(d->nodes, flyi_node_compare(d->nodes, FLYI_NODE_BELOW, from, b, a));
  }
}

static int32_t instruction(decoder *d, const flyi_instruction *i) {
  static const uint8_t same[FLYI_OP_LIMIT] = {
      [FLYI_OP_ADD] = FLYI_NODE_ADD,           [FLYI_OP_SUB] = FLYI_NODE_SUB,   [FLYI_OP_MUL] = FLYI_NODE_MUL,
      [FLYI_OP_UDIV] = FLYI_NODE_UDIV,         [FLYI_OP_SDIV] = FLYI_NODE_SDIV, [FLYI_OP_UREM] = FLYI_NODE_UREM,
      [FLYI_OP_SREM] = FLYI_NODE_SREM,         [FLYI_OP_SHL] = FLYI_NODE_SHL,   [FLYI_OP_LSHR] = FLYI_NODE_LSHR,
      [FLYI_OP_ASHR] = FLYI_NODE_ASHR,         [FLYI_OP_AND] = FLYI_NODE_AND,   [FLYI_OP_OR] = FLYI_NODE_OR,
      [FLYI_OP_XOR] = FLYI_NODE_XOR,           [FLYI_OP_SMAX] = FLYI_NODE_SMAX, [FLYI_OP_SMIN] = FLYI_NODE_SMIN,
      [FLYI_OP_UMAX] = FLYI_NODE_UMAX,         [FLYI_OP_UMIN] = FLYI_NODE_UMIN, [FLYI_OP_ABS] = FLYI_NODE_ABS,
      [FLYI_OP_POPCOUNT] = FLYI_NODE_POPCOUNT, [FLYI_OP_CTLZ] = FLYI_NODE_CTLZ, [FLYI_OP_CTTZ] = FLYI_NODE_CTTZ,
      [FLYI_OP_ZEXT] = FLYI_NODE_ZEXT,         [FLYI_OP_SEXT] = FLYI_NODE_SEXT, [FLYI_OP_TRUNC] = FLYI_NODE_TRUNC};
  flyi_nodes *n = d->nodes;
  int w = i->width;
  switch (i->op) {
  case FLYI_OP_CONST:
    return flyi_node_constant(n, w, flyi_sign_extend(w, (uint64_t)i->k));
  case FLYI_OP_PARAM:
    return flyi_node_constant(n, w, flyi_sign_extend(w, d->bound->slots[i->k]));
  case FLYI_OP_COUNT:
  case FLYI_OP_DIM:
  case FLYI_OP_LOAD:
    return read_buffer(d, i);
  case FLYI_OP_TABLE:
    return read_table(d, i);
  case FLYI_OP_TOKEN_Q:
  case FLYI_OP_TOKEN_KV:
    return read_token(d, i);
  case FLYI_OP_LEN_Q:
  case FLYI_OP_LEN_KV:
    return read_length(d, i);
  case FLYI_OP_EQ:
  case FLYI_OP_NE:
  case FLYI_OP_SLT:
  case FLYI_OP_SLE:
  case FLYI_OP_ULT:
  case FLYI_OP_ULE:
    return compare(d, i);
  case FLYI_OP_SELECT:
    return flyi_node_select(n, w, get(d, i->a), get(d, i->b), get(d, i->c));
  case FLYI_OP_ZEXT:
  case FLYI_OP_SEXT:
  case FLYI_OP_TRUNC:
    return flyi_node_convert(n, same[i->op], w, flyi_value_width(d->program, i->a), get(d, i->a));
  case FLYI_OP_ABS:
  case FLYI_OP_POPCOUNT:
  case FLYI_OP_CTLZ:
  case FLYI_OP_CTTZ:
    return flyi_node_unary(n, same[i->op], w, get(d, i->a));
  default:
    if (same[i->op]) return flyi_node_binary(n, same[i->op], w, get(d, i->a), get(d, i->b));
    return flyi_node_unknown(n, w);
  }
}

/* ---- control flow ------------------------------------------------------------------------------------------------ */

static void take(decoder *d, const flyi_edge *edge, int32_t condition) {
  int32_t phis = d->program->block[edge->target].phis;
  if (d->nodes->failed || never(d, condition) || !reserve_way(d) ||
      !reserve(d, &d->arg, &d->arg_capacity, d->args, phis))
    return;
  int32_t *last = &d->waiting[edge->target], w = ++d->ways;
  while (*last) last = &d->way[*last].next;
  *last = w;
  d->way[w] = (way){condition, d->args, 0};
  for (int32_t k = 0; k < phis; k++) d->arg[d->args++] = get(d, d->program->arg[edge->args + k]);
}

static void answer(decoder *d, int32_t condition, int32_t value) {
  if (!reserve(d, &d->answer, &d->answer_capacity, d->answers, 2)) return;
  d->answer[d->answers++] = condition;
  d->answer[d->answers++] = value;
}

static void leave(decoder *d, const flyi_block *b, int32_t condition) {
  flyi_nodes *n = d->nodes;
  const flyi_edge *edge = b->edges ? d->program->edge + b->edge : NULL;
  if (b->end == FLYI_END_JUMP) {
    take(d, edge, condition);
    return;
  }
  int32_t value = get(d, b->value);
  if (b->end == FLYI_END_RETURN) {
    answer(d, condition, value);
  } else if (b->end == FLYI_END_BRANCH) {
    take(d, &edge[0], flyi_node_and(n, condition, value));
    take(d, &edge[1], flyi_node_and(n, condition, flyi_node_not(n, value)));
  } else {
    int width = flyi_value_width(d->program, b->value);
    int32_t rest = condition;
    for (int32_t k = 1; k < b->edges && !n->failed; k++) {
      int32_t match = flyi_node_constant(n, width, flyi_sign_extend(width, (uint64_t)edge[k].match));
      int32_t hit = flyi_node_compare(n, FLYI_NODE_EQUAL, width, value, match);
      take(d, &edge[k], flyi_node_and(n, condition, hit));
      rest = flyi_node_and(n, rest, flyi_node_not(n, hit));
    }
    take(d, &edge[0], rest);
  }
}

/* The phis of a block from the ways that lead into it, and the block's condition; 0 where memory is short. */
static int32_t enter(decoder *d, const flyi_block *b, int32_t first) {
  int32_t condition = 0, count = 0;
  for (int32_t w = first; w; w = d->way[w].next, count++)
    condition = condition ? flyi_node_or(d->nodes, condition, d->way[w].condition) : d->way[w].condition;
  int32_t *pairs = flyi_alloc(2 * (size_t)count, sizeof *pairs);
  if (!pairs) return d->nodes->failed = true, 0;
  for (int32_t k = 0; k < b->phis; k++) {
    int32_t at = 0;
    for (int32_t w = first; w; w = d->way[w].next) {
      pairs[at++] = d->way[w].condition;
      pairs[at++] = d->arg[d->way[w].args + k];
    }
    int32_t value = FLYI_VALUE_FIRST + b->first + k;
    d->value[value] = flyi_node_join(d->nodes, flyi_value_width(d->program, value), pairs, count);
  }
  free(pairs);
  return condition;
}

static void block(decoder *d, int32_t index) {
  const flyi_block *b = &d->program->block[index];
  int32_t first = d->waiting[index];
  if (!first) return; /* not reached */
  d->waiting[index] = 0;
  int32_t condition = enter(d, b, first);
  d->steps += 1 + b->count;
  for (int32_t k = b->phis; k < b->count && !d->nodes->failed; k++)
    d->value[FLYI_VALUE_FIRST + b->first + k] = instruction(d, &d->program->instruction[b->first + k]);
  if (!d->nodes->failed) leave(d, b, condition);
}

/* Loops stop at the limit; what comes after them may take as much again. */
static bool too_much(const decoder *d, int limits) {
  return d->nodes->count > limits * FLYI_NODE_LIMIT || d->steps > limits * STEPS_LIMIT;
}

/* Who is still waiting here may get any answer. */
static void give_up(decoder *d, int32_t index) {
  for (int32_t w = d->waiting[index]; w; w = d->way[w].next)
    answer(d, d->way[w].condition, flyi_node_unknown(d->nodes, 1));
  d->waiting[index] = 0;
}

static void region(decoder *d, int32_t first, int32_t end, bool in_loop) {
  for (int32_t at = first; at < end && !d->nodes->failed;) {
    int32_t size = d->program->block[at].loop;
    if (!size || (in_loop && at == first)) {
      if (too_much(d, 2))
        give_up(d, at);
      else
        block(d, at);
      at++;
      continue;
    }
    while (d->waiting[at] && !d->nodes->failed) {
      if (too_much(d, 1))
        give_up(d, at);
      else
        region(d, at, at + size, true);
    }
    at += size;
  }
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static bool start(decoder *d) {
  const flyi_program *p = d->program;
  d->value = flyi_alloc(FLYI_VALUE_FIRST + p->instructions, sizeof *d->value);
  d->waiting = flyi_alloc(p->blocks, sizeof *d->waiting);
  if (!d->value || !d->waiting || !reserve_way(d)) return false;
  d->value[FLYI_VALUE_B] = flyi_node_constant(d->nodes, 32, d->b);
  d->value[FLYI_VALUE_H] = flyi_node_constant(d->nodes, 32, d->h);
  d->value[FLYI_VALUE_Q] = flyi_node_affine(d->nodes, 32, 1, 0, 0);
  d->value[FLYI_VALUE_KV] = flyi_node_affine(d->nodes, 32, 0, 1, 0);
  d->waiting[0] = ++d->ways;
  d->way[d->ways] = (way){.condition = flyi_node_constant(d->nodes, 1, 1)};
  return true;
}

fly_status flyi_decode(const flyi_program *program, const fly_bound *bound, const fly_geometry *geometry, int64_t b,
                       int64_t h, flyi_arrays *arrays, flyi_nodes *out, fly_error *error) {
  flyi_box domain = {geometry->q_offset, geometry->q_offset + flyi_len_q(geometry, b) - 1, 0,
                     flyi_len_kv(geometry, b) - 1};
  decoder d = {
      .program = program, .bound = bound, .geometry = geometry, .b = b, .h = h, .arrays = arrays, .nodes = out};
  flyi_nodes_init(out, domain);
  bool done = start(&d);
  if (done) {
    region(&d, 0, program->blocks, false);
    out->answer = flyi_node_join(out, 1, d.answer, d.answers / 2);
    done = !out->failed && flyi_nodes_seal(out);
  }
  free(d.value), free(d.waiting), free(d.way), free(d.arg), free(d.answer);
  if (done) return FLY_OK;
  flyi_nodes_free(out);
  return flyi_no_memory(error);
}
