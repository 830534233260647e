/* bound.c: a mask's loops end.
 *
 * Input: the flat mask with guarded addresses. Output: the same, where needed with a counter of the rounds of all its
 * loops together, which ends the mask with the answer false (a score modifier: NaN) when it exceeds FLYI_ROUNDS. No
 * counter is needed where the loops' constant bounds show that it cannot: those masks pay nothing, and stay easy to
 * unroll. */
#include "loop.h"

enum {
  MOST_NODE_RUNS = 1 << 19,
  MOST_COUNTED = 12 /* loops with a counter: LLVM's time may double and more with each further one */
};

/* The most rounds that all loops can make together; more than FLYI_ROUNDS where that is not known. */
static int64_t total_rounds(const flyi_cfg *cfg, const flyi_loops *loops) {
  int64_t rounds[FLYI_MOST_LOOPS], total = 0;
  int budget = MOST_NODE_RUNS;
  for (int i = 0; i < loops->count; i++)
    if ((rounds[i] = flyi_loop_rounds(cfg, &loops->loops[i], &budget)) < 0) return FLYI_ROUNDS + 1;
  for (int i = 0; i < loops->count; i++) {
    int64_t times = rounds[i];
    for (int k = 0; k < loops->count;
         k++) /* once a round of each loop around it, and once more in its last, unfinished round */
      if (k != i && loops->loops[k].members[loops->loops[i].header] && times <= FLYI_ROUNDS) times *= rounds[k] + 1;
    total += times;
    if (total > FLYI_ROUNDS) break;
  }
  return total;
}

/* A block on the edge from `from` to `to` that counts one round. */
static void count_edge(flyi_verifier *v, LLVMBasicBlockRef from, LLVMBasicBlockRef to, LLVMValueRef counter,
                       LLVMBasicBlockRef spent) {
  LLVMTypeRef i32 = flyi_int_type(v, 32);
  LLVMValueRef end = LLVMGetBasicBlockTerminator(from);
  LLVMBasicBlockRef block = LLVMAppendBasicBlockInContext(v->context, v->mask, "");
  flyi_phis_redirect(v, to, from, block);
  for (unsigned k = 0; k < LLVMGetNumSuccessors(end); k++)
    if (LLVMGetSuccessor(end, k) == to) LLVMSetSuccessor(end, k, block);
  flyi_build_before(v, end);
  LLVMPositionBuilderAtEnd(v->builder, block);
  LLVMValueRef rounds = LLVMBuildLoad2(v->builder, i32, counter, "");
  rounds = LLVMBuildAdd(v->builder, rounds, LLVMConstInt(i32, 1, false), "");
  LLVMBuildStore(v->builder, rounds, counter);
  LLVMValueRef over = LLVMBuildICmp(v->builder, LLVMIntUGT, rounds, LLVMConstInt(i32, FLYI_ROUNDS, false), "");
  LLVMBuildCondBr(v->builder, over, spent, to);
}

static fly_status count_rounds(flyi_verifier *v, const flyi_cfg *cfg, const flyi_loops *loops) {
  if (loops->count > MOST_COUNTED)
    return flyi_refuse(v, LLVMGetBasicBlockTerminator(cfg->blocks[loops->loops[MOST_COUNTED].header]),
                       "a mask cannot have more than %d loops, with its calls inlined, where no constants bound them "
                       "to %d rounds together",
                       MOST_COUNTED, FLYI_ROUNDS);
  LLVMTypeRef i32 = flyi_int_type(v, 32);
  flyi_build_before(v, LLVMGetFirstInstruction(cfg->blocks[0]));
  LLVMValueRef counter = LLVMBuildAlloca(v->builder, i32, "");
  LLVMBuildStore(v->builder, LLVMConstNull(i32), counter);
  LLVMBasicBlockRef spent = LLVMAppendBasicBlockInContext(v->context, v->mask, "");
  LLVMPositionBuilderAtEnd(v->builder, spent);
  LLVMTypeRef real = LLVMFloatTypeInContext(v->context);
  LLVMBuildRet(v->builder, v->is_score ? LLVMConstReal(real, __builtin_nan("")) : LLVMConstNull(flyi_int_type(v, 1)));
  for (int from = 0; from < cfg->count; from++) {
    LLVMValueRef end = LLVMGetBasicBlockTerminator(cfg->blocks[from]);
    for (unsigned k = 0; k < LLVMGetNumSuccessors(end); k++) {
      int to = flyi_cfg_index(cfg, LLVMGetSuccessor(end, k)); /* -1: a new block, the edge has been seen to */
      if (to >= 0 && flyi_is_back_edge(from, to)) count_edge(v, cfg->blocks[from], cfg->blocks[to], counter, spent);
    }
  }
  return flyi_run_passes(v, "function(mem2reg)");
}

fly_status flyi_bound_loops(flyi_verifier *v) {
  flyi_cfg cfg;
  flyi_loops loops = {0};
  fly_status status = flyi_cfg_build(v->mask, &cfg, v->error);
  if (!status) status = flyi_loops_find(v, &cfg, &loops);
  if (!status && total_rounds(&cfg, &loops) > FLYI_ROUNDS) status = count_rounds(v, &cfg, &loops);
  flyi_loops_free(&loops);
  flyi_cfg_free(&cfg);
  return status;
}
