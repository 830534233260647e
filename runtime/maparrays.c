/* maparrays.c: block maps from FlexAttention's arrays and to them, and from a bitmap of pairs. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "mapops.h"

/* ---- to arrays --------------------------------------------------------------------------------------------------- */

void fly_map_arrays_free(fly_map_arrays *arrays) {
  if (!arrays) return;
  free(arrays->num), free(arrays->index), free(arrays->full_num), free(arrays->full_index);
  *arrays = (fly_map_arrays){FLY_INIT(fly_map_arrays)};
}

/* The columns that the row lists with `kind`, then the others, each ascending; returns how many are listed. */
static int32_t write_list(const flyi_plane *p, int64_t row, fly_tile_kind kind, int32_t columns, int32_t *index) {
  int32_t count = 0, column = 0;
  const fly_run *run = row < p->rows ? p->runs + p->start[row] : NULL;
  const fly_run *end = row < p->rows ? p->runs + p->start[row + 1] : NULL;
  for (const fly_run *r = run; r < end; r++)
    for (int32_t k = 0; (fly_tile_kind)r->kind == kind && k < r->count; k++) index[count++] = r->first + k;
  int32_t rest = count;
  for (const fly_run *r = run; r < end; r++) {
    if ((fly_tile_kind)r->kind != kind) continue;
    while (column < r->first) index[rest++] = column++;
    column = r->first + r->count;
  }
  while (column < columns) index[rest++] = column++;
  return count;
}

fly_status fly_map_to_arrays(const fly_map *map, fly_order order, fly_map_arrays *out, fly_error *error) {
  if (!out) return flyi_fail(error, FLY_ERROR_ARGUMENT, "out is NULL");
  *out = (fly_map_arrays){FLY_INIT(fly_map_arrays)};
  if (!map) return flyi_fail(error, FLY_ERROR_ARGUMENT, "map is NULL");
  if (order != FLY_BY_QUERY && order != FLY_BY_KEY)
    return flyi_fail(error, FLY_ERROR_ARGUMENT, "order is %d: it must be FLY_BY_QUERY or FLY_BY_KEY", (int)order);
  bool by_query = order == FLY_BY_QUERY;
  const flyi_plane *planes = by_query ? map->planes : ((fly_map *)map)->transposed;
  if (!planes) return flyi_fail(error, FLY_ERROR_ARGUMENT, "the map has not been transposed: call fly_map_transpose");
  const fly_map_info *info = &map->info;
  out->batch = info->batch, out->heads = info->heads;
  out->rows = by_query ? info->tiles_q : info->tiles_kv, out->columns = by_query ? info->tiles_kv : info->tiles_q;
  int64_t lists = out->batch * out->heads * out->rows, entries;
  if (__builtin_mul_overflow(lists, out->columns, &entries)) return flyi_no_memory(error);
  out->num = flyi_alloc(lists, sizeof *out->num), out->full_num = flyi_alloc(lists, sizeof *out->full_num);
  out->index = flyi_grow(NULL, entries, sizeof *out->index);
  out->full_index = flyi_grow(NULL, entries, sizeof *out->full_index);
  if (!out->num || !out->full_num || !out->index || !out->full_index) {
    fly_map_arrays_free(out);
    return flyi_no_memory(error);
  }
  int32_t columns = (int32_t)out->columns;
  for (int64_t r = 0; r < lists; r++) {
    const flyi_plane *p = &planes[map->plane_of[r / out->rows]];
    out->num[r] = write_list(p, r % out->rows, FLY_PARTIAL, columns, out->index + r * columns);
    out->full_num[r] = write_list(p, r % out->rows, FLY_FULL, columns, out->full_index + r * columns);
  }
  return FLY_OK;
}

/* ---- from arrays ------------------------------------------------------------------------------------------------- */

/* Marks the columns of one list in kind[columns]. */
static fly_status mark_list(const fly_map_arrays *a, int64_t r, const char *name, const int32_t *num,
                            const int32_t *index, fly_tile_kind mark, uint8_t *kind, fly_error *error) {
  if (num[r] < 0 || num[r] > a->columns)
    return flyi_fail(error, FLY_ERROR_ARGUMENT, "%snum[%" PRId64 "] is %d: there are %" PRId64 " columns", name, r,
                     num[r], a->columns);
  for (int32_t i = 0; i < num[r]; i++) {
    int64_t at = r * a->columns + i;
    int32_t column = index[at];
    if (column < 0 || column >= a->columns)
      return flyi_fail(error, FLY_ERROR_ARGUMENT, "%sindex[%" PRId64 "] is %d: there are %" PRId64 " columns", name, at,
                       column, a->columns);
    if (kind[column] != FLY_EMPTY)
      return flyi_fail(error, FLY_ERROR_ARGUMENT, "%sindex[%" PRId64 "]: row %" PRId64 " lists column %d twice", name,
                       at, r, column);
    kind[column] = (uint8_t)mark;
  }
  return FLY_OK;
}

/* The kinds of row r, counted over batch and heads. */
static fly_status read_row(const fly_map_arrays *a, int64_t r, uint8_t *kind, fly_error *error) {
  memset(kind, FLY_EMPTY, a->columns);
  fly_status status = mark_list(a, r, "", a->num, a->index, FLY_PARTIAL, kind, error);
  if (status || !a->full_num) return status;
  return mark_list(a, r, "full_", a->full_num, a->full_index, FLY_FULL, kind, error);
}

static fly_status check_rows(const fly_map_arrays *a, fly_error *error) {
  fly_status status = FLY_OK;
  uint8_t *kind = flyi_alloc(a->columns, 1);
  if (!kind) return flyi_no_memory(error);
  for (int64_t r = 0; !status && r < a->batch * a->heads * a->rows; r++) status = read_row(a, r, kind, error);
  free(kind);
  return status;
}

static void fill_from_arrays(void *context, int64_t b, int64_t h, flyi_plane_maker *maker) {
  const fly_map_arrays *a = context;
  uint8_t *kind = flyi_alloc(a->columns, 1);
  if (!kind) maker->failed = true;
  for (int64_t row = 0; row < a->rows && !maker->failed; row++) {
    read_row(a, (b * a->heads + h) * a->rows + row, kind, NULL);
    for (int32_t column = 0, until; column < a->columns; column = until) {
      for (until = column + 1; until < a->columns && kind[until] == kind[column];) until++;
      flyi_maker_add(maker, column, until - column, (fly_tile_kind)kind[column]);
    }
    flyi_maker_end_row(maker);
  }
  free(kind);
}

static fly_status check_planes(const fly_map *map, int64_t batch, int64_t heads, fly_error *error) {
  const fly_geometry *g = &map->geometry;
  if (g->cu_seqlens_q)
    return flyi_fail(error, FLY_ERROR_UNSUPPORTED, "ragged batches (cu_seqlens): build the map from a mask");
  if ((batch != 1 && batch != g->batch) || (heads != 1 && heads != g->heads))
    return flyi_fail(error, FLY_ERROR_ARGUMENT,
                     "batch %" PRId64 " and heads %" PRId64 ": each must be 1 or the "
                     "geometry's, %" PRId64 " and %" PRId64,
                     batch, heads, g->batch, g->heads);
  return FLY_OK;
}

static fly_status check_arrays(const fly_map *map, const fly_map_arrays *a, fly_error *error) {
  fly_status status = check_planes(map, a->batch, a->heads, error);
  if (status) return status;
  if (a->rows != map->info.tiles_q || a->columns != map->info.tiles_kv)
    return flyi_fail(error, FLY_ERROR_ARGUMENT,
                     "%" PRId64 " x %" PRId64 " tiles: lengths %" PRId64 ", %" PRId64 " are %" PRId64 " x %" PRId64
                     " tiles of %" PRId64 " x %" PRId64,
                     a->rows, a->columns, map->geometry.len_q, map->geometry.len_kv, map->info.tiles_q,
                     map->info.tiles_kv, map->info.tile_q, map->info.tile_kv);
  if (!a->num || !a->index || !a->full_num != !a->full_index)
    return flyi_fail(error, FLY_ERROR_ARGUMENT, "num or index is NULL, or one of full_num and full_index");
  return check_rows(a, error);
}

fly_status fly_map_from_arrays(const fly_map_arrays *arrays, const fly_geometry *geometry,
                               const fly_map_options *options, fly_map **out, fly_error *error) {
  fly_map_arrays a = {0};
  fly_map *map;
  if (!out) return flyi_fail(error, FLY_ERROR_ARGUMENT, "out is NULL");
  *out = NULL;
  if (!arrays) return flyi_fail(error, FLY_ERROR_ARGUMENT, "arrays is NULL");
  if (!flyi_copy_struct(&a, sizeof a, arrays))
    return flyi_fail(error, FLY_ERROR_ARGUMENT, "arrays.size is %zu: set it with FLY_INIT(fly_map_arrays)",
                     arrays->size);
  fly_status status = flyi_map_create(geometry, options, &map, error);
  if (status) return status;
  if (!(status = check_arrays(map, &a, error))) {
    map->info.batch = a.batch, map->info.heads = a.heads;
    status = flyi_map_fill(map, NULL, fill_from_arrays, &a, error);
  }
  if (status) return fly_map_release(&map), status;
  *out = map;
  return FLY_OK;
}

/* ---- from a bitmap ----------------------------------------------------------------------------------------------- */

static void fill_from_bitmap(void *context, int64_t b, int64_t h, flyi_plane_maker *maker) {
  const flyi_plane *p = maker->plane;
  for (int32_t row = 0; row < p->rows && !maker->failed; row++) {
    for (int32_t column = 0; column < p->columns; column++)
      flyi_maker_add(maker, column, 1, flyi_map_settle(context, b, h, row, column));
    flyi_maker_end_row(maker);
  }
}

fly_status fly_map_from_bitmap(fly_buffer *pairs, const fly_geometry *geometry, const fly_map_options *options,
                               fly_map **out, fly_error *error) {
  fly_map *map;
  if (!out) return flyi_fail(error, FLY_ERROR_ARGUMENT, "out is NULL");
  *out = NULL;
  if (!pairs) return flyi_fail(error, FLY_ERROR_ARGUMENT, "pairs is NULL");
  if (fly_type_size(pairs->type) != 1 || (pairs->rank != 2 && pairs->rank != 4))
    return flyi_fail(error, FLY_ERROR_ARGUMENT,
                     "pairs is %s of rank %d: give bytes (bool, u8), [Q, KV] or [B, H, Q, KV]",
                     fly_type_name(pairs->type), pairs->rank);
  bool planes = pairs->rank == 4;
  const int64_t *s = pairs->shape, batch = planes ? s[0] : 1, heads = planes ? s[1] : 1, len_q = s[planes ? 2 : 0],
                len_kv = s[planes ? 3 : 1];
  fly_geometry own = {FLY_INIT(fly_geometry), .batch = batch, .heads = heads, .len_q = len_q, .len_kv = len_kv};
  fly_status status = flyi_map_create(geometry ? geometry : &own, options, &map, error);
  if (status) return status;
  if ((status = check_planes(map, batch, heads, error))) goto done;
  if (len_q != map->geometry.len_q || len_kv != map->geometry.len_kv) {
    status = flyi_fail(error, FLY_ERROR_ARGUMENT,
                       "pairs is %" PRId64 " x %" PRId64 ", and the lengths are %" PRId64 ", %" PRId64, len_q, len_kv,
                       map->geometry.len_q, map->geometry.len_kv);
    goto done;
  }
  map->info.batch = batch, map->info.heads = heads;
  if ((status = flyi_map_ask_bitmap(map, pairs, error)) ||
      (status = flyi_map_fill(map, NULL, fill_from_bitmap, map, error)))
    goto done;
  *out = map;
  map = NULL; /* the caller's now */
done:
  fly_map_release(&map);
  return status;
}
