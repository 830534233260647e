/* cuda_map.c: host objects of a call on its device: block maps in the form of launch_cuda.h, row maps, cu_seqlens,
 * captured buffers. Input: a call and its map. Output: device addresses.
 *
 * With a map that the caller keeps, copies are residents of the map and are made once a context: a map fits one
 * geometry, so the call's row maps and cu_seqlens are kept with it. Without, they are temporaries of the call. */
#include <stdlib.h>
#include <string.h>

#include "cuda.h"
#include "mapops.h"

/* ---- a copy, kept or not --------------------------------------------------------------------------------------- */

fly_status flyi_cuda_temporary(flyi_cuda_launch *l, size_t bytes, flyi_device_memory *out, fly_error *error) {
  *out = 0;
  if (l->temporaries == FLYI_CUDA_TEMPORARIES) return flyi_fail(error, FLY_ERROR_INTERNAL, "a call of too many parts");
  int code = l->cuda->driver.alloc_async(out, bytes ? bytes : 1, l->stream);
  if (code) return flyi_cuda_fail(&l->cuda->driver, code, error, "%zu bytes of device memory for the call", bytes);
  l->temporary[l->temporaries++] = *out;
  return FLY_OK;
}

void flyi_cuda_free_temporaries(flyi_cuda_launch *l) {
  for (int i = 0; i < l->temporaries; i++) l->cuda->driver.free_async(l->temporary[i], l->stream);
}

static fly_status put_once(flyi_cuda_launch *l, flyi_stage_fn *stage, const void *object, flyi_device_memory *out,
                           fly_error *error) {
  flyi_staging s = {0};
  fly_status status = stage(object, &s, error);
  if (!status && s.failed) status = flyi_no_memory(error);
  if (!status) status = flyi_cuda_temporary(l, s.size, out, error);
  if (!status && s.size) {
    int code = l->cuda->driver.write(*out, s.data, s.size, l->stream);
    if (code) status = flyi_cuda_fail(&l->cuda->driver, code, error, "%zu bytes of a map to the device", s.size);
  }
  flyi_staging_free(&s);
  return status;
}

fly_status flyi_cuda_put(flyi_cuda_launch *l, flyi_hash key, flyi_stage_fn *stage, const void *object,
                         flyi_device_memory *out, fly_error *error) {
  if (l->own_map) return put_once(l, stage, object, out, error);
  /* The list of residents is a cache of the map. */
  return flyi_resident_upload(&((fly_map *)l->map)->residents, l->cuda, key, l->stream, stage, object, out, error);
}

/* ---- row maps and cu_seqlens ----------------------------------------------------------------------------------- */

/* A row map packed to what it holds: a plane for each batch entry and head along which it does not broadcast. */
typedef struct rows_source {
  const fly_row_map *map;
  const fly_geometry *geometry;
  bool queries;
} rows_source;

static int64_t planes_b(const rows_source *r) { return r->map->stride_batch ? r->geometry->batch : 1; }
static int64_t planes_h(const rows_source *r) { return r->map->stride_head ? r->geometry->heads : 1; }
static int64_t rows_of(const rows_source *r) { return flyi_rows_of(r->geometry, r->queries); }

static size_t stage_rows(const rows_source *r, flyi_staging *s) {
  size_t offset;
  int64_t length = rows_of(r);
  int32_t *to = flyi_staging_add(s, (size_t)(planes_b(r) * planes_h(r)), (size_t)length * sizeof *to, &offset);
  for (int64_t b = 0; to && b < planes_b(r); b++)
    for (int64_t h = 0; h < planes_h(r); h++) {
      int32_t *plane = to + (b * planes_h(r) + h) * length;
      for (int64_t i = 0; !r->map->rows && i < length; i++) plane[i] = (int32_t)i;
      if (r->map->rows) memcpy(plane, flyi_map_rows(r->map, b, h, 0), (size_t)length * sizeof *to);
    }
  size_t behind;
  flyi_staging_add(s, FLYI_CUDA_ROWS_BEHIND, sizeof *to, &behind);
  return offset;
}

/* Where the pieces of a geometry are in its copy: from a dry run, or while it is made. */
typedef struct geometry_places {
  size_t cu_q, cu_kv, q_rows, kv_rows;
} geometry_places;

static size_t stage_cu(const int32_t *cu, int64_t batch, flyi_staging *s) {
  size_t offset;
  int32_t *to = flyi_staging_add(s, cu ? (size_t)batch + 1 : 0, sizeof *cu, &offset);
  if (to && cu) memcpy(to, cu, ((size_t)batch + 1) * sizeof *cu);
  return offset;
}

/* A mask that reads tokens finds them in row maps: where the call has none, in the identity. */
typedef struct geometry_source {
  const fly_geometry *geometry;
  bool q_rows, kv_rows; /* which there are */
} geometry_source;

static geometry_places stage_places(const geometry_source *source, flyi_staging *s) {
  const fly_geometry *g = source->geometry;
  geometry_places at;
  at.cu_q = stage_cu(g->cu_seqlens_q, g->batch, s);
  at.cu_kv = stage_cu(g->cu_seqlens_kv, g->batch, s);
  at.q_rows = source->q_rows ? stage_rows(&(rows_source){&g->q_rows, g, true}, s) : 0;
  at.kv_rows = source->kv_rows ? stage_rows(&(rows_source){&g->kv_rows, g, false}, s) : 0;
  return at;
}

static fly_status stage_geometry(const void *object, flyi_staging *s, fly_error *error) {
  (void)error;
  stage_places(object, s);
  return FLY_OK;
}

static fly_status stage_out_rows(const void *object, flyi_staging *s, fly_error *error) {
  (void)error;
  stage_rows(object, s);
  return FLY_OK;
}

/* Output rows are no part of what a map is for: their copies go by their contents. */
static flyi_hash hash_rows(const rows_source *r) {
  struct {
    flyi_hash before, plane;
    int64_t kind, planes_b, planes_h;
  } chain = {{0, 0}, {0, 0}, FLYI_KEY_OUT_ROWS, planes_b(r), planes_h(r)};
  for (int64_t b = 0; b < chain.planes_b; b++)
    for (int64_t h = 0; h < chain.planes_h; h++) {
      chain.plane = flyi_hash_bytes(flyi_map_rows(r->map, b, h, 0), (size_t)rows_of(r) * sizeof(int32_t));
      chain.before = flyi_hash_bytes(&chain, sizeof chain);
    }
  return chain.before;
}

static void packed_strides(const rows_source *r, int64_t *stride_b, int64_t *stride_h) {
  *stride_h = r->map->stride_head ? rows_of(r) : 0;
  *stride_b = r->map->stride_batch ? rows_of(r) * planes_h(r) : 0;
}

static fly_status put_out_rows(flyi_cuda_launch *l, fly_error *error) {
  const fly_attention *c = &l->call->c;
  const fly_row_map *out = &c->out_rows, *q = &c->geometry.q_rows;
  rows_source source = {out, &c->geometry, true};
  flyi_cuda_call *a = l->argument;
  if (!out->rows) return FLY_OK;
  packed_strides(&source, &a->out_rows_stride_b, &a->out_rows_stride_h);
  if (out->rows == q->rows && out->stride_batch == q->stride_batch && out->stride_head == q->stride_head) {
    a->out_rows = (uintptr_t)l->mask->q_rows;
    return FLY_OK;
  }
  return flyi_cuda_put(l, hash_rows(&source), stage_out_rows, &source, &a->out_rows, error);
}

/* ---- captured buffers ------------------------------------------------------------------------------------------ */

static fly_status stage_buffer(const void *object, flyi_staging *s, fly_error *error) {
  (void)error;
  const fly_buffer *buffer = object;
  size_t offset, bytes = (size_t)buffer->count * fly_type_size(buffer->type);
  void *to = flyi_staging_add(s, bytes + 8, 1, &offset); /* as on the host: no buffer is of no bytes */
  if (to && bytes) memcpy(to, buffer->data, bytes);
  return FLY_OK;
}

/* Of the mask or the score modifier (NULL: none), to slots from `slots` on. */
static fly_status put_buffers(flyi_cuda_launch *l, fly_bound *bound, uint64_t *slots, fly_error *error) {
  if (!bound) return FLY_OK;
  const flyi_image *image = &bound->mask->image;
  memcpy(slots, bound->slots, (size_t)bound->slot_count * sizeof *bound->slots);
  fly_status status = FLY_OK;
  for (int i = 0; !status && i < image->buffer_count; i++) {
    fly_buffer *buffer = bound->buffers[i];
    status = flyi_resident_upload(&buffer->residents, l->cuda, (flyi_hash){0}, l->stream, stage_buffer, buffer,
                                  &slots[image->parameter_count + i * FLYI_BUFFER_SLOTS], error);
  }
  return status;
}

static const int32_t *device_rows(flyi_device_memory base, size_t offset) {
  return (const int32_t *)(uintptr_t)(base + offset);
}

fly_status flyi_cuda_put_geometry(flyi_cuda_launch *l, fly_error *error) {
  const fly_geometry *g = &l->call->c.geometry;
  flyi_mask_args *m = l->mask;
  flyi_staging dry = {.dry = true};
  fly_bound *bound = l->call->c.bound, *score = l->call->c.score;
  const uint32_t reads = bound->mask->image.reads | (score ? score->mask->image.reads : 0);
  const geometry_source source = {g, g->q_rows.rows || reads & FLYI_READS_TOKEN_Q,
                                  g->kv_rows.rows || reads & FLYI_READS_TOKEN_KV};
  geometry_places at = stage_places(&source, &dry);
  flyi_device_memory base = 0;
  fly_status status = FLY_OK;
  flyi_hash key = {FLYI_KEY_GEOMETRY, (uint64_t)source.q_rows << 1 | source.kv_rows};
  if (dry.size) status = flyi_cuda_put(l, key, stage_geometry, &source, &base, error);
  if (status) return status;
  m->batch = g->batch, m->heads = g->heads, m->len_q = g->len_q, m->len_kv = g->len_kv, m->q_offset = g->q_offset;
  if (g->cu_seqlens_q) m->cu_q = device_rows(base, at.cu_q), m->cu_kv = device_rows(base, at.cu_kv);
  if (source.q_rows) m->q_rows = device_rows(base, at.q_rows);
  if (source.kv_rows) m->kv_rows = device_rows(base, at.kv_rows);
  packed_strides(&(rows_source){&g->q_rows, g, true}, &m->q_stride_b, &m->q_stride_h);
  packed_strides(&(rows_source){&g->kv_rows, g, false}, &m->kv_stride_b, &m->kv_stride_h);
  status = put_out_rows(l, error);
  if (!status) status = put_buffers(l, bound, m->slots, error);
  return status ? status : put_buffers(l, score, m->slots + bound->slot_count, error);
}

/* ---- block maps ------------------------------------------------------------------------------------------------ */

/* A map in one order, each of whose rows and columns is `merge` of the map's. */
typedef struct map_source {
  const fly_map *map;
  const flyi_plane *planes;
  int64_t rows, columns; /* of the longest plane, merged */
  int32_t merge_rows, merge_columns;
} map_source;

typedef struct map_places {
  size_t start, order, plane_of, runs;
} map_places;

static map_places stage_map_places(const map_source *m, flyi_staging *s) {
  map_places at;
  size_t rows = (size_t)(m->map->plane_count * m->rows);
  flyi_staging_add(s, rows + 1, sizeof(int64_t), &at.start);
  flyi_staging_add(s, rows, sizeof(int32_t), &at.order);
  flyi_staging_add(s, (size_t)(m->map->info.batch * m->map->info.heads), sizeof(int32_t), &at.plane_of);
  at.runs = s->size;
  return at;
}

static bool add_run(flyi_bytes *runs, int64_t first, int64_t count, fly_tile_kind kind) {
  fly_run run = {.first = (int32_t)first, .count = (int32_t)count, .kind = kind};
  return flyi_bytes_add(runs, &run, sizeof run);
}

/* How many tiles of a merged one are there, and full. */
typedef struct merged_tile {
  int32_t some, full;
} merged_tile;

static void count_tiles(const map_source *m, const fly_run *run, merged_tile *tiles) {
  for (int64_t j = run->first; j < (int64_t)run->first + run->count; j++) {
    tiles[j / m->merge_columns].some++;
    tiles[j / m->merge_columns].full += run->kind == FLY_FULL;
  }
}

/* Merged row `row` of a plane: full where all its tiles are, which are fewer at the plane's end. */
static bool merge_row(const map_source *m, const flyi_plane *p, int64_t row, merged_tile *tiles, flyi_bytes *runs) {
  int64_t first = row * m->merge_rows, last = flyi_min64(first + m->merge_rows, p->rows), begin = 0;
  memset(tiles, 0, (size_t)m->columns * sizeof *tiles);
  for (int64_t i = p->start[first]; i < p->start[last]; i++) count_tiles(m, &p->runs[i], tiles);
  fly_tile_kind open = FLY_EMPTY;
  for (int64_t j = 0; j <= m->columns; j++) {
    fly_tile_kind kind = FLY_EMPTY;
    if (j < m->columns && tiles[j].some) {
      int64_t all = (last - first) * (flyi_min64((j + 1) * m->merge_columns, p->columns) - j * m->merge_columns);
      kind = tiles[j].full == all ? FLY_FULL : FLY_PARTIAL;
    }
    if (kind == open) continue;
    if (open != FLY_EMPTY && !add_run(runs, begin, j - begin, open)) return false;
    open = kind, begin = j;
  }
  return true;
}

/* start and runs of all planes. */
static bool collect_runs(const map_source *m, int64_t *start, flyi_bytes *runs) {
  bool merges = m->merge_rows > 1 || m->merge_columns > 1, ok = true;
  merged_tile *tiles = merges ? flyi_alloc((size_t)m->columns + 1, sizeof *tiles) : NULL;
  if (merges && !tiles) return false;
  for (int p = 0; ok && p < m->map->plane_count; p++) {
    const flyi_plane *plane = &m->planes[p];
    int64_t rows = (plane->rows + m->merge_rows - 1) / m->merge_rows;
    for (int64_t i = 0; ok && i < m->rows; i++) {
      *start++ = (int64_t)(runs->size / sizeof(fly_run));
      if (i >= rows) continue;
      if (merges)
        ok = merge_row(m, plane, i, tiles, runs);
      else
        ok = flyi_bytes_add(runs, plane->runs + plane->start[i],
                            (size_t)(plane->start[i + 1] - plane->start[i]) * sizeof(fly_run));
    }
  }
  *start = (int64_t)(runs->size / sizeof(fly_run));
  free(tiles);
  return ok && add_run(runs, 0, 0, FLY_EMPTY);
}

static int compare_keys(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

/* The rows of each plane, the most expensive first; of equal ones the earlier. A partial tile takes a quarter more. */
static bool sort_rows(const map_source *m, const int64_t *start, const fly_run *runs, int32_t *order) {
  uint64_t *keys = flyi_alloc((size_t)m->rows + 1, sizeof *keys);
  if (!keys) return false;
  for (int p = 0; p < m->map->plane_count; p++, start += m->rows, order += m->rows) {
    for (int64_t i = 0; i < m->rows; i++) {
      uint64_t cost = 0;
      for (int64_t r = start[i]; r < start[i + 1]; r++)
        cost += (uint64_t)runs[r].count * (runs[r].kind == FLY_FULL ? 4 : 5);
      if (cost > UINT32_MAX) cost = UINT32_MAX;
      keys[i] = (UINT32_MAX - cost) << 32 | (uint64_t)i;
    }
    qsort(keys, (size_t)m->rows, sizeof *keys, compare_keys);
    for (int64_t i = 0; i < m->rows; i++) order[i] = (int32_t)(uint32_t)keys[i];
  }
  free(keys);
  return true;
}

/* Whether the mask decides the pairs of a merged tile: one of several kinds, or partial. */
static bool is_mixed(const map_source *m, const flyi_plane *p, int64_t rows, int64_t column, const merged_tile *tiles) {
  int64_t all = rows * (flyi_min64((column + 1) * m->merge_columns, p->columns) - column * m->merge_columns);
  return tiles[column].some && tiles[column].full != all;
}

/* The column of a full or empty tile of a row that is another kind by the mask, and lies in a mixed one; -1: none. */
static int64_t find_other(const map_source *m, const flyi_plane *own, const flyi_plane *exact, int64_t row,
                          int64_t rows, const merged_tile *tiles) {
  flyi_cursor a = flyi_open_row(own, row), b = flyi_open_row(exact, row);
  for (int32_t at = 0, until; at < own->columns; at = until) {
    while (a.until <= at) flyi_advance(&a);
    while (b.until <= at) flyi_advance(&b);
    until = a.until < b.until ? a.until : b.until;
    for (int32_t j = at; j < until && a.kind != FLY_PARTIAL && a.kind != b.kind; j++)
      if (is_mixed(m, own, rows, j / m->merge_columns, tiles)) return j;
  }
  return -1;
}

/* The first such tile of a plane; false: there is none. */
static bool find_other_tile(const map_source *m, const flyi_plane *own, const flyi_plane *exact, merged_tile *tiles,
                            int64_t *row, int64_t *column) {
  for (int64_t first = 0; first < own->rows; first += m->merge_rows) {
    int64_t last = flyi_min64(first + m->merge_rows, own->rows);
    memset(tiles, 0, (size_t)m->columns * sizeof *tiles);
    for (int64_t i = own->start[first]; i < own->start[last]; i++) count_tiles(m, &own->runs[i], tiles);
    for (*row = first; *row < last; ++*row)
      if ((*column = find_other(m, own, exact, *row, last - first, tiles)) >= 0) return true;
  }
  return false;
}

static fly_status refuse_merging(const map_source *m, int64_t b, int64_t h, int64_t row, int64_t column,
                                 fly_error *error) {
  const fly_map_info *info = &m->map->info;
  const bool by_query = m->planes == m->map->planes;
  return flyi_fail(error, FLY_ERROR_UNSUPPORTED,
                   "map: tile (%d, %d) of (batch %d, head %d), of %d x %d, is full or empty, and not the mask's; on a "
                   "GPU this kernel asks the mask for all pairs of %d x %d such tiles: make tiles of %d x %d full or "
                   "empty as a whole, or bind a mask that sees what the map says",
                   (int)(by_query ? row : column), (int)(by_query ? column : row), (int)b, (int)h, (int)info->tile_q,
                   (int)info->tile_kv, by_query ? m->merge_rows : m->merge_columns,
                   by_query ? m->merge_columns : m->merge_rows,
                   (int)info->tile_q * (by_query ? m->merge_rows : m->merge_columns),
                   (int)info->tile_kv * (by_query ? m->merge_columns : m->merge_rows));
}

/* In a merged tile of several kinds the mask decides all pairs, so its full and empty tiles must be the mask's. Those
 * of arrays, and of what is made of them, may be others: then they must fill merged tiles. */
static fly_status check_mergeable(const map_source *m, fly_error *error) {
  const fly_map *map = m->map;
  const fly_order order = m->planes == map->planes ? FLY_BY_QUERY : FLY_BY_KEY;
  const fly_map_options options = {FLY_INIT(fly_map_options), .tile_q = (int)map->info.tile_q,
                                   .tile_kv = (int)map->info.tile_kv};
  fly_map *exact = NULL;
  merged_tile *tiles = NULL;
  if (map->built || (m->merge_rows == 1 && m->merge_columns == 1)) return FLY_OK;
  fly_status status = fly_map_build(map->bound, &map->geometry, &options, &exact, error);
  if (!status && order == FLY_BY_KEY) status = fly_map_transpose(exact, error);
  if (!status && !(tiles = flyi_alloc((size_t)m->columns + 1, sizeof *tiles))) status = flyi_no_memory(error);
  for (int64_t b = 0; !status && b < map->geometry.batch; b++)
    for (int64_t h = 0, row, column; !status && h < map->geometry.heads; h++)
      if (find_other_tile(m, flyi_map_plane(map, order, b, h), flyi_map_plane(exact, order, b, h), tiles, &row,
                          &column))
        status = refuse_merging(m, b, h, row, column, error);
  free(tiles);
  fly_map_release(&exact);
  return status;
}

static fly_status stage_map(const void *object, flyi_staging *s, fly_error *error) {
  const map_source *m = object;
  flyi_bytes runs = {0};
  size_t offset;
  fly_status status = check_mergeable(m, error);
  if (status) return status;
  map_places at = stage_map_places(m, s);
  bool ok = !s->failed && collect_runs(m, (int64_t *)(s->data + at.start), &runs) &&
            sort_rows(m, (int64_t *)(s->data + at.start), (fly_run *)runs.data, (int32_t *)(s->data + at.order));
  if (ok) {
    memcpy(s->data + at.plane_of, m->map->plane_of,
           (size_t)(m->map->info.batch * m->map->info.heads) * sizeof(int32_t));
    void *to = flyi_staging_add(s, runs.size, 1, &offset);
    if (to) memcpy(to, runs.data, runs.size);
  }
  flyi_bytes_free(&runs);
  return ok ? FLY_OK : flyi_no_memory(error);
}

/* How many tiles of `tile` rows make one that is whole tiles of `wanted` rows. */
static int64_t merge_of(int64_t tile, int64_t wanted) {
  int64_t a = tile, b = wanted;
  while (b) {
    int64_t rest = a % b;
    a = b, b = rest;
  }
  return wanted / a;
}

fly_status flyi_cuda_put_map(flyi_cuda_launch *l, fly_order order, int32_t outer, int32_t inner, flyi_cuda_map *out,
                             fly_error *error) {
  const fly_map *map = l->map;
  const fly_map_info *info = &map->info;
  bool by_query = order == FLY_BY_QUERY;
  int64_t tile_rows = by_query ? info->tile_q : info->tile_kv, tile_columns = by_query ? info->tile_kv : info->tile_q;
  int64_t rows = by_query ? info->tiles_q : info->tiles_kv, columns = by_query ? info->tiles_kv : info->tiles_q;
  int64_t merge_rows = merge_of(tile_rows, outer), merge_columns = merge_of(tile_columns, inner);
  map_source m = {.map = map,
                  .planes = by_query ? map->planes : atomic_load_explicit(&map->transposed, memory_order_acquire),
                  .rows = (rows + merge_rows - 1) / merge_rows,
                  .columns = (columns + merge_columns - 1) / merge_columns,
                  .merge_rows = (int32_t)merge_rows,
                  .merge_columns = (int32_t)merge_columns};
  flyi_staging dry = {.dry = true};
  map_places at = stage_map_places(&m, &dry);
  flyi_device_memory base;
  flyi_hash key = {FLYI_KEY_MAP + (uint64_t)order, (uint64_t)merge_rows << 32 | (uint64_t)merge_columns};
  fly_status status = flyi_cuda_put(l, key, stage_map, &m, &base, error);
  if (status) return status;
  *out = (flyi_cuda_map){.start = base + at.start,
                         .runs = base + at.runs,
                         .order = base + at.order,
                         .plane_of = base + at.plane_of,
                         .plane_stride_b = info->batch > 1 ? (int32_t)info->heads : 0,
                         .plane_stride_h = info->heads > 1 ? 1 : 0,
                         .rows = (int32_t)m.rows,
                         .outer = (int32_t)(merge_rows * tile_rows / outer),
                         .inner = (int32_t)(merge_columns * tile_columns / inner)};
  return FLY_OK;
}
