/* block.h: what the attention kernels do with blocks of 64 rows: rows fetched through a row map, 64 rows transposed,
 * and the product of a register block. Every matrix product of the kernels is one of `multiply`, with other
 * operands. */
#ifndef FLYMASK_BLOCK_H
#define FLYMASK_BLOCK_H

#include "launch.h"
#include "words.h"

enum { BLOCK = FLYI_BLOCK };
#define CHANNELS (COLS * W) /* lanes of a register block */

INLINE int round_up(int x, int unit) { return (x + unit - 1) / unit * unit; }

INLINE const char *row_at(const void *data, int64_t stride, const int32_t *rows, int i, int type) {
  return (const char *)data + (rows ? rows[i] : i) * stride * element_size(type);
}

/* Asks for a row that is soon read or written. */
INLINE void fetch_row(const char *row, int bytes, bool to_write) {
  for (int i = 0; i < bytes; i += 64) {
    if (to_write)
      __builtin_prefetch(row + i, 1, 3);
    else
      __builtin_prefetch(row + i, 0, 3);
  }
}

/* exp2_of wants NaNs without a payload in the low bits: only f32 can have one. */
INLINE vf plain_nan(int type, vf x) { return type == FLY_F32 ? x == x ? x : (vf)__builtin_nanf("") : x; }

/* Whether something is not finite, for many vectors: the largest magnitudes so far, as bits. */
INLINE vu larger_magnitude(vu check, vf x) { return __builtin_elementwise_max(check, float_to_bits(x) & 0x7fffffff); }
INLINE bool is_special(vu check) { return lanes((vi)(check >= 0x7f800000)) != 0; }

/* out[dim][64]: up to 64 rows, transposed and times scale; zeros for rows from count on. `depth` rows of out are
 * written: dim, or a little more, with zeros. `plain`: NaNs are made plain. Returns the largest magnitudes. */
INLINE vu pack_transposed(float *out, const void *data, int64_t stride, const int32_t *rows, int count, int dim,
                          int depth, float scale, bool plain, int type) {
  static const float zeros[FLYI_MAX_DIM]; /* a row that is not there */
  vu check = (vu)0;
  for (int i0 = 0; i0 < BLOCK; i0 += W) {
    const char *row[W];
    for (int i = 0; i < W; i++)
      row[i] = i0 + i < count ? row_at(data, stride, rows, i0 + i, type) : (const char *)zeros;
    for (int d = 0; d < depth; d += W) {
      vf x[W];
      UNROLL for (int i = 0; i < W; i++) {
        x[i] = load_row(type, row[i], d, dim);
        if (plain) x[i] = plain_nan(type, x[i]);
        check = larger_magnitude(check, x[i]);
        x[i] *= scale;
      }
      transpose(x, W);
      float *at = out + d * BLOCK + i0;
      if (d + W <= depth) {
        UNROLL for (int i = 0; i < W; i++) store(at + i * BLOCK, x[i]);
      } else {
        for (int i = 0; i < depth - d; i++) store(at + i * BLOCK, x[i]);
      }
    }
  }
  return check;
}

#ifdef FLYI_DOTS
/* The same for bf16 that stays as it is: out[word][64], `depth` words of each row. Returns what is not finite. */
INLINE vi pack_transposed_words(word *out, const void *data, int64_t stride, const int32_t *rows, int count, int dim,
                                int depth) {
  static const float zeros[FLYI_MAX_DIM]; /* a row that is not there */
  vi special = (vi)0;
  for (int i0 = 0; i0 < BLOCK; i0 += W) {
    const char *row[W];
    for (int i = 0; i < W; i++)
      row[i] = i0 + i < count ? row_at(data, stride, rows, i0 + i, FLY_BF16) : (const char *)zeros;
    for (int d = 0; d < depth; d += W) {
      vf x[W];
      UNROLL for (int i = 0; i < W; i++) {
        vw y = load_row_words(row[i], PAIR * d, dim);
        special |= special_words(y);
        x[i] = bits_to_float(y);
      }
      transpose(x, W);
      word *at = out + d * BLOCK + i0;
      if (d + W <= depth) {
        UNROLL for (int i = 0; i < W; i++) store_words(at + i * BLOCK, float_to_bits(x[i]));
      } else {
        for (int i = 0; i < depth - d; i++) store_words(at + i * BLOCK, float_to_bits(x[i]));
      }
    }
  }
  return special;
}

/* out[pair of rows][width]: rows 2 i and 2 i + 1 side by side, zeros for rows from count to `all`. Likewise. */
INLINE vi pack_beside(word *out, const void *data, int64_t stride, const int32_t *rows, int count, int all, int dim) {
  int width = round_up(dim, W);
  vi special = (vi)0;
  for (int i = 0; i < count; i += 2) {
    const char *a = row_at(data, stride, rows, i, FLY_BF16);
    const char *b = i + 1 < count ? row_at(data, stride, rows, i + 1, FLY_BF16) : NULL;
    for (int n = 0; n < width; n += W) {
      vw x = beside(load_row_half(a, n, dim), b ? load_row_half(b, n, dim) : (vh)0);
      special |= special_words(x);
      store_words(out + i / 2 * width + n, x);
    }
  }
  int done = words_of(count);
  memset(out + done * width, 0, sizeof(word) * width * (words_of(all) - done));
  return special;
}
#endif

/* sums[r][j] += sum over i < n words of a[i * a_step + r * a_row] * b[i * b_step + W j], for r < ROWS, j < c */
INLINE void multiply(vf sums[ROWS][COLS], int c, const word *a, int64_t a_step, int64_t a_row, const word *b,
                     int64_t b_step, int n) {
  for (int i = 0; i < n; i++, a += a_step, b += b_step) {
    vw x[COLS];
    UNROLL for (int j = 0; j < c; j++) x[j] = load_words(b + W * j);
    UNROLL for (int r = 0; r < ROWS; r++) {
      vw y = (vw)a[r * a_row];
      UNROLL for (int j = 0; j < c; j++) sums[r][j] = multiply_add(sums[r][j], y, x[j]);
    }
  }
}

INLINE void add_columns(float *out, int64_t out_row, int c, const word *a, int64_t a_step, int64_t a_row, const word *b,
                        int64_t b_step, int n, bool begun) {
  vf sums[ROWS][COLS];
  unsigned all = begun ? ~0u : 0;
  UNROLL for (int r = 0; r < ROWS; r++) UNROLL for (int j = 0; j < c; j++)
    sums[r][j] = choose(all, load(out + r * out_row + W * j), (vf)0.f);
  multiply(sums, c, a, a_step, a_row, b, b_step, n);
  UNROLL for (int r = 0; r < ROWS; r++) UNROLL for (int j = 0; j < c; j++) store(out + r * out_row + W * j, sums[r][j]);
}

/* How many vectors to take at a time of those that are left: 5 are 3 + 2 and not 4 + 1, whose few sums would wait for
 * each other. */
INLINE int columns_of(int left) { return left >= 2 * COLS ? COLS : left > COLS ? (left + 1) / 2 : left; }

/* The same for rows of `width` channels in memory: out[r][:] += sum over i < n of a[i * a_step + r * a_row] *
 * b[i][:]. What out holds counts as 0 unless it is begun. */
INLINE void add_product_to(float *out, int64_t out_row, int width, const word *a, int64_t a_step, int64_t a_row,
                        const word *b, int64_t b_step, int n, bool begun) {
  for (int at = 0, c; at < width; at += c * W) {
    switch (c = columns_of((width - at) / W)) {
#if COLS > 3
    case 4:
      add_columns(out + at, out_row, 4, a, a_step, a_row, b + at, b_step, n, begun);
      break;
#endif
#if COLS > 2
    case 3:
      add_columns(out + at, out_row, 3, a, a_step, a_row, b + at, b_step, n, begun);
      break;
#endif
    case 2:
      add_columns(out + at, out_row, 2, a, a_step, a_row, b + at, b_step, n, begun);
      break;
    default:
      add_columns(out + at, out_row, 1, a, a_step, a_row, b + at, b_step, n, begun);
      break;
    }
  }
}

INLINE void add_product(float *out, int64_t out_row, int width, const word *a, int64_t a_step, int64_t a_row,
                        const word *b, int64_t b_step, int n) {
  add_product_to(out, out_row, width, a, a_step, a_row, b, b_step, n, true);
}

/* ---- P and V ----------------------------------------------------------------------------------------------------- */

/* c columns of a row, from `key` on. */
INLINE void store_probabilities(word *p, int key, const vf *x, int c) {
#ifdef FLYI_DOTS
  UNROLL for (int j = 0; j + 1 < c; j += 2) store_words(p + (key + W * j) / PAIR, round_pair(x[j], x[j + 1]));
  if (c & 1) store_rounded(p + (key + W * (c - 1)) / PAIR, x[c - 1]);
#else
  UNROLL for (int j = 0; j < c; j++) store(p + key + W * j, x[j]);
#endif
}

/* One of a row of probabilities, and W channels of a value; v_stride: from PAIR values to the next ones. */
INLINE float probability(const word *p, int key) {
#ifdef FLYI_DOTS
  uint32_t bits = p[key / 2] >> key % 2 * 16 << 16;
  return __builtin_bit_cast(float, bits);
#else
  return p[key];
#endif
}

INLINE vf value_of(const word *v, int64_t v_stride, int key) {
#ifdef FLYI_DOTS
  vw x = load_words(v + key / 2 * v_stride);
  return key % 2 ? second_of(x) : first_of(x);
#else
  return load(v + key * v_stride);
#endif
}

#endif
