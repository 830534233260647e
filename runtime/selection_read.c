/* selection_read.c: one query's list or row of a bitmap, as tiles of keys and bits of blocks in each. */
#include <inttypes.h>
#include <stdlib.h>

#include "selection.h"

static int64_t tiles_of(const fly_selection *s) { return (s->key_blocks + s->tile_blocks - 1) / s->tile_blocks; }

bool flyi_selected_create(const fly_selection *s, flyi_selected *out) {
  *out = (flyi_selected){0};
  out->tile = flyi_alloc(tiles_of(s), sizeof *out->tile);
  out->bits = flyi_alloc(tiles_of(s), sizeof *out->bits);
  out->seen = flyi_alloc(tiles_of(s), sizeof *out->seen);
  return out->tile && out->bits && out->seen;
}

void flyi_selected_free(flyi_selected *x) { free(x->tile), free(x->bits), free(x->seen); }

/* Blocks that a query sees some of: those that begin at or before its position. */
static int64_t blocks_in_reach(const fly_selection *s, int64_t i) {
  int64_t position = i + s->q_offset;
  if (!s->causal) return s->key_blocks;
  if (position < 0) return 0;
  return flyi_min64(position / s->block + 1, s->key_blocks);
}

static inline void append(flyi_selected *x, int64_t tile, uint64_t bits) {
  x->tile[x->count] = (int32_t)tile, x->bits[x->count] = bits;
  x->count++;
}

static int compare(const void *a, const void *b) {
  return (*(const int32_t *)a > *(const int32_t *)b) - (*(const int32_t *)a < *(const int32_t *)b);
}

/* A list in any order, with repetitions. */
static void read_shuffled(const fly_selection *s, const int32_t *list, int count, int64_t reach, flyi_selected *x) {
  x->count = 0;
  for (int i = 0; i < count; i++) {
    if (list[i] < 0 || list[i] >= reach) continue;
    int64_t tile = list[i] / s->tile_blocks;
    if (!x->seen[tile]) x->tile[x->count++] = (int32_t)tile;
    x->seen[tile] |= 1ull << list[i] % s->tile_blocks;
  }
  qsort(x->tile, (size_t)x->count, sizeof *x->tile, compare);
  for (int64_t i = 0; i < x->count; i++) {
    x->bits[i] = x->seen[x->tile[i]];
    x->seen[x->tile[i]] = 0;
  }
}

/* The plainest list: a block a tile, ascending. False where it is not, or where some blocks do not count or do not
 * exist. */
static bool read_plain(const fly_selection *s, const int32_t *list, int count, int64_t position, flyi_selected *x) {
  int64_t last = -1, found = 0;
  for (int i = 0; i < count; i++) {
    if (list[i] == -1) continue;
    if (list[i] <= last) return false;
    x->tile[found++] = list[i];
    last = list[i];
  }
  x->count = found;
  return last < s->key_blocks && (!s->causal || last * s->block <= position);
}

static fly_status read_list(const fly_selection *s, const int32_t *list, int count, int64_t reach, flyi_selected *x,
                            fly_error *error) {
  int64_t last = -1;
  bool ascends = true;
  for (int i = 0; i < count; i++) {
    if (list[i] < -1 || list[i] >= s->key_blocks)
      return flyi_fail(error, FLY_ERROR_ARGUMENT, "lists: entry %d of a list is %d, but there are %" PRId64 " blocks",
                       i, list[i], s->key_blocks);
    if (list[i] < 0 || list[i] >= reach || !ascends) continue;
    int64_t tile = s->tile_blocks == 1 ? list[i] : list[i] / s->tile_blocks;
    uint64_t bit = s->tile_blocks == 1 ? 1 : 1ull << list[i] % s->tile_blocks;
    if (tile > last)
      append(x, last = tile, bit);
    else if (tile == last)
      x->bits[x->count - 1] |= bit;
    else
      ascends = false;
  }
  if (!ascends) read_shuffled(s, list, count, reach, x);
  return FLY_OK;
}

static void read_bitmap(const fly_selection *s, const uint8_t *bitmap, int64_t reach, flyi_selected *x) {
  for (int64_t tile = 0, block = 0; block < reach; tile++) {
    uint64_t bits = 0;
    for (int i = 0; i < s->tile_blocks && block < reach; i++, block++) bits |= (uint64_t)(bitmap[block] != 0) << i;
    if (bits) append(x, tile, bits);
  }
}

fly_status flyi_selected_read(const fly_selection *s, const fly_selection_desc *d, int64_t b, int64_t h, int64_t i,
                              flyi_selected *x, fly_error *error) {
  int64_t row = d->query_block > 1 ? i / d->query_block : i;
  int64_t at = b * d->stride_batch + h * d->stride_head + row * d->stride_row;
  if (d->lists && s->tile_blocks == 1 && read_plain(s, d->lists + at, d->count, i + s->q_offset, x)) return FLY_OK;
  int64_t reach = blocks_in_reach(s, i);
  x->count = 0;
  if (d->lists) return read_list(s, d->lists + at, d->count, reach, x, error);
  read_bitmap(s, d->bitmap + at, reach, x);
  return FLY_OK;
}
