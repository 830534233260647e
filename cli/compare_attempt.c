/* compare_attempt.c: a mechanism as calls of the library. From a method and tensors to masks, maps and kernels that
 * are ready to run, and counts of what they do. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "compare.h"

fly_status compare_mask(const char *name, const fly_arg *bake, int count, const char *target, fly_mask **out,
                        fly_error *error) {
  char *path = NULL;
  fly_compile_options how = {FLY_INIT(fly_compile_options), .bake = bake, .bake_count = count, .target = target};
  *out = NULL;
  fly_status status = mask_find(name, &path, error);
  if (status == FLY_OK) status = fly_mask_compile_file(path, &how, out, error);
  free(path);
  return status;
}

fly_status compare_kernel(fly_mask *mask, const tensors *t, fly_kernel **out, fly_error *error) {
  fly_kernel_desc desc = {FLY_INIT(fly_kernel_desc), .type = FLY_F32, .head_dim = (int)t->q.shape[3],
                          .value_dim = (int)t->v.shape[3]};
  return fly_kernel_create(mask, &desc, out, error);
}

/* ---- the mechanisms ---------------------------------------------------------------------------------------------- */

static fly_attention call_of(const tensors *t, fly_kernel *kernel, int threads) {
  return (fly_attention){
      FLY_INIT(fly_attention), .kernel = kernel,   .q = t->q,         .k = t->k,     .v = t->v,     .out = t->out,
      .lse = t->lse,           .threads = threads, .d_out = t->d_out, .d_q = t->d_q, .d_k = t->d_k, .d_v = t->d_v};
}

/* Mask and kernel number i, and the call. */
static fly_status begin(attempt *a, int i, const char *mask, const fly_arg *bake, int count, const tensors *t,
                        const compare_options *options, fly_error *error) {
  fly_status status = compare_mask(mask, bake, count, options->target, &a->masks[i], error);
  if (status == FLY_OK) status = compare_kernel(a->masks[i], t, &a->kernels[i], error);
  a->calls[i] = call_of(t, a->kernels[i], options->threads);
  return status;
}

static fly_status count_tiles(attempt *a, const fly_map *map, fly_error *error) {
  fly_map_info info;
  int64_t pairs = 0;
  fly_map_get_info(map, &info);
  int64_t planes = info.batch * info.heads;
  a->tiles_full += info.tiles_full / planes;
  a->tiles_partial += info.tiles_partial / planes;
  a->tiles_all += (info.tiles_empty + info.tiles_full + info.tiles_partial) / planes;
  fly_status status = fly_map_visible_pairs(map, &pairs, error);
  a->pairs += pairs;
  return status;
}

static fly_status create_plain(attempt *a, const tensors *t, const compare_options *options, fly_error *error) {
  bool window = a->method.kind != METHOD_FULL;
  fly_arg args[] = {FLY_INT("left", a->method.window - 1), FLY_INT("right", 0)};
  fly_geometry g = {FLY_INIT(fly_geometry), .batch = t->q.shape[0], .heads = t->q.shape[1], .len_q = t->q.shape[2],
                    .len_kv = t->k.shape[2]};
  fly_map_options how = {FLY_INIT(fly_map_options), .threads = options->threads};
  fly_status status = begin(a, 0, window ? "sliding_window" : "causal", NULL, 0, t, options, error);
  double start = now_ms();
  if (status == FLY_OK) status = fly_mask_bind(a->masks[0], args, window ? 2 : 0, &a->bound, error);
  if (status == FLY_OK) status = fly_map_build(a->bound, &g, &how, &a->map, error);
  a->setup_ms += now_ms() - start;
  a->calls[0].bound = a->bound;
  a->calls[0].map = a->map;
  a->calls[0].geometry = g;
  return status == FLY_OK ? count_tiles(a, a->map, error) : status;
}

static fly_status create_stochastic(attempt *a, int i, const tensors *t, uint64_t seed, const compare_options *options,
                                    fly_error *error) {
  fly_sa_desc desc = {FLY_INIT(fly_sa_desc),  .left = a->method.reach,    .right = a->method.reach,
                      .batch = t->q.shape[0], .heads = t->q.shape[1],     .length = t->q.shape[2],
                      .seed = seed,           .threads = options->threads};
  fly_status status = begin(a, i, "stochastic", NULL, 0, t, options, error);
  double start = now_ms();
  if (status == FLY_OK) status = fly_sa_create(a->masks[i], &desc, &a->sa, error);
  a->setup_ms += now_ms() - start;
  if (status == FLY_OK) status = fly_sa_apply(a->sa, &a->calls[i], error);
  return status == FLY_OK ? count_tiles(a, a->calls[i].map, error) : status;
}

static fly_status create_both(attempt *a, const tensors *t, uint64_t seed, const compare_options *options,
                              fly_error *error) {
  const int64_t *s = t->q.shape;
  fly_status status = create_plain(a, t, options, error);
  if (status == FLY_OK) status = create_stochastic(a, 1, t, seed, options, error);
  if (status == FLY_OK) status = tensor_create(s[0], s[1], s[2], 1, &a->logits, error); /* zeros: gates of 1/2 */
  for (int i = 0; status == FLY_OK && i < 2; i++) {
    status = tensor_create(s[0], s[1], s[2], t->v.shape[3], &a->part[i].out, error);
    if (status == FLY_OK) status = tensor_create(s[0], s[1], s[2], 1, &a->part[i].lse, error);
    a->parts[i].attention = a->calls[i];
    a->parts[i].attention.out = a->part[i].out;
    a->parts[i].attention.lse = a->part[i].lse;
    a->parts[i].gate.logits = a->logits;
  }
  a->gated = (fly_gated_call){FLY_INIT(fly_gated_call),
                              .parts = a->parts,
                              .count = 2,
                              .q = t->q,
                              .k = t->k,
                              .v = t->v,
                              .out = t->out,
                              .d_out = t->d_out,
                              .d_q = t->d_q,
                              .d_k = t->d_k,
                              .d_v = t->d_v,
                              .threads = options->threads};
  return status;
}

static fly_status create_moba(attempt *a, const tensors *t, const compare_options *options, fly_error *error) {
  fly_arg bake[] = {FLY_INT("size", a->method.block), FLY_INT("count", 1), FLY_INT("causal", 1), FLY_INT("offset", 0)};
  fly_status status = begin(a, 0, "selected_tiles", bake, a->method.block >= 64 ? 4 : 0, t, options, error);
  a->moba = (fly_moba_desc){
      FLY_INIT(fly_moba_desc),    .block = a->method.block, .top = a->method.top, .q = t->q, .k = t->k,
      .threads = options->threads};
  if (status == FLY_OK) status = fly_moba_select(a->masks[0], &a->moba, &a->selection, error);
  if (status != FLY_OK) return status;
  fly_selection_info info;
  fly_selection_get_info(a->selection, &info);
  return count_tiles(a, info.map, error);
}

fly_status attempt_create(const method *m, const tensors *t, uint64_t seed, const compare_options *options,
                          attempt *out, fly_error *error) {
  *out = (attempt){.method = *m};
  fly_status status = FLY_OK;
  switch (m->kind) {
  case METHOD_SA:
    status = create_stochastic(out, 0, t, seed, options, error);
    break;
  case METHOD_BOTH:
    status = create_both(out, t, seed, options, error);
    break;
  case METHOD_MOBA:
    status = create_moba(out, t, options, error);
    break;
  default:
    status = create_plain(out, t, options, error);
  }
  if (status != FLY_OK) attempt_free(out);
  return status;
}

void attempt_free(attempt *a) {
  for (int i = 0; i < 2; i++) {
    fly_kernel_release(&a->kernels[i]);
    fly_mask_release(&a->masks[i]);
    tensors_free(&a->part[i]);
  }
  fly_map_release(&a->map);
  fly_bound_release(&a->bound);
  fly_sa_release(&a->sa);
  fly_selection_release(&a->selection);
  free(a->logits.data);
  *a = (attempt){0};
}

/* ---- workspace --------------------------------------------------------------------------------------------------- */

fly_status attempt_workspace_size(const attempt *a, size_t *bytes, fly_error *error) {
  const fly_attention *call = &a->calls[0];
  size_t forward = 0, backward = 0;
  fly_status status = FLY_OK;
  *bytes = 0;
  if (a->method.kind == METHOD_BOTH) return FLY_OK;
  if (a->method.kind == METHOD_MOBA) {
    status = fly_selection_workspace(a->selection, call, &forward, error);
    if (status == FLY_OK) status = fly_selection_backward_workspace(a->selection, call, &backward, error);
  } else {
    status = fly_attention_workspace(call, &forward, error);
    if (status == FLY_OK) status = fly_attention_backward_workspace(call, &backward, error);
  }
  *bytes = forward > backward ? forward : backward;
  return status;
}

void attempt_set_workspace(attempt *a, void *workspace, size_t bytes) {
  a->calls[0].workspace = workspace;
  a->calls[0].workspace_size = bytes;
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

fly_status attempt_forward(attempt *a, fly_error *error) {
  fly_status status = compare_going(error);
  if (status != FLY_OK) return status;
  if (a->method.kind == METHOD_BOTH) {
    a->gated.parts = a->parts; /* the attempt may have moved */
    return fly_gated_forward(&a->gated, error);
  }
  if (a->method.kind != METHOD_MOBA) return fly_attention_forward(&a->calls[0], error);
  fly_selection_release(&a->selection);
  status = fly_moba_select(a->masks[0], &a->moba, &a->selection, error);
  return status == FLY_OK ? fly_selection_forward(a->selection, &a->calls[0], error) : status;
}

fly_status attempt_backward(attempt *a, fly_error *error) {
  fly_status status = compare_going(error);
  if (status != FLY_OK) return status;
  a->gated.parts = a->parts;
  if (a->method.kind == METHOD_BOTH) return fly_gated_backward(&a->gated, error);
  if (a->method.kind == METHOD_MOBA) return fly_selection_backward(a->selection, &a->calls[0], error);
  return fly_attention_backward(&a->calls[0], error);
}

compare_options compare_timed(const compare_options *options) {
  compare_options timed = *options;
  if (timed.threads == 0) timed.threads = 1;
  return timed;
}

double compare_clock_ms(const compare_options *timed) {
  struct timespec now;
  if (timed->threads != 1) return now_ms();
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}
