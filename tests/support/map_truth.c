/* map_truth.c: block maps against every pair. */
#include "map_truth.h"

void truth_compiled(void *context, const fly_map *map, int b, int h, int64_t len_q, int64_t len_kv, uint8_t *see) {
  (void)context;
  uint64_t bits[FLYI_BLOCK];
  for (int64_t q = 0; q < len_q; q += FLYI_BLOCK)
    for (int64_t kv = 0; kv < len_kv; kv += FLYI_BLOCK) {
      map->bound->mask->code.tile(map->args, b, h, (int32_t)(q + map->geometry.q_offset), (int32_t)kv, bits);
      for (int64_t r = 0; r < FLYI_BLOCK && q + r < len_q; r++)
        for (int64_t j = 0; j < FLYI_BLOCK && kv + j < len_kv; j++) see[(q + r) * len_kv + kv + j] = bits[r] >> j & 1;
    }
}

void truth_by_predicate(void *context, const fly_map *map, int b, int h, int64_t len_q, int64_t len_kv, uint8_t *see) {
  const truth_predicate *p = context;
  for (int64_t q = 0; q < len_q; q++)
    for (int64_t kv = 0; kv < len_kv; kv++)
      see[q * len_kv + kv] = p->see(p->context, b, h, (int)(q + map->geometry.q_offset), (int)kv);
}

/* ---- checking ---------------------------------------------------------------------------------------------------- */

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static fly_tile_kind kind_of(const uint8_t *see, int64_t len_kv, int64_t q0, int64_t q1, int64_t kv0, int64_t kv1) {
  int64_t visible = 0;
  for (int64_t q = q0; q < q1; q++)
    for (int64_t kv = kv0; kv < kv1; kv++) visible += see[q * len_kv + kv];
  return visible == 0 ? FLY_EMPTY : visible == (q1 - q0) * (kv1 - kv0) ? FLY_FULL : FLY_PARTIAL;
}

/* The kinds of a row's tiles, from its runs, which are in order and cannot be joined. */
static void read_row(const fly_run *runs, int64_t count, int64_t columns, uint8_t *kind, const char *what) {
  memset(kind, FLY_EMPTY, (size_t)columns);
  for (int64_t i = 0, end = 0; i < count; end = runs[i].first + runs[i].count, i++) {
    const fly_run *run = &runs[i];
    expect(run->count > 0 && run->first >= end && run->first + run->count <= columns, "%s: runs overlap", what);
    expect(run->kind == FLY_FULL || run->kind == FLY_PARTIAL, "%s: a run of kind %u", what, run->kind);
    expect(i == 0 || run->first > end || run->kind != runs[i - 1].kind, "%s: runs that could be one", what);
    memset(kind + run->first, run->kind, (size_t)run->count);
  }
}

typedef struct plane_check {
  const fly_map *map;
  int b, h;
  int64_t rows, columns, len_q, len_kv;
  uint8_t *kind; /* [rows, columns] */
  const char *what;
} plane_check;

static void check_tiles(plane_check *c, const uint8_t *see, bool exact) {
  const fly_map_info *info = &c->map->info;
  const fly_run *runs;
  for (int64_t row = 0; row < c->rows; row++) {
    int64_t count = fly_map_row(c->map, FLY_BY_QUERY, c->b, c->h, row, &runs);
    expect(count >= 0, "%s: row %lld is missing", c->what, (long long)row);
    read_row(runs, count, c->columns, c->kind + row * c->columns, c->what);
    for (int64_t column = 0; column < c->columns; column++) {
      int64_t q0 = row * info->tile_q, kv0 = column * info->tile_kv;
      fly_tile_kind truth = kind_of(see, c->len_kv, q0, least(q0 + info->tile_q, c->len_q), kv0,
                                    least(kv0 + info->tile_kv, c->len_kv));
      fly_tile_kind said = c->kind[row * c->columns + column];
      expect(said == truth || (!exact && said == FLY_PARTIAL),
             "%s: (%d, %d) tile (%lld, %lld) of %lld x %lld: is %d, not %d", c->what, c->b, c->h, (long long)row,
             (long long)column, (long long)info->tile_q, (long long)info->tile_kv, said, truth);
    }
  }
  expect(fly_map_row(c->map, FLY_BY_QUERY, c->b, c->h, c->rows, &runs) == -1 && !runs, "%s: a row too many", c->what);
}

static void check_transpose(plane_check *c) {
  uint8_t *kind = calloc((size_t)c->rows + 1, 1);
  const fly_run *runs;
  for (int64_t column = 0; column < c->columns; column++) {
    int64_t count = fly_map_row(c->map, FLY_BY_KEY, c->b, c->h, column, &runs);
    expect(count >= 0, "%s: column %lld is missing", c->what, (long long)column);
    read_row(runs, count, c->rows, kind, c->what);
    for (int64_t row = 0; row < c->rows; row++)
      expect(kind[row] == c->kind[row * c->columns + column], "%s: transposed tile (%lld, %lld)", c->what,
             (long long)row, (long long)column);
  }
  expect(fly_map_row(c->map, FLY_BY_KEY, c->b, c->h, c->columns, &runs) == -1, "%s: a column too many", c->what);
  free(kind);
}

/* The lists of one order against the kinds: entry (i, j) of the order is kind[i * step_i + j * step_j]. */
static void check_lists(const plane_check *c, const fly_map_lists *lists, bool by_query) {
  int64_t rows = by_query ? c->rows : c->columns, columns = by_query ? c->columns : c->rows;
  int64_t plane = (lists->batch == 1 ? 0 : c->b) * lists->heads + (lists->heads == 1 ? 0 : c->h);
  for (int64_t i = 0; i < lists->rows; i++) {
    int64_t r = plane * lists->rows + i, partial = 0, full = 0;
    for (int64_t j = 0; i < rows && j < columns; j++) {
      uint8_t kind = by_query ? c->kind[i * c->columns + j] : c->kind[j * c->columns + i];
      if (kind == FLY_PARTIAL)
        expect(partial < lists->num[r] && lists->index[lists->start[r] + partial++] == j, "%s: partial list", c->what);
      if (kind == FLY_FULL)
        expect(full < lists->full_num[r] && lists->full_index[lists->full_start[r] + full++] == j, "%s: full list",
               c->what);
    }
    expect(partial == lists->num[r] && full == lists->full_num[r], "%s: numbers of row %lld", c->what, (long long)i);
    expect(lists->start[r + 1] == lists->start[r] + partial && lists->full_start[r + 1] == lists->full_start[r] + full,
           "%s: starts", c->what);
  }
}

long check_map(fly_map *map, bool exact, truth_fill *fill, void *context, const char *what) {
  const fly_geometry *g = &map->geometry;
  fly_map_lists lists[2];
  fly_map_info info;
  fly_error error;
  int64_t pairs = 0, counted, kinds[3] = {0}, tiles = 0;
  fly_map_get_info(map, &info);
  ck_fly_ok(fly_map_transpose(map, &error), error);
  ck_fly_ok(fly_map_expand(map, FLY_BY_QUERY, &lists[0], &error), error);
  ck_fly_ok(fly_map_expand(map, FLY_BY_KEY, &lists[1], &error), error);
  for (int b = 0; b < g->batch; b++)
    for (int h = 0; h < g->heads; h++) {
      plane_check c = {
          .map = map, .b = b, .h = h, .len_q = flyi_len_q(g, b), .len_kv = flyi_len_kv(g, b), .what = what};
      c.rows = (c.len_q + info.tile_q - 1) / info.tile_q, c.columns = (c.len_kv + info.tile_kv - 1) / info.tile_kv;
      c.kind = calloc((size_t)(c.rows * c.columns) + 1, 1);
      uint8_t *see = calloc((size_t)(c.len_q * c.len_kv) + 1, 1);
      fill(context, map, b, h, c.len_q, c.len_kv, see);
      check_tiles(&c, see, exact);
      check_transpose(&c);
      check_lists(&c, &lists[0], true);
      check_lists(&c, &lists[1], false);
      for (int64_t i = 0; i < c.len_q * c.len_kv; i++) pairs += see[i];
      for (int64_t i = 0; i < c.rows * c.columns; i++) kinds[c.kind[i]] += b < info.batch && h < info.heads;
      tiles += c.rows * c.columns;
      free(see), free(c.kind);
    }
  ck_fly_ok(fly_map_visible_pairs(map, &counted, &error), error);
  expect(counted == pairs, "%s: %lld visible pairs, not %lld", what, (long long)counted, (long long)pairs);
  expect(info.tiles_empty == kinds[FLY_EMPTY] && info.tiles_full == kinds[FLY_FULL] &&
             info.tiles_partial == kinds[FLY_PARTIAL],
         "%s: counts", what);
  fly_map_lists_free(&lists[0]), fly_map_lists_free(&lists[1]);
  return tiles;
}

/* ---- geometries -------------------------------------------------------------------------------------------------- */

int random_tile(test_random *random) {
  return test_range(random, 0, 1) ? 1 << test_range(random, 2, 7) : (int)test_range(random, 1, 200);
}

static void random_rows(test_random *random, const fly_geometry *g, int64_t length, int64_t tokens, int32_t **rows,
                        fly_row_map *map) {
  int64_t stride = length + test_range(random, 0, 5), entries = g->batch * g->heads * stride;
  *rows = malloc(((size_t)entries + 1) * sizeof **rows);
  for (int64_t i = 0; i < entries; i++) (*rows)[i] = (int32_t)test_range(random, 0, tokens - 1);
  bool batch = test_range(random, 0, 1), heads = test_range(random, 0, 1);
  *map = (fly_row_map){*rows, batch ? stride * g->heads : 0, heads ? stride : 0};
}

void random_call_init(test_random *random, int64_t longest, int64_t tokens, random_call *out) {
  *out = (random_call){
      .geometry = {FLY_INIT(fly_geometry), .batch = test_range(random, 1, 3), .heads = test_range(random, 1, 3)}};
  fly_geometry *g = &out->geometry;
  g->len_q = test_range(random, test_range(random, 0, 9) != 0, longest);
  g->len_kv = test_range(random, 0, 2) ? g->len_q : test_range(random, test_range(random, 0, 9) != 0, longest);
  if (test_range(random, 0, 4) == 0) {
    out->cu_q = calloc((size_t)g->batch + 1, sizeof *out->cu_q),
    out->cu_kv = calloc((size_t)g->batch + 1, sizeof *out->cu_kv);
    bool same = test_range(random, 0, 2) == 0;
    for (int64_t b = 0; b < g->batch; b++) {
      out->cu_q[b + 1] = out->cu_q[b] + (int32_t)(same ? g->len_q : test_range(random, 0, longest));
      out->cu_kv[b + 1] = out->cu_kv[b] + (int32_t)(same ? g->len_kv : test_range(random, 0, longest));
    }
    g->cu_seqlens_q = out->cu_q, g->cu_seqlens_kv = out->cu_kv;
  }
  int64_t rows_q = out->cu_q ? out->cu_q[g->batch] : g->len_q, rows_kv = out->cu_kv ? out->cu_kv[g->batch] : g->len_kv;
  if (test_range(random, 0, 2) == 0)
    g->q_offset = test_range(random, 0, 3) ? g->len_kv - g->len_q : test_range(random, -30, 300);
  if (test_range(random, 0, 2) == 0) random_rows(random, g, rows_q, tokens, &out->q_rows, &g->q_rows);
  if (test_range(random, 0, 2) == 0) random_rows(random, g, rows_kv, tokens, &out->kv_rows, &g->kv_rows);
}

void random_call_free(random_call *c) {
  free(c->q_rows), free(c->kv_rows), free(c->cu_q), free(c->cu_kv);
  memset(c, 0, sizeof *c);
}
