/* selection.c: selected blocks become one grouped call. Input: lists or a bitmap of each query's blocks. Output: rows
 * sorted by the tile of keys they see (a counting sort, head by head), a row map that repeats queries, what the mask
 * captures, the block map, and where each query's partial outputs will be. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "selection.h"

#define REFUSE(error, ...) flyi_fail(error, FLY_ERROR_ARGUMENT, __VA_ARGS__)

enum { TILE_KEYS = 64 /* at least, so that a partial output is worth its row */, MOST_TILE_BLOCKS = 64 };

/* ---- grouping ---------------------------------------------------------------------------------------------------- */

/* What is known of the planes (batch, head) on the way. */
typedef struct grouping {
  fly_selection *s;
  const fly_selection_desc *desc;
  int64_t tiles;
  flyi_selected *selected; /* [workers] */
  int64_t *start;          /* [planes][tiles + 1]: rows of each tile, then where they begin */
  int64_t *parts;          /* [planes] */
  int32_t *tile;           /* [planes][rows] */
  uint64_t *blocks;        /* likewise; NULL where a tile is one block */
  atomic_bool failed;
} grouping;

static void count_plane(void *context, int64_t plane, int worker) {
  grouping *g = context;
  const fly_selection *s = g->s;
  flyi_selected *x = &g->selected[worker];
  int64_t *count = g->start + plane * (g->tiles + 1) + 1;
  for (int64_t i = 0; i < s->len_q; i++) {
    if (flyi_selected_read(s, g->desc, plane / s->heads, plane % s->heads, i, x, NULL)) {
      g->failed = true;
      return;
    }
    for (int64_t k = 0; k < x->count; k++) count[x->tile[k]]++;
    if (x->count > g->parts[plane]) g->parts[plane] = x->count;
  }
  for (int64_t k = 0; k < g->tiles; k++) count[k] += count[k - 1];
}

/* Of several failures, the first one's error, whoever met it first. */
static fly_status first_failure(const grouping *g, fly_error *error) {
  const fly_selection *s = g->s;
  for (int64_t row = 0; row < s->batch * s->heads * s->len_q; row++) {
    int64_t plane = row / s->len_q;
    fly_status status = flyi_selected_read(s, g->desc, plane / s->heads, plane % s->heads, row % s->len_q,
                                           &g->selected[0], error);
    if (status) return status;
  }
  return flyi_fail(error, FLY_ERROR_INTERNAL, "a selection was read in two ways");
}

static void fill_plane(void *context, int64_t plane, int worker) {
  grouping *g = context;
  const fly_selection *s = g->s;
  flyi_selected *x = &g->selected[worker];
  int64_t *next = g->start + plane * (g->tiles + 1), rows = next[g->tiles], first = plane * s->rows,
          planes = s->batch * s->heads;
  for (int64_t i = 0; i < s->len_q; i++) {
    if (flyi_selected_read(s, g->desc, plane / s->heads, plane % s->heads, i, x, NULL))
      return; /* it did not fail before */
    int32_t *where = s->where + plane * s->len_q + i;
    for (int64_t k = 0; k < s->parts; k++, where += planes * s->len_q) {
      if (k >= x->count) {
        *where = -1;
        continue;
      }
      int64_t row = next[x->tile[k]]++;
      *where = (int32_t)row;
      s->query[first + row] = (int32_t)i;
      g->tile[first + row] = x->tile[k];
      if (g->blocks) g->blocks[first + row] = x->bits[k];
    }
  }
  for (int64_t row = rows; row < s->rows; row++) g->tile[first + row] = (int32_t)g->tiles; /* behind all keys */
}

static fly_status group_rows(grouping *g, const flyi_threads *threads, fly_error *error) {
  fly_selection *s = g->s;
  int64_t planes = s->batch * s->heads;
  flyi_parallel(threads, planes, count_plane, g);
  if (g->failed) return first_failure(g, error);
  s->rows = s->len_q > 0;
  for (int64_t plane = 0; plane < planes; plane++) {
    int64_t rows = g->start[plane * (g->tiles + 1) + g->tiles];
    if (rows > s->rows) s->rows = rows;
    if (g->parts[plane] > s->parts) s->parts = g->parts[plane];
  }
  if (s->rows > INT32_MAX) return REFUSE(error, "%" PRId64 " rows in a head: more than 2^31 - 1", s->rows);
  s->query = flyi_alloc((size_t)planes * (size_t)s->rows, sizeof *s->query);
  s->order = flyi_alloc((size_t)s->rows, sizeof *s->order);
  s->where = flyi_grow(NULL, (size_t)(planes * s->len_q) * (size_t)s->parts, sizeof *s->where);
  g->tile = flyi_alloc((size_t)planes * (size_t)s->rows + 2, sizeof *g->tile);
  if (s->tile_blocks > 1) g->blocks = flyi_alloc((size_t)planes * (size_t)s->rows + 1, sizeof *g->blocks);
  if (!s->query || !s->order || !s->where || !g->tile || (s->tile_blocks > 1 && !g->blocks))
    return flyi_no_memory(error);
  for (int64_t row = 0; row < s->rows; row++) s->order[row] = (int32_t)row;
  flyi_parallel(threads, planes, fill_plane, g);
  return FLY_OK;
}

/* ---- the grouped call -------------------------------------------------------------------------------------------- */

static fly_status bind(fly_selection *s, fly_mask *mask, grouping *g, fly_error *error) {
  fly_buffer *tile = NULL, *blocks = NULL;
  static const uint64_t whole = 1;
  int64_t shape[3] = {s->batch, s->heads, s->rows}, one[3] = {1, 1, 1};
  fly_status status = flyi_buffer_take(FLY_I32, 3, shape, g->tile, &tile, error);
  g->tile = NULL;
  if (!status && !g->blocks) status = fly_buffer_create(FLY_U64, 3, one, &whole, &blocks, error);
  if (!status && g->blocks) {
    status = flyi_buffer_take(FLY_U64, 3, shape, g->blocks, &blocks, error);
    g->blocks = NULL;
  }
  fly_arg args[] = {FLY_INT("size", s->block),      FLY_INT("count", s->tile_blocks), FLY_INT("causal", s->causal),
                    FLY_INT("offset", s->q_offset), FLY_CAPTURE("tile", tile),        FLY_CAPTURE("blocks", blocks)};
  if (!status) status = fly_mask_bind(mask, args, 6, &s->bound, error);
  fly_buffer_release(&tile), fly_buffer_release(&blocks);
  return status;
}

static fly_status build_map(fly_selection *s, const fly_selection_desc *d, fly_error *error) {
  int64_t plane = s->rows;
  fly_map_options options = {FLY_INIT(fly_map_options), .threads = d->threads, .parallel_for = d->parallel_for,
                             .parallel_user = d->parallel_user};
  s->geometry = (fly_geometry){FLY_INIT(fly_geometry), .batch = s->batch,
                               .heads = s->heads,      .len_q = plane,
                               .len_kv = s->len_kv,    .q_rows = {s->query, s->heads * plane, plane}};
  return fly_map_build(s->bound, &s->geometry, &options, &s->map, error);
}

/* ---- checks ------------------------------------------------------------------------------------------------------ */

static fly_status check_desc(const fly_selection_desc *d, fly_error *error) {
  if (d->block < 1) return REFUSE(error, "block is %d", d->block);
  if (d->query_block < 0) return REFUSE(error, "query_block is %d", d->query_block);
  if (d->threads < 0) return REFUSE(error, "threads is %d", d->threads);
  if (!d->lists == !d->bitmap) return REFUSE(error, "lists and bitmap: exactly one of them must be given");
  if (d->lists && d->count < 0) return REFUSE(error, "count is %d", d->count);
  if (d->stride_batch < 0 || d->stride_head < 0 || d->stride_row < 0)
    return REFUSE(error, "strides %" PRId64 ", %" PRId64 ", %" PRId64 ": negative ones are not supported",
                  d->stride_batch, d->stride_head, d->stride_row);
  fly_geometry shape = {FLY_INIT(fly_geometry),
                        .batch = d->batch,
                        .heads = d->heads,
                        .len_q = d->len_q,
                        .len_kv = d->len_kv,
                        .q_offset = d->q_offset,
                        .cu_seqlens_q = d->cu_seqlens,
                        .cu_seqlens_kv = d->cu_seqlens};
  flyi_domain domain;
  return flyi_domain_check(&shape, &domain, error);
}

/* ---- the object -------------------------------------------------------------------------------------------------- */

static void free_selection(fly_selection *s) {
  for (int64_t i = 0; i < s->documents; i++) fly_selection_release(&s->document[i]);
  free(s->document), free(s->cu);
  fly_map_release(&s->map);
  fly_bound_release(&s->bound);
  free(s->query), free(s->order), free(s->where);
  free(s);
}

static fly_selection *make_selection(const fly_selection_desc *d) {
  fly_selection *s = flyi_alloc(1, sizeof *s);
  if (!s) return NULL;
  s->references = 1;
  s->batch = d->batch, s->heads = d->heads, s->len_q = d->len_q, s->len_kv = d->len_kv, s->q_offset = d->q_offset;
  s->block = d->block, s->causal = !d->not_causal;
  s->tile_blocks = d->block >= TILE_KEYS ? 1 : (TILE_KEYS + d->block - 1) / d->block;
  if (s->tile_blocks > MOST_TILE_BLOCKS) s->tile_blocks = MOST_TILE_BLOCKS;
  s->key_blocks = (d->len_kv + d->block - 1) / d->block;
  return s;
}

static fly_status build(fly_selection *s, fly_mask *mask, const fly_selection_desc *d, fly_error *error) {
  int64_t planes = s->batch * s->heads;
  flyi_threads threads = {d->threads, d->parallel_for, d->parallel_user};
  threads.limit = flyi_worker_count(&threads, planes);
  grouping g = {.s = s, .desc = d, .tiles = (s->key_blocks + s->tile_blocks - 1) / s->tile_blocks};
  fly_status status = FLY_OK;
  bool ready = (g.selected = flyi_alloc(threads.limit, sizeof *g.selected)) != NULL;
  for (int i = 0; ready && i < threads.limit; i++) ready = flyi_selected_create(s, &g.selected[i]);
  g.start = flyi_alloc((size_t)planes * (size_t)(g.tiles + 1), sizeof *g.start);
  g.parts = flyi_alloc((size_t)planes, sizeof *g.parts);
  if (!ready || !g.start || !g.parts) {
    status = flyi_no_memory(error);
    goto done;
  }
  if ((status = group_rows(&g, &threads, error)) || (status = bind(s, mask, &g, error))) goto done;
  status = build_map(s, d, error);
done:
  for (int i = 0; g.selected && i < threads.limit; i++) flyi_selected_free(&g.selected[i]);
  free(g.selected), free(g.start), free(g.parts), free(g.tile), free(g.blocks);
  return status;
}

/* ---- packed documents -------------------------------------------------------------------------------------------- */

typedef struct pack {
  fly_mask *mask;
  const fly_selection_desc *desc;
} pack;

static fly_status select_document(void *context, int64_t document, fly_selection **out, fly_error *error) {
  const pack *p = context;
  fly_selection_desc d = *p->desc;
  int64_t first = d.cu_seqlens[document];
  d.batch = 1, d.len_q = d.len_kv = d.cu_seqlens[document + 1] - first;
  if (d.lists) d.lists += first * d.stride_row;
  if (d.bitmap) d.bitmap += first * d.stride_row;
  d.cu_seqlens = NULL;
  return fly_selection_create(p->mask, &d, out, error);
}

static fly_status create_packed(fly_mask *mask, const fly_selection_desc *d, fly_selection **out, fly_error *error) {
  if (d->q_offset) return REFUSE(error, "q_offset is %" PRId64 ": with cu_seqlens it must be 0", d->q_offset);
  if (d->query_block > 1) return REFUSE(error, "query_block is %d: with cu_seqlens it must be 1", d->query_block);
  pack p = {mask, d};
  flyi_packing packing = {d->batch, d->heads, d->cu_seqlens, d->block, select_document, &p};
  return flyi_selection_pack(&packing, out, error);
}

fly_status fly_selection_create(fly_mask *mask, const fly_selection_desc *desc, fly_selection **out, fly_error *error) {
  fly_selection_desc d;
  fly_status status;
  if (!out) return REFUSE(error, "out is NULL");
  *out = NULL;
  if (!mask) return REFUSE(error, "mask is NULL");
  if (!desc) return REFUSE(error, "desc is NULL");
  if (!flyi_copy_struct(&d, sizeof d, desc))
    return REFUSE(error, "desc.size is %zu: set it with FLY_INIT(fly_selection_desc)", desc->size);
  if ((status = check_desc(&d, error))) return status;
  if (d.cu_seqlens) return create_packed(mask, &d, out, error);
  fly_selection *s = make_selection(&d);
  if (!s) return flyi_no_memory(error);
  status = build(s, mask, &d, error);
  if (status)
    free_selection(s);
  else
    *out = s;
  return status;
}

fly_selection *fly_selection_retain(fly_selection *s) {
  if (s) atomic_fetch_add_explicit(&s->references, 1, memory_order_relaxed);
  return s;
}

void fly_selection_release(fly_selection **slot) {
  fly_selection *s = slot ? *slot : NULL;
  if (!s) return;
  *slot = NULL;
  if (atomic_fetch_sub_explicit(&s->references, 1, memory_order_acq_rel) == 1) free_selection(s);
}

void fly_selection_get_info(const fly_selection *s, fly_selection_info *info) {
  if (!info) return;
  *info = (fly_selection_info){0};
  if (!s) return;
  *info = (fly_selection_info){s->batch, s->heads, s->len_q, s->len_kv, s->q_offset, s->block, s->rows, s->map};
}

void flyi_selection_plane_bitmap(const fly_selection *s, int64_t plane, uint8_t *bitmap, int64_t stride) {
  const int32_t *tile = s->bound->buffers[0]->data;
  const uint64_t *blocks = s->bound->buffers[1]->data;
  for (int64_t row = plane * s->rows; row < (plane + 1) * s->rows; row++) {
    int64_t first = (int64_t)tile[row] * s->tile_blocks;
    uint64_t bits = s->tile_blocks > 1 ? blocks[row] : 1;
    if (first >= s->key_blocks) continue;
    for (; bits; bits &= bits - 1) bitmap[s->query[row] * stride + first + __builtin_ctzll(bits)] = 1;
  }
}

void fly_selection_get_bitmap(const fly_selection *s, uint8_t *bitmap) {
  if (!s || !bitmap) return;
  if (s->documents) {
    flyi_packed_bitmap(s, bitmap);
    return;
  }
  int64_t plane_bytes = s->len_q * s->key_blocks, planes = s->batch * s->heads;
  memset(bitmap, 0, (size_t)(planes * plane_bytes));
  for (int64_t plane = 0; plane < planes; plane++)
    flyi_selection_plane_bitmap(s, plane, bitmap + plane * plane_bytes, s->key_blocks);
}
