/* divide.c: divides a mask by what its values depend on. Input: a module with the symbolic @mask and the template.
 * Output: the same module, with the template's fly_row, fly_column, fly_pair, fly_row_repeats and fly_reads_tokens
 * defined, and without @mask. A differentiated score modifier, @score_slope, is divided likewise; what depends on the
 * score counts as depending on the query and on the key.
 *
 * Of the values that the arguments alone decide, which straighten.c has collected in the entry block,
 *
 *     fly_row     computes what depends on q alone (and b, h, parameters), once for each row of a block,
 *     fly_column  what depends on kv alone, if that is worth a table: once for each column,
 *     fly_pair    is the mask with those values read from the tables. */
#include <stdlib.h>
#include <string.h>

#include "compiler.h"

enum { BY_QUERY = 1, BY_KEY = 2 };              /* what a value depends on */
enum { B = 1, H, Q, KV, SCORE = 8, SLOPE };     /* arguments of fly_pair, and of fly_row, fly_column up to 3 */
enum { WORTH_A_TABLE = 6, MAX_COST = 1 << 20 }; /* a table costs a store and a load */

/* An instruction in the entry block that the arguments alone decide. */
typedef struct value {
  LLVMValueRef instruction;
  LLVMValueRef clone; /* in the function being built */
  unsigned depends;   /* BY_... */
  int cost;           /* to compute it from the arguments, about in cycles */
  int slot;           /* in flyi_row or flyi_columns; -1: none */
  bool wanted;        /* by fly_pair, or by the clone being made */
} value;

typedef struct division {
  LLVMContextRef context;
  LLVMModuleRef module;
  LLVMBuilderRef builder;
  LLVMValueRef pair;
  LLVMBasicBlockRef entry;
  value *values; /* in an order in which each can be computed */
  int count;
  int *index; /* hash table: 1 + number in values; 0: free */
  size_t index_size;
  int rows, columns;
  bool reads_q; /* fly_pair reads q itself */
} division;

/* ---- values by instruction --------------------------------------------------------------------------------------- */

static size_t place_of(const division *d, LLVMValueRef instruction) {
  size_t at = ((uintptr_t)instruction >> 4) * 0x9E3779B97F4A7C15 >> 20 & (d->index_size - 1);
  while (d->index[at] && d->values[d->index[at] - 1].instruction != instruction) at = (at + 1) & (d->index_size - 1);
  return at;
}

static value *find(const division *d, LLVMValueRef instruction) {
  int number = d->index[place_of(d, instruction)];
  return number ? &d->values[number - 1] : NULL;
}

static bool prepare(division *d) {
  size_t instructions = 0;
  for (LLVMValueRef i = LLVMGetFirstInstruction(d->entry); i; i = LLVMGetNextInstruction(i)) instructions++;
  for (d->index_size = 16; d->index_size < 2 * instructions; d->index_size *= 2) {}
  d->values = flyi_alloc(instructions, sizeof *d->values);
  d->index = flyi_alloc(d->index_size, sizeof *d->index);
  return d->values && d->index;
}

static void add(division *d, LLVMValueRef instruction, unsigned depends, int cost) {
  size_t at = place_of(d, instruction);
  d->values[d->count] = (value){.instruction = instruction, .depends = depends, .cost = cost, .slot = -1};
  d->index[at] = ++d->count;
}

/* ---- what the arguments decide ----------------------------------------------------------------------------------- */

/* Whether the operands are known, and what they depend on and cost. */
static unsigned dependence(const division *d, LLVMValueRef argument) {
  if (argument == LLVMGetParam(d->pair, Q)) return BY_QUERY;
  if (argument == LLVMGetParam(d->pair, KV)) return BY_KEY;
  return LLVMCountParams(d->pair) > SCORE && argument == LLVMGetParam(d->pair, SCORE) ? BY_QUERY | BY_KEY : 0;
}

static bool know_operands(const division *d, LLVMValueRef instruction, unsigned *depends, int *cost) {
  for (int i = 0, n = LLVMGetNumOperands(instruction); i < n; i++) {
    LLVMValueRef operand = LLVMGetOperand(instruction, (unsigned)i);
    if (LLVMIsAConstant(operand)) continue;
    if (LLVMIsAArgument(operand)) {
      *depends |= dependence(d, operand);
      continue;
    }
    const value *v = LLVMIsAInstruction(operand) ? find(d, operand) : NULL;
    if (!v) return false;
    *depends |= v->depends;
    *cost += v->cost;
  }
  if (*cost > MAX_COST) *cost = MAX_COST;
  return true;
}

/* Loads of the mask's globals are free: they are hoisted out of all loops. */
static bool reads_global(LLVMValueRef instruction) {
  return LLVMIsALoadInst(instruction) && LLVMIsAGlobalVariable(LLVMGetOperand(instruction, 0));
}

static void find_values(division *d) {
  for (LLVMValueRef i = LLVMGetFirstInstruction(d->entry); i; i = LLVMGetNextInstruction(i)) {
    unsigned depends = 0;
    int cost = flyi_cost(i);
    if (cost >= 0 && know_operands(d, i, &depends, &cost)) add(d, i, depends, reads_global(i) ? 0 : cost);
  }
}

/* ---- which values get a slot ------------------------------------------------------------------------------------- */

/* Bytes of a type that a slot can hold; 0: none. A truth value takes a byte. */
static unsigned slot_bytes(LLVMTypeRef type) {
  switch (LLVMGetTypeKind(type)) {
  case LLVMIntegerTypeKind: {
    unsigned bits = LLVMGetIntTypeWidth(type);
    return bits == 1 ? 1 : bits == 8 || bits == 16 || bits == 32 || bits == 64 ? bits / 8 : 0;
  }
  case LLVMFloatTypeKind:
    return 4;
  case LLVMDoubleTypeKind:
  case LLVMPointerTypeKind:
    return 8;
  default:
    return 0;
  }
}

static bool is_bool(LLVMTypeRef type) {
  return LLVMGetTypeKind(type) == LLVMIntegerTypeKind && LLVMGetIntTypeWidth(type) == 1;
}

static void want_operands(division *d, LLVMValueRef instruction) {
  for (int i = 0, n = LLVMGetNumOperands(instruction); i < n; i++) {
    LLVMValueRef operand = LLVMGetOperand(instruction, (unsigned)i);
    value *v = LLVMIsAInstruction(operand) ? find(d, operand) : NULL;
    if (v)
      v->wanted = true;
    else if (operand == LLVMGetParam(d->pair, Q))
      d->reads_q = true;
  }
}

/* A widened truth value of a row: its slot is for the truth value, as which ranges.c knows it. */
static bool widens_truth(LLVMValueRef instruction) {
  return LLVMGetInstructionOpcode(instruction) == LLVMZExt && is_bool(LLVMTypeOf(LLVMGetOperand(instruction, 0)));
}

static bool give_slot(division *d, value *v) {
  bool row = !(v->depends & BY_KEY);
  if (row && widens_truth(v->instruction)) return false;
  if (slot_bytes(LLVMTypeOf(v->instruction)) == 0) return false;
  if (row && d->rows < FLYI_ROW_SLOTS)
    v->slot = d->rows++;
  else if (v->depends == BY_KEY && v->cost >= WORTH_A_TABLE && d->columns < FLYI_COLUMN_SLOTS)
    v->slot = d->columns++;
  return v->slot >= 0;
}

/* From what is left of the mask backwards to the values that it takes from tables. Behind a return in the entry
 * block nothing is left. */
static void choose_slots(division *d) {
  bool straight = LLVMGetInstructionOpcode(LLVMGetBasicBlockTerminator(d->entry)) == LLVMRet;
  for (LLVMBasicBlockRef b = d->entry; b; b = straight ? NULL : LLVMGetNextBasicBlock(b))
    for (LLVMValueRef i = LLVMGetFirstInstruction(b); i; i = LLVMGetNextInstruction(i))
      if (!find(d, i)) want_operands(d, i);
  for (int i = d->count - 1; i >= 0; i--)
    if (d->values[i].wanted && !give_slot(d, &d->values[i])) want_operands(d, d->values[i].instruction);
}

/* ---- fly_row, fly_column ----------------------------------------------------------------------------------------- */

/* The address of a value's slot. Rows: slot[n]. Columns: element j of slot[n]. */
static LLVMValueRef slot_address(division *d, const value *v, LLVMTypeRef type, LLVMValueRef table, LLVMValueRef j) {
  LLVMTypeRef i64 = LLVMInt64TypeInContext(d->context);
  LLVMValueRef number = LLVMConstInt(i64, (uint64_t)v->slot * (j ? FLYI_BLOCK : 1), false);
  LLVMValueRef base = LLVMBuildInBoundsGEP2(d->builder, i64, table, &number, 1, "");
  return j ? LLVMBuildInBoundsGEP2(d->builder, type, base, &j, 1, "") : base;
}

static LLVMValueRef load_slot(division *d, const value *v, LLVMValueRef table, LLVMValueRef j) {
  LLVMTypeRef type = LLVMTypeOf(v->instruction), byte = LLVMInt8TypeInContext(d->context);
  LLVMTypeRef stored = is_bool(type) ? byte : type;
  LLVMValueRef loaded = LLVMBuildLoad2(d->builder, stored, slot_address(d, v, stored, table, j), "");
  return is_bool(type) ? LLVMBuildICmp(d->builder, LLVMIntNE, loaded, LLVMConstNull(byte), "") : loaded;
}

static void store_slot(division *d, const value *v, LLVMValueRef table, LLVMValueRef j) {
  LLVMTypeRef type = LLVMTypeOf(v->instruction), byte = LLVMInt8TypeInContext(d->context);
  LLVMValueRef stored = is_bool(type) ? LLVMBuildZExt(d->builder, v->clone, byte, "") : v->clone;
  LLVMBuildStore(d->builder, stored, slot_address(d, v, LLVMTypeOf(stored), table, j));
}

/* Copies an instruction; its operands are constants, arguments, or were copied before. `position` is the function's
 * q or kv. */
static LLVMValueRef clone(division *d, LLVMValueRef instruction, LLVMValueRef function) {
  LLVMValueRef copy = LLVMInstructionClone(instruction);
  for (int i = 0, n = LLVMGetNumOperands(copy); i < n; i++) {
    LLVMValueRef operand = LLVMGetOperand(copy, (unsigned)i);
    if (LLVMIsAInstruction(operand)) {
      LLVMSetOperand(copy, (unsigned)i, find(d, operand)->clone);
    } else if (LLVMIsAArgument(operand)) {
      unsigned argument = operand == LLVMGetParam(d->pair, B) ? B : operand == LLVMGetParam(d->pair, H) ? H : Q;
      LLVMSetOperand(copy, (unsigned)i, LLVMGetParam(function, argument));
    }
  }
  LLVMInsertIntoBuilder(d->builder, copy);
  return copy;
}

static void build_table(division *d, LLVMValueRef function, bool columns) {
  LLVMValueRef table = LLVMGetParam(function, 4), j = columns ? LLVMGetParam(function, 5) : NULL;
  LLVMPositionBuilderAtEnd(d->builder, LLVMAppendBasicBlockInContext(d->context, function, ""));
  for (int i = d->count - 1; i >= 0; i--) {
    value *v = &d->values[i];
    bool here = v->slot >= 0 && (v->depends & BY_KEY) == (columns ? BY_KEY : 0);
    v->wanted = here || v->wanted;
    if (v->wanted) want_operands(d, v->instruction);
  }
  for (int i = 0; i < d->count; i++) {
    value *v = &d->values[i];
    if (!v->wanted) continue;
    v->wanted = false;
    v->clone = clone(d, v->instruction, function);
    if (v->slot >= 0 && (v->depends & BY_KEY) == (columns ? BY_KEY : 0)) store_slot(d, v, table, j);
  }
  LLVMBuildRetVoid(d->builder);
}

/* Rows have the same bits where all that fly_pair reads of them is the same. */
static void build_repeats(division *d, LLVMValueRef function) {
  LLVMTypeRef truth = LLVMInt1TypeInContext(d->context), i64 = LLVMInt64TypeInContext(d->context);
  LLVMPositionBuilderAtEnd(d->builder, LLVMAppendBasicBlockInContext(d->context, function, ""));
  LLVMValueRef same = LLVMConstInt(truth, !d->reads_q, false);
  for (int i = 0; i < d->count && !d->reads_q; i++) {
    const value *v = &d->values[i];
    if (v->slot < 0 || v->depends != BY_QUERY) continue;
    LLVMTypeRef bits = LLVMIntTypeInContext(d->context, 8 * slot_bytes(LLVMTypeOf(v->instruction)));
    LLVMValueRef at = LLVMConstInt(i64, (uint64_t)v->slot, false), sides[2];
    for (unsigned side = 0; side < 2; side++) {
      LLVMValueRef address = LLVMBuildInBoundsGEP2(d->builder, i64, LLVMGetParam(function, side), &at, 1, "");
      sides[side] = LLVMBuildLoad2(d->builder, bits, address, "");
    }
    same = LLVMBuildAnd(d->builder, same, LLVMBuildICmp(d->builder, LLVMIntEQ, sides[0], sides[1], ""), "");
  }
  LLVMBuildRet(d->builder, same);
}

static bool has_uses(LLVMModuleRef module, const char *name) {
  LLVMValueRef function = LLVMGetNamedFunction(module, name);
  return function && LLVMGetFirstUse(function);
}

/* Whether the mask asks for tokens. */
static void build_reads_tokens(division *d, LLVMValueRef function) {
  bool reads = has_uses(d->module, "fly_token_q") || has_uses(d->module, "fly_token_kv");
  LLVMPositionBuilderAtEnd(d->builder, LLVMAppendBasicBlockInContext(d->context, function, ""));
  LLVMBuildRet(d->builder, LLVMConstInt(LLVMInt1TypeInContext(d->context), reads, false));
}

/* ---- fly_pair ---------------------------------------------------------------------------------------------------- */

/* The mask's blocks become fly_pair's. */
static void move_body(division *d, LLVMValueRef mask) {
  for (LLVMBasicBlockRef block; (block = LLVMGetFirstBasicBlock(mask));) {
    LLVMRemoveBasicBlockFromParent(block);
    LLVMAppendExistingBasicBlock(d->pair, block);
  }
  static const unsigned of_mask[] = {B, H, Q, KV}, of_score[] = {SCORE, B, H, Q, KV, SLOPE};
  unsigned count = LLVMCountParams(mask);
  const unsigned *places = count == 4 ? of_mask : of_score;
  for (unsigned i = 0; i < count; i++) LLVMReplaceAllUsesWith(LLVMGetParam(mask, i), LLVMGetParam(d->pair, places[i]));
  LLVMDeleteFunction(mask);
  d->entry = LLVMGetEntryBasicBlock(d->pair);
}

static void read_tables(division *d) {
  LLVMValueRef row = LLVMGetParam(d->pair, 5), columns = LLVMGetParam(d->pair, 6), j = LLVMGetParam(d->pair, 7);
  LLVMPositionBuilderBefore(d->builder, LLVMGetFirstInstruction(d->entry));
  for (int i = 0; i < d->count; i++) {
    value *v = &d->values[i];
    if (v->slot < 0) continue;
    bool by_key = v->depends & BY_KEY;
    LLVMReplaceAllUsesWith(v->instruction, load_slot(d, v, by_key ? columns : row, by_key ? j : NULL));
  }
  for (int i = d->count - 1; i >= 0; i--)
    if (!LLVMGetFirstUse(d->values[i].instruction)) LLVMInstructionEraseFromParent(d->values[i].instruction);
}

fly_status flyi_divide(LLVMModuleRef module, fly_error *error) {
  division d = {.context = LLVMGetModuleContext(module), .module = module};
  LLVMValueRef mask = LLVMGetNamedFunction(module, "mask"), row = LLVMGetNamedFunction(module, "fly_row");
  if (!mask) mask = LLVMGetNamedFunction(module, "score_slope");
  LLVMValueRef column = LLVMGetNamedFunction(module, "fly_column"),
               repeats = LLVMGetNamedFunction(module, "fly_row_repeats"),
               tokens = LLVMGetNamedFunction(module, "fly_reads_tokens");
  d.pair = LLVMGetNamedFunction(module, "fly_pair");
  if (!mask || LLVMIsDeclaration(mask) || !row || !column || !d.pair)
    return flyi_fail(error, FLY_ERROR_INTERNAL, "the mask or its template lacks a function");
  d.builder = LLVMCreateBuilderInContext(d.context);
  move_body(&d, mask);
  bool good = prepare(&d);
  if (good) {
    find_values(&d);
    choose_slots(&d);
    for (int i = 0; i < d.count; i++) d.values[i].wanted = false;
    bool reads_q = d.reads_q; /* by fly_pair, not by the tables */
    build_table(&d, row, false);
    build_table(&d, column, true);
    d.reads_q = reads_q;
    if (repeats) build_repeats(&d, repeats);
    if (tokens) build_reads_tokens(&d, tokens);
    read_tables(&d);
  }
  LLVMDisposeBuilder(d.builder);
  free(d.values);
  free(d.index);
  return good ? FLY_OK : flyi_no_memory(error);
}
