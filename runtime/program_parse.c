/* program_parse.c: reads a program's bytes (program.c has the format) and checks all of it, so that the decoder need
 * not.
 *
 * Checked are: every count, index and width; that operands come before their use; that blocks are in the order which
 * program.h promises: edges lead forward or back to the header of a loop around them, loops nest, and are entered
 * through their header alone. */
#include <stdlib.h>
#include <string.h>

#include "program.h"
#include "program_bytes.h"

typedef struct reader {
  const uint8_t *at, *end;
  const flyi_image *image;
  flyi_program *program;
  const char *fault; /* the first */
  bool memory;       /* the fault is that memory is short */
} reader;

static void fault(reader *r, const char *what) {
  if (!r->fault) r->fault = what;
  r->at = r->end; /* nothing more is read */
}

static uint64_t get(reader *r, uint64_t limit) {
  uint64_t x = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (r->at == r->end) return fault(r, "ends too early"), 0;
    uint8_t byte = *r->at++;
    x |= (uint64_t)(byte & 127) << shift;
    if (byte < 128) {
      if (x <= limit) return x;
      break;
    }
  }
  return fault(r, "has a number out of range"), 0;
}

static int64_t get_signed(reader *r) {
  uint64_t x = get(r, UINT64_MAX);
  return (int64_t)(x >> 1 ^ -(x & 1));
}

/* A count of things that take at least a byte each. */
static int32_t get_count(reader *r) { return (int32_t)get(r, (uint64_t)(r->end - r->at) & INT32_MAX); }

static int32_t added(reader *r, int32_t index) {
  if (index < 0) r->memory = true, fault(r, "does not fit into memory");
  return index;
}

static void require(reader *r, bool holds, const char *what) {
  if (!holds) fault(r, what);
}

/* ---- instructions ------------------------------------------------------------------------------------------------ */

static bool integer(fly_type type) { return type >= FLY_I8; }

/* What an instruction reads from outside: does it exist, and has it the width? */
static void check_source(reader *r, const flyi_instruction *i) {
  const flyi_image *image = r->image;
  fly_type type = FLY_TYPE_NONE;
  if (i->op == FLYI_OP_TABLE) {
    bool exists = i->k >= 0 && i->k < r->program->tables;
    require(r, exists && i->width == 8 * r->program->table[i->k].bytes, "reads a table that is not there");
    return;
  }
  if (i->op == FLYI_OP_PARAM) {
    require(r, i->k >= 0 && i->k < image->parameter_count, "reads a parameter that is not declared");
    if (!r->fault) type = image->parameters[i->k].type;
  } else {
    int64_t buffer = i->op == FLYI_OP_DIM ? i->k / 4 : i->k;
    require(r, i->k >= 0 && buffer < image->buffer_count, "reads a buffer that is not declared");
    if (!r->fault) type = image->buffers[buffer].type;
  }
  if (i->op == FLYI_OP_COUNT || i->op == FLYI_OP_DIM)
    require(r, i->width == 64, "has a size of other than 64 bits");
  else
    require(r, integer(type) && i->width == 8 * fly_type_size(type), "reads a value of another width");
}

static void check_widths(reader *r, const flyi_instruction *i, const int width[3]) {
  bool ok = true;
  switch (i->op) {
  case FLYI_OP_UNKNOWN:
  case FLYI_OP_CONST:
    break;
  case FLYI_OP_LOAD:
  case FLYI_OP_TABLE:
    ok = width[0] == 64;
    break;
  case FLYI_OP_PARAM:
  case FLYI_OP_COUNT:
  case FLYI_OP_DIM:
    break;
  case FLYI_OP_TOKEN_Q:
  case FLYI_OP_TOKEN_KV:
    ok = i->width == 32 && width[0] == 32 && width[1] == 32 && width[2] == 32;
    break;
  case FLYI_OP_LEN_Q:
  case FLYI_OP_LEN_KV:
    ok = i->width == 32 && width[0] == 32;
    break;
  case FLYI_OP_AND:
  case FLYI_OP_OR:
  case FLYI_OP_XOR:
    ok = width[0] == i->width && width[1] == i->width;
    break;
  case FLYI_OP_ABS:
  case FLYI_OP_POPCOUNT:
  case FLYI_OP_CTLZ:
  case FLYI_OP_CTTZ:
    ok = i->width > 1 && width[0] == i->width;
    break;
  case FLYI_OP_ZEXT:
  case FLYI_OP_SEXT:
    ok = width[0] < i->width;
    break;
  case FLYI_OP_TRUNC:
    ok = width[0] > i->width;
    break;
  case FLYI_OP_SELECT:
    ok = width[0] == 1 && width[1] == i->width && width[2] == i->width;
    break;
  default:
    if (i->op >= FLYI_OP_EQ && i->op <= FLYI_OP_ULE)
      ok = i->width == 1 && width[0] > 1 && width[0] == width[1];
    else
      ok = i->width > 1 && width[0] == i->width && width[1] == i->width;
  }
  require(r, ok, "mixes widths");
}

static void read_instruction(reader *r) {
  flyi_program *p = r->program;
  flyi_instruction i = {.op = (uint8_t)get(r, FLYI_OP_LIMIT - 1)};
  i.width = (uint8_t)get(r, 64);
  require(r, i.op != FLYI_OP_PHI && i.width >= 1, "has an instruction that is none");
  int32_t *operand[3] = {&i.a, &i.b, &i.c}, defined = FLYI_VALUE_FIRST + p->instructions;
  int width[3] = {0};
  for (int k = 0; k < flyi_op_operands(i.op) && !r->fault; k++) {
    *operand[k] = (int32_t)get(r, defined - 1);
    width[k] = flyi_value_width(p, *operand[k]);
  }
  if (flyi_op_has_constant(i.op)) i.k = get_signed(r);
  if (r->fault) return;
  if (i.op >= FLYI_OP_PARAM && i.op <= FLYI_OP_TABLE) check_source(r, &i);
  check_widths(r, &i, width);
  if (!r->fault) added(r, flyi_program_add(p, i));
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

/* outer[i]: the header of the innermost loop around block i (of a header: around its loop), or -1. */
static void check_edge(reader *r, const int32_t *outer, int32_t from, int32_t to) {
  const flyi_block *block = r->program->block;
  if (to <= from) require(r, block[to].loop && from < to + block[to].loop, "jumps back to no loop's header");
  for (int32_t h = outer[to]; to > from && h >= 0; h = outer[h])
    require(r, from >= h, "enters a loop through its side");
}

static void read_edge(reader *r, const int32_t *outer, const int32_t *phi_width, const int32_t *phi_first, int32_t from,
                      bool match) {
  flyi_program *p = r->program;
  flyi_edge edge = {.target = (int32_t)get(r, p->blocks - 1), .args = p->args};
  if (match) edge.match = get_signed(r);
  require(r, edge.target > 0, "jumps to its entry");
  if (r->fault) return;
  check_edge(r, outer, from, edge.target);
  int32_t defined = FLYI_VALUE_FIRST + p->instructions;
  for (int32_t k = 0; k < p->block[edge.target].phis && !r->fault; k++) {
    int32_t value = (int32_t)get(r, defined - 1);
    require(r, !r->fault && flyi_value_width(p, value) == phi_width[phi_first[edge.target] + k],
            "gives a phi another width");
    if (!r->fault) added(r, flyi_program_add_arg(p, value));
  }
  if (!r->fault) added(r, flyi_program_add_edge(p, edge));
}

static void read_body(reader *r, const int32_t *outer, const int32_t *phi_width, const int32_t *phi_first, int32_t at) {
  flyi_program *p = r->program;
  flyi_block *b = &p->block[at];
  b->first = p->instructions;
  for (int32_t k = 0; k < b->phis && !r->fault; k++)
    added(r,
          flyi_program_add(p, (flyi_instruction){.op = FLYI_OP_PHI, .width = (uint8_t)phi_width[phi_first[at] + k]}));
  int32_t count = get_count(r);
  for (int32_t k = 0; k < count && !r->fault; k++) read_instruction(r);
  if (r->fault) return;
  b->count = p->instructions - b->first;
  b->end = (uint8_t)get(r, FLYI_END_LIMIT - 1);
  int width = 1;
  if (b->end != FLYI_END_JUMP) {
    b->value = (int32_t)get(r, FLYI_VALUE_FIRST + p->instructions - 1);
    if (!r->fault) width = flyi_value_width(p, b->value);
  }
  require(r, b->end == FLYI_END_SWITCH ? width > 1 : width == 1, "decides by a value of another width");
  int32_t edges = b->end == FLYI_END_SWITCH ? get_count(r) : b->end; /* RETURN 0, JUMP 1, BRANCH 2 */
  require(r, b->end != FLYI_END_SWITCH || edges >= 1, "has a switch without a default");
  b->edge = p->edges, b->edges = edges;
  for (int32_t k = 0; k < edges && !r->fault; k++)
    read_edge(r, outer, phi_width, phi_first, at, b->end == FLYI_END_SWITCH && k);
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static void read_tables(reader *r) {
  int32_t count = get_count(r);
  for (int32_t i = 0; i < count && !r->fault; i++) {
    uint64_t bytes = get(r, 8), elements = get(r, INT64_MAX);
    bool power = bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8;
    require(r, power && elements >= 1 && elements <= (uint64_t)(r->end - r->at) / bytes,
            "has a table that is too long");
    if (r->fault) return;
    added(r, flyi_program_add_table(r->program, (int)bytes, (int64_t)elements, r->at));
    if (!r->fault) r->at += bytes * elements;
  }
}

/* The blocks' headers: their loops, and the widths of their phis (*widths, from first[block] on). */
static void read_headers(reader *r, int32_t count, int32_t *outer, int32_t *first, flyi_bytes *widths) {
  flyi_program *p = r->program;
  int32_t open = -1, phis = 0;
  for (int32_t i = 0; i < count && !r->fault; i++) {
    flyi_block b = {.loop = (int32_t)get(r, count - i)};
    b.phis = get_count(r);
    while (open >= 0 && i >= open + p->block[open].loop) open = outer[open];
    outer[i] = open; /* of a header: the loop around its own */
    require(r, open < 0 || i + b.loop <= open + p->block[open].loop, "has loops that overlap");
    require(r, i > 0 || (!b.phis && !b.loop), "has phis in its entry");
    first[i] = phis;
    for (int32_t k = 0; k < b.phis && !r->fault; k++, phis++) {
      int32_t width = (int32_t)get(r, 64);
      require(r, width >= 1, "has a phi without a width");
      if (!flyi_bytes_add(widths, &width, sizeof width)) added(r, -1);
    }
    if (!r->fault) added(r, flyi_program_add_block(p, b));
    if (b.loop) open = i;
  }
}

static void read_blocks(reader *r) {
  int32_t count = get_count(r);
  require(r, count >= 1, "has no block");
  flyi_bytes widths = {0};
  int32_t *outer = flyi_alloc(2 * (size_t)count, sizeof *outer);
  if (!outer) added(r, -1);
  if (!r->fault) read_headers(r, count, outer, outer + count, &widths);
  for (int32_t i = 0; i < count && !r->fault; i++) read_body(r, outer, (const int32_t *)widths.data, outer + count, i);
  flyi_bytes_free(&widths);
  free(outer);
}

fly_status flyi_program_parse(flyi_section section, const flyi_image *image, flyi_program *out, fly_error *error) {
  *out = (flyi_program){0};
  const uint8_t *data = section.data;
  if (section.size < 4 || memcmp(data, FLYI_PROGRAM_MAGIC, 4))
    return flyi_fail(error, FLY_ERROR_IMAGE, "the mask program is none");
  reader r = {.at = data + 4, .end = data + section.size, .image = image, .program = out};
  require(&r, get(&r, UINT32_MAX) == FLYI_PROGRAM_VERSION, "is of another version");
  out->reads = (uint32_t)get(&r, UINT32_MAX);
  read_tables(&r);
  if (!r.fault) read_blocks(&r);
  if (!r.fault) require(&r, r.at == r.end, "has bytes behind its end");
  if (!r.fault) return FLY_OK;
  return r.memory ? flyi_no_memory(error) : flyi_fail(error, FLY_ERROR_IMAGE, "the mask program %s", r.fault);
}

fly_status flyi_program_check(flyi_section program, const flyi_image *image, fly_error *error) {
  flyi_program parsed;
  fly_status status = flyi_program_parse(program, image, &parsed, error);
  flyi_program_free(&parsed);
  return status;
}
