/* finish.c: the last steps to the symbolic form.
 *
 * Input: the mask, guarded and flat, still in the names of the source. Output: the globals of compiler.h in place of
 * the source's, no undefined values, nothing that is not used; or a refusal, should anything be left that the form
 * does not have. */
#include <stdio.h>
#include <string.h>

#include "verify.h"

static const char *name_of(LLVMValueRef value) {
  size_t size;
  return LLVMGetValueName2(value, &size);
}

LLVMValueRef flyi_symbol(const flyi_verifier *v, const char *prefix, const flyi_global *global, LLVMTypeRef type) {
  char name[128];
  const char *declared = global->kind == FLYI_PARAMETER ? v->declarations->parameters[global->index].name
                                                        : v->declarations->buffers[global->index].name;
  if (global->kind == FLYI_DIMENSION)
    snprintf(name, sizeof name, "%s.%s.%d", prefix, declared, global->dimension);
  else
    snprintf(name, sizeof name, "%s.%s", prefix, declared);
  LLVMValueRef symbol = LLVMGetNamedGlobal(v->module, name);
  if (symbol) return symbol;
  symbol = LLVMAddGlobal(v->module, type, name);
  LLVMSetGlobalConstant(symbol, true);
  return symbol;
}

/* True where an instruction uses it, perhaps through constants. Dead constants, as of clang's lists, do not count. */
static bool is_used(LLVMValueRef value) {
  for (LLVMUseRef use = LLVMGetFirstUse(value); use; use = LLVMGetNextUse(use)) {
    LLVMValueRef user = LLVMGetUser(use);
    if (LLVMIsAInstruction(user) || is_used(user)) return true;
  }
  return false;
}

static void delete_global(LLVMValueRef global) {
  LLVMReplaceAllUsesWith(global, LLVMConstNull(LLVMTypeOf(global)));
  LLVMDeleteGlobal(global);
}

/* The source's parameters and dimensions, in the instructions that load them, become the symbols: there alone, not in
 * dead constants. */
static void rename_global(flyi_verifier *v, const flyi_global *global) {
  LLVMValueRef symbol = flyi_symbol(v, global->kind == FLYI_PARAMETER ? "fly.param" : "fly.dim", global, global->type);
  for (LLVMUseRef use = LLVMGetFirstUse(global->value), next; use; use = next) {
    LLVMValueRef user = LLVMGetUser(use);
    next = LLVMGetNextUse(use);
    if (LLVMIsALoadInst(user)) LLVMSetOperand(user, 0, symbol);
  }
}

static void rename_globals(flyi_verifier *v) {
  for (int i = 0; i < v->global_count; i++) {
    flyi_global *global = &v->globals[i];
    if (global->kind != FLYI_BUFFER && is_used(global->value)) rename_global(v, global);
    delete_global(global->value);
  }
}

/* Globals and declarations that the mask does not use; what it uses becomes private to the module. */
static void drop_unused(flyi_verifier *v) {
  for (LLVMValueRef g = LLVMGetFirstGlobal(v->module), next; g; g = next) {
    next = LLVMGetNextGlobal(g);
    if (!is_used(g))
      delete_global(g);
    else if (!LLVMIsDeclaration(g)) {
      LLVMSetLinkage(g, LLVMPrivateLinkage);
      LLVMSetSection(g, "");
    }
  }
  for (LLVMValueRef f = LLVMGetFirstFunction(v->module), next; f; f = next) {
    next = LLVMGetNextFunction(f);
    if (f != v->mask && !LLVMGetFirstUse(f)) LLVMDeleteFunction(f);
  }
}

static void add_attribute(flyi_verifier *v, LLVMValueRef function, const char *name, uint64_t value) {
  unsigned kind = LLVMGetEnumAttributeKindForName(name, strlen(name));
  LLVMAddAttributeAtIndex(function, LLVMAttributeFunctionIndex, LLVMCreateEnumAttribute(v->context, kind, value));
}

/* fly_token_q and its like depend on their arguments alone, and can be called early. */
static void describe_calls(flyi_verifier *v) {
  static const char *const attributes[] = {"memory", "nounwind", "willreturn", "speculatable"}; /* memory(none) is 0 */
  for (EACH_FUNCTION(function, v->module))
    if (flyi_starts(name_of(function), "fly_"))
      for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++) add_attribute(v, function, attributes[i], 0);
}

/* True for an access of the symbolic form: to a local, to a table, to the data of a buffer, or
 * to a symbol as a whole. */
static bool is_known_access(LLVMValueRef access) {
  LLVMValueRef pointer = LLVMGetOperand(access, LLVMIsAStoreInst(access) ? 1 : 0), root = pointer;
  while (flyi_is_gep(root)) root = LLVMGetOperand(root, 0);
  bool loads_pointer = LLVMGetTypeKind(LLVMTypeOf(access)) == LLVMPointerTypeKind;
  if (LLVMIsALoadInst(root)) {
    LLVMValueRef symbol = LLVMGetOperand(root, 0);
    return LLVMIsALoadInst(access) && !loads_pointer && LLVMIsAGlobalVariable(symbol) &&
           flyi_starts(name_of(symbol), "fly.data.");
  }
  if (LLVMIsAAllocaInst(root)) return !loads_pointer;
  if (!LLVMIsALoadInst(access) || !LLVMIsAGlobalVariable(root)) return false;
  return !LLVMIsDeclaration(root) || (root == pointer && loads_pointer == flyi_starts(name_of(root), "fly.data."));
}

/* What must not be left. The steps before should have seen to it: these are the last line of defence. */
static fly_status check(flyi_verifier *v, LLVMValueRef instruction) {
  if (LLVMIsACallInst(instruction)) {
    const char *name = name_of(LLVMGetCalledValue(instruction));
    if (!flyi_starts(name, "llvm.") && !flyi_starts(name, "fly_"))
      return flyi_refuse(v, instruction, "the call cannot be inlined");
  }
  if ((LLVMIsALoadInst(instruction) || LLVMIsAStoreInst(instruction)) && !is_known_access(instruction))
    return flyi_refuse(v, instruction, "a mask cannot access memory through such a pointer");
  for (int i = 0; i < LLVMGetNumOperands(instruction); i++) {
    LLVMValueRef operand = LLVMGetOperand(instruction, (unsigned)i);
    if (!LLVMIsUndef(operand) || (i == 0 && LLVMIsAInsertValueInst(instruction))) continue; /* also true of poison */
    if (LLVMIsPoison(operand))
      return flyi_refuse(v, instruction, "the value is undefined: a constant index outside of an array, or the like");
    LLVMSetOperand(instruction, (unsigned)i, LLVMConstNull(LLVMTypeOf(operand)));
  }
  flyi_strip_metadata(v, instruction);
  return FLY_OK;
}

fly_status flyi_finish(flyi_verifier *v) {
  fly_status status = flyi_run_passes(v, "function(dce)");
  if (status) return status;
  rename_globals(v);
  drop_unused(v);
  describe_calls(v);
  add_attribute(v, v->mask, "nounwind", 0);
  LLVMSetLinkage(v->mask, LLVMExternalLinkage);
  for (EACH_BLOCK(block, v->mask))
    for (EACH_INSTRUCTION(instruction, block))
      if ((status = check(v, instruction))) return status;
  return FLY_OK;
}
