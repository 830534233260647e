/* cfg.h: a function's control-flow graph (cfg.c). */
#ifndef FLYMASK_CFG_H
#define FLYMASK_CFG_H

#include "verify.h"

typedef struct flyi_cfg {
  int count;                 /* of the blocks that can be reached */
  LLVMBasicBlockRef *blocks; /* in reverse postorder: the entry first */
  int *dominator;            /* of each block, the closest; the entry's is itself */
  struct flyi_cfg_slot {
    LLVMBasicBlockRef block;
    int index;
  } *slots; /* a hash table: a block's place in `blocks` */
  unsigned slot_mask;
} flyi_cfg;

fly_status flyi_cfg_build(LLVMValueRef function, flyi_cfg *out, fly_error *error);
void flyi_cfg_free(flyi_cfg *cfg);
int flyi_cfg_index(const flyi_cfg *cfg, LLVMBasicBlockRef block); /* -1: cannot be reached */
int flyi_cfg_common(const flyi_cfg *cfg, int a, int b);           /* the closest block that dominates both */
bool flyi_cfg_dominates(const flyi_cfg *cfg, int above, int below);

/* In the phis at the head of `block`, what came from `from` comes from `to` now; NULL: it comes no more. */
void flyi_phis_redirect(const flyi_verifier *v, LLVMBasicBlockRef block, LLVMBasicBlockRef from, LLVMBasicBlockRef to);

#endif
