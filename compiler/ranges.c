/* ranges.c: comparisons that say "up to this key" or "from this key on". Input: a module after divide.c. Output: the
 * same, where the template's fly_range gives the keys of a block that such comparisons of fly_pair allow, as 64 bits at
 * once, and fly_pair has only the others.
 *
 * A window costs two comparisons for each pair in vectors, whose results reach the bits by registers of their own; as
 * a range they are a few shifts for each row, and rows become vectors. Let the mask be the conjunction of terms. A term
 * moves to fly_range if it is made, by and, or, xor and select, of
 *
 *     values that all keys of a row share: 64 equal bits,
 *     kv <= y, kv - q <= y, q - kv <= y, or with <, >=, >, and y as above: the bits up to a key, or the others,
 *
 * in one expression or by way of variables, which hold truth values as 0 or 1 of a wider type.
 *
 * Keys are at 0 to 2^31 - 1; queries may be at any 32-bit position, so that the differences may wrap, as all of a
 * mask's arithmetic does. */
#include "compiler.h"

enum { ARGS, B, H, Q, KV, ROW, COLUMNS, J }; /* arguments of fly_pair; of fly_range up to ROW, KV: the block's first */
enum { MOST_STEPS = 4000, MOST_COPIES = 128, MOST_TERMS = 200 };

typedef struct copied {
  LLVMValueRef from, to;
} copied;

typedef struct ranges {
  LLVMBuilderRef builder;
  LLVMTypeRef word;
  LLVMValueRef pair, range;
  copied copies[MOST_COPIES];
  int count;
  LLVMValueRef terms[MOST_TERMS]; /* that have been moved, or not */
  int term_count;
  int steps; /* taken for the mask, which may share its values more often than is worth looking at */
} ranges;

/* ---- values that all keys share ---------------------------------------------------------------------------------- */

static bool copies_well(LLVMValueRef instruction) {
  switch (LLVMGetInstructionOpcode(instruction)) {
  case LLVMLoad: /* of the row's table, a parameter, an element of a buffer: nothing writes there meanwhile */
  case LLVMGetElementPtr:
  case LLVMICmp:
  case LLVMFCmp:
  case LLVMSelect:
  case LLVMAdd:
  case LLVMSub:
  case LLVMMul:
  case LLVMAnd:
  case LLVMOr:
  case LLVMXor:
  case LLVMZExt:
  case LLVMSExt:
  case LLVMTrunc:
    return true;
  default:
    return false;
  }
}

static bool is_shared(ranges *r, LLVMValueRef value) {
  if (++r->steps > MOST_STEPS) return false;
  if (LLVMIsAConstant(value)) return true;
  if (LLVMIsAArgument(value))
    return value != LLVMGetParam(r->pair, KV) && value != LLVMGetParam(r->pair, COLUMNS) &&
           value != LLVMGetParam(r->pair, J);
  if (!LLVMIsAInstruction(value) || !copies_well(value)) return false;
  for (int i = 0, n = LLVMGetNumOperands(value); i < n; i++)
    if (!is_shared(r, LLVMGetOperand(value, (unsigned)i))) return false;
  return true;
}

/* The value in fly_range. */
static LLVMValueRef copy_of(ranges *r, LLVMValueRef value) {
  if (LLVMIsAConstant(value)) return value;
  for (unsigned i = 0; i <= ROW; i++)
    if (value == LLVMGetParam(r->pair, i)) return LLVMGetParam(r->range, i);
  for (int i = 0; i < r->count; i++)
    if (r->copies[i].from == value) return r->copies[i].to;
  LLVMValueRef copy = LLVMInstructionClone(value);
  for (int i = 0, n = LLVMGetNumOperands(copy); i < n; i++)
    LLVMSetOperand(copy, (unsigned)i, copy_of(r, LLVMGetOperand(value, (unsigned)i)));
  LLVMInsertIntoBuilder(r->builder, copy);
  if (r->count < MOST_COPIES) r->copies[r->count++] = (copied){value, copy};
  return copy;
}

/* ---- truth values of any width -------------------------------------------------------------------------------- */

static bool is_logic(LLVMValueRef value) {
  if (!LLVMIsAInstruction(value)) return false;
  LLVMOpcode opcode = LLVMGetInstructionOpcode(value);
  return opcode == LLVMAnd || opcode == LLVMOr || opcode == LLVMXor || opcode == LLVMSelect;
}

/* Whether the value is 0 or 1, made of single bits. */
static bool is_truth(ranges *r, LLVMValueRef value) {
  LLVMTypeRef type = LLVMTypeOf(value);
  if (++r->steps > MOST_STEPS || LLVMGetTypeKind(type) != LLVMIntegerTypeKind) return false;
  if (LLVMGetIntTypeWidth(type) == 1) return true;
  if (LLVMIsAConstantInt(value)) return value == LLVMConstInt(type, 0, false) || value == LLVMConstInt(type, 1, false);
  if (!LLVMIsAInstruction(value)) return false;
  LLVMOpcode opcode = LLVMGetInstructionOpcode(value);
  if (opcode == LLVMZExt || opcode == LLVMTrunc) return is_truth(r, LLVMGetOperand(value, 0));
  if (!is_logic(value)) return false;
  unsigned first = opcode == LLVMSelect;
  return is_truth(r, LLVMGetOperand(value, first)) && is_truth(r, LLVMGetOperand(value, first + 1));
}

/* The truth value behind changes of its type. */
static LLVMValueRef bare(ranges *r, LLVMValueRef value) {
  while (LLVMIsAInstruction(value)) {
    LLVMOpcode opcode = LLVMGetInstructionOpcode(value);
    bool changes = opcode == LLVMZExt || opcode == LLVMTrunc ||
                   (opcode == LLVMICmp && LLVMGetICmpPredicate(value) == LLVMIntNE &&
                    LLVMIsNull(LLVMGetOperand(value, 1)));
    if (!changes || !is_truth(r, LLVMGetOperand(value, 0))) break;
    value = LLVMGetOperand(value, 0);
  }
  return value;
}

static LLVMValueRef as_bit(LLVMBuilderRef builder, LLVMValueRef truth) {
  return LLVMBuildTrunc(builder, truth, LLVMInt1TypeInContext(LLVMGetTypeContext(LLVMTypeOf(truth))), "");
}

/* ---- comparisons that order keys --------------------------------------------------------------------------------- */

/* kv - start <= bound, or the like: predicate is one of LLVMIntSLT, SLE, SGT, SGE. */
typedef struct order {
  LLVMIntPredicate predicate;
  LLVMValueRef bound;
  bool from_query; /* start: the query's position, or 0 */
  bool negative;   /* it is q - kv that is compared */
} order;

static LLVMIntPredicate mirrored(LLVMIntPredicate predicate) {
  switch (predicate) {
  case LLVMIntSLT:
    return LLVMIntSGT;
  case LLVMIntSLE:
    return LLVMIntSGE;
  case LLVMIntSGT:
    return LLVMIntSLT;
  default:
    return LLVMIntSLE;
  }
}

/* Whether a side of a comparison is kv, kv - q or q - kv. */
static bool is_position(const ranges *r, LLVMValueRef side, order *o) {
  LLVMValueRef q = LLVMGetParam(r->pair, Q), kv = LLVMGetParam(r->pair, KV);
  *o = (order){0};
  if (side == kv) return true;
  if (!LLVMIsAInstruction(side) || LLVMGetInstructionOpcode(side) != LLVMSub) return false;
  LLVMValueRef x = LLVMGetOperand(side, 0), y = LLVMGetOperand(side, 1);
  o->from_query = true;
  o->negative = x == q;
  return (x == kv && y == q) || (x == q && y == kv);
}

static bool find_order(ranges *r, LLVMValueRef value, order *out) {
  if (!LLVMIsAInstruction(value) || LLVMGetInstructionOpcode(value) != LLVMICmp) return false;
  LLVMIntPredicate predicate = LLVMGetICmpPredicate(value);
  if (predicate < LLVMIntSGT) return false; /* equality, or unsigned */
  for (unsigned side = 0; side < 2; side++) {
    LLVMValueRef bound = LLVMGetOperand(value, 1 - side);
    if (!is_position(r, LLVMGetOperand(value, side), out) || !is_shared(r, bound)) continue;
    out->bound = bound;
    out->predicate = (side == 1) != out->negative ? mirrored(predicate) : predicate;
    return true;
  }
  return false;
}

/* ---- as 64 bits -------------------------------------------------------------------------------------------------- */

static LLVMValueRef constant(const ranges *r, int64_t x) { return LLVMConstInt(r->word, (uint64_t)x, true); }

static LLVMValueRef widened(ranges *r, LLVMValueRef value) {
  return LLVMBuildSExt(r->builder, copy_of(r, value), r->word, "");
}

/* Bits 0 to `last`, none if it is negative. */
static LLVMValueRef bits_up_to(ranges *r, LLVMValueRef last) {
  LLVMBuilderRef b = r->builder;
  LLVMValueRef end = constant(r, 63), ends = LLVMBuildICmp(b, LLVMIntSLT, last, end, "");
  LLVMValueRef shift = LLVMBuildSub(b, end, LLVMBuildSelect(b, ends, last, end, ""), "");
  LLVMValueRef some = LLVMBuildICmp(b, LLVMIntSGE, last, constant(r, 0), "");
  shift = LLVMBuildAnd(b, shift, end, ""); /* defined where there are none, too */
  return LLVMBuildSelect(b, some, LLVMBuildLShr(b, constant(r, -1), shift, ""), constant(r, 0), "");
}

/* kv - q wraps from 2^31 on, q - kv one key later: keys from `wraps` on are compared with a bound 2^32 higher. */
static LLVMValueRef bits_of_order(ranges *r, const order *o) {
  LLVMBuilderRef b = r->builder;
  LLVMValueRef last = widened(r, o->bound), bits;
  LLVMValueRef block = LLVMBuildSExt(b, LLVMGetParam(r->range, KV), r->word, "");
  LLVMValueRef start = LLVMBuildSub(b, LLVMBuildSExt(b, LLVMGetParam(r->range, Q), r->word, ""), block, "");
  bool less = o->predicate == LLVMIntSLT || o->predicate == LLVMIntSGE; /* kv < y: up to y - 1 */
  if (!o->from_query)
    last = LLVMBuildSub(b, last, block, "");
  else
    last = o->negative ? LLVMBuildSub(b, start, last, "") : LLVMBuildAdd(b, start, last, "");
  if (less) last = LLVMBuildSub(b, last, constant(r, 1), "");
  bits = bits_up_to(r, last);
  if (o->from_query) {
    LLVMValueRef wraps = LLVMBuildAdd(b, start, constant(r, (INT64_C(1) << 31) + o->negative), "");
    LLVMValueRef before = bits_up_to(r, LLVMBuildSub(b, wraps, constant(r, 1), ""));
    LLVMValueRef wrapped = bits_up_to(r, LLVMBuildAdd(b, last, constant(r, INT64_C(1) << 32), ""));
    wrapped = LLVMBuildAnd(b, wrapped, LLVMBuildNot(b, before, ""), "");
    bits = LLVMBuildOr(b, LLVMBuildAnd(b, bits, before, ""), wrapped, "");
  }
  return o->predicate == LLVMIntSLT || o->predicate == LLVMIntSLE ? bits : LLVMBuildNot(b, bits, "");
}

/* Whether bits_of can make it. */
static bool is_range(ranges *r, LLVMValueRef value) {
  order o;
  if (++r->steps > MOST_STEPS) return false;
  value = bare(r, value);
  if (is_shared(r, value)) return is_truth(r, value);
  if (find_order(r, value, &o)) return true;
  if (!is_logic(value)) return false;
  for (int i = 0, n = LLVMGetNumOperands(value); i < n; i++)
    if (!is_range(r, LLVMGetOperand(value, (unsigned)i))) return false;
  return true;
}

/* The 64 bits of a truth value for which is_range holds, in no more steps. */
static LLVMValueRef bits_of(ranges *r, LLVMValueRef value) {
  LLVMBuilderRef b = r->builder;
  order o;
  value = bare(r, value);
  if (is_shared(r, value)) return LLVMBuildSExt(b, as_bit(b, copy_of(r, value)), r->word, "");
  if (find_order(r, value, &o)) return bits_of_order(r, &o);
  LLVMValueRef x = bits_of(r, LLVMGetOperand(value, 0)), y = bits_of(r, LLVMGetOperand(value, 1));
  switch (LLVMGetInstructionOpcode(value)) {
  case LLVMAnd:
    return LLVMBuildAnd(b, x, y, "");
  case LLVMOr:
    return LLVMBuildOr(b, x, y, "");
  case LLVMXor:
    return LLVMBuildXor(b, x, y, "");
  default: { /* select */
    LLVMValueRef z = bits_of(r, LLVMGetOperand(value, 2));
    return LLVMBuildOr(b, LLVMBuildAnd(b, x, y, ""), LLVMBuildAnd(b, LLVMBuildNot(b, x, ""), z, ""), "");
  }
  }
}

/* ---- terms ------------------------------------------------------------------------------------------------------- */

/* Whether the value is x and y. */
static bool is_conjunction(LLVMValueRef value, LLVMValueRef *x, LLVMValueRef *y) {
  if (!is_logic(value)) return false;
  LLVMOpcode opcode = LLVMGetInstructionOpcode(value);
  *x = LLVMGetOperand(value, 0), *y = LLVMGetOperand(value, 1);
  if (opcode == LLVMAnd) return true;
  return opcode == LLVMSelect && LLVMIsNull(LLVMGetOperand(value, 2));
}

/* Whether a term is in the conjunction already. */
static bool came_before(ranges *r, LLVMValueRef term) {
  for (int i = 0; i < r->term_count; i++)
    if (r->terms[i] == term) return true;
  if (r->term_count < MOST_TERMS) r->terms[r->term_count++] = term;
  return false;
}

/* Moves what it can of a term: *range and it are a conjunction, as are *pair and what it cannot move; NULL: true. */
static void move_term(ranges *r, LLVMValueRef term, LLVMValueRef *range, LLVMValueRef *pair, LLVMBuilderRef in_pair) {
  LLVMValueRef x, y;
  term = bare(r, term);
  if (came_before(r, term)) return;
  if (++r->steps <= MOST_STEPS && is_conjunction(term, &x, &y)) {
    move_term(r, x, range, pair, in_pair);
    move_term(r, y, range, pair, in_pair);
    return;
  }
  int before = r->steps;
  if (is_range(r, term)) {
    int after = r->steps;
    r->steps = before;
    LLVMValueRef bits = bits_of(r, term);
    r->steps = after;
    *range = *range ? LLVMBuildAnd(r->builder, *range, bits, "") : bits;
  } else {
    LLVMValueRef bit = as_bit(in_pair, term);
    *pair = *pair ? LLVMBuildAnd(in_pair, *pair, bit, "") : bit;
  }
}

void flyi_separate_ranges(LLVMModuleRef module) {
  LLVMContextRef context = LLVMGetModuleContext(module);
  ranges r = {.pair = LLVMGetNamedFunction(module, "fly_pair"), .range = LLVMGetNamedFunction(module, "fly_range")};
  if (!r.range) return; /* a score modifier */
  r.builder = LLVMCreateBuilderInContext(context);
  r.word = LLVMInt64TypeInContext(context);
  LLVMPositionBuilderAtEnd(r.builder, LLVMAppendBasicBlockInContext(context, r.range, ""));
  LLVMValueRef end = LLVMGetBasicBlockTerminator(LLVMGetEntryBasicBlock(r.pair)), range = NULL, pair = NULL;
  if (LLVMGetInstructionOpcode(end) == LLVMRet) {
    LLVMBuilderRef in_pair = LLVMCreateBuilderInContext(context);
    LLVMPositionBuilderBefore(in_pair, end);
    move_term(&r, LLVMGetOperand(end, 0), &range, &pair, in_pair);
    LLVMSetOperand(end, 0, pair ? pair : LLVMConstInt(LLVMInt1TypeInContext(context), 1, false));
    LLVMDisposeBuilder(in_pair);
  }
  LLVMBuildRet(r.builder, range ? range : constant(&r, -1));
  LLVMDisposeBuilder(r.builder);
}
