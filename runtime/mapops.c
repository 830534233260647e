/* mapops.c: and, or, not of block maps; a mask for a map that has none; equality.
 *
 * Tiles are joined by their kinds, run by run. Where that leaves a tile open (partial with partial), its pairs are
 * asked of both maps, so that the result is exact where they are. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "mapops.h"

static int64_t greatest(int64_t a, int64_t b) { return a > b ? a : b; }

/* ---- and, or, not ------------------------------------------------------------------------------------------------ */

typedef struct joining {
  fly_combine how;
  const fly_map *left, *right; /* right NULL: not */
  fly_map *out;
} joining;

enum { OPEN = 3 }; /* beside the tile kinds */

static int join_kinds(fly_combine how, fly_tile_kind a, fly_tile_kind b) {
  if (how == FLY_NOT) return a == FLY_EMPTY ? FLY_FULL : a == FLY_FULL ? FLY_EMPTY : FLY_PARTIAL;
  fly_tile_kind neutral = how == FLY_AND ? FLY_FULL : FLY_EMPTY, strong = how == FLY_AND ? FLY_EMPTY : FLY_FULL;
  if (a == strong || b == strong) return strong;
  return a == neutral ? (int)b : b == neutral ? (int)a : OPEN;
}

static void join_row(const joining *j, int64_t b, int64_t h, int32_t row, flyi_cursor left, flyi_cursor right,
                     flyi_plane_maker *maker) {
  for (int32_t column = 0; column < left.columns && !maker->failed;) {
    while (left.until <= column) flyi_advance(&left);
    while (right.until <= column) flyi_advance(&right);
    int32_t until = left.until < right.until ? left.until : right.until;
    int kind = join_kinds(j->how, left.kind, right.kind);
    if (kind == OPEN)
      for (int32_t c = column; c < until; c++) flyi_maker_add(maker, c, 1, flyi_map_settle(j->out, b, h, row, c));
    else
      flyi_maker_add(maker, column, until - column, (fly_tile_kind)kind);
    column = until;
  }
}

static void join_plane(void *context, int64_t b, int64_t h, flyi_plane_maker *maker) {
  const joining *j = context;
  const flyi_plane *left = flyi_map_plane(j->left, FLY_BY_QUERY, b, h);
  const flyi_plane *right = j->right ? flyi_map_plane(j->right, FLY_BY_QUERY, b, h) : NULL;
  for (int32_t row = 0; row < left->rows && !maker->failed; row++) {
    flyi_cursor none = {.columns = left->columns, .until = left->columns};
    join_row(j, b, h, row, flyi_open_row(left, row), right ? flyi_open_row(right, row) : none, maker);
    flyi_maker_end_row(maker);
  }
}

static fly_status check_join(fly_combine how, const fly_map *left, const fly_map *right, fly_error *error) {
  if (how != FLY_AND && how != FLY_OR && how != FLY_NOT)
    return flyi_fail(error, FLY_ERROR_ARGUMENT, "how is %d: it must be FLY_AND, FLY_OR or FLY_NOT", (int)how);
  if (!left || (how != FLY_NOT && !right))
    return flyi_fail(error, FLY_ERROR_ARGUMENT, "%s is NULL", left ? "right" : "left");
  if (how == FLY_NOT && right) return flyi_fail(error, FLY_ERROR_ARGUMENT, "FLY_NOT takes one map: right must be NULL");
  if (!right) return FLY_OK;
  if (!flyi_hash_equal(left->domain, right->domain))
    return flyi_fail(error, FLY_ERROR_ARGUMENT,
                     "the maps differ in their geometry: batch, heads, lengths (%" PRId64 ", %" PRId64 " and %" PRId64
                     ", %" PRId64 "), q_offset, row maps or cu_seqlens",
                     left->geometry.len_q, left->geometry.len_kv, right->geometry.len_q, right->geometry.len_kv);
  if (left->info.tile_q != right->info.tile_q || left->info.tile_kv != right->info.tile_kv)
    return flyi_fail(error, FLY_ERROR_ARGUMENT,
                     "tiles of %" PRId64 " x %" PRId64 " and of %" PRId64 " x %" PRId64 ": they must be the same",
                     left->info.tile_q, left->info.tile_kv, right->info.tile_q, right->info.tile_kv);
  return FLY_OK;
}

/* A map of the same geometry and tiles, without tiles. */
static fly_status create_like(const fly_map *map, fly_map **out, fly_error *error) {
  fly_map_options options = {
      FLY_INIT(fly_map_options),     .tile_q = (int)map->info.tile_q,           .tile_kv = (int)map->info.tile_kv,
      .threads = map->threads.limit, .parallel_for = map->threads.parallel_for, .parallel_user = map->threads.user};
  return flyi_map_create(&map->geometry, &options, out, error);
}

/* In maps that were built, what is alike in tiles is alike in pairs. */
static fly_status number_pairs(const joining *j, int64_t **alike, fly_error *error) {
  const fly_map *left = j->left, *right = j->right, *out = j->out;
  *alike = NULL;
  if (!left->built || (right && !right->built)) return FLY_OK;
  int64_t items = out->info.batch * out->info.heads;
  *alike = flyi_alloc(items, sizeof **alike);
  if (!*alike) return flyi_no_memory(error);
  for (int64_t i = 0; i < items; i++) {
    int64_t b = i / out->info.heads, h = i % out->info.heads;
    int64_t a = flyi_map_plane(left, FLY_BY_QUERY, b, h) - left->planes;
    int64_t c = right ? flyi_map_plane(right, FLY_BY_QUERY, b, h) - right->planes : 0;
    (*alike)[i] = a << 31 | c;
  }
  return FLY_OK;
}

fly_status fly_map_combine(fly_combine how, const fly_map *left, const fly_map *right, fly_map **out,
                           fly_error *error) {
  if (!out) return flyi_fail(error, FLY_ERROR_ARGUMENT, "out is NULL");
  *out = NULL;
  joining j = {.how = how, .left = left, .right = right};
  int64_t *alike = NULL;
  fly_status status = check_join(how, left, right, error);
  if (status || (status = create_like(left, &j.out, error))) return status;
  j.out->info.batch = greatest(left->info.batch, right ? right->info.batch : 0);
  j.out->info.heads = greatest(left->info.heads, right ? right->info.heads : 0);
  if ((status = flyi_map_ask(j.out, &how, left, right, error)) || (status = number_pairs(&j, &alike, error)) ||
      (status = flyi_map_fill(j.out, alike, join_plane, &j, error)))
    goto done;
  *out = j.out;
  j.out = NULL; /* the caller's now */
done:
  free(alike);
  fly_map_release(&j.out);
  return status;
}

/* ---- a mask for a map -------------------------------------------------------------------------------------------- */

typedef struct comparison {
  const fly_map *map, *out; /* out: bound to the mask */
  int64_t heads;
  _Atomic(int64_t) different; /* the first (b, h) that differs, or more than all */
} comparison;

/* The first pair of a partial tile at which they differ; false: none. */
static bool tile_differs(const comparison *c, int64_t b, int64_t h, const flyi_box *t, int64_t *q, int64_t *kv) {
  uint64_t map[FLYI_BLOCK], mask[FLYI_BLOCK];
  for (int64_t i = t->q0; i <= t->q1; i += FLYI_BLOCK) {
    for (int64_t k = t->kv0; k <= t->kv1; k += FLYI_BLOCK) {
      int64_t columns = t->kv1 - k + 1;
      uint64_t inside = columns >= FLYI_BLOCK ? ~0ull : ~(~0ull << columns);
      flyi_map_bits(c->map, (int32_t)b, (int32_t)h, (int32_t)i, (int32_t)k, map);
      c->out->tile(c->out->args, (int32_t)b, (int32_t)h, (int32_t)i, (int32_t)k, mask);
      for (int64_t r = 0; r < FLYI_BLOCK && i + r <= t->q1; r++)
        if ((map[r] ^ mask[r]) & inside)
          return *q = i + r, *kv = k + __builtin_ctzll((map[r] ^ mask[r]) & inside), true;
    }
  }
  return false;
}

/* In one plane. */
static bool plane_differs(const comparison *c, int64_t b, int64_t h, int64_t *q, int64_t *kv) {
  const flyi_plane *p = flyi_map_plane(c->map, FLY_BY_QUERY, b, h);
  flyi_survey s = flyi_survey_of(c->out, b, h, NULL);
  for (int32_t row = 0; row < p->rows; row++) {
    int64_t q0 = row * s.tile_q, q1 = q0 + s.tile_q < s.len_q ? q0 + s.tile_q : s.len_q;
    for (int64_t i = p->start[row]; i < p->start[row + 1]; i++) {
      const fly_run *run = &p->runs[i];
      int64_t end = (run->first + (int64_t)run->count) * s.tile_kv;
      flyi_box box = {s.q_offset + q0, s.q_offset + q1 - 1, run->first * s.tile_kv,
                      (end < s.len_kv ? end : s.len_kv) - 1};
      if (run->kind == FLY_PARTIAL && tile_differs(c, b, h, &box, q, kv)) return true;
    }
  }
  return false;
}

static void compare_item(void *context, int64_t item, int worker) {
  (void)worker;
  comparison *c = context;
  int64_t q, kv, first = c->different;
  if (item > first || !plane_differs(c, item / c->heads, item % c->heads, &q, &kv)) return;
  while (item < first && !atomic_compare_exchange_weak(&c->different, &first, item)) continue;
}

/* Whether the bound mask gives the partial tiles the pairs that they have. */
static fly_status compare_pairs(const fly_map *map, const fly_map *out, fly_error *error) {
  const fly_geometry *g = &out->geometry;
  const uint32_t planes = FLYI_READS_B | FLYI_READS_H | FLYI_READS_TOKEN_Q | FLYI_READS_TOKEN_KV;
  bool all = out->bound->mask->image.reads & planes;
  int64_t batch = all ? g->batch : map->info.batch, heads = all ? g->heads : map->info.heads, q, kv;
  comparison c = {.map = map, .out = out, .heads = heads, .different = batch * heads};
  flyi_parallel(&map->threads, batch * heads, compare_item, &c);
  if (c.different == batch * heads) return FLY_OK;
  int64_t b = c.different / heads, h = c.different % heads;
  plane_differs(&c, b, h, &q, &kv);
  uint64_t bits[FLYI_BLOCK];
  flyi_map_bits(map, (int32_t)b, (int32_t)h, (int32_t)q, (int32_t)kv, bits);
  return flyi_fail(error, FLY_ERROR_ARGUMENT,
                   "the mask is not the map's: (batch %" PRId64 ", head %" PRId64 ", query row %" PRId64
                   ", key %" PRId64 ") is %s in the map",
                   b, h, q - g->q_offset, kv, bits[0] & 1 ? "visible" : "hidden");
}

static void copy_plane(void *context, int64_t b, int64_t h, flyi_plane_maker *maker) {
  const flyi_plane *p = flyi_map_plane(context, FLY_BY_QUERY, b, h);
  for (int32_t row = 0; row < p->rows; row++) {
    for (int64_t i = p->start[row]; i < p->start[row + 1]; i++)
      flyi_maker_add(maker, p->runs[i].first, p->runs[i].count, (fly_tile_kind)p->runs[i].kind);
    flyi_maker_end_row(maker);
  }
}

/* The planes of the copy are the map's. */
static fly_status copy_planes(const fly_map *map, fly_map *out, fly_error *error) {
  int64_t items = map->info.batch * map->info.heads;
  int64_t *alike = flyi_alloc(items, sizeof *alike);
  if (!alike) return flyi_no_memory(error);
  for (int64_t i = 0; i < items; i++) alike[i] = map->plane_of[i];
  out->info.batch = map->info.batch, out->info.heads = map->info.heads;
  fly_status status = flyi_map_fill(out, alike, copy_plane, (void *)map, error);
  free(alike);
  return status;
}

fly_status fly_map_bind(const fly_map *map, fly_bound *bound, fly_map **out, fly_error *error) {
  fly_map *copy = NULL;
  if (!out) return flyi_fail(error, FLY_ERROR_ARGUMENT, "out is NULL");
  *out = NULL;
  if (!map || !bound) return flyi_fail(error, FLY_ERROR_ARGUMENT, "%s is NULL", map ? "bound" : "map");
  fly_status status = create_like(map, &copy, error);
  if (status) return status;
  if ((status = flyi_map_bind(copy, bound, error)) || (map->tile && (status = compare_pairs(map, copy, error))) ||
      (status = copy_planes(map, copy, error)))
    return fly_map_release(&copy), status;
  *out = copy;
  return FLY_OK;
}

/* ---- equality ---------------------------------------------------------------------------------------------------- */

static bool planes_equal(const flyi_plane *a, const flyi_plane *b) {
  if (a->len_q != b->len_q || a->len_kv != b->len_kv || a->rows != b->rows || a->columns != b->columns ||
      memcmp(a->start, b->start, (a->rows + (size_t)1) * sizeof *a->start))
    return false;
  return !a->start[a->rows] || !memcmp(a->runs, b->runs, a->start[a->rows] * sizeof *a->runs);
}

bool fly_map_equal(const fly_map *a, const fly_map *b) {
  if (!a || !b) return false;
  if (a->geometry.batch != b->geometry.batch || a->geometry.heads != b->geometry.heads ||
      a->info.tile_q != b->info.tile_q || a->info.tile_kv != b->info.tile_kv)
    return false;
  int64_t batch = greatest(a->info.batch, b->info.batch), heads = greatest(a->info.heads, b->info.heads);
  for (int64_t i = 0; i < batch; i++)
    for (int64_t h = 0; h < heads; h++)
      if (!planes_equal(flyi_map_plane(a, FLY_BY_QUERY, i, h), flyi_map_plane(b, FLY_BY_QUERY, i, h))) return false;
  return true;
}
