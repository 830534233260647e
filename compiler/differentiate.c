/* differentiate.c: the derivative of a score modifier with respect to the score. Input: a module with the symbolic
 *
 *     float @score(float %s, i32 %b, i32 %h, i32 %q, i32 %kv)
 *
 * straightened or not. Output: the same module with, in its place,
 *
 *     float @score_slope(float %s, i32 %b, i32 %h, i32 %q, i32 %kv, ptr %slope)
 *
 * which returns the modified score and stores its derivative. Forward mode (dual numbers; Wengert, CACM 1964): each
 * value x that depends on s through floating-point operations is *active* and gets a tangent dx/ds of its type, built
 * right behind it; locals that hold active values get a second local for the tangents, and what is written to one is
 * written to the other. A caller that ignores the slope pays nothing: what makes it is dead then.
 *
 * Where a function has a kink, score.h says which side counts. */
#include <stdlib.h>
#include <string.h>

#include "math_calls.h"

typedef struct dual {
  LLVMValueRef value, tangent; /* tangent NULL: not built yet */
} dual;

typedef struct differentiation {
  LLVMContextRef context;
  LLVMModuleRef module;
  LLVMBuilderRef builder;
  LLVMValueRef function;
  bool straight; /* the entry block returns: what lies behind is not reached */
  dual *duals;   /* a hash table of the active values */
  size_t slots, used;
  bool failed; /* no memory */
} differentiation;

#define EACH_BLOCK_OF(d, b)                                                                                            \
  LLVMBasicBlockRef b = LLVMGetEntryBasicBlock((d)->function);                                                         \
  b;                                                                                                                   \
  b = (d)->straight ? NULL : LLVMGetNextBasicBlock(b)
#define EACH_INSTRUCTION_OF(b, i)                                                                                      \
  LLVMValueRef i = LLVMGetFirstInstruction(b), next_ = NULL;                                                           \
  i && (next_ = LLVMGetNextInstruction(i), true);                                                                      \
  i = next_

/* ---- active values ----------------------------------------------------------------------------------------------- */

static size_t place_of(const dual *duals, size_t slots, LLVMValueRef value) {
  size_t at = ((uintptr_t)value >> 4) * UINT64_C(0x9E3779B97F4A7C15) >> 20 & (slots - 1);
  while (duals[at].value && duals[at].value != value) at = (at + 1) & (slots - 1);
  return at;
}

static dual *find(const differentiation *d, LLVMValueRef value) {
  dual *found = &d->duals[place_of(d->duals, d->slots, value)];
  return found->value ? found : NULL;
}

static bool is_active(const differentiation *d, LLVMValueRef value) { return find(d, value) != NULL; }

/* Each instruction is added once at most, so that the table never fills. */
static bool activate(differentiation *d, LLVMValueRef value, LLVMValueRef tangent) {
  size_t at = place_of(d->duals, d->slots, value);
  if (d->duals[at].value) return false;
  d->duals[at] = (dual){value, tangent};
  d->used++;
  return true;
}

static bool prepare(differentiation *d) {
  size_t count = 16;
  for (EACH_BLOCK_OF(d, block))
    for (EACH_INSTRUCTION_OF(block, i)) count++;
  for (d->slots = 64; d->slots < 2 * count;) d->slots *= 2;
  d->duals = flyi_alloc(d->slots, sizeof *d->duals);
  return d->duals != NULL;
}

static bool is_pointer(LLVMValueRef value) { return LLVMGetTypeKind(LLVMTypeOf(value)) == LLVMPointerTypeKind; }

/* The local that an address belongs to; NULL: none. */
static LLVMValueRef local_of(LLVMValueRef address) {
  while (LLVMIsAGetElementPtrInst(address)) address = LLVMGetOperand(address, 0);
  return LLVMIsAAllocaInst(address) ? address : NULL;
}

static const char *callee_name(LLVMValueRef call) { return LLVMGetValueName2(LLVMGetCalledValue(call), &(size_t){0}); }

static bool starts(const char *text, const char *prefix) { return strncmp(text, prefix, strlen(prefix)) == 0; }

/* memcpy and memmove; memset. */
static bool is_copy(LLVMValueRef call) {
  return starts(callee_name(call), "llvm.memcpy.") || starts(callee_name(call), "llvm.memmove.");
}
static bool is_fill(LLVMValueRef call) { return starts(callee_name(call), "llvm.memset."); }

static bool has_active_operand(const differentiation *d, LLVMValueRef i) {
  for (int k = 0, n = LLVMGetNumOperands(i); k < n; k++)
    if (is_active(d, LLVMGetOperand(i, (unsigned)k))) return true;
  return false;
}

/* Structs travel as integers that hold the bits of their members: such an integer is active too, with the bits of the
 * members' tangents. It stays so where whole words of 32 bits are moved; what else is done to bits has slope 0. */
static bool moves_words(LLVMValueRef i) {
  LLVMTypeRef type = LLVMTypeOf(i), from = LLVMTypeOf(LLVMGetOperand(i, 0));
  LLVMValueRef second = LLVMGetNumOperands(i) > 1 ? LLVMGetOperand(i, 1) : NULL;
  switch (LLVMGetInstructionOpcode(i)) {
  case LLVMBitCast:
    return true;
  case LLVMZExt:
    return LLVMGetIntTypeWidth(from) == 32;
  case LLVMTrunc:
    return LLVMGetIntTypeWidth(type) == 32;
  case LLVMShl:
  case LLVMLShr:
    return LLVMIsAConstantInt(second) && LLVMConstIntGetZExtValue(second) == 32;
  case LLVMAnd:
    return LLVMIsAConstantInt(second) || LLVMIsAConstantInt(LLVMGetOperand(i, 0));
  default: /* or: of words that were cut out */
    return true;
  }
}

/* Marks what the instruction makes active. True: something new. */
static bool spread(differentiation *d, LLVMValueRef i) {
  LLVMValueRef local;
  switch (LLVMGetInstructionOpcode(i)) {
  case LLVMFAdd:
  case LLVMFSub:
  case LLVMFMul:
  case LLVMFDiv:
  case LLVMFNeg:
  case LLVMFPTrunc:
  case LLVMFPExt:
  case LLVMSelect:
  case LLVMPHI:
  case LLVMFreeze:
  case LLVMExtractValue:
  case LLVMInsertValue:
    return !is_pointer(i) && has_active_operand(d, i) && activate(d, i, NULL);
  case LLVMBitCast:
  case LLVMZExt:
  case LLVMTrunc:
  case LLVMShl:
  case LLVMLShr:
  case LLVMAnd:
  case LLVMOr:
    return has_active_operand(d, i) && moves_words(i) && activate(d, i, NULL);
  case LLVMLoad:
    local = local_of(LLVMGetOperand(i, 0));
    return local && is_active(d, local) && activate(d, i, NULL);
  case LLVMStore:
    local = local_of(LLVMGetOperand(i, 1));
    return local && is_active(d, LLVMGetOperand(i, 0)) && activate(d, local, NULL);
  case LLVMCall:
    if (is_copy(i)) {
      LLVMValueRef to = local_of(LLVMGetOperand(i, 0)), from = local_of(LLVMGetOperand(i, 1));
      return to && from && is_active(d, from) && activate(d, to, NULL);
    }
    return flyi_math_has_slope(callee_name(i)) && has_active_operand(d, i) && activate(d, i, NULL);
  default:
    return false;
  }
}

static void find_active(differentiation *d) {
  for (bool more = true; more;) {
    more = false;
    for (EACH_BLOCK_OF(d, block))
      for (EACH_INSTRUCTION_OF(block, i)) more = spread(d, i) || more;
  }
}

/* ---- tangents ---------------------------------------------------------------------------------------------------- */

/* The tangent of an operand; NULL: it has none, which is zero. */
static LLVMValueRef tangent_of(const differentiation *d, LLVMValueRef value) {
  const dual *found = find(d, value);
  return found ? found->tangent : NULL;
}

static LLVMValueRef tangent_or_zero(const differentiation *d, LLVMValueRef value) {
  LLVMValueRef tangent = tangent_of(d, value);
  return tangent ? tangent : LLVMConstNull(LLVMTypeOf(value));
}

/* Whether all active operands have their tangents. */
static bool is_ready(const differentiation *d, LLVMValueRef i) {
  for (int k = 0, n = LLVMGetNumOperands(i); k < n; k++) {
    const dual *found = find(d, LLVMGetOperand(i, (unsigned)k));
    if (found && !found->tangent) return false;
  }
  return true;
}

/* a + b, where NULL is zero. */
static LLVMValueRef sum(LLVMBuilderRef b, LLVMValueRef x, LLVMValueRef y) {
  return x && y ? LLVMBuildFAdd(b, x, y, "") : x ? x : y;
}

/* d(x y) = dx y + x dy; d(x / y) = (dx - (x / y) dy) / y. */
static LLVMValueRef product(const differentiation *d, LLVMValueRef i, LLVMValueRef dx, LLVMValueRef dy) {
  LLVMBuilderRef b = d->builder;
  LLVMValueRef x = LLVMGetOperand(i, 0), y = LLVMGetOperand(i, 1);
  return sum(b, dx ? LLVMBuildFMul(b, dx, y, "") : NULL, dy ? LLVMBuildFMul(b, x, dy, "") : NULL);
}

static LLVMValueRef quotient(const differentiation *d, LLVMValueRef i, LLVMValueRef dx, LLVMValueRef dy) {
  LLVMBuilderRef b = d->builder;
  LLVMValueRef less = dy ? LLVMBuildFNeg(b, LLVMBuildFMul(b, i, dy, ""), "") : NULL;
  return LLVMBuildFDiv(b, sum(b, dx, less), LLVMGetOperand(i, 1), "");
}

/* The same operation on tangents: it is linear, or only moves values. */
static LLVMValueRef same_on_tangents(const differentiation *d, LLVMValueRef i, unsigned first) {
  LLVMValueRef copy = LLVMInstructionClone(i);
  for (int k = (int)first, n = LLVMGetNumOperands(i); k < n; k++)
    LLVMSetOperand(copy, (unsigned)k, tangent_or_zero(d, LLVMGetOperand(i, (unsigned)k)));
  LLVMInsertIntoBuilder(d->builder, copy);
  return copy;
}

/* The address in the second local. */
static LLVMValueRef shadow_address(const differentiation *d, LLVMValueRef address) {
  if (LLVMIsAAllocaInst(address)) return tangent_of(d, address);
  LLVMValueRef copy = LLVMInstructionClone(address);
  LLVMSetOperand(copy, 0, shadow_address(d, LLVMGetOperand(address, 0)));
  LLVMInsertIntoBuilder(d->builder, copy);
  return copy;
}

static LLVMValueRef load_tangent(const differentiation *d, LLVMValueRef i) {
  LLVMValueRef address = shadow_address(d, LLVMGetOperand(i, 0)), copy = LLVMInstructionClone(i);
  LLVMSetOperand(copy, 0, address);
  LLVMInsertIntoBuilder(d->builder, copy);
  return copy;
}

/* x & mask: the words that are kept whole. */
static LLVMValueRef mask_tangent(const differentiation *d, LLVMValueRef i, LLVMValueRef dx, LLVMValueRef dy) {
  LLVMTypeRef type = LLVMTypeOf(i);
  uint64_t mask = LLVMConstIntGetZExtValue(LLVMGetOperand(i, dx ? 1 : 0)), low = UINT32_MAX, high = low << 32, kept = 0;
  if ((mask & low) == low) kept |= low;
  if ((mask & high) == high && LLVMGetIntTypeWidth(type) == 64) kept |= high;
  return LLVMBuildAnd(d->builder, dx ? dx : dy, LLVMConstInt(type, kept, false), "");
}

static LLVMValueRef shift_tangent(const differentiation *d, LLVMValueRef i, LLVMValueRef dx) {
  return LLVMBuildBinOp(d->builder, LLVMGetInstructionOpcode(i), dx, LLVMGetOperand(i, 1), "");
}

/* The tangent of an active instruction, at the builder's place. */
static LLVMValueRef build_tangent(const differentiation *d, LLVMValueRef i) {
  LLVMBuilderRef b = d->builder;
  LLVMValueRef dx = tangent_of(d, LLVMGetOperand(i, 0));
  LLVMValueRef dy = LLVMGetNumOperands(i) > 1 ? tangent_of(d, LLVMGetOperand(i, 1)) : NULL;
  switch (LLVMGetInstructionOpcode(i)) {
  case LLVMFAdd:
    return sum(b, dx, dy);
  case LLVMFSub:
    return sum(b, dx, dy ? LLVMBuildFNeg(b, dy, "") : NULL);
  case LLVMFMul:
    return product(d, i, dx, dy);
  case LLVMFDiv:
    return quotient(d, i, dx, dy);
  case LLVMSelect:
    return same_on_tangents(d, i, 1);
  case LLVMPHI:
    return LLVMBuildPhi(b, LLVMTypeOf(i), "");
  case LLVMLoad:
    return load_tangent(d, i);
  case LLVMAnd:
    return mask_tangent(d, i, dx, dy);
  case LLVMShl:
  case LLVMLShr:
    return shift_tangent(d, i, dx);
  case LLVMCall:
    return flyi_math_slope(b, i, dx, dy);
  default: /* fneg, conversions between float and double, freeze, parts of structs, words that are moved */
    return same_on_tangents(d, i, 0);
  }
}

/* ---- locals ------------------------------------------------------------------------------------------------------ */

/* What is written to a local with tangents, as tangents: zeros where it is nothing active. */
static void mirror_store(const differentiation *d, LLVMValueRef i) {
  LLVMValueRef value = LLVMGetOperand(i, 0), address = shadow_address(d, LLVMGetOperand(i, 1));
  LLVMValueRef store = LLVMBuildStore(d->builder, tangent_or_zero(d, value), address);
  LLVMSetAlignment(store, LLVMGetAlignment(i));
}

static void mirror_memory(const differentiation *d, LLVMValueRef i) {
  LLVMValueRef from = is_copy(i) ? local_of(LLVMGetOperand(i, 1)) : NULL;
  LLVMValueRef address = shadow_address(d, LLVMGetOperand(i, 0)), size = LLVMGetOperand(i, 2);
  LLVMValueRef zero = LLVMConstNull(LLVMInt8TypeInContext(d->context));
  if (from && is_active(d, from))
    LLVMBuildMemMove(d->builder, address, 1, shadow_address(d, LLVMGetOperand(i, 1)), 1, size);
  else
    LLVMBuildMemSet(d->builder, address, zero, size, 1);
}

static bool writes_tangents(const differentiation *d, LLVMValueRef i) {
  bool store = LLVMIsAStoreInst(i), memory = LLVMIsACallInst(i) && (is_copy(i) || is_fill(i));
  LLVMValueRef local = store || memory ? local_of(LLVMGetOperand(i, store ? 1 : 0)) : NULL;
  return local && is_active(d, local);
}

static void add_locals(differentiation *d) {
  for (EACH_BLOCK_OF(d, block))
    for (EACH_INSTRUCTION_OF(block, i)) {
      dual *local = LLVMIsAAllocaInst(i) ? find(d, i) : NULL;
      if (!local) continue;
      local->tangent = LLVMInstructionClone(i);
      LLVMPositionBuilderBefore(d->builder, next_);
      LLVMInsertIntoBuilder(d->builder, local->tangent);
    }
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

/* Behind an instruction, but not between phis. */
static void position_behind(const differentiation *d, LLVMValueRef i) {
  LLVMValueRef next = LLVMGetNextInstruction(i);
  while (LLVMIsAPHINode(i) && LLVMIsAPHINode(next)) next = LLVMGetNextInstruction(next);
  LLVMPositionBuilderBefore(d->builder, next);
}

/* Operands come before what uses them on every path, but not always in the order of the blocks: as many rounds as that
 * takes. Phis wait for nothing. */
static void build_tangents(differentiation *d) {
  for (size_t left = 1; left;) {
    left = 0;
    for (EACH_BLOCK_OF(d, block))
      for (EACH_INSTRUCTION_OF(block, i)) {
        dual *x = find(d, i);
        if (!x || x->tangent) continue;
        position_behind(d, i);
        if (LLVMIsAPHINode(i) || is_ready(d, i))
          x->tangent = build_tangent(d, i);
        else
          left++;
      }
  }
}

static void fill_phi(const differentiation *d, LLVMValueRef phi) {
  LLVMValueRef tangent = tangent_of(d, phi);
  for (unsigned k = 0; k < LLVMCountIncoming(phi); k++) {
    LLVMValueRef value = tangent_or_zero(d, LLVMGetIncomingValue(phi, k));
    LLVMBasicBlockRef from = LLVMGetIncomingBlock(phi, k);
    LLVMAddIncoming(tangent, &value, &from, 1);
  }
}

/* Phis, writes to locals, and the results. */
static void complete(const differentiation *d) {
  LLVMValueRef slope = LLVMGetParam(d->function, 5);
  for (EACH_BLOCK_OF(d, block))
    for (EACH_INSTRUCTION_OF(block, i)) {
      if (LLVMIsAPHINode(i) && is_active(d, i)) fill_phi(d, i);
      if (writes_tangents(d, i)) {
        position_behind(d, i);
        if (LLVMIsAStoreInst(i))
          mirror_store(d, i);
        else
          mirror_memory(d, i);
      }
      if (!LLVMIsAReturnInst(i)) continue;
      LLVMPositionBuilderBefore(d->builder, i);
      LLVMBuildStore(d->builder, tangent_or_zero(d, LLVMGetOperand(i, 0)), slope);
    }
}

/* @score's blocks in @score_slope. */
static void move_body(differentiation *d, LLVMValueRef score) {
  LLVMTypeRef i32 = LLVMInt32TypeInContext(d->context), real = LLVMFloatTypeInContext(d->context);
  LLVMTypeRef types[] = {real, i32, i32, i32, i32, LLVMPointerTypeInContext(d->context, 0)};
  d->function = LLVMAddFunction(d->module, "score_slope", LLVMFunctionType(real, types, 6, false));
  for (LLVMBasicBlockRef block; (block = LLVMGetFirstBasicBlock(score));) {
    LLVMRemoveBasicBlockFromParent(block);
    LLVMAppendExistingBasicBlock(d->function, block);
  }
  for (unsigned i = 0; i < 5; i++) LLVMReplaceAllUsesWith(LLVMGetParam(score, i), LLVMGetParam(d->function, i));
  LLVMDeleteFunction(score);
  LLVMBasicBlockRef entry = LLVMGetEntryBasicBlock(d->function);
  d->straight = LLVMIsAReturnInst(LLVMGetBasicBlockTerminator(entry));
}

fly_status flyi_differentiate(LLVMModuleRef module, fly_error *error) {
  differentiation d = {.context = LLVMGetModuleContext(module), .module = module};
  LLVMValueRef score = LLVMGetNamedFunction(module, "score");
  if (!score || LLVMIsDeclaration(score)) return flyi_fail(error, FLY_ERROR_INTERNAL, "the module has no modifier");
  move_body(&d, score);
  if (!prepare(&d)) return flyi_no_memory(error);
  d.builder = LLVMCreateBuilderInContext(d.context);
  activate(&d, LLVMGetParam(d.function, 0), LLVMConstReal(LLVMFloatTypeInContext(d.context), 1));
  find_active(&d);
  add_locals(&d);
  build_tangents(&d);
  complete(&d);
  LLVMDisposeBuilder(d.builder);
  free(d.duals);
  return FLY_OK;
}
