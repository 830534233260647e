/* sizes.c: the sizes in which a forward call works. Input: a checked call. Output: a fly_cpu_sizes without zeros. The
 * constants are measured (docs/cpu.md); `flymask bench --sweep` measures how far they are from the best.
 *
 * Numerics may depend on none of this but split_keys, and that one on nothing of the machine or of the number of
 * threads: results are the same everywhere. */
#include "call.h"

enum {
  PHASE_BYTES = 2 << 20, /* what a core's own cache roughly keeps */
  ITEMS_EACH = 4,        /* items that each worker should have, for an even end */
  MOST_RANGE = 1 << 24
};

fly_status flyi_sizes_check(const fly_attention *call, fly_cpu_sizes *out, fly_error *error) {
  *out = (fly_cpu_sizes){FLY_INIT(fly_cpu_sizes)};
  if (!call->sizes) return FLY_OK;
  if (!flyi_copy_struct(out, sizeof *out, call->sizes))
    return flyi_fail(error, FLY_ERROR_ARGUMENT, "sizes->size is %zu: set it with FLY_INIT(fly_cpu_sizes)",
                     call->sizes->size);
  if (out->item_queries != 0 && out->item_queries != FLYI_BLOCK && out->item_queries != FLYI_ITEM_QUERIES)
    return flyi_fail(error, FLY_ERROR_ARGUMENT, "sizes->item_queries is %d: it can be 64, 128, or 0 for the default",
                     out->item_queries);
  if (out->split_keys < 0 || out->split_keys % FLYI_BLOCK || out->split_keys > MOST_RANGE)
    return flyi_fail(error, FLY_ERROR_ARGUMENT, "sizes->split_keys is %d: it must be a multiple of 64, at most %d",
                     out->split_keys, MOST_RANGE);
  if (out->phase_bytes < 0 || out->phase_bytes > (INT64_C(1) << 40))
    return flyi_fail(error, FLY_ERROR_ARGUMENT, "sizes->phase_bytes is %lld: it must be 0 to 2^40",
                     (long long)out->phase_bytes);
  return FLY_OK;
}

/* Items of 128 queries read packed keys half as often as those of 64. */
void flyi_sizes_complete(fly_cpu_sizes *sizes, int64_t tile_q, int64_t items, int workers) {
  bool large = sizes->item_queries ? sizes->item_queries == FLYI_ITEM_QUERIES : items >= ITEMS_EACH * workers;
  sizes->item_queries = large && tile_q % FLYI_ITEM_QUERIES == 0 ? FLYI_ITEM_QUERIES : FLYI_BLOCK;
  if (!sizes->split_keys) sizes->split_keys = FLYI_SPLIT_KEYS;
  if (!sizes->phase_bytes) sizes->phase_bytes = PHASE_BYTES;
}
