/* schedule.c: how a call is spread over threads and memory. Input: a checked call and its map. Output: the phases'
 * groups, the blocks of queries in an order that ends evenly, and for each block of keys how many of them see it and
 * where it is packed meanwhile.
 *
 * Workspace, with n = keys of the longest entry rounded up to 64, m = queries likewise, D and DV padded (launch.h):
 *
 *     groups a phase * (4 n (D + DV) + n / 5 + m / 8 * heads a group)  +  workers * (512 (D + DV) + 34 KiB)   bytes
 *
 * of which a window uses the same few places of keys again and again. A phase has as many groups as fit in the
 * phase_bytes of its workers (sizes.c), and at least one. */
#include <string.h>

#include "call.h"

enum {
  COST_CLASSES = 64,
  AHEAD_PART = 4 /* where an item sees this part of all keys, workers would wait for each other's packing */
};

static int64_t round_up(int64_t x, int64_t unit) { return (x + unit - 1) / unit * unit; }

/* ---- sizes ----------------------------------------------------------------------------------------------------- */

/* Cuts the workspace, or only measures it where s->k is to stay null. */
static int64_t carve(int64_t *used, int64_t bytes) {
  int64_t at = *used;
  *used += round_up(bytes, 64);
  return at;
}

void flyi_schedule_cut(flyi_schedule *s, void *workspace) {
  int64_t used = 0, n = s->phase_groups, keys = s->key_blocks;
  char *base = workspace;
  int64_t k = carve(&used, n * keys * s->k_floats * 4), v = carve(&used, n * keys * s->v_floats * 4);
  int64_t places = carve(&used, (int64_t)sizeof *s->places), after = carve(&used, n * keys * 4);
  int64_t place = carve(&used, n * keys * 4), users = carve(&used, n * (keys + 1) * 4), state = carve(&used, n * keys);
  int64_t ahead = carve(&used, n);
  int64_t items = carve(&used, n * s->group_heads * s->query_blocks * (int64_t)sizeof(flyi_item));
  int64_t starts = carve(&used, (n + 1) * 8), scratch = carve(&used, s->workers * s->scratch_bytes);
  s->bytes = used;
  if (!base) return;
  s->k = (float *)(base + k), s->v = (float *)(base + v);
  s->places = (flyi_places *)(base + places), s->next_place = (atomic_uint *)(base + after);
  s->place = (atomic_int *)(base + place), s->users = (atomic_int *)(base + users);
  s->state = (uint8_t *)(base + state), s->ahead = (uint8_t *)(base + ahead);
  s->items = (flyi_item *)(base + items), s->item_start = (int64_t *)(base + starts);
  s->scratch = base + scratch;
}

/* Items of 128 queries that there would be. */
static int64_t large_items(const flyi_schedule *s) {
  return s->groups * s->group_heads * ((s->query_blocks + 1) / 2);
}

void flyi_schedule_plan(flyi_schedule *s, const flyi_call *call) {
  const fly_attention *c = &call->c;
  const fly_kernel_desc *d = &c->kernel->desc;
  *s = (flyi_schedule){.call = call, .code = flyi_forward_code_of(c->kernel->isa, d->type)};
  s->threads = (flyi_threads){c->threads, c->parallel_for, c->parallel_user};
  s->group_heads = flyi_group_heads(call);
  s->groups = c->geometry.batch * (c->geometry.heads / s->group_heads);
  s->query_blocks = flyi_blocks(call->domain.max_q);
  s->key_blocks = flyi_blocks(call->domain.max_kv);
  int64_t items = s->groups * s->group_heads * s->query_blocks;
  s->workers = flyi_worker_count(&s->threads, flyi_worth_sharing(call, d->head_dim + d->value_dim, items));
  s->threads.limit = s->workers; /* fixed for the call, whatever OpenMP's default becomes */
  int64_t pair = s->code->pair;
  s->k_floats = round_up((d->head_dim + pair - 1) / pair, 4) * FLYI_BLOCK;
  s->v_floats = flyi_in_place(&c->v, &c->geometry.kv_rows, s->code->lanes)
                    ? 0
                    : round_up(d->value_dim, s->code->lanes) * (FLYI_BLOCK / pair);
  s->streams = c->out_rows.rows && (int32_t)c->out.type == s->code->stream_type && flyi_is_lines(&c->out) &&
               flyi_tensor_bytes(&c->out) > FLYI_STREAM_BYTES;
  s->scratch_bytes = round_up(s->code->scratch_size(d->head_dim, d->value_dim), 64);
  s->sizes = call->sizes;
  flyi_sizes_complete(&s->sizes, FLYI_ITEM_QUERIES, large_items(s), s->workers);
  int64_t group_bytes = s->key_blocks * (s->k_floats + s->v_floats) * 4, budget;
  if (__builtin_mul_overflow(s->sizes.phase_bytes, s->workers, &budget)) budget = INT64_MAX;
  s->phase_groups = group_bytes ? budget / group_bytes : s->groups;
  int64_t most = INT32_MAX / flyi_max64(s->key_blocks, 1); /* places are 32-bit numbers */
  s->phase_groups = flyi_min64(flyi_min64(s->phase_groups, most), s->groups);
  if (s->phase_groups < 1) s->phase_groups = 1;
  flyi_schedule_cut(s, NULL);
}

void flyi_schedule_use_map(flyi_schedule *s, const fly_map *map) {
  s->map = map;
  s->sizes = s->call->sizes;
  flyi_sizes_complete(&s->sizes, map->info.tile_q, large_items(s), s->workers);
  s->item_queries = s->sizes.item_queries;
}

/* ---- groups ---------------------------------------------------------------------------------------------------- */

flyi_group flyi_schedule_of(const flyi_schedule *s, int64_t g) { return flyi_group_of(s->call, s->group_heads, g); }

int64_t flyi_schedule_runs(const flyi_schedule *s, int64_t b, int64_t h, int64_t query, const fly_run **runs) {
  int64_t row = query / s->map->info.tile_q;
  int64_t count = fly_map_row(s->map, FLY_BY_QUERY, b, h, row, runs);
  return count < 0 ? 0 : count;
}

/* Tiles that an item sees; a partial one counts as a full one. */
static int64_t cost_of(const flyi_schedule *s, int64_t b, int64_t h, int64_t index) {
  const fly_run *runs;
  int64_t count = flyi_schedule_runs(s, b, h, index * s->item_queries, &runs), cost = 0;
  for (int64_t i = 0; i < count; i++) cost += runs[i].count;
  return cost;
}

static int class_of(int64_t cost, int64_t most) {
  return (int)((most - cost) * (COST_CLASSES - 1) / (most ? most : 1));
}

/* Counting sort by falling cost, stable: the heads of a group, and neighbours of equal cost, follow each other and find
 * the keys that they share in the cache. Returns the highest cost. */
static int64_t order_items(const flyi_schedule *s, flyi_group group, int64_t each, flyi_item *items) {
  int64_t most = 0, start[COST_CLASSES + 1] = {0};
  for (int64_t h = 0; h < s->group_heads; h++)
    for (int64_t i = 0; i < each; i++) {
      int64_t cost = cost_of(s, group.b, group.h + h, i);
      if (cost > most) most = cost;
    }
  for (int64_t h = 0; h < s->group_heads; h++)
    for (int64_t i = 0; i < each; i++) start[class_of(cost_of(s, group.b, group.h + h, i), most) + 1]++;
  for (int i = 0; i < COST_CLASSES; i++) start[i + 1] += start[i];
  for (int64_t i = 0; i < each; i++)
    for (int64_t h = 0; h < s->group_heads; h++)
      items[start[class_of(cost_of(s, group.b, group.h + h, i), most)]++] = (flyi_item){(int32_t)h, (int32_t)i};
  return most;
}

/* Before items run: nobody else looks. */
static void add_users(atomic_int *users, int count) {
  atomic_store_explicit(users, atomic_load_explicit(users, memory_order_relaxed) + count, memory_order_relaxed);
}

/* Blocks of keys [first, last) of a run. */
typedef struct block_range {
  int64_t first, last;
} block_range;

static block_range blocks_of(const flyi_schedule *s, fly_run run, int64_t blocks) {
  int64_t wide = s->map->info.tile_kv / FLYI_BLOCK, first = run.first * wide;
  return (block_range){flyi_min64(first, blocks), flyi_min64(first + run.count * wide, blocks)};
}

/* Counts each block's items: where runs begin and end, to be summed. */
static void count_users(const flyi_schedule *s, flyi_group group, int64_t each, int64_t blocks, atomic_int *users) {
  int sum = 0;
  for (int64_t i = 0; i <= blocks; i++) atomic_init(&users[i], 0);
  for (int64_t h = 0; h < s->group_heads; h++)
    for (int64_t index = 0; index < each; index++) {
      const fly_run *runs;
      int64_t count = flyi_schedule_runs(s, group.b, group.h + h, index * s->item_queries, &runs);
      for (int64_t i = 0; i < count; i++) {
        block_range range = blocks_of(s, runs[i], blocks);
        add_users(&users[range.first], 1), add_users(&users[range.last], -1);
      }
    }
  for (int64_t i = 0; i < blocks; i++) {
    sum += atomic_load_explicit(&users[i], memory_order_relaxed);
    atomic_store_explicit(&users[i], sum, memory_order_relaxed);
  }
}

void flyi_schedule_group(flyi_schedule *s, int64_t g) {
  const fly_geometry *geometry = &s->call->c.geometry;
  flyi_group group = flyi_schedule_of(s, s->first + g);
  int64_t queries = flyi_len_q(geometry, group.b), each = (queries + s->item_queries - 1) / s->item_queries;
  int64_t key_blocks = flyi_blocks(flyi_len_kv(geometry, group.b));
  int64_t most = order_items(s, group, each, s->items + g * s->group_heads * s->query_blocks);
  memset(s->state + g * s->key_blocks, FLYI_UNPACKED, (size_t)key_blocks);
  s->ahead[g] = s->workers > 1 && AHEAD_PART * most * s->map->info.tile_kv >= key_blocks * FLYI_BLOCK;
  count_users(s, group, each, key_blocks, s->users + g * (s->key_blocks + 1));
  for (int64_t i = 0; i < key_blocks; i++) atomic_init(&s->place[g * s->key_blocks + i], FLYI_NOWHERE);
  s->item_start[g] = each * s->group_heads;
}

/* ---- places of packed blocks ------------------------------------------------------------------------------------ */

/* Whoever claims the block takes a place, one for each block at most: there are no more of them. */
void flyi_schedule_claim_block(const flyi_schedule *s, int64_t g, int64_t block) {
  atomic_int *place = &s->place[g * s->key_blocks + block];
  int now = FLYI_NOWHERE;
  if (atomic_compare_exchange_strong_explicit(place, &now, FLYI_CLAIMED, memory_order_acquire, memory_order_acquire))
    atomic_store_explicit(place, flyi_place_take(s->places, s->next_place), memory_order_release);
  else
    for (int i = 0; atomic_load_explicit(place, memory_order_acquire) == FLYI_CLAIMED; i++) flyi_pause(i);
}

void flyi_schedule_claim_runs(const flyi_schedule *s, int64_t g, const fly_run *runs, int64_t count, int64_t blocks) {
  for (int64_t i = 0; i < count; i++) {
    block_range range = blocks_of(s, runs[i], blocks);
    for (int64_t block = range.first; block < range.last; block++) flyi_schedule_claim_block(s, g, block);
  }
}

void flyi_schedule_done(const flyi_schedule *s, int64_t g, const fly_run *runs, int64_t count, int64_t blocks) {
  for (int64_t i = 0; i < count; i++) {
    block_range range = blocks_of(s, runs[i], blocks);
    for (int64_t block = range.first; block < range.last; block++) {
      atomic_int *place = &s->place[g * s->key_blocks + block], *users = &s->users[g * (s->key_blocks + 1) + block];
      if (atomic_fetch_sub_explicit(users, 1, memory_order_acq_rel) == 1)
        flyi_place_give(s->places, s->next_place, atomic_load_explicit(place, memory_order_relaxed));
    }
  }
}
