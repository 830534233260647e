/* backward_tiles.c: the work of a backward call: each item takes a tile of keys, two or four blocks of 64,
 * through the queries that see it. dK and dV of the tile stay in a core's cache; dQ is added to in memory, in the order
 * of the tiles (backward_queries.c).
 *
 * Nobody waits for ever. Items are handed out in ascending order (flyi_parallel), and those of a group in ascending
 * order of their tiles (locate), so that an item waits only for items that were handed out before it: for the tile
 * that makes a block of queries ready, and for the tiles that add to its dQ earlier. Consider the earliest item that
 * is not done: everything it may wait for is done, and a thread has it, because each thread finishes an item before
 * it takes the next one. So it goes on, however few threads there are; with workers run one after the other, the
 * first one takes all items and never waits. */
#include <string.h>

#include "backward.h"

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
  bool far; /* the queries of a head do not stay in the cache until the next tile */
  key_block block[FLYI_TILE_BLOCKS];
  flyi_fetch_cpu *fetch; /* the worker's: what is left goes on with its next tile */
} tile;

/* ---- places ------------------------------------------------------------------------------------------------------ */

static int64_t carve(int64_t *used, int64_t bytes) {
  int64_t at = *used;
  *used += (bytes + 63) / 64 * 64;
  return at;
}

/* Where the parts of a block are in its scratch memory; returns their size. */
static int64_t place_block(const flyi_backward *b, key_block *x, char *base) {
  const fly_kernel_desc *d = &b->call->c.kernel->desc;
  int64_t used = 0, floats = sizeof(float) * FLYI_BLOCK;
  int64_t k = carve(&used, floats * d->head_dim), v = carve(&used, floats * d->value_dim);
  int64_t packed = carve(&used, floats * b->k_width), d_k = carve(&used, floats * b->k_width);
  int64_t d_v = carve(&used, floats * b->v_width), work = carve(&used, b->code->scratch_size);
  if (!base) return used;
  x->k_transposed = (float *)(base + k), x->v_transposed = (float *)(base + v);
  x->packed_k = (float *)(base + packed);
  x->d_k = (float *)(base + d_k), x->d_v = (float *)(base + d_v), x->work = base + work;
  return used;
}

int64_t flyi_backward_key_bytes(const flyi_backward *b) { return place_block(b, NULL, NULL); }

/* Item i of a phase. As many groups take turns as there are workers, so that they seldom wait for each other; within a
 * group, tiles ascend. */
static bool locate(const flyi_backward *b, int64_t item, tile *t) {
  int64_t together = flyi_min64(b->workers, b->phase), set = item / (together * b->key_tiles) * together;
  int64_t rest = item % (together * b->key_tiles), groups = flyi_min64(together, b->phase - set);
  const fly_geometry *g = &b->call->c.geometry;
  *t = (tile){.b = b, .g = set + rest % groups, .index = rest / groups};
  t->group = flyi_group_of(b->call, b->group_heads, b->first + t->g);
  int64_t len = flyi_len_kv(g, t->group.b), first = t->index * b->tile_blocks;
  t->count = (int)flyi_min64(flyi_blocks(len) - first, b->tile_blocks);
  for (int i = 0; i < t->count; i++) {
    key_block *x = &t->block[i];
    x->row = (first + i) * FLYI_BLOCK;
    x->first_row = flyi_start_of(g->cu_seqlens_kv, t->group.b) + x->row;
    x->count = (int)flyi_min64(len - x->row, FLYI_BLOCK);
  }
  return t->count > 0;
}

/* ---- pairs ------------------------------------------------------------------------------------------------------- */

static void pack_block(const flyi_backward *b, flyi_group group, key_block *x) {
  const fly_attention *c = &b->call->c;
  flyi_keys_cpu p = {
      .k_stride = c->k.stride[2],
      .v_stride = c->v.stride[2],
      .rows = flyi_map_rows(&c->geometry.kv_rows, group.b, group.h, x->first_row),
      .count = x->count,
      .type = c->k.type,
      .dim = c->kernel->desc.head_dim,
      .value_dim = c->kernel->desc.value_dim,
      .scale = c->scale,
      .natural = c->kernel->score != NULL,
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

/* The rows of the tile's own gradients, and of the tile that this worker may take next. */
static void fetch_tile(const flyi_backward *b, int64_t item, const tile *own, flyi_fetch_cpu *fetch) {
  const fly_attention *c = &b->call->c;
  tile next;
  bool more = item < b->phase * b->key_tiles && locate(b, item, &next);
  for (int i = 0; more && i < next.count; i++) {
    const key_block *x = &next.block[i];
    const int32_t *rows = flyi_map_rows(&c->geometry.kv_rows, next.group.b, next.group.h, x->first_row);
    flyi_fetch_add(fetch, &c->k, next.group.b, next.group.kv_head, x->first_row, rows, x->count);
    flyi_fetch_add(fetch, &c->v, next.group.b, next.group.kv_head, x->first_row, rows, x->count);
  }
  for (int i = 0; !b->keys.repeats && !b->keys.streams && i < own->count; i++) {
    const key_block *x = &own->block[i];
    const int32_t *rows = flyi_map_rows(&c->geometry.kv_rows, own->group.b, own->group.h, x->first_row);
    flyi_fetch_add(fetch, &c->d_k, own->group.b, own->group.kv_head, x->first_row, rows, x->count);
    flyi_fetch_add(fetch, &c->d_v, own->group.b, own->group.kv_head, x->first_row, rows, x->count);
  }
}

/* The next block of queries, from `block` on, that sees some of the keys; INT64_MAX: none. */
static int64_t next_queries(const flyi_backward *b, key_block *x, int64_t block) {
  int64_t tall = b->map->info.tile_q / FLYI_BLOCK;
  while (x->run < x->end && ((int64_t)x->run->first + x->run->count) * tall <= block) x->run++;
  if (x->run == x->end) return INT64_MAX;
  return x->run->first * tall > block ? x->run->first * tall : block;
}

/* The pairs of a block of queries and the tile's blocks that it sees some of. */
static void take_queries(tile *t, int64_t head, int64_t block) {
  const flyi_backward *b = t->b;
  const fly_attention *c = &b->call->c;
  flyi_backward_cpu pairs[FLYI_TILE_BLOCKS];
  flyi_queries x = flyi_queries_at(b, t->g, t->group, head, block);
  flyi_queries_open(b, &x, (int)t->index, t->fetch);
  int count = 0;
  for (int i = 0; i < t->count; i++) {
    key_block *keys = &t->block[i];
    if (next_queries(b, keys, block) != block) continue;
    pairs[count] = (flyi_backward_cpu){
        .q = x.q,
        .d_out = x.d_out,
        .q_stride = b->k_width,
        .d_out_stride = b->v_width,
        .neg_lse = b->neg_lse + x.slot * FLYI_BLOCK,
        .neg_delta = b->neg_delta + x.slot * FLYI_BLOCK,
        .k = keys->k,
        .k_stride = b->k_width,
        .k_transposed = keys->k_transposed,
        .v_transposed = keys->v_transposed,
        .d_q = x.d_q,
        .d_q_stride = b->k_width,
        .d_k = c->d_k.data ? keys->d_k : NULL,
        .d_v = c->d_v.data ? keys->d_v : NULL,
        .queries = x.count,
        .keys = keys->count,
        .dim = c->kernel->desc.head_dim,
        .value_dim = c->kernel->desc.value_dim,
        .scale = c->scale,
        .b = (int32_t)t->group.b,
        .h = (int32_t)x.h,
        .q0 = (int32_t)(x.row + c->geometry.q_offset),
        .kv0 = (int32_t)keys->row,
        .full = keys->run->kind == FLY_FULL,
        .special = b->special[x.slot] || keys->special,
        .tile = c->kernel->mask->code.tile,
        .args = b->map->args,
        .slope = c->kernel->score ? c->kernel->score->code.slope : NULL,
        .score_args = b->call->score_args,
        .scratch = keys->work,
        .fetch = t->fetch,
    };
    b->code->block(&pairs[count++]);
  }
  flyi_queries_add(b, &x, (int)t->index, pairs, count);
}

/* Q, dO and dQ of the next block of queries, where they are not in the cache since the last tile. */
static void fetch_queries(tile *t, int64_t head, int64_t block) {
  const flyi_backward *b = t->b;
  if (!t->far || block >= flyi_blocks(flyi_len_q(&b->call->c.geometry, t->group.b))) return;
  flyi_queries x = flyi_queries_at(b, t->g, t->group, head, block);
  flyi_queries_fetch(b, &x, t->fetch);
}

/* Blocks of a head's queries that a tile of keys is the first to see, if all tiles see alike many. */
static int64_t new_blocks(const tile *t) {
  const fly_geometry *g = &t->b->call->c.geometry;
  int64_t blocks = flyi_blocks(flyi_len_q(g, t->group.b)), keys = flyi_blocks(flyi_len_kv(g, t->group.b));
  return (blocks * t->count + keys - 1) / keys;
}

/* Whether Q, dO and dQ of so many blocks of queries stay in the cache until the next tile, and how many rows to ask for
 * at a time, so that all that a tile needs (Q, O, dO and dQ of its new queries, and LSE where a map scatters it; K, V
 * and their gradients) comes with its blocks, and no faster. Whole rows, because a count that changes from time to time
 * would cost more than it hides. */
static void plan_fetches(tile *t, int64_t query_blocks) {
  const flyi_backward *b = t->b;
  t->far = query_blocks * FLYI_BLOCK * (2 * b->k_width + b->v_width) * 4 > FLYI_CACHE_BYTES;
  int of_queries = 3 + (b->call->c.out_rows.rows != NULL) + (b->d_q_in_place || !b->queries.streams);
  int of_keys = b->keys.streams ? 2 : 4;
  int64_t blocks = of_queries * flyi_min64(new_blocks(t), query_blocks) + of_keys * t->count + (t->far ? 3 * query_blocks : 0);
  int64_t fetches = FLYI_FETCHES * t->count * query_blocks;
  t->fetch->rows = fetches ? 1 + (int)(FLYI_BLOCK * blocks / fetches) : 1;
  if (b->call->c.geometry.q_rows.rows && b->call->c.q.type != FLY_F32) t->fetch->rows *= 2; /* of half the bytes */
}

static void take_head(tile *t, int64_t head) {
  const flyi_backward *b = t->b;
  int64_t blocks = flyi_blocks(flyi_len_q(&b->call->c.geometry, t->group.b)), tiles = 0;
  for (int i = 0; i < t->count; i++) {
    key_block *x = &t->block[i];
    int64_t row = x->row / b->map->info.tile_kv;
    int64_t count = fly_map_row(b->map, FLY_BY_KEY, t->group.b, t->group.h + head, row, &x->run);
    x->end = x->run + (count > 0 ? count : 0);
    for (const fly_run *run = x->run; i == 0 && run < x->end; run++) tiles += run->count;
  }
  plan_fetches(t, tiles * b->map->info.tile_q / FLYI_BLOCK);
  for (int64_t block = 0;; block++) {
    int64_t next = INT64_MAX;
    for (int i = 0; i < t->count; i++) next = flyi_min64(next, next_queries(b, &t->block[i], block));
    if (next >= blocks) break;
    block = next;
    for (int i = 0; !t->packed && i < t->count; i++) pack_block(b, t->group, &t->block[i]);
    t->packed = true;
    fetch_queries(t, head, block + 1);
    take_queries(t, head, block);
  }
}

void flyi_backward_tile(void *context, int64_t item, int worker) {
  const flyi_backward *b = context;
  tile t;
  if (!locate(b, item, &t)) return;
  for (int i = 0; i < t.count; i++) {
    place_block(b, &t.block[i], b->scratch + worker * b->scratch_bytes + i * b->key_bytes);
    memset(t.block[i].d_k, 0, sizeof(float) * FLYI_BLOCK * b->k_width);
    memset(t.block[i].d_v, 0, sizeof(float) * FLYI_BLOCK * b->v_width);
  }
  t.fetch = &b->fetch[worker];
  fetch_tile(b, item + b->workers, &t, t.fetch);
  for (int64_t head = 0; head < b->group_heads; head++) take_head(&t, head);
  for (int i = 0; i < t.count; i++) {
    const key_block *x = &t.block[i];
    flyi_side_store(b, &b->keys, 0, t.group.b, t.group.h, x->row, x->count, x->d_k, b->k_width);
    flyi_side_store(b, &b->keys, 1, t.group.b, t.group.h, x->row, x->count, x->d_v, b->v_width);
  }
}
