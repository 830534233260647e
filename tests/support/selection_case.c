/* selection_case.c: see selection_case.h. */
#include "selection_case.h"

bool see_chosen(void *context, int b, int h, int q, int kv) {
  const chosen *c = context;
  int64_t row = q - c->q_offset;
  return (!c->causal || kv <= q) && c->bitmap[((b * c->heads + h) * c->len_q + row) * c->blocks + kv / c->block];
}

int64_t selection_key_blocks(const fly_selection_info *info) { return (info->len_kv + info->block - 1) / info->block; }

uint8_t *selection_bitmap(const fly_selection *s, fly_selection_info *info) {
  fly_selection_get_info(s, info);
  uint8_t *bitmap = malloc((size_t)(info->batch * info->heads * info->len_q * selection_key_blocks(info) + 1));
  fly_selection_get_bitmap(s, bitmap);
  return bitmap;
}

static double product(const fly_tensor *q, const fly_tensor *k, int64_t b, int64_t h, int64_t i, int64_t block,
                      int size) {
  double score = 0;
  for (int64_t d = 0; d < q->shape[3]; d++) {
    double mean = 0;
    for (int64_t j = block * size; j < (block + 1) * size; j++)
      mean += oracle_get(k, b, h / (q->shape[1] / k->shape[1]), j, d);
    score += oracle_get(q, b, h, i, d) * mean / size;
  }
  return score;
}

void selection_check_gate(const moba_spec *s, const fly_tensor *q, const fly_tensor *k, const uint8_t *bitmap,
                          int64_t blocks, double slack) {
  double *score = malloc((size_t)blocks * sizeof *score);
  for (int64_t p = 0; p < s->batch * s->heads * s->len_q; p++) {
    int64_t b = p / s->len_q / s->heads, h = p / s->len_q % s->heads, i = p % s->len_q;
    int64_t own = (i + s->len_kv - s->len_q) / s->block, chosen = 0;
    const uint8_t *row = bitmap + p * blocks;
    for (int64_t j = 0; j < own; j++) {
      score[j] = product(q, k, b, h, i, j, s->block);
      if (!(score[j] > -INFINITY)) score[j] = -INFINITY;
    }
    for (int64_t j = 0; j < own; j++) {
      int surely = 0, perhaps = 0;
      for (int64_t other = 0; other < own; other++) {
        if (other == j) continue;
        if (score[other] > score[j] + slack) surely++;
        if (slack > 0 ? score[other] >= score[j] - slack
                      : score[other] > score[j] || (score[other] == score[j] && other < j))
          perhaps++;
      }
      if (slack == 0) surely = perhaps;
      chosen += row[j];
      if (row[j] ? surely >= s->top - 1 : perhaps < s->top - 1)
        ck_abort_msg("query %d of (%d, %d): block %d is %s, with %d to %d better ones", (int)i, (int)b, (int)h, (int)j,
                     row[j] ? "selected" : "not selected", surely, perhaps);
    }
    ck_assert_int_eq(chosen, own < s->top - 1 ? own : s->top - 1);
    ck_assert_int_eq(row[own], 1);
    for (int64_t j = own + 1; j < blocks; j++) ck_assert_int_eq(row[j], 0);
  }
  free(score);
}

void selection_draw_ties(const fly_tensor *q, const fly_tensor *k, uint64_t seed) {
  test_random random = {seed};
  for (int64_t h = 0; h < q->shape[1]; h++)
    for (int64_t i = 0; i < q->shape[2]; i++)
      for (int64_t d = 0; d < q->shape[3]; d++) oracle_set(q, 0, h, i, d, (double)test_range(&random, -1, 1));
  for (int64_t i = 0; i < k->shape[2]; i++)
    for (int64_t d = 0; d < k->shape[3]; d++) oracle_set(k, 0, 0, i, d, (double)test_range(&random, -1, 1));
  for (int i = 0; i < 10; i++) oracle_set(k, 0, 0, test_range(&random, 0, k->shape[2] - 1), 0, i % 2 ? NAN : -INFINITY);
}
