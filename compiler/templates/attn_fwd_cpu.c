/* attn_fwd_cpu.c: flash attention, forward, on one CPU core. Compiled once for each of cpu.c's targets.
 *
 * Input: Q, K, V of one (batch, head) in f32, f16 or bf16; a row of the block map; the compiled mask. Output: up to
 * 128 rows of out and log-sum-exp. Scores, probabilities and sums are f32. Two entries (flyi_forward_code): pack, and
 * forward, which takes blocks of BATCH queries x 64 keys through two products, ROWS queries at a time, each in a
 * register block of ROWS x COLS vectors:
 *
 *     scores: ROWS queries x 64 keys,     A = Q (broadcast), B = K packed [dim][key]; softmax leaves P[row][key] in L1
 *     values: ROWS queries x channels,    A = P (broadcast), B = V [key][channel];    added to O in L1
 *
 * The exponentials of ROWS queries run between the multiply-adds of the next ones' scores: alone they would wait for
 * each other. Keys and values are packed when they are first needed (pack.h), and used from the cache.
 *
 * Full blocks run without any mask code. In a partial block, each ROWS queries compute only the vectors of keys that
 * one of them sees, and the second product's depth is cut to that range: a window's edge costs its pairs, not its
 * tiles.
 *
 * With FLYI_DOTS, for bf16 alone, both products multiply words of two bf16 (words.h): Q, K along the channels, V along
 * the keys, and P rounded to bf16, while the sum of a row's probabilities takes them as they are. The scale is then
 * applied to the sums, because Q times the scale would have to be rounded.
 *
 * Online softmax in base 2 with a lazy maximum (the scale times log2(e) is folded into Q): scores are taken less the
 * row's maximum, which is raised only when one exceeds it by 2^8. A masked score is -infinity, so its probability is
 * exactly 0; where that would meet an infinity or NaN of V, the values are added pair by pair instead. A NaN or an
 * infinite maximum that a query sees gives NaN; scores of -infinity count as masked.
 *
 * With a score modifier, the scores of a few rows of a block come first, in natural units; the modifier changes them in
 * place, and the softmax takes them from there. */
#if defined __AVX2__ && !defined __AVX512F__
#define COLS 3 /* 12 sums, 3 vectors of keys and a query: all of its 16 registers */
#endif
#include "fwd_rows.h"

/* ---- the two products ------------------------------------------------------------------------------------------ */

/* Where a batch keeps the scores and P of the queries from r0 on. P takes the scores' place where it is as wide. */
INLINE float *scores_of(work *w, int r0) { return w->scores + r0 % BATCH * BLOCK; }
INLINE word *p_of(work *w, int r0) {
#ifdef FLYI_DOTS
  return w->p + r0 % BATCH * BLOCK / PAIR;
#else
  return scores_of(w, r0);
#endif
}

/* The first scores of ROWS queries. */
INLINE void set_max(work *w, int r0, int from, int to) {
  float *x = scores_of(w, r0), m[ROWS];
  vf most[ROWS];
  UNROLL for (int r = 0; r < ROWS; r++) most[r] = (vf)-__builtin_inff(); /* never a NaN */
  for (int i = from; i < to; i += W)
    UNROLL for (int r = 0; r < ROWS; r++) most[r] = greater(load(x + r * BLOCK + i), most[r]);
  greatest_of_rows(most, m);
  UNROLL for (int r = 0; r < ROWS; r++) {
    bool seen = m[r] > -__builtin_inff();
    w->begun[r0 / ROWS] |= seen << r;
    m[r] = seen ? m[r] : 0;
    w->neg_max[r0 + r] = -m[r];
  }
  for (int i = from; i < to; i += W)
    UNROLL for (int r = 0; r < ROWS; r++) store(x + r * BLOCK + i, load(x + r * BLOCK + i) - m[r]);
}

/* Rare: a row's first scores, or scores that outgrew its maximum, of the keys [from, to) of the block. Each row decides
 * for itself, so that its numerics do not depend on its neighbours. */
RARE void raise_max(work *w, const shape *s, int r0, int from, int to) {
  if (!w->begun[r0 / ROWS]) {
    set_max(w, r0, from, to);
    return;
  }
  for (int r = 0; r < ROWS; r++) {
    int begun = w->begun[r0 / ROWS] >> r & 1, row = r0 + r;
    float limit = begun ? 8.f : -__builtin_inff(), *x = scores_of(w, r0) + r * BLOCK;
    vf most = (vf)limit; /* never a NaN */
    for (int i = from; i < to; i += W) most = greater(load(x + i), most);
    float m = greatest_of(most);
    if (m == limit) continue; /* nothing seen yet, or nothing above the limit */
    w->begun[r0 / ROWS] |= 1 << r;
    w->neg_max[row] -= m;
    for (int i = from; i < to; i += W) store(x + i, load(x + i) - m);
    if (!begun) continue;
    float factor = __builtin_exp2f(-m);
    w->sum[row] *= factor;
    for (int n = 0; n < s->width; n += W) store(s->o + row * s->width + n, load(s->o + row * s->width + n) * factor);
  }
}

/* P = 2^(score - max), PAIR vectors of keys of one query, from key; returns their sum. */
INLINE vf weigh(const float *scores, word *p, int key) {
  vf x[PAIR];
  UNROLL for (int i = 0; i < PAIR; i++) x[i] = exp2_of(load(scores + key + W * i));
  store_probabilities(p, key, x, PAIR);
  return PAIR == 1 ? x[0] : x[0] + x[PAIR - 1];
}

/* The keys [first, last) of a block that some of ROWS queries see; last 0: none. */
typedef struct seen {
  int first, last;
} seen;

/* The vectors of keys [from, to) of a row. */
INLINE vf weigh_keys(const float *scores, word *p, seen keys) {
  vf sum = (vf)0.f;
  for (int key = keys.first / (W * PAIR) * (W * PAIR); key < keys.last; key += W * PAIR) sum += weigh(scores, p, key);
  return sum;
}

/* ROWS queries whose scores wait to become probabilities; row < 0: none. */
typedef struct waiting {
  int row;
  bool whole; /* all keys of the block, or those of `keys` */
  seen keys;
} waiting;

/* P of ROWS queries. */
INLINE void weigh_rows(work *w, int r0, seen keys) {
  for (int r = 0; r < ROWS; r++)
    w->sum[r0 + r] += weigh_keys(scores_of(w, r0) + r * BLOCK, p_of(w, r0) + r * BLOCK / PAIR, keys);
}

/* sums += the products of ROWS queries and c vectors of keys. Few sums would wait for each other: even and odd steps
 * then have sums of their own. */
INLINE void multiply_keys(vf sums[ROWS][COLS], vf odd[ROWS][COLS], int c, const word *q, const word *k, int n) {
  if (2 * c > COLS) {
    multiply(sums, c, q, ROWS, 1, k, BLOCK, n);
    return;
  }
  for (; n > 1; n -= 2, q += 2 * ROWS, k += 2 * BLOCK) {
    multiply(sums, c, q, 0, 1, k, 0, 1);
    multiply(odd, c, q + ROWS, 0, 1, k + BLOCK, 0, 1);
  }
  if (n) multiply(sums, c, q, 0, 1, k, 0, 1);
}

/* The same; meanwhile others' scores become probabilities: their exponentials alone would wait for each other. */
INLINE void multiply_and_weigh(work *w, vf sums[ROWS][COLS], vf odd[ROWS][COLS], int c, const word *q, const word *k,
                               int n, waiting before) {
  const float *scores = scores_of(w, before.row);
  word *p = p_of(w, before.row);
  int parts = before.whole ? ROWS * BLOCK / (W * PAIR) : ROWS, steps = n / parts;
  for (int r = 0; r < ROWS; r++, scores += BLOCK, p += BLOCK / PAIR) {
    vf sum = (vf)0.f;
    if (before.whole) {
      UNROLL for (int key = 0; key < BLOCK; key += W * PAIR) {
        multiply_keys(sums, odd, c, q, k, steps);
        q += ROWS * steps, k += BLOCK * steps;
        sum += weigh(scores, p, key);
      }
    } else {
      multiply_keys(sums, odd, c, q, k, steps);
      q += ROWS * steps, k += BLOCK * steps;
      sum = weigh_keys(scores, p, before.keys);
    }
    w->sum[before.row + r] += sum;
  }
  multiply_keys(sums, odd, c, q, k, n - steps * parts);
}

/* Where scores are: nowhere yet, or in memory for a modifier, in natural units. */
typedef enum source { COMPUTED, WRITTEN, READ } source; /* computed and used; computed and written; read and used */

/* Scores less the maximum of ROWS queries and c vectors of keys from key0; those from `from` are done. bits: who sees
 * whom; null: everybody everything. before: whose scores are to be weighed in passing. */
INLINE void score(work *w, const shape *s, int r0, const word *k, source how, int from, int key0, int c,
                  const uint64_t *bits, waiting before) {
  vf x[ROWS][COLS], odd[ROWS][COLS], m[COLS];
  float *out = scores_of(w, r0) + key0;
  const word *q = w->q + r0 * s->depth;
  unsigned seen = bits ? 0 : (1 << ROWS) - 1; /* rows that see one of these keys */
  UNROLL for (int r = 0; r < ROWS; r++) UNROLL for (int j = 0; j < c; j++) x[r][j] = odd[r][j] = (vf)0.f;
  if (how != READ && before.row >= 0)
    multiply_and_weigh(w, x, odd, c, q, k + key0, s->depth, before);
  else if (how != READ)
    multiply_keys(x, odd, c, q, k + key0, s->depth);
  UNROLL for (int r = 0; 2 * c <= COLS && r < ROWS; r++) UNROLL for (int j = 0; j < c; j++) x[r][j] += odd[r][j];
  UNROLL for (int r = 0; r < ROWS; r++) UNROLL for (int j = 0; j < c; j++) {
    if (how == READ)
      x[r][j] = plain_nan(FLY_F32, load(out + r * BLOCK + W * j)) * 1.44269504f;
    else if (PAIR == 2)
      x[r][j] *= s->scale;
    if (how == WRITTEN) store(out + r * BLOCK + W * j, x[r][j]);
  }
  if (how == WRITTEN) return;
  /* Not where the sums start: all their terms would then round at the size of the maximum. */
  UNROLL for (int r = 0; r < ROWS; r++) UNROLL for (int j = 0; j < c; j++) x[r][j] += w->neg_max[r0 + r];
  if (bits) {
    UNROLL for (int r = 0; r < ROWS; r++) {
      uint64_t word = bits[r] >> key0;
      seen |= (unsigned)((c * W == 64 ? word : word & ((1ull << c * W % 64) - 1)) != 0) << r;
      UNROLL for (int j = 0; j < c; j++) x[r][j] = where(word >> W * j & ((1ull << W) - 1), x[r][j]);
    }
  }
  /* Never a NaN: the limit comes first, and a NaN in the first place of greater() is dropped. */
  UNROLL for (int j = 0; j < c; j++) m[j] = (vf)8.f;
  UNROLL for (int r = 0; r < ROWS; r++) UNROLL for (int j = 0; j < c; j++) m[j] = greater(x[r][j], m[j]);
  UNROLL for (int j = 1; j < c; j++) m[0] = greater(m[j], m[0]);
  UNROLL for (int r = 0; r < ROWS; r++) UNROLL for (int j = 0; j < c; j++) store(out + r * BLOCK + W * j, x[r][j]);
  if (__builtin_expect((lanes(m[0] > (vf)8.f) | (seen & ~w->begun[r0 / ROWS])) != 0, 0))
    raise_max(w, s, r0, from, key0 + c * W);
}

/* O += P V for ROWS queries and the keys [first, last). */
INLINE void add_values(work *w, const shape *s, int r0, const word *v, int64_t v_stride, int first, int last) {
  first /= PAIR, last = words_of(last); /* a masked neighbour has P = 0 */
  add_product_to(s->o + r0 * s->width, s->width, s->width, p_of(w, r0) + first, 1, BLOCK / PAIR, v + first * v_stride,
                 v_stride, last - first, w->valued[r0 / ROWS]);
  w->valued[r0 / ROWS] = true;
}

/* The same where V holds an infinity or a NaN: only pairs that are visible. */
RARE void add_visible_values(work *w, const shape *s, int r0, const word *v, int64_t v_stride, const uint64_t *bits) {
  if (!w->valued[r0 / ROWS]) memset(s->o + r0 * s->width, 0, sizeof(float) * ROWS * s->width);
  w->valued[r0 / ROWS] = true;
  for (int r = 0; r < ROWS; r++)
    for (uint64_t left = bits[r]; left; left &= left - 1) {
      int key = __builtin_ctzll(left);
      vf p = (vf)probability(p_of(w, r0) + r * BLOCK / PAIR, key);
      float *o = s->o + (r0 + r) * s->width;
      for (int n = 0; n < s->width; n += W) store(o + n, load(o + n) + p * value_of(v + n, v_stride, key));
    }
}

/* ---- blocks of 64 x 64 ----------------------------------------------------------------------------------------- */

/* A block of keys and values. */
typedef struct tile {
  const word *k, *v;
  int64_t v_stride;         /* from PAIR values to the next ones */
  bool special;             /* V holds an infinity or a NaN */
  const flyi_pack_cpu *raw; /* null, or the next block is still to be packed and asked for */
  rows_of_block next;
  const flyi_forward_cpu *opening; /* the call, in its first block */
  const flyi_beside_cpu *beside;   /* null: none */
} tile;

/* Asks for the rows [from, to) of a block. */
INLINE void fetch_rows(const flyi_pack_cpu *p, const rows_of_block *b, int from, int to) {
  int size = element_size(p->type);
  for (int i = from; i < min(to, b->count); i++) {
    fetch_bytes(row_at(b->k, p->k_stride, b->rows, i, p->type), p->dim * size);
    fetch_bytes(row_at(b->v, p->v_stride, b->rows, i, p->type), p->value_dim * size);
  }
}

/* The next block most likely follows this one: each ROWS queries fetch their share of it, as rows where it is still to
 * be packed; in the first block, the rows of out that they will write and those of Q that come next; in others, rows
 * beside these. streams: packed blocks are worth it, which follow each other for long. */
INLINE void fetch_next(work *w, const tile *t, const shape *s, int r0, bool streams) {
  int step = r0 / ROWS;
  if (t->raw) {
    fetch_rows(t->raw, &t->next, step * s->fetch_rows, (step + 1) * s->fetch_rows);
    if (t->next.packed_k)
      fetch_row((const char *)(t->next.packed_k + step * s->fetch_k), s->fetch_k * (int)sizeof(word), true);
    if (t->next.packed_v)
      fetch_row((const char *)(t->next.packed_v + step * s->fetch_v), s->fetch_v * (int)sizeof(word), true);
  } else if (streams && t->next.packed_k) {
    const float *v = t->next.packed_v ? t->next.packed_v : t->next.v;
    fetch_bytes(t->next.packed_k + step * s->fetch_k, s->fetch_k * (int)sizeof(word));
    fetch_bytes(v + step * s->fetch_v, s->fetch_v * (int)sizeof(word));
  }
  const flyi_forward_cpu *c = t->opening;
  for (int i = r0; c && !c->out_rows && i < min(r0 + ROWS, c->count); i++)
    fetch_row(row_at(c->out, c->out_stride, NULL, i, c->out_type), c->value_dim * element_size(c->out_type), true);
  for (int i = r0; c && c->next_q && !c->next_rows && i < min(r0 + ROWS, c->next_count); i++)
    fetch_bytes(row_at(c->next_q, c->q_stride, NULL, i, c->type), c->dim * element_size(c->type));
  for (int i = r0; t->beside && i < min(r0 + ROWS, t->beside->count); i++)
    fetch_bytes(t->beside->rows + i * t->beside->stride, t->beside->row);
  fetch_ahead(&w->ahead);
}

static const waiting nobody = {.row = -1};

/* The keys of vectors [from, to): as many at a time as a register block takes, the last ones shared out evenly. With
 * PAIR 2, the other vector of a pair counts as masked. */
INLINE void score_keys(work *w, const shape *s, int r0, const word *k, source how, int from, int to,
                       const uint64_t *bits, waiting before) {
  for (int r = 0; PAIR == 2 && how != WRITTEN && r < ROWS; r++) {
    float *scores = scores_of(w, r0) + r * BLOCK;
    if (from % 2) store(scores + from * W - W, (vf)-__builtin_inff());
    if (to % 2) store(scores + to * W, (vf)-__builtin_inff());
  }
  for (int at = from, c; at < to; at += c, before = nobody) {
    int left = to - at, first = from * W, key = at * W;
    switch (c = columns_of(left)) {
#if COLS > 3
    case 4:
      score(w, s, r0, k, how, first, key, 4, bits, before);
      break;
#endif
#if COLS > 2
    case 3:
      score(w, s, r0, k, how, first, key, 3, bits, before);
      break;
#endif
    case 2:
      score(w, s, r0, k, how, first, key, 2, bits, before);
      break;
    default:
      score(w, s, r0, k, how, first, key, 1, bits, before);
      break;
    }
  }
}

SEPARATE void full_block(work *w, shape s, tile t, int first_row, int last_row) {
  const seen all = {0, BLOCK};
  for (int batch = first_row; batch < last_row; batch += BATCH) {
    int end = min(batch + BATCH, last_row);
    fetch_next(w, &t, &s, batch, true);
    score_keys(w, &s, batch, t.k, COMPUTED, 0, BLOCK / W, NULL, nobody);
    for (int r0 = batch + ROWS; r0 < end; r0 += ROWS) {
      fetch_next(w, &t, &s, r0, true);
      score_keys(w, &s, r0, t.k, COMPUTED, 0, BLOCK / W, NULL, (waiting){r0 - ROWS, true, all});
    }
    weigh_rows(w, (end - 1) / ROWS * ROWS, all);
    for (int r0 = batch; r0 < end; r0 += ROWS) add_values(w, &s, r0, t.v, t.v_stride, 0, BLOCK);
  }
}

INLINE seen seen_by(const uint64_t *bits, int rows) {
  uint64_t some = 0;
  for (int r = 0; r < rows; r++) some |= bits[r];
  return some ? (seen){__builtin_ctzll(some), BLOCK - __builtin_clzll(some)} : (seen){0, 0};
}

INLINE bool all_see(const uint64_t *bits, int rows) {
  uint64_t all = ~0ull;
  for (int r = 0; r < rows; r++) all &= bits[r];
  return all == ~0ull;
}

/* Values of a batch whose P is there. */
INLINE void add_batch(work *w, const shape *s, const tile *t, int r0, int rows, const uint64_t *bits,
                      const seen *keys) {
  for (int i = 0; i * ROWS < rows; i++) {
    if (!keys[i].last) continue;
    if (t->special)
      add_visible_values(w, s, r0 + i * ROWS, t->v, t->v_stride, bits + i * ROWS);
    else
      add_values(w, s, r0 + i * ROWS, t->v, t->v_stride, keys[i].first, keys[i].last);
  }
}

/* `rows` queries, BATCH at most, whose visible pairs are bits, none for rows behind the last. */
INLINE void partial_rows(work *w, const shape *s, const tile *t, int r0, int rows, const uint64_t *bits) {
  seen keys[BATCH / ROWS];
  waiting before = nobody;
  for (int i = 0; i * ROWS < rows; i++) {
    int row = r0 + i * ROWS;
    keys[i] = seen_by(bits + i * ROWS, ROWS);
    fetch_next(w, t, s, row, false);
    if (!keys[i].last) continue;
    int from = keys[i].first / W, to = (keys[i].last + W - 1) / W;
    if (before.row < 0)
      score_keys(w, s, row, t->k, COMPUTED, from, to, bits + i * ROWS, nobody);
    else if (all_see(bits + i * ROWS, min(ROWS, rows - i * ROWS)))
      score_keys(w, s, row, t->k, COMPUTED, 0, BLOCK / W, NULL, before);
    else
      score_keys(w, s, row, t->k, COMPUTED, from, to, bits + i * ROWS, before);
    before = (waiting){row, false, keys[i]};
  }
  if (before.row >= 0) weigh_rows(w, before.row, before.keys);
  add_batch(w, s, t, r0, rows, bits, keys);
}

/* A block whose visible pairs are w->bits, the first row's first; rows from last_row on have none. */
SEPARATE void partial_block(work *w, shape s, tile t, int first_row, int last_row) {
  for (int r0 = first_row; r0 < last_row; r0 += BATCH)
    partial_rows(w, &s, &t, r0, min(BATCH, last_row - r0), w->bits + (r0 - first_row));
}

/* ---- blocks whose scores meet a modifier ----------------------------------------------------------------------- */

/* Where V holds an infinity or a NaN: pairs whose modified score is -infinity are not seen. */
RARE void drop_hidden(const float *scores, uint64_t *bits, int rows) {
  for (int r = 0; r < rows; r++)
    for (int key = 0; key < BLOCK; key += W) {
      uint64_t hidden = lanes(load(scores + r * BLOCK + key) == (vf)-__builtin_inff());
      bits[r] &= ~(hidden << key);
    }
}

/* `rows` queries, BATCH at most, whose first one is r0 of the call and row `first` of w->bits. */
INLINE void scored_rows(const flyi_forward_cpu *c, work *w, const shape *s, const tile *t, int r0, int first, int rows,
                        int key0, bool whole) {
  uint64_t *bits = w->bits + first;
  seen keys[BATCH / ROWS];
  for (int i = 0; i * ROWS < rows; i++) {
    keys[i] = seen_by(bits + i * ROWS, min(ROWS, rows - i * ROWS));
    score_keys(w, s, r0 + i * ROWS, t->k, WRITTEN, keys[i].first / W, (keys[i].last + W - 1) / W, NULL, nobody);
  }
  c->score(c->score_args, c->b, c->h, c->q0 + r0, key0, rows, whole ? NULL : bits, w->scores);
  if (t->special) drop_hidden(w->scores, bits, rows);
  for (int i = 0; i * ROWS < rows; i++) {
    int row = r0 + i * ROWS, low = keys[i].first, high = keys[i].last;
    fetch_next(w, t, s, row, false);
    if (!high) continue;
    if (whole)
      score_keys(w, s, row, t->k, READ, 0, BLOCK / W, NULL, nobody);
    else
      score_keys(w, s, row, t->k, READ, low / W, (high + W - 1) / W, bits + i * ROWS, nobody);
    weigh_rows(w, row, keys[i]);
  }
  add_batch(w, s, t, r0, rows, bits, keys);
}

/* Up to 64 queries against a block of keys; w->bits says who sees what, none behind last_row. */
SEPARATE void scored_block(const flyi_forward_cpu *c, work *w, shape s, tile t, int first_row, int last_row, int key0,
                           bool whole) {
  for (int r0 = first_row; r0 < last_row; r0 += BATCH)
    scored_rows(c, w, &s, &t, r0, r0 - first_row, min(BATCH, last_row - r0), key0, whole);
}

/* All queries against one block of keys, the nth of the call; last: there are no more. */
INLINE void run_block(const flyi_forward_cpu *c, work *w, const shape *s, int64_t block, bool last, bool full,
                      int64_t nth) {
  const flyi_pack_cpu *p = c->keys;
  int64_t key0 = block * BLOCK, keys = p->len_kv - key0, place = place_of(p, block);
  uint8_t state = packed_state(p, block);
  tile t = {.k = (const word *)p->packed_k + place * BLOCK * s->depth,
            .v = (const word *)c->v + (p->packed_v ? place : block) * BLOCK * c->v_stride,
            .v_stride = PAIR * c->v_stride,
            .special = state == FLYI_SPECIAL,
            .raw = asks_for_next(&w->ahead, p, block, last) ? p : NULL,
            .opening = nth == 0 ? c : NULL,
            .beside = nth > 0 && nth <= c->beside_count ? c->beside + nth - 1 : NULL};
  if (keys > BLOCK) t.next = rows_of(p, block + 1);
  if (full && keys >= BLOCK && !s->scored) {
    full_block(w, *s, t, 0, c->count);
    return;
  }
  uint64_t there = keys >= BLOCK ? ~0ull : (1ull << keys) - 1;
  for (int row = 0; row < c->count; row += BLOCK) {
    int end = min(row + BLOCK, c->count);
    if (full)
      memset(w->bits, 0xff, sizeof w->bits);
    else
      c->tile(c->args, c->b, c->h, c->q0 + row, (int32_t)key0, w->bits);
    for (int r = 0; r < BLOCK; r++) w->bits[r] &= row + r < end ? there : 0;
    if (s->scored)
      scored_block(c, w, *s, t, row, end, (int)key0, full && keys >= BLOCK);
    else
      partial_block(w, *s, t, row, end);
  }
}

/* ---- entry ----------------------------------------------------------------------------------------------------- */

static void pack(const flyi_pack_cpu *p, int64_t block) { packed_state(p, block); }

/* Addresses of small pages take long to find, and requests that wait for them hold up what follows. The pages that the
 * next item most likely begins to use, its keys and values right behind those of this one, are asked for all at once,
 * so that they are found side by side. */
INLINE void fetch_next_pages(const flyi_forward_cpu *c, int64_t blocks) {
  const flyi_pack_cpu *p = c->keys;
  if (!c->next_q || !c->run_count) return;
  if (!c->next_rows) fetch_pages(c->next_q, c->q_stride, c->next_count, c->type, false);
  if (!c->out_rows) fetch_pages(c->next_out, c->out_stride, c->next_count, c->out_type, true);
  fly_run last = c->runs[c->run_count - 1];
  int64_t first = ((int64_t)last.first + last.count) * c->run_blocks, end = first + QUERIES / BLOCK;
  for (int64_t block = first; !p->rows && block < end && block < blocks; block++) {
    if (__atomic_load_n(p->state + block, __ATOMIC_RELAXED) != FLYI_UNPACKED) continue;
    rows_of_block b = rows_of(p, block);
    fetch_pages(b.k, p->k_stride, b.count, p->type, false);
    fetch_pages(b.v, p->v_stride, b.count, p->type, false);
  }
}

static void forward(const flyi_forward_cpu *c) {
  work *w = c->scratch;
  shape s = shape_of(c, w);
  begin(c, w, &s);
  int64_t blocks = (c->keys->len_kv + BLOCK - 1) / BLOCK, nth = 0;
  fetch_next_pages(c, blocks);
  plan_ahead(&w->ahead, c, blocks, (c->count + ROWS - 1) / ROWS);
  for (int64_t i = 0; i < c->run_count; i++) {
    fly_run run = c->runs[i];
    int64_t first = (int64_t)run.first * c->run_blocks, last = first + (int64_t)run.count * c->run_blocks;
    if (last > blocks) last = blocks;
    for (int64_t block = first; block < last; block++)
      run_block(c, w, &s, block, i + 1 == c->run_count && block + 1 == last, run.kind == FLY_FULL, nth++);
  }
  switch (c->out_type) {
  case FLY_F32:
    finish(c, w, &s, FLY_F32);
    break;
  case FLY_F16:
    finish(c, w, &s, FLY_F16);
    break;
  default:
    finish(c, w, &s, FLY_BF16);
    break;
  }
}

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
const flyi_forward_code JOIN(flyi_forward_, FLYI_ISA) = {W, PAIR, STREAM_TYPE, scratch_size, pack, forward};
