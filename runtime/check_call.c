/* check_call.c: an attention call is checked as a whole before anything runs, so that kernels need not doubt it, and
 * completed: what the caller left to its default is filled in. Each refusal names the argument. */
#include <inttypes.h>
#include <math.h>

#include "call.h"

#define REFUSE(error, ...) flyi_fail(error, FLY_ERROR_ARGUMENT, __VA_ARGS__)

/* ---- objects --------------------------------------------------------------------------------------------------- */

static fly_status check_score(const fly_attention *c, fly_error *error) {
  const fly_mask *score = c->kernel->score;
  if (!score && c->score) return REFUSE(error, "score is given, but the kernel has no score modifier (desc.score)");
  if (!score) return FLY_OK;
  if (!c->score) return REFUSE(error, "score is NULL, but the kernel has the score modifier %s", score->image.name);
  const flyi_image *code = &score->image, *values = &c->score->mask->image;
  if (!flyi_hash_equal(code->identity, values->identity) || !flyi_image_same_slots(code, values))
    return REFUSE(error, "score is of %s, the kernel's modifier is %s (another source, or other baked parameters)",
                  values->name, code->name);
  return FLY_OK;
}

static fly_status check_objects(const fly_attention *c, fly_error *error) {
  if (!c->kernel) return REFUSE(error, "kernel is NULL");
  if (!flyi_isa_is_here(c->kernel->isa)) return flyi_mask_check_here(c->kernel->mask, error);
  if (!c->bound) return REFUSE(error, "bound is NULL");
  const flyi_image *code = &c->kernel->mask->image, *values = &c->bound->mask->image;
  /* The slots too: two masks may have been made to share an identity. */
  if (!flyi_hash_equal(code->identity, values->identity) || !flyi_image_same_slots(code, values))
    return REFUSE(error, "bound is of mask %s, the kernel of %s (another source, or other baked parameters)",
                  values->name, code->name);
  fly_status status = check_score(c, error);
  if (status) return status;
  if (c->threads < 0) return REFUSE(error, "threads is %d", c->threads);
  if (!isfinite(c->scale)) return REFUSE(error, "scale is not finite");
  if (c->kernel->cuda_target[0] && !c->cuda)
    return REFUSE(error, "cuda is NULL: the kernel is for %s (fly_cuda_create makes one)", c->kernel->cuda_target);
  if (!c->kernel->cuda_target[0] && (c->cuda || c->stream))
    return REFUSE(error, "%s is given, but the kernel is for the CPU: make it with desc.target \"cuda\"",
                  c->cuda ? "cuda" : "stream");
  return FLY_OK;
}

static fly_status check_map(const flyi_call *call, fly_error *error) {
  const fly_map *map = call->c.map;
  if (!map) return FLY_OK;
  if (!map->bound) return REFUSE(error, "map has no mask that decides its partial tiles: bind one with fly_map_bind");
  if (!flyi_hash_equal(map->bound->hash, call->c.bound->hash))
    return REFUSE(error, "map was built for another mask, or other parameters or buffers");
  if (!flyi_hash_equal(map->domain, call->domain.hash))
    return REFUSE(error, "map was built for another geometry: batch, heads, lengths, q_offset, row maps or cu_seqlens");
  if (map->info.tile_q % FLYI_BLOCK || map->info.tile_kv % FLYI_BLOCK)
    return REFUSE(error, "map has tiles of %" PRId64 " x %" PRId64 ": this kernel wants multiples of %d",
                  map->info.tile_q, map->info.tile_kv, FLYI_BLOCK);
  return FLY_OK;
}

/* ---- geometry -------------------------------------------------------------------------------------------------- */

/* A default from the tensors where the caller gave 0. */
static void complete_geometry(fly_attention *c) {
  fly_geometry *g = &c->geometry;
  g->size = sizeof *g;
  if (!g->heads) g->heads = c->q.shape[1];
  if (g->cu_seqlens_q || g->cu_seqlens_kv) return;
  if (!g->batch) g->batch = c->q.shape[0];
  if (!g->len_q) g->len_q = c->q.shape[2];
  if (!g->len_kv) g->len_kv = c->k.shape[2];
}

static fly_status check_batch(const char *name, const fly_tensor *t, const fly_geometry *g, fly_error *error) {
  if (g->cu_seqlens_q && t->shape[0] != 1)
    return REFUSE(error, "%s.shape[0] is %" PRId64 ": with cu_seqlens it must be 1", name, t->shape[0]);
  if (!g->cu_seqlens_q && t->shape[0] != g->batch)
    return REFUSE(error, "%s.shape[0] is %" PRId64 ", geometry.batch %" PRId64, name, t->shape[0], g->batch);
  return FLY_OK;
}

static fly_status check_heads(const fly_attention *c, fly_error *error) {
  int64_t heads = c->geometry.heads, kv_heads = c->k.shape[1];
  if (c->q.shape[1] != heads)
    return REFUSE(error, "q.shape[1] is %" PRId64 ", geometry.heads %" PRId64, c->q.shape[1], heads);
  if (c->out.shape[1] != heads)
    return REFUSE(error, "out.shape[1] is %" PRId64 ", but q has %" PRId64 " heads", c->out.shape[1], heads);
  if (c->v.shape[1] != kv_heads)
    return REFUSE(error, "v.shape[1] is %" PRId64 ", but k has %" PRId64 " heads", c->v.shape[1], kv_heads);
  if (heads && (!kv_heads || heads % kv_heads))
    return REFUSE(error, "q has %" PRId64 " heads, k and v %" PRId64 ": they must divide", heads, kv_heads);
  return FLY_OK;
}

static fly_status check_lse(const fly_attention *c, fly_error *error) {
  fly_status status;
  if (!c->lse.data) return FLY_OK;
  if ((status = flyi_tensor_check("lse", &c->lse, FLY_F32, 1, true, error))) return status;
  for (int i = 0; i < 3; i++)
    if (c->lse.shape[i] != c->out.shape[i])
      return REFUSE(error, "lse.shape[%d] is %" PRId64 ", out.shape[%d] %" PRId64, i, c->lse.shape[i], i,
                    c->out.shape[i]);
  return FLY_OK;
}

static fly_status check_sink(const fly_attention *c, fly_error *error) {
  const int64_t *s = c->sink.shape;
  if (!c->sink.data) return FLY_OK;
  fly_status status = flyi_tensor_check("sink", &c->sink, FLY_F32, 1, false, error);
  if (status) return status;
  if (s[0] != 1 || s[1] != c->geometry.heads || s[2] != 1)
    return REFUSE(error, "sink is [%" PRId64 ", %" PRId64 ", %" PRId64 ", 1]: it must be [1, %" PRId64 " heads, 1, 1]",
                  s[0], s[1], s[2], c->geometry.heads);
  if (flyi_tensors_overlap(&c->out, &c->sink)) return REFUSE(error, "out and sink share memory");
  if (flyi_tensors_overlap(&c->lse, &c->sink)) return REFUSE(error, "lse and sink share memory");
  return FLY_OK;
}

static fly_status check_tensors(const fly_attention *c, fly_error *error) {
  const fly_kernel_desc *d = &c->kernel->desc;
  const struct {
    const char *name;
    const fly_tensor *tensor;
    int dim;
  } all[] = {
      {"q", &c->q, d->head_dim}, {"k", &c->k, d->head_dim}, {"v", &c->v, d->value_dim}, {"out", &c->out, d->value_dim}};
  fly_status status;
  for (int i = 0; i < 4; i++) {
    bool is_out = all[i].tensor == &c->out;
    fly_type type = is_out && c->out.type == FLY_F32 ? FLY_F32 : d->type;
    if ((status = flyi_tensor_check(all[i].name, all[i].tensor, type, all[i].dim, is_out, error)) ||
        (status = check_batch(all[i].name, all[i].tensor, &c->geometry, error)))
      return status;
  }
  if ((status = check_heads(c, error)) || (status = check_lse(c, error))) return status;
  for (int i = 0; i < 3; i++) {
    if (flyi_tensors_overlap(&c->out, all[i].tensor)) return REFUSE(error, "out and %s share memory", all[i].name);
    if (flyi_tensors_overlap(&c->lse, all[i].tensor)) return REFUSE(error, "lse and %s share memory", all[i].name);
  }
  if (flyi_tensors_overlap(&c->out, &c->lse)) return REFUSE(error, "out and lse share memory");
  return FLY_OK;
}

/* ---- known rows -------------------------------------------------------------------------------------------------- */

static bool same_rows(const fly_row_map *a, const fly_row_map *b) {
  return a->rows == b->rows && a->stride_batch == b->stride_batch && a->stride_head == b->stride_head;
}

/* Those of the call's map, where the call brings the very geometry that they are of. */
static const flyi_known_rows *known_rows(const fly_attention *c) {
  const flyi_known_rows *known = c->map ? atomic_load_explicit(&c->map->known, memory_order_acquire) : NULL;
  if (!known) return NULL;
  const fly_geometry *a = &known->domain.geometry, *b = &c->geometry;
  bool ragged = a->cu_seqlens_q != NULL; /* lengths are then not read */
  bool same = a->batch == b->batch && a->heads == b->heads && a->q_offset == b->q_offset &&
              (ragged || (a->len_q == b->len_q && a->len_kv == b->len_kv)) && same_rows(&a->q_rows, &b->q_rows) &&
              same_rows(&a->kv_rows, &b->kv_rows) && a->cu_seqlens_q == b->cu_seqlens_q &&
              a->cu_seqlens_kv == b->cu_seqlens_kv;
  return same ? known : NULL;
}

bool flyi_call_knows(const flyi_call *call, const fly_row_map *map) {
  if (!call->known || !map->rows) return false;
  const fly_geometry *g = &call->known->domain.geometry;
  return same_rows(map, &g->q_rows) || same_rows(map, &g->kv_rows);
}

/* ---- rows ------------------------------------------------------------------------------------------------------ */

/* The rows of entry b in a plane of a map: [*first, *last). */
static void entry_rows(const fly_geometry *g, bool queries, int64_t b, int64_t *first, int64_t *last) {
  const int32_t *cu = queries ? g->cu_seqlens_q : g->cu_seqlens_kv;
  *first = cu ? cu[b] : 0;
  *last = cu ? cu[b + 1] : flyi_rows_of(g, queries);
}

/* Every entry below `limit`, the rows of the tensor it indexes. */
static fly_status check_range(const char *name, const flyi_call *call, const fly_row_map *map, bool queries,
                              int64_t limit, const char *tensor, fly_error *error) {
  const fly_geometry *g = &call->c.geometry;
  if (flyi_call_knows(call, map) && call->known->rows <= limit) return FLY_OK;
  if (!map->rows) {
    int64_t need = flyi_rows_of(g, queries);
    if (g->batch && g->heads && need > limit)
      return REFUSE(error, "the call has %" PRId64 " %s rows, but %s has %" PRId64, need, queries ? "query" : "key",
                    tensor, limit);
    return FLY_OK;
  }
  for (int64_t b = 0; b < (map->stride_batch || g->cu_seqlens_q ? g->batch : g->batch > 0); b++)
    for (int64_t h = 0; h < (map->stride_head ? g->heads : g->heads > 0); h++) {
      const int32_t *rows = map->rows + b * map->stride_batch + h * map->stride_head;
      int64_t first, last;
      entry_rows(g, queries, b, &first, &last);
      for (int64_t r = first; r < last; r++)
        if (rows[r] < 0 || rows[r] >= limit)
          return REFUSE(
              error, "%s: row %" PRId64 " of (batch %" PRId64 ", head %" PRId64 ") is %d, but %s has %" PRId64 " rows",
              name, r, b, h, rows[r], tensor, limit);
    }
  return FLY_OK;
}

static fly_status check_unique(const char *name, const fly_row_map *map, const fly_geometry *g, int64_t limit,
                               fly_error *error) {
  bool repeats;
  flyi_repeat at;
  fly_status status = flyi_rows_repeat(map, g, true, limit, &repeats, &at, error);
  if (status || !repeats) return status;
  return REFUSE(error,
                "%s: row %" PRId64 " of (batch %" PRId64 ", head %" PRId64
                ") is %d for the second time, and no output row "
                "may be written twice",
                name, at.row, at.b, at.h, flyi_map_rows(map, at.b, at.h, at.row)[0]);
}

static fly_status check_out_strides(fly_row_map *map, const fly_geometry *g, fly_error *error) {
  int64_t a, b, sum;
  if (g->batch <= 1) map->stride_batch = 0;
  if (g->heads <= 1) map->stride_head = 0;
  if (map->stride_batch < 0 || map->stride_head < 0 || __builtin_mul_overflow(map->stride_batch, g->batch, &a) ||
      __builtin_mul_overflow(map->stride_head, g->heads, &b) || __builtin_add_overflow(a, b, &sum) ||
      sum > PTRDIFF_MAX / 8)
    return REFUSE(error, "out_rows: strides %" PRId64 ", %" PRId64 " are negative or too large", map->stride_batch,
                  map->stride_head);
  return FLY_OK;
}

static fly_status check_rows(flyi_call *call, bool writes, fly_error *error) {
  fly_attention *c = &call->c;
  const fly_geometry *g = &c->geometry;
  const char *out_name = c->out_rows.rows ? "out_rows" : "q_rows (as out_rows is not given)";
  fly_status status;
  if (!c->out_rows.rows)
    c->out_rows = g->q_rows;
  else if ((status = check_out_strides(&c->out_rows, g, error)))
    return status;
  if ((status = check_range("q_rows", call, &g->q_rows, true, c->q.shape[2], "q", error)) ||
      (status = check_range("kv_rows", call, &g->kv_rows, false, c->k.shape[2], "k", error)) ||
      (status = check_range("kv_rows", call, &g->kv_rows, false, c->v.shape[2], "v", error)) ||
      (status = check_range(out_name, call, &c->out_rows, true, c->out.shape[2], "out", error)))
    return status;
  return writes && !flyi_call_knows(call, &c->out_rows)
             ? check_unique(out_name, &c->out_rows, g, c->out.shape[2], error)
             : FLY_OK;
}

/* ---- the whole ------------------------------------------------------------------------------------------------- */

static fly_status check(const fly_attention *call, bool writes, flyi_call *out, fly_error *error) {
  fly_status status;
  fly_attention *c = &out->c;
  *out = (flyi_call){0};
  if (!call) return REFUSE(error, "call is NULL");
  if (!flyi_copy_struct(c, sizeof *c, call))
    return REFUSE(error, "call.size is %zu: set it with FLY_INIT(fly_attention)", call->size);
  if ((status = check_objects(c, error))) return status;
  if (c->geometry.cu_seqlens_q && c->geometry.batch == 0)
    return REFUSE(error, "geometry.batch is 0: with cu_seqlens it must say how many sequences there are");
  complete_geometry(c);
  out->known = known_rows(c);
  if (out->known)
    out->domain = out->known->domain;
  else if ((status = flyi_domain_check(&c->geometry, &out->domain, error)))
    return status;
  c->geometry = out->domain.geometry;
  if ((status = check_tensors(c, error)) || (status = check_sink(c, error)) ||
      (status = check_rows(out, writes, error)) || (status = check_map(out, error)))
    return status;
  if (c->scale == 0) c->scale = 1 / sqrtf((float)c->kernel->desc.head_dim);
  out->kv_heads = c->k.shape[1];
  if (c->geometry.cu_seqlens_q)
    c->q.stride[0] = c->k.stride[0] = c->v.stride[0] = c->out.stride[0] = c->lse.stride[0] = 0;
  return FLY_OK;
}

fly_status flyi_call_check(const fly_attention *call, flyi_call *out, fly_error *error) {
  return check(call, true, out, error);
}

fly_status flyi_call_check_read(const fly_attention *call, flyi_call *out, fly_error *error) {
  return check(call, false, out, error);
}
