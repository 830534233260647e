/* mapbits.c: the pairs of maps that no mask alone decides: of a bitmap, and of maps made of maps.
 *
 * Such a map has a tile function like a compiled mask's, whose arguments hold what it asks in their slots. */
#include <string.h>

#include "mapops.h"

/* ---- the truth of a map ------------------------------------------------------------------------------------------ */

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* The first run of the row that ends behind tile `column`. */
static const fly_run *find_run(const flyi_plane *p, int64_t row, int64_t column) {
  int64_t lo = p->start[row], hi = p->start[row + 1];
  while (lo < hi) {
    int64_t middle = lo + (hi - lo) / 2;
    if (p->runs[middle].first + p->runs[middle].count <= column)
      lo = middle + 1;
    else
      hi = middle;
  }
  return p->runs + lo;
}

/* Bits from .. to - 1, of 64. */
static uint64_t span_of(int64_t from, int64_t to) {
  if (from < 0) from = 0;
  return from >= to ? 0 : (to >= 64 ? ~0ull : ~(~0ull << to)) & ~0ull << from;
}

void flyi_map_bits(const fly_map *map, int32_t b, int32_t h, int32_t q, int32_t kv, uint64_t bits[FLYI_BLOCK]) {
  const flyi_plane *p = flyi_map_plane(map, FLY_BY_QUERY, b, h);
  int64_t tile_q = map->info.tile_q, tile_kv = map->info.tile_kv, first = q - map->geometry.q_offset;
  int64_t end = least(first + FLYI_BLOCK, p->len_q), columns = least((int64_t)kv + FLYI_BLOCK, p->len_kv) - kv;
  uint64_t own[FLYI_BLOCK];
  bool asked = false;
  memset(bits, 0, FLYI_BLOCK * sizeof *bits);
  for (int64_t row = first / tile_q; row * tile_q < end; row++) {
    const fly_run *last = p->runs + p->start[row + 1];
    for (const fly_run *run = find_run(p, row, kv / tile_kv); run < last; run++) {
      int64_t from = run->first * tile_kv - kv, to = (run->first + (int64_t)run->count) * tile_kv - kv;
      if (from >= columns) break;
      uint64_t inside = span_of(from, least(to, columns));
      if (run->kind == FLY_PARTIAL && !asked) map->tile(map->args, b, h, q, kv, own), asked = true;
      int64_t r = row * tile_q > first ? row * tile_q : first, r1 = least((row + 1) * tile_q, end);
      for (; r < r1; r++) bits[r - first] |= run->kind == FLY_FULL ? inside : own[r - first] & inside;
    }
  }
}

/* ---- tile functions ---------------------------------------------------------------------------------------------- */

static const fly_map *part(const flyi_mask_args *args, int i) { return (const fly_map *)(uintptr_t)args->slots[i]; }

static void same_tile(const flyi_mask_args *args, int32_t b, int32_t h, int32_t q, int32_t kv,
                      uint64_t bits[FLYI_BLOCK]) {
  flyi_map_bits(part(args, 0), b, h, q, kv, bits);
}

static void not_tile(const flyi_mask_args *args, int32_t b, int32_t h, int32_t q, int32_t kv,
                     uint64_t bits[FLYI_BLOCK]) {
  flyi_map_bits(part(args, 0), b, h, q, kv, bits);
  for (int r = 0; r < FLYI_BLOCK; r++) bits[r] = ~bits[r];
}

static void and_tile(const flyi_mask_args *args, int32_t b, int32_t h, int32_t q, int32_t kv,
                     uint64_t bits[FLYI_BLOCK]) {
  uint64_t right[FLYI_BLOCK];
  flyi_map_bits(part(args, 0), b, h, q, kv, bits);
  flyi_map_bits(part(args, 1), b, h, q, kv, right);
  for (int r = 0; r < FLYI_BLOCK; r++) bits[r] &= right[r];
}

static void or_tile(const flyi_mask_args *args, int32_t b, int32_t h, int32_t q, int32_t kv,
                    uint64_t bits[FLYI_BLOCK]) {
  uint64_t right[FLYI_BLOCK];
  flyi_map_bits(part(args, 0), b, h, q, kv, bits);
  flyi_map_bits(part(args, 1), b, h, q, kv, right);
  for (int r = 0; r < FLYI_BLOCK; r++) bits[r] |= right[r];
}

/* Of eight bytes: bit j is whether byte j is not 0. */
static uint64_t not_zero(const uint8_t *bytes) {
  uint64_t x;
  memcpy(&x, bytes, sizeof x);
  x |= x >> 4 & 0x0f0f0f0f0f0f0f0f;
  x |= x >> 2 & 0x3f3f3f3f3f3f3f3f;
  x |= x >> 1;
  return (x & 0x0101010101010101) * 0x0102040810204080 >> 56;
}

/* Slots: the first byte, then B, H, Q, KV. */
static void bitmap_tile(const flyi_mask_args *args, int32_t b, int32_t h, int32_t q, int32_t kv,
                        uint64_t bits[FLYI_BLOCK]) {
  const int64_t batch = (int64_t)args->slots[1], heads = (int64_t)args->slots[2];
  const int64_t rows = (int64_t)args->slots[3], columns = (int64_t)args->slots[4];
  const uint8_t *plane = (const uint8_t *)(uintptr_t)args->slots[0] +
                         ((batch == 1 ? 0 : b) * heads + (heads == 1 ? 0 : h)) * rows * columns;
  int64_t row = q - args->q_offset, count = least(FLYI_BLOCK, columns - kv);
  for (int r = 0; r < FLYI_BLOCK; r++) {
    bits[r] = 0;
    if (row + r >= rows) continue;
    const uint8_t *at = plane + (row + r) * columns + kv;
    int64_t j = 0;
    for (; j + 8 <= count; j += 8) bits[r] |= not_zero(at + j) << j;
    for (; j < count; j++) bits[r] |= (uint64_t)(at[j] != 0) << j;
  }
}

/* ---- who is asked ------------------------------------------------------------------------------------------------ */

static flyi_mask_args *make_args(const fly_map *out, int slots) {
  flyi_mask_args *args = flyi_alloc(1, sizeof *args + slots * sizeof *args->slots);
  if (args) args->q_offset = out->geometry.q_offset;
  return args;
}

fly_status flyi_map_ask(fly_map *out, const fly_combine *how, const fly_map *left, const fly_map *right,
                        fly_error *error) {
  if (!left->tile || (right && !right->tile)) return FLY_OK;
  out->args = make_args(out, 2);
  if (!out->args) return flyi_no_memory(error);
  out->part[0] = fly_map_retain((fly_map *)left), out->part[1] = fly_map_retain((fly_map *)right);
  out->args->slots[0] = (uintptr_t)left, out->args->slots[1] = (uintptr_t)right;
  out->tile = !how ? same_tile : *how == FLY_NOT ? not_tile : *how == FLY_AND ? and_tile : or_tile;
  return FLY_OK;
}

fly_status flyi_map_ask_bitmap(fly_map *out, fly_buffer *bitmap, fly_error *error) {
  out->args = make_args(out, 5);
  if (!out->args) return flyi_no_memory(error);
  out->bitmap = fly_buffer_retain(bitmap);
  bool planes = bitmap->rank == 4;
  uint64_t *slot = out->args->slots;
  slot[0] = (uintptr_t)bitmap->data;
  slot[1] = planes ? (uint64_t)bitmap->shape[0] : 1, slot[2] = planes ? (uint64_t)bitmap->shape[1] : 1;
  slot[3] = (uint64_t)bitmap->shape[planes ? 2 : 0], slot[4] = (uint64_t)bitmap->shape[planes ? 3 : 1];
  out->tile = bitmap_tile;
  return FLY_OK;
}

fly_tile_kind flyi_map_settle(const fly_map *map, int64_t b, int64_t h, int32_t row, int32_t column) {
  if (!map->tile) return FLY_PARTIAL;
  flyi_survey s = flyi_survey_of(map, b, h, NULL);
  flyi_box box = {s.q_offset + row * s.tile_q, s.q_offset + least((row + 1) * s.tile_q, s.len_q) - 1,
                  column * s.tile_kv, least((column + 1) * s.tile_kv, s.len_kv) - 1};
  return flyi_settle_pairs(&s, &box);
}
