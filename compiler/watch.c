/* watch.c: plants the calls of watch.h.
 *
 * Input: a function as clang emitted it, without -fwrapv, so that signed arithmetic is marked. Output: the same with
 * calls beside its operations, each with what would be wrong there as a condition. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <llvm-c/DebugInfo.h>

#include "watch.h"

void flyi_watch_free(flyi_watch *watch) {
  free(watch->place);
  *watch = (flyi_watch){0};
}

/* ---- planting ---------------------------------------------------------------------------------------------------- */

/* Whether an instruction stands in the source itself, not in mask.h. */
static bool is_authors(LLVMValueRef instruction) {
  unsigned size = 0;
  static const char ours[] = "/flymask-include/";
  const char *file = LLVMGetDebugLocFilename(instruction, &size);
  return (int)LLVMGetDebugLocLine(instruction) > 0 && file &&
         !(size >= sizeof ours - 1 && !strncmp(file, ours, sizeof ours - 1));
}

static LLVMValueRef watch_function(flyi_verifier *v, LLVMTypeRef *type) {
  LLVMTypeRef parameters[] = {flyi_int_type(v, 32), flyi_int_type(v, 1), flyi_int_type(v, 64)};
  *type = LLVMFunctionType(LLVMVoidTypeInContext(v->context), parameters, 3, false);
  LLVMValueRef function = LLVMGetNamedFunction(v->module, FLYI_WATCH_FUNCTION);
  return function ? function : LLVMAddFunction(v->module, FLYI_WATCH_FUNCTION, *type);
}

/* At the builder's place; the location is that of `at`. */
static fly_status plant(flyi_verifier *v, LLVMValueRef at, flyi_watch_kind kind, const char *name, LLVMValueRef happens,
                        LLVMValueRef value) {
  flyi_watch *w = v->watch;
  if (w->count == w->capacity) {
    int capacity = 2 * w->capacity + 32;
    flyi_place *grown = flyi_grow(w->place, (size_t)capacity, sizeof *grown);
    if (!grown) return flyi_no_memory(v->error);
    w->place = grown, w->capacity = capacity;
  }
  flyi_place *place = &w->place[w->count];
  *place = (flyi_place){.kind = kind, .line = (int)LLVMGetDebugLocLine(at), .column = (int)LLVMGetDebugLocColumn(at)};
  snprintf(place->name, sizeof place->name, "%s", name);
  LLVMTypeRef type, i64 = flyi_int_type(v, 64);
  LLVMValueRef function = watch_function(v, &type);
  LLVMValueRef number = LLVMConstInt(flyi_int_type(v, 32), (uint64_t)w->count++, false);
  LLVMValueRef arguments[] = {number, happens, value ? value : LLVMConstNull(i64)};
  LLVMBuildCall2(v->builder, type, function, arguments, 3, "");
  return FLY_OK;
}

static LLVMValueRef widened(flyi_verifier *v, LLVMValueRef x) {
  return LLVMBuildSExt(v->builder, x, flyi_int_type(v, 64), "");
}

static LLVMValueRef is_negative(flyi_verifier *v, LLVMValueRef x) {
  return LLVMBuildICmp(v->builder, LLVMIntSLT, x, LLVMConstNull(LLVMTypeOf(x)), "");
}

/* ---- what is watched for ----------------------------------------------------------------------------------------- */

/* Of 64 bits: by the signs; a product by dividing it again, which guard.c makes total. */
static LLVMValueRef overflow64(flyi_verifier *v, LLVMOpcode opcode, LLVMValueRef a, LLVMValueRef b) {
  LLVMBuilderRef build = v->builder;
  LLVMTypeRef i64 = flyi_int_type(v, 64);
  LLVMValueRef r = LLVMBuildBinOp(build, opcode, a, b, "");
  if (opcode == LLVMAdd)
    return is_negative(v, LLVMBuildAnd(build, LLVMBuildXor(build, a, r, ""), LLVMBuildXor(build, b, r, ""), ""));
  if (opcode == LLVMSub)
    return is_negative(v, LLVMBuildAnd(build, LLVMBuildXor(build, a, b, ""), LLVMBuildXor(build, a, r, ""), ""));
  LLVMValueRef zero = LLVMConstNull(i64), least = LLVMConstInt(i64, 1ull << 63, false);
  LLVMValueRef back = LLVMBuildICmp(build, LLVMIntNE, LLVMBuildSDiv(build, r, a, ""), b, "");
  LLVMValueRef differs = LLVMBuildAnd(build, LLVMBuildICmp(build, LLVMIntNE, a, zero, ""), back, "");
  LLVMValueRef minus = LLVMBuildICmp(build, LLVMIntEQ, a, LLVMConstAllOnes(i64), "");
  return LLVMBuildOr(build, differs, LLVMBuildAnd(build, minus, LLVMBuildICmp(build, LLVMIntEQ, b, least, ""), ""), "");
}

/* The product of two numbers of at most 32 bits fits in 64. */
static bool is_narrow(LLVMValueRef x) {
  int64_t constant;
  if (flyi_constant_int(x, &constant)) return constant >= INT32_MIN && constant <= INT32_MAX;
  return (LLVMIsASExtInst(x) && LLVMGetIntTypeWidth(LLVMTypeOf(LLVMGetOperand(x, 0))) <= 32) ||
         (LLVMIsAZExtInst(x) && LLVMGetIntTypeWidth(LLVMTypeOf(LLVMGetOperand(x, 0))) < 32);
}

static fly_status watch_arithmetic(flyi_verifier *v, LLVMValueRef i) {
  LLVMOpcode opcode = LLVMGetInstructionOpcode(i);
  LLVMValueRef a = LLVMGetOperand(i, 0), b = LLVMGetOperand(i, 1), happens, value = NULL;
  const char *name = opcode == LLVMAdd ? "+" : opcode == LLVMSub ? "-" : "*";
  if (!LLVMGetNSW(i) || LLVMGetIntTypeWidth(LLVMTypeOf(i)) > 64) return FLY_OK;
  if (flyi_is_int(LLVMTypeOf(i), 64)) {
    if (is_narrow(a) && is_narrow(b)) return FLY_OK;
    happens = overflow64(v, opcode, a, b);
  } else {
    value = LLVMBuildBinOp(v->builder, opcode, widened(v, a), widened(v, b), "");
    LLVMValueRef wrapped = LLVMBuildTrunc(v->builder, value, LLVMTypeOf(i), "");
    happens = LLVMBuildICmp(v->builder, LLVMIntNE, widened(v, wrapped), value, "");
  }
  return plant(v, i, FLYI_WATCH_OVERFLOW, name, happens, value);
}

/* The least integer of its type: its magnitude is none. */
static LLVMValueRef is_least(flyi_verifier *v, LLVMValueRef x) {
  uint64_t least = UINT64_C(1) << (LLVMGetIntTypeWidth(LLVMTypeOf(x)) - 1);
  return LLVMBuildICmp(v->builder, LLVMIntEQ, x, LLVMConstInt(LLVMTypeOf(x), least, false), "");
}

static fly_status watch_quotient(flyi_verifier *v, LLVMValueRef i) {
  LLVMValueRef d = LLVMGetOperand(i, 1), minus = LLVMConstAllOnes(LLVMTypeOf(d));
  if (LLVMGetInstructionOpcode(i) != LLVMSDiv || (LLVMIsAConstantInt(d) && d != minus)) return FLY_OK;
  LLVMValueRef happens = LLVMBuildAnd(v->builder, is_least(v, LLVMGetOperand(i, 0)),
                                      LLVMBuildICmp(v->builder, LLVMIntEQ, d, minus, ""), "");
  return plant(v, i, FLYI_WATCH_OVERFLOW, "/", happens, NULL);
}

/* fly_abs of mask.h, and the compiler's own. */
static fly_status watch_call(flyi_verifier *v, LLVMValueRef i) {
  size_t size;
  const char *name = LLVMGetValueName2(LLVMGetCalledValue(i), &size);
  bool ours = strcmp(name, "fly_abs") == 0;
  if (!ours && !(flyi_starts(name, "llvm.abs.") && !LLVMIsNull(LLVMGetOperand(i, 1)))) return FLY_OK;
  return plant(v, i, FLYI_WATCH_OVERFLOW, ours ? name : "abs", is_least(v, LLVMGetOperand(i, 0)), NULL);
}

static fly_status watch_division(flyi_verifier *v, LLVMValueRef i) {
  LLVMOpcode opcode = LLVMGetInstructionOpcode(i);
  LLVMValueRef x = LLVMGetOperand(i, 0), d = LLVMGetOperand(i, 1), zero = LLVMConstNull(LLVMTypeOf(d));
  const char *name = opcode == LLVMSDiv || opcode == LLVMUDiv ? "/" : "%";
  if (!LLVMIsAConstantInt(d)) {
    fly_status status = plant(v, i, FLYI_WATCH_ZERO, name, LLVMBuildICmp(v->builder, LLVMIntEQ, d, zero, ""), NULL);
    if (status) return status;
  }
  fly_status status = watch_quotient(v, i);
  if (status || (opcode != LLVMSDiv && opcode != LLVMSRem)) return status;
  LLVMValueRef rest = LLVMBuildSRem(v->builder, x, d, "");
  LLVMValueRef some = LLVMBuildAnd(v->builder, LLVMBuildICmp(v->builder, LLVMIntNE, rest, zero, ""),
                                   LLVMBuildICmp(v->builder, LLVMIntNE, d, zero, ""), "");
  LLVMValueRef signs = is_negative(v, LLVMBuildXor(v->builder, rest, d, ""));
  return plant(v, i, FLYI_WATCH_NEGATIVE, name, LLVMBuildAnd(v->builder, some, signs, ""), NULL);
}

static fly_status watch_shift(flyi_verifier *v, LLVMValueRef i) {
  LLVMValueRef count = LLVMGetOperand(i, 1);
  unsigned width = LLVMGetIntTypeWidth(LLVMTypeOf(count));
  if (LLVMIsAConstantInt(count) || width > 64) return FLY_OK;
  LLVMValueRef limit = LLVMConstInt(LLVMTypeOf(count), width, false);
  LLVMValueRef value = width == 64 ? count : widened(v, count);
  return plant(v, i, FLYI_WATCH_SHIFT, LLVMGetInstructionOpcode(i) == LLVMShl ? "<<" : ">>",
               LLVMBuildICmp(v->builder, LLVMIntUGE, count, limit, ""), value);
}

/* A bool that is read is compared with 0: the clause that made it stands elsewhere. */
static bool is_bool_read(LLVMValueRef compare) {
  LLVMValueRef x = LLVMGetOperand(compare, 0);
  return LLVMIsALoadInst(x) && flyi_is_int(LLVMTypeOf(x), 8) && LLVMIsAConstantInt(LLVMGetOperand(compare, 1));
}

static fly_status watch_clause(flyi_verifier *v, LLVMValueRef i, LLVMValueRef next) {
  LLVMTypeKind kind = LLVMGetTypeKind(LLVMTypeOf(LLVMGetOperand(i, 0)));
  if (kind == LLVMPointerTypeKind || is_bool_read(i)) return FLY_OK;
  LLVMPositionBuilderBefore(v->builder, next);
  return plant(v, i, FLYI_WATCH_CLAUSE, "", i, NULL);
}

static fly_status watch_instruction(flyi_verifier *v, LLVMValueRef i, LLVMValueRef next) {
  flyi_build_before(v, i);
  switch (LLVMGetInstructionOpcode(i)) {
  case LLVMAdd:
  case LLVMSub:
  case LLVMMul:
    return watch_arithmetic(v, i);
  case LLVMSDiv:
  case LLVMUDiv:
  case LLVMSRem:
  case LLVMURem:
    return watch_division(v, i);
  case LLVMShl:
  case LLVMLShr:
  case LLVMAShr:
    return watch_shift(v, i);
  case LLVMICmp:
  case LLVMFCmp:
    return watch_clause(v, i, next);
  case LLVMCall:
    return watch_call(v, i);
  default:
    return FLY_OK;
  }
}

fly_status flyi_watch_function(flyi_verifier *v, LLVMValueRef function) {
  for (EACH_BLOCK(block, function)) {
    for (EACH_INSTRUCTION_SAFE(i, next, block)) {
      fly_status status = is_authors(i) ? watch_instruction(v, i, next) : FLY_OK;
      if (status) return status;
    }
  }
  return FLY_OK;
}

fly_status flyi_watch_index(flyi_verifier *v, LLVMValueRef at, const char *object, LLVMValueRef index,
                            LLVMValueRef count) {
  if (!is_authors(at)) return FLY_OK;
  LLVMValueRef outside = LLVMBuildOr(v->builder, is_negative(v, index),
                                     LLVMBuildICmp(v->builder, LLVMIntSGE, index, count, ""), "");
  return plant(v, at, FLYI_WATCH_INDEX, object, outside, index);
}
