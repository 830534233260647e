/* select_cpu.c: the gate of MoBA on one CPU core: means of blocks of keys, and for each query the earlier blocks whose means have the
 * largest products with it. Compiled once for each vector width of launch.h's targets.
 *
 * ROWS queries are scored against all blocks that are earlier than the last of them, then each row's scores are looked through
 * once: a list of the best so far, best first, whose last score is what a block has to exceed. Blocks come in ascending order
 * and must exceed it, so of equal ones the earlier stays. A NaN counts as -infinity. */
#include "block.h"

/* ---- means -------------------------------------------------------------------------------------------------------------- */

typedef double vd __attribute__((ext_vector_type(W)));
typedef vd vd_memory __attribute__((aligned(8), may_alias));

enum { CHUNK = 64 /* channels at a time */ };

INLINE void mean_of(const flyi_mean_cpu *c, int type) {
  for (int first = 0; first < c->dim; first += CHUNK) {
    int last = min(first + CHUNK, c->dim);
    double sum[CHUNK] = {0};
    for (int64_t r = 0; r < c->count; r++) {
      const char *row = (const char *)c->rows + r * c->stride * element_size(type);
      for (int n = first; n < last; n += W)
        *(vd_memory *)(sum + n - first) += __builtin_convertvector(load_row(type, row, n, last), vd);
    }
    for (int n = first; n < last; n++) c->out[(int64_t)n * BLOCK] = (float)(sum[n - first] / (double)c->count);
  }
}

static void mean(const flyi_mean_cpu *c) {
  switch (c->type) {
  case FLY_F32: mean_of(c, FLY_F32); break;
  case FLY_F16: mean_of(c, FLY_F16); break;
  default: mean_of(c, FLY_BF16); break;
  }
}

/* ---- scores ------------------------------------------------------------------------------------------------------------- */

static int64_t padded(int64_t blocks) { return (blocks + BLOCK - 1) / BLOCK * BLOCK; }

static int64_t scratch(int32_t dim, int64_t blocks, int32_t top) { return ROWS * (dim + padded(blocks)) + 2 * (int64_t)top + W; }

/* scores[ROWS][stride] of the first `blocks` blocks, and of some behind them. */
INLINE void score(const flyi_select_cpu *c, const float *q, int64_t blocks, float *scores, int64_t stride) {
  for (int64_t at = 0; at < blocks; at += CHANNELS) {
    const float *panel = c->means + at / BLOCK * BLOCK * c->dim + at % BLOCK;
    vf x[ROWS][COLS];
    UNROLL for (int r = 0; r < ROWS; r++) UNROLL for (int j = 0; j < COLS; j++) x[r][j] = (vf)0.f;
    multiply(x, COLS, q, 1, c->dim, panel, BLOCK, c->dim);
    UNROLL for (int r = 0; r < ROWS; r++) UNROLL for (int j = 0; j < COLS; j++) store(scores + r * stride + at + W * j, x[r][j]);
  }
}

/* ---- the best ----------------------------------------------------------------------------------------------------------- */

typedef struct best {
  float *score; /* descending */
  int32_t *block;
  int count, most;
} best;

/* Behind those that are as good; what falls off the end is lost. */
INLINE void insert(best *b, float score, int32_t block) {
  int at = b->count < b->most ? b->count++ : b->most - 1;
  for (; at > 0 && b->score[at - 1] < score; at--) b->score[at] = b->score[at - 1], b->block[at] = b->block[at - 1];
  b->score[at] = score, b->block[at] = block;
}

INLINE float ranked(float score) { return score > -__builtin_inff() ? score : -__builtin_inff(); }

/* The best of a row's first `blocks` scores; rest behind them is ignored. */
INLINE void find_best(best *b, const float *scores, int64_t blocks) {
  int64_t at = 0;
  b->count = 0;
  if (!b->most) return;
  for (; at < blocks && b->count < b->most; at++) insert(b, ranked(scores[at]), (int32_t)at);
  while (at < blocks) {
    int64_t from = at / W * W;
    unsigned better = lanes(load(scores + from) > (vf)b->score[b->most - 1]) >> (at - from) << (at - from);
    if (from + W > blocks) better &= (1u << (blocks - from)) - 1;
    at = from + W;
    if (!better) continue;
    at = from + __builtin_ctz(better);
    insert(b, scores[at], (int32_t)at);
    at++;
  }
}

/* The list ascending, then the own block, then -1. */
INLINE void write_list(const best *b, int32_t own, int32_t top, int32_t *list) {
  for (int i = 0; i < b->count; i++) {
    int at = i;
    for (; at > 0 && list[at - 1] > b->block[i]; at--) list[at] = list[at - 1];
    list[at] = b->block[i];
  }
  list[b->count] = own;
  for (int i = b->count + 1; i < top; i++) list[i] = -1;
}

/* ---- entry -------------------------------------------------------------------------------------------------------------- */

INLINE void load_queries(const flyi_select_cpu *c, int r0, float *q, int type) {
  for (int r = 0; r < ROWS; r++) {
    const char *row = (const char *)c->q + min(r0 + r, c->count - 1) * c->q_stride * element_size(type);
    for (int n = 0; n < c->dim; n += W) store_row(FLY_F32, (char *)(q + r * c->dim), n, c->dim, load_row(type, row, n, c->dim));
  }
}

static void select_blocks(const flyi_select_cpu *c) {
  float *q = c->scratch, *scores = q + ROWS * c->dim;
  for (int r0 = 0; r0 < c->count; r0 += ROWS) {
    int rows = min(ROWS, c->count - r0);
    int64_t blocks = (c->position + r0 + rows - 1) / c->block, stride = padded(blocks);
    best b = {.score = scores + ROWS * stride, .most = c->top - 1};
    b.block = (int32_t *)(b.score + c->top);
    switch (c->type) {
    case FLY_F32: load_queries(c, r0, q, FLY_F32); break;
    case FLY_F16: load_queries(c, r0, q, FLY_F16); break;
    default: load_queries(c, r0, q, FLY_BF16); break;
    }
    score(c, q, blocks, scores, stride);
    for (int r = 0; r < rows; r++) {
      int64_t own = (c->position + r0 + r) / c->block;
      find_best(&b, scores + r * stride, own);
      write_list(&b, (int32_t)own, c->top, c->lists + (int64_t)(r0 + r) * c->top);
    }
  }
}

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
const flyi_select_code JOIN(flyi_select_, FLYI_ISA) = {scratch, mean, select_blocks};
