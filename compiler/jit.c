/* jit.c: an object file becomes callable in this process, by LLVM's ORC. One LLJIT a mask: it costs 0.4 ms, shares
 * nothing with other masks, and goes with everything in it. runtime/loader.c does the same without LLVM. */
#include <llvm-c/LLJIT.h>

#include "compiler.h"

static fly_status say(fly_error *error, LLVMErrorRef failed) {
  char *message = LLVMGetErrorMessage(failed); /* consumes the error */
  flyi_fail(error, FLY_ERROR_INTERNAL, "LLVM's ORC: %s", message);
  LLVMDisposeErrorMessage(message);
  return FLY_ERROR_INTERNAL;
}

/* Errors also come back from the calls that caused them: without this, ORC prints them. */
static void ignore(void *context, LLVMErrorRef failed) {
  (void)context;
  LLVMConsumeError(failed);
}

static void unload(flyi_code *code) {
  LLVMErrorRef failed = LLVMOrcDisposeLLJIT(code->handle);
  if (failed) LLVMConsumeError(failed);
  *code = (flyi_code){0};
}

static fly_status create(LLVMOrcLLJITRef *out, fly_error *error) {
  *out = NULL;
  /* Nothing is compiled here, only linked: any machine for this triple will do. */
  LLVMTargetMachineRef machine = flyi_target_machine(FLYI_ISA_FIRST, error);
  if (!machine) return FLY_ERROR_INTERNAL;
  LLVMOrcLLJITBuilderRef builder = LLVMOrcCreateLLJITBuilder();
  LLVMOrcLLJITBuilderSetJITTargetMachineBuilder(builder,
                                                LLVMOrcJITTargetMachineBuilderCreateFromTargetMachine(machine));
  LLVMErrorRef failed = LLVMOrcCreateLLJIT(out, builder); /* consumes the builder, which consumed the machine */
  if (failed) return say(error, failed);
  LLVMOrcExecutionSessionSetErrorReporter(LLVMOrcLLJITGetExecutionSession(*out), ignore, NULL);
  return FLY_OK;
}

static LLVMErrorRef find(LLVMOrcLLJITRef jit, int entry, flyi_code *code) {
  LLVMOrcExecutorAddress address = 0;
  LLVMErrorRef failed = LLVMOrcLLJITLookup(jit, &address, flyi_entry_names[entry]);
  if (!failed) flyi_code_enter(code, entry, (void *)(uintptr_t)address);
  return failed;
}

/* A mask's entry, or both of a modifier. */
static LLVMErrorRef find_entries(LLVMOrcLLJITRef jit, flyi_code *code) {
  LLVMErrorRef failed = find(jit, FLYI_ENTRY_TILE, code);
  if (!failed) return failed;
  LLVMConsumeError(failed);
  failed = find(jit, FLYI_ENTRY_SCORE, code);
  return failed ? failed : find(jit, FLYI_ENTRY_SLOPE, code);
}

fly_status flyi_jit_load(flyi_section object, flyi_code *out, fly_error *error) {
  LLVMOrcLLJITRef jit;
  *out = (flyi_code){0};
  fly_status status = create(&jit, error);
  if (status) return status;
  flyi_code code = {.handle = jit, .size = object.size, .unload = unload};
  LLVMMemoryBufferRef buffer = LLVMCreateMemoryBufferWithMemoryRangeCopy(object.data, object.size, "mask");
  LLVMErrorRef failed = LLVMOrcLLJITAddObjectFile(jit, LLVMOrcLLJITGetMainJITDylib(jit), buffer); /* consumes it */
  if (!failed) failed = find_entries(jit, &code);
  if (failed) {
    unload(&code);
    return say(error, failed);
  }
  *out = code;
  return FLY_OK;
}
