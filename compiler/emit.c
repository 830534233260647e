/* emit.c: machine code from a module. Input: an optimised module. Output: a relocatable object, or assembly text. */
#include <pthread.h>
#include <string.h>

#include "compiler.h"

/* What is compiled for, when it is first asked for: each target's tables take time to register. */
static void initialize_x86(void) {
  LLVMInitializeX86TargetInfo();
  LLVMInitializeX86Target();
  LLVMInitializeX86TargetMC();
  LLVMInitializeX86AsmPrinter();
}

static void initialize_aarch64(void) {
  LLVMInitializeAArch64TargetInfo();
  LLVMInitializeAArch64Target();
  LLVMInitializeAArch64TargetMC();
  LLVMInitializeAArch64AsmPrinter();
}

static void initialize(flyi_isa isa) {
  static pthread_once_t x86 = PTHREAD_ONCE_INIT, aarch64 = PTHREAD_ONCE_INIT;
  if (isa == FLYI_AARCH64)
    pthread_once(&aarch64, initialize_aarch64);
  else
    pthread_once(&x86, initialize_x86);
}

const char *flyi_triple(flyi_isa isa) {
  return isa == FLYI_AARCH64 ? "aarch64-unknown-linux-gnu" : "x86_64-pc-linux-gnu";
}

const char *flyi_processor(flyi_isa isa) {
  return isa == FLYI_AARCH64 ? "generic" : flyi_isa_name(flyi_isa_vectors(isa));
}

/* Position-independent code of the small model: it runs wherever a loader puts it, and refers to itself only. */
LLVMTargetMachineRef flyi_target_machine(flyi_isa isa, fly_error *error) {
  LLVMTargetRef target;
  char *message = NULL;
  initialize(isa);
  if (LLVMGetTargetFromTriple(flyi_triple(isa), &target, &message)) {
    flyi_fail(error, FLY_ERROR_INTERNAL, "LLVM: %s", message);
    LLVMDisposeMessage(message);
    return NULL;
  }
  LLVMTargetMachineRef machine = LLVMCreateTargetMachine(target, flyi_triple(isa), flyi_processor(isa), "",
                                                         LLVMCodeGenLevelDefault, LLVMRelocPIC, LLVMCodeModelSmall);
  if (!machine) flyi_fail(error, FLY_ERROR_INTERNAL, "LLVM has no target machine for %s", flyi_isa_name(isa));
  return machine;
}

fly_status flyi_emit(LLVMModuleRef module, LLVMTargetMachineRef machine, bool assembly, flyi_bytes *out,
                     fly_error *error) {
  LLVMMemoryBufferRef buffer = NULL;
  char *message = NULL;
  *out = (flyi_bytes){0};
  if (LLVMTargetMachineEmitToMemoryBuffer(machine, module, assembly ? LLVMAssemblyFile : LLVMObjectFile, &message,
                                          &buffer)) {
    flyi_fail(error, FLY_ERROR_INTERNAL, "LLVM cannot emit the mask: %s", message);
    LLVMDisposeMessage(message);
    return FLY_ERROR_INTERNAL;
  }
  bool good = flyi_bytes_add(out, LLVMGetBufferStart(buffer), LLVMGetBufferSize(buffer));
  LLVMDisposeMemoryBuffer(buffer);
  return good ? FLY_OK : flyi_no_memory(error);
}
