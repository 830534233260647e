/* ahead.h: rows of a map that the forward kernel needs soon. They may be anywhere in memory, so that each one is waited
 * for unless it is asked for in time; many at once would fill the queues to memory, and hold up the products.
 *
 * Input: a flyi_forward_cpu. A launch asks for the keys and values that it will pack, the rows of its results, and the
 * queries of the next launch: a few rows with each ROWS queries of each block. */
#ifndef FLYMASK_AHEAD_H
#define FLYMASK_AHEAD_H

#include "fetch.h"
#include "pack.h"

enum { AHEAD_PARTS = 3, AHEAD_BLOCKS = 2 /* of keys and values: what the next queries of a window add */ };

/* Row `row` of each part in turn, then the next one. */
typedef struct ahead_list {
  flyi_fetch_part part[AHEAD_PARTS];
  int32_t parts, turn, row, rows;
} ahead_list;

typedef struct ahead {
  ahead_list keys, queries; /* the former first */
  int64_t first, last;      /* the blocks of keys */
  int32_t each;             /* rows at a time */
  int64_t wait;             /* so often none, before the queries: they would have left the cache again */
} ahead;

/* plane_bytes: of the whole plane. */
INLINE void add_ahead(ahead_list *l, const void *plane, const int32_t *rows, int count, int64_t stride, int dim,
                      int size, int64_t plane_bytes) {
  l->part[l->parts++] = (flyi_fetch_part){plane, rows, stride * size, count, dim * size, plane_bytes > FLYI_FAR_BYTES};
  if (count > l->rows) l->rows = count;
}

INLINE bool is_unpacked(const flyi_pack_cpu *p, int64_t block) {
  return __atomic_load_n(p->state + block, __ATOMIC_RELAXED) == FLYI_UNPACKED;
}

/* Blocks of a run; `blocks`: of all keys. */
INLINE int64_t run_first(const flyi_forward_cpu *c, fly_run run) { return (int64_t)run.first * c->run_blocks; }
INLINE int64_t run_last(const flyi_forward_cpu *c, fly_run run, int64_t blocks) {
  int64_t last = ((int64_t)run.first + run.count) * c->run_blocks;
  return last < blocks ? last : blocks;
}

/* Sets first and last: the first blocks that are still to be packed, but for the launch's very first one. Returns how
 * many blocks come before them. */
INLINE int64_t find_keys(ahead *a, const flyi_forward_cpu *c, int64_t blocks) {
  int64_t before = 0;
  a->first = a->last = 0;
  for (int64_t i = 0; i < c->run_count; i++) {
    int64_t last = run_last(c, c->runs[i], blocks);
    for (int64_t block = run_first(c, c->runs[i]); block < last; block++, before++) {
      if (!before || !is_unpacked(c->keys, block)) continue;
      a->first = block;
      for (a->last = block + 1; a->last < last && a->last < block + AHEAD_BLOCKS; a->last++)
        if (!is_unpacked(c->keys, a->last)) break;
      return before;
    }
  }
  return before;
}

/* Returns how many blocks of keys are left until the first ones are needed. */
INLINE int64_t add_keys(ahead *a, const flyi_forward_cpu *c, int64_t blocks) {
  const flyi_pack_cpu *p = c->keys;
  int64_t before = find_keys(a, c, blocks), left = p->len_kv - a->first * BLOCK, most = (a->last - a->first) * BLOCK;
  const int32_t *rows = p->rows + a->first * BLOCK;
  int count = (int)(left < most ? left : most), size = element_size(p->type);
  add_ahead(&a->keys, p->k, rows, count, p->k_stride, p->dim, size, p->k_bytes);
  add_ahead(&a->keys, p->v, rows, count, p->v_stride, p->value_dim, size, p->v_bytes);
  return before;
}

INLINE void add_queries(ahead *a, const flyi_forward_cpu *c) {
  bool next = c->next_q && c->next_rows;
  int count = c->count, out_size = element_size(c->out_type);
  if (c->out_rows && !c->stream)
    add_ahead(&a->queries, c->out, c->out_rows, count, c->out_stride, c->value_dim, out_size, c->out_bytes);
  if (c->out_rows && c->lse) add_ahead(&a->queries, c->lse, c->out_rows, count, c->lse_stride, 1, sizeof(float), 0);
  if (next)
    add_ahead(&a->queries, c->next_q, c->next_rows, c->next_count, c->q_stride, c->dim, element_size(c->type),
              c->q_bytes);
}

/* What a launch asks for, `groups` times with each block of keys. */
INLINE void plan_ahead(ahead *a, const flyi_forward_cpu *c, int64_t blocks, int groups) {
  a->keys = a->queries = (ahead_list){.rows = 0};
  a->first = a->last = 0;
  if (!c->keys->rows && !c->out_rows && !c->next_rows) return;
  int64_t steps = 0, before = c->keys->rows ? add_keys(a, c, blocks) * groups : 0;
  for (int64_t i = 0; i < c->run_count; i++) {
    int64_t count = run_last(c, c->runs[i], blocks) - run_first(c, c->runs[i]);
    steps += (count > 0 ? count : 0) * groups;
  }
  add_queries(a, c);
  if (steps <= 0) a->keys.rows = a->queries.rows = 0;
  int64_t keys = (int64_t)a->keys.parts * a->keys.rows, all = keys + (int64_t)a->queries.parts * a->queries.rows;
  if (!all) return;
  int64_t each = (all + steps - 1) / steps, least = before ? (keys + before - 1) / before : 0;
  a->each = (int)(each > least ? each : least);
  a->wait = steps - 2 * groups - all / a->each;
}

/* Whether the block behind this one, which is still to be packed, is asked for with it: not if it comes with those
 * ahead. Nor by the last block of a launch, where a map has rows all over memory: the launch that packs them asks for
 * them again, and twice they would hold up the products twice. */
INLINE bool asks_for_next(const ahead *a, const flyi_pack_cpu *p, int64_t block, bool last) {
  int64_t next = block + 1;
  if ((p->rows && last) || next * BLOCK >= p->len_kv || !is_unpacked(p, next)) return false;
  return next < a->first || next >= a->last;
}

INLINE void fetch_ahead(ahead *a) {
  ahead_list *l = a->keys.row < a->keys.rows ? &a->keys : &a->queries;
  if (l->row == l->rows || (l == &a->queries && a->wait-- > 0)) return;
  for (int i = 0; i < a->each && l->row < l->rows; i++) {
    const flyi_fetch_part *part = l->part + l->turn;
    fetch_first_lines(part, l->row);
    if (l->row < part->count) fetch_row(row_of(part, l->row), part->bytes, false);
    if (++l->turn == l->parts) l->turn = 0, l->row++;
  }
}

#endif
