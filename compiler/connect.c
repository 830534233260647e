/* connect.c: what a mask reads, when it has become part of a kernel. Input: a module that holds the symbolic mask, and
 * code of functions that receive the launch's arguments. Output: loads of the mask's globals are loads of slots of
 * flyi_mask_args (launch.h), its calls of fly_token_... and fly_len_... calls of the template's, baked parameters
 * constants. */
#include <string.h>

#include "compiler.h"

/* ---- globals ----------------------------------------------------------------------------------------------------- */

typedef struct joint {
  LLVMContextRef context;
  LLVMModuleRef module;
  const flyi_declarations *declarations;
  const flyi_arguments *arguments;
} joint;

static LLVMValueRef constant_of(const flyi_parameter *parameter, LLVMTypeRef type) {
  if (parameter->type == FLY_F32) {
    float value;
    memcpy(&value, &parameter->value, sizeof value);
    return LLVMConstReal(type, value);
  }
  if (parameter->type == FLY_F64) {
    double value;
    memcpy(&value, &parameter->value, sizeof value);
    return LLVMConstReal(type, value);
  }
  return LLVMConstInt(type, parameter->value, false);
}

/* The name behind `prefix`, or NULL. */
static const char *after(const char *name, const char *prefix) {
  size_t length = strlen(prefix);
  return strncmp(name, prefix, length) == 0 ? name + length : NULL;
}

static int parameter_number(const joint *s, const char *name) {
  for (int i = 0; i < s->declarations->parameter_count; i++)
    if (strcmp(s->declarations->parameters[i].name, name) == 0) return i;
  return -1;
}

/* A buffer's number; `length` bytes of name. */
static int buffer_number(const joint *s, const char *name, size_t length) {
  for (int i = 0; i < s->declarations->buffer_count; i++) {
    const char *known = s->declarations->buffers[i].name;
    if (strlen(known) == length && memcmp(known, name, length) == 0) return i;
  }
  return -1;
}

/* The slot of launch.h that a global of the symbolic form stands for, by its name without prefix; -1: none. */
static int slot_of(const joint *s, const char *name) {
  const char *rest;
  int buffer = -1, field = 0;
  if ((rest = after(name, "param."))) return parameter_number(s, rest);
  if ((rest = after(name, "data."))) {
    buffer = buffer_number(s, rest, strlen(rest));
  } else if ((rest = after(name, "count."))) {
    buffer = buffer_number(s, rest, strlen(rest)), field = 1;
  } else if ((rest = after(name, "dim."))) {
    size_t length = strlen(rest); /* NAME.K; NAME may hold dots itself */
    if (length < 3 || rest[length - 2] != '.' || rest[length - 1] < '0' || rest[length - 1] > '3') return -1;
    buffer = buffer_number(s, rest, length - 2), field = 2 + rest[length - 1] - '0';
  }
  return buffer < 0 ? -1 : s->declarations->parameter_count + buffer * FLYI_BUFFER_SLOTS + field;
}

static const flyi_parameter *baked(const joint *s, const char *name) {
  const char *rest = after(name, "fly.param.");
  int number = rest ? parameter_number(s, rest) : -1;
  return number >= 0 && s->declarations->parameters[number].baked ? &s->declarations->parameters[number] : NULL;
}

/* Baked parameters become constants before the mask is divided, so that what hangs on them folds. */
void flyi_bake(LLVMModuleRef module, const flyi_declarations *declarations) {
  joint known = {.declarations = declarations};
  const joint *s = &known;
  for (LLVMValueRef global = LLVMGetFirstGlobal(module); global; global = LLVMGetNextGlobal(global)) {
    const flyi_parameter *parameter = baked(s, LLVMGetValueName2(global, &(size_t){0}));
    LLVMUseRef next;
    for (LLVMUseRef use = parameter ? LLVMGetFirstUse(global) : NULL; use; use = next) {
      next = LLVMGetNextUse(use);
      LLVMValueRef load = LLVMGetUser(use);
      if (!LLVMIsALoadInst(load)) continue;
      LLVMReplaceAllUsesWith(load, constant_of(parameter, LLVMTypeOf(load)));
      LLVMInstructionEraseFromParent(load);
    }
  }
}

static LLVMValueRef function_of(LLVMValueRef instruction) {
  return LLVMGetBasicBlockParent(LLVMGetInstructionParent(instruction));
}

/* Where flyi_mask_args are for an instruction. */
static LLVMValueRef arguments_at(const joint *s, LLVMBuilderRef builder, LLVMValueRef instruction, int64_t offset) {
  LLVMTypeRef byte = LLVMInt8TypeInContext(s->context), i64 = LLVMInt64TypeInContext(s->context);
  LLVMValueRef distance = LLVMConstInt(i64, (uint64_t)(s->arguments->offset + offset), false);
  LLVMPositionBuilderBefore(builder, instruction);
  return LLVMBuildInBoundsGEP2(builder, byte, LLVMGetParam(function_of(instruction), 0), &distance, 1, "");
}

/* A pointer to captured data, in the address space that it lies in: what reads it then needs no test of where it
 * points. */
static void load_in_space(const joint *s, LLVMBuilderRef builder, LLVMValueRef load) {
  LLVMTypeRef type = LLVMPointerTypeInContext(s->context, s->arguments->data_space);
  LLVMValueRef pointer = LLVMBuildLoad2(builder, type, LLVMGetOperand(load, 0), "");
  LLVMReplaceAllUsesWith(load, LLVMBuildAddrSpaceCast(builder, pointer, LLVMTypeOf(load), ""));
  LLVMInstructionEraseFromParent(load);
}

/* Loads of a global become loads of its slot. */
static fly_status connect_global(const joint *s, LLVMBuilderRef builder, LLVMValueRef global, const char *name,
                                 fly_error *error) {
  int slot = slot_of(s, name);
  unsigned invariant = LLVMGetMDKindIDInContext(s->context, "invariant.load", 14);
  LLVMValueRef empty = LLVMMetadataAsValue(s->context, LLVMMDNodeInContext2(s->context, NULL, 0));
  for (LLVMUseRef use; (use = LLVMGetFirstUse(global));) {
    LLVMValueRef load = LLVMGetUser(use);
    if (slot < 0 || !LLVMIsALoadInst(load))
      return flyi_fail(error, FLY_ERROR_INTERNAL, "the verified mask uses %s in an unknown way", name);
    int64_t at = s->arguments->first_slot + slot;
    int64_t offset = (int64_t)sizeof(flyi_mask_args) + at * (int64_t)sizeof(uint64_t);
    LLVMSetOperand(load, 0, arguments_at(s, builder, load, offset));
    LLVMSetMetadata(load, invariant, empty);
    if (s->arguments->data_space && after(name, "data.")) load_in_space(s, builder, load);
  }
  LLVMDeleteGlobal(global);
  return FLY_OK;
}

/* fly_token_q(b, h, q) and the like become flyi_token_q(args, b, h, q). */
static fly_status connect_function(const joint *s, LLVMBuilderRef builder, const char *name, const char *target,
                                   fly_error *error) {
  LLVMValueRef from = LLVMGetNamedFunction(s->module, name), to = LLVMGetNamedFunction(s->module, target);
  if (!from) return FLY_OK;
  if (!to) return flyi_fail(error, FLY_ERROR_INTERNAL, "the template lacks %s", target);
  for (LLVMUseRef use; (use = LLVMGetFirstUse(from));) {
    LLVMValueRef call = LLVMGetUser(use), arguments[4];
    unsigned count = LLVMIsACallInst(call) ? LLVMGetNumArgOperands(call) : 0;
    if (count == 0 || count > 3 || count + 1 != LLVMCountParams(to))
      return flyi_fail(error, FLY_ERROR_INTERNAL, "the verified mask uses %s in an unknown way", name);
    arguments[0] = arguments_at(s, builder, call, 0);
    for (unsigned i = 0; i < count; i++) arguments[1 + i] = LLVMGetOperand(call, i);
    LLVMReplaceAllUsesWith(call, LLVMBuildCall2(builder, LLVMGlobalGetValueType(to), to, arguments, count + 1, ""));
    LLVMInstructionEraseFromParent(call);
  }
  LLVMDeleteFunction(from);
  return FLY_OK;
}

fly_status flyi_connect(LLVMModuleRef module, const flyi_declarations *declarations, const flyi_arguments *where,
                        fly_error *error) {
  static const char *const functions[][2] = {{"fly_token_q", "flyi_token_q"},
                                             {"fly_token_kv", "flyi_token_kv"},
                                             {"fly_len_q", "flyi_len_q"},
                                             {"fly_len_kv", "flyi_len_kv"}};
  const char *prefix = where->prefix ? where->prefix : "fly.";
  fly_status status = FLY_OK;
  const joint all = {LLVMGetModuleContext(module), module, declarations, where}, *s = &all;
  LLVMBuilderRef builder = LLVMCreateBuilderInContext(s->context);
  LLVMValueRef next;
  for (LLVMValueRef global = LLVMGetFirstGlobal(s->module); global && !status; global = next) {
    next = LLVMGetNextGlobal(global);
    const char *name = after(LLVMGetValueName2(global, &(size_t){0}), prefix);
    if (name) status = connect_global(s, builder, global, name, error);
  }
  for (size_t i = 0; i < sizeof functions / sizeof *functions && !status; i++)
    status = connect_function(s, builder, functions[i][0], functions[i][1], error);
  LLVMDisposeBuilder(builder);
  return status;
}
