/* gated_project.c: logits of gates from the tokens' own vectors, and their gradients. Input: x, weights, biases.
 * Output: logits as f32, token by token; later d_x, d_weight, d_bias from the logits' gradients.
 *
 * Three products (templates/gate_cpu.c), with x in tiles of 64 tokens and the weights as f32, the bias behind each row:
 *
 *     logits = x W' + bias     d_x = d_logits W     (d_W, d_bias) = d_logits' (x, 1)
 *
 * Each sum runs in one order whatever the number of threads: a tile of logits or d_x is one item, as are 16 gates of
 * d_W. */
#include <stdlib.h>
#include <string.h>

#include "gated.h"

enum {
  SIDE = 4,
  PANEL = 64,
  TILE = FLYI_GATE_ROWS,
  LANES = 16 /* the most of any target */,
  GATES = 16 /* of an item */
};

static int64_t round_up(int64_t x, int64_t unit) { return (x + unit - 1) / unit * unit; }

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static float *carve(float *memory, int64_t *used, int64_t floats) {
  float *at = memory ? memory + *used : NULL;
  *used += round_up(floats, LANES);
  return at;
}

static int64_t place(flyi_projection *p, bool backward, int workers, float *memory) {
  int64_t used = 0;
  for (int i = 0; i < p->g->c.count; i++) {
    flyi_logits *x = &p->part[i];
    if (!flyi_gate_projected(&p->g->parts[i].gate)) continue;
    x->data = carve(memory, &used, p->g->batch * p->tiles * TILE * x->stride);
    x->weight = carve(memory, &used, x->columns * p->stride);
    x->bias = carve(memory, &used, x->columns);
    x->panels = backward ? carve(memory, &used, round_up(p->stride, PANEL) * x->columns) : NULL;
  }
  p->scratch = carve(memory, &used, workers * p->scratch_floats);
  return used;
}

/* ---- weights ----------------------------------------------------------------------------------------------------- */

static void load_row(const flyi_projection *p, const fly_tensor *t, int64_t column, float *out) {
  int64_t channels = t->shape[2];
  p->g->code->load(out, 0, flyi_plane_row(t, 0, column / channels, column % channels), 0, t->type, 1,
                   (int32_t)t->shape[3]);
}

static void pack_part(void *context, int64_t item, int worker) {
  (void)worker;
  flyi_projection *p = context;
  flyi_logits *x = &p->part[item];
  const fly_gate *gate = &p->g->parts[item].gate;
  if (!x->data) return;
  memset(x->weight, 0, sizeof *x->weight * x->columns * p->stride);
  memset(x->bias, 0, sizeof *x->bias * x->columns);
  for (int64_t column = 0; column < x->columns; column++) {
    float *row = x->weight + column * p->stride;
    load_row(p, &gate->weight, column, row);
    if (gate->bias.data) load_row(p, &gate->bias, column, x->bias + column);
    for (int64_t i = 0; x->panels && i < p->stride; i += PANEL)
      memcpy(x->panels + i * x->columns + column * PANEL, row + i, sizeof *row * flyi_min64(PANEL, p->stride - i));
  }
}

/* ---- tiles of tokens --------------------------------------------------------------------------------------------- */

static int tile_rows(const flyi_projection *p, int64_t tile) { return (int)flyi_min64(p->g->rows - tile * TILE, TILE); }

/* x as [64][stride], a channel that is 1 behind it, zeros elsewhere. */
static void load_tile(const flyi_projection *p, int64_t b, int64_t tile, float *out) {
  const fly_tensor *x = &p->g->c.x;
  int count = tile_rows(p, tile);
  p->g->code->load(out, p->stride, flyi_plane_row(x, b, 0, tile * TILE), x->stride[2], x->type, count,
                   (int32_t)p->width);
  for (int r = 0; r < count; r++) {
    memset(out + r * p->stride + p->width, 0, sizeof *out * (p->stride - p->width));
    out[r * p->stride + p->width] = 1;
  }
}

static float *logits_tile(const flyi_logits *x, int64_t item) { return x->data + item * TILE * x->stride; }

/* Four gates' weights stay in the nearest cache, while the tile's tokens pass by. */
static void project_part(const flyi_projection *p, const flyi_logits *x, const float *tile, int64_t tile_row, int count,
                         float *out) {
  for (int64_t column = 0; column < x->columns; column += SIDE)
    for (int r = 0; r < count; r += SIDE)
      p->g->code->dots(&(flyi_dots_cpu){.out = out + r * x->stride + column,
                                        .out_row = x->stride,
                                        .a = tile + r * tile_row,
                                        .a_row = tile_row,
                                        .b = x->weight + column * p->stride,
                                        .b_row = p->stride,
                                        .bias = x->bias + column,
                                        .depth = (int32_t)p->width,
                                        .rows = (int32_t)flyi_min64(SIDE, count - r),
                                        .columns = (int32_t)flyi_min64(SIDE, x->columns - column)});
}

static void project_tile(void *context, int64_t item, int worker) {
  const flyi_projection *p = context;
  const fly_tensor *x = &p->g->c.x;
  int64_t b = item / p->tiles, tile = item % p->tiles, stride = p->stride;
  const float *rows = p->scratch + worker * p->scratch_floats;
  if (x->type == FLY_F32)
    rows = (float *)flyi_plane_row(x, b, 0, tile * TILE), stride = x->stride[2];
  else
    load_tile(p, b, tile, p->scratch + worker * p->scratch_floats);
  for (int i = 0; i < p->g->c.count; i++)
    if (p->part[i].data) project_part(p, &p->part[i], rows, stride, tile_rows(p, tile), logits_tile(&p->part[i], item));
}

static void d_x_tile(void *context, int64_t item, int worker) {
  const flyi_projection *p = context;
  float *tile = p->scratch + worker * p->scratch_floats;
  int count = tile_rows(p, item % p->tiles);
  memset(tile, 0, sizeof *tile * TILE * p->stride);
  for (int i = 0; i < p->g->c.count; i++) {
    const flyi_logits *x = &p->part[i];
    if (!x->data) continue;
    const float *d_logits = logits_tile(x, item);
    for (int64_t channel = 0; channel < p->stride; channel += PANEL)
      for (int r = 0; r < count; r += SIDE)
        p->g->code->product(&(flyi_product_cpu){.out = tile + r * p->stride + channel,
                                                .out_row = p->stride,
                                                .a = d_logits + r * x->stride,
                                                .a_step = 1,
                                                .a_row = x->stride,
                                                .b = x->panels + channel * x->columns,
                                                .b_step = PANEL,
                                                .width = (int32_t)flyi_min64(PANEL, p->stride - channel),
                                                .depth = (int32_t)x->columns});
  }
  const fly_tensor *d_x = &p->g->c.d_x;
  p->g->code->store(flyi_plane_row(d_x, item / p->tiles, 0, item % p->tiles * TILE), d_x->stride[2], d_x->type, tile,
                    p->stride, count, (int32_t)p->width);
}

/* ---- gradients of weights ---------------------------------------------------------------------------------------- */

static void store_weights(const flyi_projection *p, const fly_gate *gate, int64_t column, const float *row) {
  int64_t channels = gate->weight.shape[2], h = column / channels, c = column % channels;
  if (gate->d_weight.data)
    p->g->code->store(flyi_plane_row(&gate->d_weight, 0, h, c), 0, gate->d_weight.type, row, 0, 1, (int32_t)p->width);
  if (gate->d_bias.data)
    p->g->code->store(flyi_plane_row(&gate->d_bias, 0, h, c), 0, gate->d_bias.type, row + p->width, 0, 1, 1);
}

/* 16 gates of a part: all tokens in order. */
static void d_weights(const flyi_projection *p, int part, int64_t first, float *scratch) {
  const flyi_logits *x = &p->part[part];
  float *tile = scratch, *out = scratch + TILE * p->stride;
  memset(out, 0, sizeof *out * GATES * p->stride);
  for (int64_t item = 0; item < p->g->batch * p->tiles; item++) {
    load_tile(p, item / p->tiles, item % p->tiles, tile);
    for (int r = 0; r < GATES && first + r < x->columns; r += SIDE)
      p->g->code->product(&(flyi_product_cpu){.out = out + r * p->stride,
                                              .out_row = p->stride,
                                              .a = logits_tile(x, item) + first + r,
                                              .a_step = x->stride,
                                              .a_row = 1,
                                              .b = tile,
                                              .b_step = p->stride,
                                              .width = (int32_t)p->stride,
                                              .depth = tile_rows(p, item % p->tiles)});
  }
  for (int64_t r = 0; r < GATES && first + r < x->columns; r++)
    store_weights(p, &p->g->parts[part].gate, first + r, out + r * p->stride);
}

static int64_t weight_items(const flyi_projection *p, int part) {
  const fly_gate *gate = &p->g->parts[part].gate;
  if (!p->part[part].data || (!gate->d_weight.data && !gate->d_bias.data)) return 0;
  return (p->part[part].columns + GATES - 1) / GATES;
}

static void d_weights_item(void *context, int64_t item, int worker) {
  const flyi_projection *p = context;
  int part = 0;
  for (; item >= weight_items(p, part); part++) item -= weight_items(p, part);
  d_weights(p, part, item * GATES, p->scratch + worker * p->scratch_floats);
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

fly_status flyi_projection_create(const flyi_gated *g, bool backward, flyi_projection *p, fly_error *error) {
  *p = (flyi_projection){.g = g, .tiles = (g->rows + TILE - 1) / TILE, .width = g->c.x.shape[3]};
  p->part = flyi_alloc(g->c.count, sizeof *p->part);
  if (!p->part) return flyi_no_memory(error);
  if (!g->projects) return FLY_OK;
  p->stride = round_up(p->width + 1, LANES);
  p->scratch_floats = 2 * TILE * p->stride;
  int64_t items = g->batch * p->tiles, most = items > g->c.count ? items : g->c.count;
  for (int i = 0; i < g->c.count; i++) {
    p->part[i].columns = g->heads * g->parts[i].gate.weight.shape[2];
    p->part[i].stride = round_up(p->part[i].columns, LANES);
    int64_t gates = (p->part[i].columns + GATES - 1) / GATES * g->c.count;
    if (gates > most) most = gates;
  }
  int workers = flyi_worker_count(&g->threads, most);
  p->memory = flyi_alloc_aligned((size_t)place(p, backward, workers, NULL) * sizeof(float));
  if (!p->memory) return flyi_no_memory(error);
  place(p, backward, workers, p->memory);
  flyi_threads threads = g->threads;
  threads.limit = workers;
  flyi_parallel(&threads, g->c.count, pack_part, p);
  flyi_parallel(&threads, items, project_tile, p);
  return FLY_OK;
}

void flyi_projection_backward(flyi_projection *p) {
  int64_t gates = 0;
  if (!p->g->projects) return;
  for (int i = 0; i < p->g->c.count; i++) gates += weight_items(p, i);
  if (p->g->c.d_x.data) flyi_parallel(&p->g->threads, p->g->batch * p->tiles, d_x_tile, p);
  flyi_parallel(&p->g->threads, gates, d_weights_item, p);
}

void flyi_projection_free(flyi_projection *p) {
  free(p->part), free(p->memory);
  *p = (flyi_projection){0};
}
