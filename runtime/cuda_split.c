/* cuda_split.c: a forward call of few queries and many keys on a GPU, as when a model writes one token after the other.
 * Input: a checked call. Output: on its stream, ranges of keys by many blocks of threads into partial outputs and
 * LSEs, and a merge of these, in ascending order of keys.
 *
 * Queries of all heads that share keys lie together in tiles of 16 rows, so that keys and values are read once for all
 * of them. There are as many parts as fill the device, but none of less than 256 keys; they share the tiles that the
 * map has, not the keys, so that a window's parts are as large as each other. The result depends on the number of
 * parts, and so on the device's number of multiprocessors and the call's shapes, but on nothing else. */
#include "cuda.h"

enum {
  FEWEST_KEYS = 512, /* below, there is nothing to share out */
  TILE_ROWS = 16,    /* up to so many rows, one tile of them reads each key once: always worth it */
  MOST_ROWS = 64,    /* up to so many, where the usual way would leave multiprocessors without work */
  USUAL_QUERIES = 128,
  PART_KEYS = 256, /* at least, of a part */
  WAVES = 2        /* blocks of a multiprocessor */
};

/* Query heads whose rows lie together; the mask is asked about each row as of its own head. With a map that heads have
 * of their own they would not see the same tiles: a mask that takes no look at h, not even for a token, has none. */
static int64_t heads_together(const flyi_call *call) {
  const fly_attention *c = &call->c;
  bool own_map = c->map ? c->map->info.heads > 1 : c->bound->mask->image.reads & FLYI_READS_H;
  return own_map ? 1 : flyi_group_heads(call);
}

static int64_t blocks_of(int64_t rows, int64_t each) { return (rows + each - 1) / each; }

bool flyi_cuda_split_suits(const flyi_call *call) {
  const fly_attention *c = &call->c;
  if (c->kernel->score || c->sink.data) return false; /* what the kernel does not know */
  int64_t rows = heads_together(call) * call->domain.max_q, pairs = c->geometry.batch * c->geometry.heads;
  if (call->domain.max_kv < FEWEST_KEYS || call->domain.max_q > FLYI_BLOCK || rows > MOST_ROWS) return false;
  if (rows > TILE_ROWS && pairs * blocks_of(call->domain.max_q, USUAL_QUERIES) >= c->cuda->info.multiprocessors)
    return false;
  const flyi_cuda_code *code; /* an image may hold none, and no IR to make it of: then the call goes the usual way */
  return flyi_kernel_cuda((fly_kernel *)c->kernel, FLYI_DIRECTION_SPLIT, c->cuda->info.target, &code, NULL) !=
         FLY_ERROR_UNSUPPORTED;
}

static int64_t parts_of(const flyi_call *call, int64_t tiles) {
  int64_t wanted = blocks_of(WAVES * (int64_t)call->c.cuda->info.multiprocessors, tiles);
  return flyi_min64(wanted, blocks_of(call->domain.max_kv, PART_KEYS));
}

static fly_status put_parts(flyi_cuda_launch *l, int64_t parts, fly_error *error) {
  const fly_geometry *g = &l->call->c.geometry;
  flyi_cuda_call *a = l->argument;
  int64_t rows = g->batch * g->heads * l->call->domain.max_q, bytes;
  flyi_device_memory memory;
  a->rows_q = (int32_t)l->call->domain.max_q;
  a->parts = (int32_t)parts, a->part_stride = rows;
  if (__builtin_mul_overflow(parts * rows, 4 * ((int64_t)a->value_dim + 1), &bytes)) return flyi_no_memory(error);
  fly_status status = flyi_cuda_temporary(l, (size_t)bytes, &memory, error);
  a->part_out = memory, a->part_lse = memory + (uint64_t)(parts * rows * a->value_dim) * 4;
  return status;
}

/* Parts differ by steps alone. */
static fly_status merge_parts(const flyi_cuda_launch *l, fly_error *error) {
  const flyi_cuda_call *a = l->argument;
  const fly_geometry *g = &l->call->c.geometry;
  const int64_t rows = a->rows_q, dim = a->value_dim;
  const flyi_cuda_merge merge = {
      .first = {.out = {a->part_out, g->heads * rows * dim, rows * dim, dim},
                .lse = {a->part_lse, g->heads * rows, rows, 1},
                .type = FLY_F32},
      .out_step = a->part_stride * dim,
      .lse_step = a->part_stride,
      .out = a->out,
      .lse = a->lse,
      .out_rows = a->out_rows,
      .out_rows_stride_b = a->out_rows_stride_b,
      .out_rows_stride_h = a->out_rows_stride_h,
      .cu = (uintptr_t)l->mask->cu_q,
      .total = g->batch * g->heads * rows,
      .count = a->parts,
      .type = a->out_type,
      .dim = a->value_dim,
      .rows = (int32_t)rows,
      .heads = (int32_t)g->heads,
  };
  return flyi_cuda_run_rows(l->cuda, l->stream, FLYI_ROWS_MERGE, &merge, merge.total, error);
}

fly_status flyi_cuda_split(flyi_cuda_launch *l, fly_error *error) {
  const fly_geometry *g = &l->call->c.geometry;
  const flyi_cuda_entry *entry = NULL;
  const int64_t together = heads_together(l->call), pairs = g->batch * (g->heads / together);
  fly_status status = flyi_cuda_find(l, FLYI_CUDA_FORWARD_SPLIT, &entry, error);
  if (status) return status;
  const int64_t tiles = blocks_of(together * l->call->domain.max_q, entry->outer);
  const int64_t parts = parts_of(l->call, tiles * pairs);
  if ((status = flyi_cuda_put_map(l, FLY_BY_QUERY, entry->outer, entry->inner, &l->argument->by_query, error)) ||
      (status = put_parts(l, parts, error)))
    return status;
  l->argument->walk = (int32_t)together, l->argument->tiles = (int32_t)tiles;
  status = flyi_cuda_run(l, entry, parts * tiles * pairs, error);
  return status ? status : merge_parts(l, error);
}
