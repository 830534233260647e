/* selection_case.c: see selection_case.h. */
#include "selection_case.h"

bool see_chosen(void *context, int b, int h, int q, int kv) {
  const chosen *c = context;
  int64_t row = q - c->q_offset;
  return (!c->causal || kv <= q) && c->bitmap[((b * c->heads + h) * c->len_q + row) * c->blocks + kv / c->block];
}
