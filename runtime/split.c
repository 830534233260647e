/* split.c: the forward call of few queries and many keys, as when a model writes one token after the other. Input: a
 * checked call and its map. Two parallel steps: ranges of split_keys keys (sizes.c), each read once for all query heads
 * of its group; and the ranges' partial attentions joined, row by row, in ascending order. The ranges depend on the
 * number of keys alone, so that results are the same for any number of threads.
 *
 * Workspace: groups * ranges * rows * 4 (DV padded + 2) + workers * (64 * 4 * DV padded + 16 * 4 (D + DV padded) + 10
 * KiB) bytes, about, a group being a (batch entry, key/value head), rows its query heads times queries. */
#include "call.h"

enum { FEWEST_KEYS = 512 /* below, keys are packed for a tile of queries in the usual way */ };

bool flyi_split_suits(const flyi_call *call) {
  if (call->c.kernel->score || call->c.sink.data) return false; /* what the ranges' kernel does not know */
  return flyi_group_heads(call) * call->domain.max_q <= FLYI_SPLIT_ROWS && call->domain.max_kv >= FEWEST_KEYS;
}

static int64_t carve(int64_t *used, int64_t bytes) {
  int64_t at = *used;
  *used += (bytes + 63) / 64 * 64;
  return at;
}

/* Cuts the workspace, or only measures it where it is null. */
static void place(flyi_split *s, char *workspace) {
  int64_t used = 0, rows = s->groups * s->ranges * s->rows;
  int64_t out = carve(&used, rows * s->width * 4), state = carve(&used, rows * 2 * 4);
  int64_t scratch = carve(&used, s->workers * s->scratch_bytes);
  s->bytes = used;
  if (!workspace) return;
  s->out = (float *)(workspace + out), s->state = (float *)(workspace + state), s->scratch = workspace + scratch;
}

void flyi_split_plan(flyi_split *s, const flyi_call *call) {
  const fly_attention *c = &call->c;
  const fly_kernel_desc *d = &c->kernel->desc;
  *s = (flyi_split){.call = call, .code = flyi_split_code_of(c->kernel->isa, d->type)};
  s->threads = (flyi_threads){c->threads, c->parallel_for, c->parallel_user};
  s->group_heads = flyi_group_heads(call);
  s->groups = c->geometry.batch * (c->geometry.heads / s->group_heads);
  fly_cpu_sizes sizes = call->sizes;
  flyi_sizes_complete(&sizes, FLYI_BLOCK, 0, 1);
  s->range_keys = sizes.split_keys;
  s->ranges = (call->domain.max_kv + s->range_keys - 1) / s->range_keys;
  s->rows = s->group_heads * call->domain.max_q;
  s->width = (d->value_dim + s->code->lanes - 1) / s->code->lanes * s->code->lanes;
  s->workers = flyi_worker_count(&s->threads,
                                 flyi_worth_sharing(call, d->head_dim + d->value_dim, s->groups * s->ranges));
  s->threads.limit = s->workers; /* fixed for the call, whatever OpenMP's default becomes */
  s->scratch_bytes = (s->code->scratch_size(d->head_dim, d->value_dim) + 63) / 64 * 64;
  place(s, NULL);
}

/* Where a range's results of a group are, in rows. */
static int64_t rows_at(const flyi_split *s, int64_t g, int64_t range) { return (g * s->ranges + range) * s->rows; }

/* V may be read where it is: whole vectors of f32. */
static bool is_in_place(const flyi_split *s) {
  const fly_attention *c = &s->call->c;
  return c->v.type == FLY_F32 && !c->geometry.kv_rows.rows && c->v.shape[3] % s->code->lanes == 0;
}

/* The queries' side of a group. */
static void place_queries(const flyi_split *s, flyi_group group, flyi_split_cpu *p) {
  const fly_attention *c = &s->call->c;
  int64_t row = flyi_start_of(c->geometry.cu_seqlens_q, group.b);
  for (int64_t head = 0; head < p->heads; head++) {
    const int32_t *rows = flyi_map_rows(&c->geometry.q_rows, group.b, group.h + head, row);
    for (int64_t i = 0; i < p->queries; i++)
      p->q[head * p->queries + i] = flyi_plane_row(&c->q, group.b, group.h + head, rows ? rows[i] : row + i);
    int64_t count = fly_map_row(s->map, FLY_BY_QUERY, group.b, group.h + head, 0, &p->runs[head]);
    p->run_count[head] = count < 0 ? 0 : count;
  }
}

/* The keys' side. */
static void place_keys(const flyi_split *s, flyi_group group, flyi_split_cpu *p) {
  const fly_attention *c = &s->call->c;
  int64_t row = flyi_start_of(c->geometry.cu_seqlens_kv, group.b);
  p->rows = flyi_map_rows(&c->geometry.kv_rows, group.b, group.h, row);
  p->k = flyi_plane_row(&c->k, group.b, group.kv_head, p->rows ? 0 : row);
  p->v = flyi_plane_row(&c->v, group.b, group.kv_head, p->rows ? 0 : row);
  p->k_stride = c->k.stride[2], p->v_stride = c->v.stride[2];
}

static void attend(void *context, int64_t item, int worker) {
  const flyi_split *s = context;
  const fly_attention *c = &s->call->c;
  int64_t g = item / s->ranges, range = item % s->ranges;
  flyi_group group = flyi_group_of(s->call, s->group_heads, g);
  int64_t len_kv = flyi_len_kv(&c->geometry, group.b), first = range * s->range_keys;
  flyi_split_cpu p = {
      .heads = (int32_t)s->group_heads,
      .queries = (int32_t)flyi_len_q(&c->geometry, group.b),
      .type = c->q.type,
      .dim = c->kernel->desc.head_dim,
      .value_dim = c->kernel->desc.value_dim,
      .scale = c->scale * 1.44269504f,
      .b = (int32_t)group.b,
      .h = (int32_t)group.h,
      .q0 = (int32_t)c->geometry.q_offset,
      .first = first,
      .last = flyi_min64(first + s->range_keys, len_kv),
      .len_kv = len_kv,
      .run_blocks = (int32_t)(s->map->info.tile_kv / FLYI_BLOCK),
      .one_mask = s->map->info.heads == 1,
      .in_place = is_in_place(s),
      .tile = c->kernel->mask->code.tile,
      .args = s->map->args,
      .scratch = s->scratch + worker * s->scratch_bytes,
      .out = s->out + rows_at(s, g, range) * s->width,
      .state = s->state + rows_at(s, g, range) * 2,
  };
  if (first >= len_kv || !p.queries) return;
  place_queries(s, group, &p);
  place_keys(s, group, &p);
  s->code->split(&p);
}

static void join_head(const flyi_split *s, flyi_group group, int64_t g, int64_t head, int64_t queries) {
  const fly_attention *c = &s->call->c;
  int64_t h = group.h + head, row = flyi_start_of(c->geometry.cu_seqlens_q, group.b);
  const int32_t *rows = flyi_map_rows(&c->out_rows, group.b, h, row);
  int64_t keys = flyi_len_kv(&c->geometry, group.b);
  for (int64_t i = 0; i < queries; i++) {
    int64_t at = rows_at(s, g, 0) + head * queries + i, to = rows ? rows[i] : row + i;
    flyi_join_cpu join = {
        .out = s->out + at * s->width,
        .state = s->state + at * 2,
        .out_step = s->rows * s->width,
        .state_step = s->rows * 2,
        .count = (keys + s->range_keys - 1) / s->range_keys,
        .to = flyi_plane_row(&c->out, group.b, h, to),
        .lse = c->lse.data ? (float *)flyi_plane_row(&c->lse, group.b, h, to) : NULL,
        .type = c->out.type,
        .value_dim = c->kernel->desc.value_dim,
    };
    s->code->join(&join);
  }
}

static void join(void *context, int64_t g, int worker) {
  const flyi_split *s = context;
  const fly_geometry *geometry = &s->call->c.geometry;
  flyi_group group = flyi_group_of(s->call, s->group_heads, g);
  int64_t queries = flyi_len_q(geometry, group.b), row = flyi_start_of(geometry->cu_seqlens_q, group.b);
  for (int64_t head = 0; queries && head < s->group_heads; head++) {
    join_head(s, group, g, head, queries);
    if (s->after)
      s->after->rows(s->after->context, geometry->cu_seqlens_q ? 0 : group.b, group.h + head, row, queries, worker);
  }
}

void flyi_split_run(flyi_split *s, void *workspace) {
  place(s, workspace);
  flyi_parallel(&s->threads, s->groups * s->ranges, attend, s);
  flyi_parallel(&s->threads, s->groups, join, s);
}
