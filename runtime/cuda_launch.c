/* cuda_launch.c: a forward call on a GPU, and what both directions do before and after their kernels. Input: a
 * checked call. Output: work on its stream.
 *
 * Nothing here asks to wait for the device: memory that is for one call comes from the driver's pool and goes back to
 * it in the order of the stream. But what is copied to the device is in memory that is not pinned: the driver may let a
 * copy wait for the stream. With a map, whose copy is kept, only the first call copies. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cuda.h"

enum {
  CACHE_BYTES = 16 << 20, /* of keys and values that the blocks at work share: half of an A100's second-level cache */
  WAVES = 4               /* blocks for each multiprocessor, from which on a group of pairs is large enough */
};

/* ---- begin and end --------------------------------------------------------------------------------------------- */

int64_t flyi_cuda_slots(const flyi_call *call) {
  return call->c.bound->slot_count + (call->c.score ? call->c.score->slot_count : 0);
}

static fly_status make_argument(flyi_cuda_launch *l, fly_error *error) {
  l->argument = flyi_alloc(1, (size_t)flyi_cuda_argument_size(flyi_cuda_slots(l->call)));
  if (!l->argument) return flyi_no_memory(error);
  l->mask = (flyi_mask_args *)(l->argument + 1);
  return FLY_OK;
}

static fly_status make_map(flyi_cuda_launch *l, bool transposed, fly_error *error) {
  const fly_attention *c = &l->call->c;
  flyi_threads threads = {c->threads, c->parallel_for, c->parallel_user};
  l->map = c->map;
  fly_status status = FLY_OK;
  if (!l->map) {
    fly_map *made = NULL;
    if ((status = flyi_call_map(l->call, &made, error))) return status;
    l->map = made, l->own_map = true;
  }
  /* The transposed order is a cache of the map, behind an atomic pointer. */
  return transposed ? flyi_map_transpose((fly_map *)l->map, &threads, error) : FLY_OK;
}

flyi_cuda_tensor flyi_cuda_tensor_of(const fly_tensor *t) {
  if (!t->data) return (flyi_cuda_tensor){0};
  return (flyi_cuda_tensor){(uintptr_t)t->data, t->stride[0], t->stride[1], t->stride[2]};
}

static void fill_argument(flyi_cuda_launch *l) {
  const fly_attention *c = &l->call->c;
  flyi_cuda_call *a = l->argument;
  a->q = flyi_cuda_tensor_of(&c->q), a->k = flyi_cuda_tensor_of(&c->k), a->v = flyi_cuda_tensor_of(&c->v);
  a->out = flyi_cuda_tensor_of(&c->out), a->lse = flyi_cuda_tensor_of(&c->lse);
  a->sink = flyi_cuda_tensor_of(&c->sink), a->d_sink = flyi_cuda_tensor_of(&c->d_sink);
  a->scale = c->scale;
  a->scale_log2 = c->scale * 1.44269504f;
  a->group = l->call->kv_heads ? (int32_t)(c->geometry.heads / l->call->kv_heads) : 1;
  a->out_type = (int32_t)c->out.type;
  a->dim = c->kernel->desc.head_dim, a->value_dim = c->kernel->desc.value_dim;
}

static fly_status begin(flyi_cuda_launch *l, flyi_direction direction, fly_error *error) {
  const fly_attention *c = &l->call->c;
  const bool backward = direction == FLYI_DIRECTION_BACKWARD;
  fly_status status;
  /* Loading code and copying maps are caches of objects that callers see as immutable. */
  if ((status = flyi_cuda_check(l->call, backward, error)) ||
      (status = flyi_cuda_load((fly_kernel *)c->kernel, direction, l->cuda, &l->loaded, error)) ||
      (status = make_argument(l, error)) || (status = make_map(l, backward, error)))
    return status;
  l->aligned = flyi_cuda_aligned(c, backward);
  fill_argument(l);
  return flyi_cuda_put_geometry(l, error);
}

static void end(flyi_cuda_launch *l) {
  fly_map *made = (fly_map *)l->map;
  flyi_cuda_free_temporaries(l);
  if (l->own_map) fly_map_release(&made);
  free(l->argument);
}

/* ---- kernels --------------------------------------------------------------------------------------------------- */

static const char *const role_names[FLYI_CUDA_ROLES] = {
    [FLYI_CUDA_FORWARD] = "forward attention",
    [FLYI_CUDA_BACKWARD_ROWS] = "the backward pass's rows",
    [FLYI_CUDA_BACKWARD_KEYS] = "gradients of keys and values",
    [FLYI_CUDA_BACKWARD_QUERIES] = "gradients of queries",
    [FLYI_CUDA_FORWARD_SPLIT] = "forward attention of parts",
    [FLYI_CUDA_BACKWARD_FINISH] = "the end of the backward pass",
    [FLYI_CUDA_BACKWARD_SINK] = "gradients of sinks",
};

fly_status flyi_cuda_find(const flyi_cuda_launch *l, flyi_cuda_role role, const flyi_cuda_entry **out,
                          fly_error *error) {
  int i = flyi_cuda_entry_of(&l->loaded, role, l->aligned);
  if (i < 0)
    return flyi_fail(error, FLY_ERROR_UNSUPPORTED,
                     "the kernel has no code for %s that runs on %s with %d bytes of shared memory", role_names[role],
                     l->cuda->info.name, l->cuda->info.shared_memory);
  const flyi_cuda_entry *e = *out = &l->loaded.code->entries[i];
  if (e->argument_bytes != flyi_cuda_argument_size(flyi_cuda_slots(l->call)))
    return flyi_fail(error, FLY_ERROR_IMAGE, "the kernel's code takes %d bytes of arguments, its mask needs %" PRId64,
                     e->argument_bytes, flyi_cuda_argument_size(flyi_cuda_slots(l->call)));
  return FLY_OK;
}

fly_status flyi_cuda_run(flyi_cuda_launch *l, const flyi_cuda_entry *entry, int64_t blocks, fly_error *error) {
  void *params[] = {l->argument};
  if (blocks == 0) return FLY_OK;
  if (blocks > INT32_MAX)
    return flyi_fail(error, FLY_ERROR_UNSUPPORTED, "the call needs %" PRId64 " blocks of threads, a grid holds %d",
                     blocks, INT32_MAX);
  flyi_cuda_function f = l->loaded.function[entry - l->loaded.code->entries];
  int code = l->cuda->driver.launch(f, (unsigned)blocks, 1, 1, (unsigned)entry->threads, 1, 1,
                                    (unsigned)entry->shared_bytes, l->stream, params, NULL);
  if (code)
    return flyi_cuda_fail(&l->cuda->driver, code, error, "kernel %s of %" PRId64 " blocks", entry->name, blocks);
  return FLY_OK;
}

int64_t flyi_cuda_deal(flyi_cuda_launch *l, int64_t tiles, int64_t pairs, int64_t pair_bytes) {
  int64_t together = CACHE_BYTES / (pair_bytes > 0 ? pair_bytes : 1);
  int64_t least = tiles ? (WAVES * (int64_t)l->cuda->info.multiprocessors + tiles - 1) / tiles : 1;
  if (together < least) together = least;
  if (tiles && together > INT32_MAX / tiles) together = INT32_MAX / tiles;
  if (together > pairs) together = pairs;
  l->argument->tiles = (int32_t)tiles;
  l->argument->together = together < 1 ? 1 : (int32_t)together;
  return tiles * pairs;
}

/* ---- forward --------------------------------------------------------------------------------------------------- */

static fly_status launch_forward(flyi_cuda_launch *l, fly_error *error) {
  const fly_attention *c = &l->call->c;
  const flyi_cuda_entry *entry = NULL;
  fly_status status;
  if ((status = flyi_cuda_find(l, FLYI_CUDA_FORWARD, &entry, error)) ||
      (status = flyi_cuda_put_map(l, FLY_BY_QUERY, entry->outer, entry->inner, &l->argument->by_query, error)))
    return status;
  int64_t pairs = c->geometry.batch * c->geometry.heads, dims = c->kernel->desc.head_dim + c->kernel->desc.value_dim;
  int64_t bytes = l->call->domain.max_kv * dims * (int64_t)fly_type_size(c->k.type) / l->argument->group;
  int64_t tiles = (int64_t)l->argument->by_query.rows * l->argument->by_query.outer;
  return flyi_cuda_run(l, entry, flyi_cuda_deal(l, tiles, pairs, bytes), error);
}

fly_status flyi_cuda_call_run(const flyi_call *call, flyi_direction direction, flyi_cuda_body *body, fly_error *error) {
  flyi_cuda_launch l = {.call = call, .cuda = call->c.cuda, .stream = call->c.stream};
  bool pushed;
  fly_status status = flyi_cuda_enter(l.cuda, &pushed, error);
  if (status) return status;
  status = begin(&l, direction, error);
  if (!status) status = body(&l, error);
  end(&l);
  flyi_cuda_leave(l.cuda, pushed);
  return status;
}

fly_status flyi_cuda_forward(const flyi_call *call, fly_error *error) {
  if (!call->c.geometry.batch || !call->c.geometry.heads || !call->domain.max_q) return FLY_OK;
  bool split = flyi_cuda_split_suits(call);
  return flyi_cuda_call_run(call, split ? FLYI_DIRECTION_SPLIT : FLYI_DIRECTION_FORWARD,
                            split ? flyi_cuda_split : launch_forward, error);
}
