/* project_ptx.c: logits of gates from the tokens' own vectors on a GPU, and their gradients: the products of
 * runtime/gated_project.c. Input: matrices as flyi_cuda_products describes them. Output: the sum of their products, in
 * slices of its depth where a sum is long; or the sum of such slices.
 *
 * A block has 64 x 64 elements, a thread rows 4 ty .. + 3 and columns 4 tx .. + 3 of each half. Factors are f32 in
 * shared memory, 16 of the depth at a time, a row of 64 for each. Every sum runs in one order. */
#include "rows_cuda.h"

enum {
  TILE = FLYI_PRODUCT_TILE,
  STEP = FLYI_PRODUCT_STEP,
  EACH = TILE * STEP / FLYI_ROWS_THREADS, /* elements of a factor that a thread copies */
  ROW_BYTES = FLYI_PRODUCT_PITCH * 4
};

typedef const flyi_cuda_products *products_t;

INL i64 place_on(const flyi_cuda_axis *axis, i32 i) {
  const u32 each = (u32)axis->each;
  return (u32)i / each * axis->outer + (u32)i % each * axis->inner;
}

INL float element(const flyi_cuda_matrix *m, i32 row, i32 column) {
  if (row >= m->rows) return 1;
  const i64 at = place_on(&m->row, row) + place_on(&m->column, column);
  return load((struct row){m->data + (u64)at * (m->type == TYPE_F32 ? 4 : 2), m->type}, 0);
}

/* Rows first .. first + 63 and columns k .. k + 15 into shared memory; what is outside is 0. */
INL void copy_factor(const flyi_cuda_matrix *m, u32 to, i32 first, i32 rows, i32 k, i32 end) {
  float x[EACH];
  const i32 thread = thread_index();
  UNROLL for (i32 e = 0; e < EACH; e++) {
    const i32 i = thread + e * FLYI_ROWS_THREADS;
    const i32 r = m->rows_first ? i % TILE : i / STEP, c = m->rows_first ? i / TILE : i % STEP;
    x[e] = r < rows - first && c < end - k ? element(m, first + r, k + c) : 0;
  }
  UNROLL for (i32 e = 0; e < EACH; e++) {
    const i32 i = thread + e * FLYI_ROWS_THREADS;
    const i32 r = m->rows_first ? i % TILE : i / STEP, c = m->rows_first ? i / TILE : i % STEP;
    store_shared(to + (u32)(c * ROW_BYTES + r * 4), __builtin_bit_cast(u32, x[e]));
  }
}

INL void load_four(float x[4], u32 at) {
  u32 bits[4];
  load_shared4(bits, at);
  UNROLL for (i32 i = 0; i < 4; i++) x[i] = __builtin_bit_cast(float, bits[i]);
}

INL void multiply(float sums[4][8], u32 a, u32 b) {
  ROLLED for (i32 c = 0; c < STEP; c++) {
    float x[4], y[8];
    load_four(x, a + (u32)(c * ROW_BYTES));
    load_four(y, b + (u32)(c * ROW_BYTES));
    load_four(y + 4, b + (u32)(c * ROW_BYTES) + TILE * 2);
    UNROLL for (i32 r = 0; r < 4; r++) UNROLL for (i32 n = 0; n < 8; n++)
        sums[r][n] = multiply_plus(x[r], y[n], sums[r][n]);
  }
}

KERNEL fly_gate_product(const flyi_cuda_products call) {
  products_t p = &call;
  const u32 block = block_index(), a = shared_base(), b = a + STEP * ROW_BYTES;
  const u32 across = ((u32)p->columns + TILE - 1) / TILE, down = ((u32)p->rows + TILE - 1) / TILE;
  const i32 column = (i32)(block % across) * TILE, row = (i32)(block / across % down) * TILE;
  const i32 slice = (i32)(block / across / down), tx = thread_index() & 7, ty = thread_index() >> 3;
  float sums[4][8];
  UNROLL for (i32 r = 0; r < 4; r++) UNROLL for (i32 n = 0; n < 8; n++) sums[r][n] = 0;
  ROLLED for (i32 t = 0; t < p->count; t++) {
    const flyi_cuda_factors *f = &p->factors[t];
    const i64 behind = (i64)(slice + 1) * p->slice_depth;
    const i32 end = behind < f->depth ? (i32)behind : f->depth;
    ROLLED for (i64 k = (i64)slice * p->slice_depth; k < end; k += STEP) {
      barrier();
      copy_factor(&f->a, a, row, p->rows, (i32)k, end);
      copy_factor(&f->b, b, column, p->columns, (i32)k, end);
      barrier();
      multiply(sums, a + (u32)ty * 16, b + (u32)tx * 16);
    }
  }
  UNROLL for (i32 r = 0; r < 4; r++) UNROLL for (i32 n = 0; n < 8; n++) {
    const i32 i = row + ty * 4 + r, j = column + tx * 4 + n % 4 + n / 4 * (TILE / 2);
    if (i >= p->rows || j >= p->columns) continue;
    const i64 at = place_on(&p->out.row, i) + place_on(&p->out.column, j) + slice * p->slice_step;
    store((struct row){p->out.data + (u64)at * (p->out.type == TYPE_F32 ? 4 : 2), p->out.type}, 0, sums[r][n]);
  }
}

/* Slices of the gradient of a gate's weights, the one of its bias behind each row: a thread an element. */
KERNEL fly_gate_slices(const flyi_cuda_slices call) {
  const flyi_cuda_slices *s = &call;
  const i64 total = (i64)s->rows * (s->width + 1);
  const i64 i = (i64)block_index() * FLYI_ROWS_THREADS + thread_index();
  if (i >= total) return;
  const i32 row = (i32)(i / (s->width + 1)), column = (i32)(i % (s->width + 1));
  const flyi_cuda_tensor *to = column < s->width ? &s->d_weight : &s->d_bias;
  const i32 type = column < s->width ? s->weight_type : s->bias_type;
  float sum = 0;
  if (!to->data) return;
  ROLLED for (i32 k = 0; k < s->slices; k++) sum += ((const GLOBAL float *)s->from)[k * total + i];
  store(row_of(to, type, 0, row / s->channels, row % s->channels), column < s->width ? column : 0, sum);
}
