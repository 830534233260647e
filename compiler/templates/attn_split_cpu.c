/* attn_split_cpu.c: flash attention of few queries and many keys, as when a model writes one token after the other, on
 * one CPU core. Compiled once for each of cpu.c's targets.
 *
 * Input: up to 16 rows of Q, those of all query heads that share a key/value head; a range of its K and V, in any
 * rows; a row of the block map for each head; the compiled mask. Output: the partial attention of that range
 * (`split`), and the rows of the result from those of all ranges (`join`).
 *
 * Memory is what such a call waits for, so K and V are read once, whatever the number of heads, where they are and in
 * order, and later rows are asked for while the products of these run. A score is a sum along the channels in the lanes
 * of a vector: ROWS queries times KEYS keys make W vectors, which are summed across the lanes together. The rest is as
 * in attn_fwd_cpu.c, but that the maximum is not lazy. */
#if defined __AVX2__ && !defined __AVX512F__
#define COLS 3
#endif
#include "block.h"

enum {
  MOST = FLYI_SPLIT_ROWS,
  KEYS = W / ROWS,
  SLICE = 16 * PAIR, /* keys that go all the way together */
  FAR = 16384,       /* bytes between what is read and what L2 is asked for, of keys and of values; */
  NEAR = 4096,       /* L1; */
  PAGE = 4096        /* and beyond FAR, a line of each page: addresses of fresh pages take long to find */
};

/* Where 64 keys and their values are. */
typedef struct block_rows {
  const char *key[2 * BLOCK], *value[2 * BLOCK];
} block_rows;

typedef struct work {
  float score[MOST * BLOCK] __attribute__((aligned(64)));
  word p[MOST * BLOCK / PAIR];
  vf sum[MOST];                               /* of a row's probabilities, by lane */
  float max[MOST];                            /* -infinity: none yet */
  uint64_t seen[MOST];                        /* keys of the block */
  uint64_t bits[BLOCK];                       /* of a tile */
  int64_t run[MOST];                          /* of each head, where the block at hand is or before */
  block_rows rows;                            /* of the block and the next one */
  word memory[] __attribute__((aligned(64))); /* q [MOST][depth], v [64 / PAIR][width], o [MOST][width] */
} work;

typedef struct shape {
  int rows, depth, width; /* whole ROWS; words of dim padded to W; value_dim padded to W */
  word *q, *v;
  float *o;
} shape;

INLINE int depth_of(int dim) { return round_up(words_of(dim), W); }

INLINE shape shape_of(const flyi_split_cpu *c, work *w) {
  int depth = depth_of(c->dim), width = round_up(c->value_dim, W);
  word *v = w->memory + MOST * depth;
  return (shape){round_up(c->heads * c->queries, ROWS), depth, width, w->memory, v,
                 (float *)(v + BLOCK / PAIR * width)};
}

static int64_t scratch_size(int32_t dim, int32_t value_dim) {
  int width = round_up(value_dim, W);
  return sizeof(work) + sizeof(word) * (MOST * depth_of(dim) + BLOCK / PAIR * width + MOST * width);
}

/* ---- scores ------------------------------------------------------------------------------------------------------ */

/* Words [i, i + W) of a row. */
INLINE vw row_words(int type, const char *row, int i, int dim) {
#ifdef FLYI_DOTS
  (void)type;
  return load_row_words(row, PAIR * i, dim);
#else
  return load_row(type, row, i, dim);
#endif
}

INLINE void pack_queries(const flyi_split_cpu *c, const shape *s, int type) {
  for (int r = 0; r < s->rows; r++)
    for (int d = 0; d < s->depth; d += W)
      store_words(s->q + r * s->depth + d,
                  r < c->heads * c->queries ? row_words(type, c->q[r], d, c->dim) : (vw)(word)0);
}

/* Lane i is the sum of the lanes of x[i]. */
INLINE vf sums_of(vf x[W]) {
  UNROLL for (int n = W / 2; n >= 1; n /= 2) UNROLL for (int i = 0; i < n; i++) {
    vf low, high;
    interleave(x[i], x[i + n], &low, &high);
    x[i] = low + high;
  }
  return x[0];
}

/* The rows of the keys [key0, key0 + BLOCK), behind the last key that again. */
INLINE void find_rows(const flyi_split_cpu *c, int64_t key0, const char **key, const char **value, int type) {
  int64_t k_bytes = c->k_stride * element_size(type), v_bytes = c->v_stride * element_size(type);
  if (key0 >= c->len_kv) key0 = c->len_kv - 1;
  int count = c->len_kv - key0 < BLOCK ? (int)(c->len_kv - key0) : BLOCK;
  const char *k = (const char *)c->k, *v = (const char *)c->v;
  if (c->rows)
    for (int i = 0; i < count; i++)
      key[i] = k + c->rows[key0 + i] * k_bytes, value[i] = v + c->rows[key0 + i] * v_bytes;
  else
    for (int i = 0; i < count; i++) key[i] = k + (key0 + i) * k_bytes, value[i] = v + (key0 + i) * v_bytes;
  for (int i = count; i < BLOCK; i++) key[i] = key[count - 1], value[i] = value[count - 1];
}

/* Those of a block and of the next one; `found`: the block that was next before. */
INLINE void move_rows(const flyi_split_cpu *c, block_rows *rows, int64_t key0, int64_t found, int type) {
  if (found == key0) {
    memcpy(rows->key, rows->key + BLOCK, sizeof rows->key / 2);
    memcpy(rows->value, rows->value + BLOCK, sizeof rows->value / 2);
  } else {
    find_rows(c, key0, rows->key, rows->value, type);
  }
  find_rows(c, key0 + BLOCK, rows->key + BLOCK, rows->value + BLOCK, type);
}

/* Rows that are needed soon are asked for between the products, a part of a row or some rows a step: all at once,
 * requests would find their queue full and be dropped, and products and memory would wait for each other in turn. L1
 * waits for too few lines at a time to keep memory busy: L2 is asked well before it, and knows no page's address that
 * L1 has not asked for. */
typedef struct fetch {
  const char *const *row, *const *end; /* for L2 */
  int nearer, bytes, rows, part, at;   /* rows from those for L1; of a row; rows a step; bytes of each */
} fetch;

/* What follows `count` rows, `rows` of them in `steps` steps. */
INLINE fetch fetch_of(const char *const *row, int count, int bytes, int rows, int steps) {
  int far = min(FAR / bytes < KEYS ? KEYS : FAR / bytes, BLOCK), near = min(NEAR / bytes, far / 2);
  fetch f = {row + far, row + far + count, far - near, bytes, (rows + steps - 1) / steps, bytes, 0};
  if (rows < steps) f.part = round_up((bytes + steps / rows - 1) / (steps / rows), 64);
  return f;
}

/* Both at once, in as short a loop as there is: its steps run between the products. */
INLINE void fetch_part(const char *far, const char *near, int bytes) {
  int i = 0;
  do {
    __builtin_prefetch(far + i, 0, 2);
    __builtin_prefetch(near + i, 0, 3);
    i += 64;
  } while (i < bytes);
  if (((uintptr_t)far & (PAGE - 1)) < (unsigned)bytes) __builtin_prefetch(far + PAGE, 0, 3);
}

INLINE void fetch_step(fetch *f) {
  if (f->row >= f->end) return;
  int i = 0;
  do
    fetch_part(f->row[i] + f->at, f->row[i - f->nearer] + f->at, f->part);
  while (++i < f->rows && f->row + i < f->end);
  f->at += f->part;
  bool end = f->at >= f->bytes;
  f->row += end ? f->rows : 0, f->at = end ? 0 : f->at;
}

/* W words of ROWS queries and KEYS keys from word d on. */
INLINE void multiply_keys(const flyi_split_cpu *c, vf x[W], const word *q, int depth, const char *const *key,
                          fetch *next, int d, bool whole, int type) {
  vw y[ROWS];
  UNROLL for (int r = 0; r < ROWS; r++) y[r] = load_words(q + r * depth + d);
  if (next) fetch_step(next);
  UNROLL for (int k = 0; k < KEYS; k++) {
    vw z = row_words(type, key[k], d, whole ? PAIR * (d + W) : c->dim);
    UNROLL for (int r = 0; r < ROWS; r++) x[r * KEYS + k] = multiply_add(x[r * KEYS + k], y[r], z);
  }
}

/* ROWS queries and KEYS keys. */
INLINE void score_keys(const flyi_split_cpu *c, const word *q, int depth, const char *const *key, fetch *next,
                       float *score, int type) {
  vf x[W];
  float sums[W];
  int d = 0;
  UNROLL for (int i = 0; i < W; i++) x[i] = (vf)0.f;
  for (; PAIR * (d + W) <= c->dim; d += W) multiply_keys(c, x, q, depth, key, next, d, true, type);
  if (d < depth) multiply_keys(c, x, q, depth, key, next, d, false, type);
  store(sums, sums_of(x) * c->scale);
  UNROLL for (int r = 0; r < ROWS; r++) memcpy(score + r * BLOCK, sums + r * KEYS, sizeof(float) * KEYS);
}

/* All queries against the keys [first, last) of the block. */
INLINE void score_slice(const flyi_split_cpu *c, work *w, const shape *s, int first, int last, int type) {
  int bytes = c->dim * element_size(type);
  fetch f = fetch_of(w->rows.key + first, last - first, bytes, KEYS, s->depth / W);
  for (int at = first; at < last; at += KEYS) {
    const char *const *key = w->rows.key + at;
    score_keys(c, s->q, s->depth, key, &f, w->score + at, type);
    for (int r0 = ROWS; r0 < s->rows; r0 += ROWS)
      score_keys(c, s->q + r0 * s->depth, s->depth, key, NULL, w->score + r0 * BLOCK + at, type);
  }
}

/* ---- softmax ----------------------------------------------------------------------------------------------------- */

/* Row r's probabilities of the slice's keys. A NaN or an infinite maximum that the row sees gives NaN. */
INLINE void weigh_row(work *w, const shape *s, int r, int first) {
  float *score = w->score + r * BLOCK;
  vf most = (vf)(-__builtin_inff()), sum = (vf)0.f;
  UNROLL for (int at = first; at < first + SLICE; at += W) {
    vf x = where((unsigned)(w->seen[r] >> at) & ((1u << W) - 1), plain_nan(FLY_F32, load(score + at)));
    store(score + at, x);
    most = greater(x, most); /* never a NaN */
  }
  float max = greatest_of(most), old = w->max[r], shift = old > -__builtin_inff() ? old : 0;
  if (max > old) {
    if (old > -__builtin_inff()) {
      float factor = __builtin_exp2f(old - max);
      w->sum[r] *= factor;
      for (int n = 0; n < s->width; n += W) store(s->o + r * s->width + n, load(s->o + r * s->width + n) * factor);
    }
    w->max[r] = shift = max;
  }
  UNROLL for (int at = first; at < first + SLICE; at += W * PAIR) {
    vf p[PAIR];
    UNROLL for (int i = 0; i < PAIR; i++) {
      p[i] = exp2_of(load(score + at + W * i) - shift);
      sum += p[i];
    }
    store_probabilities(w->p + r * BLOCK / PAIR, at, p, PAIR);
  }
  w->sum[r] += sum;
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

/* Whether values that everything sees are read where they are: whole register blocks of rows, none converted twice. */
INLINE bool are_direct(const flyi_split_cpu *c, const shape *s, int type) {
  return (PAIR == 2 || type == FLY_F32 || s->rows == ROWS) && c->value_dim % CHANNELS == 0;
}

/* [64 / PAIR][width] */
INLINE void pack_values(const flyi_split_cpu *c, const work *w, const shape *s, int first, int count, fetch *next,
                        int type) {
  const block_rows *rows = &w->rows;
  for (int key = first; key < count; key += PAIR)
    for (int n = 0; n < s->width; n += W) {
      fetch_step(next);
#ifdef FLYI_DOTS
      (void)type;
      vh x = load_row_half(rows->value[key], n, c->value_dim);
      vh y = key + 1 < count ? load_row_half(rows->value[key + 1], n, c->value_dim) : (vh)0;
      store_words(s->v + key / 2 * s->width + n, beside(x, y));
#else
      store(s->v + key * s->width + n, load_row(type, rows->value[key], n, c->value_dim));
#endif
    }
}

/* A register block's channels of PAIR values, as words. */
INLINE void load_values(vw x[COLS], const char *const *row, int at, int type) {
#ifdef FLYI_DOTS
  (void)type;
  UNROLL for (int j = 0; j < COLS; j += 2) {
    vw a = load_row_words(row[0], at + W * j, at + CHANNELS);
    vw b = load_row_words(row[1], at + W * j, at + CHANNELS);
    interleave_halves(a, b, &x[j], &x[j + 1]);
  }
#else
  UNROLL for (int j = 0; j < COLS; j++) x[j] = load_row(type, row[0], at + W * j, at + CHANNELS);
#endif
}

/* CHANNELS of O += P V for ROWS queries and a slice of keys, with values where they are. Later rows are asked for as in
 * multiply_keys. */
INLINE void add_direct(float *o, int width, const word *p, const char *const *row, int at, fetch *next, int type) {
  vf sums[ROWS][COLS];
  UNROLL for (int r = 0; r < ROWS; r++) UNROLL for (int j = 0; j < COLS; j++) sums[r][j] = load(o + r * width + W * j);
  for (int i = 0; i < SLICE / PAIR; i++) {
    vw x[COLS];
    load_values(x, row + PAIR * i, at, type);
    if (next) fetch_step(next);
    UNROLL for (int r = 0; r < ROWS; r++) {
      vw y = (vw)p[r * (BLOCK / PAIR) + i];
      UNROLL for (int j = 0; j < COLS; j++) sums[r][j] = multiply_add(sums[r][j], y, x[j]);
    }
  }
  UNROLL for (int r = 0; r < ROWS; r++) UNROLL for (int j = 0; j < COLS; j++) store(o + r * width + W * j, sums[r][j]);
}

/* O += P V for a slice of the block's keys. */
INLINE void add_direct_values(const work *w, const shape *s, int first, fetch *next, int type) {
  const char *const *row = w->rows.value + first;
  const word *p = w->p + first / PAIR;
  int width = s->width;
  for (int at = 0; at < width; at += CHANNELS) add_direct(s->o + at, width, p, row, at, next, type);
  for (int r0 = ROWS; r0 < s->rows; r0 += ROWS)
    for (int at = 0; at < width; at += CHANNELS)
      add_direct(s->o + r0 * width + at, width, p + r0 * BLOCK / PAIR, row, at, NULL, type);
}

/* The same of packed values of the keys [first, last). */
INLINE void add_packed_values(const work *w, const shape *s, int first, int last) {
  const word *v = s->v + first / PAIR * s->width;
  for (int r0 = 0; r0 < s->rows; r0 += ROWS)
    add_product(s->o + r0 * s->width, s->width, s->width, w->p + (r0 * BLOCK + first) / PAIR, 1, BLOCK / PAIR, v,
                s->width, words_of(last - first));
}

/* Whether some packed values are an infinity or a NaN. */
RARE bool are_special(const shape *s, int first, int count) {
  vi special = (vi)0;
  for (int i = first / PAIR * s->width; i < words_of(count) * s->width; i += W) {
    vw x = load_words(s->v + i);
#ifdef FLYI_DOTS
    special |= special_words(x);
#else
    special |= (float_to_bits(x) & 0x7f800000) == 0x7f800000;
#endif
  }
  return lanes(special) != 0;
}

/* Only what is seen: a masked infinity times a probability of 0 would be a NaN. */
RARE void add_seen_values(const work *w, const shape *s, int first, int last) {
  uint64_t slice = (last == BLOCK ? ~0ull : (1ull << last) - 1) & ~0ull << first;
  for (int r = 0; r < s->rows; r++)
    for (uint64_t left = w->seen[r] & slice; left; left &= left - 1) {
      int key = __builtin_ctzll(left);
      vf p = (vf)probability(w->p + r * BLOCK / PAIR, key);
      float *o = s->o + r * s->width;
      for (int n = 0; n < s->width; n += W) store(o + n, load(o + n) + p * value_of(s->v + n, s->width, key));
    }
}

/* ---- blocks of 64 keys ------------------------------------------------------------------------------------------- */

typedef enum sight { NOTHING, SOME, EVERYTHING } sight;

/* What each row sees of the block; `there`: the keys that exist. */
INLINE sight look(const flyi_split_cpu *c, work *w, int64_t block, uint64_t there) {
  uint64_t some = 0, all = ~0ull;
  bool evaluated = false;
  for (int head = 0; head < c->heads; head++) {
    const fly_run *runs = c->runs[head];
    int64_t i = w->run[head];
    while (i < c->run_count[head] && ((int64_t)runs[i].first + runs[i].count) * c->run_blocks <= block) i++;
    w->run[head] = i;
    bool empty = i == c->run_count[head] || (int64_t)runs[i].first * c->run_blocks > block;
    bool full = !empty && runs[i].kind == FLY_FULL;
    if (!empty && !full && !(evaluated && c->one_mask)) {
      c->tile(c->args, c->b, c->h + head, c->q0, (int32_t)(block * BLOCK), w->bits);
      evaluated = true;
    }
    for (int i = 0; i < c->queries; i++) {
      uint64_t seen = empty ? 0 : full ? there : w->bits[i] & there;
      w->seen[head * c->queries + i] = seen;
      some |= seen, all &= seen;
    }
  }
  return !some ? NOTHING : all == ~0ull ? EVERYTHING : SOME;
}

/* A slice of a block goes all the way before the next one: memory serves two streams in turn, of keys and of values,
 * better than one after the other. It works while probabilities are made, too. */
INLINE void run_slice(const flyi_split_cpu *c, work *w, const shape *s, sight seen, int first, int last, int type) {
  score_slice(c, w, s, first, last, type);
  bool direct = seen == EVERYTHING && are_direct(c, s, type);
  fetch next = fetch_of(w->rows.value + first, last - first, c->value_dim * element_size(type),
                        PAIR * (direct ? CHANNELS : W), s->width);
  for (int r = 0; r < s->rows; r++) {
    fetch_step(&next);
    weigh_row(w, s, r, first);
  }
  if (direct) {
    add_direct_values(w, s, first, &next, type);
    return;
  }
  pack_values(c, w, s, first, last, &next, type);
  if (seen == SOME && are_special(s, first, last))
    add_seen_values(w, s, first, last);
  else
    add_packed_values(w, s, first, last);
}

INLINE void run_blocks(const flyi_split_cpu *c, work *w, const shape *s, int type) {
  int64_t found = -1;
  for (int64_t key0 = c->first; key0 < c->last; key0 += BLOCK) {
    int count = c->len_kv - key0 < BLOCK ? (int)(c->len_kv - key0) : BLOCK;
    sight seen = look(c, w, key0 / BLOCK, count == BLOCK ? ~0ull : (1ull << count) - 1);
    if (seen == NOTHING) continue;
    move_rows(c, &w->rows, key0, found, type);
    found = key0 + BLOCK;
    for (int first = 0; first < count; first += SLICE) run_slice(c, w, s, seen, first, min(first + SLICE, count), type);
  }
}

/* ---- entries ----------------------------------------------------------------------------------------------------- */

INLINE void run(const flyi_split_cpu *c, work *w, const shape *s, int type) {
  pack_queries(c, s, type);
  run_blocks(c, w, s, type);
}

static void split(const flyi_split_cpu *c) {
  work *w = c->scratch;
  shape s = shape_of(c, w);
  memset(w->sum, 0, sizeof w->sum);
  memset(w->seen, 0, sizeof w->seen);
  memset(w->run, 0, sizeof w->run);
  memset(s.o, 0, sizeof(float) * s.rows * s.width);
  for (int r = 0; r < MOST; r++) w->max[r] = -__builtin_inff();
#ifdef FLYI_DOTS
  run(c, w, &s, FLY_BF16);
#else
  switch (c->type) {
  case FLY_F32:
    run(c, w, &s, FLY_F32);
    break;
  case FLY_F16:
    run(c, w, &s, FLY_F16);
    break;
  default:
    run(c, w, &s, FLY_BF16);
    break;
  }
#endif
  int rows = c->heads * c->queries;
  memcpy(c->out, s.o, sizeof(float) * rows * s.width);
  for (int r = 0; r < rows; r++) c->state[2 * r] = w->max[r], c->state[2 * r + 1] = sum_of(w->sum[r]);
}

/* out = sum over ranges 2^(max_i - max) out_i / sum over ranges 2^(max_i - max) sum_i. A range of which the row sees
 * nothing has a sum of 0 and is left out; one with NaNs alone has no maximum but a sum. */
INLINE float weight_of(const float *state, float max) {
  if (state[1] == 0) return 0;
  return __builtin_exp2f((state[0] > -__builtin_inff() ? state[0] : 0) - max);
}

INLINE void join_row(const flyi_join_cpu *c, int type) {
  float most = -__builtin_inff();
  double total = 0;
  for (int64_t i = 0; i < c->count; i++) {
    const float *state = c->state + i * c->state_step;
    if (state[1] != 0 && state[0] > most) most = state[0];
  }
  float max = most > -__builtin_inff() ? most : 0;
  for (int64_t i = 0; i < c->count; i++) {
    const float *state = c->state + i * c->state_step;
    total += (double)weight_of(state, max) * state[1];
  }
  bool nothing = total == 0; /* not for a NaN */
  for (int n = 0; n < c->value_dim; n += W) {
    vf sum = (vf)0.f;
    for (int64_t i = 0; i < c->count; i++) {
      const float *state = c->state + i * c->state_step; /* a NaN counts however small its weight is */
      if (state[1] != 0) sum += weight_of(state, max) * load(c->out + i * c->out_step + n);
    }
    store_row(type, c->to, n, c->value_dim, nothing ? (vf)0.f : sum * (float)(1 / total));
  }
  if (c->lse)
    *c->lse = nothing ? -__builtin_inff()
                      : (float)(0.69314718055994531 * ((double)__builtin_log2f((float)total) + max));
}

static void join(const flyi_join_cpu *c) {
  switch (c->type) {
  case FLY_F32:
    join_row(c, FLY_F32);
    break;
  case FLY_F16:
    join_row(c, FLY_F16);
    break;
  default:
    join_row(c, FLY_BF16);
    break;
  }
}

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
const flyi_split_code JOIN(flyi_split_, FLYI_ISA) = {W, scratch_size, split, join};
