/* backward_queries.c: blocks of 64 queries: where their parts are, when they are ready, and whose turn it is to add to
 * their dQ.
 *
 * A block of queries meets the tiles of keys in its row of the block map in ascending order, whoever computes them. The
 * first tile of the row makes the queries ready (packing, LSE, delta); every tile adds to dQ when `turn` names it, and
 * passes the turn on to the next one. So every sum is the same for any number of threads, without atomic additions and
 * without a dQ for each thread. What is not in place in the caller's tensors has a place from the first tile to the
 * last; where dQ is not wanted there are no turns, and it keeps its place to the end of the phase. */
#include <string.h>

#include "backward.h"

enum {
  BEGIN_BLOCKS = 64, /* of 64 queries, at a time */
  DONE = -1,
  NOT_READY = -2 /* turns */
};

/* ---- places ------------------------------------------------------------------------------------------------------ */

flyi_queries flyi_queries_at(const flyi_backward *b, int64_t g, flyi_group group, int64_t head, int64_t block) {
  const fly_attention *c = &b->call->c;
  int64_t h = group.h + head, plane = g * b->group_heads + head, slot = plane * b->query_blocks + block;
  flyi_queries x = {.group = group, .h = h, .plane = plane, .slot = slot, .row = block * FLYI_BLOCK};
  x.first_row = flyi_start_of(c->geometry.cu_seqlens_q, group.b) + x.row;
  x.count = (int)flyi_min64(flyi_len_q(&c->geometry, group.b) - x.row, FLYI_BLOCK);
  bool whole = x.count == FLYI_BLOCK;
  x.q_in_place = b->q_in_place && whole, x.d_out_in_place = b->d_out_in_place && whole;
  x.d_q_in_place = b->d_q_in_place && whole;
  return x;
}

/* What is not in place is where the block's place is, the rest one a head. */
static void find_rows(const flyi_backward *b, flyi_queries *x) {
  const fly_attention *c = &b->call->c;
  int64_t place = b->place[x->slot];
  x->q = x->q_in_place ? (float *)flyi_plane_row(&c->q, x->group.b, x->h, x->first_row)
                       : b->q + (b->q_in_place ? x->plane : place) * FLYI_BLOCK * b->k_width;
  x->d_out = x->d_out_in_place ? (float *)flyi_plane_row(&c->d_out, x->group.b, x->h, x->first_row)
                               : b->d_out + (b->d_out_in_place ? x->plane : place) * FLYI_BLOCK * b->v_width;
  if (!c->d_q.data)
    x->d_q = NULL;
  else if (b->queries.repeats)
    x->d_q = flyi_side_sums(b, &b->queries, 0, x->group.b, x->h, x->row);
  else if (x->d_q_in_place)
    x->d_q = (float *)flyi_plane_row(&c->d_q, x->group.b, x->h, x->first_row);
  else
    x->d_q = b->d_q + (b->d_q_in_place ? x->plane : place) * FLYI_BLOCK * b->k_width;
}

/* The tile of the first block of keys, from `block` on, that a block of queries sees some of. */
static int next_tile(const flyi_backward *b, const flyi_queries *x, int64_t block) {
  const fly_run *runs;
  int64_t wide = b->map->info.tile_kv / FLYI_BLOCK, low = 0;
  int64_t blocks = flyi_blocks(flyi_len_kv(&b->call->c.geometry, x->group.b));
  int64_t count = fly_map_row(b->map, FLY_BY_QUERY, x->group.b, x->h, x->row / b->map->info.tile_q, &runs);
  for (int64_t high = count; low < high;) { /* the first run that ends behind `block` */
    int64_t middle = (low + high) / 2;
    if (((int64_t)runs[middle].first + runs[middle].count) * wide > block)
      high = middle;
    else
      low = middle + 1;
  }
  if (low >= count) return DONE;
  int64_t first = runs[low].first * wide;
  if (first < block) first = block;
  return first < blocks ? (int)(first / b->tile_blocks) : DONE;
}

/* ---- before a phase ---------------------------------------------------------------------------------------------- */

static int64_t begin_chunks(const flyi_backward *b) { return (b->query_blocks + BEGIN_BLOCKS - 1) / BEGIN_BLOCKS; }

int64_t flyi_queries_items(const flyi_backward *b) { return b->phase * b->group_heads * begin_chunks(b); }

void flyi_queries_begin(void *context, int64_t item, int worker) {
  (void)worker;
  const flyi_backward *b = context;
  int64_t chunks = begin_chunks(b), plane = item / chunks, first = item % chunks * BEGIN_BLOCKS;
  int64_t g = plane / b->group_heads;
  flyi_group group = flyi_group_of(b->call, b->group_heads, b->first + g);
  int64_t blocks = flyi_blocks(flyi_len_q(&b->call->c.geometry, group.b));
  for (int64_t block = first; block < flyi_min64(first + BEGIN_BLOCKS, blocks); block++) {
    flyi_queries x = flyi_queries_at(b, g, group, plane % b->group_heads, block);
    atomic_init(&b->turn[x.slot], NOT_READY);
    if (next_tile(b, &x, 0) == DONE) flyi_side_store(b, &b->queries, 0, group.b, x.h, x.row, x.count, NULL, 0);
  }
}

/* ---- with a tile of keys ----------------------------------------------------------------------------------------- */

static void pack(const flyi_backward *b, const flyi_queries *x) {
  const fly_attention *c = &b->call->c;
  const fly_geometry *geometry = &c->geometry;
  flyi_queries_cpu p = {
      .q_stride = c->q.stride[2],
      .out_stride = c->out.stride[2],
      .d_out_stride = c->d_out.stride[2],
      .lse_stride = c->lse.stride[2],
      .d_lse_stride = c->d_lse.stride[2],
      .q_rows = flyi_map_rows(&geometry->q_rows, x->group.b, x->h, x->first_row),
      .out_rows = flyi_map_rows(&c->out_rows, x->group.b, x->h, x->first_row),
      .count = x->count,
      .type = c->q.type,
      .dim = c->kernel->desc.head_dim,
      .value_dim = c->kernel->desc.value_dim,
      .scale = c->scale,
      .packed_q = x->q_in_place ? NULL : x->q,
      .packed_d_out = x->d_out_in_place ? NULL : x->d_out,
      .neg_lse = b->neg_lse + x->slot * FLYI_BLOCK,
      .neg_delta = b->neg_delta + x->slot * FLYI_BLOCK,
  };
  int64_t out_row = p.out_rows ? 0 : x->first_row;
  p.q = flyi_plane_row(&c->q, x->group.b, x->h, p.q_rows ? 0 : x->first_row);
  p.out = flyi_plane_row(&c->out, x->group.b, x->h, out_row);
  p.d_out = flyi_plane_row(&c->d_out, x->group.b, x->h, out_row);
  p.lse = (float *)flyi_plane_row(&c->lse, x->group.b, x->h, out_row);
  p.d_lse = c->d_lse.data ? (float *)flyi_plane_row(&c->d_lse, x->group.b, x->h, out_row) : NULL;
  b->special[x->slot] = b->code->pack_queries(&p) != 0;
}

/* The rows of the block that far ahead, which this worker may have to make ready soon. */
static void fetch_next(const flyi_backward *b, const flyi_queries *x, flyi_fetch_cpu *fetch) {
  const fly_attention *c = &b->call->c;
  int64_t ahead = b->tile_blocks * FLYI_BLOCK, row = x->row + ahead, first_row = x->first_row + ahead;
  int count = (int)flyi_min64(flyi_len_q(&c->geometry, x->group.b) - row, FLYI_BLOCK);
  const int32_t *rows = flyi_map_rows(&c->geometry.q_rows, x->group.b, x->h, first_row);
  const int32_t *out_rows = flyi_map_rows(&c->out_rows, x->group.b, x->h, first_row);
  flyi_fetch_add(fetch, &c->q, x->group.b, x->h, first_row, rows, count);
  flyi_fetch_add(fetch, &c->out, x->group.b, x->h, first_row, out_rows, count);
  flyi_fetch_add(fetch, &c->d_out, x->group.b, x->h, first_row, out_rows, count);
  if (out_rows) flyi_fetch_add(fetch, &c->lse, x->group.b, x->h, first_row, out_rows, count);
  if (b->d_q_in_place) flyi_fetch_add(fetch, &c->d_q, x->group.b, x->h, first_row, NULL, count);
}

void flyi_queries_fetch(const flyi_backward *b, flyi_queries *x, flyi_fetch_cpu *fetch) {
  if (atomic_load_explicit(&b->turn[x->slot], memory_order_acquire) == NOT_READY) return;
  find_rows(b, x);
  flyi_fetch_add_block(fetch, x->q, b->k_width);
  flyi_fetch_add_block(fetch, x->d_out, b->v_width);
  flyi_fetch_add_block(fetch, x->d_q, b->k_width);
}

/* Where the finished rows of dQ go, if this is their last tile. */
static void fetch_last(const flyi_backward *b, const flyi_queries *x, int tile, flyi_fetch_cpu *fetch) {
  const fly_attention *c = &b->call->c;
  const int32_t *rows = flyi_map_rows(&c->geometry.q_rows, x->group.b, x->h, x->first_row);
  if (!b->call->c.d_q.data || b->d_q_in_place || b->queries.repeats || b->queries.streams ||
      next_tile(b, x, (int64_t)(tile + 1) * b->tile_blocks) != DONE)
    return;
  flyi_fetch_add(fetch, &c->d_q, x->group.b, x->h, x->first_row, rows, x->count);
}

void flyi_queries_open(const flyi_backward *b, flyi_queries *x, int tile, flyi_fetch_cpu *fetch) {
  atomic_int *turn = &b->turn[x->slot];
  x->first = next_tile(b, x, 0) == tile;
  if (x->first) {
    fetch_next(b, x, fetch);
    b->place[x->slot] = flyi_place_take(b->places, b->after);
    find_rows(b, x);
    pack(b, x);
    atomic_store_explicit(turn, tile, memory_order_release);
  }
  fetch_last(b, x, tile, fetch);
  for (int i = 0; atomic_load_explicit(turn, memory_order_acquire) == NOT_READY; i++) flyi_pause(i);
  if (!x->first) find_rows(b, x);
}

void flyi_queries_add(const flyi_backward *b, const flyi_queries *x, int tile, const flyi_backward_cpu *pairs,
                      int count) {
  atomic_int *turn = &b->turn[x->slot];
  if (!x->d_q) return;
  for (int i = 0; atomic_load_explicit(turn, memory_order_acquire) != tile; i++) flyi_pause(i);
  bool adds = b->call->c.add_gradients && x->d_q_in_place && !b->queries.repeats; /* to what the caller's rows hold */
  if (x->first && !adds) memset(x->d_q, 0, sizeof(float) * FLYI_BLOCK * b->k_width);
  for (int i = 0; i < count; i++) b->code->add_queries(&pairs[i]);
  int next = next_tile(b, x, (int64_t)(tile + 1) * b->tile_blocks);
  if (next == DONE && !b->queries.repeats && !x->d_q_in_place)
    flyi_side_store(b, &b->queries, 0, x->group.b, x->h, x->row, x->count, x->d_q, b->k_width);
  if (next == DONE) flyi_place_give(b->places, b->after, b->place[x->slot]);
  atomic_store_explicit(turn, next, memory_order_release);
}
