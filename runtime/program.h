/* program.h: a mask program: the optimised control-flow graph of a mask, in a form of our own that needs no LLVM.
 *
 * A program is independent of lengths and of the values of parameters: decode.c joins it with those. It is a list of
 * basic blocks in an order in which each block comes after its forward predecessors, and a loop is contiguous behind
 * its header. Values are numbered: 0 to 3 are the mask's b, h, q and kv (32 bits); then one for each instruction, in
 * order. Operands are values with smaller numbers. Phis come first in their block; what they receive stands on the
 * edges that lead there.
 *
 * flyi_program_encode makes the bytes that an image carries, flyi_program_parse reads and checks them: what it
 * accepts can be decoded without reading outside of anything. */
#ifndef FLYMASK_PROGRAM_H
#define FLYMASK_PROGRAM_H

#include "runtime.h"

enum { FLYI_PROGRAM_VERSION = 1 };

/* Value numbers of the mask's arguments, and of the first instruction. */
enum { FLYI_VALUE_B, FLYI_VALUE_H, FLYI_VALUE_Q, FLYI_VALUE_KV, FLYI_VALUE_FIRST };

typedef enum flyi_op {
  FLYI_OP_UNKNOWN, /* a value that analysis does not understand */
  FLYI_OP_PHI,
  FLYI_OP_CONST, /* k */
  FLYI_OP_PARAM, /* k: which */
  FLYI_OP_COUNT, /* k: which buffer; its elements (64 bits) */
  FLYI_OP_DIM,   /* k: 4 * buffer + dimension (64 bits) */
  FLYI_OP_LOAD,  /* buffer k at element a (64 bits) */
  FLYI_OP_TABLE, /* table k at element a (64 bits) */
  FLYI_OP_TOKEN_Q,
  FLYI_OP_TOKEN_KV, /* of (a, b, c) */
  FLYI_OP_LEN_Q,
  FLYI_OP_LEN_KV, /* of a */
  FLYI_OP_ADD,
  FLYI_OP_SUB,
  FLYI_OP_MUL,
  FLYI_OP_UDIV,
  FLYI_OP_SDIV,
  FLYI_OP_UREM,
  FLYI_OP_SREM,
  FLYI_OP_SHL,
  FLYI_OP_LSHR,
  FLYI_OP_ASHR,
  FLYI_OP_AND,
  FLYI_OP_OR,
  FLYI_OP_XOR,
  FLYI_OP_SMAX,
  FLYI_OP_SMIN,
  FLYI_OP_UMAX,
  FLYI_OP_UMIN,
  FLYI_OP_ABS,
  FLYI_OP_POPCOUNT,
  FLYI_OP_CTLZ,
  FLYI_OP_CTTZ,
  FLYI_OP_ZEXT,
  FLYI_OP_SEXT,
  FLYI_OP_TRUNC,
  FLYI_OP_EQ,
  FLYI_OP_NE,
  FLYI_OP_SLT,
  FLYI_OP_SLE,
  FLYI_OP_ULT,
  FLYI_OP_ULE,    /* of operands of more than one bit */
  FLYI_OP_SELECT, /* a ? b : c */
  FLYI_OP_LIMIT
} flyi_op;

typedef struct flyi_instruction {
  uint8_t op, width;
  int32_t a, b, c; /* operands, where the op has them */
  int64_t k;
} flyi_instruction;

typedef enum flyi_end {
  FLYI_END_RETURN, /* value: the mask's answer (1 bit) */
  FLYI_END_JUMP,   /* one edge */
  FLYI_END_BRANCH, /* value (1 bit): the first edge where it holds, else the second */
  FLYI_END_SWITCH, /* value: the first edge unless it equals another's match */
  FLYI_END_LIMIT
} flyi_end;

typedef struct flyi_edge {
  int32_t target, args; /* a block; what its phis receive: arg[args] .. */
  int64_t match;        /* of a switch */
} flyi_edge;

typedef struct flyi_block {
  int32_t first, count, phis; /* instructions; the first `phis` of them are phis */
  int32_t loop;               /* blocks of the loop that it heads, itself included; 0: none */
  uint8_t end;
  int32_t value; /* of RETURN, BRANCH, SWITCH */
  int32_t edge, edges;
} flyi_block;

/* A table of constants in the source. */
typedef struct flyi_table {
  int32_t bytes; /* of an element: 1, 2, 4, 8 */
  int64_t count; /* 1 or more */
  void *data;
} flyi_table;

/* Beside FLYI_READS_...: b or h used otherwise than as the first operands of TOKEN and LEN. */
enum { FLYI_READS_DIRECT_B = 1 << 16, FLYI_READS_DIRECT_H = 1 << 17 };

typedef struct flyi_program {
  uint32_t reads;
  flyi_instruction *instruction;
  flyi_block *block;
  flyi_edge *edge;
  int32_t *arg;
  flyi_table *table;
  int32_t instructions, blocks, edges, args, tables;
  int32_t capacity[5]; /* of the arrays, in the order above */
} flyi_program;

/* Each appends one and returns its index, or -1 where memory is short. A value's number is FLYI_VALUE_FIRST more.
 * Data of a table is copied. */
int32_t flyi_program_add(flyi_program *program, flyi_instruction instruction);
int32_t flyi_program_add_block(flyi_program *program, flyi_block block);
int32_t flyi_program_add_edge(flyi_program *program, flyi_edge edge);
int32_t flyi_program_add_arg(flyi_program *program, int32_t value);
int32_t flyi_program_add_table(flyi_program *program, int bytes, int64_t count, const void *data);
void flyi_program_free(flyi_program *program);

/* The width of a value. */
static inline int flyi_value_width(const flyi_program *program, int32_t value) {
  return value < FLYI_VALUE_FIRST ? 32 : program->instruction[value - FLYI_VALUE_FIRST].width;
}
/* How many operands an op has. */
int flyi_op_operands(flyi_op op);

fly_status flyi_program_encode(const flyi_program *program, flyi_bytes *out, fly_error *error);
/* Reads and checks. image: what it may refer to. The caller frees *out, also after a failure. */
fly_status flyi_program_parse(flyi_section section, const flyi_image *image, flyi_program *out, fly_error *error);

#endif
