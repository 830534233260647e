/* nvptx_score.c: makes a score modifier ready to be inlined into a CUDA kernel. Input: the symbolic module. Output: the
 * same module with the modifier, or what returns its slope too, under the name by which templates call it
 * (cuda_score.h), joined with the functions of score_math.c: a device has no others. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <llvm-c/BitReader.h>
#include <llvm-c/DebugInfo.h>
#include <llvm-c/Linker.h>

#include "compiler.h"

/* The globals of the mask and of the modifier may have equal names: "fly.param.x" becomes "score.param.x". */
static fly_status rename_globals(LLVMModuleRef module, fly_error *error) {
  static const char own[] = "fly.";
  for (LLVMValueRef global = LLVMGetFirstGlobal(module); global; global = LLVMGetNextGlobal(global)) {
    size_t length;
    const char *name = LLVMGetValueName2(global, &length);
    if (strncmp(name, own, strlen(own)) != 0) continue;
    char *renamed = flyi_alloc(strlen(FLYI_SCORE_PREFIX) + length + 1, 1);
    if (!renamed) return flyi_no_memory(error);
    int size = sprintf(renamed, FLYI_SCORE_PREFIX "%s", name + strlen(own));
    LLVMSetValueName2(global, renamed, (size_t)size);
    free(renamed);
  }
  return FLY_OK;
}

/* The functions are the same for all targets: bitcode that was made for the host is taken as it is. */
static fly_status add_math(LLVMModuleRef module, fly_error *error) {
  LLVMModuleRef math = NULL;
  LLVMMemoryBufferRef buffer = LLVMCreateMemoryBufferWithMemoryRange(
      flyi_math_bitcode, (size_t)(flyi_math_bitcode_end - flyi_math_bitcode), "math", false);
  LLVMParseBitcodeInContext2(LLVMGetModuleContext(module), buffer, &math); /* on failure it stays NULL */
  LLVMDisposeMemoryBuffer(buffer);
  if (!math) return flyi_fail(error, FLY_ERROR_INTERNAL, "the functions of score modifiers cannot be read");
  LLVMSetTarget(math, LLVMGetTarget(module));
  LLVMSetDataLayout(math, LLVMGetDataLayoutStr(module));
  if (LLVMLinkModules2(module, math)) /* consumes them */
    return flyi_fail(error, FLY_ERROR_INTERNAL, "a score modifier cannot be linked with its functions");
  return FLY_OK;
}

fly_status flyi_cuda_prepare_score(const flyi_symbolic *score, const flyi_cuda_plan *plan, flyi_cuda_traits *traits,
                                   fly_error *error) {
  LLVMModuleRef module = score->module;
  LLVMValueRef function = LLVMGetNamedFunction(module, "score");
  fly_status status;
  if (!function) return flyi_fail(error, FLY_ERROR_INTERNAL, "the module has no modifier");
  LLVMStripModuleDebugInfo(module);
  flyi_bake(module, score->declarations);
  if ((status = flyi_passes(module, "function(lower-switch)", NULL, error)) ||
      (status = flyi_straighten(function, error)) ||
      (plan->differentiate && (status = flyi_differentiate(module, error))))
    return status;
  function = LLVMGetNamedFunction(module, plan->differentiate ? "score_slope" : "score");
  const char *name = plan->differentiate ? "modifier_slope" : "modifier";
  LLVMSetValueName2(function, name, strlen(name));
  *traits = flyi_cuda_prepare(function, plan->set_tokens);
  if ((status = rename_globals(module, error))) return status;
  return add_math(module, error);
}
