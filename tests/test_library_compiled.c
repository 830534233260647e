/* The masks of masks/, compiled: every pair is what the formulations of library/ mark, and every tile of every map
 * is of exactly the kind that its pairs make it: EMPTY, FULL or PARTIAL. Values for which a mask has no convention
 * (hostile ones) must still give maps that agree with the compiled mask. */
#include <limits.h>

#include "library/scene_call.h"

enum { SEEDS = 2, HOSTILE_SEEDS = 3 };

static const struct {
  int q, kv;
} tiles[] = {{128, 128}, {64, 64}, {32, 16}, {16, 64}, {7, 5}};
enum { TILES = sizeof tiles / sizeof *tiles };

/* ---- a scene's call ---------------------------------------------------------------------------------------------- */

static fly_mask *compile(const char *name) {
  char path[512];
  fly_error error;
  fly_mask *mask;
  snprintf(path, sizeof path, "%s/masks/%s.c", FLYMASK_SOURCE, name);
  ck_fly_ok(fly_mask_compile_file(path, NULL, &mask, &error), error);
  return mask;
}

static fly_map *build(fly_bound *bound, const scene *s, int tile, bool fast) {
  fly_geometry geometry = {FLY_INIT(fly_geometry), .batch = s->batch, .heads = s->heads};
  geometry.len_q = s->len_q, geometry.len_kv = s->len_kv, geometry.q_offset = s->q_offset;
  int64_t plane_q = s->ragged ? s->cu_q[s->batch] : s->len_q, plane_kv = s->ragged ? s->cu_kv[s->batch] : s->len_kv;
  if (s->q_rows) geometry.q_rows = (fly_row_map){s->q_rows, s->ragged ? 0 : plane_q * s->heads, plane_q};
  if (s->kv_rows) geometry.kv_rows = (fly_row_map){s->kv_rows, s->ragged ? 0 : plane_kv * s->heads, plane_kv};
  if (s->ragged) geometry.cu_seqlens_q = s->cu_q, geometry.cu_seqlens_kv = s->cu_kv;
  fly_map_options options = {FLY_INIT(fly_map_options), .tile_q = tiles[tile].q, .tile_kv = tiles[tile].kv,
                             .fast = fast};
  fly_error error;
  fly_map *map;
  ck_fly_ok(fly_map_build(bound, &geometry, &options, &map, &error), error);
  return map;
}

/* ---- maps -------------------------------------------------------------------------------------------------------- */

static bool see(void *context, int b, int h, int q_row, int kv_row) {
  int answer = fly_map_visible(context, b, h, q_row, kv_row);
  if (answer < 0) ck_abort_msg("no pair (%d, %d, %d, %d)", b, h, q_row, kv_row);
  return answer;
}

static bool shown(const scene *s, int b, int h, int q, int kv) {
  return s->seen[(((size_t)b * s->heads + h) * s->len_q + q) * s->len_kv + kv];
}

static int least(int a, int b) { return a < b ? a : b; }

/* The kind of tile (i, j) by its pairs; outside the entry it is empty. */
static fly_tile_kind kind_of(const scene *s, int b, int h, int i, int j, int tile_q, int tile_kv) {
  int64_t all = 0, visible = 0;
  for (int q = i * tile_q; q < least((i + 1) * tile_q, s->entry_q[b]); q++)
    for (int kv = j * tile_kv; kv < least((j + 1) * tile_kv, s->entry_kv[b]); kv++)
      all++, visible += shown(s, b, h, q, kv);
  return visible == 0 ? FLY_EMPTY : visible == all ? FLY_FULL : FLY_PARTIAL;
}

/* The kinds that a row's runs say, in kinds[count]; also that they are ascending and apart. */
static void read_row(const fly_map *map, fly_order order, int b, int h, int row, int count, fly_tile_kind *kinds) {
  const fly_run *runs;
  int64_t length = fly_map_row(map, order, b, h, row, &runs), next = 0;
  if (length < 0) ck_abort_msg("no row %d of (%d, %d)", row, b, h);
  for (int j = 0; j < count; j++) kinds[j] = FLY_EMPTY;
  for (int64_t r = 0; r < length; r++) {
    bool apart = runs[r].first >= next, known = runs[r].kind == FLY_FULL || runs[r].kind == FLY_PARTIAL;
    next = runs[r].first + runs[r].count;
    if (!apart || !known || runs[r].count <= 0 || next > count)
      ck_abort_msg("row %d: run %d is malformed", row, (int)r);
    for (int64_t j = runs[r].first; j < next; j++) kinds[j] = runs[r].kind;
  }
}

static const char *const kind_names[] = {"empty", "full", "partial"};

static void check_tiles(const char *name, const scene *s, fly_map *map, int tile) {
  enum { MOST = 64 };
  fly_error error;
  fly_tile_kind kinds[MOST];
  int tile_q = tiles[tile].q, tile_kv = tiles[tile].kv;
  ck_fly_ok(fly_map_transpose(map, &error), error);
  for (int b = 0; b < s->batch; b++)
    for (int h = 0; h < s->heads; h++) {
      int rows = (s->entry_q[b] + tile_q - 1) / tile_q, columns = (s->entry_kv[b] + tile_kv - 1) / tile_kv;
      ck_assert(rows <= MOST && columns <= MOST);
      for (int line = 0; line < rows + columns; line++) {
        bool by_query = line < rows;
        int at = by_query ? line : line - rows, count = by_query ? columns : rows;
        read_row(map, by_query ? FLY_BY_QUERY : FLY_BY_KEY, b, h, at, count, kinds);
        for (int other = 0; other < count; other++) {
          int i = by_query ? at : other, j = by_query ? other : at;
          fly_tile_kind expected = kind_of(s, b, h, i, j, tile_q, tile_kv);
          if (kinds[other] == expected) continue;
          ck_abort_msg("%s: %d x %d, tiles of %d x %d, by %s: tile (%d, %d, %d, %d) is %s, not %s", name, s->len_q,
                       s->len_kv, tile_q, tile_kv, by_query ? "query" : "key", b, h, i, j, kind_names[kinds[other]],
                       kind_names[expected]);
        }
      }
    }
}

static void check_pairs(const scene *s, const fly_map *map) {
  int64_t expected = 0, pairs;
  fly_error error;
  for (int b = 0; b < s->batch; b++)
    for (int h = 0; h < s->heads; h++)
      for (int q = 0; q < s->entry_q[b]; q++)
        for (int kv = 0; kv < s->entry_kv[b]; kv++) expected += shown(s, b, h, q, kv);
  ck_fly_ok(fly_map_visible_pairs(map, &pairs, &error), error);
  ck_assert_int_eq(pairs, expected);
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static void check_scene(const char *name, fly_mask *mask, const scene *s) {
  fly_bound *bound = scene_bind(mask, s);
  for (int tile = 0; tile < TILES; tile++) {
    fly_map *map = build(bound, s, tile, false);
    if (tile == 0) library_compare(name, s, (library_source){map, see});
    check_tiles(name, s, map, tile);
    check_pairs(s, map);
    fly_map_release(&map);
  }
  fly_bound_release(&bound);
}

START_TEST(compiled_masks_and_their_maps_are_what_the_convention_says) {
  const library_mask *entry = library_mask_at(_i);
  fly_mask *mask = compile(entry->name);
  for (int seed = 0; seed < SEEDS; seed++) {
    scene *s;
    for (int k = 0; (s = scene_create(k, seed, seed != 0, entry->negative)); k++) {
      entry->draw(s);
      check_scene(entry->name, mask, s);
      scene_free(s);
    }
  }
  fly_mask_release(&mask);
}
END_TEST

/* What the compiled mask says, pair by pair, stands in for a formulation. */
static void ask(scene *s, const fly_map *map) {
  memset(s->seen, 0, (size_t)s->batch * s->heads * s->len_q * s->len_kv);
  for (int b = 0; b < s->batch; b++)
    for (int h = 0; h < s->heads; h++)
      for (int q = 0; q < s->entry_q[b]; q++)
        for (int kv = 0; kv < s->entry_kv[b]; kv++)
          if (see((void *)map, b, h, q, kv)) scene_show(s, b, h, q + s->q_offset, kv);
}

START_TEST(hostile_values_leave_maps_and_masks_in_agreement) {
  static const int values[] = {0, -1, 1, 2, -7, INT_MAX, INT_MIN, INT_MAX - 3, 1 << 16, -(1 << 20)};
  const library_mask *entry = library_mask_at(_i);
  fly_mask *mask = compile(entry->name);
  for (int seed = 0; seed < HOSTILE_SEEDS; seed++) {
    scene *s;
    for (int k = 0; (s = scene_create(k, 100 + seed, true, true)); k++) {
      entry->draw(s);
      for (int i = 0; i < s->arg_count; i++) {
        scene_arg *arg = &s->args[i];
        if (!arg->data && scene_chance(s, 60)) arg->value = values[test_range(&s->random, 0, 9)];
        for (int64_t e = 0; arg->data && arg->type == FLY_I32 && e < arg->count; e++)
          if (scene_chance(s, 10)) ((int32_t *)arg->data)[e] = values[test_range(&s->random, 0, 9)];
      }
      fly_bound *bound = scene_bind(mask, s);
      fly_map *map = build(bound, s, seed % TILES, false);
      ask(s, map);
      check_tiles(entry->name, s, map, seed % TILES);
      check_pairs(s, map);
      fly_map_release(&map);
      fly_bound_release(&bound);
      scene_free(s);
    }
  }
  fly_mask_release(&mask);
}
END_TEST

/* A case for each mask: CK_RUN_CASE=NAME runs one alone. */
static Suite *library_compiled_suite(void) {
  Suite *suite = suite_create("library.compiled");
  const library_mask *m;
  for (int i = 0; (m = library_mask_at(i)); i++) {
    TCase *tcase = tcase_create(m->name);
    tcase_add_loop_test(tcase, compiled_masks_and_their_maps_are_what_the_convention_says, i, i + 1);
    tcase_add_loop_test(tcase, hostile_values_leave_maps_and_masks_in_agreement, i, i + 1);
    suite_add_tcase(suite, tcase);
  }
  return suite;
}

FLY_TEST_MAIN(library_compiled_suite)
