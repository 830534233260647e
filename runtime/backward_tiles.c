/* backward_tiles.c: the work of a backward call. Queries are made ready first, 64 at a time; then each item takes a tile of keys
 * through the queries that see it: dK and dV of the tile stay in a core's cache, dQ is added to in memory.
 *
 * The order of additions to the dQ of a block of queries is that of the tiles, whoever computes them: `turn` names the tile that
 * may add next, and whoever has added passes it on to the next one in the block's row of the map. So every sum is the same for
 * any number of threads, without atomic additions and without a dQ for each thread.
 *
 * Nobody waits for ever. Items are handed out in ascending order (flyi_parallel), and those of a group in ascending order of
 * their tiles (locate), so that an item waits only for items that were handed out before it. Consider the earliest item that is
 * not done: everything it may wait for is done, and a thread has it, because each thread finishes an item before it takes the
 * next one. So it goes on, however few threads there are; with workers run one after the other, the first one takes all items
 * and never waits. */
#include <sched.h>
#include <string.h>

#include "backward.h"

enum { PREPARE_BLOCKS = 8 /* of 64 queries, at a time */, SPINS = 256 /* before the processor is offered to others */ };

static const fly_attention *call_of(const flyi_backward *b) { return &b->call->c; }

/* ---- blocks of queries ------------------------------------------------------------------------------------------------------ */

/* Where a block of queries is. */
typedef struct query_block {
  int64_t at, row, first_row; /* slot of the phase; row of the entry, and with its sequence's start */
  int count;
  float *q, *d_out, *d_q;
} query_block;

/* Block `block` of head `head` of the phase's group g. What is not in place has a slot for each block, the rest one a head. */
static query_block query_block_at(const flyi_backward *b, int64_t g, flyi_group group, int64_t head, int64_t block) {
  const fly_attention *c = call_of(b);
  int64_t h = group.h + head, plane = g * b->group_heads + head, slot = plane * b->query_blocks + block;
  query_block x = {.at = slot, .row = block * FLYI_BLOCK};
  x.first_row = flyi_start_of(c->geometry.cu_seqlens_q, group.b) + x.row;
  x.count = (int)flyi_min64(flyi_len_q(&c->geometry, group.b) - x.row, FLYI_BLOCK);
  bool whole = x.count == FLYI_BLOCK;
  x.q = b->q_in_place && whole ? (float *)flyi_plane_row(&c->q, group.b, h, x.first_row)
                               : b->q + (b->q_in_place ? plane : slot) * FLYI_BLOCK * b->k_width;
  x.d_out = b->d_out_in_place && whole ? (float *)flyi_plane_row(&c->d_out, group.b, h, x.first_row)
                                       : b->d_out + (b->d_out_in_place ? plane : slot) * FLYI_BLOCK * b->v_width;
  if (!c->d_q.data) x.d_q = NULL;
  else if (b->queries.repeats) x.d_q = flyi_side_sums(b, &b->queries, 0, group.b, h, x.row);
  else if (b->d_q_in_place && whole) x.d_q = (float *)flyi_plane_row(&c->d_q, group.b, h, x.first_row);
  else x.d_q = b->d_q + (b->d_q_in_place ? plane : slot) * FLYI_BLOCK * b->k_width;
  return x;
}

/* The tile of the first block of keys from `block` on that a block of queries sees something of; -1: none. */
static int next_tile(const flyi_backward *b, flyi_group group, int64_t h, int64_t row, int64_t block) {
  const fly_run *runs;
  int64_t wide = b->map->info.tile_kv / FLYI_BLOCK, blocks = flyi_blocks(flyi_len_kv(&call_of(b)->geometry, group.b));
  int64_t count = fly_map_row(b->map, FLY_BY_QUERY, group.b, h, row / b->map->info.tile_q, &runs), low = 0;
  for (int64_t high = count; low < high;) { /* the first run that ends behind `block` */
    int64_t middle = (low + high) / 2;
    if (((int64_t)runs[middle].first + runs[middle].count) * wide > block) high = middle;
    else low = middle + 1;
  }
  if (low >= count) return -1;
  int64_t first = runs[low].first * wide;
  if (first < block) first = block;
  return first < blocks ? (int)(first / b->tile_blocks) : -1;
}

/* dQ of a block is complete. */
static void store_queries(const flyi_backward *b, flyi_group group, int64_t h, const query_block *x, const float *sums) {
  if (!x->d_q || (sums && (b->queries.repeats || (b->d_q_in_place && x->count == FLYI_BLOCK)))) return;
  flyi_side_store(b, &b->queries, 0, group.b, h, x->row, x->count, sums, b->k_width);
}

static void prepare_block(const flyi_backward *b, int64_t g, flyi_group group, int64_t head, int64_t block) {
  const fly_attention *c = call_of(b);
  const fly_geometry *geometry = &c->geometry;
  int64_t h = group.h + head;
  query_block x = query_block_at(b, g, group, head, block);
  bool whole = x.count == FLYI_BLOCK;
  flyi_queries_cpu p = {
      .q_stride = c->q.stride[2],
      .out_stride = c->out.stride[2],
      .d_out_stride = c->d_out.stride[2],
      .lse_stride = c->lse.stride[2],
      .d_lse_stride = c->d_lse.stride[2],
      .q_rows = flyi_map_rows(&geometry->q_rows, group.b, h, x.first_row),
      .out_rows = flyi_map_rows(&c->out_rows, group.b, h, x.first_row),
      .count = x.count,
      .type = c->q.type,
      .dim = c->kernel->desc.head_dim,
      .value_dim = c->kernel->desc.value_dim,
      .scale = c->scale,
      .packed_q = b->q_in_place && whole ? NULL : x.q,
      .packed_d_out = b->d_out_in_place && whole ? NULL : x.d_out,
      .neg_lse = b->neg_lse + x.at * FLYI_BLOCK,
      .neg_delta = b->neg_delta + x.at * FLYI_BLOCK,
  };
  int64_t out_row = p.out_rows ? 0 : x.first_row;
  p.q = flyi_plane_row(&c->q, group.b, h, p.q_rows ? 0 : x.first_row);
  p.out = flyi_plane_row(&c->out, group.b, h, out_row);
  p.d_out = flyi_plane_row(&c->d_out, group.b, h, out_row);
  p.lse = (float *)flyi_plane_row(&c->lse, group.b, h, out_row);
  p.d_lse = c->d_lse.data ? (float *)flyi_plane_row(&c->d_lse, group.b, h, out_row) : NULL;
  b->special[x.at] = b->code->pack_queries(&p) != 0;
  int turn = next_tile(b, group, h, x.row, 0);
  atomic_init(&b->turn[x.at], turn);
  if (turn < 0) store_queries(b, group, h, &x, NULL);
}

static int64_t prepare_chunks(const flyi_backward *b) { return (b->query_blocks + PREPARE_BLOCKS - 1) / PREPARE_BLOCKS; }

int64_t flyi_backward_prepare_items(const flyi_backward *b) { return b->phase * b->group_heads * prepare_chunks(b); }

void flyi_backward_prepare(void *context, int64_t item, int worker) {
  (void)worker;
  const flyi_backward *b = context;
  int64_t chunks = prepare_chunks(b), plane = item / chunks, first = item % chunks * PREPARE_BLOCKS;
  int64_t g = plane / b->group_heads;
  flyi_group group = flyi_group_of(b->call, b->group_heads, b->first + g);
  int64_t blocks = flyi_blocks(flyi_len_q(&call_of(b)->geometry, group.b));
  for (int64_t block = first; block < flyi_min64(first + PREPARE_BLOCKS, blocks); block++)
    prepare_block(b, g, group, plane % b->group_heads, block);
}

/* ---- a tile of keys ---------------------------------------------------------------------------------------------------------- */

/* A block of 64 keys of the tile, and how far its row of the transposed map has been walked. */
typedef struct key_block {
  const fly_run *run, *end;
  int64_t row, first_row; /* of the entry, and with its sequence's start */
  int count;
  bool special;
  const float *k;
  float *k_transposed, *v_transposed, *packed_k, *d_k, *d_v;
  void *work;
} key_block;

typedef struct tile {
  const flyi_backward *b;
  flyi_group group;
  int64_t g, index; /* group of the phase, tile of keys */
  int count;
  bool packed;
  key_block block[FLYI_TILE_BLOCKS];
} tile;

static int64_t carve(int64_t *used, int64_t bytes) {
  int64_t at = *used;
  *used += (bytes + 63) / 64 * 64;
  return at;
}

/* Where the parts of a block are in its scratch memory; returns their size. */
static int64_t place_block(const flyi_backward *b, key_block *x, char *base) {
  const fly_kernel_desc *d = &call_of(b)->kernel->desc;
  int64_t used = 0, floats = sizeof(float) * FLYI_BLOCK;
  int64_t k = carve(&used, floats * d->head_dim), v = carve(&used, floats * d->value_dim);
  int64_t packed = carve(&used, floats * b->k_width), d_k = carve(&used, floats * b->k_width);
  int64_t d_v = carve(&used, floats * b->v_width), work = carve(&used, b->code->scratch_size);
  if (!base) return used;
  x->k_transposed = (float *)(base + k), x->v_transposed = (float *)(base + v), x->packed_k = (float *)(base + packed);
  x->d_k = (float *)(base + d_k), x->d_v = (float *)(base + d_v), x->work = base + work;
  return used;
}

int64_t flyi_backward_key_bytes(const flyi_backward *b) { return place_block(b, NULL, NULL); }

/* Item i of a phase. As many groups take turns as there are workers, so that they seldom wait for each other; within a group,
 * tiles ascend. */
static bool locate(const flyi_backward *b, int64_t item, tile *t) {
  int64_t together = flyi_min64(b->workers, b->phase), set = item / (together * b->key_tiles) * together;
  int64_t rest = item % (together * b->key_tiles), groups = flyi_min64(together, b->phase - set);
  t->b = b;
  t->g = set + rest % groups;
  t->index = rest / groups;
  t->group = flyi_group_of(b->call, b->group_heads, b->first + t->g);
  int64_t blocks = flyi_blocks(flyi_len_kv(&call_of(b)->geometry, t->group.b)) - t->index * b->tile_blocks;
  t->count = (int)flyi_min64(blocks, b->tile_blocks);
  return t->count > 0;
}

static void pack_block(const flyi_backward *b, flyi_group group, key_block *x) {
  const fly_attention *c = call_of(b);
  flyi_keys_cpu p = {
      .k_stride = c->k.stride[2],
      .v_stride = c->v.stride[2],
      .rows = flyi_map_rows(&c->geometry.kv_rows, group.b, group.h, x->first_row),
      .count = x->count,
      .type = c->k.type,
      .dim = c->kernel->desc.head_dim,
      .value_dim = c->kernel->desc.value_dim,
      .scale = c->scale,
      .k_transposed = x->k_transposed,
      .v_transposed = x->v_transposed,
      .packed_k = b->k_in_place ? NULL : x->packed_k,
  };
  int64_t row = p.rows ? 0 : x->first_row;
  p.k = flyi_plane_row(&c->k, group.b, group.kv_head, row);
  p.v = flyi_plane_row(&c->v, group.b, group.kv_head, row);
  x->k = b->k_in_place ? p.k : x->packed_k;
  x->special = b->code->pack_keys(&p) != 0;
}

/* The next block of queries, from `block` on, that sees some of the keys; INT64_MAX: none. */
static int64_t next_queries(const flyi_backward *b, key_block *x, int64_t block) {
  int64_t tall = b->map->info.tile_q / FLYI_BLOCK;
  while (x->run < x->end && ((int64_t)x->run->first + x->run->count) * tall <= block) x->run++;
  if (x->run == x->end) return INT64_MAX;
  return x->run->first * tall > block ? x->run->first * tall : block;
}

static void wait_turn(atomic_int *turn, int tile) {
  for (int i = 0; atomic_load_explicit(turn, memory_order_acquire) != tile; i++) {
    if (i >= SPINS) sched_yield();
    else __builtin_ia32_pause();
  }
}

/* Adds the tile's part to dQ of a block of queries when its turn comes, and passes the turn on. */
static void add_queries(const tile *t, int64_t h, const query_block *x, const flyi_backward_cpu *pairs, int count) {
  const flyi_backward *b = t->b;
  wait_turn(&b->turn[x->at], (int)t->index);
  if (next_tile(b, t->group, h, x->row, 0) == t->index) memset(x->d_q, 0, sizeof(float) * FLYI_BLOCK * b->k_width);
  for (int i = 0; i < count; i++) b->code->add_queries(&pairs[i]);
  int next = next_tile(b, t->group, h, x->row, (t->index + 1) * b->tile_blocks);
  if (next < 0) store_queries(b, t->group, h, x, x->d_q);
  atomic_store_explicit(&b->turn[x->at], next, memory_order_release);
}

/* The pairs of a block of queries and the tile's blocks that it sees some of. */
static void take_queries(tile *t, int64_t head, int64_t block) {
  const flyi_backward *b = t->b;
  const fly_attention *c = call_of(b);
  int64_t h = t->group.h + head;
  flyi_backward_cpu pairs[FLYI_TILE_BLOCKS];
  query_block x = query_block_at(b, t->g, t->group, head, block);
  int count = 0;
  for (int i = 0; i < t->count; i++) {
    key_block *keys = &t->block[i];
    if (next_queries(b, keys, block) != block) continue;
    pairs[count] = (flyi_backward_cpu){
        .q = x.q, .d_out = x.d_out, .q_stride = b->k_width, .d_out_stride = b->v_width,
        .neg_lse = b->neg_lse + x.at * FLYI_BLOCK, .neg_delta = b->neg_delta + x.at * FLYI_BLOCK,
        .k = keys->k, .k_stride = b->k_width, .k_transposed = keys->k_transposed, .v_transposed = keys->v_transposed,
        .d_q = x.d_q, .d_q_stride = b->k_width,
        .d_k = c->d_k.data ? keys->d_k : NULL, .d_v = c->d_v.data ? keys->d_v : NULL,
        .queries = x.count, .keys = keys->count, .dim = c->kernel->desc.head_dim, .value_dim = c->kernel->desc.value_dim,
        .b = (int32_t)t->group.b, .h = (int32_t)h, .q0 = (int32_t)(x.row + c->geometry.q_offset), .kv0 = (int32_t)keys->row,
        .full = keys->run->kind == FLY_FULL, .special = b->special[x.at] || keys->special,
        .tile = c->kernel->mask->code.tile, .args = b->map->args, .scratch = keys->work,
    };
    b->code->block(&pairs[count++]);
  }
  if (x.d_q) add_queries(t, h, &x, pairs, count);
}

static void take_head(tile *t, int64_t head) {
  const flyi_backward *b = t->b;
  int64_t blocks = flyi_blocks(flyi_len_q(&call_of(b)->geometry, t->group.b));
  for (int i = 0; i < t->count; i++) {
    key_block *x = &t->block[i];
    int64_t row = x->row / b->map->info.tile_kv;
    int64_t count = fly_map_row(b->map, FLY_BY_KEY, t->group.b, t->group.h + head, row, &x->run);
    x->end = x->run + (count > 0 ? count : 0);
  }
  for (int64_t block = 0;; block++) {
    int64_t next = INT64_MAX;
    for (int i = 0; i < t->count; i++) next = flyi_min64(next, next_queries(b, &t->block[i], block));
    if (next >= blocks) break;
    block = next;
    for (int i = 0; !t->packed && i < t->count; i++) pack_block(b, t->group, &t->block[i]);
    t->packed = true;
    take_queries(t, head, block);
  }
}

void flyi_backward_tile(void *context, int64_t item, int worker) {
  const flyi_backward *b = context;
  const fly_geometry *g = &call_of(b)->geometry;
  tile t = {0};
  if (!locate(b, item, &t)) return;
  for (int i = 0; i < t.count; i++) {
    key_block *x = &t.block[i];
    x->row = (t.index * b->tile_blocks + i) * FLYI_BLOCK;
    x->first_row = flyi_start_of(g->cu_seqlens_kv, t.group.b) + x->row;
    x->count = (int)flyi_min64(flyi_len_kv(g, t.group.b) - x->row, FLYI_BLOCK);
    place_block(b, x, b->scratch + worker * b->scratch_bytes + i * b->key_bytes);
    memset(x->d_k, 0, sizeof(float) * FLYI_BLOCK * b->k_width);
    memset(x->d_v, 0, sizeof(float) * FLYI_BLOCK * b->v_width);
  }
  for (int64_t head = 0; head < b->group_heads; head++) take_head(&t, head);
  for (int i = 0; i < t.count; i++) {
    const key_block *x = &t.block[i];
    flyi_side_store(b, &b->keys, 0, t.group.b, t.group.h, x->row, x->count, x->d_k, b->k_width);
    flyi_side_store(b, &b->keys, 1, t.group.b, t.group.h, x->row, x->count, x->d_v, b->v_width);
  }
}
