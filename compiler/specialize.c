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

#include "math_calls.h"

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
    set_text(f, "target-cpu", flyi_processor(isa));
    set_text(f, "prefer-vector-width", flyi_isa_vectors(isa) == FLYI_X86_64_V4 ? "512" : NULL);
    set_enum(f, "nounwind");
    bool entry = is_entry(LLVMGetValueName2(f, &(size_t){0}));
    LLVMSetLinkage(f, entry ? LLVMExternalLinkage : LLVMInternalLinkage);
    if (!entry) set_enum(f, "alwaysinline");
  }
  for (LLVMValueRef g = LLVMGetFirstGlobal(module); g; g = LLVMGetNextGlobal(g))
    if (!LLVMIsDeclaration(g)) LLVMSetLinkage(g, LLVMInternalLinkage);
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

fly_status flyi_passes(LLVMModuleRef module, const char *passes, LLVMTargetMachineRef machine, fly_error *error) {
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

/* The template; with the functions that a modifier may call, and questions about one (question.c), which are masks.
 * NULL: it cannot be read. */
static LLVMModuleRef parse_template(LLVMContextRef context, bool score, bool calls) {
  LLVMModuleRef tile = score ? parse_bitcode(context, flyi_score_bitcode, flyi_score_bitcode_end)
                             : parse_bitcode(context, flyi_tile_bitcode, flyi_tile_bitcode_end);
  if (!calls) return tile;
  LLVMModuleRef math = parse_bitcode(context, flyi_math_bitcode, flyi_math_bitcode_end);
  if (tile && math && !LLVMLinkModules2(tile, math)) return tile;
  if (!tile && math) LLVMDisposeModule(math); /* otherwise linking has consumed it */
  if (tile) LLVMDisposeModule(tile);
  return NULL;
}

static bool calls_math(LLVMModuleRef module) {
  for (LLVMValueRef f = LLVMGetFirstFunction(module); f; f = LLVMGetNextFunction(f))
    if (strncmp(LLVMGetValueName2(f, &(size_t){0}), FLYI_MATH_PREFIX, strlen(FLYI_MATH_PREFIX)) == 0) return true;
  return false;
}

/* Both modules in one, which *out holds; `module` is consumed. */
static fly_status join(LLVMModuleRef module, LLVMModuleRef *out, fly_error *error) {
  bool score = LLVMGetNamedFunction(module, "mask") == NULL;
  LLVMModuleRef template = parse_template(LLVMGetModuleContext(module), score, score || calls_math(module));
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
  static const flyi_arguments first = {0}; /* of each function that divide.c makes */
  LLVMTargetMachineRef machine = flyi_target_machine(isa, error);
  if (!machine) {
    LLVMDisposeModule(module);
    return FLY_ERROR_INTERNAL;
  }
  flyi_bake(module, declarations);
  fly_status status = flyi_passes(module, "function(lower-switch)", NULL, error);
  LLVMValueRef score = LLVMGetNamedFunction(module, "score");
  if (!status) status = flyi_straighten(score ? score : LLVMGetNamedFunction(module, "mask"), error);
  if (!status && score) status = flyi_differentiate(module, error);
  if (status) goto done;
  if ((status = join(module, &module, error))) goto done;
  if ((status = flyi_divide(module, error))) goto done;
  flyi_separate_ranges(module);
  if ((status = flyi_connect(module, declarations, &first, error))) goto done;
  if ((status = flyi_passes(module, "function(instsimplify)", NULL, error))) goto done; /* divisors that were baked */
  flyi_quotients(module);
  retarget(module, isa);
  LLVMSetTarget(module, flyi_triple(isa)); /* masks and templates come as x86-64's: both are 64-bit, little-endian */
  LLVMTargetDataRef layout = LLVMCreateTargetDataLayout(machine);
  LLVMSetModuleDataLayout(module, layout);
  LLVMDisposeTargetData(layout);
  if ((status = flyi_passes(module, "default<O3>", machine, error))) goto done;
  *out = module;
  module = NULL; /* the caller's now */
done:
  if (status && module) LLVMDisposeModule(module);
  LLVMDisposeTargetMachine(machine);
  return status;
}
