/* ptx_mutate.h: a kernel's PTX with one instruction removed or changed, for tests that something notices. */
#ifndef TEST_PTX_MUTATE_H
#define TEST_PTX_MUTATE_H

#include "support.h"

typedef enum ptx_kind {
  PTX_WAIT,    /* a wait for asynchronous copies is removed */
  PTX_COMMIT,  /* a commit of a group of them */
  PTX_BARRIER, /* a barrier of a block or a warp */
  PTX_ZEROS,   /* a copy takes whole chunks, whether the row is there or not */
  PTX_CLAMP,   /* a minimum becomes one of its operands: rows that are not there are looked up */
  PTX_BRANCH,  /* a conditional branch is never taken */
  PTX_KINDS
} ptx_kind;

const char *ptx_kind_name(ptx_kind kind);

/* Changes the n-th place of a kind in the kernel; `operand` of a minimum remains. False: there are not so many. */
bool ptx_mutate(char *ptx, const char *kernel, ptx_kind kind, int n, int operand);

/* What a run gave: whether the simulated driver reported something, or else a digest of what was written. */
typedef struct ptx_outcome {
  bool reported;
  char report[400];
  uint64_t digest;
} ptx_outcome;

/* Two words about what was noticed, of one that is reported. */
const char *ptx_check_of(const ptx_outcome *o);

/* From now on when copies land (enum simcuda_copies), and few instructions until a kernel counts as hung. */
void ptx_set_copies(int copies);

#endif
