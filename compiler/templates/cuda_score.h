/* cuda_score.h: what the CUDA templates do with a score modifier: scores become what it makes of them, before the mask.
 * Its code is in all tiles, full ones too. */
#ifndef FLYMASK_CUDA_SCORE_H
#define FLYMASK_CUDA_SCORE_H

#include "cuda_tile.h"

CONSTANT modified;         /* there is one */
CONSTANT modifier_in_loop; /* as mask_in_loop and mask_tokens of cuda_tile.h */
CONSTANT modifier_tokens;

#define LOG2_E 1.44269504089f

/* Of the module that is joined with this one; the second where gradients are made. */
float modifier(float s, i32 b, i32 h, i32 q, i32 kv);
float modifier_slope(float s, i32 b, i32 h, i32 q, i32 kv, float *slope);

/* What the products of Q and K are multiplied by, for powers of 2: a modifier gives natural units. */
INL float units_of(call_t call) { return modified ? LOG2_E : call->scale_log2; }

INL void tell(const struct scene *s, i32 d, i32 row_token, i32 column_token) { /* d: q - kv */
  flyi_difference = d, flyi_queries = s->queries.length, flyi_keys = s->keys.length;
  if (modifier_tokens & 1) flyi_row_token = row_token;
  if (modifier_tokens & 2) flyi_column_token = column_token;
}
INL void tell_pair(const struct scene *s, i32 query, i32 key) {
  tell(s, query + s->offset - key, modifier_tokens & 1 ? token_of(s->query_rows, s->queries, query, s->offset) : 0,
       modifier_tokens & 2 ? token_of(s->key_rows, s->keys, key, 0) : 0);
}

/* One score, in natural units, by the rows of query and key in the call. */
INL float modified_pair(const struct scene *s, float x, i32 query, i32 key) {
  tell_pair(s, query, key);
  return modifier(x, s->b, s->h, query + s->offset, key);
}
INL float modified_slope(const struct scene *s, float x, i32 query, i32 key, float *slope) {
  tell_pair(s, query, key);
  return modifier_slope(x, s->b, s->h, query + s->offset, key, slope);
}

typedef float pairs_of_scores[MAX_BLOCKS][MAX_INNER / 8][4]; /* as C operands lie: a, i, j */

/* Places of a lane's scores: rows are queries or, by_key, keys; query and key are of its first one. */
struct lane_scores {
  const struct scene *scene;
  i32 blocks, columns; /* of 16 rows, of 8 columns */
  i32 query, key, by_key;
  i32 difference; /* of the first one */
};

/* Number n = (4 a) columns + 4 i + j; slope 0: not wanted. */
INL float modify_one(const struct lane_scores *l, float x, i32 n, float *slope) {
  const struct scene *s = l->scene;
  const i32 row = n / (4 * l->columns) * 16 + (n % 4 >> 1) * 8, column = n / 4 % l->columns * 8 + (n & 1);
  const i32 up = l->by_key ? column : row, along = l->by_key ? row : column; /* of the query, of the key */
  const i32 query = l->query + up, key = l->key + along;
  tell(s, l->difference + (up - along), modifier_tokens & 1 ? token_of(s->query_rows, s->queries, query, s->offset) : 0,
       modifier_tokens & 2 ? token_of(s->key_rows, s->keys, key, 0) : 0);
  return slope ? modifier_slope(x, s->b, s->h, query + s->offset, key, slope)
               : modifier(x, s->b, s->h, query + s->offset, key);
}

/* Products x become scores in natural units, and slopes (where `derive`) the modifier's derivatives. A modifier of many
 * instructions, or with loops or locals of its own, takes one after the other, through local memory. */
INL void modify(const struct lane_scores *l, pairs_of_scores x, pairs_of_scores slopes, i32 derive, float scale) {
  const i32 count = l->blocks * l->columns * 4, each = 4 * l->columns;
  if (modifier_in_loop) {
    float y[MAX_BLOCKS * MAX_INNER / 2], by[MAX_BLOCKS * MAX_INNER / 2];
    UNROLL for (i32 n = 0; n < count; n++) y[n] = x[n / each][n / 4 % l->columns][n % 4] * scale;
    ROLLED for (i32 n = 0; n < count; n++) y[n] = modify_one(l, y[n], n, derive ? &by[n] : 0);
    UNROLL for (i32 n = 0; n < count; n++) x[n / each][n / 4 % l->columns][n % 4] = y[n];
    if (derive) UNROLL for (i32 n = 0; n < count; n++) slopes[n / each][n / 4 % l->columns][n % 4] = by[n];
    return;
  }
  UNROLL for (i32 n = 0; n < count; n++) {
    float *at = &x[n / each][n / 4 % l->columns][n % 4];
    *at = modify_one(l, *at * scale, n, derive ? &slopes[n / each][n / 4 % l->columns][n % 4] : 0);
  }
}

/* The lane's places, of the tile whose first query and key these are to it. The difference is opaque, or each one would
 * be taken from a row and a column. */
INL struct lane_scores lane_scores_of(const struct scene *s, i32 blocks, i32 columns, i32 query, i32 key, i32 by_key) {
  return (struct lane_scores){s, blocks, columns, query, key, by_key, opaque(query + s->offset - key)};
}

#endif
