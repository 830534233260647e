/* fwd_rows.h: the queries of a launch of the forward kernel: what is kept of them while they walk their row of the
 * block map, how they are made ready, and how they become rows of out and log-sum-exp.
 *
 * Input: a flyi_forward_cpu. Output: a work, with a shape that says how it is laid out; the call's rows. */
#ifndef FLYMASK_FWD_ROWS_H
#define FLYMASK_FWD_ROWS_H

#include "ahead.h"

enum {
  QUERIES = FLYI_ITEM_QUERIES,
  BATCH = 64 /* queries whose scores come before their values: a block of K, then one of V, in the first-level cache */
};

typedef struct work {
  vf sum[QUERIES];                                          /* of a row's probabilities, by lane */
  float neg_max[QUERIES];                                   /* minus the row's maximum; 0 until it is known */
  float scores[BATCH * BLOCK] __attribute__((aligned(64))); /* less the maximum; for a modifier, natural ones */
#ifdef FLYI_DOTS
  word p[BATCH * BLOCK / PAIR] __attribute__((aligned(64)));
#endif
  uint64_t bits[BLOCK];                  /* of the block of pairs in work */
  ahead ahead;
  uint8_t begun[QUERIES / ROWS];         /* a bit for each row whose maximum is known */
  bool valued[QUERIES / ROWS];           /* their o is there: it counts as 0 before */
  word q[] __attribute__((aligned(64))); /* [QUERIES / ROWS][depth][ROWS], scaled; then o [QUERIES][width] */
} work;

/* What stays the same for a call, in registers. */
typedef struct shape {
  int depth, width;                 /* words of dim padded to DEPTH, value_dim padded to W */
  int fetch_k, fetch_v, fetch_rows; /* words of the next block that each ROWS queries fetch; rows */
  float scale;                      /* what a sum of products is still to be multiplied by */
  bool scored;                      /* scores come from a modifier */
  float *o;
} shape;

INLINE shape shape_of(const flyi_forward_cpu *c, work *w) {
  int depth = round_up(words_of(c->dim), DEPTH), width = round_up(c->value_dim, W);
  int steps = (c->count + ROWS - 1) / ROWS;
  return (shape){depth,
                 width,
                 (BLOCK * depth + steps - 1) / steps,
                 (BLOCK / PAIR * width + steps - 1) / steps,
                 (BLOCK + steps - 1) / steps,
                 c->scale,
                 c->score != NULL,
                 (float *)(w->q + QUERIES * depth)};
}

static int64_t scratch_size(int32_t dim, int32_t value_dim) {
  return sizeof(work) + sizeof(float) * QUERIES * (round_up(dim, 16) + round_up(value_dim, 16));
}

/* ---- queries ----------------------------------------------------------------------------------------------------- */

#ifdef FLYI_DOTS
/* Elements of a query from word d on. */
INLINE vf query_words(const flyi_forward_cpu *c, const char *row, int d, int type) {
  (void)type;
  return bits_to_float(load_row_words(row, PAIR * d, c->dim));
}
#else
INLINE vf query_words(const flyi_forward_cpu *c, const char *row, int d, int type) {
  return plain_nan(type, load_row(type, row, d, c->dim)) * c->scale;
}
#endif

/* Queries interleaved by ROWS, so that the broadcasts of a register block read consecutive floats. */
INLINE void pack_queries(const flyi_forward_cpu *c, word *q, int depth, int type) {
  enum { AHEAD = 6 * ROWS }; /* rows that are asked for: through a row map they may be anywhere */
  static const float zeros[FLYI_MAX_DIM];
  for (int i = 0; i < min(AHEAD, c->count); i++)
    fetch_row(row_at(c->q, c->q_stride, c->q_rows, i, type), c->dim * element_size(type), false);
  for (int r0 = 0; r0 < c->count; r0 += ROWS) {
    const char *row[ROWS];
    for (int i = r0 + AHEAD; i < min(r0 + AHEAD + ROWS, c->count); i++)
      fetch_row(row_at(c->q, c->q_stride, c->q_rows, i, type), c->dim * element_size(type), false);
    for (int r = 0; r < ROWS; r++)
      row[r] = r0 + r < c->count ? row_at(c->q, c->q_stride, c->q_rows, r0 + r, type) : (const char *)zeros;
    for (int d = 0; d < depth; d += W) {
      vf x[ROWS];
      UNROLL for (int r = 0; r < ROWS; r++) x[r] = query_words(c, row[r], d, type);
      transpose(x, ROWS);
      word *out = q + r0 * depth + d * ROWS;
      UNROLL for (int r = 0; r < ROWS; r++) if (d + r * W / ROWS < depth) store_words(out + r * W, as_words(x[r]));
    }
  }
}

/* ---- beginning and end ------------------------------------------------------------------------------------------- */

INLINE void begin(const flyi_forward_cpu *c, work *w, const shape *s) {
  int rows = round_up(c->count, W);
  memset(w->sum, 0, rows * sizeof w->sum[0]);
  memset(w->neg_max, 0, rows * sizeof w->neg_max[0]);
  memset(w->begun, 0, sizeof w->begun);
  memset(w->valued, 0, sizeof w->valued);
  switch (PAIR == 1 ? c->type : FLY_BF16) {
  case FLY_F32:
    pack_queries(c, w->q, s->depth, FLY_F32);
    break;
  case FLY_F16:
    pack_queries(c, w->q, s->depth, FLY_F16);
    break;
  default:
    pack_queries(c, w->q, s->depth, FLY_BF16);
    break;
  }
}

/* Adds the sink to a row's sum, which is less the row's maximum. A larger sink becomes the maximum: what the row has is
 * then scaled, by the result. */
INLINE float add_sink(const flyi_forward_cpu *c, work *w, int r, float *total) {
  float sink = *c->sink * 1.44269504f, less = sink + w->neg_max[r];
  if (!(less > 0) && *total != 0) {
    *total += __builtin_exp2f(less);
    return 1;
  }
  float factor = *total == 0 ? 0 : __builtin_exp2f(-less); /* nothing, or less than the sink */
  w->neg_max[r] = -sink;
  *total *= factor;
  if (sink != -__builtin_inff()) *total += sink < __builtin_inff() ? 1 : __builtin_nanf("");
  return factor;
}

typedef double vd __attribute__((ext_vector_type(W)));

/* log(x 2^-neg_max), the LSE of a sum x. log2(x) of a normal x by the series of 2 / ln(2) * artanh((m - 1) / (m + 1))
 * for m in [sqrt(1/2), sqrt(2)), relative error 2e-9. NaN for a NaN. */
INLINE vf log_sum(vf x, vf neg_max) {
  vu bits = float_to_bits(x), exponent = (bits - 0x3f3504f3) & 0xff800000;
  vd m = __builtin_convertvector(bits_to_float(bits - exponent), vd), s = (m - 1.0) / (m + 1.0), t = s * s;
  vd p = ((t * (2. / 9) + 2. / 7) * t + 2. / 5) * t + 2. / 3;
  p = (p * t + 2.0) * s * 1.4426950408889634;
  p += __builtin_convertvector((vi)exponent >> 23, vd) + __builtin_convertvector(x - x, vd);
  return __builtin_convertvector((p - __builtin_convertvector(neg_max, vd)) * 0.69314718055994531, vf);
}

/* The sums of W rows, each across its lanes, in the order of sum_of. */
INLINE vf sums_of(const vf *rows) {
  vf x[W];
  UNROLL for (int i = 0; i < W; i++) x[i] = rows[i];
  transpose(x, W);
  UNROLL for (int half = W / 2; half; half /= 2) UNROLL for (int i = 0; i < half; i++) x[i] += x[i + half];
  return x[0];
}

enum { STREAM_TYPE = W == 16 && PAIR == 1 ? FLY_F32 : FLY_TYPE_NONE };

/* Elements [n, n + W) of a row of out. */
INLINE void store_out(const flyi_forward_cpu *c, char *out, int n, int type, vf x) {
  if (type == STREAM_TYPE && c->stream)
    __builtin_nontemporal_store(x, (vf *)(out + 4 * n));
  else
    store_row(type, out, n, c->value_dim, x);
}

/* W rows at a time, whose sums and logarithms are then those of lanes. */
INLINE void finish(const flyi_forward_cpu *c, work *w, const shape *s, int type) {
  for (int r0 = 0; r0 < c->count; r0 += W) {
    float total[W], factor[W], lse[W];
    vf sums = sums_of(w->sum + r0);
    unsigned nothing = lanes(sums == (vf)0.f); /* not for a NaN */
    store(total, sums), store(factor, (vf)1.f / sums);
    for (int i = 0; c->sink && i < W; i++) factor[i] = add_sink(c, w, r0 + i, total + i) / total[i];
    vf natural = log_sum(load(total), load(w->neg_max + r0));
    store(lse, choose(nothing, (vf)(c->sink ? *c->sink : -__builtin_inff()), natural));
    for (int i = 0; i < min(W, c->count - r0); i++) {
      int64_t row = c->out_rows ? c->out_rows[r0 + i] : r0 + i;
      char *out = (char *)c->out + row * c->out_stride * element_size(type);
      unsigned all = nothing >> i & 1 ? 0 : ~0u;
      for (int n = 0; n < c->value_dim; n += W)
        store_out(c, out, n, type, choose(all, load(s->o + (r0 + i) * s->width + n) * factor[i], (vf)0.f));
      if (c->lse) c->lse[row * c->lse_stride] = lse[i];
    }
  }
#ifdef __x86_64__
  if (c->stream) _mm_sfence(); /* for whoever reads them in another thread: as in attn_bwd_cpu.c */
#endif
}

#endif
