/* nvptx_mask.c: makes a mask ready to be inlined into a CUDA kernel, once for every score that a thread holds. Input:
 * the symbolic mask, straightened. Output: the same mask, whose optimised copies share what can be shared. Score
 * modifiers are made ready likewise. */
#include <string.h>

#include "compiler.h"

enum { B, H, Q, KV }; /* the place that is asked about */

/* A modifier has the score before it. */
static LLVMValueRef argument(LLVMValueRef mask, unsigned which) {
  return LLVMGetParam(mask, which + (LLVMCountParams(mask) > 4));
}

static bool is_math(LLVMValueRef i) {
  if (!LLVMIsACallInst(i) || !LLVMIsAFunction(LLVMGetCalledValue(i))) return false;
  return strncmp(LLVMGetValueName2(LLVMGetCalledValue(i), &(size_t){0}), "fly_math_", 9) == 0;
}

/* Inlined, a mask is there once for each score that a thread holds; so are the functions that a modifier calls. */
static bool is_small(LLVMValueRef mask) {
  enum { MOST = 96, MATH = 20 };
  int count = 0;
  if (!LLVMIsAReturnInst(LLVMGetBasicBlockTerminator(LLVMGetEntryBasicBlock(mask)))) return false; /* it has loops */
  for (LLVMValueRef i = LLVMGetFirstInstruction(LLVMGetEntryBasicBlock(mask)); i; i = LLVMGetNextInstruction(i))
    if (LLVMIsAAllocaInst(i) || (count += is_math(i) ? MATH : 1) > MOST) return false;
  return true;
}

/* The data of a call do not change while a kernel runs: loads from anything but locals may be moved and merged. */
static void mark_loads(LLVMValueRef mask) {
  LLVMContextRef context = LLVMGetModuleContext(LLVMGetGlobalParent(mask));
  unsigned invariant = LLVMGetMDKindIDInContext(context, "invariant.load", 14);
  LLVMValueRef empty = LLVMMetadataAsValue(context, LLVMMDNodeInContext2(context, NULL, 0));
  for (LLVMBasicBlockRef b = LLVMGetFirstBasicBlock(mask); b; b = LLVMGetNextBasicBlock(b))
    for (LLVMValueRef i = LLVMGetFirstInstruction(b); i; i = LLVMGetNextInstruction(i)) {
      if (!LLVMIsALoadInst(i)) continue;
      LLVMValueRef at = LLVMGetOperand(i, 0);
      while (LLVMIsAGetElementPtrInst(at)) at = LLVMGetOperand(at, 0);
      if (LLVMIsALoadInst(at)) LLVMSetMetadata(i, invariant, empty); /* of captured data */
    }
}

/* What templates tell a mask beside its arguments: variables that become locals of each kernel. */
enum { ROW_TOKEN, COLUMN_TOKEN, DIFFERENCE, QUERIES, KEYS, VARIABLES };
static const char *const variables[VARIABLES] = {"flyi_row_token", "flyi_column_token", "flyi_difference",
                                                 "flyi_queries", "flyi_keys"};

static LLVMValueRef load_variable(LLVMBuilderRef builder, LLVMValueRef mask, int which) {
  LLVMModuleRef module = LLVMGetGlobalParent(mask);
  LLVMTypeRef type = LLVMInt32TypeInContext(LLVMGetModuleContext(module));
  LLVMValueRef global = LLVMGetNamedGlobal(module, variables[which]);
  return LLVMBuildLoad2(builder, type, global ? global : LLVMAddGlobal(module, type, variables[which]), "");
}

/* ---- values that are worth keeping ------------------------------------------------------------------------------- */

enum { ROW = 1, COLUMN = 2 }; /* what a value depends on, beside the call */

/* Of a mask of one block: operands come before their users. */
static unsigned depends(LLVMValueRef mask, LLVMValueRef value, const LLVMValueRef *known, const unsigned *what,
                        int count) {
  if (value == argument(mask, Q)) return ROW;
  if (value == argument(mask, KV)) return COLUMN;
  if (value == LLVMGetParam(mask, 0) && value != argument(mask, B)) return ROW | COLUMN; /* a score */
  static const unsigned of_variable[VARIABLES] = {ROW, COLUMN, ROW | COLUMN, 0, 0};
  if (LLVMIsAGlobalVariable(value))
    for (int i = 0; i < VARIABLES; i++)
      if (strcmp(LLVMGetValueName2(value, &(size_t){0}), variables[i]) == 0) return of_variable[i];
  for (int i = 0; i < count; i++)
    if (known[i] == value) return what[i];
  return 0;
}

static bool is_choice(LLVMValueRef i) {
  static const char *const names[] = {"llvm.smin.", "llvm.smax.", "llvm.umin.", "llvm.umax."};
  if (LLVMIsASelectInst(i)) return true;
  if (!LLVMIsACallInst(i) || !LLVMIsAFunction(LLVMGetCalledValue(i))) return false;
  const char *name = LLVMGetValueName2(LLVMGetCalledValue(i), &(size_t){0});
  for (size_t n = 0; n < sizeof names / sizeof *names; n++)
    if (strncmp(name, names[n], strlen(names[n])) == 0) return true;
  return false;
}

/* The value, behind an instruction that optimisation cannot see through. */
static void hide(LLVMBuilderRef builder, LLVMValueRef value) {
  LLVMTypeRef type = LLVMTypeOf(value), signature = LLVMFunctionType(type, &type, 1, false);
  LLVMContextRef context = LLVMGetTypeContext(type);
  const char *code = "mov.b32 $0, $1;", *constraints = "=r,r";
  LLVMValueRef assembly = LLVMGetInlineAsm(signature, code, strlen(code), constraints, strlen(constraints), false,
                                           false, LLVMInlineAsmDialectATT, false);
  LLVMPositionBuilderBefore(builder, LLVMGetNextInstruction(value));
  LLVMValueRef hidden = LLVMBuildCall2(builder, signature, assembly, &value, 1, "");
  LLVMAddCallSiteAttribute(
      hidden, LLVMAttributeFunctionIndex,
      LLVMCreateEnumAttribute(context, LLVMGetEnumAttributeKindForName("memory", 6), 0)); /* it reads and writes none */
  LLVMReplaceAllUsesWith(value, hidden);
  LLVMSetOperand(hidden, 0, value);
}

/* Whether captured data are read for each pair, as a table is by query and key. */
static bool reads_pairs(LLVMValueRef mask) {
  enum { MOST = 128 };
  LLVMValueRef known[MOST];
  unsigned what[MOST];
  int count = 0;
  for (LLVMValueRef i = LLVMGetFirstInstruction(LLVMGetEntryBasicBlock(mask)); i && count < MOST;
       i = LLVMGetNextInstruction(i), count++) {
    known[count] = i, what[count] = 0;
    for (int n = 0; n < LLVMGetNumOperands(i); n++)
      what[count] |= depends(mask, LLVMGetOperand(i, (unsigned)n), known, what, count);
    if (LLVMIsALoadInst(i) && !LLVMIsAGlobalVariable(LLVMGetOperand(i, 0)) && what[count] == (ROW | COLUMN))
      return true;
  }
  return false;
}

/* What is chosen by the call, the row or the column alone is chosen once for all scores it serves. Otherwise a
 * comparison with it would become several, one for each choice, at every score. */
static void keep_values(LLVMValueRef mask) {
  enum { MOST = 128 };
  LLVMValueRef known[MOST], next;
  unsigned what[MOST];
  int count = 0;
  LLVMTypeRef word = LLVMInt32TypeInContext(LLVMGetModuleContext(LLVMGetGlobalParent(mask)));
  LLVMBuilderRef builder = LLVMCreateBuilderInContext(LLVMGetModuleContext(LLVMGetGlobalParent(mask)));
  for (LLVMValueRef i = LLVMGetFirstInstruction(LLVMGetEntryBasicBlock(mask)); i && count < MOST; i = next) {
    next = LLVMGetNextInstruction(i);
    known[count] = i, what[count] = 0;
    for (int n = 0; n < LLVMGetNumOperands(i); n++)
      what[count] |= depends(mask, LLVMGetOperand(i, (unsigned)n), known, what, count);
    count++;
    if (is_choice(i) && what[count - 1] != (ROW | COLUMN) && LLVMTypeOf(i) == word && LLVMGetFirstUse(i)) {
      hide(builder, i);
      known[count] = LLVMGetNextInstruction(i), what[count] = what[count - 1];
      if (count < MOST - 1) count++;
    }
  }
  LLVMDisposeBuilder(builder);
}

/* ---- tokens, lengths, differences -------------------------------------------------------------------------------- */

/* A call of fly_token_... with the mask's own b, h and q (or kv), or of fly_len_... with its b (last: B). */
static bool asks_for(LLVMValueRef call, LLVMValueRef mask, unsigned last) {
  if (last == B) return LLVMGetOperand(call, 0) == argument(mask, B);
  return LLVMGetOperand(call, 0) == argument(mask, B) && LLVMGetOperand(call, 1) == argument(mask, H) &&
         LLVMGetOperand(call, 2) == argument(mask, last);
}

/* Calls for the token of the mask's own query or key, or lengths of its own sequence, become loads of a variable. */
static bool take_calls(LLVMValueRef mask, const char *name, int variable, unsigned last) {
  LLVMModuleRef module = LLVMGetGlobalParent(mask);
  LLVMValueRef function = LLVMGetNamedFunction(module, name);
  LLVMBuilderRef builder = LLVMCreateBuilderInContext(LLVMGetModuleContext(module));
  LLVMUseRef next;
  bool taken = false;
  for (LLVMUseRef use = function ? LLVMGetFirstUse(function) : NULL; use; use = next) {
    next = LLVMGetNextUse(use);
    LLVMValueRef call = LLVMGetUser(use);
    if (!LLVMIsACallInst(call) || !asks_for(call, mask, last)) continue;
    LLVMPositionBuilderBefore(builder, call);
    LLVMReplaceAllUsesWith(call, load_variable(builder, mask, variable));
    LLVMInstructionEraseFromParent(call);
    taken = true;
  }
  LLVMDisposeBuilder(builder);
  return taken;
}

/* q - kv, kv - q and signed comparisons of q with kv: what is the same on a diagonal comes from there. (q and kv are
 * far from the ends of an int: FLYI_CUDA_MAX_LENGTH.) */
static void take_difference(LLVMValueRef mask) {
  LLVMValueRef q = argument(mask, Q), kv = argument(mask, KV), next;
  LLVMBuilderRef builder = LLVMCreateBuilderInContext(LLVMGetModuleContext(LLVMGetGlobalParent(mask)));
  for (LLVMValueRef i = LLVMGetFirstInstruction(LLVMGetEntryBasicBlock(mask)); i; i = next) {
    next = LLVMGetNextInstruction(i);
    if (!LLVMIsAICmpInst(i) && !LLVMIsABinaryOperator(i)) continue;
    LLVMValueRef left = LLVMGetOperand(i, 0), right = LLVMGetOperand(i, 1), zero = LLVMConstNull(LLVMTypeOf(q)), value;
    bool forward = left == q && right == kv;
    if (!forward && (left != kv || right != q)) continue;
    LLVMPositionBuilderBefore(builder, i);
    if (LLVMIsABinaryOperator(i) && LLVMGetInstructionOpcode(i) == LLVMSub) {
      value = load_variable(builder, mask, DIFFERENCE);
      if (!forward) value = LLVMBuildNeg(builder, value, "");
    } else if (LLVMIsAICmpInst(i)) {
      LLVMIntPredicate how = LLVMGetICmpPredicate(i);
      if (how >= LLVMIntUGT && how <= LLVMIntULE) continue;
      value = load_variable(builder, mask, DIFFERENCE);
      value = LLVMBuildICmp(builder, how, forward ? value : zero, forward ? zero : value, "");
    } else {
      continue;
    }
    LLVMReplaceAllUsesWith(i, value);
    LLVMInstructionEraseFromParent(i);
  }
  LLVMDisposeBuilder(builder);
}

flyi_cuda_traits flyi_cuda_prepare(LLVMValueRef mask, bool set_variables) {
  enum { ROUND = 8 }; /* pairs whose loads are under way together */
  const bool score = LLVMCountParams(mask) > 4;
  flyi_cuda_traits t = {.in_loop = !is_small(mask) ? 1 : !score && reads_pairs(mask) ? ROUND : 0};
  mark_loads(mask);
  if (set_variables) {
    t.tokens = (take_calls(mask, "fly_token_q", ROW_TOKEN, Q) ? 1 : 0) |
               (take_calls(mask, "fly_token_kv", COLUMN_TOKEN, KV) ? 2 : 0);
    take_calls(mask, "fly_len_q", QUERIES, B);
    take_calls(mask, "fly_len_kv", KEYS, B);
    if (!t.in_loop) take_difference(mask);
  }
  if (!t.in_loop) keep_values(mask);
  return t;
}

/* The variables are a kernel's own. */
fly_status flyi_cuda_place_variables(LLVMModuleRef module, fly_error *error) {
  LLVMContextRef context = LLVMGetModuleContext(module);
  LLVMBuilderRef builder = LLVMCreateBuilderInContext(context);
  fly_status status = FLY_OK;
  for (int i = 0; i < VARIABLES; i++) {
    LLVMValueRef global = LLVMGetNamedGlobal(module, variables[i]);
    for (LLVMUseRef use; global && !status && (use = LLVMGetFirstUse(global));) {
      LLVMValueRef user = LLVMGetUser(use);
      if (!LLVMIsALoadInst(user) && !LLVMIsAStoreInst(user)) {
        status = flyi_fail(error, FLY_ERROR_INTERNAL, "%s is used in an unknown way", variables[i]);
        break;
      }
      LLVMBasicBlockRef entry = LLVMGetEntryBasicBlock(LLVMGetBasicBlockParent(LLVMGetInstructionParent(user)));
      LLVMPositionBuilderBefore(builder, LLVMGetFirstInstruction(entry));
      LLVMValueRef local = LLVMBuildAlloca(builder, LLVMInt32TypeInContext(context), "");
      for (LLVMUseRef other = LLVMGetFirstUse(global), next; other; other = next) {
        next = LLVMGetNextUse(other);
        LLVMValueRef at = LLVMGetUser(other);
        if (LLVMGetEntryBasicBlock(LLVMGetBasicBlockParent(LLVMGetInstructionParent(at))) == entry)
          LLVMSetOperand(at, LLVMIsAStoreInst(at) ? 1 : 0, local);
      }
    }
    if (global && !status) LLVMDeleteGlobal(global);
  }
  LLVMDisposeBuilder(builder);
  return status;
}
