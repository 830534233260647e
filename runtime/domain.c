/* domain.c: what a mask is evaluated over. Checks a call's geometry and fingerprints it, and fills the arguments of a
 * compiled mask (launch.h). */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "runtime.h"

bool flyi_copy_struct(void *out, size_t size, const void *in) {
  size_t given;
  memcpy(&given, in, sizeof given);
  if (given < sizeof given) return false;
  for (size_t i = size; i < given; i++)
    if (((const uint8_t *)in)[i]) return false; /* a field that a later version has, and we do not */
  memset(out, 0, size);
  memcpy(out, in, given < size ? given : size);
  memcpy(out, &size, sizeof size);
  return true;
}

int64_t flyi_len_q(const fly_geometry *g, int64_t b) {
  return g->cu_seqlens_q ? (int64_t)g->cu_seqlens_q[b + 1] - g->cu_seqlens_q[b] : g->len_q;
}

int64_t flyi_len_kv(const fly_geometry *g, int64_t b) {
  return g->cu_seqlens_kv ? (int64_t)g->cu_seqlens_kv[b + 1] - g->cu_seqlens_kv[b] : g->len_kv;
}

/* Entries of a row map for one (b, h): with cu_seqlens the packed sequence's. */
static int64_t rows_q(const fly_geometry *g) { return g->cu_seqlens_q ? g->cu_seqlens_q[g->batch] : g->len_q; }

static int64_t rows_kv(const fly_geometry *g) { return g->cu_seqlens_kv ? g->cu_seqlens_kv[g->batch] : g->len_kv; }

static fly_status check_counts(const fly_geometry *g, fly_error *error) {
  int64_t planes;
  if (g->batch < 0 || g->heads < 0)
    return flyi_fail(error, FLY_ERROR_ARGUMENT, "batch %" PRId64 " and heads %" PRId64 ": neither may be negative",
                     g->batch, g->heads);
  if (__builtin_mul_overflow(g->batch, g->heads, &planes) || planes > INT32_MAX || g->batch > INT32_MAX ||
      g->heads > INT32_MAX)
    return flyi_fail(error, FLY_ERROR_ARGUMENT, "batch %" PRId64 " times heads %" PRId64 " is more than 2^31 - 1",
                     g->batch, g->heads);
  if (!g->cu_seqlens_q != !g->cu_seqlens_kv)
    return flyi_fail(error, FLY_ERROR_ARGUMENT, "cu_seqlens_%s is NULL: give both or neither",
                     g->cu_seqlens_q ? "kv" : "q");
  return FLY_OK;
}

static fly_status check_cu(const char *name, const int32_t *cu, int64_t batch, int64_t *longest, fly_error *error) {
  if (cu[0] != 0) return flyi_fail(error, FLY_ERROR_ARGUMENT, "%s starts with %d, not 0", name, cu[0]);
  *longest = 0;
  for (int64_t b = 0; b < batch; b++) {
    if (cu[b + 1] < cu[b])
      return flyi_fail(error, FLY_ERROR_ARGUMENT, "%s descends from %d to %d at entry %" PRId64, name, cu[b], cu[b + 1],
                       b + 1);
    if (cu[b + 1] - cu[b] > *longest) *longest = cu[b + 1] - cu[b];
  }
  return FLY_OK;
}

/* Positions are the mask's ints: rows, and query rows with the offset added, must fit. */
static fly_status check_lengths(flyi_domain *d, fly_error *error) {
  fly_geometry *g = &d->geometry;
  if (g->cu_seqlens_q) {
    g->len_q = g->len_kv = 0;
    fly_status status = check_cu("cu_seqlens_q", g->cu_seqlens_q, g->batch, &d->max_q, error);
    return status ? status : check_cu("cu_seqlens_kv", g->cu_seqlens_kv, g->batch, &d->max_kv, error);
  }
  d->max_q = g->len_q, d->max_kv = g->len_kv;
  if (g->len_q < 0 || g->len_q > INT32_MAX || g->len_kv < 0 || g->len_kv > INT32_MAX)
    return flyi_fail(error, FLY_ERROR_ARGUMENT, "lengths %" PRId64 ", %" PRId64 ": each must be 0 to 2^31 - 1",
                     g->len_q, g->len_kv);
  return FLY_OK;
}

static fly_status check_offset(const flyi_domain *d, fly_error *error) {
  int64_t offset = d->geometry.q_offset;
  if (offset < INT32_MIN || offset > INT32_MAX - d->max_q)
    return flyi_fail(error, FLY_ERROR_ARGUMENT,
                     "q_offset %" PRId64 " with %" PRId64 " query rows: positions do not fit 32 bits", offset,
                     d->max_q);
  return FLY_OK;
}

static fly_status check_rows(const char *name, const fly_row_map *map, int64_t n, int64_t b, int64_t h,
                             fly_error *error) {
  const int32_t *rows = map->rows + b * map->stride_batch + h * map->stride_head;
  int32_t all = 0;
  for (int64_t r = 0; r < n; r++) all |= rows[r];
  if (all >= 0) return FLY_OK;
  int64_t r = 0;
  while (rows[r] >= 0) r++;
  return flyi_fail(error, FLY_ERROR_ARGUMENT, "%s: row %" PRId64 " of (batch %" PRId64 ", head %" PRId64 ") is %d",
                   name, r, b, h, rows[r]);
}

/* Checks a row map's entries, and hashes them: each distinct (b, h) once. A stride of a dimension of 1 has no
 * meaning and is set to 0. Entries are compared with the tensors' rows by the call that has tensors. */
static fly_status check_map(const char *name, fly_row_map *map, const fly_geometry *g, int64_t n, flyi_hash *hash,
                            fly_error *error) {
  *hash = (flyi_hash){0};
  if (!map->rows) {
    map->stride_batch = map->stride_head = 0;
    return FLY_OK;
  }
  if (g->batch <= 1) map->stride_batch = 0;
  if (g->heads <= 1) map->stride_head = 0;
  int64_t last_b, last_h, last;
  if (map->stride_batch < 0 || map->stride_head < 0 || __builtin_mul_overflow(map->stride_batch, g->batch, &last_b) ||
      __builtin_mul_overflow(map->stride_head, g->heads, &last_h) || __builtin_add_overflow(last_b, last_h, &last) ||
      last > PTRDIFF_MAX / (int64_t)sizeof(int32_t) - n)
    return flyi_fail(error, FLY_ERROR_ARGUMENT, "%s: strides %" PRId64 ", %" PRId64 " are negative or too large", name,
                     map->stride_batch, map->stride_head);
  int64_t planes_b = map->stride_batch ? g->batch : g->batch > 0, planes_h = map->stride_head ? g->heads : g->heads > 0;
  struct {
    flyi_hash before, plane;
    int64_t b, h;
  } chain = {.plane = {planes_b, planes_h}};
  *hash = flyi_hash_bytes(&chain, sizeof chain);
  for (int64_t b = 0; b < planes_b; b++) {
    for (int64_t h = 0; h < planes_h; h++) {
      fly_status status = check_rows(name, map, n, b, h, error);
      if (status) return status;
      chain.before = *hash, chain.b = b, chain.h = h;
      chain.plane = flyi_hash_bytes(map->rows + b * map->stride_batch + h * map->stride_head, n * sizeof(int32_t));
      *hash = flyi_hash_bytes(&chain, sizeof chain);
    }
  }
  return FLY_OK;
}

fly_status flyi_domain_check(const fly_geometry *geometry, flyi_domain *out, fly_error *error) {
  fly_status status;
  memset(out, 0, sizeof *out);
  fly_geometry *g = &out->geometry;
  if (!geometry) return flyi_fail(error, FLY_ERROR_ARGUMENT, "geometry is NULL");
  if (!flyi_copy_struct(g, sizeof *g, geometry))
    return flyi_fail(error, FLY_ERROR_ARGUMENT, "geometry.size is %zu: set it with FLY_INIT(fly_geometry)",
                     geometry->size);
  if ((status = check_counts(g, error)) || (status = check_lengths(out, error)) || (status = check_offset(out, error)))
    return status;
  struct {
    int64_t batch, heads, len_q, len_kv, q_offset, ragged;
    flyi_hash cu_q, cu_kv, q_rows, kv_rows;
  } key = {g->batch, g->heads, g->len_q, g->len_kv, g->q_offset, g->cu_seqlens_q != NULL, {0}, {0}, {0}, {0}};
  if (g->cu_seqlens_q) {
    key.cu_q = flyi_hash_bytes(g->cu_seqlens_q, (g->batch + 1) * sizeof(int32_t));
    key.cu_kv = flyi_hash_bytes(g->cu_seqlens_kv, (g->batch + 1) * sizeof(int32_t));
  }
  if ((status = check_map("q_rows", &g->q_rows, g, rows_q(g), &key.q_rows, error)) ||
      (status = check_map("kv_rows", &g->kv_rows, g, rows_kv(g), &key.kv_rows, error)))
    return status;
  out->hash = flyi_hash_bytes(&key, sizeof key);
  return FLY_OK;
}

/* A mask that reads tokens gets a map even where the call has none. */
static const int32_t *identity(int32_t *rows, int64_t n) {
  for (int64_t r = 0; r < n; r++) rows[r] = (int32_t)r;
  return rows;
}

fly_status flyi_mask_args_create(const fly_bound *bound, const fly_geometry *geometry, flyi_mask_args **out,
                                 fly_error *error) {
  const fly_geometry *g = geometry;
  uint32_t reads = bound->mask->image.reads;
  int64_t own_q = reads & FLYI_READS_TOKEN_Q && !g->q_rows.rows ? rows_q(g) : 0;
  int64_t own_kv = reads & FLYI_READS_TOKEN_KV && !g->kv_rows.rows ? rows_kv(g) : 0;
  size_t head = sizeof(flyi_mask_args) + bound->slot_count * sizeof(uint64_t);
  /* One block: the struct, its slots, the identity maps, and an entry behind them for those of no rows to point to. */
  flyi_mask_args *args = flyi_alloc(1, head + (own_q + own_kv + 1) * sizeof(int32_t));
  *out = args;
  if (!args) return flyi_no_memory(error);
  int32_t *own = (int32_t *)((char *)args + head);
  args->batch = g->batch, args->heads = g->heads;
  args->len_q = g->len_q, args->len_kv = g->len_kv, args->q_offset = g->q_offset;
  args->cu_q = g->cu_seqlens_q, args->cu_kv = g->cu_seqlens_kv;
  args->q_rows = g->q_rows.rows ? g->q_rows.rows : identity(own, own_q);
  args->kv_rows = g->kv_rows.rows ? g->kv_rows.rows : identity(own + own_q, own_kv);
  args->q_stride_b = g->q_rows.stride_batch, args->q_stride_h = g->q_rows.stride_head;
  args->kv_stride_b = g->kv_rows.stride_batch, args->kv_stride_h = g->kv_rows.stride_head;
  memcpy(args->slots, bound->slots, bound->slot_count * sizeof(uint64_t));
  return FLY_OK;
}

void flyi_mask_args_free(flyi_mask_args *args) { free(args); }
