/* selection_case.h: selections of blocks: what they let queries see, as a predicate of the oracle, and MoBA's choice in
 * double precision. */
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

/* ---- MoBA's choice ----------------------------------------------------------------------------------------------- */

typedef struct moba_spec {
  fly_type type;
  int64_t batch, heads, kv_heads, len_q, len_kv;
  int dim, block, top;
} moba_spec;

int64_t selection_key_blocks(const fly_selection_info *info);
/* To be freed. */
uint8_t *selection_bitmap(const fly_selection *s, fly_selection_info *info);

/* Each earlier block is selected exactly if fewer than top - 1 are better, or as good and earlier; `slack`: of scores
 * that are so near, either. NaN counts as the least. */
void selection_check_gate(const moba_spec *s, const fly_tensor *q, const fly_tensor *k, const uint8_t *bitmap,
                          int64_t blocks, double slack);
/* Small integers: exact scores, many of them equal; some keys are NaN or an infinity. */
void selection_draw_ties(const fly_tensor *q, const fly_tensor *k, uint64_t seed);

#endif
