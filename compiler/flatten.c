/* flatten.c: the mask as one function without calls, its scalars in registers.
 *
 * Input: guarded functions that call each other without recursion. Output: mask alone, its callees inlined. Locals
 * start at 0, so that no value is ever undefined. Only passes that draw no conclusion from an address run here:
 * addresses have no guards yet. */
#include <string.h>

#include "cfg.h"
#include "watch.h"

/* True where the first thing that happens to the local, in the entry block, sets all of it. */
static bool is_set_at_once(const flyi_verifier *v, LLVMValueRef local) {
  uint64_t bytes = flyi_type_bytes(v, LLVMGetAllocatedType(local));
  for (LLVMValueRef i = LLVMGetNextInstruction(local); i; i = LLVMGetNextInstruction(i)) {
    const char *name = flyi_intrinsic(i);
    int64_t size;
    if (LLVMIsAStoreInst(i) && LLVMGetOperand(i, 1) == local && LLVMGetOperand(i, 0) != local)
      return flyi_type_bytes(v, LLVMTypeOf(LLVMGetOperand(i, 0))) == bytes;
    if (flyi_starts(name, "llvm.mem") && LLVMGetOperand(i, 0) == local && LLVMGetOperand(i, 1) != local)
      return flyi_constant_int(LLVMGetOperand(i, 2), &size) && (uint64_t)size == bytes;
    for (int k = 0; k < LLVMGetNumOperands(i); k++)
      if (LLVMGetOperand(i, (unsigned)k) == local) return false;
  }
  return false;
}

static void clear_locals(flyi_verifier *v, LLVMValueRef function) {
  LLVMBasicBlockRef entry = LLVMGetEntryBasicBlock(function);
  for (EACH_INSTRUCTION_SAFE(local, next, entry)) {
    if (!LLVMIsAAllocaInst(local) || is_set_at_once(v, local)) continue;
    LLVMTypeRef type = LLVMGetAllocatedType(local);
    flyi_build_before(v, next);
    if (flyi_is_scalar(type) || LLVMGetTypeKind(type) == LLVMPointerTypeKind)
      LLVMBuildStore(v->builder, LLVMConstNull(type), local);
    else
      LLVMBuildMemSet(v->builder, local, LLVMConstNull(flyi_int_type(v, 8)),
                      LLVMConstInt(flyi_int_type(v, 64), flyi_type_bytes(v, type), false), LLVMGetAlignment(local));
  }
}

/* Clang's lists of what a linker must keep. */
static void drop_used_lists(flyi_verifier *v) {
  static const char *const lists[] = {"llvm.used", "llvm.compiler.used"};
  for (int i = 0; i < 2; i++) {
    LLVMValueRef list = LLVMGetNamedGlobal(v->module, lists[i]);
    if (list) LLVMDeleteGlobal(list);
  }
}

static void drop_other_functions(flyi_verifier *v) {
  for (LLVMValueRef f = LLVMGetFirstFunction(v->module), next; f; f = next) {
    next = LLVMGetNextFunction(f);
    if (f == v->mask || LLVMIsDeclaration(f)) continue;
    LLVMReplaceAllUsesWith(f, LLVMConstNull(LLVMTypeOf(f))); /* by other functions that go as well */
    LLVMDeleteFunction(f);
  }
}

static void inline_always(flyi_verifier *v, LLVMValueRef function) {
  static const char name[] = "alwaysinline";
  LLVMAttributeRef always = LLVMCreateEnumAttribute(v->context, LLVMGetEnumAttributeKindForName(name, sizeof name - 1),
                                                    0);
  LLVMSetLinkage(function, LLVMInternalLinkage);
  LLVMAddAttributeAtIndex(function, LLVMAttributeFunctionIndex, always);
}

/* Blocks that no path reaches, as of `if (0)`: the steps to come need not know of them. */
static fly_status drop_unreachable(flyi_verifier *v) {
  flyi_cfg cfg;
  fly_status status = flyi_cfg_build(v->mask, &cfg, v->error);
  if (status || cfg.count == (int)LLVMCountBasicBlocks(v->mask)) goto done;
  for (EACH_BLOCK(block, v->mask)) {
    LLVMValueRef end = LLVMGetBasicBlockTerminator(block);
    if (flyi_cfg_index(&cfg, block) >= 0) continue;
    for (unsigned i = 0; i < LLVMGetNumSuccessors(end); i++) {
      LLVMBasicBlockRef successor = LLVMGetSuccessor(end, i);
      if (flyi_cfg_index(&cfg, successor) >= 0) flyi_phis_redirect(v, successor, block, NULL);
    }
    for (EACH_INSTRUCTION_SAFE(instruction, next, block)) {
      if (LLVMGetTypeKind(LLVMTypeOf(instruction)) != LLVMVoidTypeKind)
        LLVMReplaceAllUsesWith(instruction, LLVMGetUndef(LLVMTypeOf(instruction)));
      if (instruction != end) LLVMInstructionEraseFromParent(instruction);
    }
    LLVMInstructionEraseFromParent(end);
  }
  for (LLVMBasicBlockRef block = LLVMGetFirstBasicBlock(v->mask), next; block; block = next) {
    next = LLVMGetNextBasicBlock(block);
    if (flyi_cfg_index(&cfg, block) < 0) LLVMDeleteBasicBlock(block);
  }
done:
  flyi_cfg_free(&cfg);
  return status;
}

fly_status flyi_flatten(flyi_verifier *v) {
  drop_used_lists(v);
  for (EACH_FUNCTION(function, v->module)) {
    if (LLVMIsDeclaration(function)) {
      if (!LLVMGetIntrinsicID(function) && !flyi_strip_function(function)) return flyi_no_memory(v->error);
      continue;
    }
    fly_status status = v->watch ? flyi_watch_function(v, function) : FLY_OK;
    if (status) return status;
    if (!flyi_guard(v, function)) return flyi_no_memory(v->error);
    clear_locals(v, function);
    if (function != v->mask) inline_always(v, function);
  }
  fly_status status = flyi_run_passes(v, "strip-nonlinetable-debuginfo,always-inline,function(mem2reg)");
  if (status) return status;
  drop_other_functions(v);
  return drop_unreachable(v);
}
