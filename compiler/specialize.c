/* specialize.c: joins a mask with the template that evaluates it. Input: the symbolic module (flyi_verify). Output: a
 * module with one exported function, fly_tile_bits, optimised for one vector level of the CPU; for a score modifier,
 * two (launch.h), and the functions of score_math.c inside.
 *
 * The mask's globals become loads from the launch's arguments, baked parameters constants, its calls of
 * fly_token_... and fly_len_... calls of the template's; then everything is inlined and vectorised. */
#include <string.h>

#include <llvm-c/BitReader.h>
#include <llvm-c/DebugInfo.h>
#include <llvm-c/Linker.h>
#include <llvm-c/Transforms/PassBuilder.h>

#include "compiler.h"

/* ---- globals ----------------------------------------------------------------------------------------------------- */

typedef struct joint {
  LLVMContextRef context;
  LLVMModuleRef module;
  const flyi_declarations *declarations;
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

/* The slot of launch.h that a global of the symbolic form stands for; -1: none. */
static int slot_of(const joint *s, const char *name) {
  const char *rest;
  int buffer = -1, field = 0;
  if ((rest = after(name, "fly.param."))) return parameter_number(s, rest);
  if ((rest = after(name, "fly.data."))) {
    buffer = buffer_number(s, rest, strlen(rest));
  } else if ((rest = after(name, "fly.count."))) {
    buffer = buffer_number(s, rest, strlen(rest)), field = 1;
  } else if ((rest = after(name, "fly.dim."))) {
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
static void bake(const joint *s) {
  for (LLVMValueRef global = LLVMGetFirstGlobal(s->module); global; global = LLVMGetNextGlobal(global)) {
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

/* Loads of a global become loads of its slot: args is the first argument of each function that divide.c makes. */
static fly_status connect_global(const joint *s, LLVMBuilderRef builder, LLVMValueRef global, fly_error *error) {
  const char *name = LLVMGetValueName2(global, &(size_t){0});
  int slot = slot_of(s, name);
  LLVMTypeRef byte = LLVMInt8TypeInContext(s->context), i64 = LLVMInt64TypeInContext(s->context);
  unsigned invariant = LLVMGetMDKindIDInContext(s->context, "invariant.load", 14);
  LLVMValueRef empty = LLVMMetadataAsValue(s->context, LLVMMDNodeInContext2(s->context, NULL, 0));
  for (LLVMUseRef use; (use = LLVMGetFirstUse(global));) {
    LLVMValueRef load = LLVMGetUser(use);
    if (slot < 0 || !LLVMIsALoadInst(load))
      return flyi_fail(error, FLY_ERROR_INTERNAL, "the verified mask uses %s in an unknown way", name);
    LLVMValueRef offset = LLVMConstInt(i64, sizeof(flyi_mask_args) + slot * sizeof(uint64_t), false);
    LLVMPositionBuilderBefore(builder, load);
    LLVMValueRef args = LLVMGetParam(function_of(load), 0);
    LLVMSetOperand(load, 0, LLVMBuildInBoundsGEP2(builder, byte, args, &offset, 1, ""));
    LLVMSetMetadata(load, invariant, empty);
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
    arguments[0] = LLVMGetParam(function_of(call), 0);
    for (unsigned i = 0; i < count; i++) arguments[1 + i] = LLVMGetOperand(call, i);
    LLVMPositionBuilderBefore(builder, call);
    LLVMReplaceAllUsesWith(call, LLVMBuildCall2(builder, LLVMGlobalGetValueType(to), to, arguments, count + 1, ""));
    LLVMInstructionEraseFromParent(call);
  }
  LLVMDeleteFunction(from);
  return FLY_OK;
}

static fly_status connect(const joint *s, fly_error *error) {
  static const char *const functions[][2] = {{"fly_token_q", "flyi_token_q"},
                                             {"fly_token_kv", "flyi_token_kv"},
                                             {"fly_len_q", "flyi_len_q"},
                                             {"fly_len_kv", "flyi_len_kv"}};
  fly_status status = FLY_OK;
  LLVMBuilderRef builder = LLVMCreateBuilderInContext(s->context);
  LLVMValueRef next;
  for (LLVMValueRef global = LLVMGetFirstGlobal(s->module); global && !status; global = next) {
    next = LLVMGetNextGlobal(global);
    if (after(LLVMGetValueName2(global, &(size_t){0}), "fly.")) status = connect_global(s, builder, global, error);
  }
  for (size_t i = 0; i < sizeof functions / sizeof *functions && !status; i++)
    status = connect_function(s, builder, functions[i][0], functions[i][1], error);
  LLVMDisposeBuilder(builder);
  return status;
}

/* ---- attributes -------------------------------------------------------------------------------------------------- */

static void remove_attribute(LLVMValueRef function, const char *name) {
  unsigned kind = LLVMGetEnumAttributeKindForName(name, strlen(name));
  if (kind) LLVMRemoveEnumAttributeAtIndex(function, LLVMAttributeFunctionIndex, kind);
}

static void set_text(LLVMValueRef function, const char *name, const char *value) {
  LLVMRemoveStringAttributeAtIndex(function, LLVMAttributeFunctionIndex, name, (unsigned)strlen(name));
  if (!value) return;
  LLVMContextRef context = LLVMGetModuleContext(LLVMGetGlobalParent(function));
  LLVMAddAttributeAtIndex(
      function, LLVMAttributeFunctionIndex,
      LLVMCreateStringAttribute(context, name, (unsigned)strlen(name), value, (unsigned)strlen(value)));
}

static void set_enum(LLVMValueRef function, const char *name) {
  LLVMContextRef context = LLVMGetModuleContext(LLVMGetGlobalParent(function));
  unsigned kind = LLVMGetEnumAttributeKindForName(name, strlen(name));
  LLVMAddAttributeAtIndex(function, LLVMAttributeFunctionIndex, LLVMCreateEnumAttribute(context, kind, 0));
}

static bool is_entry(const char *name) {
  return strcmp(name, FLYI_TILE_SYMBOL) == 0 || strcmp(name, FLYI_SCORE_SYMBOL) == 0 ||
         strcmp(name, FLYI_SLOPE_SYMBOL) == 0;
}

/* The mask and the template come from two runs of clang with other flags: a function with richer features than its
 * caller's is not inlined, no-builtins and optnone stop optimisation, and the baseline's tuning keeps vectors
 * narrow. */
static void retarget(LLVMModuleRef module, flyi_isa isa) {
  static const char *const dropped[] = {"optnone", "noinline", "uwtable", "sspstrong", "ssp", "sspreq", "mustprogress"};
  static const char *const cleared[] = {"target-features",
                                        "tune-cpu",
                                        "no-builtins",
                                        "frame-pointer",
                                        "min-legal-vector-width",
                                        "stack-protector-buffer-size"};
  for (LLVMValueRef f = LLVMGetFirstFunction(module); f; f = LLVMGetNextFunction(f)) {
    if (LLVMIsDeclaration(f)) continue;
    for (size_t i = 0; i < sizeof dropped / sizeof *dropped; i++) remove_attribute(f, dropped[i]);
    for (size_t i = 0; i < sizeof cleared / sizeof *cleared; i++) set_text(f, cleared[i], NULL);
    set_text(f, "target-cpu", flyi_isa_name(isa));
    set_text(f, "prefer-vector-width", isa == FLYI_X86_64_V4 ? "512" : NULL);
    set_enum(f, "nounwind");
    bool entry = is_entry(LLVMGetValueName2(f, &(size_t){0}));
    LLVMSetLinkage(f, entry ? LLVMExternalLinkage : LLVMInternalLinkage);
    if (!entry) set_enum(f, "alwaysinline");
  }
  for (LLVMValueRef g = LLVMGetFirstGlobal(module); g; g = LLVMGetNextGlobal(g))
    if (!LLVMIsDeclaration(g)) LLVMSetLinkage(g, LLVMInternalLinkage);
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static fly_status run_passes(LLVMModuleRef module, const char *passes, LLVMTargetMachineRef machine, fly_error *error) {
  LLVMPassBuilderOptionsRef options = LLVMCreatePassBuilderOptions();
  LLVMErrorRef failed = LLVMRunPasses(module, passes, machine, options);
  LLVMDisposePassBuilderOptions(options);
  if (!failed) return FLY_OK;
  char *message = LLVMGetErrorMessage(failed); /* consumes the error */
  flyi_fail(error, FLY_ERROR_INTERNAL, "LLVM's passes: %s", message);
  LLVMDisposeErrorMessage(message);
  return FLY_ERROR_INTERNAL;
}

static LLVMModuleRef parse_bitcode(LLVMContextRef context, const char *bitcode, const char *end) {
  LLVMModuleRef module = NULL;
  LLVMMemoryBufferRef buffer = LLVMCreateMemoryBufferWithMemoryRange(bitcode, (size_t)(end - bitcode), "template",
                                                                     false);
  LLVMParseBitcodeInContext2(context, buffer, &module); /* on failure the module stays NULL */
  LLVMDisposeMemoryBuffer(buffer);
  return module;
}

/* The template; with the functions that a modifier may call. NULL: it cannot be read. */
static LLVMModuleRef parse_template(LLVMContextRef context, bool score) {
  if (!score) return parse_bitcode(context, flyi_tile_bitcode, flyi_tile_bitcode_end);
  LLVMModuleRef tile = parse_bitcode(context, flyi_score_bitcode, flyi_score_bitcode_end);
  LLVMModuleRef math = parse_bitcode(context, flyi_math_bitcode, flyi_math_bitcode_end);
  if (tile && math && !LLVMLinkModules2(tile, math)) return tile;
  if (!tile && math) LLVMDisposeModule(math); /* otherwise linking has consumed it */
  if (tile) LLVMDisposeModule(tile);
  return NULL;
}

/* Both modules in one, which *out holds; `module` is consumed. */
static fly_status join(LLVMModuleRef module, LLVMModuleRef *out, fly_error *error) {
  bool score = LLVMGetNamedFunction(module, "mask") == NULL;
  LLVMModuleRef template = parse_template(LLVMGetModuleContext(module), score);
  *out = NULL;
  if (!template) {
    LLVMDisposeModule(module);
    return flyi_fail(error, FLY_ERROR_INTERNAL, "the template cannot be read");
  }
  LLVMStripModuleDebugInfo(module);
  LLVMSetTarget(module, LLVMGetTarget(template));
  LLVMSetDataLayout(module, LLVMGetDataLayoutStr(template));
  bool failed = LLVMLinkModules2(template, module); /* consumes the mask's module */
  if (failed) {
    LLVMDisposeModule(template);
    return flyi_fail(error, FLY_ERROR_INTERNAL, "the mask cannot be linked with its template");
  }
  *out = template;
  return FLY_OK;
}

fly_status flyi_specialize(LLVMModuleRef module, const flyi_declarations *declarations, flyi_isa isa,
                           LLVMModuleRef *out, fly_error *error) {
  *out = NULL;
  joint s = {LLVMGetModuleContext(module), module, declarations};
  LLVMTargetMachineRef machine = flyi_target_machine(isa, error);
  if (!machine) {
    LLVMDisposeModule(module);
    return FLY_ERROR_INTERNAL;
  }
  bake(&s);
  fly_status status = run_passes(module, "function(lower-switch)", NULL, error);
  LLVMValueRef score = LLVMGetNamedFunction(module, "score");
  if (!status) status = flyi_straighten(score ? score : LLVMGetNamedFunction(module, "mask"), error);
  if (!status && score) status = flyi_differentiate(module, error);
  if (status) goto done;
  if ((status = join(module, &s.module, error))) goto done;
  if ((status = flyi_divide(s.module, error)) || (status = connect(&s, error))) goto done;
  if ((status = run_passes(s.module, "function(instsimplify)", NULL, error))) goto done; /* divisors that were baked */
  flyi_quotients(s.module);
  retarget(s.module, isa);
  LLVMTargetDataRef layout = LLVMCreateTargetDataLayout(machine);
  LLVMSetModuleDataLayout(s.module, layout);
  LLVMDisposeTargetData(layout);
  if ((status = run_passes(s.module, "default<O3>", machine, error))) goto done;
  *out = s.module;
  s.module = NULL; /* the caller's now */
done:
  if (status && s.module) LLVMDisposeModule(s.module);
  LLVMDisposeTargetMachine(machine);
  return status;
}
