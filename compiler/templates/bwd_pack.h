/* bwd_pack.h: what the backward pass's products read, made ready: 64 queries (Q and dO as f32 or as words of bf16,
 * -LSE, -delta) or 64 keys (K and V transposed, K also by rows). Input: rows of tensors of any type, through row maps.
 * The entries say whether something is not finite. */
#ifndef FLYMASK_BWD_PACK_H
#define FLYMASK_BWD_PACK_H

#include "block.h"

#ifndef FLYI_DOTS
/* out[64][width], unless the rows stay where they are. Returns the largest magnitudes. */
INLINE vu pack_rows(float *out, const void *data, int64_t stride, const int32_t *rows, int count, int dim, int type) {
  int width = round_up(dim, W);
  vu check = (vu)0;
  for (int i = 0; i < count; i++) {
    const char *row = row_at(data, stride, rows, i, type);
    for (int n = 0; n < width; n += W) {
      vf x = load_row(type, row, n, dim);
      check = larger_magnitude(check, x);
      if (out) store(out + i * width + n, x);
    }
  }
  if (out) memset(out + count * width, 0, sizeof(float) * width * (BLOCK - count));
  return check;
}

/* dO as pack_rows, and each row's -delta, with the scale that V has too. */
INLINE vu pack_d_out(const flyi_queries_cpu *c, int type) {
  int width = round_up(c->value_dim, W);
  vu check = (vu)0;
  for (int i = 0; i < c->count; i++) {
    const char *out = row_at(c->out, c->out_stride, c->out_rows, i, type);
    const char *d_out = row_at(c->d_out, c->d_out_stride, c->out_rows, i, type);
    vf sum = (vf)0.f;
    for (int n = 0; n < width; n += W) {
      vf x = load_row(type, d_out, n, c->value_dim);
      check = larger_magnitude(check, x);
      sum += x * load_row(type, out, n, c->value_dim);
      if (c->packed_d_out) store(c->packed_d_out + i * width + n, x);
    }
    int64_t row = c->out_rows ? c->out_rows[i] : i;
    c->neg_delta[i] = ((c->d_lse ? c->d_lse[row * c->d_lse_stride] : 0) - sum_of(sum)) * c->scale;
  }
  if (c->packed_d_out) memset(c->packed_d_out + c->count * width, 0, sizeof(float) * width * (BLOCK - c->count));
  return check;
}
#endif

/* Where rows' scores start: -LSE in base 2. A row that sees nothing has P = 0; an infinity above is as wrong as a
 * NaN. */
INLINE vf start_of(vf lse) {
  typedef double vd __attribute__((ext_vector_type(W)));
  vf start = __builtin_convertvector(__builtin_convertvector(lse, vd) * -1.4426950408889634, vf);
  start = lse < (vf)__builtin_inff() ? start : (vf)__builtin_nanf("");
  return lse == (vf)-__builtin_inff() ? lse : start;
}

INLINE void start_rows(const flyi_queries_cpu *c) {
  for (int i = 0; i < c->count; i++) c->neg_lse[i] = c->lse[(c->out_rows ? c->out_rows[i] : i) * c->lse_stride];
  for (int i = c->count; i < BLOCK; i++) c->neg_lse[i] = -__builtin_inff(), c->neg_delta[i] = 0;
  for (int i = 0; i < BLOCK; i += W) store(c->neg_lse + i, start_of(load(c->neg_lse + i)));
}

/* Where 64 rows of bf16 are, or are packed: first in words along the channels, [64][stride / 2], then in words of two
 * rows, [32][stride]. In f32 they are the same. */
INLINE const word *along(const float *rows) { return (const word *)rows; }
INLINE const word *down(const float *rows, int64_t stride) {
  return (const word *)rows + (PAIR - 1) * (BLOCK / 2) * stride;
}

#ifdef FLYI_DOTS
/* Two rows of bf16, both ways: their words as they are, and words of both from `beside` on. Returns what is not
 * finite. */
INLINE vi pack_two(word *first, word *second, word *beside, const char *a, const char *b, int dim) {
  int width = round_up(dim, W);
  vi special = (vi)0;
  for (int n = 0; n < width; n += 2 * W) {
    vw x = load_row_words(a, n, dim), y = b ? load_row_words(b, n, dim) : (vw)0, low, high;
    special |= special_words(x) | special_words(y);
    interleave_halves(x, y, &low, &high);
    store_words(beside + n, low);
    if (n + W == width) {
      store_half_words(first + n / 2, x), store_half_words(second + n / 2, y);
      break;
    }
    store_words(first + n / 2, x), store_words(second + n / 2, y);
    store_words(beside + n + W, high);
  }
  return special;
}

/* 64 rows, likewise. */
INLINE vi pack_both(float *out, const void *data, int64_t stride, const int32_t *rows, int count, int dim) {
  int width = round_up(dim, W), done = words_of(count);
  word *along = (word *)out, *beside = (word *)down(out, width);
  vi special = (vi)0;
  for (int i = 0; i < count; i += 2) {
    const char *a = row_at(data, stride, rows, i, FLY_BF16);
    const char *b = i + 1 < count ? row_at(data, stride, rows, i + 1, FLY_BF16) : NULL;
    word *first = along + i * width / 2;
    special |= pack_two(first, first + width / 2, beside + i / 2 * width, a, b, dim);
  }
  memset(along + done * width, 0, sizeof(word) * width * (BLOCK / 2 - done));
  memset(beside + done * width, 0, sizeof(word) * width * (BLOCK / 2 - done));
  return special;
}

/* Each row's -delta. */
INLINE void pack_deltas(const flyi_queries_cpu *c) {
  for (int i = 0; i < c->count; i++) {
    const char *out = row_at(c->out, c->out_stride, c->out_rows, i, FLY_BF16);
    const char *d_out = row_at(c->d_out, c->d_out_stride, c->out_rows, i, FLY_BF16);
    vf sum = (vf)0.f;
    for (int n = 0; n < c->value_dim; n += 2 * W)
      sum = multiply_add(sum, load_row_words(d_out, n, c->value_dim), load_row_words(out, n, c->value_dim));
    int64_t row = c->out_rows ? c->out_rows[i] : i;
    c->neg_delta[i] = (c->d_lse ? c->d_lse[row * c->d_lse_stride] : 0) - sum_of(sum);
  }
}

static int pack_queries(const flyi_queries_cpu *c) {
  pack_deltas(c);
  start_rows(c);
  if (!c->packed_q) return 0; /* only the rows' starts are wanted */
  vi special = pack_both(c->packed_q, c->q, c->q_stride, c->q_rows, c->count, c->dim) |
               pack_both(c->packed_d_out, c->d_out, c->d_out_stride, c->out_rows, c->count, c->value_dim);
  return lanes(special) != 0;
}

static int pack_keys(const flyi_keys_cpu *c) {
  pack_transposed_words((word *)c->k_transposed, c->k, c->k_stride, c->rows, c->count, c->dim, words_of(c->dim));
  pack_transposed_words((word *)c->v_transposed, c->v, c->v_stride, c->rows, c->count, c->value_dim,
                        words_of(c->value_dim));
  int width = round_up(c->dim, W);
  return lanes(pack_beside((word *)down(c->packed_k, width), c->k, c->k_stride, c->rows, c->count, BLOCK, c->dim)) != 0;
}
#else
INLINE int pack_queries_of(const flyi_queries_cpu *c, int type) {
  vu q = pack_rows(c->packed_q, c->q, c->q_stride, c->q_rows, c->count, c->dim, type), d_out = pack_d_out(c, type);
  start_rows(c);
  return is_special(q) || is_special(d_out);
}

static int pack_queries(const flyi_queries_cpu *c) {
  switch (c->type) {
  case FLY_F32:
    return pack_queries_of(c, FLY_F32);
  case FLY_F16:
    return pack_queries_of(c, FLY_F16);
  default:
    return pack_queries_of(c, FLY_BF16);
  }
}

INLINE int pack_keys_of(const flyi_keys_cpu *c, int type) {
  vu check = pack_transposed(c->k_transposed, c->k, c->k_stride, c->rows, c->count, c->dim, c->dim,
                             c->natural ? c->scale : c->scale * 1.44269504f, false, type);
  pack_transposed(c->v_transposed, c->v, c->v_stride, c->rows, c->count, c->value_dim, c->value_dim, c->scale, false,
                  type);
  if (c->packed_k) pack_rows(c->packed_k, c->k, c->k_stride, c->rows, c->count, c->dim, type);
  return is_special(check);
}

static int pack_keys(const flyi_keys_cpu *c) {
  switch (c->type) {
  case FLY_F32:
    return pack_keys_of(c, FLY_F32);
  case FLY_F16:
    return pack_keys_of(c, FLY_F16);
  default:
    return pack_keys_of(c, FLY_BF16);
  }
}
#endif

#endif
