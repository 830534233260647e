/* sweep.c: `flymask bench --sweep`: a forward call in other sizes than those that the library chooses. Input: a
 * call that has its map. Output: for each alternative its time, and the ratio of the choice's time to it: above 1,
 * the model missed something.
 *
 * All alternatives run in turn, round by round, so that each meets the same machine; a ratio is the median of those of
 * the rounds. */
#include <stdlib.h>

#include "cli.h"

enum { ALTERNATIVES = 24 };

typedef struct alternative {
  int tile;            /* of the map */
  fly_cpu_sizes sizes; /* complete */
  bool chosen;
  fly_bound *bound;
  fly_map *map;
  timing ms, ratio;
} alternative;

struct sweep {
  alternative all[ALTERNATIVES];
  int count;
  bool splits; /* few queries and many keys: only the ranges of keys matter */
};

/* ---- what to try ------------------------------------------------------------------------------------------------- */

static void add(sweep *s, int tile, const fly_cpu_sizes *sizes, bool chosen) {
  if (s->count == ALTERNATIVES) return;
  s->all[s->count++] = (alternative){.tile = tile, .sizes = *sizes, .chosen = chosen};
}

static void list_alternatives(sweep *s, const fly_attention *call, const fly_map_info *info) {
  static const int split_keys[] = {512, 1024, 2048, 4096, 8192, 16384}, tiles[] = {64, 128, 256};
  static const int64_t phases[] = {512 << 10, 2 << 20, 8 << 20};
  fly_cpu_sizes choice = s->all[0].sizes;
  int64_t groups = call->k.shape[0] * call->k.shape[1];
  for (int i = 0; s->splits && i < 6; i++) {
    fly_cpu_sizes sizes = choice;
    sizes.split_keys = split_keys[i];
    if (split_keys[i] != choice.split_keys && split_keys[i] < 2 * call->k.shape[2]) add(s, info->tile_q, &sizes, false);
  }
  for (int i = 0; !s->splits && i < 3; i++)
    for (int queries = 64; queries <= (tiles[i] > 64 ? 128 : 64); queries *= 2) {
      fly_cpu_sizes sizes = choice;
      sizes.item_queries = queries;
      if (tiles[i] != info->tile_q || tiles[i] != info->tile_kv || queries != choice.item_queries)
        add(s, tiles[i], &sizes, false);
    }
  for (int i = 0; !s->splits && groups > 1 && i < 3; i++) {
    fly_cpu_sizes sizes = choice;
    sizes.phase_bytes = phases[i];
    if (phases[i] != choice.phase_bytes) add(s, info->tile_q, &sizes, false);
  }
}

/* The choice, which has the call's own map, then the others. */
static fly_status prepare(sweep *s, const fly_attention *call, bound_mask *mask, fly_error *error) {
  fly_map_info info;
  fly_map_get_info(call->map, &info);
  fly_cpu_sizes choice = {FLY_INIT(fly_cpu_sizes)};
  fly_status status = fly_attention_sizes(call, &choice, error);
  if (status != FLY_OK) return status;
  int64_t rows = call->q.shape[1] / call->k.shape[1] * call->q.shape[2];
  s->splits = rows <= 16 && call->k.shape[2] >= 512 && !call->score;
  add(s, info.tile_q, &choice, true);
  list_alternatives(s, call, &info);
  for (int i = 1; status == FLY_OK && i < s->count; i++) {
    alternative *a = &s->all[i];
    fly_map_options how = {FLY_INIT(fly_map_options), .tile_q = a->tile, .tile_kv = a->tile, .threads = call->threads};
    timing time = {0};
    if (a->tile == info.tile_q && a->tile == info.tile_kv) continue;
    status = map_build_once(mask, &call->geometry, &how, &time, &a->bound, &a->map, error);
  }
  return status;
}

/* ---- measuring --------------------------------------------------------------------------------------------------- */

static fly_status run_once(const alternative *a, const fly_attention *call, double *ms, fly_error *error) {
  fly_attention own = *call;
  own.sizes = &a->sizes;
  if (a->map) own.map = a->map, own.bound = a->bound;
  double start = now_ms();
  fly_status status = fly_attention_forward(&own, error);
  *ms = now_ms() - start;
  return status;
}

fly_status sweep_run(const fly_attention *call, bound_mask *mask, sweep **out, fly_error *error) {
  double ms[ALTERNATIVES], total = 0;
  sweep *s = *out = calloc(1, sizeof **out);
  if (!s) return fail_memory(error);
  fly_status status = prepare(s, call, mask, error);
  for (int i = 0; status == FLY_OK && i < s->count; i++)
    status = run_once(&s->all[i], call, &ms[i], error); /* warm up */
  for (int round = 0; status == FLY_OK && round < TIMING_MAX && (round < 7 || total < 2000); round++) {
    progress("sizes, round %d", round + 1);
    for (int i = 0; status == FLY_OK && i < s->count; i++) {
      int at = (i + round) % s->count; /* another one begins each time */
      status = run_once(&s->all[at], call, &ms[at], error);
    }
    for (int i = 0; status == FLY_OK && i < s->count; i++) {
      timing_add(&s->all[i].ms, ms[i]);
      timing_add(&s->all[i].ratio, ms[i] > 0 ? ms[0] / ms[i] : 0);
      total += ms[i];
    }
  }
  return status;
}

void sweep_free(sweep *s) {
  for (int i = 0; s && i < s->count; i++) {
    fly_map_release(&s->all[i].map);
    fly_bound_release(&s->all[i].bound);
  }
  free(s);
}

/* ---- printing ---------------------------------------------------------------------------------------------------- */

json_t *sweep_json(const sweep *s) {
  json_t *list = json_array();
  for (int i = 0; list && i < s->count; i++) {
    const alternative *a = &s->all[i];
    json_t *one = json_pack("{si si si sI sf sf sb}", "tile", a->tile, "item_queries", a->sizes.item_queries,
                            "split_keys", a->sizes.split_keys, "phase_bytes", (json_int_t)a->sizes.phase_bytes, "ms",
                            timing_median(&a->ms), "ratio", timing_median(&a->ratio), "chosen", a->chosen);
    if (!one || json_array_append_new(list, one) != 0) {
      json_decref(list);
      return NULL;
    }
  }
  return list;
}

void sweep_print(const sweep *s) {
  for (int i = 0; i < s->count; i++) {
    const alternative *a = &s->all[i];
    char sizes[96];
    if (s->splits)
      snprintf(sizes, sizeof sizes, "%d keys a range", a->sizes.split_keys);
    else
      snprintf(sizes, sizeof sizes, "tile %3d, %3d queries an item, %4lld KiB a phase", a->tile, a->sizes.item_queries,
               (long long)(a->sizes.phase_bytes >> 10));
    report_line(a->chosen ? "chosen" : "", "%-50s %10.3f ms  %.3f", sizes, timing_median(&a->ms),
                timing_median(&a->ratio));
  }
}
