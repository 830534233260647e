/* gated_project.c: logits of gates from the tokens' own vectors, and their gradients. Input: x, weights, biases.
 * Output: logits as f32, token by token; later d_x, d_weight, d_bias from the logits' gradients.
 *
 * Three products (templates/gate_cpu.c) over tiles of 64 tokens, with the weights of all parts one below the other:
 *
 *     logits = x W' + bias     d_x = d_logits W     d_W = d_logits' x, d_bias = d_logits' 1
 *
 * Each sum runs in one order whatever the number of threads. Of few gates, a range of tiles is one item, which makes
 * d_x and its own sums over tokens while x is near; the ranges' sums are added in order. Of many, whose sums are large,
 * an item is a tile of d_x, or 16 gates and all tokens. */
#include <string.h>

#include "gated.h"

enum {
  SIDE = 4,
  TILE = FLYI_GATE_ROWS,
  LANES = 16 /* the most of any target */,
  AHEAD_BYTES = 4096 /* of what is written, at least */,
  GATES = 16 /* of an item, if they are many */,
  RANGES = 64 /* at most */,
  NEAREST_FLOATS = 4 << 10 /* weights that the nearest cache holds */,
  NEAR_FLOATS = 32 << 10 /* d_weight of few gates, which stays in a near cache while x passes by */
};

static int64_t round_up(int64_t x, int64_t unit) { return (x + unit - 1) / unit * unit; }

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* What has been given of the memory, or would be. */
typedef struct room {
  float *memory; /* NULL: only the size is asked for */
  int64_t used;  /* floats */
  bool overflows;
} room;

/* count * size floats. */
static float *carve(room *r, int64_t count, int64_t size) {
  float *at = r->memory ? r->memory + r->used : NULL;
  int64_t floats;
  r->overflows |= __builtin_mul_overflow(count, size, &floats) || __builtin_add_overflow(floats, LANES - 1, &floats) ||
                  __builtin_add_overflow(r->used, floats / LANES * LANES, &r->used);
  return at;
}

static room place(flyi_projection *p, bool backward, float *memory) {
  room r = {.memory = memory};
  p->logits = carve(&r, p->g->batch * p->tiles * TILE, p->row);
  p->weight = carve(&r, p->row, p->stride);
  p->bias = carve(&r, p->row, 1);
  if (backward) p->sums = carve(&r, (p->ranges ? p->ranges : 1) * p->row, p->stride);
  p->scratch = carve(&r, flyi_worker_count(&p->g->threads, INT64_MAX), p->scratch_floats);
  return r;
}

bool flyi_projection_plan(flyi_projection *p, const flyi_gated *g, bool backward, size_t *bytes) {
  int64_t columns = 0, weights, tiles = (g->rows + TILE - 1) / TILE;
  *p = (flyi_projection){.g = g, .tiles = tiles, .width = g->c.x.shape[3]};
  *bytes = 0;
  if (!g->projects) return true;
  for (int i = 0; i < g->c.count; i++) {
    p->first[i] = columns;
    if (flyi_gate_projected(&g->parts[i].gate) &&
        __builtin_add_overflow(columns, g->heads * g->parts[i].gate.weight.shape[2], &columns))
      return false;
  }
  p->first[g->c.count] = columns;
  if (columns > INT64_MAX - SIDE) return false;
  p->row = round_up(columns, SIDE);
  p->stride = round_up(p->width, LANES) + LANES; /* of a tensor's width, which is far below 2^63 */
  if (__builtin_mul_overflow(p->row, p->stride, &weights) ||
      __builtin_mul_overflow(TILE + SIDE, p->stride, &p->scratch_floats))
    return false;
  if (backward && weights <= NEAR_FLOATS) p->ranges = flyi_min64(g->batch * tiles, RANGES);
  room room = place(p, backward, NULL);
  return !room.overflows && !__builtin_mul_overflow(room.used, sizeof(float), bytes);
}

/* ---- weights ----------------------------------------------------------------------------------------------------- */

static void load_row(const flyi_projection *p, const fly_tensor *t, int64_t column, float *out) {
  int64_t channels = t->shape[2];
  p->g->code->load(out, 0, flyi_plane_row(t, 0, column / channels, column % channels), 0, t->type, 1,
                   (int32_t)t->shape[3]);
}

static void pack_weights(const flyi_projection *p) {
  memset(p->weight, 0, sizeof *p->weight * p->row * p->stride);
  memset(p->bias, 0, sizeof *p->bias * p->row);
  for (int i = 0; i < p->g->c.count; i++) {
    const fly_gate *gate = &p->g->parts[i].gate;
    for (int64_t column = p->first[i]; column < p->first[i + 1]; column++) {
      load_row(p, &gate->weight, column - p->first[i], p->weight + column * p->stride);
      if (gate->bias.data) load_row(p, &gate->bias, column - p->first[i], p->bias + column);
    }
  }
}

/* ---- tiles of tokens --------------------------------------------------------------------------------------------- */

static int tile_rows(const flyi_projection *p, int64_t item) {
  return (int)flyi_min64(p->g->rows - item % p->tiles * TILE, TILE);
}

static char *tile_of(const flyi_projection *p, const fly_tensor *t, int64_t item) {
  return flyi_plane_row(t, item / p->tiles, 0, item % p->tiles * TILE);
}

/* A tile of x as f32: where it is, if its rows are whole vectors, else copied. What is behind its channels there goes
 * into sums that nobody reads. */
static const float *tile_of_x(const flyi_projection *p, int64_t item, float *copy, int64_t *stride) {
  const fly_tensor *x = &p->g->c.x;
  if (x->type == FLY_F32 && p->width % LANES == 0) {
    *stride = x->stride[2];
    return (float *)tile_of(p, x, item);
  }
  p->g->code->load(copy, p->stride, tile_of(p, x, item), x->stride[2], x->type, tile_rows(p, item), (int32_t)p->width);
  *stride = p->stride;
  return copy;
}

static bool x_is_dense(const flyi_projection *p) {
  const fly_tensor *x = &p->g->c.x;
  return x->type == FLY_F32 && p->width % LANES == 0 && x->stride[2] == p->width;
}

/* A tile's logits or their gradients. */
static float *logits_of(const flyi_projection *p, int64_t item) { return p->logits + item * TILE * p->row; }

static void project_tile(void *context, int64_t item, int worker) {
  const flyi_projection *p = context;
  int64_t stride;
  const float *x = tile_of_x(p, item, p->scratch + worker * p->scratch_floats, &stride);
  p->g->code->dots(&(flyi_dots_cpu){.out = logits_of(p, item),
                                    .out_row = p->row,
                                    .a = x,
                                    .a_row = stride,
                                    .b = p->weight,
                                    .b_row = p->stride,
                                    .bias = p->bias,
                                    .columns = p->row,
                                    .rows = tile_rows(p, item),
                                    .depth = (int32_t)p->width});
}

void flyi_projection_create(flyi_projection *p, bool backward, void *memory) {
  if (!p->g->projects) return;
  place(p, backward, memory);
  pack_weights(p);
  flyi_parallel(&p->g->threads, p->g->batch * p->tiles, project_tile, p);
}

void flyi_projection_place(const flyi_projection *p, int part, int64_t b, int64_t h, int64_t row, flyi_gate_cpu *out) {
  int64_t channels = p->g->parts[part].gate.weight.shape[2];
  float *logits = p->logits + (b * p->tiles * TILE + row) * p->row + p->first[part] + h * channels;
  out->channels = (int32_t)channels, out->logits_type = FLY_F32;
  out->logits = out->d_logits = logits;
  out->logits_stride = out->d_logits_stride = p->row;
}

/* ---- gradients of x ---------------------------------------------------------------------------------------------- */

/* A few tokens at a time: where they are to be, if that is as whole vectors of f32. Two, whose rows are written nearly
 * in the order of memory; four share weights that are not in the nearest cache. */
static void make_d_x(const flyi_projection *p, int64_t item, int worker) {
  const fly_tensor *d_x = &p->g->c.d_x;
  const float *d_logits = logits_of(p, item);
  float *copy = p->scratch + worker * p->scratch_floats + TILE * p->stride;
  char *to = tile_of(p, d_x, item);
  int count = tile_rows(p, item), rows = p->row * p->stride <= NEAREST_FLOATS ? 2 : 4;
  bool whole = d_x->type == FLY_F32 && p->width % LANES == 0;
  int64_t bytes = rows * d_x->stride[2] * (int64_t)fly_type_size(d_x->type);
  for (int r = 0; r < count; r += rows, to += bytes) {
    bool direct = whole && r + rows <= count;
    p->g->code->product(&(flyi_product_cpu){.out = direct ? (float *)to : copy,
                                            .out_row = direct ? d_x->stride[2] : p->stride,
                                            .a = d_logits + r * p->row,
                                            .a_step = 1,
                                            .a_row = p->row,
                                            .b = p->weight,
                                            .b_step = p->stride,
                                            .ahead = to + flyi_max64(bytes, AHEAD_BYTES),
                                            .ahead_bytes = direct && d_x->stride[2] == p->width ? bytes : 0,
                                            .rows = rows,
                                            .width = (int32_t)round_up(p->width, LANES),
                                            .depth = (int32_t)p->first[p->g->c.count]});
    if (!direct)
      p->g->code->store(to, d_x->stride[2], d_x->type, copy, p->stride, (int32_t)flyi_min64(rows, count - r),
                        (int32_t)p->width);
  }
}

static void d_x_item(void *context, int64_t item, int worker) { make_d_x(context, item, worker); }

/* ---- gradients of weights ---------------------------------------------------------------------------------------- */

static bool weights_wanted(const flyi_projection *p) {
  for (int i = 0; i < p->g->c.count; i++)
    if (p->first[i] < p->first[i + 1] && (p->g->parts[i].gate.d_weight.data || p->g->parts[i].gate.d_bias.data))
      return true;
  return false;
}

/* Adds a tile of tokens to the sums of gates [first, last): d_weight, and d_bias from the first channel behind it. */
static void add_tile(const flyi_projection *p, int64_t item, int64_t first, int64_t last, float *sums, int worker) {
  static const float ones[LANES] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  int64_t stride;
  const float *x = tile_of_x(p, item, p->scratch + worker * p->scratch_floats, &stride);
  const float *d_logits = logits_of(p, item);
  int64_t bytes = x_is_dense(p) ? TILE * p->width * (int64_t)sizeof *x : 0; /* of the next tile, asked for meanwhile */
  for (int64_t column = first, rows; column < last; column += rows) {
    rows = last - column < 2 * SIDE ? SIDE : 2 * SIDE;
    flyi_product_cpu product = {.out = sums + column * p->stride,
                                .out_row = p->stride,
                                .a = d_logits + column,
                                .a_step = p->row,
                                .a_row = 1,
                                .b = x,
                                .b_step = stride,
                                .ahead = (const char *)x + bytes + bytes * (column - first) / (last - first),
                                .ahead_bytes = bytes * rows / (last - first),
                                .rows = (int32_t)rows,
                                .width = (int32_t)round_up(p->width, LANES),
                                .depth = tile_rows(p, item),
                                .add = 1};
    p->g->code->product(&product);
    product.out += product.width, product.width = LANES, product.b = ones, product.b_step = product.ahead_bytes = 0;
    p->g->code->product(&product);
  }
}

static void store_gate(const flyi_projection *p, int part, int64_t column, const float *sums) {
  const fly_gate *gate = &p->g->parts[part].gate;
  int64_t channels = gate->weight.shape[2], h = column / channels, c = column % channels;
  if (gate->d_weight.data)
    p->g->code->store(flyi_plane_row(&gate->d_weight, 0, h, c), 0, gate->d_weight.type, sums, 0, 1, (int32_t)p->width);
  if (gate->d_bias.data)
    p->g->code->store(flyi_plane_row(&gate->d_bias, 0, h, c), 0, gate->d_bias.type, sums + round_up(p->width, LANES), 0,
                      1, 1);
}

static void store_gates(const flyi_projection *p, int64_t first, int64_t last) {
  for (int i = 0; i < p->g->c.count; i++)
    for (int64_t column = p->first[i]; column < p->first[i + 1]; column++)
      if (column >= first && column < last) store_gate(p, i, column - p->first[i], p->sums + column * p->stride);
}

/* 16 gates: all tokens in order. */
static void d_weights_item(void *context, int64_t item, int worker) {
  const flyi_projection *p = context;
  int64_t first = item * GATES, last = flyi_min64(first + GATES, p->row);
  memset(p->sums + first * p->stride, 0, sizeof *p->sums * (last - first) * p->stride);
  for (int64_t tile = 0; tile < p->g->batch * p->tiles; tile++) add_tile(p, tile, first, last, p->sums, worker);
  store_gates(p, first, last);
}

/* ---- both, while a tile is near ---------------------------------------------------------------------------------- */

/* Few gates: d_x and sums of a range of tiles. */
static void range_item(void *context, int64_t range, int worker) {
  const flyi_projection *p = context;
  int64_t all = p->g->batch * p->tiles, size = p->row * p->stride;
  float *sums = p->sums + range * size;
  memset(sums, 0, sizeof *sums * size);
  for (int64_t item = all * range / p->ranges; item < all * (range + 1) / p->ranges; item++) {
    if (p->g->c.d_x.data) make_d_x(p, item, worker);
    if (weights_wanted(p)) add_tile(p, item, 0, p->row, sums, worker);
  }
}

/* One gate: its sums of all ranges, in order. */
static void add_ranges(void *context, int64_t column, int worker) {
  const flyi_projection *p = context;
  (void)worker;
  float *sums = p->sums + column * p->stride;
  for (int64_t range = 1; range < p->ranges; range++)
    for (int64_t i = 0; i < p->stride; i++) sums[i] += sums[range * p->row * p->stride + i];
  store_gates(p, column, column + 1);
}

void flyi_projection_backward(flyi_projection *p) {
  const flyi_threads *threads = &p->g->threads;
  if (!p->g->projects) return;
  bool d_x = p->g->c.d_x.data != NULL, weights = weights_wanted(p);
  if (p->ranges) {
    if (d_x || weights) flyi_parallel(threads, p->ranges, range_item, p);
    if (weights) flyi_parallel(threads, p->first[p->g->c.count], add_ranges, p);
  } else {
    if (d_x) flyi_parallel(threads, p->g->batch * p->tiles, d_x_item, p);
    if (weights) flyi_parallel(threads, (p->row + GATES - 1) / GATES, d_weights_item, p);
  }
}
