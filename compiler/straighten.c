/* straighten.c: makes a mask one block without branches, where it has no loops. Input and output: the symbolic @mask.
 *
 * Every instruction that the arguments alone decide moves to the entry block, whatever branch it stood behind: no
 * instruction of a symbolic mask can trap, so that computing it too often changes nothing. And each phi becomes
 * selects: what it receives is found by walking from the entry to its block,
 *
 *     value(block) = condition ? value(first successor) : value(second successor)
 *
 * where a successor that does not lead there has no say, and equal values need no condition. A walk that meets a loop
 * fails: then the phi stays, and with it its branches.
 *
 * This has to come before any optimisation: an optimiser that sees `if (i < n) x = t[clamp(i)]` drops the clamp. */
#include <stdlib.h>

#include "compiler.h"

enum { NONE = -1 };                      /* no successor */
enum { UNSEEN, OPEN, KNOWN, ELSEWHERE }; /* of a walk: a block not met, being walked, with a value, leading elsewhere */

typedef struct node {
  LLVMBasicBlockRef block;
  int successors[2]; /* numbers of nodes */
  int state;         /* in the present walk */
  LLVMValueRef value;
} node;

typedef struct straightener {
  LLVMBuilderRef builder; /* before the terminator of the entry block */
  LLVMBasicBlockRef entry;
  node *nodes; /* nodes[0]: the entry */
  int count;
  LLVMValueRef phi; /* whose value the walk looks for; NULL: the mask's answer */
} straightener;

/* ---- moving ------------------------------------------------------------------------------------------------------ */

static bool is_pure_call(LLVMValueRef call) {
  LLVMValueRef callee = LLVMGetCalledValue(call);
  if (!LLVMIsAFunction(callee) || LLVMGetTypeKind(LLVMTypeOf(call)) == LLVMVoidTypeKind) return false;
  for (unsigned i = 0; i < LLVMGetNumArgOperands(call); i++)
    if (LLVMGetTypeKind(LLVMTypeOf(LLVMGetOperand(call, i))) == LLVMPointerTypeKind) return false;
  return true; /* an intrinsic, fly_token_... or fly_len_... */
}

/* Loads from locals stay, because their addresses do: an alloca is not pure. */
int flyi_cost(LLVMValueRef instruction) {
  switch (LLVMGetInstructionOpcode(instruction)) {
  case LLVMAdd:
  case LLVMSub:
  case LLVMAnd:
  case LLVMOr:
  case LLVMXor:
  case LLVMShl:
  case LLVMLShr:
  case LLVMAShr:
  case LLVMTrunc:
  case LLVMZExt:
  case LLVMSExt:
  case LLVMICmp:
  case LLVMSelect:
  case LLVMGetElementPtr:
  case LLVMFreeze:
  case LLVMFNeg:
  case LLVMBitCast:
  case LLVMExtractValue:
  case LLVMInsertValue:
    return 1;
  case LLVMMul:
  case LLVMFAdd:
  case LLVMFSub:
  case LLVMFMul:
  case LLVMFCmp:
  case LLVMFPTrunc:
  case LLVMFPExt:
  case LLVMSIToFP:
  case LLVMUIToFP:
  case LLVMFPToSI:
  case LLVMFPToUI:
    return 3;
  case LLVMUDiv:
  case LLVMSDiv:
  case LLVMURem:
  case LLVMSRem:
  case LLVMFDiv:
  case LLVMFRem:
    return 20;
  case LLVMLoad: {
    LLVMValueRef address = LLVMGetOperand(instruction, 0);
    if (LLVMGetVolatile(instruction) || LLVMGetOrdering(instruction) != LLVMAtomicOrderingNotAtomic) return -1;
    while (LLVMIsAGetElementPtrInst(address)) address = LLVMGetOperand(address, 0);
    return LLVMIsAAllocaInst(address) ? -1 : 10;
  }
  case LLVMCall:
    return !is_pure_call(instruction) ? -1 : LLVMGetIntrinsicID(LLVMGetCalledValue(instruction)) ? 2 : 20;
  default:
    return -1;
  }
}

static bool is_available(const straightener *s, LLVMValueRef value) {
  return !LLVMIsAInstruction(value) || LLVMGetInstructionParent(value) == s->entry;
}

static bool move_block(straightener *s, LLVMBasicBlockRef block) {
  bool moved = false;
  LLVMValueRef next;
  for (LLVMValueRef i = LLVMGetFirstInstruction(block); i; i = next) {
    next = LLVMGetNextInstruction(i);
    if (flyi_cost(i) < 0) continue;
    bool available = true;
    for (int k = 0, n = LLVMGetNumOperands(i); k < n && available; k++)
      available = is_available(s, LLVMGetOperand(i, (unsigned)k));
    if (!available) continue;
    LLVMInstructionRemoveFromParent(i);
    LLVMInsertIntoBuilder(s->builder, i);
    moved = true;
  }
  return moved;
}

/* ---- walking ----------------------------------------------------------------------------------------------------- */

static int number_of(const straightener *s, LLVMBasicBlockRef block) {
  int i = 0;
  while (s->nodes[i].block != block) i++;
  return i;
}

/* condition ? yes : no. A symbolic mask has no undefined values, so that truth values take plain and, or. */
static LLVMValueRef choose(straightener *s, LLVMValueRef condition, LLVMValueRef yes, LLVMValueRef no) {
  LLVMBuilderRef b = s->builder;
  LLVMTypeRef type = LLVMTypeOf(yes);
  bool is_truth = LLVMGetTypeKind(type) == LLVMIntegerTypeKind && LLVMGetIntTypeWidth(type) == 1;
  if (is_truth && LLVMIsAConstantInt(yes))
    return LLVMIsNull(yes) ? LLVMBuildAnd(b, LLVMBuildNot(b, condition, ""), no, "")
                           : LLVMBuildOr(b, condition, no, "");
  if (is_truth && LLVMIsAConstantInt(no))
    return LLVMIsNull(no) ? LLVMBuildAnd(b, condition, yes, "")
                          : LLVMBuildOr(b, LLVMBuildNot(b, condition, ""), yes, "");
  return LLVMBuildSelect(b, condition, yes, no, "");
}

static bool walk(straightener *s, int at);

/* What the phi receives over the edge from one node to another. True: the edge's state and value are in *end. */
static bool walk_edge(straightener *s, int from, int to, node *end) {
  *end = (node){.state = ELSEWHERE};
  if (to == NONE) return true;
  if (s->phi && s->nodes[to].block == LLVMGetInstructionParent(s->phi)) {
    for (unsigned i = 0; i < LLVMCountIncoming(s->phi); i++)
      if (LLVMGetIncomingBlock(s->phi, i) == s->nodes[from].block) end->value = LLVMGetIncomingValue(s->phi, i);
    end->state = KNOWN;
    return end->value && is_available(s, end->value);
  }
  if (!walk(s, to)) return false;
  *end = s->nodes[to];
  return true;
}

/* Finds the value of a node. False: it cannot be found, or not yet. */
static bool walk(straightener *s, int at) {
  node *n = &s->nodes[at], first, second;
  if (n->state != UNSEEN) return n->state != OPEN; /* open: a loop */
  LLVMValueRef end = LLVMGetBasicBlockTerminator(n->block);
  LLVMOpcode opcode = LLVMGetInstructionOpcode(end);
  n->state = OPEN;
  if (opcode == LLVMRet) {
    n->state = s->phi ? ELSEWHERE : KNOWN;
    n->value = LLVMGetOperand(end, 0);
    return s->phi || is_available(s, n->value);
  }
  if (opcode != LLVMBr && opcode != LLVMUnreachable) return false;
  if (!walk_edge(s, at, n->successors[0], &first) || !walk_edge(s, at, n->successors[1], &second)) return false;
  *n = (node){n->block, {n->successors[0], n->successors[1]}, first.state, first.value};
  if (first.state != KNOWN) {
    n->state = second.state, n->value = second.value;
  } else if (second.state == KNOWN && second.value != first.value) {
    if (!is_available(s, LLVMGetCondition(end))) return false;
    n->value = choose(s, LLVMGetCondition(end), first.value, second.value);
  }
  return true;
}

/* A block that the walk has not met leads to the phi only from the phi itself: it heads a loop. */
static bool heads_loop(const straightener *s) {
  for (unsigned i = 0; s->phi && i < LLVMCountIncoming(s->phi); i++)
    if (s->nodes[number_of(s, LLVMGetIncomingBlock(s->phi, i))].state == UNSEEN) return true;
  return false;
}

/* The value of s->phi in the entry block; NULL: there is none. What a failed walk has built is taken away again. */
static LLVMValueRef find_value(straightener *s) {
  LLVMValueRef end = LLVMGetBasicBlockTerminator(s->entry), before = LLVMGetPreviousInstruction(end);
  for (int i = 0; i < s->count; i++) s->nodes[i].state = UNSEEN;
  if (walk(s, 0) && s->nodes[0].state == KNOWN && !heads_loop(s)) return s->nodes[0].value;
  for (LLVMValueRef last; (last = LLVMGetPreviousInstruction(end)) != before;) LLVMInstructionEraseFromParent(last);
  return NULL;
}

static bool convert_phis(straightener *s, LLVMBasicBlockRef block) {
  bool changed = false;
  LLVMValueRef next, value;
  for (LLVMValueRef i = LLVMGetFirstInstruction(block); i && LLVMIsAPHINode(i); i = next) {
    next = LLVMGetNextInstruction(i);
    s->phi = i;
    if (!(value = find_value(s))) continue;
    LLVMReplaceAllUsesWith(i, value);
    LLVMInstructionEraseFromParent(i);
    changed = true;
  }
  return changed;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static bool number_blocks(straightener *s, LLVMValueRef mask) {
  s->nodes = flyi_alloc(LLVMCountBasicBlocks(mask), sizeof *s->nodes);
  if (!s->nodes) return false;
  for (LLVMBasicBlockRef b = LLVMGetFirstBasicBlock(mask); b; b = LLVMGetNextBasicBlock(b))
    s->nodes[s->count++].block = b;
  for (int i = 0; i < s->count; i++) {
    LLVMValueRef end = LLVMGetBasicBlockTerminator(s->nodes[i].block);
    for (unsigned k = 0; k < 2; k++)
      s->nodes[i].successors[k] = k < LLVMGetNumSuccessors(end) ? number_of(s, LLVMGetSuccessor(end, k)) : NONE;
  }
  return true;
}

/* Where the answer is known, the entry block returns it; the other blocks are no longer reached. */
static void return_from_entry(straightener *s) {
  LLVMValueRef end = LLVMGetBasicBlockTerminator(s->entry), answer;
  s->phi = NULL;
  if (LLVMGetInstructionOpcode(end) == LLVMRet || !(answer = find_value(s))) return;
  LLVMBuildRet(s->builder, answer);
  LLVMInstructionEraseFromParent(end);
}

fly_status flyi_straighten(LLVMValueRef mask, fly_error *error) {
  straightener s = {.entry = LLVMGetEntryBasicBlock(mask)};
  if (!number_blocks(&s, mask)) return flyi_no_memory(error);
  s.builder = LLVMCreateBuilderInContext(LLVMGetTypeContext(LLVMTypeOf(mask)));
  LLVMPositionBuilderBefore(s.builder, LLVMGetBasicBlockTerminator(s.entry));
  for (bool changed = true; changed;) {
    changed = false;
    for (int i = 1; i < s.count; i++) {
      changed |= convert_phis(&s, s.nodes[i].block);
      changed |= move_block(&s, s.nodes[i].block);
    }
  }
  return_from_entry(&s);
  LLVMDisposeBuilder(s.builder);
  free(s.nodes);
  return FLY_OK;
}
