/* cfg.h: the control flow of one function of a program: basic blocks and where they lead. */
#ifndef SIMCUDA_CFG_H
#define SIMCUDA_CFG_H

#include "tables.h"

typedef struct block {
  uint32_t begin, end; /* instructions */
  uint32_t next[2], next_count;
  const brx_info *table;
} block;

typedef struct cfg {
  const program *p;
  uint32_t begin, end;
  block *blocks;
  uint32_t block_count;
  uint32_t *block_of; /* by instruction - begin */
} cfg;

bool cfg_create(cfg *c, const program *p, uint32_t begin, uint32_t end);
void cfg_release(cfg *c);
uint32_t cfg_successors(const block *b);
uint32_t cfg_successor(const cfg *c, const block *b, uint32_t k); /* a block's number */

#endif
