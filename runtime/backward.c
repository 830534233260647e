/* backward.c: the backward call. Checks it, plans its workspace, builds its map where none is given, then runs phases
 * of two parallel steps: queries made ready, and tiles of keys (backward_tiles.c); in the end the rows that are left
 * (backward_rows.c).
 *
 * Workspace. With m and n = the longest entry's queries and keys rounded up to 64, D and DV padded to the vectors'
 * lanes, a group = the query heads of a (batch entry, key/value head), or one query head where heads have key rows of
 * their own:
 *
 *     groups of a phase * heads of a group * m * (4 (D + DV + D) + 8 + 13 / 64)    Q and dO as f32, dQ; LSE, delta
 *     + workers * 2 * (256 * (2 D + DV + D + DV) + 34 KiB)                         tiles of two blocks of 64 keys
 *
 * bytes, about, of which a window uses the same ones again and again where dQ is wanted; 72 KiB for bf16 that stays
 * bf16, and tiles of four blocks where these take no more than TILE_BYTES. Dense f32 tensors without row maps are used
 * where they are, and the terms 4 D, 4 DV, 4 D then vanish but for one block a head. Where rows repeat, their side
 * keeps all of the call's rows: batch * heads * m * (4 D + 8) for queries, groups * n * (4 (D + DV) + 8) for keys, and
 * both add 8 bytes for each row of their tensors; so does a tensor with rows that the call does not read. A phase has
 * as many groups as fit in 16 MiB a worker, and at least one for each worker, but fewer than 2^31 blocks of queries. */

#include <inttypes.h>
#include <string.h>

#include "backward.h"
#include "cuda.h"

enum {
  WORKER_BYTES = 16 << 20,
  FEW_BLOCKS = 2,        /* of 64 keys, of a tile; FLYI_TILE_BLOCKS where queries are far and it takes no more than */
  TILE_BYTES = 800 << 10 /* of a core's second-level cache */
};

/* ---- sizes ------------------------------------------------------------------------------------------------------- */

/* A part of the workspace, or only its size. */
static void *carve(void *workspace, int64_t *used, int64_t bytes) {
  char *at = workspace ? (char *)workspace + *used : NULL;
  *used += (bytes + 63) / 64 * 64;
  return at;
}

static void place_side(const flyi_backward *b, flyi_side *side, void *workspace, int64_t *used) {
  int64_t heads = b->groups * (side->queries ? b->group_heads : 1), rows = heads * side->blocks * FLYI_BLOCK;
  const fly_tensor *t = side->queries ? &b->call->c.q : &b->call->c.k;
  for (int i = 0; i < side->count; i++)
    side->sums[i] = carve(workspace, used, side->repeats && side->gradient[i]->data ? rows * side->width[i] * 4 : 0);
  side->next = carve(workspace, used, side->repeats ? rows * 8 : 0);
  side->first = carve(workspace, used, side->sweeps ? t->shape[0] * t->shape[1] * side->rows * 8 : 0);
}

static void place(flyi_backward *b, void *workspace) {
  int64_t used = 0, planes = b->phase_groups * b->group_heads, slots = planes * b->query_blocks;
  int64_t k_bytes = (int64_t)FLYI_BLOCK * b->k_width * 4, v_bytes = (int64_t)FLYI_BLOCK * b->v_width * 4;
  bool d_q = b->call->c.d_q.data && !b->queries.repeats;
  b->q = carve(workspace, &used, (b->q_in_place ? planes : slots) * k_bytes);
  b->d_out = carve(workspace, &used, (b->d_out_in_place ? planes : slots) * v_bytes);
  b->d_q = carve(workspace, &used, d_q ? (b->d_q_in_place ? planes : slots) * k_bytes : 0);
  b->neg_lse = carve(workspace, &used, slots * FLYI_BLOCK * 4);
  b->neg_delta = carve(workspace, &used, slots * FLYI_BLOCK * 4);
  b->places = carve(workspace, &used, (int64_t)sizeof *b->places);
  b->after = carve(workspace, &used, slots * (int64_t)sizeof *b->after);
  b->place = carve(workspace, &used, slots * (int64_t)sizeof *b->place);
  b->special = carve(workspace, &used, slots);
  b->turn = carve(workspace, &used, slots * (int64_t)sizeof *b->turn);
  b->scratch = carve(workspace, &used, b->workers * b->scratch_bytes);
  b->fetch = carve(workspace, &used, b->workers * (int64_t)sizeof *b->fetch);
  place_side(b, &b->queries, workspace, &used);
  place_side(b, &b->keys, workspace, &used);
  b->bytes = used;
}

static void plan_phases(flyi_backward *b) {
  int64_t all, one;
  b->phase_groups = 1, place(b, NULL), all = b->bytes;
  b->phase_groups = 2, place(b, NULL), one = b->bytes - all;
  int64_t groups = (int64_t)b->workers * WORKER_BYTES / (one > 0 ? one : 1);
  if (groups < b->workers) groups = b->workers;
  groups = flyi_min64(groups, flyi_max64(INT32_MAX / flyi_max64(b->group_heads * b->query_blocks, 1), 1));
  b->phase_groups = flyi_min64(groups, b->groups);
  place(b, NULL);
}

/* ---- tiles of keys ----------------------------------------------------------------------------------------------- */

static void set_tiles(flyi_backward *b, int blocks) {
  b->tile_blocks = blocks;
  b->key_tiles = (flyi_blocks(b->call->domain.max_kv) + blocks - 1) / blocks;
}

static bool fits_large_tiles(const flyi_backward *b) { return b->key_bytes * FLYI_TILE_BLOCKS <= TILE_BYTES; }

/* A tile of four blocks meets Q, dO and dQ half as often as one of two: worth its cache where these come from memory
 * each time, and where enough tiles are left to share. Sums have the same order either way. */
static void choose_tiles(flyi_backward *b) {
  const fly_map_info *m = &b->map->info;
  int64_t columns = m->batch * m->heads * m->tiles_kv, seen = m->tiles_full + m->tiles_partial;
  if (!columns || !fits_large_tiles(b)) return;
  if (seen * m->tile_q / columns * (2 * b->k_width + b->v_width) * 4 <= FLYI_CACHE_BYTES) return;
  if (b->groups * b->key_tiles < 8 * b->workers) return;
  set_tiles(b, FLYI_TILE_BLOCKS);
}

/* ---- the plan ---------------------------------------------------------------------------------------------------- */

static fly_status plan(flyi_backward *b, const flyi_call *call, fly_error *error) {
  const fly_attention *c = &call->c;
  const fly_kernel_desc *d = &c->kernel->desc;
  fly_status status;
  *b = (flyi_backward){.call = call, .map = c->map, .code = flyi_backward_code_of(c->kernel->isa, d->type)};
  int lanes = b->code->lanes;
  b->k_width = (d->head_dim + lanes - 1) / lanes * lanes, b->v_width = (d->value_dim + lanes - 1) / lanes * lanes;
  b->group_heads = flyi_group_heads(call);
  b->groups = c->geometry.batch * (c->geometry.heads / b->group_heads);
  b->query_blocks = flyi_blocks(call->domain.max_q);
  if (b->group_heads * b->query_blocks > INT32_MAX) /* places are 32-bit numbers */
    return flyi_fail(error, FLY_ERROR_UNSUPPORTED,
                     "%" PRId64 " heads with the same keys, of %" PRId64 " queries: the backward pass takes fewer than "
                     "2^31 blocks of 64",
                     b->group_heads, call->domain.max_q);
  set_tiles(b, FEW_BLOCKS);
  b->threads = (flyi_threads){c->threads, c->parallel_for, c->parallel_user};
  int products = 3 * d->head_dim + 2 * d->value_dim;
  b->workers = flyi_worker_count(&b->threads, flyi_worth_sharing(call, products, b->groups * b->key_tiles));
  b->threads.limit = b->workers; /* fixed for the call, whatever OpenMP's default becomes */
  b->q_in_place = flyi_in_place(&c->q, &c->geometry.q_rows, lanes);
  b->d_out_in_place = flyi_in_place(&c->d_out, &c->out_rows, lanes);
  b->k_in_place = flyi_in_place(&c->k, &c->geometry.kv_rows, lanes);
  b->d_q_in_place = flyi_in_place(&c->d_q, &c->geometry.q_rows, lanes);
  b->key_bytes = flyi_backward_key_bytes(b);
  b->scratch_bytes = b->key_bytes * (fits_large_tiles(b) ? FLYI_TILE_BLOCKS : FEW_BLOCKS);
  if ((status = flyi_side_plan(b, true, &b->queries, error)) || (status = flyi_side_plan(b, false, &b->keys, error)))
    return status;
  plan_phases(b);
  return FLY_OK;
}

/* ---- entry ------------------------------------------------------------------------------------------------------- */

static void run(flyi_backward *b) {
  memset(b->fetch, 0, sizeof *b->fetch * b->workers);
  for (b->first = 0; b->first < b->groups; b->first += b->phase_groups) {
    b->phase = flyi_min64(b->phase_groups, b->groups - b->first);
    flyi_places_init(b->places);
    flyi_parallel(&b->threads, flyi_queries_items(b), flyi_queries_begin, b);
    flyi_parallel(&b->threads, b->phase * b->key_tiles, flyi_backward_tile, b);
  }
  flyi_side_finish(b, &b->queries);
  flyi_side_finish(b, &b->keys);
  flyi_sink_gradient(b);
}

fly_status fly_attention_backward(const fly_attention *attention, fly_error *error) {
  flyi_call call;
  flyi_backward b;
  fly_map *map = NULL;
  void *memory = NULL, *workspace;
  fly_status status;
  if ((status = flyi_backward_check(attention, &call, error))) return status;
  if (call.c.kernel->cuda_target[0]) return flyi_cuda_backward(&call, error);
  if ((status = plan(&b, &call, error)) || (status = flyi_workspace_check(&call.c, b.bytes, error))) return status;
  if (!b.map) {
    if ((status = flyi_call_map(&call, &map, error))) goto done;
    b.map = map;
  }
  if ((status = flyi_call_score(&call, error))) goto done;
  /* The transposed order is a cache of the map, behind an atomic pointer. */
  if ((status = flyi_map_transpose((fly_map *)b.map, &b.threads, error))) goto done;
  workspace = call.c.workspace;
  if (!workspace && !(workspace = memory = flyi_workspace_take(b.bytes))) {
    status = flyi_no_memory(error);
    goto done;
  }
  place(&b, workspace);
  choose_tiles(&b);
  run(&b);
done:
  flyi_mask_args_free(call.score_args);
  flyi_workspace_give(memory);
  fly_map_release(&map);
  return status;
}

fly_status fly_attention_backward_workspace(const fly_attention *attention, size_t *bytes, fly_error *error) {
  flyi_call call;
  flyi_backward b;
  fly_status status;
  if (!bytes) return flyi_fail(error, FLY_ERROR_ARGUMENT, "bytes is NULL");
  *bytes = 0;
  if ((status = flyi_backward_check(attention, &call, error))) return status;
  if (call.c.kernel->cuda_target[0]) return flyi_cuda_workspace(&call, true, bytes, error);
  if ((status = plan(&b, &call, error))) return status;
  *bytes = (size_t)b.bytes;
  return FLY_OK;
}
