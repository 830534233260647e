/* blind.c: query rows that see no key, from a map: a row of tiles with a full one has none; in the others the compiled
 * mask is asked about the partial tiles, until every row has seen a key, or the time is up. */
#include "search.h"

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Marks the rows of a block of 64 queries that see a key: bit r of *rows. False: the time is up. */
static bool find_seeing(const flyi_survey *s, const flyi_plane *p, int64_t tile_row, int64_t row, uint64_t wanted,
                        uint64_t *rows) {
  uint64_t seen = 0, bits[FLYI_BLOCK];
  for (int64_t i = p->start[tile_row]; i < p->start[tile_row + 1]; i++) {
    int64_t kv = p->runs[i].first * s->tile_kv;
    int64_t end = least((p->runs[i].first + (int64_t)p->runs[i].count) * s->tile_kv, s->len_kv);
    for (; kv < end && (seen & wanted) != wanted; kv += FLYI_BLOCK) {
      uint64_t inside = end - kv >= FLYI_BLOCK ? ~0ull : ~(~0ull << (end - kv));
      if (flyi_nanoseconds() > s->until) return false;
      s->tile(s->args, s->b, s->h, (int32_t)(row + s->q_offset), (int32_t)kv, bits);
      for (int r = 0; r < FLYI_BLOCK; r++) seen |= (uint64_t)((bits[r] & inside) != 0) << r;
    }
  }
  return *rows = seen, true;
}

static bool has_full(const flyi_plane *p, int64_t row) {
  for (int64_t i = p->start[row]; i < p->start[row + 1]; i++)
    if (p->runs[i].kind == FLY_FULL) return true;
  return false;
}

bool flyi_find_blind(const fly_map *map, int64_t b, int64_t h, int64_t until, flyi_blind *out) {
  const flyi_plane *p = flyi_map_plane(map, FLY_BY_QUERY, b, h);
  flyi_survey s = flyi_survey_of(map, b, h, NULL);
  uint64_t seeing;
  s.until = until;
  *out = (flyi_blind){0};
  for (int64_t tile_row = 0; tile_row < p->rows; tile_row++) {
    if (has_full(p, tile_row)) continue;
    int64_t end = least((tile_row + 1) * s.tile_q, s.len_q);
    for (int64_t row = tile_row * s.tile_q; row < end; row += FLYI_BLOCK) {
      uint64_t wanted = end - row >= FLYI_BLOCK ? ~0ull : ~(~0ull << (end - row));
      if (!find_seeing(&s, p, tile_row, row, wanted, &seeing)) return false;
      for (uint64_t blind = wanted & ~seeing; blind; blind &= blind - 1) {
        int64_t at = row + __builtin_ctzll(blind);
        if (!out->count++) out->first = at, out->last = at - 1;
        if (out->last == at - 1) out->last = at;
      }
    }
  }
  return true;
}
