/* nvptx.c: joins a mask with a CUDA template, and emits PTX. Input: the symbolic module (flyi_verify) and a plan
 * (nvptx_plan.c). Output: PTX text whose entries are the plan's.
 *
 *     template ── link mask ── set constants ── inline ── connect what the mask reads ── O3 ── PTX
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

static fly_status set_constants(LLVMModuleRef module, const flyi_cuda_part *part, const flyi_cuda_traits *mask,
                                fly_error *error) {
  for (LLVMValueRef global = LLVMGetFirstGlobal(module); global; global = LLVMGetNextGlobal(global)) {
    const char *name = LLVMGetValueName2(global, &(size_t){0});
    if (!LLVMIsGlobalConstant(global) || !LLVMIsDeclaration(global)) continue;
    int i = 0, value = mask->mask_in_loop;
    if (strcmp(name, "mask_tokens") == 0) {
      value = mask->mask_tokens;
    } else if (strcmp(name, "mask_in_loop") != 0) {
      while (i < part->constant_count && strcmp(part->constants[i].name, name) != 0) i++;
      if (i == part->constant_count)
        return flyi_fail(error, FLY_ERROR_INTERNAL, "the CUDA template's constant %s has no value", name);
      value = part->constants[i].value;
    }
    LLVMSetInitializer(global, LLVMConstInt(LLVMGlobalGetValueType(global), (uint64_t)(int64_t)value, true));
    LLVMSetLinkage(global, LLVMInternalLinkage);
  }
  return FLY_OK;
}

/* A template with its constants; NULL: failed. */
static LLVMModuleRef parse(LLVMContextRef context, const flyi_cuda_part *part, const flyi_cuda_traits *mask,
                           fly_error *error) {
  LLVMModuleRef module = NULL;
  LLVMMemoryBufferRef buffer = LLVMCreateMemoryBufferWithMemoryRange(part->bitcode.data, part->bitcode.size, "template",
                                                                     false);
  LLVMParseBitcodeInContext2(context, buffer, &module); /* on failure it stays NULL */
  LLVMDisposeMemoryBuffer(buffer);
  if (!module) {
    flyi_fail(error, FLY_ERROR_INTERNAL, "a CUDA template cannot be read");
  } else if (set_constants(module, part, mask, error)) {
    LLVMDisposeModule(module);
    module = NULL;
  } else {
    share_definitions(module);
  }
  return module;
}

/* The templates of the plan and the mask, whose module is consumed. */
static fly_status join(LLVMModuleRef mask, const flyi_cuda_plan *plan, const flyi_cuda_traits *t, LLVMModuleRef *out,
                       fly_error *error) {
  LLVMModuleRef all = NULL;
  *out = NULL;
  bool failed = false;
  LLVMStripModuleDebugInfo(mask);
  for (int i = 0; i < plan->part_count && !failed; i++) {
    LLVMModuleRef part = parse(LLVMGetModuleContext(mask), &plan->parts[i], t, error);
    if (!part) {
      LLVMDisposeModule(mask);
      if (all) LLVMDisposeModule(all);
      return FLY_ERROR_INTERNAL;
    }
    if (all)
      failed = LLVMLinkModules2(all, part); /* consumes the part */
    else
      all = part;
  }
  LLVMSetTarget(mask, LLVMGetTarget(all));
  LLVMSetDataLayout(mask, LLVMGetDataLayoutStr(all));
  failed = LLVMLinkModules2(all, mask) || failed; /* consumes the mask's module */
  if (failed) {
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
static void describe_kernel(LLVMValueRef kernel, const flyi_cuda_entry *entry) {
  LLVMContextRef context = LLVMGetModuleContext(LLVMGetGlobalParent(kernel));
  unsigned byval = LLVMGetEnumAttributeKindForName("byval", 5);
  LLVMTypeRef type = LLVMArrayType2(LLVMInt64TypeInContext(context), (uint64_t)entry->argument_bytes / 8);
  char threads[16];
  snprintf(threads, sizeof threads, "%d", entry->threads);
  LLVMRemoveEnumAttributeAtIndex(kernel, 1, byval);
  LLVMAddAttributeAtIndex(kernel, 1, LLVMCreateTypeAttribute(context, byval, type));
  annotate(kernel, "maxntidx", entry->threads);
  add_text(kernel, "nvvm.maxntid", threads);
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
      describe_kernel(f, entry);
    } else if (is_kernel(f)) {
      LLVMDeleteFunction(f);
    } else {
      LLVMAddAttributeAtIndex(f, LLVMAttributeFunctionIndex, LLVMCreateEnumAttribute(context, inlined, 0));
      if (strcmp(LLVMGetValueName2(f, &(size_t){0}), "mask") == 0) LLVMSetLinkage(f, LLVMInternalLinkage);
    }
  }
}

static void internalize(LLVMModuleRef module) {
  for (LLVMValueRef f = LLVMGetFirstFunction(module); f; f = LLVMGetNextFunction(f))
    if (!LLVMIsDeclaration(f) && !is_kernel(f)) LLVMSetLinkage(f, LLVMInternalLinkage);
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static fly_status optimize(LLVMModuleRef module, const flyi_declarations *declarations, LLVMTargetMachineRef machine,
                           fly_error *error) {
  static const flyi_arguments where = {sizeof(flyi_cuda_call), GLOBAL_SPACE};
  LLVMTargetDataRef layout = LLVMCreateTargetDataLayout(machine);
  LLVMSetModuleDataLayout(module, layout);
  LLVMDisposeTargetData(layout);
  fly_status status = flyi_passes(module, "always-inline", machine, error);
  if (!status) status = flyi_cuda_place_variables(module, error);
  if (!status) status = flyi_connect(module, declarations, &where, error);
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

fly_status flyi_nvptx(LLVMModuleRef module, const flyi_declarations *declarations, const flyi_cuda_plan *plan,
                      const char *target, fly_emit what, flyi_bytes *out, fly_error *error) {
  *out = (flyi_bytes){0};
  LLVMTargetMachineRef machine = machine_of(target, error);
  fly_status status = machine ? FLY_OK : FLY_ERROR_UNSUPPORTED;
  if (!status) {
    flyi_bake(module, declarations);
    status = flyi_passes(module, "function(lower-switch)", NULL, error);
  }
  LLVMValueRef mask = LLVMGetNamedFunction(module, "mask");
  if (!status) status = flyi_straighten(mask, error);
  if (status) goto done;
  const flyi_cuda_traits t = flyi_cuda_prepare(mask, plan->set_tokens);
  if ((status = join(module, plan, &t, &module, error))) goto done;
  prepare_functions(module, plan);
  if ((status = optimize(module, declarations, machine, error))) goto done;
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
  if (machine) LLVMDisposeTargetMachine(machine);
  return status;
}
