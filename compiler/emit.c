/* emit.c: machine code from a module. Input: an optimised module. Output: a relocatable object, or assembly text. */
#include <pthread.h>
#include <string.h>

#include "compiler.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Only the targets that masks are compiled for: each one's tables take time to register. */
static void initialize(void) {
  LLVMInitializeX86TargetInfo();
  LLVMInitializeX86Target();
  LLVMInitializeX86TargetMC();
  LLVMInitializeX86AsmPrinter();
}

static const char triple[] = "x86_64-pc-linux-gnu";

/* Position-independent code of the small model: it runs wherever a loader puts it, and refers to itself only. */
LLVMTargetMachineRef flyi_target_machine(flyi_isa isa, fly_error *error) {
  LLVMTargetRef target;
  char *message = NULL;
  pthread_once(&once, initialize);
  if (LLVMGetTargetFromTriple(triple, &target, &message)) {
    flyi_fail(error, FLY_ERROR_INTERNAL, "LLVM: %s", message);
    LLVMDisposeMessage(message);
    return NULL;
  }
  LLVMTargetMachineRef machine = LLVMCreateTargetMachine(target, triple, flyi_isa_name(flyi_isa_vectors(isa)), "",
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
