/* stochastic.c: Stochastic Attention as a call. Input: a compiled window mask, what the permutations are drawn from,
 * the call's shape. Output: row maps, the bound mask and a block map, which an attention call takes over. The kernels
 * gather and scatter rows as they go, so nothing is permuted in memory. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "call.h"

#define REFUSE(error, ...) flyi_fail(error, FLY_ERROR_ARGUMENT, __VA_ARGS__)

static const uint64_t sample_step = 0x9E3779B97F4A7C15; /* the golden ratio: seeds of samples are far apart */

struct fly_sa {
  atomic_int references;
  fly_bound *bound;
  fly_map *map;
  fly_geometry geometry;
  int32_t *rows, *cu; /* what the geometry points to */
  flyi_known_rows known;
};

/* ---- drawing ----------------------------------------------------------------------------------------------------- */

/* One permutation for each piece: a (sample or document, head) along which they differ. */
typedef struct drawing {
  const fly_sa_desc *desc;
  int64_t heads, entries; /* pieces: heads that differ, samples or documents */
  int64_t rows;           /* of a plane of the row map */
  int32_t *out;
  atomic_bool failed;
} drawing;

static int64_t entry_start(const fly_sa_desc *d, int64_t entry) { return d->cu_seqlens ? d->cu_seqlens[entry] : 0; }

static int64_t entry_length(const fly_sa_desc *d, int64_t entry) {
  return d->cu_seqlens ? (int64_t)d->cu_seqlens[entry + 1] - d->cu_seqlens[entry] : d->length;
}

/* Where the piece's rows begin: documents lie in one plane, samples in planes of their own. */
static int32_t *piece_rows(const drawing *w, int64_t entry, int64_t head) {
  int64_t plane = w->desc->cu_seqlens ? head : entry * w->heads + head;
  return w->out + plane * w->rows + entry_start(w->desc, entry);
}

static fly_status draw(const drawing *w, int64_t entry, int64_t head, int32_t *rows, int64_t n, fly_error *error) {
  const fly_sa_desc *d = w->desc;
  uint64_t seed = d->seed + (d->per_sample ? (uint64_t)entry * sample_step : 0);
  return fly_permutation(n, seed, d->layer, d->step, (uint32_t)head, rows, error);
}

/* The caller's own, from the start of its document. */
static fly_status take(const drawing *w, int64_t entry, int64_t head, int32_t *rows, int64_t n, fly_error *error) {
  const fly_sa_desc *d = w->desc;
  int64_t start = entry_start(d, entry);
  const int32_t *from = d->rows.rows + entry * d->rows.stride_batch + head * d->rows.stride_head + start;
  for (int64_t i = 0; i < n; i++) {
    if (from[i] < start || from[i] >= start + n)
      return REFUSE(error,
                    "rows: row %" PRId64 " of (batch %" PRId64 ", head %" PRId64 ") is %d, outside %" PRId64
                    " .. %" PRId64,
                    start + i, entry, head, from[i], start, start + n - 1);
    rows[i] = from[i] - (int32_t)start;
  }
  fly_error which;
  fly_status status = fly_permutation_check(n, rows, &which);
  if (status == FLY_ERROR_ARGUMENT)
    return REFUSE(error, "rows of (batch %" PRId64 ", head %" PRId64 "): %s", entry, head, which.message);
  return status ? flyi_no_memory(error) : FLY_OK;
}

static fly_status make_piece(const drawing *w, int64_t item, fly_error *error) {
  int64_t entry = item / w->heads, head = item % w->heads, n = entry_length(w->desc, entry);
  int32_t *rows = piece_rows(w, entry, head), start = (int32_t)entry_start(w->desc, entry);
  fly_status status = w->desc->rows.rows ? take(w, entry, head, rows, n, error) : draw(w, entry, head, rows, n, error);
  for (int64_t i = 0; start && i < n; i++) rows[i] += start;
  return status;
}

static void draw_piece(void *context, int64_t item, int worker) {
  (void)worker;
  drawing *w = context;
  if (make_piece(w, item, NULL)) w->failed = true;
}

/* Of several failures, the first one's error, whoever met it first. */
static fly_status first_failure(const drawing *w, fly_error *error) {
  for (int64_t item = 0; item < w->entries * w->heads; item++) {
    fly_status status = make_piece(w, item, error);
    if (status) return status;
  }
  return flyi_no_memory(error); /* which there is again */
}

static fly_status draw_rows(fly_sa *sa, const fly_sa_desc *d, const flyi_threads *threads, fly_error *error) {
  fly_geometry *g = &sa->geometry;
  bool by_head = d->rows.rows ? d->rows.stride_head != 0 : d->per_head;
  bool by_sample = d->rows.rows ? d->rows.stride_batch != 0 : d->per_sample;
  drawing w = {.desc = d};
  w.heads = by_head ? d->heads : d->heads > 0;
  w.entries = by_sample || d->cu_seqlens ? d->batch : d->batch > 0;
  w.rows = d->cu_seqlens ? d->cu_seqlens[d->batch] : d->length;
  w.out = sa->rows = flyi_alloc((size_t)(w.heads * (d->cu_seqlens ? 1 : w.entries)) * (size_t)w.rows, sizeof *sa->rows);
  if (!sa->rows) return flyi_no_memory(error);
  flyi_parallel(threads, w.entries * w.heads, draw_piece, &w);
  if (w.failed) return first_failure(&w, error);
  g->q_rows = (fly_row_map){.rows = sa->rows, .stride_head = by_head ? w.rows : 0};
  if (by_sample && !d->cu_seqlens) g->q_rows.stride_batch = w.heads * w.rows;
  g->kv_rows = g->q_rows;
  return FLY_OK;
}

/* ---- the mask ---------------------------------------------------------------------------------------------------- */

static bool has_parameter(const fly_mask *mask, const char *name) {
  for (int i = 0; i < mask->info.parameter_count; i++)
    if (strcmp(mask->info.parameters[i].name, name) == 0) return true;
  return false;
}

static fly_status bind(fly_sa *sa, fly_mask *mask, const fly_sa_desc *d, fly_error *error) {
  static const char *const names[] = {"left", "right", "causal"};
  static const int rules[] = {
      [FLY_SA_BY_TOKEN] = 1, [FLY_SA_NOT_CAUSAL] = 0, [FLY_SA_BY_POSITION] = 2, [FLY_SA_BY_BOTH] = 3};
  for (int i = 0; i < 3; i++)
    if (!has_parameter(mask, names[i]))
      return REFUSE(error, "mask %s has no parameter %s: stochastic attention wants masks/stochastic.c or the like",
                    mask->info.name, names[i]);
  fly_arg args[] = {FLY_INT("left", d->left), FLY_INT("right", d->right), FLY_INT("causal", rules[d->causal])};
  return fly_mask_bind(mask, args, 3, &sa->bound, error);
}

/* ---- checks ------------------------------------------------------------------------------------------------------ */

static fly_status check_desc(const fly_sa_desc *d, flyi_domain *domain, fly_error *error) {
  if (d->left < -1 || d->right < -1) return REFUSE(error, "left is %d, right %d: at least -1", d->left, d->right);
  if ((unsigned)d->causal > FLY_SA_BY_BOTH) return REFUSE(error, "causal is %d", (int)d->causal);
  if (d->threads < 0) return REFUSE(error, "threads is %d", d->threads);
  fly_geometry shape = {FLY_INIT(fly_geometry),
                        .batch = d->batch,
                        .heads = d->heads,
                        .len_q = d->length,
                        .len_kv = d->length,
                        .cu_seqlens_q = d->cu_seqlens,
                        .cu_seqlens_kv = d->cu_seqlens};
  fly_status status = flyi_domain_check(&shape, domain, error);
  if (status) return status;
  if (d->rows.rows && (d->rows.stride_batch < 0 || d->rows.stride_head < 0))
    return REFUSE(error, "rows: strides %" PRId64 ", %" PRId64 " are negative", d->rows.stride_batch,
                  d->rows.stride_head);
  if (d->rows.rows && d->cu_seqlens && d->rows.stride_batch)
    return REFUSE(error, "rows.stride_batch is %" PRId64 ": packed documents share one row map", d->rows.stride_batch);
  return FLY_OK;
}

static fly_status copy_cu(fly_sa *sa, const fly_sa_desc *d, fly_error *error) {
  if (!d->cu_seqlens) return FLY_OK;
  sa->cu = flyi_alloc((size_t)d->batch + 1, sizeof *sa->cu);
  if (!sa->cu) return flyi_no_memory(error);
  memcpy(sa->cu, d->cu_seqlens, ((size_t)d->batch + 1) * sizeof *sa->cu);
  sa->geometry.cu_seqlens_q = sa->geometry.cu_seqlens_kv = sa->cu;
  return FLY_OK;
}

/* ---- the object -------------------------------------------------------------------------------------------------- */

static void free_sa(fly_sa *sa) {
  if (sa->map) atomic_store(&sa->map->known, NULL); /* others may go on with the map */
  fly_map_release(&sa->map);
  fly_bound_release(&sa->bound);
  free(sa->rows), free(sa->cu);
  free(sa);
}

static fly_status build(fly_sa *sa, fly_mask *mask, const fly_sa_desc *d, fly_error *error) {
  fly_status status;
  flyi_domain domain;
  flyi_threads threads = {d->threads, d->parallel_for, d->parallel_user};
  fly_map_options options = {FLY_INIT(fly_map_options), .threads = d->threads, .parallel_for = d->parallel_for,
                             .parallel_user = d->parallel_user};
  if ((status = check_desc(d, &domain, error)) || (status = bind(sa, mask, d, error))) return status;
  sa->geometry = domain.geometry;
  if ((status = copy_cu(sa, d, error)) || (status = draw_rows(sa, d, &threads, error))) return status;
  if ((status = fly_map_build(sa->bound, &sa->geometry, &options, &sa->map, error)) ||
      (status = flyi_domain_check(&sa->geometry, &sa->known.domain, error)))
    return status;
  sa->known.rows = flyi_rows_of(&sa->geometry, true);
  atomic_store_explicit(&sa->map->known, &sa->known, memory_order_release);
  return FLY_OK;
}

fly_status fly_sa_create(fly_mask *mask, const fly_sa_desc *desc, fly_sa **out, fly_error *error) {
  fly_sa_desc d;
  if (!out) return REFUSE(error, "out is NULL");
  *out = NULL;
  if (!mask) return REFUSE(error, "mask is NULL");
  if (!desc) return REFUSE(error, "desc is NULL");
  if (!flyi_copy_struct(&d, sizeof d, desc))
    return REFUSE(error, "desc.size is %zu: set it with FLY_INIT(fly_sa_desc)", desc->size);
  fly_sa *sa = flyi_alloc(1, sizeof *sa);
  if (!sa) return flyi_no_memory(error);
  sa->references = 1;
  fly_status status = build(sa, mask, &d, error);
  if (status)
    free_sa(sa);
  else
    *out = sa;
  return status;
}

fly_sa *fly_sa_retain(fly_sa *sa) {
  if (sa) atomic_fetch_add_explicit(&sa->references, 1, memory_order_relaxed);
  return sa;
}

void fly_sa_release(fly_sa **slot) {
  fly_sa *sa = slot ? *slot : NULL;
  if (!sa) return;
  *slot = NULL;
  if (atomic_fetch_sub_explicit(&sa->references, 1, memory_order_acq_rel) == 1) free_sa(sa);
}

fly_status fly_sa_apply(const fly_sa *sa, fly_attention *call, fly_error *error) {
  if (!sa) return REFUSE(error, "sa is NULL");
  if (!call) return REFUSE(error, "call is NULL");
  if (call->size < offsetof(fly_attention, q))
    return REFUSE(error, "call.size is %zu: set it with FLY_INIT(fly_attention)", call->size);
  call->bound = sa->bound;
  call->map = sa->map;
  call->geometry = sa->geometry;
  return FLY_OK;
}
