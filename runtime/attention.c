/* attention.c: the forward call. Checks it, builds its map where none is given, then runs phases of three parallel
 * steps: in which order to work; packing keys, where workers would otherwise wait for each other; the attention of up
 * to 128 queries at a time, which packs what is not packed yet. Steps share nothing but the workspace, and an item's
 * result does not depend on who computes it. A call of few queries and many keys goes another way (split.c). */

#include <string.h>

#include "cuda.h"

enum { PACK_BLOCKS = 8 /* of 64 keys, at a time */ };

/* ---- the steps of a phase -------------------------------------------------------------------------------------- */

static void prepare_group(void *context, int64_t g, int worker) {
  (void)worker;
  flyi_schedule_group(context, g);
}

/* Keys and values of the phase's group g. */
_Static_assert(sizeof(atomic_int) == sizeof(int32_t), "kernels read places as 32-bit numbers");

static flyi_pack_cpu keys_of(const flyi_schedule *s, int64_t g, flyi_group group) {
  const fly_attention *c = &s->call->c;
  int64_t row = flyi_start_of(c->geometry.cu_seqlens_kv, group.b), at = g * s->key_blocks;
  const int32_t *rows = flyi_map_rows(&c->geometry.kv_rows, group.b, group.h, row);
  if (rows) row = 0;
  return (flyi_pack_cpu){
      .k = flyi_plane_row(&c->k, group.b, group.kv_head, row),
      .v = flyi_plane_row(&c->v, group.b, group.kv_head, row),
      .k_stride = c->k.stride[2],
      .v_stride = c->v.stride[2],
      .len_kv = flyi_len_kv(&c->geometry, group.b),
      .k_bytes = flyi_plane_bytes(&c->k),
      .v_bytes = flyi_plane_bytes(&c->v),
      .rows = rows,
      .type = c->k.type,
      .dim = c->kernel->desc.head_dim,
      .value_dim = c->kernel->desc.value_dim,
      .packed_k = s->k,
      .packed_v = s->v_floats ? s->v : NULL,
      .place = (const int32_t *)(s->place + at),
      .state = s->state + at,
  };
}

static int64_t pack_items(const flyi_schedule *s) { return (s->key_blocks + PACK_BLOCKS - 1) / PACK_BLOCKS; }

static void pack_keys(void *context, int64_t item, int worker) {
  (void)worker;
  const flyi_schedule *s = context;
  int64_t g = item / pack_items(s), first = item % pack_items(s) * PACK_BLOCKS;
  if (!s->ahead[g]) return;
  flyi_pack_cpu keys = keys_of(s, g, flyi_schedule_of(s, s->first + g));
  int64_t blocks = flyi_blocks(keys.len_kv);
  const atomic_int *users = s->users + g * (s->key_blocks + 1);
  for (int64_t block = first; block < flyi_min64(first + PACK_BLOCKS, blocks); block++) {
    if (!atomic_load_explicit(&users[block], memory_order_relaxed)) continue;
    flyi_schedule_claim_block(s, g, block);
    s->code->pack(&keys, block);
  }
}

/* The group whose items contain `item`: item_start ascends. */
static int64_t group_of_item(const flyi_schedule *s, int64_t count, int64_t item) {
  int64_t low = 0, high = count;
  while (high - low > 1) {
    int64_t middle = (low + high) / 2;
    if (s->item_start[middle] <= item)
      low = middle;
    else
      high = middle;
  }
  while (s->item_start[low + 1] <= item) low++; /* past empty groups */
  return low;
}

/* The queries' side of a launch. */
static void place_queries(const flyi_schedule *s, int64_t b, int64_t h, int64_t query, flyi_forward_cpu *f) {
  const fly_attention *c = &s->call->c;
  const fly_geometry *g = &c->geometry;
  int64_t row = flyi_start_of(g->cu_seqlens_q, b) + query;
  f->count = (int32_t)flyi_min64(flyi_len_q(g, b) - query, s->item_queries);
  f->q0 = (int32_t)(query + g->q_offset);
  f->b = (int32_t)b, f->h = (int32_t)h;
  f->q_rows = flyi_map_rows(&g->q_rows, b, h, row);
  f->q = flyi_plane_row(&c->q, b, h, f->q_rows ? 0 : row);
  f->q_stride = c->q.stride[2];
  f->out_rows = flyi_map_rows(&c->out_rows, b, h, row);
  f->out = flyi_plane_row(&c->out, b, h, f->out_rows ? 0 : row);
  f->out_stride = c->out.stride[2];
  f->lse = c->lse.data ? (float *)flyi_plane_row(&c->lse, b, h, f->out_rows ? 0 : row) : NULL;
  f->lse_stride = c->lse.stride[2];
}

typedef struct phase {
  const flyi_schedule *schedule;
  int64_t groups;
} phase;

/* Where an item's queries are. */
typedef struct position {
  int64_t g, h, query; /* group of the phase, query head, row of the entry */
  flyi_group group;
} position;

static position position_of(const phase *p, int64_t item) {
  const flyi_schedule *s = p->schedule;
  int64_t g = group_of_item(s, p->groups, item);
  flyi_group group = flyi_schedule_of(s, s->first + g);
  flyi_item at = s->items[g * s->group_heads * s->query_blocks + item - s->item_start[g]];
  return (position){g, group.h + at.head, at.index * s->item_queries, group};
}

/* Items are taken in turn: the queries that this worker most likely takes next. */
static void place_next(const phase *p, int64_t item, flyi_forward_cpu *f) {
  const flyi_schedule *s = p->schedule;
  item += s->workers;
  if (item >= s->item_start[p->groups]) return;
  position next = position_of(p, item);
  flyi_forward_cpu of_next;
  place_queries(s, next.group.b, next.h, next.query, &of_next);
  f->next_q = of_next.q, f->next_rows = of_next.q_rows, f->next_count = of_next.count;
  f->next_out = of_next.out;
}

/* What comes after an item's rows of out finds all that it needs near. */
static void forward_and_after(const flyi_schedule *s, position at, flyi_forward_cpu *f, int worker) {
  const int32_t *starts = s->call->c.geometry.cu_seqlens_q;
  int64_t b = starts ? 0 : at.group.b, row = flyi_start_of(starts, at.group.b) + at.query;
  flyi_beside_cpu beside[FLYI_BESIDE];
  f->beside = beside, f->beside_count = s->after->beside(s->after->context, b, at.h, row, f->count, beside);
  s->code->forward(f);
  s->after->rows(s->after->context, b, at.h, row, f->count, worker);
}

static void attend(void *context, int64_t item, int worker) {
  const phase *p = context;
  const flyi_schedule *s = p->schedule;
  const fly_attention *c = &s->call->c;
  position at = position_of(p, item);
  flyi_group group = at.group;
  int64_t g = at.g, h = at.h, query = at.query;
  flyi_pack_cpu keys = keys_of(s, g, group);
  flyi_forward_cpu f = {
      .type = c->q.type,
      .out_type = c->out.type,
      .dim = c->kernel->desc.head_dim,
      .value_dim = c->kernel->desc.value_dim,
      .scale = c->kernel->score ? c->scale : c->scale * 1.44269504f,
      .keys = &keys,
      .v = keys.packed_v ? keys.packed_v : keys.v,
      .v_stride = s->v_floats ? s->v_floats / FLYI_BLOCK : c->v.stride[2],
      .run_blocks = (int32_t)(s->map->info.tile_kv / FLYI_BLOCK),
      .tile = c->kernel->mask->code.tile,
      .args = s->map->args,
      .score = c->kernel->score ? c->kernel->score->code.score : NULL,
      .score_args = s->call->score_args,
      .sink = c->sink.data ? (const float *)flyi_plane_row(&c->sink, 0, h, 0) : NULL,
      .scratch = s->scratch + worker * s->scratch_bytes,
      .stream = s->streams,
      .q_bytes = flyi_plane_bytes(&c->q),
      .out_bytes = flyi_plane_bytes(&c->out),
  };
  place_queries(s, group.b, h, query, &f);
  place_next(p, item, &f);
  f.run_count = flyi_schedule_runs(s, group.b, h, query, &f.runs);
  int64_t blocks = flyi_blocks(keys.len_kv);
  flyi_schedule_claim_runs(s, g, f.runs, f.run_count, blocks);
  if (s->after)
    forward_and_after(s, at, &f, worker);
  else
    s->code->forward(&f);
  flyi_schedule_done(s, g, f.runs, f.run_count, blocks);
}

static void run_phase(flyi_schedule *s, int64_t groups) {
  flyi_places_init(s->places);
  flyi_parallel(&s->threads, groups, prepare_group, s);
  int64_t items = 0;
  for (int64_t g = 0; g < groups; g++) {
    int64_t count = s->item_start[g];
    s->item_start[g] = items;
    items += count;
  }
  s->item_start[groups] = items;
  if (s->workers > 1) flyi_parallel(&s->threads, groups * pack_items(s), pack_keys, s);
  flyi_parallel(&s->threads, items, attend, &(phase){s, groups});
}

/* ---- entry ----------------------------------------------------------------------------------------------------- */

fly_status fly_attention_forward(const fly_attention *attention, fly_error *error) {
  return flyi_attention_forward(attention, NULL, error);
}

static void run_schedule(flyi_schedule *s, const fly_map *map, void *workspace) {
  flyi_schedule_use_map(s, map);
  flyi_schedule_cut(s, workspace);
  for (s->first = 0; s->first < s->groups; s->first += s->phase_groups)
    run_phase(s, flyi_min64(s->phase_groups, s->groups - s->first));
}

/* One of two ways: by tiles of queries, or by ranges of keys. */
typedef struct plan {
  bool splits;
  flyi_schedule schedule;
  flyi_split split;
  int64_t bytes;
} plan;

static void make_plan(plan *p, const flyi_call *call, const flyi_after *after) {
  p->splits = flyi_split_suits(call);
  if (p->splits) {
    flyi_split_plan(&p->split, call);
    p->split.after = after;
  } else {
    flyi_schedule_plan(&p->schedule, call);
    p->schedule.after = after;
  }
  p->bytes = p->splits ? p->split.bytes : p->schedule.bytes;
}

fly_status flyi_attention_forward(const fly_attention *attention, const flyi_after *after, fly_error *error) {
  flyi_call call;
  plan p;
  fly_map *map = NULL;
  void *memory = NULL, *workspace;
  fly_status status = flyi_call_check(attention, &call, error);
  if (status) return status;
  if (call.c.kernel->cuda_target[0]) return flyi_cuda_forward(&call, error);
  if ((status = flyi_sizes_check(&call.c, &call.sizes, error))) return status;
  make_plan(&p, &call, after);
  if ((status = flyi_workspace_check(&call.c, p.bytes, error))) return status;
  if (!call.c.geometry.batch || !call.c.geometry.heads || !call.domain.max_q) return FLY_OK;
  if (!call.c.map && (status = flyi_call_map(&call, &map, error))) goto done;
  if ((status = flyi_call_score(&call, error))) goto done;
  workspace = call.c.workspace;
  if (!workspace && !(workspace = memory = flyi_workspace_take(p.bytes))) {
    status = flyi_no_memory(error);
    goto done;
  }
  if (p.splits) {
    p.split.map = map ? map : call.c.map;
    flyi_split_run(&p.split, workspace);
  } else {
    run_schedule(&p.schedule, map ? map : call.c.map, workspace);
  }
done:
  flyi_mask_args_free(call.score_args);
  flyi_workspace_give(memory);
  fly_map_release(&map);
  return status;
}

fly_status fly_attention_workspace(const fly_attention *attention, size_t *bytes, fly_error *error) {
  flyi_call call;
  plan p;
  if (!bytes) return flyi_fail(error, FLY_ERROR_ARGUMENT, "bytes is NULL");
  *bytes = 0;
  fly_status status = flyi_call_check(attention, &call, error);
  if (status) return status;
  if (call.c.kernel->cuda_target[0]) return flyi_cuda_workspace(&call, false, bytes, error);
  if ((status = flyi_sizes_check(&call.c, &call.sizes, error))) return status;
  make_plan(&p, &call, NULL);
  *bytes = (size_t)p.bytes;
  return FLY_OK;
}

static fly_status find_sizes(const fly_attention *attention, fly_cpu_sizes *out, fly_error *error) {
  flyi_call call;
  flyi_schedule s;
  fly_status status = flyi_call_check(attention, &call, error);
  if (status) return status;
  if (call.c.kernel->cuda_target[0])
    return flyi_fail(error, FLY_ERROR_UNSUPPORTED, "the kernel is a GPU's: sizes are those of calls on a CPU");
  if ((status = flyi_sizes_check(&call.c, &call.sizes, error))) return status;
  flyi_schedule_plan(&s, &call);
  if (call.c.map) flyi_schedule_use_map(&s, call.c.map);
  *out = s.sizes;
  return FLY_OK;
}

fly_status fly_attention_sizes(const fly_attention *attention, fly_cpu_sizes *out, fly_error *error) {
  if (!out) return flyi_fail(error, FLY_ERROR_ARGUMENT, "out is NULL");
  fly_cpu_sizes found = {0}; /* *out may be the call's own */
  size_t room = out->size;
  if (room < sizeof room)
    return flyi_fail(error, FLY_ERROR_ARGUMENT, "out->size is %zu: set it with FLY_INIT(fly_cpu_sizes)", room);
  fly_status status = find_sizes(attention, &found, error);
  found.size = room;
  memset(out, 0, room);
  memcpy(out, &found, room < sizeof found ? room : sizeof found); /* the caller's version may be shorter than ours */
  return status;
}
