/* choose_ptx.c: the gate of MoBA on a GPU: what select_cpu.c does, by the same rule. Input: a flyi_cuda_choice. Output:
 * means of whole blocks of keys, a warp a block; each query's own block, and the earlier ones whose means have the
 * largest products with it, a warp a query.
 *
 * Lanes are blocks: lane l has the scores of blocks l, l + 32, .., in memory of its own. The best one behind the one
 * taken last, in the order of falling scores and of equal ones by block, is taken next. A NaN counts as -infinity. */
#include "rows_cuda.h"

typedef const flyi_cuda_choice *choice_t;

KERNEL fly_block_means(const flyi_cuda_choice call) {
  choice_t c = &call;
  const i64 at = grid_row();
  if (at >= c->kv_planes * c->blocks) return;
  const i32 plane = (i32)(at / c->blocks), kv_heads = c->heads / c->group;
  const i64 first = at % c->blocks * c->block;
  ROLLED for (i32 n = lane_index(); n < c->dim; n += 32) {
    double sum = 0;
    _Pragma("clang loop unroll_count(4)") for (i32 i = 0; i < c->block; i++) sum +=
        (double)load(row_of(&c->k, c->type, plane / kv_heads, plane % kv_heads, first + i), n);
    ((GLOBAL float *)c->means)[at * c->dim + n] = (float)(sum / (double)c->block);
  }
}

struct candidate {
  float score;
  i32 block; /* -1: none */
};
/* Whether a comes before b. */
INL _Bool is_before(struct candidate a, struct candidate b) {
  return a.score > b.score || (a.score == b.score && a.block < b.block);
}

/* The scores of the earlier blocks into `scores`: each lane its own. */
INL void score_blocks(choice_t c, struct row q, const GLOBAL float *means, i32 earlier, GLOBAL float *scores) {
  ROLLED for (i32 j = lane_index(); j < earlier; j += 32) {
    const GLOBAL float *mean = means + (i64)j * c->dim;
    float sum = 0;
    _Pragma("clang loop unroll_count(4)") for (i32 n = 0; n < c->dim; n++) sum =
        multiply_plus(load(q, n), mean[n], sum);
    scores[j] = sum > -infinity() ? sum : -infinity();
  }
}

/* The first of all blocks behind `last`. */
INL struct candidate next_of(const GLOBAL float *scores, i32 earlier, struct candidate last) {
  struct candidate best = {-infinity(), 0x7fffffff};
  ROLLED for (i32 j = lane_index(); j < earlier; j += 32) {
    const struct candidate x = {scores[j], j};
    if (is_before(last, x) && is_before(x, best)) best = x;
  }
  UNROLL for (i32 m = 1; m < 32; m *= 2) {
    const struct candidate x = {exchange(best.score, m), of_lane(best.block, lane_index() ^ m)};
    if (is_before(x, best)) best = x;
  }
  return best;
}

INL void choose_row(choice_t c, i64 at, GLOBAL float *scores) {
  const i64 plane = at / c->rows, row = at % c->rows;
  const i32 b = (i32)(plane / c->heads), h = (i32)(plane % c->heads);
  const i32 own = (i32)((row + c->q_offset) / c->block);
  const i64 kv_plane = (i64)b * (c->heads / c->group) + h / c->group;
  GLOBAL i32 *list = (GLOBAL i32 *)c->lists + at * c->top;
  struct candidate last = {infinity(), -1};
  const GLOBAL float *means = (const GLOBAL float *)c->means + kv_plane * c->blocks * c->dim;
  score_blocks(c, row_of(&c->q, c->type, b, h, row), means, own, scores);
  if (lane_index() == 0) list[0] = own;
  ROLLED for (i32 i = 1; i < c->top; i++) {
    if (i <= own) last = next_of(scores, own, last);
    if (lane_index() == 0) list[i] = i <= own ? last.block : -1;
  }
}

/* Warps take queries in turn: each has scores for one. */
KERNEL fly_choose_blocks(const flyi_cuda_choice call) {
  choice_t c = &call;
  GLOBAL float *scores = (GLOBAL float *)c->scores + grid_row() * c->blocks;
  ROLLED for (i64 at = grid_row(); at < c->total; at += c->warps) choose_row(c, at, scores);
}
