/* blockmap.c: block maps: building one from a bound mask and a geometry, what it says of itself, its rows.
 *
 * Input: the mask program and code of a bound mask, and a geometry. Output: for each distinct (b, h) a plane of runs
 * of full and partial tiles. Work is spread by planes and bands of rows; the bands do not depend on the number of
 * threads, and runs are as long as they can be, so neither does the result. */
#include <stdlib.h>
#include <string.h>

#include "search.h"

/* Rows of tiles are built in so many bands at most, of this many rows at least. */
enum { BANDS = 32, BAND_ROWS = 64 };
enum { ALONE = 2000000 }; /* nanoseconds */
/* Of tiles in a row or column: what fly_run can count. */
static const int64_t tile_limit = (1 << 29) - 1;

/* ---- a copy of the geometry -------------------------------------------------------------------------------------- */

/* A row map packed to what it holds: one piece for each (b, h) along which it does not broadcast. */
static int64_t row_map_pieces(const fly_row_map *map, const fly_geometry *g) {
  return (map->stride_batch ? g->batch : 1) * (map->stride_head ? g->heads : 1);
}

static int32_t *copy_row_map(fly_row_map *map, const fly_geometry *g, int64_t length, int32_t *to) {
  int64_t batch = map->stride_batch ? g->batch : 1, heads = map->stride_head ? g->heads : 1;
  const int32_t *from = map->rows;
  for (int64_t b = 0; b < batch; b++)
    for (int64_t h = 0; h < heads; h++)
      memcpy(to + (b * heads + h) * length, from + b * map->stride_batch + h * map->stride_head, length * sizeof *to);
  map->rows = to;
  if (map->stride_head) map->stride_head = length;
  if (map->stride_batch) map->stride_batch = heads * length;
  return to + batch * heads * length;
}

/* Copies what the geometry points to into memory of the map. */
static fly_status copy_geometry(fly_map *map, const fly_geometry *geometry, fly_error *error) {
  fly_geometry *g = &map->geometry;
  *g = *geometry;
  int64_t cu = g->cu_seqlens_q ? g->batch + 1 : 0, q = cu ? g->cu_seqlens_q[g->batch] : g->len_q;
  int64_t kv = cu ? g->cu_seqlens_kv[g->batch] : g->len_kv;
  int64_t words = 2 * cu + (g->q_rows.rows ? q * row_map_pieces(&g->q_rows, g) : 0) +
                  (g->kv_rows.rows ? kv * row_map_pieces(&g->kv_rows, g) : 0);
  int32_t *memory = map->memory = flyi_alloc(words, sizeof *memory);
  if (!memory) return flyi_no_memory(error);
  if (cu) {
    g->cu_seqlens_q = memcpy(memory, g->cu_seqlens_q, cu * sizeof *memory);
    g->cu_seqlens_kv = memcpy(memory + cu, g->cu_seqlens_kv, cu * sizeof *memory);
    memory += 2 * cu;
  }
  if (g->q_rows.rows && g->batch && g->heads) memory = copy_row_map(&g->q_rows, g, q, memory);
  if (g->kv_rows.rows && g->batch && g->heads) memory = copy_row_map(&g->kv_rows, g, kv, memory);
  map->info.bytes += words * sizeof *memory;
  return FLY_OK;
}

/* ---- building the planes ----------------------------------------------------------------------------------------- */

typedef struct build {
  const flyi_survey *survey;
  flyi_band *band;
  int64_t bands, done;   /* done: before the others joined */
  flyi_scratch *scratch; /* of each worker */
  atomic_bool failed, late;
} build;

static int32_t band_rows(const flyi_survey *s) {
  int32_t rows = BAND_ROWS;
  while (rows < s->rows / BANDS) rows *= 2;
  return rows;
}

static bool make_bands(build *b, int32_t planes) {
  for (int32_t i = 0; i < planes; i++)
    if (b->survey[i].columns) b->bands += (b->survey[i].rows + band_rows(&b->survey[i]) - 1) / band_rows(&b->survey[i]);
  b->band = flyi_alloc(b->bands, sizeof *b->band);
  if (!b->band) return false;
  flyi_band *band = b->band;
  for (int32_t i = 0; i < planes; i++) {
    const flyi_survey *s = &b->survey[i];
    int32_t step = band_rows(s);
    for (int32_t row = 0; s->columns && row < s->rows; row += step)
      *band++ = (flyi_band){.survey = s, .row = row, .rows = s->rows - row < step ? s->rows - row : step};
  }
  return true;
}

static void build_band(void *context, int64_t item, int worker) {
  build *b = context;
  item += b->done;
  if (b->failed || flyi_band_build(&b->band[item], &b->scratch[worker])) return;
  if (b->scratch[worker].late) b->late = true;
  b->failed = true;
}

/* Most maps are done before a thread has woken up, and on a busy machine waiting for one can cost a hundred times the
 * work: the caller's thread starts alone, and the others join what lasts longer than ALONE. */
static void build_bands(build *b, const flyi_threads *threads) {
  int64_t end = flyi_nanoseconds() + ALONE, alone = 0;
  while (alone < b->bands && flyi_nanoseconds() < end) build_band(b, alone++, 0);
  b->done = alone;
  if (alone < b->bands) flyi_parallel(threads, b->bands - alone, build_band, b);
}

/* Joins a plane's bands; returns the band behind them, or NULL where memory is short. */
static const flyi_band *make_plane(const flyi_survey *s, const flyi_band *band, const flyi_band *end, flyi_plane *out) {
  *out = (flyi_plane){.len_q = s->len_q, .len_kv = s->len_kv, .rows = s->rows, .columns = s->columns};
  int64_t *start = out->start = flyi_alloc(s->rows + (size_t)1, sizeof *start);
  if (!start) return NULL;
  const flyi_band *first = band;
  for (; band < end && band->survey == s; band++)
    for (int32_t k = 0; k < band->rows; k++) start[band->row + k + 1] = start[band->row + k] + band->count[k];
  out->runs = flyi_grow(NULL, start[s->rows], sizeof *out->runs);
  if (!out->runs) return NULL;
  for (const flyi_band *b = first; b < band; b++)
    memcpy(out->runs + start[b->row], b->runs, (start[b->row + b->rows] - start[b->row]) * sizeof *b->runs);
  return band;
}

/* The planes and their counts from the bands. */
static bool join_bands(fly_map *map, const build *b) {
  int64_t(*count)[3] = flyi_alloc(map->plane_count, sizeof *count); /* full, partial, undecided */
  map->planes = flyi_alloc(map->plane_count, sizeof *map->planes);
  bool ok = count && map->planes;
  const flyi_band *band = b->band, *end = b->band + b->bands;
  for (int32_t i = 0; ok && i < map->plane_count; i++) {
    const flyi_band *next = make_plane(&b->survey[i], band, end, &map->planes[i]);
    if (!(ok = next != NULL)) break;
    for (; band < next; band++) count[i][0] += band->full, count[i][1] += band->partial, count[i][2] += band->undecided;
    const flyi_plane *p = &map->planes[i];
    map->info.bytes += sizeof *p + (p->rows + 1) * sizeof *p->start + p->start[p->rows] * sizeof *p->runs;
  }
  for (int64_t i = 0; ok && i < map->info.batch * map->info.heads; i++) {
    const flyi_plane *p = &map->planes[map->plane_of[i]];
    const int64_t *c = count[map->plane_of[i]];
    map->info.tiles_full += c[0], map->info.tiles_partial += c[1], map->info.undecided += c[2];
    map->info.tiles_empty += (int64_t)p->rows * p->columns - c[0] - c[1];
  }
  free(count);
  return ok;
}

/* FLY_OK and *late: the time was up. */
static fly_status build_planes(fly_map *map, const flyi_survey *survey, const flyi_threads *threads, bool *late,
                               fly_error *error) {
  build b = {.survey = survey};
  bool ok = make_bands(&b, map->plane_count);
  int workers = ok ? flyi_worker_count(threads, b.bands) : 0, ready = 0;
  b.scratch = flyi_alloc(workers, sizeof *b.scratch);
  ok = ok && b.scratch;
  while (ok && ready < workers) ok = flyi_scratch_create(&b.scratch[ready++], survey, map->plane_count);
  if (ok) {
    build_bands(&b, threads);
    ok = !b.failed && join_bands(map, &b);
  }
  while (ready > 0) flyi_scratch_free(&b.scratch[--ready]);
  for (int64_t i = 0; b.band && i < b.bands; i++) flyi_band_free(&b.band[i]);
  free(b.band), free(b.scratch);
  *late = b.late;
  return ok || b.late ? FLY_OK : flyi_no_memory(error);
}

/* ---- the map ----------------------------------------------------------------------------------------------------- */

void flyi_planes_free(flyi_plane *planes, int32_t count) {
  for (int32_t i = 0; planes && i < count; i++) free(planes[i].start), free(planes[i].runs);
  free(planes);
}

static void free_map(fly_map *map) {
  flyi_residents_free(&map->residents);
  flyi_planes_free(map->planes, map->plane_count);
  flyi_planes_free(map->transposed, map->plane_count);
  free(map->plane_of);
  flyi_mask_args_free(map->args);
  fly_bound_release(&map->bound);
  fly_map_release(&map->part[0]), fly_map_release(&map->part[1]);
  fly_buffer_release(&map->bitmap);
  free(map->memory);
  free(map);
}

static fly_status set_tiles(fly_map *map, const fly_map_options *options, const flyi_domain *domain, fly_error *error) {
  fly_map_info *info = &map->info;
  info->tile_q = options->tile_q ? options->tile_q : 128;
  info->tile_kv = options->tile_kv ? options->tile_kv : 128;
  if (info->tile_q < 0 || info->tile_kv < 0)
    return flyi_fail(error, FLY_ERROR_ARGUMENT, "tiles of %lld x %lld", (long long)info->tile_q,
                     (long long)info->tile_kv);
  info->tiles_q = (domain->max_q + info->tile_q - 1) / info->tile_q;
  info->tiles_kv = (domain->max_kv + info->tile_kv - 1) / info->tile_kv;
  if (info->tiles_q > tile_limit || info->tiles_kv > tile_limit)
    return flyi_fail(error, FLY_ERROR_ARGUMENT, "%lld x %lld tiles are more than a map holds: use larger tiles",
                     (long long)info->tiles_q, (long long)info->tiles_kv);
  return FLY_OK;
}

fly_status flyi_map_bind(fly_map *map, fly_bound *bound, fly_error *error) {
  if (bound->mask->image.kind != FLYI_MASK)
    return flyi_fail(error, FLY_ERROR_ARGUMENT, "bound is of the score modifier %s: a map is of a mask",
                     bound->mask->image.name);
  map->bound = fly_bound_retain(bound);
  map->tile = bound->mask->code.tile;
  return flyi_mask_args_create(bound, &map->geometry, &map->args, error);
}

fly_status flyi_map_create(const fly_geometry *geometry, const fly_map_options *options, fly_map **out,
                           fly_error *error) {
  fly_map_options complete = {0};
  flyi_domain domain;
  fly_status status;
  *out = NULL;
  if (options && !flyi_copy_struct(&complete, sizeof complete, options))
    return flyi_fail(error, FLY_ERROR_ARGUMENT, "options.size is %zu: set it with FLY_INIT(fly_map_options)",
                     options->size);
  fly_map *map = flyi_alloc(1, sizeof *map);
  if (!map) return flyi_no_memory(error);
  map->references = 1;
  map->threads = (flyi_threads){complete.threads, complete.parallel_for, complete.parallel_user};
  map->fast = complete.fast;
  map->info.bytes = sizeof *map;
  if ((status = flyi_domain_check(geometry, &domain, error)) || (status = set_tiles(map, &complete, &domain, error)) ||
      (status = copy_geometry(map, &domain.geometry, error)))
    return fly_map_release(&map), status;
  map->domain = domain.hash;
  *out = map;
  return FLY_OK;
}

void flyi_map_complete(fly_map *map) {
  fly_map_info *info = &map->info;
  int64_t tiles = info->tiles_empty + info->tiles_full + info->tiles_partial;
  info->sparsity = tiles ? (double)info->tiles_empty / (double)tiles : 0;
  info->bytes += info->batch * info->heads * sizeof *map->plane_of;
}

static fly_status build_map(fly_bound *bound, const fly_geometry *geometry, const fly_map_options *options,
                            int64_t until, fly_map **out, fly_error *error) {
  flyi_plan plan = {0};
  fly_map *map;
  bool late;
  if (!out) return flyi_fail(error, FLY_ERROR_ARGUMENT, "out is NULL");
  *out = NULL;
  if (!bound) return flyi_fail(error, FLY_ERROR_ARGUMENT, "bound is NULL");
  fly_status status = flyi_map_create(geometry, options, &map, error);
  if (status) return status;
  if ((status = flyi_map_bind(map, bound, error)) ||
      (status = flyi_plan_create(map, map->fast, until, &map->threads, &plan, error)) ||
      (status = build_planes(map, plan.survey, &map->threads, &late, error)) || late)
    goto done;
  map->built = true;
  flyi_map_complete(map);
  *out = map;
  map = NULL; /* the caller's now */
done:
  flyi_plan_free(&plan);
  fly_map_release(&map);
  return status;
}

fly_status fly_map_build(fly_bound *bound, const fly_geometry *geometry, const fly_map_options *options, fly_map **out,
                         fly_error *error) {
  return build_map(bound, geometry, options, 0, out, error);
}

fly_status flyi_map_build_until(fly_bound *bound, const fly_geometry *geometry, int64_t until, fly_map **out,
                                fly_error *error) {
  return build_map(bound, geometry, NULL, until, out, error);
}

fly_map *fly_map_retain(fly_map *map) {
  if (map) atomic_fetch_add_explicit(&map->references, 1, memory_order_relaxed);
  return map;
}

void fly_map_release(fly_map **slot) {
  fly_map *map = slot ? *slot : NULL;
  if (!map) return;
  *slot = NULL;
  if (atomic_fetch_sub_explicit(&map->references, 1, memory_order_acq_rel) == 1) free_map(map);
}

void fly_map_get_info(const fly_map *map, fly_map_info *info) {
  if (info) *info = map ? map->info : (fly_map_info){0};
}

const flyi_plane *flyi_map_plane(const fly_map *map, fly_order order, int64_t b, int64_t h) {
  const fly_geometry *g = &map->geometry;
  if (b < 0 || b >= g->batch || h < 0 || h >= g->heads || (order != FLY_BY_QUERY && order != FLY_BY_KEY)) return NULL;
  const flyi_plane *planes = map->planes;
  if (order == FLY_BY_KEY) planes = atomic_load_explicit(&((fly_map *)map)->transposed, memory_order_acquire);
  int64_t at = (map->info.batch == 1 ? 0 : b) * map->info.heads + (map->info.heads == 1 ? 0 : h);
  return planes ? &planes[map->plane_of[at]] : NULL;
}

int64_t fly_map_row(const fly_map *map, fly_order order, int64_t b, int64_t h, int64_t row, const fly_run **runs) {
  const flyi_plane *plane = map && runs ? flyi_map_plane(map, order, b, h) : NULL;
  if (runs) *runs = NULL;
  if (!plane || row < 0 || row >= plane->rows) return -1;
  *runs = plane->runs + plane->start[row];
  return plane->start[row + 1] - plane->start[row];
}
