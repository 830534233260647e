/* program.c: mask programs in memory, and writing them as bytes. program_parse.c reads them.
 *
 * The bytes: "FLYP", then numbers of 7 bits a byte, the lowest first, the top bit set on all but the last (LEB128);
 * signed ones with the sign in the lowest bit. In order:
 *
 *     version, reads
 *     tables:  number; for each: bytes of an element, elements, the elements (little-endian)
 *     blocks:  number; for each: loop, phis, the phis' widths
 *     bodies:  for each block: instructions without phis; each of them as op, width, operands, k where the op has one;
 *              end, value unless JUMP, edges where SWITCH; each edge as target, match (SWITCH, but for the first),
 *              a value for each phi of the target */
#include <stdlib.h>
#include <string.h>

#include "program.h"
#include "program_bytes.h"

int flyi_op_operands(flyi_op op) {
  switch (op) {
  case FLYI_OP_UNKNOWN:
  case FLYI_OP_PHI:
  case FLYI_OP_CONST:
  case FLYI_OP_PARAM:
  case FLYI_OP_COUNT:
  case FLYI_OP_DIM:
    return 0;
  case FLYI_OP_LOAD:
  case FLYI_OP_TABLE:
  case FLYI_OP_LEN_Q:
  case FLYI_OP_LEN_KV:
  case FLYI_OP_ABS:
  case FLYI_OP_POPCOUNT:
  case FLYI_OP_CTLZ:
  case FLYI_OP_CTTZ:
  case FLYI_OP_ZEXT:
  case FLYI_OP_SEXT:
  case FLYI_OP_TRUNC:
    return 1;
  case FLYI_OP_TOKEN_Q:
  case FLYI_OP_TOKEN_KV:
  case FLYI_OP_SELECT:
    return 3;
  default:
    return 2;
  }
}

bool flyi_op_has_constant(flyi_op op) { return op >= FLYI_OP_CONST && op <= FLYI_OP_TABLE; }

/* ---- growing ----------------------------------------------------------------------------------------------------- */

/* Makes room for one more element: `which` array, with `used` elements of `size` bytes. */
static void *room(flyi_program *program, int which, void *array, int32_t used, size_t size) {
  int32_t *capacity = &program->capacity[which];
  if (used < *capacity) return array;
  if (used > INT32_MAX / 4) return NULL;
  int32_t grown = *capacity ? 2 * *capacity : 32;
  void *moved = flyi_grow(array, grown, size);
  if (moved) *capacity = grown;
  return moved;
}

int32_t flyi_program_add(flyi_program *p, flyi_instruction instruction) {
  flyi_instruction *array = room(p, 0, p->instruction, p->instructions, sizeof *array);
  if (!array) return -1;
  p->instruction = array;
  array[p->instructions] = instruction;
  return p->instructions++;
}

int32_t flyi_program_add_block(flyi_program *p, flyi_block block) {
  flyi_block *array = room(p, 1, p->block, p->blocks, sizeof *array);
  if (!array) return -1;
  p->block = array;
  array[p->blocks] = block;
  return p->blocks++;
}

int32_t flyi_program_add_edge(flyi_program *p, flyi_edge edge) {
  flyi_edge *array = room(p, 2, p->edge, p->edges, sizeof *array);
  if (!array) return -1;
  p->edge = array;
  array[p->edges] = edge;
  return p->edges++;
}

int32_t flyi_program_add_arg(flyi_program *p, int32_t value) {
  int32_t *array = room(p, 3, p->arg, p->args, sizeof *array);
  if (!array) return -1;
  p->arg = array;
  array[p->args] = value;
  return p->args++;
}

int32_t flyi_program_add_table(flyi_program *p, int bytes, int64_t count, const void *data) {
  flyi_table *array = room(p, 4, p->table, p->tables, sizeof *array);
  if (!array) return -1;
  p->table = array;
  void *copy = flyi_alloc(count, bytes);
  if (!copy) return -1;
  memcpy(copy, data, count * bytes);
  array[p->tables] = (flyi_table){bytes, count, copy};
  return p->tables++;
}

void flyi_program_free(flyi_program *p) {
  for (int32_t i = 0; i < p->tables; i++) free(p->table[i].data);
  free(p->instruction), free(p->block), free(p->edge), free(p->arg), free(p->table);
  *p = (flyi_program){0};
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

typedef struct writer {
  flyi_bytes *out;
  bool failed;
} writer;

static void put_bytes(writer *w, const void *data, size_t size) {
  if (!w->failed && !flyi_bytes_add(w->out, data, size)) w->failed = true;
}

static void put(writer *w, uint64_t x) {
  uint8_t bytes[10];
  int n = 0;
  do {
    bytes[n++] = (uint8_t)((x & 127) | (x > 127 ? 128 : 0));
  } while (x >>= 7);
  put_bytes(w, bytes, n);
}

static void put_signed(writer *w, int64_t x) { put(w, (uint64_t)x << 1 ^ (uint64_t)(x >> 63)); }

static void put_instruction(writer *w, const flyi_instruction *i) {
  const int32_t operand[3] = {i->a, i->b, i->c};
  put(w, i->op), put(w, i->width);
  for (int k = 0; k < flyi_op_operands(i->op); k++) put(w, operand[k]);
  if (flyi_op_has_constant(i->op)) put_signed(w, i->k);
}

static void put_body(writer *w, const flyi_program *p, const flyi_block *b) {
  put(w, b->count - b->phis);
  for (int32_t i = b->phis; i < b->count; i++) put_instruction(w, &p->instruction[b->first + i]);
  put(w, b->end);
  if (b->end != FLYI_END_JUMP) put(w, b->value);
  if (b->end == FLYI_END_SWITCH) put(w, b->edges);
  for (int32_t e = 0; e < b->edges; e++) {
    const flyi_edge *edge = &p->edge[b->edge + e];
    put(w, edge->target);
    if (b->end == FLYI_END_SWITCH && e) put_signed(w, edge->match);
    for (int32_t k = 0; k < p->block[edge->target].phis; k++) put(w, p->arg[edge->args + k]);
  }
}

fly_status flyi_program_encode(const flyi_program *p, flyi_bytes *out, fly_error *error) {
  writer w = {.out = out};
  put_bytes(&w, FLYI_PROGRAM_MAGIC, 4);
  put(&w, FLYI_PROGRAM_VERSION), put(&w, p->reads);
  put(&w, p->tables);
  for (int32_t i = 0; i < p->tables; i++) {
    put(&w, p->table[i].bytes), put(&w, p->table[i].count);
    put_bytes(&w, p->table[i].data, p->table[i].bytes * p->table[i].count);
  }
  put(&w, p->blocks);
  for (int32_t i = 0; i < p->blocks; i++) {
    const flyi_block *b = &p->block[i];
    put(&w, b->loop), put(&w, b->phis);
    for (int32_t k = 0; k < b->phis; k++) put(&w, p->instruction[b->first + k].width);
  }
  for (int32_t i = 0; i < p->blocks; i++) put_body(&w, p, &p->block[i]);
  return w.failed ? flyi_no_memory(error) : FLY_OK;
}
