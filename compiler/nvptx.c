/* nvptx.c: joins a mask, and perhaps a score modifier, with a CUDA template, and emits PTX. Input: the symbolic modules
 * (flyi_verify) and a plan (nvptx_plan.c). Output: PTX text whose entries are the plan's.
 *
 *     template ── link mask, modifier ── set constants ── inline ── connect what they read ── O3 ── PTX
 *
 * Everything is inlined before the mask's globals are connected: they are then loads in a kernel itself, whose argument
 * they become parts of. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <llvm-c/BitReader.h>
#include <llvm-c/DebugInfo.h>
#include <llvm-c/Linker.h>

#include "compiler.h"

static const char triple[] = "nvptx64-nvidia-cuda";
enum { GLOBAL_SPACE = 1 };

/* ---- target ------------------------------------------------------------------------------------------------------ */

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void initialize(void) {
  LLVMInitializeNVPTXTargetInfo();
  LLVMInitializeNVPTXTarget();
  LLVMInitializeNVPTXTargetMC();
  LLVMInitializeNVPTXAsmPrinter();
}

static LLVMTargetMachineRef machine_of(const char *target, fly_error *error) {
  LLVMTargetRef found;
  char *message = NULL, features[16];
  pthread_once(&once, initialize);
  if (LLVMGetTargetFromTriple(triple, &found, &message)) {
    flyi_fail(error, FLY_ERROR_UNSUPPORTED, "this LLVM does not compile for NVIDIA's devices: %s", message);
    LLVMDisposeMessage(message);
    return NULL;
  }
  snprintf(features, sizeof features, "+ptx%d", flyi_cuda_ptx_version(target));
  LLVMTargetMachineRef machine = LLVMCreateTargetMachine(found, triple, target, features, LLVMCodeGenLevelAggressive,
                                                         LLVMRelocDefault, LLVMCodeModelDefault);
  if (!machine) flyi_fail(error, FLY_ERROR_INTERNAL, "LLVM has no target machine for %s", target);
  return machine;
}

/* ---- the two modules in one -------------------------------------------------------------------------------------- */

/* What two templates of one plan both define is the same. */
static void share_definitions(LLVMModuleRef module) {
  for (LLVMValueRef f = LLVMGetFirstFunction(module); f; f = LLVMGetNextFunction(f))
    if (!LLVMIsDeclaration(f) && strncmp(LLVMGetValueName2(f, &(size_t){0}), "flyi_", 5) == 0)
      LLVMSetLinkage(f, LLVMWeakODRLinkage);
}

/* Constants that the sources decide, and not the plan. */
typedef struct traits {
  flyi_cuda_traits mask, score;
  bool modified;
} traits;

/* The value of a template's constant; false: it is none of them. */
static bool value_of(const char *name, const flyi_cuda_part *part, const traits *t, int *value) {
  const struct {
    const char *name;
    int value;
  } decided[] = {{"mask_in_loop", t->mask.in_loop},
                 {"mask_tokens", t->mask.tokens},
                 {"modified", t->modified},
                 {"modifier_in_loop", t->score.in_loop},
                 {"modifier_tokens", t->score.tokens}};
  for (size_t i = 0; i < sizeof decided / sizeof *decided; i++)
    if (strcmp(decided[i].name, name) == 0) return *value = decided[i].value, true;
  for (int i = 0; i < part->constant_count; i++)
    if (strcmp(part->constants[i].name, name) == 0) return *value = part->constants[i].value, true;
  return false;
}

static fly_status set_constants(LLVMModuleRef module, const flyi_cuda_part *part, const traits *t, fly_error *error) {
  for (LLVMValueRef global = LLVMGetFirstGlobal(module); global; global = LLVMGetNextGlobal(global)) {
    const char *name = LLVMGetValueName2(global, &(size_t){0});
    if (!LLVMIsGlobalConstant(global) || !LLVMIsDeclaration(global)) continue;
    int value;
    if (!value_of(name, part, t, &value))
      return flyi_fail(error, FLY_ERROR_INTERNAL, "the CUDA template's constant %s has no value", name);
    LLVMSetInitializer(global, LLVMConstInt(LLVMGlobalGetValueType(global), (uint64_t)(int64_t)value, true));
    LLVMSetLinkage(global, LLVMInternalLinkage);
  }
  return FLY_OK;
}

/* A template with its constants; NULL: failed. */
static LLVMModuleRef parse(LLVMContextRef context, const flyi_cuda_part *part, const traits *t, fly_error *error) {
  LLVMModuleRef module = NULL;
  LLVMMemoryBufferRef buffer = LLVMCreateMemoryBufferWithMemoryRange(part->bitcode.data, part->bitcode.size, "template",
                                                                     false);
  LLVMParseBitcodeInContext2(context, buffer, &module); /* on failure it stays NULL */
  LLVMDisposeMemoryBuffer(buffer);
  if (!module) {
    flyi_fail(error, FLY_ERROR_INTERNAL, "a CUDA template cannot be read");
  } else if (set_constants(module, part, t, error)) {
    LLVMDisposeModule(module);
    module = NULL;
  } else {
    share_definitions(module);
  }
  return module;
}

/* Links a symbolic module to the templates. */
static bool add(LLVMModuleRef all, flyi_symbolic *source) {
  LLVMModuleRef module = source->module;
  if (!module) return true;
  LLVMStripModuleDebugInfo(module);
  LLVMSetTarget(module, LLVMGetTarget(all));
  LLVMSetDataLayout(module, LLVMGetDataLayoutStr(all));
  source->module = NULL; /* consumed */
  return !LLVMLinkModules2(all, module);
}

/* The templates of the plan, the mask and the modifier, whose modules are consumed where it succeeds. */
static fly_status join(flyi_symbolic *mask, flyi_symbolic *score, const flyi_cuda_plan *plan, const traits *t,
                       LLVMModuleRef *out, fly_error *error) {
  LLVMModuleRef all = NULL;
  *out = NULL;
  bool linked = true;
  for (int i = 0; i < plan->part_count && linked; i++) {
    LLVMModuleRef part = parse(LLVMGetModuleContext(mask->module), &plan->parts[i], t, error);
    if (!part) {
      if (all) LLVMDisposeModule(all);
      return FLY_ERROR_INTERNAL;
    }
    if (all)
      linked = !LLVMLinkModules2(all, part); /* consumes the part */
    else
      all = part;
  }
  if (!linked || !add(all, mask) || !add(all, score)) {
    LLVMDisposeModule(all);
    return flyi_fail(error, FLY_ERROR_INTERNAL, "the mask cannot be linked with its CUDA templates");
  }
  *out = all;
  return FLY_OK;
}

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

static const flyi_cuda_entry *entry_of(const flyi_cuda_plan *plan, LLVMValueRef function) {
  const char *name = LLVMGetValueName2(function, &(size_t){0});
  for (int i = 0; i < plan->entry_count; i++)
    if (strcmp(plan->entries[i].name, name) == 0) return &plan->entries[i];
  return NULL;
}

static void annotate(LLVMValueRef kernel, const char *what, int value) {
  LLVMModuleRef module = LLVMGetGlobalParent(kernel);
  LLVMContextRef context = LLVMGetModuleContext(module);
  LLVMValueRef number = LLVMConstInt(LLVMInt32TypeInContext(context), (uint64_t)value, false);
  LLVMMetadataRef parts[] = {LLVMValueAsMetadata(kernel), LLVMMDStringInContext2(context, what, strlen(what)),
                             LLVMValueAsMetadata(number)};
  LLVMAddNamedMetadataOperand(module, "nvvm.annotations",
                              LLVMMetadataAsValue(context, LLVMMDNodeInContext2(context, parts, 3)));
}

static void add_text(LLVMValueRef function, const char *name, const char *value) {
  LLVMContextRef context = LLVMGetModuleContext(LLVMGetGlobalParent(function));
  LLVMAddAttributeAtIndex(
      function, LLVMAttributeFunctionIndex,
      LLVMCreateStringAttribute(context, name, (unsigned)strlen(name), value, (unsigned)strlen(value)));
}

/* The argument is as long as this mask needs; so many threads a block, which LLVM 19 reads as an annotation, later ones
 * as an attribute. */
static void describe_kernel(LLVMValueRef kernel, const flyi_cuda_entry *entry, bool all_registers) {
  LLVMContextRef context = LLVMGetModuleContext(LLVMGetGlobalParent(kernel));
  unsigned byval = LLVMGetEnumAttributeKindForName("byval", 5);
  LLVMTypeRef type = LLVMArrayType2(LLVMInt64TypeInContext(context), (uint64_t)entry->argument_bytes / 8);
  char threads[16];
  snprintf(threads, sizeof threads, "%d", entry->threads);
  LLVMRemoveEnumAttributeAtIndex(kernel, 1, byval);
  LLVMAddAttributeAtIndex(kernel, 1, LLVMCreateTypeAttribute(context, byval, type));
  annotate(kernel, "maxntidx", entry->threads);
  add_text(kernel, "nvvm.maxntid", threads);
  if (!all_registers) return;
  annotate(kernel, "minctasm", 1);
  add_text(kernel, "nvvm.minctasm", "1");
}

/* Kernels are the template's exported functions that receive a struct by value. */
static bool is_kernel(LLVMValueRef function) {
  unsigned byval = LLVMGetEnumAttributeKindForName("byval", 5);
  return LLVMGetLinkage(function) == LLVMExternalLinkage && LLVMCountParams(function) == 1 &&
         LLVMGetEnumAttributeAtIndex(function, 1, byval);
}

/* Kernels that are not wanted go; all other functions are inlined into those that are. */
static void prepare_functions(LLVMModuleRef module, const flyi_cuda_plan *plan) {
  static const char *const enums[] = {"optnone", "noinline", "mustprogress", "uwtable"};
  static const char *const texts[] = {"no-builtins", "target-cpu", "target-features", "tune-cpu", "frame-pointer"};
  LLVMContextRef context = LLVMGetModuleContext(module);
  unsigned inlined = LLVMGetEnumAttributeKindForName("alwaysinline", 12);
  LLVMValueRef next;
  for (LLVMValueRef f = LLVMGetFirstFunction(module); f; f = next) {
    next = LLVMGetNextFunction(f);
    if (LLVMIsDeclaration(f)) continue;
    for (size_t i = 0; i < sizeof enums / sizeof *enums; i++)
      LLVMRemoveEnumAttributeAtIndex(f, LLVMAttributeFunctionIndex,
                                     LLVMGetEnumAttributeKindForName(enums[i], strlen(enums[i])));
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
      LLVMRemoveStringAttributeAtIndex(f, LLVMAttributeFunctionIndex, texts[i], (unsigned)strlen(texts[i]));
    const flyi_cuda_entry *entry = entry_of(plan, f);
    if (entry) {
      describe_kernel(f, entry, plan->all_registers);
    } else if (is_kernel(f)) {
      LLVMDeleteFunction(f);
    } else {
      LLVMAddAttributeAtIndex(f, LLVMAttributeFunctionIndex, LLVMCreateEnumAttribute(context, inlined, 0));
      if (strncmp(LLVMGetValueName2(f, &(size_t){0}), "flyi_", 5) != 0) /* those are called later on */
        LLVMSetLinkage(f, LLVMInternalLinkage);
    }
  }
}

static void internalize(LLVMModuleRef module) {
  for (LLVMValueRef f = LLVMGetFirstFunction(module); f; f = LLVMGetNextFunction(f))
    if (!LLVMIsDeclaration(f) && !is_kernel(f)) LLVMSetLinkage(f, LLVMInternalLinkage);
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static fly_status optimize(LLVMModuleRef module, const flyi_declarations *mask, const flyi_declarations *score,
                           LLVMTargetMachineRef machine, fly_error *error) {
  const flyi_arguments where = {.offset = sizeof(flyi_cuda_call), .data_space = GLOBAL_SPACE};
  flyi_arguments behind = where; /* the modifier's slots */
  behind.prefix = FLYI_SCORE_PREFIX;
  behind.first_slot = mask->parameter_count + mask->buffer_count * FLYI_BUFFER_SLOTS;
  LLVMTargetDataRef layout = LLVMCreateTargetDataLayout(machine);
  LLVMSetModuleDataLayout(module, layout);
  LLVMDisposeTargetData(layout);
  fly_status status = flyi_passes(module, "always-inline", machine, error);
  if (!status) status = flyi_cuda_place_variables(module, error);
  if (!status) status = flyi_connect(module, mask, &where, error);
  if (!status && score) status = flyi_connect(module, score, &behind, error);
  if (status) return status;
  internalize(module);
  return flyi_passes(module, "default<O3>", machine, error);
}

/* What a launch must ask for, for readers of the text. */
static fly_status describe_entries(const flyi_cuda_plan *plan, flyi_bytes *out, fly_error *error) {
  for (int i = 0; i < plan->entry_count; i++) {
    const flyi_cuda_entry *e = &plan->entries[i];
    char line[160];
    int length = snprintf(line, sizeof line, "// %s: %d threads, %d bytes of shared memory, tiles %d x %d\n", e->name,
                          e->threads, e->shared_bytes, e->outer, e->inner);
    if (!flyi_bytes_add(out, line, (size_t)length)) return flyi_no_memory(error);
  }
  return FLY_OK;
}

/* Both sources, ready to be joined. */
static fly_status prepare(const flyi_symbolic *mask, const flyi_symbolic *score, const flyi_cuda_plan *plan, traits *t,
                          fly_error *error) {
  *t = (traits){.modified = score->module != NULL};
  flyi_bake(mask->module, mask->declarations);
  fly_status status = flyi_passes(mask->module, "function(lower-switch)", NULL, error);
  LLVMValueRef function = LLVMGetNamedFunction(mask->module, "mask");
  if (!status) status = flyi_straighten(function, error);
  if (status) return status;
  t->mask = flyi_cuda_prepare(function, plan->set_tokens);
  return score->module ? flyi_cuda_prepare_score(score, plan, &t->score, error) : FLY_OK;
}

fly_status flyi_nvptx(flyi_symbolic mask, flyi_symbolic score, const flyi_cuda_plan *plan, const char *target,
                      fly_emit what, flyi_bytes *out, fly_error *error) {
  LLVMModuleRef module = NULL;
  traits t;
  *out = (flyi_bytes){0};
  const flyi_declarations *modifier = score.module ? score.declarations : NULL;
  LLVMTargetMachineRef machine = machine_of(target, error);
  fly_status status = machine ? FLY_OK : FLY_ERROR_UNSUPPORTED;
  if (status || (status = prepare(&mask, &score, plan, &t, error)) ||
      (status = join(&mask, &score, plan, &t, &module, error)))
    goto done;
  prepare_functions(module, plan);
  if ((status = optimize(module, mask.declarations, modifier, machine, error))) goto done;
  if (what == FLY_EMIT_LL) {
    char *text = LLVMPrintModuleToString(module);
    if (!text || !flyi_bytes_add(out, text, strlen(text))) status = flyi_no_memory(error);
    LLVMDisposeMessage(text);
  } else {
    status = flyi_emit(module, machine, true, out, error);
    if (!status) status = describe_entries(plan, out, error);
  }
  if (!status && !flyi_bytes_add(out, "", 1)) status = flyi_no_memory(error);
done:
  if (status) flyi_bytes_free(out);
  if (module) LLVMDisposeModule(module);
  if (mask.module) LLVMDisposeModule(mask.module);
  if (score.module) LLVMDisposeModule(score.module);
  if (machine) LLVMDisposeTargetMachine(machine);
  return status;
}
