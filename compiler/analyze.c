/* analyze.c: the symbolic mask as a mask program (runtime/program.h).
 *
 * Input: the symbolic module, which is optimised here in place, and what the source declares. Output: the program's
 * bytes, and what the mask reads. The translation is block by block and instruction by instruction; what programs do
 * not have (floating point, local arrays, wide integers, ...) becomes a value that is unknown, which is sound: tiles
 * that depend on it are settled by the compiled mask. */
#include <llvm-c/Transforms/PassBuilder.h>
#include <stdlib.h>
#include <string.h>

#include "analyze.h"

/* ---- values ------------------------------------------------------------------------------------------------------ */

int flyi_int_width(LLVMTypeRef type) {
  unsigned width = LLVMGetTypeKind(type) == LLVMIntegerTypeKind ? LLVMGetIntTypeWidth(type) : 0;
  return width <= 64 ? (int)width : 0;
}

static size_t place(const flyi_translation *t, LLVMValueRef value) {
  size_t at = ((uintptr_t)value >> 4) * UINT64_C(0x9E3779B97F4A7C15) >> 20 & (t->slots - 1);
  while (t->slot[at].value && t->slot[at].value != value) at = (at + 1) & (t->slots - 1);
  return at;
}

static bool more_slots(flyi_translation *t) {
  flyi_translation grown = {.slots = t->slots ? 2 * t->slots : 256};
  grown.slot = flyi_alloc(grown.slots, sizeof *grown.slot);
  if (!grown.slot) return t->failed = true, false;
  for (size_t i = 0; i < t->slots; i++)
    if (t->slot[i].value) grown.slot[place(&grown, t->slot[i].value)] = t->slot[i];
  free(t->slot);
  t->slot = grown.slot, t->slots = grown.slots;
  return true;
}

struct flyi_numbered *flyi_number(flyi_translation *t, LLVMValueRef value) {
  if (2 * t->used >= t->slots && !more_slots(t)) return NULL;
  struct flyi_numbered *slot = &t->slot[place(t, value)];
  if (!slot->value) {
    *slot = (struct flyi_numbered){value, -1};
    t->used++;
  }
  return slot;
}

static void set_number(flyi_translation *t, LLVMValueRef value, int32_t number) {
  struct flyi_numbered *slot = flyi_number(t, value);
  if (slot) slot->number = number;
}

int32_t flyi_put(flyi_translation *t, flyi_instruction instruction) {
  int32_t index = flyi_program_add(&t->program, instruction);
  if (index < 0) t->failed = true;
  return FLYI_VALUE_FIRST + (index < 0 ? 0 : index);
}

int32_t flyi_put_constant(flyi_translation *t, int width, int64_t k) {
  return flyi_put(t, (flyi_instruction){.op = FLYI_OP_CONST, .width = (uint8_t)width, .k = k});
}

int32_t flyi_put_unknown(flyi_translation *t, int width) {
  return flyi_put(t, (flyi_instruction){.op = FLYI_OP_UNKNOWN, .width = (uint8_t)width});
}

int32_t flyi_put_binary(flyi_translation *t, flyi_op op, int width, int32_t a, int32_t b) {
  return flyi_put(t, (flyi_instruction){.op = (uint8_t)op, .width = (uint8_t)width, .a = a, .b = b});
}

static int32_t put_not(flyi_translation *t, int width, int32_t a) {
  return flyi_put_binary(t, FLYI_OP_XOR, width, a, flyi_put_constant(t, width, -1));
}

int32_t flyi_value(flyi_translation *t, LLVMValueRef value) {
  int width = flyi_int_width(LLVMTypeOf(value));
  if (LLVMIsAConstantInt(value)) return flyi_put_constant(t, width, LLVMConstIntGetSExtValue(value));
  struct flyi_numbered *slot = flyi_number(t, value);
  return slot && slot->number >= 0 ? slot->number : flyi_put_unknown(t, width);
}

/* ---- instructions ------------------------------------------------------------------------------------------------ */

static int32_t operand(flyi_translation *t, LLVMValueRef i, unsigned which) {
  return flyi_value(t, LLVMGetOperand(i, which));
}

static int32_t translate_binary(flyi_translation *t, LLVMValueRef i, int width) {
  static const uint8_t ops[] = {
      [LLVMAdd] = FLYI_OP_ADD,   [LLVMSub] = FLYI_OP_SUB,   [LLVMMul] = FLYI_OP_MUL,   [LLVMUDiv] = FLYI_OP_UDIV,
      [LLVMSDiv] = FLYI_OP_SDIV, [LLVMURem] = FLYI_OP_UREM, [LLVMSRem] = FLYI_OP_SREM, [LLVMShl] = FLYI_OP_SHL,
      [LLVMLShr] = FLYI_OP_LSHR, [LLVMAShr] = FLYI_OP_ASHR, [LLVMAnd] = FLYI_OP_AND,   [LLVMOr] = FLYI_OP_OR,
      [LLVMXor] = FLYI_OP_XOR};
  LLVMOpcode opcode = LLVMGetInstructionOpcode(i);
  uint8_t op = (size_t)opcode < sizeof ops ? ops[opcode] : 0;
  if (width == 1 && (op == FLYI_OP_ADD || op == FLYI_OP_SUB)) op = FLYI_OP_XOR;
  if (width == 1 && op == FLYI_OP_MUL) op = FLYI_OP_AND;
  if (width > 1 && op == FLYI_OP_OR && LLVMGetIsDisjoint(i)) op = FLYI_OP_ADD; /* no carries: intervals do better */
  bool known = op && (width > 1 || op == FLYI_OP_AND || op == FLYI_OP_OR || op == FLYI_OP_XOR);
  if (!known) return flyi_put_unknown(t, width);
  int32_t a = operand(t, i, 0), b = operand(t, i, 1);
  return flyi_put_binary(t, op, width, a, b);
}

/* Comparisons of bits by their truth tables; signed, the bit 1 is -1. */
static int32_t compare_bits(flyi_translation *t, LLVMIntPredicate predicate, int32_t a, int32_t b) {
  int32_t not_a = put_not(t, 1, a), not_b = put_not(t, 1, b);
  switch (predicate) {
  case LLVMIntEQ:
    return flyi_put_binary(t, FLYI_OP_XOR, 1, a, not_b);
  case LLVMIntNE:
    return flyi_put_binary(t, FLYI_OP_XOR, 1, a, b);
  case LLVMIntULT:
  case LLVMIntSGT:
    return flyi_put_binary(t, FLYI_OP_AND, 1, not_a, b);
  case LLVMIntULE:
  case LLVMIntSGE:
    return flyi_put_binary(t, FLYI_OP_OR, 1, not_a, b);
  case LLVMIntUGT:
  case LLVMIntSLT:
    return flyi_put_binary(t, FLYI_OP_AND, 1, a, not_b);
  default:
    return flyi_put_binary(t, FLYI_OP_OR, 1, a, not_b); /* UGE, SLE */
  }
}

static int32_t translate_compare(flyi_translation *t, LLVMValueRef i) {
  int from = flyi_int_width(LLVMTypeOf(LLVMGetOperand(i, 0)));
  if (!from) return flyi_put_unknown(t, 1);
  LLVMIntPredicate predicate = LLVMGetICmpPredicate(i);
  int32_t a = operand(t, i, 0), b = operand(t, i, 1);
  if (from == 1) return compare_bits(t, predicate, a, b);
  switch (predicate) {
  case LLVMIntEQ:
    return flyi_put_binary(t, FLYI_OP_EQ, 1, a, b);
  case LLVMIntNE:
    return flyi_put_binary(t, FLYI_OP_NE, 1, a, b);
  case LLVMIntSLT:
    return flyi_put_binary(t, FLYI_OP_SLT, 1, a, b);
  case LLVMIntSLE:
    return flyi_put_binary(t, FLYI_OP_SLE, 1, a, b);
  case LLVMIntSGT:
    return flyi_put_binary(t, FLYI_OP_SLT, 1, b, a);
  case LLVMIntSGE:
    return flyi_put_binary(t, FLYI_OP_SLE, 1, b, a);
  case LLVMIntULT:
    return flyi_put_binary(t, FLYI_OP_ULT, 1, a, b);
  case LLVMIntULE:
    return flyi_put_binary(t, FLYI_OP_ULE, 1, a, b);
  case LLVMIntUGT:
    return flyi_put_binary(t, FLYI_OP_ULT, 1, b, a);
  default:
    return flyi_put_binary(t, FLYI_OP_ULE, 1, b, a);
  }
}

static int32_t translate_cast(flyi_translation *t, LLVMValueRef i, flyi_op op, int width) {
  if (!flyi_int_width(LLVMTypeOf(LLVMGetOperand(i, 0)))) return flyi_put_unknown(t, width);
  int32_t a = operand(t, i, 0);
  return flyi_put(t, (flyi_instruction){.op = (uint8_t)op, .width = (uint8_t)width, .a = a});
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

static const char *callee(LLVMValueRef call) {
  size_t size;
  return LLVMGetValueName2(LLVMGetCalledValue(call), &size);
}

static bool begins(const char *text, const char *prefix) { return !strncmp(text, prefix, strlen(prefix)); }

/* a << c | b >> (width - c), for a constant c: what fshl is; fshr counts from the other side. */
static int32_t funnel(flyi_translation *t, LLVMValueRef i, int width, bool left) {
  LLVMValueRef count = LLVMGetOperand(i, 2);
  if (!LLVMIsAConstantInt(count)) return flyi_put_unknown(t, width);
  int c = (int)(LLVMConstIntGetZExtValue(count) % (unsigned)width);
  int32_t a = operand(t, i, 0), b = operand(t, i, 1);
  if (c == 0) return left ? a : b;
  if (!left) c = width - c;
  int32_t high = flyi_put_binary(t, FLYI_OP_SHL, width, a, flyi_put_constant(t, width, c));
  int32_t low = flyi_put_binary(t, FLYI_OP_LSHR, width, b, flyi_put_constant(t, width, width - c));
  return flyi_put_binary(t, FLYI_OP_OR, width, high, low);
}

static int32_t translate_intrinsic(flyi_translation *t, LLVMValueRef i, const char *name, int width) {
  static const struct {
    const char *prefix;
    flyi_op op;
  } known[] = {{"llvm.smax.", FLYI_OP_SMAX}, {"llvm.smin.", FLYI_OP_SMIN}, {"llvm.umax.", FLYI_OP_UMAX},
               {"llvm.umin.", FLYI_OP_UMIN}, {"llvm.abs.", FLYI_OP_ABS},   {"llvm.ctpop.", FLYI_OP_POPCOUNT},
               {"llvm.ctlz.", FLYI_OP_CTLZ}, {"llvm.cttz.", FLYI_OP_CTTZ}};
  if (width == 1) return flyi_put_unknown(t, width);
  for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
    if (!begins(name, known[k].prefix)) continue;
    int32_t a = operand(t, i, 0), b = flyi_op_operands(known[k].op) == 2 ? operand(t, i, 1) : 0;
    return flyi_put_binary(t, known[k].op, width, a, b);
  }
  if (begins(name, "llvm.fshl.")) return funnel(t, i, width, true);
  if (begins(name, "llvm.fshr.")) return funnel(t, i, width, false);
  if (begins(name, "llvm.usub.sat.")) { /* max(a, b) - b */
    int32_t a = operand(t, i, 0), b = operand(t, i, 1);
    return flyi_put_binary(t, FLYI_OP_SUB, width, flyi_put_binary(t, FLYI_OP_UMAX, width, a, b), b);
  }
  if (begins(name, "llvm.uadd.sat.")) { /* min(a, ~b) + b */
    int32_t a = operand(t, i, 0), b = operand(t, i, 1);
    return flyi_put_binary(t, FLYI_OP_ADD, width, flyi_put_binary(t, FLYI_OP_UMIN, width, a, put_not(t, width, b)), b);
  }
  return flyi_put_unknown(t, width);
}

static const struct {
  const char *name;
  flyi_op op;
  uint32_t reads;
} symbolic_calls[] = {{"fly_token_q", FLYI_OP_TOKEN_Q, FLYI_READS_TOKEN_Q},
                      {"fly_token_kv", FLYI_OP_TOKEN_KV, FLYI_READS_TOKEN_KV},
                      {"fly_len_q", FLYI_OP_LEN_Q, FLYI_READS_LEN_Q},
                      {"fly_len_kv", FLYI_OP_LEN_KV, FLYI_READS_LEN_KV}};

/* Which of them a value calls; -1: none. */
static int symbolic_call(LLVMValueRef i) {
  for (int k = 0; LLVMIsACallInst(i) && k < 4; k++)
    if (!strcmp(callee(i), symbolic_calls[k].name)) return k;
  return -1;
}

static int32_t translate_call(flyi_translation *t, LLVMValueRef i, int width) {
  int k = symbolic_call(i);
  if (k < 0) return translate_intrinsic(t, i, callee(i), width);
  flyi_instruction call = {.op = (uint8_t)symbolic_calls[k].op, .width = 32, .a = operand(t, i, 0)};
  if (flyi_op_operands(call.op) == 3) call.b = operand(t, i, 1), call.c = operand(t, i, 2);
  return flyi_put(t, call);
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

static int32_t translate_instruction(flyi_translation *t, LLVMValueRef i, int width) {
  switch (LLVMGetInstructionOpcode(i)) {
  case LLVMICmp:
    return translate_compare(t, i);
  case LLVMZExt:
    return translate_cast(t, i, FLYI_OP_ZEXT, width);
  case LLVMSExt:
    return translate_cast(t, i, FLYI_OP_SEXT, width);
  case LLVMTrunc:
    return translate_cast(t, i, FLYI_OP_TRUNC, width);
  case LLVMFreeze:
    return operand(t, i, 0);
  case LLVMLoad:
    return flyi_translate_load(t, i);
  case LLVMCall:
    return translate_call(t, i, width);
  case LLVMSelect: {
    if (!flyi_int_width(LLVMTypeOf(LLVMGetOperand(i, 0)))) return flyi_put_unknown(t, width);
    int32_t condition = operand(t, i, 0), yes = operand(t, i, 1), no = operand(t, i, 2);
    return flyi_put(
        t, (flyi_instruction){.op = FLYI_OP_SELECT, .width = (uint8_t)width, .a = condition, .b = yes, .c = no});
  }
  default:
    return LLVMIsABinaryOperator(i) ? translate_binary(t, i, width) : flyi_put_unknown(t, width);
  }
}

/* The values that an edge carries to the phis of its target, as instructions of the block that it leaves. */
static void put_edge(flyi_translation *t, const flyi_order *order, LLVMBasicBlockRef from, LLVMBasicBlockRef to,
                     int64_t match) {
  flyi_edge edge = {order->place[flyi_cfg_index(&order->cfg, to)], t->program.args, match};
  for (LLVMValueRef phi = LLVMGetFirstInstruction(to); phi && LLVMIsAPHINode(phi); phi = LLVMGetNextInstruction(phi)) {
    if (!flyi_int_width(LLVMTypeOf(phi))) continue;
    for (unsigned k = 0; k < LLVMCountIncoming(phi); k++) {
      if (LLVMGetIncomingBlock(phi, k) != from) continue;
      if (flyi_program_add_arg(&t->program, flyi_value(t, LLVMGetIncomingValue(phi, k))) < 0) t->failed = true;
      break;
    }
  }
  if (flyi_program_add_edge(&t->program, edge) < 0) t->failed = true;
}

/* What leads a switch to its k-th successor; the first is the default. LLVM 22 keeps it apart from the operands. */
static int64_t case_value(LLVMValueRef end, unsigned k) {
#if FLYI_LLVM_MAJOR >= 22
  return LLVMConstIntGetSExtValue(LLVMGetSwitchCaseValue(end, k));
#else
  return LLVMConstIntGetSExtValue(LLVMGetOperand(end, 2 * k));
#endif
}

static void translate_end(flyi_translation *t, const flyi_order *order, flyi_block *b, LLVMValueRef end) {
  LLVMBasicBlockRef from = LLVMGetInstructionParent(end);
  unsigned successors = LLVMGetNumSuccessors(end);
  b->edge = t->program.edges;
  switch (LLVMGetInstructionOpcode(end)) {
  case LLVMBr:
    b->end = successors == 1 ? FLYI_END_JUMP : FLYI_END_BRANCH;
    if (successors == 2) b->value = flyi_value(t, LLVMGetCondition(end));
    for (unsigned k = 0; k < successors; k++) put_edge(t, order, from, LLVMGetSuccessor(end, k), 0);
    break;
  case LLVMSwitch:
    b->end = FLYI_END_SWITCH;
    b->value = operand(t, end, 0);
    put_edge(t, order, from, LLVMGetSwitchDefaultDest(end), 0);
    for (unsigned k = 1; k < successors; k++) put_edge(t, order, from, LLVMGetSuccessor(end, k), case_value(end, k));
    break;
  default: /* unreachable: any answer */
    b->end = FLYI_END_RETURN;
    b->value = LLVMIsAReturnInst(end) ? operand(t, end, 0) : flyi_put_unknown(t, 1);
  }
  b->edges = t->program.edges - b->edge;
}

static void translate_block(flyi_translation *t, const flyi_order *order, int at) {
  flyi_block b = {.first = t->program.instructions, .loop = order->loop[at]};
  LLVMValueRef i = LLVMGetFirstInstruction(order->cfg.blocks[order->block[at]]);
  for (; i && LLVMIsAPHINode(i); i = LLVMGetNextInstruction(i)) {
    int width = flyi_int_width(LLVMTypeOf(i));
    if (width) set_number(t, i, flyi_put(t, (flyi_instruction){.op = FLYI_OP_PHI, .width = (uint8_t)width}));
  }
  b.phis = t->program.instructions - b.first;
  for (; i && !LLVMIsATerminatorInst(i) && !t->failed; i = LLVMGetNextInstruction(i)) {
    int width = flyi_int_width(LLVMTypeOf(i));
    if (width) set_number(t, i, translate_instruction(t, i, width));
  }
  if (i && !t->failed) translate_end(t, order, &b, i);
  b.count = t->program.instructions - b.first;
  if (flyi_program_add_block(&t->program, b) < 0) t->failed = true;
}

/* ---- what a mask reads ------------------------------------------------------------------------------------------- */

/* Otherwise than as the operand of fly_token_... or fly_len_... that says which entry or head is meant. */
static bool used_directly(LLVMValueRef argument, unsigned position) {
  for (LLVMUseRef use = LLVMGetFirstUse(argument); use; use = LLVMGetNextUse(use)) {
    LLVMValueRef user = LLVMGetUser(use);
    if (symbolic_call(user) < 0) return true;
    for (unsigned k = 0; k < LLVMGetNumArgOperands(user); k++)
      if (k != position && LLVMGetOperand(user, k) == argument) return true;
  }
  return false;
}

/* Tokens and lengths. */
static uint32_t find_calls(LLVMModuleRef module) {
  uint32_t reads = 0;
  for (int k = 0; k < 4; k++) {
    LLVMValueRef function = LLVMGetNamedFunction(module, symbolic_calls[k].name);
    if (function && LLVMGetFirstUse(function)) reads |= symbolic_calls[k].reads;
  }
  return reads;
}

static uint32_t find_reads(const flyi_translation *t, LLVMValueRef mask) {
  static const uint32_t arguments[] = {FLYI_READS_B, FLYI_READS_H, FLYI_READS_Q, FLYI_READS_KV};
  uint32_t reads = find_calls(t->module);
  for (unsigned k = 0; k < 4; k++)
    if (LLVMGetFirstUse(LLVMGetParam(mask, k))) reads |= arguments[k];
  if (used_directly(LLVMGetParam(mask, 0), 0)) reads |= FLYI_READS_DIRECT_B;
  if (used_directly(LLVMGetParam(mask, 1), 1)) reads |= FLYI_READS_DIRECT_H;
  return reads;
}

uint32_t flyi_score_reads(LLVMModuleRef module) {
  static const uint32_t arguments[] = {FLYI_READS_B, FLYI_READS_H, FLYI_READS_Q, FLYI_READS_KV};
  LLVMValueRef score = LLVMGetNamedFunction(module, "score");
  uint32_t reads = find_calls(module);
  for (unsigned k = 0; k < 4; k++)
    if (LLVMGetFirstUse(LLVMGetParam(score, 1 + k))) reads |= arguments[k];
  return reads;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

/* Values must leave loops through phis (lcssa): the decoder goes through a loop once for each of its rounds. */
static fly_status optimise(LLVMModuleRef module, fly_error *error) {
  LLVMPassBuilderOptionsRef options = LLVMCreatePassBuilderOptions();
  LLVMPassBuilderOptionsSetLoopVectorization(options, false);
  LLVMPassBuilderOptionsSetSLPVectorization(options, false);
  LLVMPassBuilderOptionsSetLoopUnrolling(options, false);
  LLVMErrorRef failure = LLVMRunPasses(module, "default<O1>,function(loop-simplify,lcssa)", NULL, options);
  LLVMDisposePassBuilderOptions(options);
  if (!failure) return FLY_OK;
  char *message = LLVMGetErrorMessage(failure);
  fly_status status = flyi_fail(error, FLY_ERROR_INTERNAL, "the mask cannot be optimised: %s", message);
  LLVMDisposeErrorMessage(message);
  return status;
}

/* Where the control flow is beyond us, a program that answers with a value that is unknown. */
static void translate_nothing(flyi_translation *t) {
  flyi_block b = {.end = FLYI_END_RETURN, .value = flyi_put_unknown(t, 1), .count = 1};
  if (flyi_program_add_block(&t->program, b) < 0) t->failed = true;
}

fly_status flyi_analyze(LLVMModuleRef module, const flyi_declarations *declarations, flyi_bytes *program,
                        uint32_t *reads, fly_error *error) {
  LLVMValueRef mask = LLVMGetNamedFunction(module, "mask");
  if (!mask) return flyi_fail(error, FLY_ERROR_INTERNAL, "the module has no mask");
  /* The code is compiled from the module as it is now, by other passes: it may keep a call that these ones drop. */
  uint32_t calls = find_calls(module);
  fly_status status = optimise(module, error);
  if (status) return status;
  flyi_translation t = {.module = module, .layout = LLVMGetModuleDataLayout(module), .declarations = declarations};
  flyi_order order;
  bool ordered;
  if ((status = flyi_order_blocks(mask, &order, &ordered, error))) goto done;
  for (int k = 0; k < 4; k++) set_number(&t, LLVMGetParam(mask, (unsigned)k), k);
  for (int at = 0; ordered && at < order.count && !t.failed; at++) translate_block(&t, &order, at);
  if (!ordered) translate_nothing(&t);
  t.program.reads = find_reads(&t, mask);
  *reads = (t.program.reads & 0xff) | calls;
  status = t.failed ? flyi_no_memory(error) : flyi_program_encode(&t.program, program, error);
done:
  flyi_order_free(&order);
  flyi_program_free(&t.program);
  free(t.slot);
  return status;
}
