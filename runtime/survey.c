/* survey.c: from a map's mask and geometry to the planes that have to be surveyed. A dimension that the mask does
 * not read collapses to 1; of the (b, h) that remain, those with equal nodes and lengths share a plane. */
#include <stdlib.h>
#include <string.h>

#include "survey.h"

/* ---- which dimensions matter ------------------------------------------------------------------------------------- */

static bool lengths_differ(const fly_geometry *g) {
  for (int64_t b = 1; b < g->batch; b++)
    if (flyi_len_q(g, b) != flyi_len_q(g, 0) || flyi_len_kv(g, b) != flyi_len_kv(g, 0)) return true;
  return false;
}

static bool batch_matters(const fly_geometry *g, uint32_t reads) {
  bool packed = g->cu_seqlens_q != NULL; /* rows of different entries are different rows of the map */
  return reads & FLYI_READS_DIRECT_B || lengths_differ(g) ||
         (reads & FLYI_READS_TOKEN_Q && g->q_rows.rows && (g->q_rows.stride_batch || packed)) ||
         (reads & FLYI_READS_TOKEN_KV && g->kv_rows.rows && (g->kv_rows.stride_batch || packed));
}

static bool heads_matter(const fly_geometry *g, uint32_t reads) {
  return reads & FLYI_READS_DIRECT_H || (reads & FLYI_READS_TOKEN_Q && g->q_rows.rows && g->q_rows.stride_head) ||
         (reads & FLYI_READS_TOKEN_KV && g->kv_rows.rows && g->kv_rows.stride_head);
}

/* ---- decoding ---------------------------------------------------------------------------------------------------- */

typedef struct decoding {
  const fly_map *map;
  flyi_plan *plan;
  atomic_bool failed;
} decoding;

static bool has_tiles(const fly_geometry *g, int64_t b) { return flyi_len_q(g, b) > 0 && flyi_len_kv(g, b) > 0; }

static void decode_plane(void *context, int64_t item, int worker) {
  (void)worker;
  decoding *d = context;
  const fly_map *map = d->map;
  int64_t b = item / map->info.heads, h = item % map->info.heads;
  if (has_tiles(&map->geometry, b) &&
      flyi_decode(&d->plan->program, map->bound, &map->geometry, b, h, &d->plan->arrays, &d->plan->nodes[item], NULL))
    d->failed = true;
}

flyi_survey flyi_survey_of(const fly_map *map, int64_t b, int64_t h, const flyi_nodes *nodes) {
  const fly_geometry *g = &map->geometry;
  flyi_survey s = {.args = map->args, .tile = map->tile, .b = (int32_t)b, .h = (int32_t)h};
  s.nodes = nodes && nodes->count ? nodes : NULL;
  s.q_offset = g->q_offset, s.len_q = flyi_len_q(g, b), s.len_kv = flyi_len_kv(g, b);
  s.tile_q = map->info.tile_q, s.tile_kv = map->info.tile_kv;
  s.rows = (int32_t)((s.len_q + s.tile_q - 1) / s.tile_q),
  s.columns = (int32_t)((s.len_kv + s.tile_kv - 1) / s.tile_kv);
  return s;
}

/* ---- sharing ----------------------------------------------------------------------------------------------------- */

/* What is unknown may depend on b and h. */
static bool same_plane(const flyi_survey *a, const flyi_survey *b) {
  if (a->len_q != b->len_q || a->len_kv != b->len_kv) return false;
  if (!a->nodes || !b->nodes) return a->nodes == b->nodes;
  return !a->nodes->unknown && flyi_nodes_equal(a->nodes, b->nodes);
}

/* Gives each (b, h) its plane, in the order in which they first occur. A hash table: entries are planes + 1. */
static bool share_planes(fly_map *map, flyi_plan *plan, bool fast, int64_t until) {
  uint64_t slots = 16;
  while ((int64_t)slots < 2 * plan->planes) slots *= 2;
  int32_t *table = flyi_alloc(slots, sizeof *table);
  if (!table) return false;
  for (int64_t item = 0; item < plan->planes; item++) {
    flyi_survey s = flyi_survey_of(map, item / map->info.heads, item % map->info.heads, &plan->nodes[item]);
    s.fast = fast, s.until = until;
    uint64_t at = (uint64_t)s.len_q * 31 + (uint64_t)s.len_kv + (s.nodes ? flyi_nodes_hash(s.nodes).low : 0);
    while (table[at & (slots - 1)] && !same_plane(&s, &plan->survey[table[at & (slots - 1)] - 1])) at++;
    int32_t *slot = &table[at & (slots - 1)];
    if (!*slot) {
      plan->survey[map->plane_count] = s;
      *slot = ++map->plane_count;
    }
    map->plane_of[item] = *slot - 1;
  }
  free(table);
  return true;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

fly_status flyi_plan_create(fly_map *map, bool fast, int64_t until, const flyi_threads *threads, flyi_plan *plan,
                            fly_error *error) {
  const fly_geometry *g = &map->geometry;
  const fly_mask *mask = map->bound->mask;
  *plan = (flyi_plan){0};
  fly_status status = flyi_program_parse(mask->image.program, &mask->image, &plan->program, error);
  if (status) return status;
  uint32_t reads = plan->program.reads;
  map->info.batch = g->batch > 1 && !batch_matters(g, reads) ? 1 : g->batch;
  map->info.heads = g->heads > 1 && !heads_matter(g, reads) ? 1 : g->heads;
  plan->planes = map->info.batch * map->info.heads;
  plan->nodes = flyi_alloc(plan->planes, sizeof *plan->nodes);
  plan->survey = flyi_alloc(plan->planes, sizeof *plan->survey);
  map->plane_of = flyi_alloc(plan->planes, sizeof *map->plane_of);
  if (!plan->nodes || !plan->survey || !map->plane_of) return flyi_no_memory(error);
  decoding d = {.map = map, .plan = plan};
  flyi_parallel(threads, plan->planes, decode_plane, &d);
  if (d.failed || !share_planes(map, plan, fast, until)) return flyi_no_memory(error);
  return FLY_OK;
}

void flyi_plan_free(flyi_plan *plan) {
  for (int64_t i = 0; plan->nodes && i < plan->planes; i++) flyi_nodes_free(&plan->nodes[i]);
  free(plan->nodes), free(plan->survey);
  flyi_arrays_free(&plan->arrays);
  flyi_program_free(&plan->program);
  *plan = (flyi_plan){0};
}
