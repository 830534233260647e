/* cuda_gated_project.c: logits of gates from the tokens' own vectors on a GPU, and their gradients. Input: a checked
 * gated call, of which some gates are projected. Output: on its stream, the products of gated_project.c
 * (templates/project_ptx.c), with logits token by token: [batch, rows][heads, channels], f32.
 *
 *     logits = x W' + 1 bias'     d_x = sum over parts of d_logits W     (d_W, d_bias) = d_logits' (x, 1)
 *
 * The last one runs over all tokens: in slices, by shapes alone, whose sums are then added in order. */
#include <inttypes.h>
#include <stdio.h>

#include "cuda_gated.h"

enum { WANTED_BLOCKS = 512 /* fill any device */, LEAST_SLICE = 256 /* tokens */ };

/* ---- matrices -------------------------------------------------------------------------------------------------- */

/* What is too large for a count is too large for any device. */
static int64_t times(int64_t a, int64_t b) {
  int64_t product;
  return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}
static int64_t tokens_of(const flyi_gated *g) { return g->batch * g->rows; }
static int64_t columns_of(const flyi_gated *g, int part) { return g->heads * g->parts[part].gate.weight.shape[2]; }
static int32_t width_of(const flyi_gated *g) { return (int32_t)g->c.x.shape[3]; }

static flyi_cuda_axis steps(int64_t stride) { return (flyi_cuda_axis){.inner = stride, .each = INT32_MAX}; }
static flyi_cuda_axis nested(int64_t outer, int64_t inner, int64_t each) {
  return (flyi_cuda_axis){.outer = outer, .inner = inner, .each = each ? (int32_t)each : 1};
}
static flyi_cuda_axis tokens_on(const fly_tensor *x) { return nested(x->stride[0], x->stride[2], x->shape[2]); }
static flyi_cuda_axis columns_on(const fly_tensor *w) { return nested(w->stride[1], w->stride[2], w->shape[2]); }

static flyi_cuda_matrix matrix(const fly_tensor *t, flyi_cuda_axis row, flyi_cuda_axis column) {
  return (flyi_cuda_matrix){.data = (uintptr_t)t->data,
                            .row = row,
                            .column = column,
                            .type = (int32_t)t->type,
                            .rows = INT32_MAX,
                            .rows_first = row.inner == 1 && column.inner != 1};
}
static flyi_cuda_matrix transposed(flyi_cuda_matrix m) {
  flyi_cuda_axis row = m.row;
  m.row = m.column, m.column = row;
  m.rows_first = m.row.inner == 1 && m.column.inner != 1;
  return m;
}

/* [tokens][columns], [tokens][width], [columns][width]. */
static flyi_cuda_matrix logits_matrix(const flyi_gated *g, int part, const fly_tensor *logits) {
  return matrix(logits, steps(columns_of(g, part)), steps(1));
}
static flyi_cuda_matrix tokens_matrix(const fly_tensor *x) { return matrix(x, tokens_on(x), steps(1)); }
static flyi_cuda_matrix weight_matrix(const fly_tensor *w) { return matrix(w, columns_on(w), steps(1)); }

static int64_t tiles(int64_t rows) { return (rows + FLYI_PRODUCT_TILE - 1) / FLYI_PRODUCT_TILE; }

static fly_status run_product(const flyi_cuda_launch *l, const flyi_cuda_products *p, int64_t slices,
                              fly_error *error) {
  return flyi_cuda_run_blocks(l->cuda, l->stream, FLYI_ROWS_PRODUCT, p, tiles(p->rows) * tiles(p->columns) * slices,
                              FLYI_PRODUCT_SHARED, error);
}

/* ---- forward --------------------------------------------------------------------------------------------------- */

static fly_status project_part(const flyi_gated *g, const flyi_cuda_launch *l, int part, const fly_tensor *logits,
                               fly_error *error) {
  const fly_gate *gate = &g->parts[part].gate;
  flyi_cuda_products p = {.out = logits_matrix(g, part, logits), .slice_depth = INT32_MAX, .count = 1};
  p.rows = (int32_t)tokens_of(g), p.columns = (int32_t)columns_of(g, part);
  p.factors[0] = (flyi_cuda_factors){tokens_matrix(&g->c.x), weight_matrix(&gate->weight), width_of(g), 0};
  if (gate->bias.data) { /* ones, times the bias */
    p.factors[p.count].b = weight_matrix(&gate->bias), p.factors[p.count].depth = 1;
    p.count++;
  }
  return run_product(l, &p, 1, error);
}

/* All in one piece of memory: a call has few. */
fly_status flyi_cuda_project(const flyi_gated *g, flyi_cuda_launch *l, fly_tensor logits[FLYI_GATE_PARTS],
                             fly_error *error) {
  flyi_device_memory memory;
  int64_t columns = 0;
  fly_status status = FLY_OK;
  for (int i = 0; i < g->c.count; i++) {
    logits[i] = g->parts[i].gate.logits;
    if (flyi_gate_projected(&g->parts[i].gate)) columns += columns_of(g, i);
  }
  if (!columns) return FLY_OK;
  const int64_t bytes = times(times(tokens_of(g), columns), sizeof(float));
  status = flyi_cuda_temporary(l, (size_t)bytes, &memory, error);
  for (int i = 0; i < g->c.count && !status; i++) {
    if (!flyi_gate_projected(&g->parts[i].gate)) continue;
    const int64_t channels = g->parts[i].gate.weight.shape[2], all = columns_of(g, i);
    logits[i] = (fly_tensor){.data = (void *)(uintptr_t)memory,
                             .type = FLY_F32,
                             .shape = {g->batch, g->heads, g->rows, channels},
                             .stride = {g->rows * all, channels, all, 1}};
    memory += (uint64_t)(tokens_of(g) * all) * sizeof(float);
    status = project_part(g, l, i, &logits[i], error);
  }
  return status;
}

/* ---- backward -------------------------------------------------------------------------------------------------- */

static bool wants_weights(const fly_gate *gate) { return gate->d_weight.data || gate->d_bias.data; }

bool flyi_cuda_wants_logits(const flyi_gated *g, int part) {
  const fly_gate *gate = &g->parts[part].gate;
  return flyi_gate_projected(gate) ? g->c.d_x.data || wants_weights(gate) : gate->d_logits.data != NULL;
}

/* One product of as many factors as there are projected parts: rounded once. */
static fly_status make_d_x(const flyi_gated *g, const flyi_cuda_launch *l, const fly_tensor *d_logits,
                           fly_error *error) {
  flyi_cuda_products p = {.out = tokens_matrix(&g->c.d_x), .slice_depth = INT32_MAX};
  p.rows = (int32_t)tokens_of(g), p.columns = width_of(g);
  for (int i = 0; i < g->c.count; i++) {
    const fly_gate *gate = &g->parts[i].gate;
    if (!flyi_gate_projected(gate)) continue;
    p.factors[p.count++] = (flyi_cuda_factors){logits_matrix(g, i, &d_logits[i]),
                                               transposed(weight_matrix(&gate->weight)), (int32_t)columns_of(g, i), 0};
  }
  return run_product(l, &p, 1, error);
}

/* How many, so that blocks fill a device and each has something to do. */
static int64_t slices_of(int64_t rows, int64_t columns, int64_t depth) {
  const int64_t blocks = tiles(rows) * tiles(columns), most = (depth + LEAST_SLICE - 1) / LEAST_SLICE;
  const int64_t wanted = blocks ? (WANTED_BLOCKS + blocks - 1) / blocks : 1;
  return wanted < most ? wanted : most > 0 ? most : 1;
}

/* In `memory`, which is the call's and as large as weight_bytes says. */
static fly_status make_d_weight(const flyi_gated *g, const flyi_cuda_launch *l, int part, const fly_tensor *d_logits,
                                flyi_device_memory memory, fly_error *error) {
  const fly_gate *gate = &g->parts[part].gate;
  const int64_t columns = columns_of(g, part), width = width_of(g), depth = tokens_of(g);
  const int64_t slices = slices_of(columns, width + 1, depth);
  flyi_cuda_products p = {.slice_step = columns * (width + 1), .count = 1};
  p.rows = (int32_t)columns, p.columns = (int32_t)width + 1;
  p.slice_depth = (int32_t)((depth + slices - 1) / slices);
  p.out = (flyi_cuda_matrix){.data = memory, .row = steps(width + 1), .column = steps(1), .type = FLY_F32};
  p.factors[0] = (flyi_cuda_factors){transposed(logits_matrix(g, part, d_logits)), transposed(tokens_matrix(&g->c.x)),
                                     (int32_t)depth, 0};
  p.factors[0].b.rows = (int32_t)width; /* what the bias is multiplied by */
  fly_status status = run_product(l, &p, slices, error);
  const flyi_cuda_slices sum = {.from = memory,
                                .d_weight = flyi_cuda_tensor_of(&gate->d_weight),
                                .d_bias = flyi_cuda_tensor_of(&gate->d_bias),
                                .weight_type = (int32_t)gate->d_weight.type,
                                .bias_type = (int32_t)gate->d_bias.type,
                                .slices = (int32_t)slices,
                                .rows = (int32_t)columns,
                                .width = (int32_t)width,
                                .channels = (int32_t)gate->weight.shape[2]};
  const int64_t blocks = (columns * (width + 1) + FLYI_ROWS_THREADS - 1) / FLYI_ROWS_THREADS;
  return status ? status : flyi_cuda_run_blocks(l->cuda, l->stream, FLYI_ROWS_SLICES, &sum, blocks, 0, error);
}

static int64_t weight_bytes(const flyi_gated *g, int part) {
  const int64_t columns = columns_of(g, part), width = width_of(g);
  if (!flyi_gate_projected(&g->parts[part].gate) || !wants_weights(&g->parts[part].gate)) return 0;
  return times(times(slices_of(columns, width + 1, tokens_of(g)), times(columns, width + 1)), sizeof(float));
}

fly_status flyi_cuda_project_backward(const flyi_gated *g, flyi_cuda_launch *l,
                                      const fly_tensor d_logits[FLYI_GATE_PARTS], fly_error *error) {
  flyi_device_memory memory = 0;
  int64_t bytes = 0;
  fly_status status = FLY_OK;
  if (!g->projects) return FLY_OK;
  if (g->c.d_x.data) status = make_d_x(g, l, d_logits, error);
  for (int i = 0; i < g->c.count; i++)
    if (weight_bytes(g, i) > bytes) bytes = weight_bytes(g, i);
  if (!status && bytes) status = flyi_cuda_temporary(l, (size_t)bytes, &memory, error);
  for (int i = 0; i < g->c.count && !status; i++)
    if (weight_bytes(g, i)) status = make_d_weight(g, l, i, &d_logits[i], memory, error);
  return status;
}

/* ---- checks ---------------------------------------------------------------------------------------------------- */

static fly_status check_part(const flyi_gated *g, int i, bool backward, fly_error *error) {
  const fly_gate *gate = &g->parts[i].gate;
  const struct {
    const char *name;
    const fly_tensor *tensor;
  } all[] = {
      {"weight", &gate->weight}, {"bias", &gate->bias}, {"d_weight", &gate->d_weight}, {"d_bias", &gate->d_bias}};
  char name[48];
  fly_status status = FLY_OK;
  int64_t columns;
  if (__builtin_mul_overflow(g->heads, gate->weight.shape[2], &columns) || columns > INT32_MAX)
    return flyi_fail(error, FLY_ERROR_UNSUPPORTED, "parts[%d].gate has 2^31 or more logits for a token", i);
  for (int k = 0; k < (backward ? 4 : 2) && !status; k++) {
    snprintf(name, sizeof name, "parts[%d].gate.%s", i, all[k].name);
    status = flyi_cuda_check_tensor(name, all[k].tensor, g->c.cuda, error);
  }
  return status;
}

fly_status flyi_cuda_check_projection(const flyi_gated *g, bool backward, fly_error *error) {
  fly_status status = FLY_OK;
  int64_t tokens;
  if (!g->projects) return FLY_OK;
  if (__builtin_mul_overflow(g->batch, g->rows, &tokens) || tokens > INT32_MAX)
    return flyi_fail(error, FLY_ERROR_UNSUPPORTED,
                     "%" PRId64 " times %" PRId64 " tokens: on a GPU gates are projected for at most 2^31 - 1",
                     g->batch, g->rows);
  status = flyi_cuda_check_tensor("x", &g->c.x, g->c.cuda, error);
  if (!status && backward) status = flyi_cuda_check_tensor("d_x", &g->c.d_x, g->c.cuda, error);
  for (int i = 0; i < g->c.count && !status; i++)
    if (flyi_gate_projected(&g->parts[i].gate)) status = check_part(g, i, backward, error);
  return status;
}
