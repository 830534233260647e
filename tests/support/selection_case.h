/* selection_case.h: what a selection of blocks lets queries see, as a predicate of the oracle. */
#ifndef TEST_SELECTION_CASE_H
#define TEST_SELECTION_CASE_H

#include "oracle.h"

typedef struct chosen {
  const uint8_t *bitmap; /* [batch, heads, len_q, blocks]: not 0: selected */
  int64_t heads, len_q, blocks, q_offset;
  int block; /* keys of one */
  bool causal;
} chosen;

bool see_chosen(void *context, int b, int h, int q, int kv); /* context: a chosen */

#endif
