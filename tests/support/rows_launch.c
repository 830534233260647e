/* rows_launch.c: arguments for the kernels of merging, gated sums, projected gates and MoBA's choice. */
#include "cuda_call.h"
#include "rows_launch.h"

/* ---- memory of a launch ------------------------------------------------------------------------------------------ */

static uint64_t put(rows_device *d, const void *bytes, size_t size, bool written) {
  fly_error error;
  void **memory = &d->all[d->count].memory;
  ck_assert_int_lt(d->count, ROWS_PIECES);
  ck_fly_ok(fly_cuda_alloc(d->cuda, size, memory, &error), error);
  ck_fly_ok(fly_cuda_write(d->cuda, *memory, bytes, size, NULL, &error), error);
  d->all[d->count].bytes = size, d->all[d->count++].written = written;
  return (uintptr_t)*memory;
}

/* So many values: normal ones, times `size`; size 0: to be written. */
static uint64_t values(rows_device *d, fly_type type, int64_t count, double size) {
  uint8_t *x = malloc((size_t)count * 4);
  for (int64_t i = 0; i < count; i++) {
    double v = size != 0 ? size * test_normal(&d->random) : 77;
    float single = (float)v;
    uint16_t half = type == FLY_F16 ? test_to_f16(v) : test_to_bf16(v);
    memcpy(x + i * fly_type_size(type), type == FLY_F32 ? (void *)&single : (void *)&half, fly_type_size(type));
  }
  uint64_t at = put(d, x, (size_t)count * fly_type_size(type), size == 0);
  free(x);
  return at;
}

static flyi_cuda_tensor tensor(rows_device *d, fly_type type, int64_t batch, int64_t heads, int64_t rows, int64_t dim,
                               double size) {
  return (flyi_cuda_tensor){values(d, type, batch * heads * rows * dim, size), heads * rows * dim, rows * dim, dim};
}

void rows_open(rows_device *d, uint64_t seed) { *d = (rows_device){.cuda = cuda_open(), .random = {seed}}; }

void rows_close(rows_device *d) {
  for (int i = 0; i < d->count; i++) fly_cuda_free(d->cuda, &d->all[i].memory);
  fly_cuda_release(&d->cuda);
}

uint64_t rows_digest(rows_device *d) {
  uint64_t hash = 0xcbf29ce484222325;
  fly_error error;
  for (int i = 0; i < d->count; i++) {
    if (!d->all[i].written) continue;
    uint8_t *x = malloc(d->all[i].bytes);
    ck_fly_ok(fly_cuda_read(d->cuda, x, d->all[i].memory, d->all[i].bytes, NULL, &error), error);
    for (size_t k = 0; k < d->all[i].bytes; k++) hash = (hash ^ x[k]) * 0x100000001b3;
    free(x);
  }
  return hash;
}

static const fly_type types[] = {FLY_F32, FLY_F16, FLY_BF16};

/* ---- merging ----------------------------------------------------------------------------------------------------- */

/* More partials than a warp has lanes, more columns than one pass takes, warps without a row, partials of every type,
 * of which some have row maps with rows that are not there. */
enum { BATCH = 2, HEADS = 3, ROWS = 5, PARTIALS = 37, MAPPED = ROWS + 2, TOTAL = BATCH * HEADS * ROWS };

static const float lse_values[] = {-INFINITY, 0.5f, -2000, 3e38f, INFINITY, NAN, 1, -1, 2};

/* One that counts nothing anywhere: its rows are never read. */
static bool is_empty(int partial) { return partial % 8 == 6; }

/* Rows of LSE: in each row of the merged tensor another of the odd values, or none, or -infinity alone. */
static uint64_t lse_of(rows_device *d, int rows, int partial) {
  float x[BATCH * HEADS * MAPPED];
  const int planes = BATCH * HEADS;
  for (int i = 0; i < planes * rows; i++) {
    const int row = i % rows, plane = i / rows;
    x[i] = (float)test_normal(&d->random);
    if (plane == 1 || (partial + i) % 5 == 0 || is_empty(partial)) x[i] = -INFINITY;
    if (plane == 2 && row < 5 && partial == 3) x[i] = lse_values[row + 1];
    if (plane == 3) x[i] = partial == 7 ? 1.25f : -INFINITY;
  }
  return put(d, x, (size_t)(planes * rows) * sizeof *x, false);
}

/* Of planes * ROWS entries: rows of a partial tensor, every seventh -1. */
static uint64_t rows_of(rows_device *d, int planes) {
  int32_t x[BATCH * HEADS * ROWS];
  for (int i = 0; i < planes * ROWS; i++) x[i] = i % 7 == 3 ? -1 : (i % ROWS * 3 + 1) % MAPPED;
  return put(d, x, (size_t)(planes * ROWS) * sizeof *x, false);
}

/* `backward`: with gradients, but one in four without either. */
static flyi_cuda_partial partial_of(rows_device *d, int i, int dim, bool backward) {
  const fly_type type = types[i % 3];
  const int rows = i % 4 == 1 ? MAPPED : ROWS;
  flyi_cuda_partial p = {.out = tensor(d, type, BATCH, HEADS, rows, dim, is_empty(i) ? NAN : 1),
                         .lse = {lse_of(d, rows, i), HEADS * rows, rows, 1},
                         .type = (int32_t)type};
  if (rows == MAPPED) p.rows = rows_of(d, BATCH * HEADS), p.rows_stride_b = HEADS * ROWS, p.rows_stride_h = ROWS;
  if (backward && i % 4 != 2) p.d_out = tensor(d, type, BATCH, HEADS, rows, dim, 0);
  if (backward && i % 4 != 3) p.d_lse = tensor(d, FLY_F32, BATCH, HEADS, rows, 1, 0);
  return p;
}

static flyi_cuda_merge merge_of(rows_device *d, fly_type type, int count, int dim, bool backward, bool lse) {
  flyi_cuda_partial *partials = calloc((size_t)count, sizeof *partials);
  for (int i = 0; i < count; i++) partials[i] = partial_of(d, i, dim, backward);
  flyi_cuda_merge m = {.partials = put(d, partials, (size_t)count * sizeof *partials, false),
                       .out = tensor(d, type, BATCH, HEADS, ROWS, dim, backward),
                       .total = TOTAL,
                       .count = count,
                       .type = (int32_t)type,
                       .dim = dim,
                       .rows = ROWS,
                       .heads = HEADS};
  if (lse) m.lse = tensor(d, FLY_F32, BATCH, HEADS, ROWS, 1, backward);
  free(partials);
  return m;
}

/* The parts of a split call, packed entries of 5 and 2 rows that go to other places; or of selected blocks, whose rows
 * are looked up. */
static flyi_cuda_merge steps_of(rows_device *d, fly_type type, bool packed) {
  enum { COUNT = 3, DIM = 40 };
  const int planes = BATCH * HEADS, rows = packed ? ROWS : MAPPED;
  flyi_cuda_merge m = {.first = {.out = {values(d, packed ? FLY_F32 : type, COUNT * planes * rows * DIM, 1),
                                         HEADS * rows * DIM, rows * DIM, DIM},
                                 .lse = {values(d, FLY_F32, COUNT * planes * rows, 1), HEADS * rows, rows, 1},
                                 .type = packed ? FLY_F32 : (int32_t)type},
                       .out_step = planes * rows * DIM,
                       .lse_step = planes * rows,
                       .total = TOTAL,
                       .count = COUNT,
                       .type = (int32_t)type,
                       .dim = DIM,
                       .rows = ROWS,
                       .heads = HEADS};
  if (packed) {
    static const int32_t cu[BATCH + 1] = {0, 5, 7}, out_rows[] = {6, 5, 4, 3, 2, 1, 0};
    m.cu = put(d, cu, sizeof cu, false), m.out_rows = put(d, out_rows, sizeof out_rows, false);
    m.out = tensor(d, type, 1, HEADS, 7, DIM, 0);
    return m;
  }
  int32_t where[COUNT * BATCH * HEADS * ROWS];
  for (int i = 0; i < COUNT * TOTAL; i++) where[i] = i % 4 == 1 ? -1 : i % MAPPED;
  m.first.rows = put(d, where, sizeof where, false);
  m.first.rows_stride_b = HEADS * ROWS, m.first.rows_stride_h = ROWS, m.rows_step = TOTAL;
  m.out = tensor(d, type, BATCH, HEADS, ROWS, DIM, 0), m.lse = tensor(d, FLY_F32, BATCH, HEADS, ROWS, 1, 0);
  return m;
}

static fly_status merge_forward(rows_device *d, int way, fly_error *error) {
  const flyi_cuda_merge m = way == 0   ? merge_of(d, FLY_F32, PARTIALS, 300, false, true)
                            : way == 1 ? merge_of(d, FLY_F16, 3, 33, false, false)
                            : way == 2 ? steps_of(d, FLY_BF16, true)
                                       : steps_of(d, FLY_F16, false);
  return flyi_cuda_run_rows(d->cuda, NULL, FLYI_ROWS_MERGE, &m, m.total, error);
}

static fly_status merge_backward(rows_device *d, int way, fly_error *error) {
  const flyi_cuda_merge m = way == 0   ? merge_of(d, FLY_F32, PARTIALS, 40, true, true)
                            : way == 1 ? merge_of(d, FLY_F16, 5, 33, true, false)
                                       : merge_of(d, FLY_BF16, 5, 8, true, true);
  return flyi_cuda_run_rows(d->cuda, NULL, FLYI_ROWS_MERGE_BACKWARD, &m, m.total, error);
}

fly_status rows_merge(rows_device *d, int way, fly_error *error) {
  return way < 4 ? merge_forward(d, way, error) : merge_backward(d, way - 4, error);
}

/* ---- gated sums -------------------------------------------------------------------------------------------------- */

enum { GATE_DIM = 40 };

static flyi_cuda_gated gated_of(fly_type type, int count) {
  return (flyi_cuda_gated){
      .total = TOTAL, .count = count, .type = (int32_t)type, .dim = GATE_DIM, .rows = ROWS, .heads = HEADS};
}

static fly_status gate_forward(rows_device *d, int way, fly_error *error) {
  flyi_cuda_gated g = gated_of(types[way], 3);
  for (int i = 0; i < g.count; i++) {
    const fly_type logits = types[(way + i) % 3];
    const int channels = (way + i) % 2 ? 1 : GATE_DIM;
    g.parts[i] = (flyi_cuda_gate){.logits = tensor(d, logits, BATCH, HEADS, ROWS, channels, i ? 1 : 100),
                                  .out = tensor(d, types[way], BATCH, HEADS, ROWS, GATE_DIM, 1),
                                  .logits_type = (int32_t)logits,
                                  .channels = channels};
  }
  g.out = tensor(d, types[way], BATCH, HEADS, ROWS, GATE_DIM, 0);
  return flyi_cuda_run_rows(d->cuda, NULL, FLYI_ROWS_GATE, &g, g.total, error);
}

/* Ways: by type of logits, of channels or not, of both gradients, one or the other; the last two with gradients of
 * logits in the logits' place, which a kernel has written before. */
static fly_status gate_backward(rows_device *d, int way, fly_error *error) {
  const bool in_place = way >= 3 * 2 * 3;
  const fly_type type = types[way % 3], logits = in_place ? FLY_F32 : types[(way + way / 3) % 3];
  const int channels = (in_place ? way : way / 3) % 2 ? GATE_DIM : 1, wanted = way / 6;
  flyi_cuda_gated g = gated_of(type, 1), zeros = g;
  flyi_cuda_gate *p = &g.parts[0];
  g.out = tensor(d, type, BATCH, HEADS, ROWS, GATE_DIM, 1);
  *p = (flyi_cuda_gate){.logits = tensor(d, logits, BATCH, HEADS, ROWS, channels, in_place ? 0 : 1),
                        .out = tensor(d, type, BATCH, HEADS, ROWS, GATE_DIM, 1),
                        .logits_type = (int32_t)logits,
                        .channels = channels};
  if (wanted != 1) p->d_out = tensor(d, type, BATCH, HEADS, ROWS, GATE_DIM, 0);
  if (wanted != 2) p->d_logits = tensor(d, logits, BATCH, HEADS, ROWS, channels, 0);
  if (in_place) {
    zeros.type = (int32_t)logits, zeros.dim = channels, zeros.out = p->d_logits = p->logits;
    fly_status status = flyi_cuda_run_rows(d->cuda, NULL, FLYI_ROWS_ZERO, &zeros, zeros.total, error);
    if (status) return status;
  }
  return flyi_cuda_run_rows(d->cuda, NULL, FLYI_ROWS_GATE_BACKWARD, &g, g.total, error);
}

static fly_status zero(rows_device *d, int way, fly_error *error) {
  flyi_cuda_gated g = gated_of(types[way], 0);
  g.out = tensor(d, types[way], BATCH, HEADS, ROWS, GATE_DIM, 0);
  return flyi_cuda_run_rows(d->cuda, NULL, FLYI_ROWS_ZERO, &g, g.total, error);
}

fly_status rows_gate(rows_device *d, int way, fly_error *error) {
  return way < 3 ? gate_forward(d, way, error) : way < 6 ? zero(d, way - 3, error) : gate_backward(d, way - 6, error);
}

/* ---- projections of gates ---------------------------------------------------------------------------------------- */

static flyi_cuda_matrix matrix(uint64_t data, fly_type type, int64_t row, int64_t column) {
  return (flyi_cuda_matrix){.data = data,
                            .row = {.inner = row, .each = INT32_MAX},
                            .column = {.inner = column, .each = INT32_MAX},
                            .type = (int32_t)type,
                            .rows = INT32_MAX,
                            .rows_first = row == 1};
}

/* Tiles with an edge in each direction, a depth that ends within a step; a second factor of ones; one of which the rows
 * lie side by side. Slices: of a depth that ends within the last. */
static fly_status product(rows_device *d, int way, fly_error *error) {
  enum { M = 70, K = 67, DEPTH = 37 };
  const fly_type a = types[way % 3], b = types[(way + 1) % 3];
  const bool sliced = way % 2;
  flyi_cuda_products p = {.count = 2, .rows = M, .columns = K, .slice_depth = sliced ? 20 : INT32_MAX};
  const int64_t slices = sliced ? 2 : 1;
  p.factors[0] = (flyi_cuda_factors){matrix(values(d, a, M * DEPTH, 1), a, DEPTH, 1),
                                     matrix(values(d, b, K * DEPTH, 1), b, 1, K), DEPTH, 0};
  p.factors[1] = (flyi_cuda_factors){.b = matrix(values(d, FLY_F32, K * 2, 1), FLY_F32, 2, 1), .depth = 2};
  p.factors[1].a.row.each = p.factors[1].a.column.each = 1; /* rows 0: ones, never read */
  p.slice_step = M * K;
  p.out = matrix(values(d, a, slices * M * K, 0), a, K, 1);
  const int64_t tiles = 2 * 2 * slices;
  return flyi_cuda_run_blocks(d->cuda, NULL, FLYI_ROWS_PRODUCT, &p, tiles, FLYI_PRODUCT_SHARED, error);
}

static fly_status slices(rows_device *d, int way, fly_error *error) {
  enum { SLICES = 3, CHANNELS = 5, GATE_ROWS = HEADS * CHANNELS, WIDTH = 11 };
  const fly_type weight = types[way % 3], bias = types[(way + 1) % 3];
  flyi_cuda_slices s = {.from = values(d, FLY_F32, SLICES * GATE_ROWS * (WIDTH + 1), 1),
                        .weight_type = (int32_t)weight,
                        .bias_type = (int32_t)bias,
                        .slices = SLICES,
                        .rows = GATE_ROWS,
                        .width = WIDTH,
                        .channels = CHANNELS};
  if (way != 3) s.d_weight = tensor(d, weight, 1, HEADS, CHANNELS, WIDTH, 0);
  if (way != 4) s.d_bias = tensor(d, bias, 1, HEADS, CHANNELS, 1, 0);
  const int64_t blocks = (GATE_ROWS * (WIDTH + 1) + FLYI_ROWS_THREADS - 1) / FLYI_ROWS_THREADS;
  return flyi_cuda_run_blocks(d->cuda, NULL, FLYI_ROWS_SLICES, &s, blocks, 0, error);
}

fly_status rows_project(rows_device *d, int way, fly_error *error) {
  return way < 6 ? product(d, way, error) : slices(d, way - 6, error);
}

/* ---- MoBA's choice ----------------------------------------------------------------------------------------------- */

/* Blocks of 6 keys, more of them than a warp has lanes; fewer warps than queries. */
enum { BLOCK = 6, BLOCKS = 35, KEYS = BLOCK * BLOCKS + 1, QUERIES = 7, CHOICE_DIM = 37, TOP = 4, WARPS = 8 };

static flyi_cuda_choice choice_of(rows_device *d, fly_type type, int64_t offset) {
  return (flyi_cuda_choice){.q = tensor(d, type, BATCH, 2, QUERIES, CHOICE_DIM, 1),
                            .k = tensor(d, type, BATCH, 1, KEYS, CHOICE_DIM, 1),
                            .kv_planes = BATCH,
                            .total = BATCH * 2 * QUERIES,
                            .q_offset = offset,
                            .type = (int32_t)type,
                            .dim = CHOICE_DIM,
                            .rows = QUERIES,
                            .heads = 2,
                            .group = 2,
                            .block = BLOCK,
                            .top = TOP,
                            .warps = WARPS,
                            .blocks = BLOCKS};
}

static fly_status means(rows_device *d, int way, fly_error *error) {
  flyi_cuda_choice c = choice_of(d, types[way], 0);
  c.means = values(d, FLY_F32, BATCH * BLOCKS * CHOICE_DIM, 0);
  return flyi_cuda_run_rows(d->cuda, NULL, FLYI_ROWS_MEANS, &c, c.kv_planes * c.blocks, error);
}

/* Means of small integers: many scores are equal; a few are NaN or infinite. The last way: of queries that choose all
 * blocks, and have more places than these. */
static fly_status choose_blocks(rows_device *d, int way, fly_error *error) {
  float x[BATCH * BLOCKS * CHOICE_DIM];
  flyi_cuda_choice c = choice_of(d, types[way % 3], way < 3 ? KEYS - QUERIES : 3 * BLOCK - 3);
  for (int i = 0; i < BATCH * BLOCKS * CHOICE_DIM; i++) x[i] = (float)(i / CHOICE_DIM % 3);
  x[CHOICE_DIM] = NAN, x[7 * CHOICE_DIM] = -INFINITY, x[8 * CHOICE_DIM] = INFINITY;
  c.means = put(d, x, sizeof x, false);
  c.scores = values(d, FLY_F32, WARPS * BLOCKS, 1);
  int32_t lists[BATCH * 2 * QUERIES * TOP] = {0};
  c.lists = put(d, lists, sizeof lists, true);
  return flyi_cuda_run_rows(d->cuda, NULL, FLYI_ROWS_CHOOSE, &c, c.warps, error);
}

fly_status rows_choose(rows_device *d, int way, fly_error *error) {
  return way < 3 ? means(d, way, error) : choose_blocks(d, way - 3, error);
}
