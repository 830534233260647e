/* round.c: how often a loop runs, at most.
 *
 * Input: a loop. Output: the number of its rounds where an exit that every round passes depends on nothing but
 * constants and on variables that only constants change (for (int i = 0; i < 8; i++), i *= 2, ...): the exit's
 * condition is compiled to a few nodes and simply run. No case analysis of comparisons, steps and wrap-around is
 * needed. */
#include "loop.h"

enum { MOST_NODES = 48 };

typedef struct node {
  LLVMValueRef value;
  LLVMOpcode opcode;     /* LLVMPHI: a variable of the loop, LLVMRet: a constant */
  LLVMIntPredicate test; /* of LLVMICmp */
  int operands[3];
  unsigned width, operand_width;
  uint64_t bits, next; /* the value, zero-extended */
} node;

typedef struct machine {
  const flyi_cfg *cfg;
  const flyi_loop *loop;
  int count;
  node nodes[MOST_NODES];
} machine;

static uint64_t truncated(uint64_t bits, unsigned width) {
  return width < 64 ? bits & ((UINT64_C(1) << width) - 1) : bits;
}

static int64_t extended(uint64_t bits, unsigned width) {
  unsigned shift = 64 - width;
  return (int64_t)(bits << shift) >> shift;
}

static unsigned width_of(LLVMValueRef value) {
  LLVMTypeRef type = LLVMTypeOf(value);
  return LLVMGetTypeKind(type) == LLVMIntegerTypeKind ? LLVMGetIntTypeWidth(type) : 0;
}

/* The constant with which the loop's variable begins, and the value that it has in the next round; each the same from
 * all sides. False: it is not so. */
static bool start_of(const machine *m, LLVMValueRef phi, uint64_t *bits, LLVMValueRef *next) {
  bool found = false;
  *next = NULL;
  for (unsigned i = 0; i < LLVMCountIncoming(phi); i++) {
    LLVMValueRef value = LLVMGetIncomingValue(phi, i);
    if (m->loop->members[flyi_cfg_index(m->cfg, LLVMGetIncomingBlock(phi, i))]) {
      if (*next && *next != value) return false;
      *next = value;
      continue;
    }
    if (!LLVMIsAConstantInt(value) || (found && LLVMConstIntGetZExtValue(value) != *bits)) return false;
    *bits = LLVMConstIntGetZExtValue(value);
    found = true;
  }
  return found && *next;
}

static bool is_supported(LLVMOpcode opcode) {
  switch (opcode) {
  case LLVMAdd:
  case LLVMSub:
  case LLVMMul:
  case LLVMAnd:
  case LLVMOr:
  case LLVMXor:
  case LLVMShl:
  case LLVMLShr:
  case LLVMAShr:
  case LLVMUDiv:
  case LLVMURem:
  case LLVMICmp:
  case LLVMZExt:
  case LLVMSExt:
  case LLVMTrunc:
  case LLVMSelect:
    return true;
  default:
    return false;
  }
}

/* The node of a value, compiled on demand after its operands'; -1: it depends on something else. */
static int compile(machine *m, LLVMValueRef value) {
  node made = {.value = value, .width = width_of(value)};
  for (int i = 0; i < m->count; i++)
    if (m->nodes[i].value == value) return i;
  if (!made.width || made.width > 64) return -1;
  if (LLVMIsAConstantInt(value)) {
    made.opcode = LLVMRet;
    made.bits = LLVMConstIntGetZExtValue(value);
  } else if (LLVMIsAPHINode(value)) {
    LLVMValueRef next;
    made.opcode = LLVMPHI;
    if (flyi_cfg_index(m->cfg, LLVMGetInstructionParent(value)) != m->loop->header ||
        !start_of(m, value, &made.bits, &next))
      return -1;
  } else {
    if (!LLVMIsAInstruction(value) || !is_supported(made.opcode = LLVMGetInstructionOpcode(value))) return -1;
    made.operand_width = width_of(LLVMGetOperand(value, 0));
    if (made.opcode == LLVMICmp) made.test = LLVMGetICmpPredicate(value);
    for (int i = 0; i < LLVMGetNumOperands(value); i++)
      if (m->count >= MOST_NODES - 1 || (made.operands[i] = compile(m, LLVMGetOperand(value, (unsigned)i))) < 0)
        return -1;
  }
  if (m->count == MOST_NODES) return -1;
  m->nodes[m->count] = made;
  return m->count++;
}

static bool compare(LLVMIntPredicate test, uint64_t a, uint64_t b, unsigned width) {
  int64_t x = extended(a, width), y = extended(b, width);
  switch (test) {
  case LLVMIntEQ:
    return a == b;
  case LLVMIntNE:
    return a != b;
  case LLVMIntUGT:
    return a > b;
  case LLVMIntUGE:
    return a >= b;
  case LLVMIntULT:
    return a < b;
  case LLVMIntULE:
    return a <= b;
  case LLVMIntSGT:
    return x > y;
  case LLVMIntSGE:
    return x >= y;
  case LLVMIntSLT:
    return x < y;
  default:
    return x <= y;
  }
}

/* Guards have made every operation total; those of division choose a divisor other than 0. */
static uint64_t evaluate(const machine *m, const node *n) {
  uint64_t a = m->nodes[n->operands[0]].bits, b = m->nodes[n->operands[1]].bits;
  switch (n->opcode) {
  case LLVMAdd:
    return a + b;
  case LLVMSub:
    return a - b;
  case LLVMMul:
    return a * b;
  case LLVMAnd:
    return a & b;
  case LLVMOr:
    return a | b;
  case LLVMXor:
    return a ^ b;
  case LLVMShl:
    return a << (b & 63);
  case LLVMLShr:
    return a >> (b & 63);
  case LLVMAShr:
    return (uint64_t)(extended(a, n->width) >> (b & 63));
  case LLVMUDiv:
    return b ? a / b : 0;
  case LLVMURem:
    return b ? a % b : a;
  case LLVMICmp:
    return compare(n->test, a, b, n->operand_width);
  case LLVMSExt:
    return (uint64_t)extended(a, n->operand_width);
  case LLVMSelect:
    return a ? b : m->nodes[n->operands[2]].bits;
  default:
    return a; /* zext, trunc */
  }
}

/* Runs the loop until `condition` is `leave`. */
static int64_t run(machine *m, int condition, bool leave, int *budget) {
  for (int64_t rounds = 0; rounds <= FLYI_ROUNDS; rounds++) {
    if ((*budget -= m->count) < 0) return -1;
    for (int i = 0; i < m->count; i++) {
      node *n = &m->nodes[i];
      if (n->opcode != LLVMPHI && n->opcode != LLVMRet) n->bits = truncated(evaluate(m, n), n->width);
    }
    if (m->nodes[condition].bits == leave) return rounds;
    for (int i = 0; i < m->count; i++)
      if (m->nodes[i].opcode == LLVMPHI) m->nodes[i].next = m->nodes[m->nodes[i].operands[0]].bits;
    for (int i = 0; i < m->count; i++)
      if (m->nodes[i].opcode == LLVMPHI) m->nodes[i].bits = m->nodes[i].next;
  }
  return -1;
}

/* True where the edge leads out of the loop: at once, or through a block that branches on what this edge brings, as in
 * `i < 10 && more`. */
static bool leaves(const flyi_cfg *cfg, const flyi_loop *loop, LLVMBasicBlockRef from, LLVMBasicBlockRef to) {
  LLVMValueRef branch = LLVMGetBasicBlockTerminator(to), phi;
  if (!loop->members[flyi_cfg_index(cfg, to)]) return true;
  if (!LLVMIsABranchInst(branch) || !LLVMIsConditional(branch)) return false;
  phi = LLVMGetCondition(branch);
  if (!LLVMIsAPHINode(phi) || LLVMGetInstructionParent(phi) != to) return false;
  for (unsigned i = 0; i < LLVMCountIncoming(phi); i++) {
    LLVMValueRef value = LLVMGetIncomingValue(phi, i);
    if (LLVMGetIncomingBlock(phi, i) != from || !LLVMIsAConstantInt(value)) continue;
    LLVMBasicBlockRef next = LLVMGetSuccessor(branch, LLVMConstIntGetZExtValue(value) ? 0 : 1);
    return !loop->members[flyi_cfg_index(cfg, next)];
  }
  return false;
}

/* The rounds after which the branch at the end of `block` leaves the loop; -1: not known. */
static int64_t rounds_to(const flyi_cfg *cfg, const flyi_loop *loop, int block, int *budget) {
  machine m = {.cfg = cfg, .loop = loop};
  LLVMValueRef branch = LLVMGetBasicBlockTerminator(cfg->blocks[block]);
  if (!LLVMIsABranchInst(branch) || !LLVMIsConditional(branch)) return -1;
  bool stays = !leaves(cfg, loop, cfg->blocks[block], LLVMGetSuccessor(branch, 0));
  if (stays == !leaves(cfg, loop, cfg->blocks[block], LLVMGetSuccessor(branch, 1))) return -1;
  int condition = compile(&m, LLVMGetCondition(branch));
  for (int i = 0; i < m.count && condition >= 0; i++) {
    uint64_t bits;
    LLVMValueRef next;
    if (m.nodes[i].opcode != LLVMPHI) continue;
    int operand = start_of(&m, m.nodes[i].value, &bits, &next) ? compile(&m, next) : -1;
    if (operand < 0) return -1;
    m.nodes[i].operands[0] = operand;
  }
  return condition < 0 ? -1 : run(&m, condition, !stays, budget);
}

int64_t flyi_loop_rounds(const flyi_cfg *cfg, const flyi_loop *loop, int *budget) {
  int64_t least = -1;
  for (int block = loop->bottom;; block = cfg->dominator[block]) { /* those that every round passes */
    int64_t rounds = rounds_to(cfg, loop, block, budget);
    if (rounds >= 0 && (least < 0 || rounds < least)) least = rounds;
    if (block == loop->header) break;
  }
  return least;
}
