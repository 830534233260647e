/* refuse.c: what a mask's functions must not do.
 *
 * Input: the functions as clang emitted them, so that every complaint is about something that stands in the source.
 * Output: the first complaint, in the order of the source's functions. What needs the whole mask in one piece (where a
 * pointer points, how a loop is shaped) is refused by later steps. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <llvm-c/DebugInfo.h>

#include "math_calls.h"
#include "verify.h"

static const char *name_of(LLVMValueRef value) {
  size_t size;
  return LLVMGetValueName2(value, &size);
}

/* ---- Types ------------------------------------------------------------------------------------------------------- */

/* NULL, or what is wrong with values of this type. */
static const char *bad_type(LLVMTypeRef type) {
  const char *bad = NULL;
  switch (LLVMGetTypeKind(type)) {
  case LLVMVoidTypeKind:
  case LLVMLabelTypeKind:
  case LLVMMetadataTypeKind:
  case LLVMFunctionTypeKind:
    return NULL;
  case LLVMPointerTypeKind:
    return LLVMGetPointerAddressSpace(type) ? "a pointer into an address space" : NULL;
  case LLVMArrayTypeKind:
    return bad_type(LLVMGetElementType(type));
  case LLVMStructTypeKind:
    for (unsigned i = 0; i < LLVMCountStructElementTypes(type) && !bad; i++)
      bad = bad_type(LLVMStructGetTypeAtIndex(type, i));
    return bad;
  case LLVMVectorTypeKind:
  case LLVMScalableVectorTypeKind:
    return "a vector (or a struct of floats passed by value; pass its address instead)";
  case LLVMIntegerTypeKind:
    return flyi_is_scalar(type)               ? NULL
           : LLVMGetIntTypeWidth(type) == 128 ? "an integer of 128 bits"
                                              : "an integer or bit-field of an odd width";
  default:
    return flyi_is_scalar(type) ? NULL : "a floating-point type other than float and double";
  }
}

/* Constant expressions may be addresses of elements, nothing else. NULL, or what is wrong. */
static const char *bad_constant(LLVMValueRef value) {
  if (LLVMIsPoison(value))
    return "divide by zero, shift by too much or convert a float that does not fit in a constant expression";
  if (LLVMIsAGlobalValue(value) || !LLVMIsConstant(value)) return NULL;
  if (LLVMIsABlockAddress(value)) return "take the address of a label";
  if (LLVMIsAConstantExpr(value)) {
    LLVMOpcode opcode = LLVMGetConstOpcode(value);
    if (opcode == LLVMPtrToInt || opcode == LLVMIntToPtr) return "convert between pointers and integers";
    if (opcode != LLVMGetElementPtr) return "compute with addresses in constants";
  }
  for (int i = 0; i < LLVMGetNumOperands(value); i++) {
    LLVMValueRef operand = LLVMGetOperand(value, (unsigned)i);
    const char *bad = LLVMIsAConstant(operand) ? bad_constant(operand) : NULL;
    if (bad) return bad;
  }
  return NULL;
}

static fly_status check_operands(flyi_verifier *v, LLVMValueRef instruction) {
  bool call = LLVMIsACallInst(instruction) != NULL, insert = LLVMIsAInsertValueInst(instruction) != NULL;
  const char *bad = bad_type(LLVMTypeOf(instruction));
  if (call && flyi_starts(flyi_intrinsic(instruction), "llvm.dbg.")) return FLY_OK;
  for (int i = 0; i < LLVMGetNumOperands(instruction) && !bad; i++) {
    LLVMValueRef operand = LLVMGetOperand(instruction, (unsigned)i);
    if (insert && i == 0) continue; /* clang builds a struct from poison */
    bad = bad_type(LLVMTypeOf(operand));
    if (bad) break;
    if (LLVMIsAFunction(operand) && !(call && operand == LLVMGetCalledValue(instruction)))
      return flyi_refuse(v, instruction, "a mask cannot take the address of a function ('%s')", name_of(operand));
    const char *worse = LLVMIsAConstant(operand) ? bad_constant(operand) : NULL;
    if (worse) return flyi_refuse(v, instruction, "a mask cannot %s", worse);
  }
  return bad ? flyi_refuse(v, instruction, "a mask cannot use %s", bad) : FLY_OK;
}

/* ---- Calls ------------------------------------------------------------------------------------------------------- */

static const char *const intrinsics[] = {
    "llvm.dbg.",        "llvm.lifetime.",    "llvm.memcpy.", "llvm.memmove.",  "llvm.memset.", "llvm.expect.",
    "llvm.assume",      "llvm.is.constant.", "llvm.ctpop.",  "llvm.ctlz.",     "llvm.cttz.",   "llvm.bswap.",
    "llvm.bitreverse.", "llvm.fshl.",        "llvm.fshr.",   "llvm.abs.",      "llvm.smax.",   "llvm.smin.",
    "llvm.umax.",       "llvm.umin.",        "llvm.fabs.",   "llvm.copysign.", "llvm.sqrt."};

static bool is_known_intrinsic(const char *name) {
  for (size_t i = 0; i < sizeof intrinsics / sizeof *intrinsics; i++)
    if (flyi_starts(name, intrinsics[i])) return true;
  return false;
}

static fly_status check_intrinsic(flyi_verifier *v, LLVMValueRef call, const char *name) {
  if (flyi_starts(name, "llvm.stacksave") || flyi_starts(name, "llvm.stackrestore"))
    return flyi_refuse(v, call, "a mask cannot have a variable-length array: give it a constant length");
  if (flyi_starts(name, "llvm.va_")) return flyi_refuse(v, call, "a mask cannot have variable argument lists");
  if (flyi_starts(name, "llvm.trap") || flyi_starts(name, "llvm.debugtrap") || flyi_starts(name, "llvm.ubsantrap"))
    return flyi_refuse(v, call, "a mask cannot trap: return true or false for every pair");
  if (!is_known_intrinsic(name))
    return flyi_refuse(v, call, "a mask cannot use this builtin of the compiler (%s)", name);
  if (!flyi_starts(name, "llvm.mem")) return FLY_OK;
  int64_t size;
  if (!flyi_constant_int(LLVMGetOperand(call, 2), &size) || size < 0 || size > FLYI_MOST_TABLE_BYTES)
    return flyi_refuse(v, call, "a mask cannot copy or fill memory of a size that is not a small constant");
  if (!LLVMIsNull(LLVMGetOperand(call, 3))) return flyi_refuse(v, call, "a mask cannot use volatile objects");
  return FLY_OK;
}

/* fly_token_q and its like, by their number of arguments. */
static int fly_function_arity(const char *name) {
  if (!strcmp(name, "fly_token_q") || !strcmp(name, "fly_token_kv")) return 3;
  return !strcmp(name, "fly_len_q") || !strcmp(name, "fly_len_kv") ? 1 : 0;
}

/* float NAME(float...) of score.h. */
static fly_status check_math_call(flyi_verifier *v, LLVMValueRef call, const char *name, int arity) {
  LLVMTypeRef real = LLVMFloatTypeInContext(v->context), types[] = {real, real};
  if (LLVMGetCalledFunctionType(call) == LLVMFunctionType(real, types, (unsigned)arity, false)) return FLY_OK;
  return flyi_refuse(v, call, "'%s' is declared differently: include <flymask/score.h>", name);
}

static fly_status check_call(flyi_verifier *v, LLVMValueRef call) {
  LLVMValueRef callee = LLVMGetCalledValue(call);
  if (LLVMIsAInlineAsm(callee)) return flyi_refuse(v, call, "a mask cannot have inline assembly");
  if (!LLVMIsAFunction(callee))
    return flyi_refuse(v, call, "a mask cannot call through a pointer: call the function by its name");
  const char *name = name_of(callee);
  if (LLVMGetIntrinsicID(callee)) return check_intrinsic(v, call, name);
  if (LLVMGetCalledFunctionType(call) != LLVMGlobalGetValueType(callee))
    return flyi_refuse(v, call, "a mask cannot call '%s' with other types than it is defined with", name);
  if (!LLVMIsDeclaration(callee)) return FLY_OK;
  if (v->is_score && flyi_math_arity(name)) return check_math_call(v, call, name, flyi_math_arity(name));
  int arity = fly_function_arity(name);
  LLVMTypeRef i32 = flyi_int_type(v, 32);
  if (flyi_starts(name, "__mul") || flyi_starts(name, "__div"))
    return flyi_refuse(v, call, "a mask cannot multiply or divide complex numbers");
  if (!arity && v->is_score)
    return flyi_refuse(v, call,
                       "a mask cannot call '%s', which has no body here: only its own functions, fly_... and the float "
                       "functions that <flymask/score.h> declares",
                       name);
  if (!arity)
    return flyi_refuse(v, call, "a mask cannot call '%s', which has no body here: only its own functions and fly_...",
                       name);
  if (LLVMGetCalledFunctionType(call) != LLVMFunctionType(i32, (LLVMTypeRef[]){i32, i32, i32}, (unsigned)arity, false))
    return flyi_refuse(v, call, "'%s' is declared differently: include <flymask/mask.h>", name);
  return FLY_OK;
}

/* ---- Instructions ------------------------------------------------------------------------------------------------ */

static fly_status check_alloca(flyi_verifier *v, LLVMValueRef local, uint64_t *bytes) {
  int64_t count;
  if (!flyi_constant_int(LLVMGetOperand(local, 0), &count) || count != 1 ||
      LLVMGetInstructionParent(local) !=
          LLVMGetEntryBasicBlock(LLVMGetBasicBlockParent(LLVMGetInstructionParent(local))))
    return flyi_refuse(v, local, "a mask cannot have a variable-length array: give it a constant length");
  uint64_t size = flyi_type_bytes(v, LLVMGetAllocatedType(local));
  *bytes = size > FLYI_MOST_LOCAL_BYTES ? size : *bytes + size;
  if (*bytes > FLYI_MOST_LOCAL_BYTES)
    return flyi_refuse(v, local, "the locals of a function take more than %d bytes", FLYI_MOST_LOCAL_BYTES);
  return FLY_OK;
}

/* What a mask cannot do, whatever it does it with; NULL: nothing. */
static const char *refusal_of(LLVMValueRef instruction) {
  switch (LLVMGetInstructionOpcode(instruction)) {
  case LLVMLoad:
  case LLVMStore:
    if (LLVMGetVolatile(instruction)) return "a mask cannot use volatile objects";
    return LLVMGetOrdering(instruction) == LLVMAtomicOrderingNotAtomic ? NULL : "a mask cannot use atomic objects";
  case LLVMFence:
  case LLVMAtomicCmpXchg:
  case LLVMAtomicRMW:
    return "a mask cannot use atomic operations";
  case LLVMPtrToInt:
  case LLVMIntToPtr:
  case LLVMAddrSpaceCast:
    return "a mask cannot convert between pointers and integers";
  case LLVMUnreachable: /* without a place: clang's own, which no path reaches; guard.c makes it a return */
    if ((int)LLVMGetDebugLocLine(instruction) <= 0) return NULL;
    return "a mask cannot end without a result: return true or false for every pair";
  case LLVMIndirectBr:
  case LLVMCallBr:
    return "a mask cannot jump to a computed label";
  case LLVMFRem:
    return "a mask cannot use fmod";
  default:
    return NULL;
  }
}

/* Instructions that are as safe as their operands, once the rest of the compiler has made them total. */
static bool is_plain(LLVMOpcode opcode) {
  switch (opcode) {
  case LLVMLoad:
  case LLVMStore:
  case LLVMUnreachable:
  case LLVMRet:
  case LLVMBr:
  case LLVMSwitch:
  case LLVMFNeg:
  case LLVMAdd:
  case LLVMFAdd:
  case LLVMSub:
  case LLVMFSub:
  case LLVMMul:
  case LLVMFMul:
  case LLVMUDiv:
  case LLVMSDiv:
  case LLVMFDiv:
  case LLVMURem:
  case LLVMSRem:
  case LLVMShl:
  case LLVMLShr:
  case LLVMAShr:
  case LLVMAnd:
  case LLVMOr:
  case LLVMXor:
  case LLVMGetElementPtr:
  case LLVMTrunc:
  case LLVMZExt:
  case LLVMSExt:
  case LLVMFPToUI:
  case LLVMFPToSI:
  case LLVMUIToFP:
  case LLVMSIToFP:
  case LLVMFPTrunc:
  case LLVMFPExt:
  case LLVMBitCast:
  case LLVMICmp:
  case LLVMFCmp:
  case LLVMPHI:
  case LLVMSelect:
  case LLVMExtractValue:
  case LLVMInsertValue:
  case LLVMFreeze:
    return true;
  default:
    return false;
  }
}

static fly_status check_instruction(flyi_verifier *v, LLVMValueRef instruction, uint64_t *local_bytes) {
  LLVMOpcode opcode = LLVMGetInstructionOpcode(instruction);
  const char *refusal = refusal_of(instruction);
  fly_status status = FLY_OK;
  if (refusal) return flyi_refuse(v, instruction, "%s", refusal);
  if (opcode == LLVMAlloca)
    status = check_alloca(v, instruction, local_bytes);
  else if (opcode == LLVMCall)
    status = check_call(v, instruction);
  else if (!is_plain(opcode))
    status = flyi_refuse(v, instruction, "a mask cannot do this (LLVM opcode %d)", (int)opcode);
  return status ? status : check_operands(v, instruction);
}

static fly_status check_function(flyi_verifier *v, LLVMValueRef function) {
  const char *name = name_of(function), *section = LLVMGetSection(function);
  uint64_t local_bytes = 0;
  if (fly_function_arity(name) || flyi_starts(name, FLYI_MATH_PREFIX))
    return flyi_refuse(v, function, "a mask cannot define '%s', which is Flymask's own", name);
  if (section && *section)
    return flyi_refuse(v, function, "a mask cannot put '%s' into a section ('%s')", name, section);
  if (LLVMIsFunctionVarArg(LLVMGlobalGetValueType(function)))
    return flyi_refuse(v, function, "a mask cannot have variable argument lists ('%s')", name);
  if (LLVMHasPersonalityFn(function)) return flyi_refuse(v, function, "a mask cannot handle exceptions ('%s')", name);
  for (EACH_BLOCK(block, function))
    for (EACH_INSTRUCTION(instruction, block)) {
      fly_status status = check_instruction(v, instruction, &local_bytes);
      if (status) return status;
    }
  return FLY_OK;
}

/* ---- The call graph ---------------------------------------------------------------------------------------------- */

typedef struct graph {
  LLVMValueRef functions[FLYI_MOST_FUNCTIONS];
  int sizes[FLYI_MOST_FUNCTIONS]; /* instructions with all callees inlined; 0: not visited, -1: being visited */
  int count;
} graph;

static int index_of(const graph *g, LLVMValueRef function) {
  for (int i = 0; i < g->count; i++)
    if (g->functions[i] == function) return i;
  return -1;
}

/* A function of score.h, which is inlined like the source's own, later. */
static bool calls_math(LLVMValueRef instruction) {
  LLVMValueRef callee = LLVMIsACallInst(instruction) ? LLVMGetCalledValue(instruction) : NULL;
  return callee && LLVMIsAFunction(callee) && LLVMIsDeclaration(callee) && flyi_math_arity(name_of(callee));
}

/* What an instruction counts, without what it calls. */
static int weight_of(LLVMValueRef instruction) {
  if (LLVMIsASwitchInst(instruction)) return 1 + FLYI_CASE_WEIGHT * (int)(LLVMGetNumSuccessors(instruction) - 1);
  return calls_math(instruction) ? FLYI_MATH_WEIGHT : 1;
}

/* Refuses recursion, and masks that would be too large. */
static fly_status visit(flyi_verifier *v, graph *g, int f) {
  int size = 1;
  g->sizes[f] = -1;
  for (EACH_BLOCK(block, g->functions[f]))
    for (EACH_INSTRUCTION(instruction, block)) {
      if (flyi_starts(flyi_intrinsic(instruction), "llvm.dbg.")) continue;
      size += weight_of(instruction);
      int callee = LLVMIsACallInst(instruction) ? index_of(g, LLVMGetCalledValue(instruction)) : -1;
      if (callee >= 0 && g->sizes[callee] < 0)
        return flyi_refuse(v, instruction, "a mask cannot recurse: '%s' calls itself, directly or through others",
                           name_of(g->functions[callee]));
      fly_status status = callee >= 0 && !g->sizes[callee] ? visit(v, g, callee) : FLY_OK;
      if (status) return status;
      if (callee >= 0) size += g->sizes[callee];
      if (size > FLYI_MOST_INSTRUCTIONS)
        return flyi_refuse(v, instruction, "the mask is too large: with its calls inlined, more than %d instructions",
                           FLYI_MOST_INSTRUCTIONS);
    }
  g->sizes[f] = size;
  return FLY_OK;
}

/* From here on the functions of score.h are Flymask's own: LLVM has its own thoughts about those of the C library. */
static void rename_math(flyi_verifier *v) {
  for (EACH_FUNCTION(function, v->module)) {
    char symbol[64];
    const char *name = name_of(function);
    if (!LLVMIsDeclaration(function) || !flyi_math_arity(name)) continue;
    snprintf(symbol, sizeof symbol, FLYI_MATH_PREFIX "%s", name);
    LLVMSetValueName2(function, symbol, strlen(symbol));
  }
}

fly_status flyi_refuse_functions(flyi_verifier *v) {
  graph *g = flyi_alloc(1, sizeof *g);
  if (!g) return flyi_no_memory(v->error);
  fly_status status = FLY_OK;
  for (EACH_FUNCTION(function, v->module)) {
    if (LLVMIsDeclaration(function)) continue;
    if (g->count == FLYI_MOST_FUNCTIONS)
      status = flyi_refuse(v, function, "the source has more than %d functions", FLYI_MOST_FUNCTIONS);
    if (!status) status = check_function(v, function);
    if (status) goto done;
    g->functions[g->count++] = function;
  }
  for (int i = 0; i < g->count && !status; i++)
    if (!g->sizes[i]) status = visit(v, g, i);
  if (!status && v->is_score) rename_math(v);

done:
  free(g);
  return status;
}
