/* moba.c: the gate of MoBA. Input: Q and K. Output: each query's blocks: its own, and the earlier ones with the best
 * means (of tensors on a GPU: cuda_moba.c); from there on a selection like any other (selection.c). */
#include <inttypes.h>
#include <stdlib.h>

#include "selection.h"

#define REFUSE(error, ...) flyi_fail(error, FLY_ERROR_ARGUMENT, __VA_ARGS__)

extern const flyi_select_code FLYI_BUILDS(flyi_select_);

static const flyi_select_code *code_of(flyi_isa isa) {
  static const flyi_select_code *const all[] = {FLYI_BUILDS(&flyi_select_)};
  return all[flyi_isa_build(isa)];
}

typedef struct gate {
  const fly_moba_desc *d;
  const flyi_select_code *code;
  int64_t batch, heads, kv_heads, len_q, len_kv, dim;
  int64_t blocks, padded; /* whole blocks of keys; rounded up to 4 */
  int64_t tiles;          /* of 64 queries */
  float *means;           /* [batch, kv_heads][padded][dim] */
  int32_t *lists;         /* [batch, heads, len_q][top] */
  int workers;
  float *scratch;         /* [workers] */
  int64_t scratch_floats;
} gate;

static void mean_block(void *context, int64_t item, int worker) {
  (void)worker;
  const gate *g = context;
  int64_t block = item % g->blocks, plane = item / g->blocks;
  g->code->mean(
      &(flyi_mean_cpu){.rows = flyi_plane_row(&g->d->k, plane / g->kv_heads, plane % g->kv_heads, block * g->d->block),
                       .stride = g->d->k.stride[2],
                       .count = g->d->block,
                       .type = g->d->k.type,
                       .dim = (int32_t)g->dim,
                       .out = g->means + (plane * g->padded + block) * g->dim});
}

/* The queries of an item that may not be there. */
static flyi_beside_cpu queries_of(const gate *g, int64_t item) {
  const fly_tensor *q = &g->d->q;
  int64_t plane = item / g->tiles, row = item % g->tiles * FLYI_BLOCK, size = (int64_t)fly_type_size(q->type);
  if (plane >= g->batch * g->heads) return (flyi_beside_cpu){0};
  return (flyi_beside_cpu){flyi_plane_row(q, plane / g->heads, plane % g->heads, row), q->stride[2] * size,
                           (int32_t)(g->dim * size), (int32_t)flyi_min64(g->len_q - row, FLYI_BLOCK)};
}

static void select_tile(void *context, int64_t item, int worker) {
  const gate *g = context;
  int64_t plane = item / g->tiles, row = item % g->tiles * FLYI_BLOCK, b = plane / g->heads, h = plane % g->heads;
  int64_t kv_plane = b * g->kv_heads + h / (g->heads / g->kv_heads);
  g->code->select(&(flyi_select_cpu){.q = flyi_plane_row(&g->d->q, b, h, row),
                                     .q_stride = g->d->q.stride[2],
                                     .type = g->d->q.type,
                                     .dim = (int32_t)g->dim,
                                     .count = (int32_t)flyi_min64(g->len_q - row, FLYI_BLOCK),
                                     .means = g->means + kv_plane * g->padded * g->dim,
                                     .position = row + g->d->q_offset,
                                     .block = g->d->block,
                                     .top = g->d->top,
                                     .lists = g->lists + (plane * g->len_q + row) * g->d->top,
                                     .next = queries_of(g, item + g->workers),
                                     .scratch = g->scratch + worker * g->scratch_floats});
}

/* ---- checks ------------------------------------------------------------------------------------------------------ */

static bool is_float(fly_type type) { return type == FLY_F32 || type == FLY_F16 || type == FLY_BF16; }

static fly_status check_desc(const fly_moba_desc *d, fly_error *error) {
  fly_status status;
  if (d->block < 1) return REFUSE(error, "block is %d", d->block);
  if (d->top < 1) return REFUSE(error, "top is %d: the own block counts", d->top);
  if (d->threads < 0) return REFUSE(error, "threads is %d", d->threads);
  if (d->stream && !d->cuda) return REFUSE(error, "stream is given, but cuda is NULL: set both for q and k of a GPU");
  if (!is_float(d->q.type)) return REFUSE(error, "q.type is %s: wanted f32, f16 or bf16", fly_type_name(d->q.type));
  if ((status = flyi_tensor_check("q", &d->q, d->q.type, d->q.shape[3], false, error)) ||
      (status = flyi_tensor_check("k", &d->k, d->q.type, d->q.shape[3], false, error)))
    return status;
  if (d->k.shape[0] != d->q.shape[0])
    return REFUSE(error, "k.shape[0] is %" PRId64 ", q.shape[0] %" PRId64, d->k.shape[0], d->q.shape[0]);
  if (d->q.shape[1] && (!d->k.shape[1] || d->q.shape[1] % d->k.shape[1]))
    return REFUSE(error, "q has %" PRId64 " heads, k %" PRId64 ": they must divide", d->q.shape[1], d->k.shape[1]);
  if (d->q_offset < 0 || d->q_offset > d->k.shape[2] - d->q.shape[2]) /* whose difference fits: neither is negative */
    return REFUSE(error,
                  "q has %" PRId64 " tokens from q_offset %" PRId64 " on: they must be among the %" PRId64 " keys",
                  d->q.shape[2], d->q_offset, d->k.shape[2]);
  if (d->q.shape[3] > FLYI_MAX_DIM)
    return REFUSE(error, "q.shape[3] is %" PRId64 ": at most %d", d->q.shape[3], FLYI_MAX_DIM);
  return FLY_OK;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

/* Whether counts of a * b * c * d words are ones that memory can have; tensors may broadcast. */
static bool fits(int64_t a, int64_t b, int64_t c, int64_t d) {
  return !__builtin_mul_overflow(a, b, &a) && !__builtin_mul_overflow(a, c, &a) && !__builtin_mul_overflow(a, d, &a) &&
         a <= PTRDIFF_MAX / 4;
}

static fly_status choose(gate *g, fly_error *error) {
  const fly_moba_desc *d = g->d;
  if (!fits(g->batch, g->heads, g->len_q, d->top) || !fits(g->batch, g->kv_heads, g->padded, g->dim))
    return flyi_no_memory(error);
  if (d->cuda) {
    g->lists = flyi_grow(NULL, (size_t)(g->batch * g->heads * g->len_q) * (size_t)d->top, sizeof *g->lists);
    return g->lists ? flyi_cuda_choose(d, g->blocks, g->lists, error) : flyi_no_memory(error);
  }
  flyi_threads threads = {d->threads, d->parallel_for, d->parallel_user};
  int64_t planes = g->batch * g->heads, kv_planes = g->batch * g->kv_heads;
  g->workers = threads.limit = flyi_worker_count(&threads, planes * g->tiles);
  g->scratch_floats = (g->code->scratch((int32_t)g->dim, d->top) + 15) / 16 * 16;
  g->means = flyi_alloc((size_t)(kv_planes * g->padded) * (size_t)g->dim, sizeof *g->means);
  g->lists = flyi_grow(NULL, (size_t)(planes * g->len_q) * (size_t)d->top, sizeof *g->lists);
  g->scratch = flyi_alloc_aligned((size_t)(threads.limit * g->scratch_floats) * sizeof *g->scratch);
  if (!g->means || !g->lists || !g->scratch) return flyi_no_memory(error);
  flyi_parallel(&threads, kv_planes * g->blocks, mean_block, g);
  flyi_parallel(&threads, planes * g->tiles, select_tile, g);
  return FLY_OK;
}

/* ---- packed documents -------------------------------------------------------------------------------------------- */

typedef struct pack {
  fly_mask *mask;
  const fly_moba_desc *desc;
} pack;

static fly_status select_document(void *context, int64_t document, fly_selection **out, fly_error *error) {
  const pack *p = context;
  fly_moba_desc d = *p->desc;
  d.q = flyi_document_rows(&d.q, d.cu_seqlens[document], d.cu_seqlens[document + 1]);
  d.k = flyi_document_rows(&d.k, d.cu_seqlens[document], d.cu_seqlens[document + 1]);
  d.cu_seqlens = NULL;
  return fly_moba_select(p->mask, &d, out, error);
}

static fly_status select_packed(fly_mask *mask, const fly_moba_desc *d, fly_selection **out, fly_error *error) {
  fly_geometry shape = {FLY_INIT(fly_geometry), .batch = d->batch, .heads = d->q.shape[1],
                        .cu_seqlens_q = d->cu_seqlens, .cu_seqlens_kv = d->cu_seqlens};
  flyi_domain domain;
  fly_status status = flyi_domain_check(&shape, &domain, error);
  if (status) return status;
  int64_t rows = d->cu_seqlens[d->batch];
  if (!mask) return REFUSE(error, "mask is NULL");
  if (d->q_offset) return REFUSE(error, "q_offset is %" PRId64 ": with cu_seqlens it must be 0", d->q_offset);
  if (d->q.shape[0] != 1 || d->q.shape[2] != rows || d->k.shape[2] != rows)
    return REFUSE(error, "q and k must be [1, .., %" PRId64 ", ..]: what cu_seqlens ends with", rows);
  pack p = {mask, d};
  flyi_packing packing = {d->batch, d->q.shape[1], d->cu_seqlens, d->block, select_document, &p};
  return flyi_selection_pack(&packing, out, error);
}

fly_status fly_moba_select(fly_mask *mask, const fly_moba_desc *desc, fly_selection **out, fly_error *error) {
  fly_moba_desc d;
  fly_status status;
  if (!out) return REFUSE(error, "out is NULL");
  *out = NULL;
  if (!desc) return REFUSE(error, "desc is NULL");
  if (!flyi_copy_struct(&d, sizeof d, desc))
    return REFUSE(error, "desc.size is %zu: set it with FLY_INIT(fly_moba_desc)", desc->size);
  flyi_isa isa;
  if ((status = check_desc(&d, error)) || (status = flyi_isa_parse(NULL, &isa, error))) return status;
  if (d.cu_seqlens) return select_packed(mask, &d, out, error);
  gate g = {.d = &d,
            .code = code_of(isa),
            .batch = d.q.shape[0],
            .heads = d.q.shape[1],
            .kv_heads = d.k.shape[1],
            .len_q = d.q.shape[2],
            .len_kv = d.k.shape[2],
            .dim = d.q.shape[3]};
  g.blocks = g.len_kv / d.block, g.padded = (g.blocks + 3) / 4 * 4;
  g.tiles = (g.len_q + FLYI_BLOCK - 1) / FLYI_BLOCK;
  if (d.top > g.blocks + 1) d.top = (int)g.blocks + 1;
  if (!(status = choose(&g, error))) {
    fly_selection_desc selection = {FLY_INIT(fly_selection_desc),
                                    .block = d.block,
                                    .batch = g.batch,
                                    .heads = g.heads,
                                    .len_q = g.len_q,
                                    .len_kv = g.len_kv,
                                    .q_offset = d.q_offset,
                                    .count = d.top,
                                    .lists = g.lists,
                                    .stride_batch = g.heads * g.len_q * d.top,
                                    .stride_head = g.len_q * d.top,
                                    .stride_row = d.top,
                                    .threads = d.threads,
                                    .parallel_for = d.parallel_for,
                                    .parallel_user = d.parallel_user};
    status = fly_selection_create(mask, &selection, out, error);
  }
  free(g.means), free(g.lists), free(g.scratch);
  return status;
}
