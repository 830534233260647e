/* attn_bwd_cpu.c: flash attention, backward, on one CPU core. Compiled once for each of cpu.c's targets.
 *
 * Input: Q, K, V, O, dO and LSE of one (batch, head), in f32, f16 or bf16; the compiled mask. Output: f32 sums of dQ,
 * dK, dV, and, by `store`, rows of gradients in the tensors' type. The caller (runtime/backward_tiles.c) walks the
 * block map and calls for each block of 64 x 64 pairs, P being computed again from LSE:
 *
 *     P = exp(scale Q K' - LSE)      delta = rowsum(dO * O) - dLSE      G = scale P * (dO V' - delta)
 *     dV += P' dO                    dK += G' Q                         dQ += G K
 *
 * Five products, each in register blocks of ROWS x COLS vectors of sums (block.h): the first two have rows of queries
 * and lanes of keys, and scale and log2(e) are packed into K and V, so that one exp2 and one multiply remain for a
 * pair. The sums of dP start at -delta; LSE is subtracted in the end, because a sum that starts at it rounds every
 * term at its size. The others have rows of keys (P' and G' are read down the columns of P and G) or queries, and
 * lanes of channels.
 *
 * With FLYI_DOTS, for bf16 alone, all five products multiply words of two bf16 (words.h), P and G rounded. An operand
 * that is read both along its channels and down its rows is there twice, in words along the one and along the other
 * (along(), down()); scale and log2(e) are applied to the sums.
 *
 * Full blocks run without any mask code. In a partial block every product is cut to the rows that its mask's bits ask
 * for: a window's edge costs its pairs, not its tiles. A masked pair has P = G = 0 exactly, whatever its rows hold;
 * where that 0 would meet an infinity or NaN of Q, K or dO, the sums run pair by pair instead. What a query sees is
 * never hidden: a NaN gives NaN.
 *
 * Loops are ordered for the nearest cache: channels outside of rows in the last three products, and the scores of all
 * queries before G where K and V do not fit it together. The exponentials of a group run between the multiply-adds of
 * dO V', but in words, where there are as many of them for half of those. Rows that are needed soon are asked for in
 * passing, some with each register block. What the time goes to: docs/cpu.md.
 *
 * With a score modifier s', the scores of a whole block come first, in natural units; the modifier puts s' in their
 * place and its derivative into G's. Then P = exp(s' - LSE) and G = scale P * (dO V' - delta) * ds'/ds. */
#if defined __AVX2__ && !defined __AVX512F__
#define COLS 3 /* 12 sums, 3 vectors and a broadcast: all of its 16 registers */
#endif
#include "bwd_block.h"
#include "bwd_pack.h"
#include "fetch.h"

/* ---- rows that are needed soon ----------------------------------------------------------------------------------- */

_Static_assert(5 * GROUPS == FLYI_FETCHES, "ROWS of P, G, dV, dK and dQ");

/* Asks for a few rows. All at once would fill the queue of what the core waits for, and hold up the block. Into the
 * nearest cache, although they wait in the next one: Zen 5 drops requests for that one alone, for seconds on end, once
 * it has found them useless (rows that were there already). */
INLINE void fetch_rows(flyi_fetch_cpu *f) {
  for (int i = 0; i < f->rows && f->count; i++) {
    const flyi_fetch_part *part = &f->part[f->first];
    fetch_first_lines(part, f->row);
    fetch_row(row_of(part, f->row), part->bytes, false);
    if (++f->row < part->count) continue;
    f->row = 0, f->count--;
    f->first = (f->first + 1) % FLYI_FETCH_PARTS;
  }
}

INLINE void fetch_some(const flyi_backward_cpu *b) {
  if (b->fetch->count) fetch_rows(b->fetch);
}

/* ---- P and G ----------------------------------------------------------------------------------------------------- */

/* K and V pass by for each ROWS queries. Where the nearest cache holds no more than one of them, P is made of all
 * queries before G. */
INLINE int rows_at_once(const flyi_backward_cpu *b) {
  return words_of(b->dim) + words_of(b->value_dim) > NEAR_WORDS ? BLOCK : ROWS;
}

/* The bits of W keys. */
INLINE unsigned seen_lanes(uint64_t bits, int key) { return (unsigned)(bits >> key) & ((1u << W) - 1); }

/* Where the scores of a row in work become P, or scale P beside it. */
INLINE float *weights_of(const flyi_backward_cpu *b, work *w, int row, int key) {
#ifdef FLYI_DOTS
  return w->weights + row % rows_at_once(b) * BLOCK + key;
#else
  (void)b;
  return w->p + row * BLOCK + key;
#endif
}

/* P of PAIR queries and a vector of keys. */
INLINE void store_p(const flyi_backward_cpu *b, work *w, int row, int key, const vf *x) {
  float *weights = weights_of(b, w, row, key);
#ifdef FLYI_DOTS
  UNROLL for (int i = 0; i < PAIR; i++) store(weights + i * BLOCK, x[i] * b->scale);
  store_words(w->p + row / 2 * BLOCK + key, round_beside(x[0], x[1]));
#else
  store(weights, x[0]);
#endif
}

INLINE void store_g(work *w, int r0, int key0, int c, vf x[ROWS][COLS]) {
#ifdef FLYI_DOTS
  UNROLL for (int r = 0; r < ROWS; r += 2) UNROLL for (int j = 0; j < c; j++)
      store_words(w->g + (r0 + r) / 2 * BLOCK + key0 + W * j, round_beside(x[r][j], x[r + 1][j]));
  UNROLL for (int r = 0; r < ROWS; r++) {
    word *row = w->g_rows + ((r0 + r) * BLOCK + key0) / 2;
    UNROLL for (int j = 0; j + 1 < c; j += 2) store_words(row + W / 2 * j, round_pair(x[r][j], x[r][j + 1]));
    if (c & 1) store_rounded(row + W / 2 * (c - 1), x[r][c - 1]);
  }
#else
  UNROLL for (int r = 0; r < ROWS; r++) UNROLL for (int j = 0; j < c; j++)
      store(w->g + (r0 + r) * BLOCK + key0 + W * j, x[r][j]);
#endif
}

/* Where a modifier's scores and derivatives are: P and G take their places, where both are f32. */
#ifdef FLYI_DOTS
INLINE float *scores_of(work *w) { return w->scores; }
INLINE float *slopes_of(work *w) { return w->slopes; }
#else
INLINE float *scores_of(work *w) { return w->p; }
INLINE float *slopes_of(work *w) { return w->g; }
#endif

/* What is made of a block of pairs at a time: P, then G; or scores, then P and G of them. Where Q or K may hold a NaN,
 * P of their plain ones. With a modifier its scores, then P and G through what it has left. */
typedef enum part { P, G, SCORES, P_AND_G, PLAIN_P, NATURAL_SCORES, MODIFIED_P, MODIFIED_G } part;

#if (defined __AVX512F__ || defined __aarch64__) && !defined FLYI_DOTS
enum { FIRST = SCORES, SECOND = P_AND_G }; /* exponentials between multiply-adds: there are registers for both */
#else
enum { FIRST = P, SECOND = G };
#endif

/* P of a query and a vector of keys. bits: who sees whom; null: everybody everything. */
INLINE vf weigh(const flyi_backward_cpu *b, int row, int key, const uint64_t *bits, part part, vf x) {
  if (part == MODIFIED_P)
    x *= 1.44269504f;
  else if (PAIR == 2)
    x *= b->scale * 1.44269504f;
  x += b->neg_lse[row];
  if (part == PLAIN_P || part == MODIFIED_P) x = plain_nan(FLY_F32, x);
  x = exp2_of(x);
  return bits ? choose(seen_lanes(bits[row], key), x, (vf)0.f) : x;
}

/* Of scores that are stored: PAIR queries and a vector of keys. */
INLINE void weigh_stored(const flyi_backward_cpu *b, work *w, const float *scores, int row, int key,
                         const uint64_t *bits, part part) {
  vf x[PAIR];
  UNROLL for (int i = 0; i < PAIR; i++) x[i] = weigh(b, row + i, key, bits, part, load(scores + i * BLOCK));
  store_p(b, w, row, key, x);
}

/* sums += ROWS rows of a times c vectors of keys of b[n][64]. Few sums would wait for each other: even and odd steps
 * then have sums of their own. */
INLINE void multiply_keys(vf sums[ROWS][COLS], vf odd[ROWS][COLS], int c, const word *a, int64_t a_row, const word *b,
                          int n) {
  if (2 * c > COLS) {
    multiply(sums, c, a, 1, a_row, b, BLOCK, n);
    return;
  }
  for (; n > 1; n -= 2, a += 2, b += 2 * BLOCK) {
    multiply(sums, c, a, 0, a_row, b, 0, 1);
    multiply(odd, c, a + 1, 0, a_row, b + BLOCK, 0, 1);
  }
  if (n) multiply(sums, c, a, 0, a_row, b, 0, 1);
}

INLINE void add_odd(vf sums[ROWS][COLS], vf odd[ROWS][COLS], int c) {
  UNROLL for (int r = 0; 2 * c <= COLS && r < ROWS; r++) UNROLL for (int j = 0; j < c; j++) sums[r][j] += odd[r][j];
}

/* P, or scores, of ROWS queries and c vectors of keys from key0. Q may lie in the caller's memory: its NaNs are made
 * plain here. */
INLINE void make_p(const flyi_backward_cpu *b, work *w, int r0, int key0, int c, const uint64_t *bits, part part) {
  vf x[ROWS][COLS], odd[ROWS][COLS];
  int64_t q_row = b->q_stride / PAIR;
  UNROLL for (int r = 0; r < ROWS; r++) UNROLL for (int j = 0; j < c; j++) x[r][j] = odd[r][j] = (vf)0.f;
  multiply_keys(x, odd, c, along(b->q) + r0 * q_row, q_row, (const word *)b->k_transposed + key0, words_of(b->dim));
  add_odd(x, odd, c);
  if (part == P || part == PLAIN_P) {
    UNROLL for (int r = 0; r < ROWS; r++) UNROLL for (int j = 0; j < c; j++)
        x[r][j] = weigh(b, r0 + r, key0 + W * j, bits ? bits - r0 : NULL, part, x[r][j]);
    UNROLL for (int r = 0; r < ROWS; r += PAIR) UNROLL for (int j = 0; j < c; j++) {
      vf pair[] = {x[r][j], x[r + PAIR - 1][j]};
      store_p(b, w, r0 + r, key0 + W * j, pair);
    }
    return;
  }
  float *out = part == SCORES ? weights_of(b, w, r0, key0) : scores_of(w) + r0 * BLOCK + key0;
  UNROLL for (int r = 0; r < ROWS; r++) UNROLL for (int j = 0; j < c; j++)
      store(out + r * BLOCK + W * j, PAIR == 1 || part == SCORES ? x[r][j] : x[r][j] * b->scale);
}

/* P where a modifier's scores are. */
INLINE void make_modified_p(const flyi_backward_cpu *b, work *w, int r0, int key0, int c, const uint64_t *bits) {
  const float *scores = scores_of(w) + r0 * BLOCK + key0;
  UNROLL for (int r = 0; r < ROWS; r += PAIR) UNROLL for (int j = 0; j < c; j++)
      weigh_stored(b, w, scores + r * BLOCK + W * j, r0 + r, key0 + W * j, bits ? bits - r0 : NULL, MODIFIED_P);
}

/* sums += dO V'; meanwhile scores become P: their exponentials alone would wait for each other. */
INLINE void multiply_and_weigh(const flyi_backward_cpu *b, work *w, vf sums[ROWS][COLS], vf odd[ROWS][COLS], int r0,
                               int key0, int c, const word *a, int64_t a_row, const word *v, int n,
                               const uint64_t *bits) {
  int steps = n / (ROWS / PAIR * c);
  for (int r = r0; r < r0 + ROWS; r += PAIR) UNROLL for (int j = 0; j < c; j++) {
      multiply_keys(sums, odd, c, a, a_row, v, steps);
      a += steps, v += BLOCK * steps;
      weigh_stored(b, w, weights_of(b, w, r, key0 + W * j), r, key0 + W * j, bits ? bits - r0 : NULL, P_AND_G);
    }
  multiply_keys(sums, odd, c, a, a_row, v, n - steps * (ROWS / PAIR * c));
}

/* G, where P is, or where scores are: then P too. */
INLINE void make_g(const flyi_backward_cpu *b, work *w, int r0, int key0, int c, const uint64_t *bits, part part) {
  vf x[ROWS][COLS], odd[ROWS][COLS];
  int64_t d_out_row = b->d_out_stride / PAIR;
  const word *d_out = along(b->d_out) + r0 * d_out_row, *v = (const word *)b->v_transposed + key0;
  const float *slopes = slopes_of(w) + r0 * BLOCK + key0, *weights = weights_of(b, w, r0, key0);
  UNROLL for (int r = 0; r < ROWS; r++) UNROLL for (int j = 0; j < c; j++) {
    x[r][j] = (vf)b->neg_delta[r0 + r];
    odd[r][j] = (vf)0.f;
  }
  if (part == P_AND_G)
    multiply_and_weigh(b, w, x, odd, r0, key0, c, d_out, d_out_row, v, words_of(b->value_dim), bits);
  else
    multiply_keys(x, odd, c, d_out, d_out_row, v, words_of(b->value_dim));
  add_odd(x, odd, c);
  UNROLL for (int r = 0; r < ROWS; r++) UNROLL for (int j = 0; j < c; j++) {
    x[r][j] *= load(weights + r * BLOCK + W * j);
    if (part == MODIFIED_G) x[r][j] *= load(slopes + r * BLOCK + W * j);
    if (bits) x[r][j] = choose(seen_lanes(bits[r], key0 + W * j), x[r][j], (vf)0.f);
  }
  store_g(w, r0, key0, c, x);
}

INLINE void make(const flyi_backward_cpu *b, work *w, int r0, int key0, int c, const uint64_t *bits, part part) {
  if (part == MODIFIED_P)
    make_modified_p(b, w, r0, key0, c, bits);
  else if (part == P || part == SCORES || part == PLAIN_P || part == NATURAL_SCORES)
    make_p(b, w, r0, key0, c, bits, part);
  else
    make_g(b, w, r0, key0, c, bits, part);
}

/* The keys of vectors [from, to): as many at a time as a register block takes. */
INLINE void make_rows(const flyi_backward_cpu *b, work *w, int r0, int from, int to, const uint64_t *bits, part part) {
  for (int at = from, c; at < to; at += c) {
    switch (c = columns_of(to - at)) {
#if COLS > 3
    case 4:
      make(b, w, r0, at * W, 4, bits, part);
      break;
#endif
#if COLS > 2
    case 3:
      make(b, w, r0, at * W, 3, bits, part);
      break;
#endif
    case 2:
      make(b, w, r0, at * W, 2, bits, part);
      break;
    default:
      make(b, w, r0, at * W, 1, bits, part);
      break;
    }
  }
}

/* ---- the sums ---------------------------------------------------------------------------------------------------- */

/* Columns of channels outside: those of the rows that are added stay in the nearest cache. */
#define EACH_COLUMNS(at, width) for (int at = 0; at < (width); at += W * columns_of(((width) - at) / W))

/* dV += P' dO and dK += G' Q: all keys that some query sees, the queries of their ranges, which are whole ROWS; with
 * `whole` all of both. */
INLINE void add_to_keys(const flyi_backward_cpu *b, const work *w, bool whole, float *out, int dim, const word *x,
                        const float *rows, int64_t stride) {
  int width = round_up(dim, W);
  EACH_COLUMNS(at, width) for (int i = 0; i < GROUPS; i++) {
    int first = whole ? 0 : w->queries[i].first / PAIR, last = (whole ? BLOCK : w->queries[i].last) / PAIR;
    if (at == 0) fetch_some(b);
    if (last > first)
      add_product(out + i * ROWS * width + at, width, W * columns_of((width - at) / W), x + first * BLOCK + i * ROWS,
                  BLOCK, 1, down(rows, stride) + first * stride + at, stride, last - first);
  }
}

INLINE void add_keys(const flyi_backward_cpu *b, const work *w, bool whole) {
  if (b->d_v) add_to_keys(b, w, whole, b->d_v, b->value_dim, w->p, b->d_out, b->d_out_stride);
  if (b->d_k) add_to_keys(b, w, whole, b->d_k, b->dim, w->g, b->q, b->q_stride);
}

/* Element (row, key) of P or G. */
INLINE float element_of(const word *x, int row, int key) {
#ifdef FLYI_DOTS
  uint32_t bits = x[row / 2 * BLOCK + key] >> row % 2 * 16 << 16;
  return __builtin_bit_cast(float, bits);
#else
  return x[row * BLOCK + key];
#endif
}

/* out[:] += x * rows[row][:] */
INLINE void add_row(float *out, float x, const float *rows, int64_t stride, int row, int width) {
  const word *from = down(rows, stride) + row / PAIR * stride;
  for (int n = 0; n < width; n += W) {
#ifdef FLYI_DOTS
    vw pair = load_words(from + n);
    vf y = row % 2 ? second_of(pair) : first_of(pair);
#else
    vf y = load(from + n);
#endif
    store(out + n, load(out + n) + x * y);
  }
}

/* The same, only for pairs that are visible. */
RARE void add_visible_keys(const flyi_backward_cpu *b, const work *w) {
  int k_width = round_up(b->dim, W), v_width = round_up(b->value_dim, W);
  for (int r = 0; r < BLOCK; r++)
    for (uint64_t left = w->bits[r]; left; left &= left - 1) {
      int key = __builtin_ctzll(left);
      if (b->d_v) add_row(b->d_v + key * v_width, element_of(w->p, r, key), b->d_out, b->d_out_stride, r, v_width);
      if (b->d_k) add_row(b->d_k + key * k_width, element_of(w->g, r, key), b->q, b->q_stride, r, k_width);
    }
}

RARE void add_visible_queries(const flyi_backward_cpu *b, const work *w) {
  int width = round_up(b->dim, W);
  for (int r = 0; r < BLOCK; r++)
    for (uint64_t left = w->bits[r]; left; left &= left - 1) {
      int key = __builtin_ctzll(left);
      add_row(b->d_q + r * b->d_q_stride, element_of(w->g, r, key), b->k, b->k_stride, key, width);
    }
}

/* ---- entries ----------------------------------------------------------------------------------------------------- */

INLINE bool is_whole(const flyi_backward_cpu *b) { return b->full && b->queries == BLOCK && b->keys == BLOCK; }

INLINE void make_group(const flyi_backward_cpu *b, work *w, int i, bool whole, part part) {
  fetch_some(b);
  make_rows(b, w, i * ROWS, whole ? 0 : w->keys[i].first / W, whole ? BLOCK / W : (w->keys[i].last + W - 1) / W,
            whole ? NULL : w->bits + i * ROWS, part);
}

/* P, or scores, and then G of a block. */
INLINE void make_both(const flyi_backward_cpu *b, work *w, bool whole, part p, part g) {
  int groups = rows_at_once(b) / ROWS;
  for (int first = 0; first < GROUPS; first += groups) {
    for (int i = first; i < first + groups; i++) make_group(b, w, i, whole, p);
    for (int i = first; i < first + groups; i++) make_group(b, w, i, whole, g);
  }
}

/* The scores of a block through the modifier, then all of it. */
SEPARATE void modified_scores(const flyi_backward_cpu *b, work *w) {
  for (int i = 0; i < GROUPS; i++)
    make_rows(b, w, i * ROWS, w->keys[i].first / W, (w->keys[i].last + W - 1) / W, NULL, NATURAL_SCORES);
  b->slope(b->score_args, b->b, b->h, b->q0, b->kv0, b->queries, is_whole(b) ? NULL : w->bits, scores_of(w),
           slopes_of(w));
  make_both(b, w, false, MODIFIED_P, MODIFIED_G);
}

RARE void special_block(const flyi_backward_cpu *b, work *w) {
  find_keys(b, w);
  if (b->slope)
    modified_scores(b, w);
  else
    make_both(b, w, false, PLAIN_P, G);
  add_visible_keys(b, w);
}

static void whole_block(const flyi_backward_cpu *b, work *w) {
  make_both(b, w, true, FIRST, SECOND);
  add_keys(b, w, true);
}

static void partial_block(const flyi_backward_cpu *b, work *w) {
  seen seen = find_keys(b, w);
  if (!seen.some) return; /* the map's tiles are larger: a partial one has full and empty blocks */
  if (!~seen.all && !b->slope) {
    whole_block(b, w);
    return;
  }
  if (b->slope)
    modified_scores(b, w);
  else
    make_both(b, w, false, FIRST, SECOND);
  find_queries(w);
  fill_holes(w);
  add_keys(b, w, false);
}

static void block(const flyi_backward_cpu *b) {
  if (b->special)
    special_block(b, b->scratch);
  else if (is_whole(b) && !b->slope)
    whole_block(b, b->scratch);
  else
    partial_block(b, b->scratch);
}

/* dQ += G K: all queries that see some key, the keys of their ranges. */
INLINE void add_to_queries(const flyi_backward_cpu *b, const work *w, bool whole) {
#ifdef FLYI_DOTS
  const word *g = w->g_rows;
#else
  const word *g = w->g;
#endif
  int width = round_up(b->dim, W);
  EACH_COLUMNS(at, width) for (int i = 0; i < GROUPS; i++) {
    int first = whole ? 0 : w->keys[i].first / PAIR; /* a masked neighbour has G = 0 */
    int last = words_of(whole ? BLOCK : w->keys[i].last);
    if (at == 0) fetch_some(b);
    if (last > first)
      add_product(b->d_q + i * ROWS * b->d_q_stride + at, b->d_q_stride, W * columns_of((width - at) / W),
                  g + i * ROWS * (BLOCK / PAIR) + first, 1, BLOCK / PAIR,
                  down(b->k, b->k_stride) + first * b->k_stride + at, b->k_stride, last - first);
  }
}

static void add_queries(const flyi_backward_cpu *b) {
  const work *w = b->scratch;
  if (b->special)
    add_visible_queries(b, w);
  else
    add_to_queries(b, w, is_whole(b) && !b->slope);
}

/* Elements [n, n + W) of a row of gradients. */
INLINE void store_sums(int type, char *row, int n, int dim, vf x) {
#ifdef FLYI_DOTS
  if (type == FLY_BF16 && n + W <= dim) {
    store_rounded((word *)(row + 2 * n), x);
    return;
  }
#endif
  store_row(type, row, n, dim, x);
}

enum { STREAM_TYPE = W < 16 ? FLY_TYPE_NONE : PAIR == 2 ? FLY_BF16 : FLY_F32 };

/* Whole lines of the cache, past it: they are not read from memory first, and nothing else has to leave. The fence is
 * for whoever reads them in another thread: a release orders only the stores that go through the cache. */
INLINE void stream_rows(const flyi_store_cpu *c, int type) {
  for (int i = 0; i < c->count; i++) {
    char *row = (char *)row_at(c->out, c->out_stride, c->rows, i, type);
    const float *in = c->in + i * c->in_stride;
#ifdef FLYI_DOTS
    for (int n = 0; n < c->dim; n += 2 * W)
      __builtin_nontemporal_store(round_pair(load(in + n), load(in + n + W)), (vw *)(row + 2 * n));
#else
    for (int n = 0; n < c->dim; n += W) __builtin_nontemporal_store(load(in + n), (vf *)(row + 4 * n));
#endif
  }
#ifdef __x86_64__
  _mm_sfence();
#endif
}

INLINE void store_rows(const flyi_store_cpu *c, int type) {
  if (c->stream && type == STREAM_TYPE) {
    stream_rows(c, type);
    return;
  }
  for (int i = 0; i < c->count; i++) {
    char *row = (char *)row_at(c->out, c->out_stride, c->rows, i, type);
    for (int n = 0; n < c->dim; n += W) {
      vf x = c->in ? load(c->in + i * c->in_stride + n) : (vf)0.f;
      store_sums(type, row, n, c->dim, c->add ? x + load_row(type, row, n, c->dim) : x);
    }
  }
}

static void store_gradients(const flyi_store_cpu *c) {
  switch (c->type) {
  case FLY_F32:
    store_rows(c, FLY_F32);
    break;
  case FLY_F16:
    store_rows(c, FLY_F16);
    break;
  default:
    store_rows(c, FLY_BF16);
    break;
  }
}

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
const flyi_backward_code JOIN(flyi_backward_, FLYI_ISA) = {
    W, STREAM_TYPE, sizeof(work), pack_queries, pack_keys, block, add_queries, store_gradients,
};
