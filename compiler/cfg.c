/* cfg.c: a function's control-flow graph.
 *
 * Input: a function. Output: its reachable blocks in reverse postorder with their dominators, by the algorithm of
 * Cooper, Harvey and Kennedy ("A Simple, Fast Dominance Algorithm", 2001). LLVM's C interface has none of it. */
#include <stdlib.h>

#include "cfg.h"

static unsigned slot_of(const flyi_cfg *cfg, LLVMBasicBlockRef block) {
  unsigned slot = (unsigned)(((uintptr_t)block * UINT64_C(0x9E3779B97F4A7C15)) >> 32) & cfg->slot_mask;
  while (cfg->slots[slot].block && cfg->slots[slot].block != block) slot = (slot + 1) & cfg->slot_mask;
  return slot;
}

int flyi_cfg_index(const flyi_cfg *cfg, LLVMBasicBlockRef block) {
  const struct flyi_cfg_slot *slot = &cfg->slots[slot_of(cfg, block)];
  return slot->block ? slot->index : -1;
}

/* Depth first; blocks fill `blocks` from the end, in postorder. */
static bool order(flyi_cfg *cfg, LLVMBasicBlockRef entry, int total) {
  struct frame {
    LLVMBasicBlockRef block;
    unsigned next;
  } *stack = flyi_alloc((size_t)total, sizeof *stack);
  if (!stack) return false;
  int depth = 0, place = total;
  stack[depth++] = (struct frame){entry, 0};
  cfg->slots[slot_of(cfg, entry)].block = entry;
  while (depth) {
    struct frame *top = &stack[depth - 1];
    LLVMValueRef end = LLVMGetBasicBlockTerminator(top->block);
    if (top->next == LLVMGetNumSuccessors(end)) {
      cfg->blocks[--place] = top->block;
      depth--;
      continue;
    }
    LLVMBasicBlockRef successor = LLVMGetSuccessor(end, top->next++);
    struct flyi_cfg_slot *slot = &cfg->slots[slot_of(cfg, successor)];
    if (slot->block) continue;
    slot->block = successor;
    stack[depth++] = (struct frame){successor, 0};
  }
  free(stack);
  cfg->count = total - place;
  for (int i = 0; i < cfg->count; i++) {
    cfg->blocks[i] = cfg->blocks[place + i];
    cfg->slots[slot_of(cfg, cfg->blocks[i])].index = i;
  }
  return true;
}

static int intersect(const int *dominator, int a, int b) {
  while (a != b) {
    while (a > b) a = dominator[a];
    while (b > a) b = dominator[b];
  }
  return a;
}

static void find_dominators(flyi_cfg *cfg) {
  for (int i = 0; i < cfg->count; i++) cfg->dominator[i] = -1;
  cfg->dominator[0] = 0;
  for (bool changed = true; changed;) {
    changed = false;
    for (int from = 0; from < cfg->count; from++) {
      if (cfg->dominator[from] < 0) continue;
      LLVMValueRef end = LLVMGetBasicBlockTerminator(cfg->blocks[from]);
      for (unsigned k = 0; k < LLVMGetNumSuccessors(end); k++) {
        int to = flyi_cfg_index(cfg, LLVMGetSuccessor(end, k));
        int found = cfg->dominator[to] < 0 ? from : intersect(cfg->dominator, cfg->dominator[to], from);
        if (to == 0 || found == cfg->dominator[to]) continue;
        cfg->dominator[to] = found;
        changed = true;
      }
    }
  }
}

fly_status flyi_cfg_build(LLVMValueRef function, flyi_cfg *out, fly_error *error) {
  int total = (int)LLVMCountBasicBlocks(function);
  *out = (flyi_cfg){.slot_mask = 15};
  while (out->slot_mask < 2u * (unsigned)total) out->slot_mask = 2 * out->slot_mask + 1;
  out->blocks = flyi_alloc((size_t)total, sizeof *out->blocks);
  out->dominator = flyi_alloc((size_t)total, sizeof *out->dominator);
  out->slots = flyi_alloc(out->slot_mask + 1, sizeof *out->slots);
  if (!out->blocks || !out->dominator || !out->slots || !order(out, LLVMGetEntryBasicBlock(function), total)) {
    flyi_cfg_free(out);
    return flyi_no_memory(error);
  }
  find_dominators(out);
  return FLY_OK;
}

void flyi_cfg_free(flyi_cfg *cfg) {
  free(cfg->blocks);
  free(cfg->dominator);
  free(cfg->slots);
  *cfg = (flyi_cfg){0};
}

int flyi_cfg_common(const flyi_cfg *cfg, int a, int b) { return intersect(cfg->dominator, a, b); }

bool flyi_cfg_dominates(const flyi_cfg *cfg, int above, int below) {
  while (below > above) below = cfg->dominator[below]; /* a dominator comes earlier in reverse postorder */
  return below == above;
}

/* LLVM's C interface cannot change a phi: it is made anew. */
static void redirect(const flyi_verifier *v, LLVMValueRef phi, LLVMBasicBlockRef from, LLVMBasicBlockRef to) {
  bool moved = false;
  flyi_build_before(v, phi);
  LLVMValueRef made = LLVMBuildPhi(v->builder, LLVMTypeOf(phi), "");
  for (unsigned i = 0; i < LLVMCountIncoming(phi); i++) {
    LLVMBasicBlockRef block = LLVMGetIncomingBlock(phi, i);
    LLVMValueRef value = LLVMGetIncomingValue(phi, i);
    if (block == from && (!to || moved)) continue; /* several edges of a switch become one */
    if (block == from) block = to, moved = true;
    LLVMAddIncoming(made, &value, &block, 1);
  }
  LLVMReplaceAllUsesWith(phi, made);
  LLVMInstructionEraseFromParent(phi);
}

void flyi_phis_redirect(const flyi_verifier *v, LLVMBasicBlockRef block, LLVMBasicBlockRef from, LLVMBasicBlockRef to) {
  for (LLVMValueRef phi = LLVMGetFirstInstruction(block), next; phi && LLVMIsAPHINode(phi); phi = next) {
    next = LLVMGetNextInstruction(phi);
    redirect(v, phi, from, to);
  }
}
