/* order.h: the blocks of a function in the order of a mask program (order.c). */
#ifndef FLYMASK_ORDER_H
#define FLYMASK_ORDER_H

#include "cfg.h"

/* Blocks after their forward predecessors, loops contiguous behind their headers. */
typedef struct flyi_order {
  flyi_cfg cfg;
  int count;
  int *block; /* place -> index in cfg.blocks */
  int *place; /* and back */
  int *loop;  /* place -> blocks of the loop that the block heads, itself included; 0: none */
} flyi_order;

/* *out is freed with flyi_order_free, also after a failure. *found: false where a loop has more than one way in. */
fly_status flyi_order_blocks(LLVMValueRef function, flyi_order *out, bool *found, fly_error *error);
void flyi_order_free(flyi_order *order);

#endif
