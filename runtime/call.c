/* call.c: what attention calls of both directions use: rows of tensors and row maps, groups of heads, a map where the
 * caller brings none. */
#include <stdlib.h>
#include <string.h>

#include "call.h"

enum { WORKER_PRODUCTS = 1 << 22 /* 30 us or so */ };

/* ---- rows -------------------------------------------------------------------------------------------------------- */

char *flyi_plane_row(const fly_tensor *t, int64_t b, int64_t h, int64_t row) {
  return (char *)t->data + (b * t->stride[0] + h * t->stride[1] + row * t->stride[2]) * (int64_t)fly_type_size(t->type);
}

const int32_t *flyi_map_rows(const fly_row_map *map, int64_t b, int64_t h, int64_t row) {
  return map->rows ? map->rows + b * map->stride_batch + h * map->stride_head + row : NULL;
}

int64_t flyi_rows_of(const fly_geometry *g, bool queries) {
  if (queries) return g->cu_seqlens_q ? g->cu_seqlens_q[g->batch] : g->len_q;
  return g->cu_seqlens_kv ? g->cu_seqlens_kv[g->batch] : g->len_kv;
}

fly_status flyi_rows_repeat(const fly_row_map *map, const fly_geometry *g, bool queries, int64_t limit, bool *repeat,
                            flyi_repeat *where, fly_error *error) {
  *repeat = false;
  if (!map->rows || !g->batch || !g->heads) return FLY_OK;
  size_t bytes = (size_t)(limit + 7) / 8;
  uint8_t *seen = flyi_alloc(bytes, 1);
  if (!seen) return flyi_no_memory(error);
  const int32_t *cu = queries ? g->cu_seqlens_q : g->cu_seqlens_kv;
  int64_t planes_b = map->stride_batch || cu ? g->batch : 1, planes_h = map->stride_head ? g->heads : 1;
  for (int64_t h = 0; h < planes_h; h++)
    for (int64_t b = 0; b < planes_b; b++) {
      const int32_t *rows = flyi_map_rows(map, b, h, 0);
      int64_t last = cu ? cu[b + 1] : flyi_rows_of(g, queries);
      if (b == 0 ? h > 0 : !cu) memset(seen, 0, bytes);
      for (int64_t r = flyi_start_of(cu, b); r < last; r++) {
        if (seen[rows[r] / 8] >> rows[r] % 8 & 1) {
          *repeat = true;
          *where = (flyi_repeat){b, h, r};
          goto done;
        }
        seen[rows[r] / 8] |= (uint8_t)(1 << rows[r] % 8);
      }
    }
done:
  free(seen);
  return FLY_OK;
}

bool flyi_in_place(const fly_tensor *t, const fly_row_map *rows, int lanes) {
  return t->type == FLY_F32 && t->shape[3] % lanes == 0 && t->stride[2] == t->shape[3] && !rows->rows &&
         (uintptr_t)t->data % (4 * lanes) == 0 && t->stride[0] % lanes == 0 && t->stride[1] % lanes == 0;
}

int64_t flyi_tensor_bytes(const fly_tensor *t) {
  return t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3] * (int64_t)fly_type_size(t->type);
}

int64_t flyi_plane_bytes(const fly_tensor *t) { return t->shape[2] * t->stride[2] * (int64_t)fly_type_size(t->type); }

bool flyi_is_lines(const fly_tensor *t) {
  enum { CACHE_LINE = 64 };
  int64_t size = (int64_t)fly_type_size(t->type), line = CACHE_LINE / size;
  return (uintptr_t)t->data % CACHE_LINE == 0 && t->shape[3] % line == 0 && t->stride[0] % line == 0 &&
         t->stride[1] % line == 0 && t->stride[2] % line == 0;
}

/* ---- groups ------------------------------------------------------------------------------------------------------ */

int64_t flyi_group_heads(const flyi_call *call) {
  const fly_geometry *g = &call->c.geometry;
  return g->kv_rows.stride_head || !g->heads ? 1 : g->heads / call->kv_heads;
}

flyi_group flyi_group_of(const flyi_call *call, int64_t group_heads, int64_t g) {
  int64_t heads = call->c.geometry.heads, each = heads / group_heads, h = g % each * group_heads;
  return (flyi_group){g / each, h, h / (heads / call->kv_heads)};
}

int64_t flyi_worth_sharing(const flyi_call *call, int products, int64_t items) {
  const fly_geometry *g = &call->c.geometry;
  double heads = (double)g->batch * (double)g->heads, pairs = (double)call->domain.max_q * (double)call->domain.max_kv;
  double workers = heads * pairs * products / WORKER_PRODUCTS;
  return workers < (double)items ? 1 + (int64_t)workers : items;
}

/* ---- workspace and map ------------------------------------------------------------------------------------------- */

fly_status flyi_workspace_check(const fly_attention *c, int64_t need, fly_error *error) {
  if (!c->workspace) return FLY_OK;
  if ((uintptr_t)c->workspace % 64) return flyi_fail(error, FLY_ERROR_ARGUMENT, "workspace is not aligned to 64 bytes");
  if (c->workspace_size < (size_t)need)
    return flyi_fail(error, FLY_ERROR_ARGUMENT, "workspace_size is %zu: the call needs %zu bytes", c->workspace_size,
                     (size_t)need);
  return FLY_OK;
}

/* Fresh pages cost up to a tenth of a call: one workspace waits for the next call, whichever thread makes it. */
enum { KEPT_BYTES = 64 << 20 /* at most */, HEAD_BYTES = 64 };

static _Atomic(char *) kept; /* begins with its size */

void *flyi_workspace_take(size_t bytes) {
  size_t size = 0;
  char *memory = atomic_exchange(&kept, NULL);
  if (memory) memcpy(&size, memory, sizeof size);
  if (!memory || size < bytes) {
    free(memory);
    size = bytes;
    memory = bytes > SIZE_MAX - HEAD_BYTES ? NULL : flyi_alloc_aligned(bytes + HEAD_BYTES);
    if (!memory) return NULL;
    memcpy(memory, &size, sizeof size);
  }
  return memory + HEAD_BYTES;
}

void flyi_workspace_give(void *workspace) {
  size_t size;
  if (!workspace) return;
  char *memory = (char *)workspace - HEAD_BYTES;
  memcpy(&size, memory, sizeof size);
  free(size > KEPT_BYTES ? memory : atomic_exchange(&kept, memory));
}

fly_status flyi_call_score(flyi_call *call, fly_error *error) {
  return call->c.score ? flyi_mask_args_create(call->c.score, &call->c.geometry, &call->score_args, error) : FLY_OK;
}

fly_status flyi_call_map(const flyi_call *call, fly_map **out, fly_error *error) {
  const fly_attention *c = &call->c;
  fly_map_options options = {FLY_INIT(fly_map_options), .threads = c->threads, .parallel_for = c->parallel_for,
                             .parallel_user = c->parallel_user};
  return fly_map_build(c->bound, &c->geometry, &options, out, error);
}
