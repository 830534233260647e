/* quotient.c: divisions that become vectors. Input: a module after divide.c. Output: the same, where divisions of 32
 * bits by what is no constant, in the straight part of fly_pair, are multiplications by a reciprocal in binary64.
 *
 * No CPU divides vectors of integers: LLVM would take each pair's operands out of their vectors and divide them one by
 * one. Let
 *
 *     r = (1 / y) (1 + 2^-45),    x / y = trunc(x r),    x % y = x - (x / y) y
 *
 * r and x r are rounded, by at most 2^-53 of their size each, so that what is truncated is (x / y) (1 + e) with
 * 2^-46 < e < 2^-44. It is not below a whole x / y; and as x / y is at least 1 / y below the next integer, and |x|
 * <= 2^32, it does not reach that: (|x| / |y|) e < 1 / |y|. The guards (mask.h) have seen to y = 0 and to a quotient
 * of 2^31. The reciprocal of a y that a row or the whole call shares is computed once, outside the loop. */
#include "compiler.h"

static bool wanted(LLVMValueRef instruction) {
  switch (LLVMGetInstructionOpcode(instruction)) {
  case LLVMSDiv:
  case LLVMUDiv:
  case LLVMSRem:
  case LLVMURem: {
    LLVMTypeRef type = LLVMTypeOf(instruction);
    return LLVMGetTypeKind(type) == LLVMIntegerTypeKind && LLVMGetIntTypeWidth(type) == 32 &&
           !LLVMIsAConstant(LLVMGetOperand(instruction, 1));
  }
  default:
    return false;
  }
}

static void rewrite(LLVMBuilderRef b, LLVMValueRef division) {
  LLVMOpcode opcode = LLVMGetInstructionOpcode(division);
  bool is_signed = opcode == LLVMSDiv || opcode == LLVMSRem, remainder = opcode == LLVMSRem || opcode == LLVMURem;
  LLVMOpcode widen = is_signed ? LLVMSIToFP : LLVMUIToFP, narrow = is_signed ? LLVMFPToSI : LLVMFPToUI;
  LLVMValueRef x = LLVMGetOperand(division, 0), y = LLVMGetOperand(division, 1);
  LLVMTypeRef i32 = LLVMTypeOf(x), real = LLVMDoubleTypeInContext(LLVMGetTypeContext(i32));
  LLVMPositionBuilderBefore(b, division);
  LLVMValueRef reciprocal = LLVMBuildFDiv(b, LLVMConstReal(real, 1.0), LLVMBuildCast(b, widen, y, real, ""), "");
  reciprocal = LLVMBuildFMul(b, reciprocal, LLVMConstReal(real, 1 + 0x1p-45), "");
  LLVMValueRef product = LLVMBuildFMul(b, LLVMBuildCast(b, widen, x, real, ""), reciprocal, "");
  LLVMValueRef result = LLVMBuildCast(b, narrow, product, i32, "");
  if (remainder) result = LLVMBuildSub(b, x, LLVMBuildMul(b, result, y, ""), "");
  LLVMReplaceAllUsesWith(division, result);
  LLVMInstructionEraseFromParent(division);
}

void flyi_quotients(LLVMModuleRef module) {
  LLVMValueRef pair = LLVMGetNamedFunction(module, "fly_pair"), next;
  LLVMBuilderRef builder = LLVMCreateBuilderInContext(LLVMGetModuleContext(module));
  for (LLVMValueRef i = LLVMGetFirstInstruction(LLVMGetEntryBasicBlock(pair)); i; i = next) {
    next = LLVMGetNextInstruction(i);
    if (wanted(i)) rewrite(builder, i);
  }
  LLVMDisposeBuilder(builder);
}
