/* split_cuda.h: what the kernels for few queries and many keys share: the queries of all heads of a key/value head lie
 * together in the rows of one tile, and a block of threads walks a part of the tiles of keys that they see.
 *
 * Row r is query r / walk of head r % walk of the pair. The map row is the first: all queries of an entry are in it. */
#ifndef FLYMASK_SPLIT_CUDA_H
#define FLYMASK_SPLIT_CUDA_H

#include "exact_cuda.h"

enum { SPLIT_ROWS = 16 };

struct place {
  i32 b, h, part;  /* h: the pair's first query head */
  i32 first, rows; /* of the block; rows of the pair, those behind do not exist */
  struct span queries, keys;
};

/* Block x works on one part of one tile of rows of a pair. Parts of a tile are neighbours. */
INL struct place place_of(call_t call, u32 x) {
  const i32 pairs = (i32)args_of(call)->heads / call->walk;
  const i32 part = (i32)(x % (u32)call->parts), tile = (i32)(x / (u32)call->parts % (u32)call->tiles);
  const i32 pair = (i32)(x / (u32)call->parts / (u32)call->tiles), b = pair / pairs;
  struct place p = {b, pair % pairs * call->walk, part, tile * SPLIT_ROWS, 0, queries_of(call, b), keys_of(call, b)};
  p.rows = p.queries.length * call->walk;
  return p;
}

/* A row as the mask and the tensors see it. Rows that do not exist repeat the last one. */
struct query {
  i32 head, query;
};
INL struct query query_at(call_t call, const struct place *p, i32 row) {
  const i32 r = at_most(p->first + row, p->rows - 1);
  return (struct query){p->h + r % call->walk, r / call->walk};
}

/* ---- a part of a row's tiles ------------------------------------------------------------------------------------- */

/* Of `tiles`, which the entry has. */
INL i32 tiles_of_run(i32x2 run, i32 inner, i32 tiles) {
  const i32 start = run.x * inner, stop = start + (i32)((u32)run.y << 2 >> 2) * inner;
  return start >= tiles ? 0 : at_most(stop, tiles) - start;
}
INL i32 warp_sum_int(i32 x) {
  UNROLL for (i32 m = 1; m < 32; m *= 2) x += __nvvm_shfl_sync_bfly_i32(-1, x, m, 31);
  return x;
}
/* The sum of this lane's and all lower lanes'. */
INL i32 warp_scan(i32 x) {
  UNROLL for (i32 m = 1; m < 32; m *= 2) {
    const i32 below = __nvvm_shfl_sync_up_i32(-1, x, m, 0);
    x += (thread_index() & 31) >= m ? below : 0;
  }
  return x;
}

/* `left` tiles from the walk's next one on. Parts share the tiles evenly, whatever runs they are in. */
struct part {
  struct walk walk;
  i32 left;
};
INL struct part part_of(call_t call, const struct place *p, i32 tiles) {
  const flyi_cuda_map *map = &call->by_query;
  const i64 plane = ints(map->plane_of)[p->b * map->plane_stride_b + p->h * map->plane_stride_h];
  const GLOBAL i64 *start = longs(map->start) + plane * map->rows;
  const GLOBAL i32x2 *runs = (const GLOBAL i32x2 *)map->runs + start[0];
  const i32 count = tiles > 0 && map->rows > 0 ? (i32)(start[1] - start[0]) : 0, lane = thread_index() & 31;
  i32 mine = 0, before = 0, run = 0;
  ROLLED for (i32 i = lane; i < count; i += 32) mine += tiles_of_run(runs[i], map->inner, tiles);
  const i64 total = warp_sum_int(mine);
  const i32 from = (i32)(total * p->part / call->parts), to = (i32)(total * (p->part + 1) / call->parts);
  struct part part = {.left = to - from};
  part.walk.kind = EMPTY;
  if (part.left == 0) return part;
  ROLLED while (1) { /* the run that holds tile `from` of the row's: there is one */
    const i32 each = run + lane < count ? tiles_of_run(runs[run + lane], map->inner, tiles) : 0;
    const i32 sum = warp_scan(each);
    const u32 there = ballot(before + sum > from);
    if (there) {
      const i32 at = __builtin_ctz(there);
      run += at, before += of_lane(sum - each, at);
      break;
    }
    run += 32, before += of_lane(sum, 31);
  }
  part.walk.at = runs + run, part.walk.run = runs[run], part.walk.left = count - run;
  walk_run(&part.walk, map->inner, tiles);
  part.walk.tile += from - before;
  return part;
}
INL struct step part_step(struct part *part, call_t call, i32 tiles) {
  if (part->left == 0) return (struct step){0, EMPTY};
  part->left--;
  return walk_step(&part->walk, &call->by_query, tiles);
}

/* ---- what a part makes ------------------------------------------------------------------------------------------- */

/* A row's place among the partial rows. */
INL i64 partial_row(call_t call, const struct place *p, struct query q) {
  return p->part * call->part_stride + ((i64)p->b * args_of(call)->heads + q.head) * call->rows_q + q.query;
}
INL GLOBAL float *partial_out(call_t call, i64 row, i32 dim) { return (GLOBAL float *)call->part_out + row * dim; }
INL void store_partial_lse(call_t call, i64 row, float top_log2, float sum) {
  ((GLOBAL float *)call->part_lse)[row] = sum == 0 ? -infinity() : (top_log2 + log2_of(sum)) * 0.69314718056f;
}

#endif
