/* select_cpu.c: the gate of MoBA on one CPU core: means of blocks of keys, and for each query the earlier blocks whose
 * means have the largest products with it. Compiled once for each vector width of cpu.c's targets.
 *
 * Lanes are queries, 64 of them; blocks pass by in ascending order, ROWS at a time, and go from the products' registers
 * into each lane's list of the best so far, best first. A block must exceed what it displaces, so of equal ones the
 * earlier stays. A NaN counts as -infinity, which is never put into a list: lists that end with holes are filled with
 * the earliest blocks. */
#include "block.h"

/* ---- means ------------------------------------------------------------------------------------------------------- */

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
        *(vd_memory *)(sum + (n - first)) += __builtin_convertvector(load_row(type, row, n, last), vd);
    }
    for (int n = first; n < last; n++) c->out[n] = (float)(sum[n - first] / (double)c->count);
  }
}

static void mean(const flyi_mean_cpu *c) {
  switch (c->type) {
  case FLY_F32:
    mean_of(c, FLY_F32);
    break;
  case FLY_F16:
    mean_of(c, FLY_F16);
    break;
  default:
    mean_of(c, FLY_BF16);
    break;
  }
}

/* ---- the best so far --------------------------------------------------------------------------------------------- */

typedef struct best {
  float *score;   /* [most][64], descending */
  int32_t *block; /* likewise; -1: none */
  int most;
} best;

typedef vi vi_memory __attribute__((aligned(4), may_alias));

/* ROWS blocks' scores, the first of which is block `first`, go into the lists of lanes [at, at + W). most: the lists'
 * length. */
INLINE void insert(const best *b, int most, int at, const vf *scores, int32_t first) {
  vf kept[4];
  vi kept_block[4];
  bool in_registers = most <= 4;
  for (int i = 0; in_registers && i < most; i++) {
    kept[i] = load(b->score + i * BLOCK + at);
    kept_block[i] = *(const vi_memory *)(b->block + i * BLOCK + at);
  }
  UNROLL for (int r = 0; r < ROWS; r++) {
    vf score = scores[r * COLS];
    vi block = (vi)(first + r), moved = (vi)0;
    if (!in_registers && !lanes(score > load(b->score + (most - 1) * BLOCK + at))) continue;
    for (int i = 0; i < most; i++) {
      float *at_score = b->score + i * BLOCK + at;
      vi_memory *at_block = (vi_memory *)(b->block + i * BLOCK + at);
      vf old = in_registers ? kept[i] : load(at_score);
      vi old_block = in_registers ? kept_block[i] : *at_block;
      moved |= score > old; /* what is displaced moves on, whatever comes next */
      vf new = moved ? score : old;
      vi new_block = moved ? block : old_block;
      score = moved ? old : score, block = moved ? old_block : block;
      if (in_registers)
        kept[i] = new, kept_block[i] = new_block;
      else
        store(at_score, new), *at_block = new_block;
    }
  }
  for (int i = 0; in_registers && i < most; i++) {
    store(b->score + i * BLOCK + at, kept[i]);
    *(vi_memory *)(b->block + i * BLOCK + at) = kept_block[i];
  }
}

/* ROWS blocks against lanes [at, at + CHANNELS). own: the lanes' own blocks, or null where all blocks are earlier. */
INLINE void score_blocks(const flyi_select_cpu *c, const float *q, const best *b, int at, int32_t first,
                         const int32_t *own) {
  vf x[ROWS][COLS];
  UNROLL for (int r = 0; r < ROWS; r++) UNROLL for (int j = 0; j < COLS; j++) x[r][j] = (vf)0.f;
  multiply(x, COLS, c->means + (int64_t)first * c->dim, 1, c->dim, q + at, BLOCK, c->dim);
  UNROLL for (int r = 0; r < ROWS; r++) UNROLL for (int j = 0; j < COLS; j++) {
    x[r][j] = greater(x[r][j], (vf)-__builtin_inff());
    if (own) x[r][j] = *(const vi_memory *)(own + at + W * j) > (vi)(first + r) ? x[r][j] : (vf)-__builtin_inff();
  }
  UNROLL for (int j = 0; j < COLS; j++) switch (b->most) {
  case 1:
    insert(b, 1, at + W * j, &x[0][j], first);
    break;
  case 2:
    insert(b, 2, at + W * j, &x[0][j], first);
    break;
  case 3:
    insert(b, 3, at + W * j, &x[0][j], first);
    break;
  case 4:
    insert(b, 4, at + W * j, &x[0][j], first);
    break;
  default:
    insert(b, b->most, at + W * j, &x[0][j], first);
    break;
  }
}

/* ---- lists ------------------------------------------------------------------------------------------------------- */

/* Puts a block into an ascending list, unless it is there. */
INLINE bool put(int32_t *list, int count, int32_t block) {
  int at = count;
  for (; at > 0 && list[at - 1] >= block; at--)
    if (list[at - 1] == block) return false;
  for (int i = count; i > at; i--) list[i] = list[i - 1];
  list[at] = block;
  return true;
}

/* The lane's list ascending, the own block behind it, then -1. */
INLINE void write_list(const best *b, int lane, int32_t own, int32_t top, int32_t *list) {
  int count = 0, wanted = own < b->most ? own : b->most;
  for (int i = 0; i < b->most; i++)
    if (b->block[i * BLOCK + lane] >= 0) count += put(list, count, b->block[i * BLOCK + lane]);
  for (int32_t i = 0; count < wanted; i++) count += put(list, count, i);
  list[count] = own;
  for (int i = count + 1; i < top; i++) list[i] = -1;
}

/* ---- entry ------------------------------------------------------------------------------------------------------- */

static int64_t scratch(int32_t dim, int32_t top) { return (int64_t)BLOCK * (dim + 2 * (int64_t)(top - 1)); }

INLINE void load_queries(const flyi_select_cpu *c, float *q, int type) {
  pack_transposed(q, c->q, c->q_stride, NULL, c->count, c->dim, c->dim, 1.f, false, type);
}

/* Rows of the next queries while the nth of `steps` times ROWS blocks is compared: few at a time, in their order. */
INLINE void fetch_next(const flyi_beside_cpu *next, int64_t nth, int64_t steps) {
  enum { MOST = 4 };
  int64_t each = (next->count + steps - 1) / steps;
  if (each > MOST) each = MOST;
  for (int64_t r = nth * each; r < (nth + 1) * each && r < next->count; r++)
    fetch_row(next->rows + r * next->stride, next->row, false);
}

static void select_blocks(const flyi_select_cpu *c) {
  float *q = c->scratch;
  best b = {.score = q + BLOCK * c->dim, .most = c->top - 1};
  b.block = (int32_t *)(b.score + BLOCK * b.most);
  int32_t own[BLOCK];
  for (int i = 0; i < BLOCK; i++) own[i] = (int32_t)((c->position + min(i, c->count - 1)) / c->block);
  for (int i = 0; i < BLOCK * b.most; i++) b.score[i] = -__builtin_inff(), b.block[i] = -1;
  switch (c->type) {
  case FLY_F32:
    load_queries(c, q, FLY_F32);
    break;
  case FLY_F16:
    load_queries(c, q, FLY_F16);
    break;
  default:
    load_queries(c, q, FLY_BF16);
    break;
  }
  int64_t end = b.most ? own[BLOCK - 1] : 0;
  for (int64_t first = 0; first < end; first += ROWS) {
    fetch_next(&c->next, first / ROWS, (end + ROWS - 1) / ROWS);
    for (int at = 0; at < BLOCK; at += CHANNELS)
      score_blocks(c, q, &b, at, (int32_t)first, first + ROWS > own[0] ? own : NULL);
  }
  for (int i = 0; i < c->count; i++) write_list(&b, i, own[i], c->top, c->lists + (int64_t)i * c->top);
}

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
const flyi_select_code JOIN(flyi_select_, FLYI_ISA) = {scratch, mean, select_blocks};
