/* guard.c: makes the instructions of one function total, as mask.h's table says.
 *
 * Input: a function as clang emitted it. Output: the same function without division by zero or overflowing division,
 * without shifts beyond the width, with saturating conversions; and without the promises (nsw, exact, fast-math, range
 * metadata, ...) on which an optimiser could build. Guards are branch-free and are left out where the operand is a
 * constant that needs none. This runs before anything else: an optimiser that sees x / d takes d != 0 for granted. */
#include <stdlib.h>
#include <string.h>

#include "verify.h"

/* ---- Guards ------------------------------------------------------------------------------------------------------ */

static void replace(LLVMValueRef old, LLVMValueRef with) {
  LLVMReplaceAllUsesWith(old, with);
  LLVMInstructionEraseFromParent(old);
}

/* x / 0 = 0, x % 0 = x; x / -1 = -x and x % -1 = 0, wrapping for the least value. */
static void guard_division(flyi_verifier *v, LLVMValueRef division) {
  LLVMBuilderRef b = v->builder;
  LLVMOpcode opcode = LLVMGetInstructionOpcode(division);
  LLVMValueRef x = LLVMGetOperand(division, 0), d = LLVMGetOperand(division, 1);
  LLVMTypeRef type = LLVMTypeOf(d);
  LLVMValueRef zero = LLVMConstNull(type), one = LLVMConstInt(type, 1, false), minus = LLVMConstAllOnes(type);
  bool is_signed = opcode == LLVMSDiv || opcode == LLVMSRem, remainder = opcode == LLVMSRem || opcode == LLVMURem;
  if (LLVMIsAConstantInt(d) && d != zero && !(is_signed && d == minus)) return;
  LLVMValueRef by_zero = LLVMBuildICmp(b, LLVMIntEQ, d, zero, "");
  LLVMValueRef by_minus = is_signed ? LLVMBuildICmp(b, LLVMIntEQ, d, minus, "") : NULL;
  LLVMValueRef odd = is_signed ? LLVMBuildOr(b, by_zero, by_minus, "") : by_zero;
  LLVMValueRef divisor = LLVMBuildSelect(b, odd, one, d, "");
  LLVMValueRef result = LLVMBuildBinOp(b, opcode, x, divisor, "");
  if (is_signed && !remainder) result = LLVMBuildSelect(b, by_minus, LLVMBuildNeg(b, x, ""), result, "");
  replace(division, LLVMBuildSelect(b, by_zero, remainder ? x : zero, result, ""));
}

/* The count modulo the width. */
static void guard_shift(flyi_verifier *v, LLVMValueRef shift) {
  LLVMValueRef count = LLVMGetOperand(shift, 1);
  unsigned width = LLVMGetIntTypeWidth(LLVMTypeOf(count));
  if (LLVMIsAConstantInt(count) && LLVMConstIntGetZExtValue(count) < width) return;
  LLVMSetOperand(shift, 1, LLVMBuildAnd(v->builder, count, LLVMConstInt(LLVMTypeOf(count), width - 1, false), ""));
}

static void guard_conversion(flyi_verifier *v, LLVMValueRef conversion) {
  LLVMValueRef x = LLVMGetOperand(conversion, 0);
  bool is_signed = LLVMGetInstructionOpcode(conversion) == LLVMFPToSI;
  LLVMTypeRef types[] = {LLVMTypeOf(conversion), LLVMTypeOf(x)};
  replace(conversion, flyi_call_intrinsic(v, is_signed ? "llvm.fptosi.sat" : "llvm.fptoui.sat", types, 2, &x, 1));
}

/* Clang ends the switch over the ways out of a scope with one. */
static void guard_unreachable(flyi_verifier *v, LLVMValueRef unreachable, LLVMValueRef function) {
  LLVMTypeRef type = LLVMGetReturnType(LLVMGlobalGetValueType(function));
  if (LLVMGetTypeKind(type) == LLVMVoidTypeKind)
    LLVMBuildRetVoid(v->builder);
  else
    LLVMBuildRet(v->builder, LLVMConstNull(type));
  LLVMInstructionEraseFromParent(unreachable);
}

/* Builtins: hints vanish; those with an undefined case get the defined one. */
static void guard_intrinsic(flyi_verifier *v, LLVMValueRef call, const char *name) {
  LLVMTypeRef i1 = flyi_int_type(v, 1);
  if (flyi_starts(name, "llvm.dbg.") || flyi_starts(name, "llvm.lifetime.") || flyi_starts(name, "llvm.assume"))
    LLVMInstructionEraseFromParent(call);
  else if (flyi_starts(name, "llvm.expect."))
    replace(call, LLVMGetOperand(call, 0));
  else if (flyi_starts(name, "llvm.is.constant."))
    replace(call, LLVMConstNull(i1));
  else if (flyi_starts(name, "llvm.ctlz.") || flyi_starts(name, "llvm.cttz.") || flyi_starts(name, "llvm.abs."))
    LLVMSetOperand(call, 1, LLVMConstNull(i1)); /* of 0: the width; of the least value: itself */
}

/* ---- Promises ---------------------------------------------------------------------------------------------------- */

static void strip_flags(LLVMValueRef instruction) {
  switch (LLVMGetInstructionOpcode(instruction)) {
  case LLVMAdd:
  case LLVMSub:
  case LLVMMul:
  case LLVMShl:
  case LLVMTrunc:
    LLVMSetNSW(instruction, false);
    LLVMSetNUW(instruction, false);
    break;
  case LLVMSDiv:
  case LLVMUDiv:
  case LLVMAShr:
  case LLVMLShr:
    LLVMSetExact(instruction, false);
    break;
  case LLVMOr:
    LLVMSetIsDisjoint(instruction, false);
    break;
  case LLVMZExt:
    LLVMSetNNeg(instruction, false);
    break;
  default:
    break;
  }
  if (LLVMCanValueUseFastMathFlags(instruction)) LLVMSetFastMathFlags(instruction, LLVMFastMathNone);
}

/* Attributes that say how an argument is passed are kept until calls are inlined; the others are promises. */
static bool is_passing(LLVMAttributeRef attribute) {
  static const char *const kept[] = {"byval", "sret", "zeroext", "signext", "inreg"};
  if (LLVMIsStringAttribute(attribute)) return false;
  unsigned kind = LLVMIsTypeAttribute(attribute) || LLVMIsEnumAttribute(attribute) ? LLVMGetEnumAttributeKind(attribute)
                                                                                   : 0;
  for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
    if (kind == LLVMGetEnumAttributeKindForName(kept[i], strlen(kept[i]))) return true;
  return false;
}

/* Removes the promises at one index of a function or, with `call`, of a call. False: no memory. */
static bool strip_attributes_at(LLVMValueRef of, bool call, LLVMAttributeIndex index) {
  unsigned count = call ? LLVMGetCallSiteAttributeCount(of, index) : LLVMGetAttributeCountAtIndex(of, index);
  LLVMAttributeRef few[32], *many = count > 32 ? flyi_alloc(count, sizeof *many) : NULL;
  LLVMAttributeRef *attributes = many ? many : few;
  if (count > 32 && !many) return false;
  if (call)
    LLVMGetCallSiteAttributes(of, index, attributes);
  else
    LLVMGetAttributesAtIndex(of, index, attributes);
  for (unsigned i = 0; i < count; i++) {
    LLVMAttributeRef a = attributes[i];
    if (is_passing(a)) continue;
    if (LLVMIsStringAttribute(a)) {
      unsigned size;
      const char *kind = LLVMGetStringAttributeKind(a, &size);
      if (call)
        LLVMRemoveCallSiteStringAttribute(of, index, kind, size);
      else
        LLVMRemoveStringAttributeAtIndex(of, index, kind, size);
    } else if (call) {
      LLVMRemoveCallSiteEnumAttribute(of, index, LLVMGetEnumAttributeKind(a));
    } else {
      LLVMRemoveEnumAttributeAtIndex(of, index, LLVMGetEnumAttributeKind(a));
    }
  }
  free(many);
  return true;
}

static bool strip_call(LLVMValueRef call) {
  unsigned count = LLVMGetNumArgOperands(call);
  LLVMSetInstructionCallConv(call, LLVMCCallConv);
  LLVMSetTailCallKind(call, LLVMTailCallKindNone);
  bool good = strip_attributes_at(call, true, LLVMAttributeFunctionIndex);
  for (unsigned i = 0; i <= count; i++) good = strip_attributes_at(call, true, i) && good; /* 0: the result */
  return good;
}

bool flyi_strip_function(LLVMValueRef function) {
  LLVMSetFunctionCallConv(function, LLVMCCallConv);
  bool good = strip_attributes_at(function, false, LLVMAttributeFunctionIndex);
  for (unsigned i = 0; i <= LLVMCountParams(function); i++) good = strip_attributes_at(function, false, i) && good;
  return good;
}

/* ---- The step ---------------------------------------------------------------------------------------------------- */

static void guard_instruction(flyi_verifier *v, LLVMValueRef instruction, LLVMValueRef function) {
  flyi_build_before(v, instruction);
  switch (LLVMGetInstructionOpcode(instruction)) {
  case LLVMSDiv:
  case LLVMSRem:
  case LLVMUDiv:
  case LLVMURem:
    guard_division(v, instruction);
    break;
  case LLVMShl:
  case LLVMLShr:
  case LLVMAShr:
    guard_shift(v, instruction);
    break;
  case LLVMFPToSI:
  case LLVMFPToUI:
    guard_conversion(v, instruction);
    break;
  case LLVMUnreachable:
    guard_unreachable(v, instruction, function);
    break;
  case LLVMCall: {
    const char *name = flyi_intrinsic(instruction);
    if (*name) guard_intrinsic(v, instruction, name);
    break;
  }
  default:
    break;
  }
}

bool flyi_guard(flyi_verifier *v, LLVMValueRef function) {
  bool good = flyi_strip_function(function);
  for (EACH_BLOCK(block, function))
    for (EACH_INSTRUCTION_SAFE(instruction, next, block)) {
      strip_flags(instruction);
      flyi_strip_metadata(v, instruction);
      if (LLVMIsACallInst(instruction)) good = strip_call(instruction) && good;
      guard_instruction(v, instruction, function);
    }
  return good;
}
