/* handmade.c: a block map by brute force, and the objects around it. */
#include "handmade.h"

#include "runtime/survey.h"

enum { SLOT_SEE, SLOT_CONTEXT, SLOTS };

static uint64_t noise(uint64_t x) {
  x = (x + 0x9E3779B97F4A7C15) * 0xBF58476D1CE4E5B9;
  return (x ^ x >> 27) * 0x94D049BB133111EB;
}

static bool ask(const flyi_mask_args *args, int b, int h, int64_t row, int64_t kv, bool outside) {
  int64_t rows = args->cu_q ? args->cu_q[b + 1] - args->cu_q[b] : args->len_q;
  int64_t keys = args->cu_kv ? args->cu_kv[b + 1] - args->cu_kv[b] : args->len_kv;
  if (row >= rows || kv >= keys) return outside;
  oracle_predicate *see;
  memcpy(&see, &args->slots[SLOT_SEE], sizeof see);
  return see((void *)(uintptr_t)args->slots[SLOT_CONTEXT], b, h, (int)(row + args->q_offset), (int)kv);
}

static void tile_bits(const flyi_mask_args *args, int32_t b, int32_t h, int32_t q0, int32_t kv0,
                      uint64_t bits[FLYI_BLOCK]) {
  for (int r = 0; r < FLYI_BLOCK; r++) {
    uint64_t word = noise((uint64_t)q0 << 32 ^ (uint64_t)kv0 << 8 ^ r), out = 0;
    for (int j = 0; j < FLYI_BLOCK; j++)
      out |= (uint64_t)ask(args, b, h, q0 - args->q_offset + r, kv0 + j, word >> j & 1) << j;
    bits[r] = out;
  }
}

/* Empty, full or partial, over the pairs that exist. */
static fly_tile_kind classify(const fly_map *m, int b, int h, int64_t i, int64_t j, int64_t len_q, int64_t len_kv) {
  bool some = false, all = true;
  for (int64_t q = i * m->info.tile_q; q < len_q && q < (i + 1) * m->info.tile_q; q++)
    for (int64_t kv = j * m->info.tile_kv; kv < len_kv && kv < (j + 1) * m->info.tile_kv; kv++) {
      bool seen = ask(m->args, b, h, q, kv, false);
      some |= seen, all &= seen;
    }
  return !some ? FLY_EMPTY : all ? FLY_FULL : FLY_PARTIAL;
}

static void build_plane(fly_map *m, flyi_plane *plane, int b, int h, int demote) {
  plane->len_q = flyi_len_q(&m->geometry, b), plane->len_kv = flyi_len_kv(&m->geometry, b);
  plane->rows = (int32_t)((plane->len_q + m->info.tile_q - 1) / m->info.tile_q);
  plane->columns = (int32_t)((plane->len_kv + m->info.tile_kv - 1) / m->info.tile_kv);
  plane->start = calloc(plane->rows + 1, sizeof *plane->start);
  plane->runs = calloc((size_t)plane->rows * plane->columns + 1, sizeof *plane->runs);
  int64_t count = 0;
  for (int32_t i = 0; i < plane->rows; i++) {
    plane->start[i] = count;
    for (int32_t j = 0; j < plane->columns; j++) {
      fly_tile_kind kind = classify(m, b, h, i, j, plane->len_q, plane->len_kv);
      if (kind == FLY_FULL && (int)(noise((uint64_t)i << 32 | (uint32_t)j) >> 56) < demote) kind = FLY_PARTIAL;
      if (kind == FLY_EMPTY) continue;
      fly_run *last = count > plane->start[i] ? &plane->runs[count - 1] : NULL;
      if (last && last->kind == kind && last->first + last->count == j)
        last->count++;
      else
        plane->runs[count++] = (fly_run){.first = j, .count = 1, .kind = kind};
    }
  }
  plane->start[plane->rows] = count;
}

static void build_map(handmade *m, flyi_mask_args *args, int tile_q, int tile_kv, int demote) {
  fly_map *map = &m->map;
  const fly_geometry *g = &map->geometry;
  map->references = 1;
  map->bound = &m->bound;
  map->args = args;
  map->domain = m->domain.hash;
  map->info = (fly_map_info){.batch = g->batch, .heads = g->heads, .tile_q = tile_q, .tile_kv = tile_kv};
  map->info.tiles_q = (m->domain.max_q + tile_q - 1) / tile_q;
  map->info.tiles_kv = (m->domain.max_kv + tile_kv - 1) / tile_kv;
  map->plane_count = (int)(g->batch * g->heads);
  map->planes = calloc(map->plane_count + 1, sizeof *map->planes);
  map->plane_of = calloc(map->plane_count + 1, sizeof *map->plane_of);
  for (int b = 0; b < g->batch; b++)
    for (int h = 0; h < g->heads; h++) {
      int at = (int)(b * g->heads + h);
      map->plane_of[at] = at;
      build_plane(map, &map->planes[at], b, h, demote);
    }
}

void handmade_init(handmade *m, oracle_predicate *see, void *context, flyi_tile_fn *tile, const fly_kernel_desc *desc,
                   const fly_geometry *geometry, int tile_q, int tile_kv, int demote) {
  fly_error error = {0};
  memset(m, 0, sizeof *m);
  ck_fly_ok(flyi_domain_check(geometry, &m->domain, &error), error);
  m->map.geometry = m->domain.geometry;
  const fly_geometry *g = &m->map.geometry;
  m->mask.references = 1;
  m->mask.image.name = "handmade.c", m->mask.image.target = flyi_isa_name(FLYI_ISA_FIRST);
  m->mask.image.identity = (flyi_hash){1, (uintptr_t)see};
  m->mask.code.tile = tile ? tile : tile_bits;
  m->bound.references = 1;
  m->bound.mask = &m->mask;
  m->bound.hash = (flyi_hash){(uintptr_t)context, (uintptr_t)see};
  flyi_mask_args *args = calloc(1, sizeof *args + SLOTS * sizeof args->slots[0]);
  *args = (flyi_mask_args){.batch = g->batch,
                           .heads = g->heads,
                           .len_q = g->len_q,
                           .len_kv = g->len_kv,
                           .q_offset = g->q_offset,
                           .cu_q = g->cu_seqlens_q,
                           .cu_kv = g->cu_seqlens_kv};
  memcpy(&args->slots[SLOT_SEE], &see, sizeof see);
  args->slots[SLOT_CONTEXT] = (uintptr_t)context;
  build_map(m, args, tile_q, tile_kv, demote);
  ck_fly_ok(fly_kernel_create(&m->mask, desc, &m->kernel, &error), error);
}

void handmade_free(handmade *m) {
  fly_kernel_release(&m->kernel);
  for (int i = 0; i < m->map.plane_count; i++) free(m->map.planes[i].start), free(m->map.planes[i].runs);
  free(m->map.planes);
  flyi_planes_free(m->map.transposed, m->map.plane_count);
  free(m->map.plane_of);
  free(m->map.args);
}
