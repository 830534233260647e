/* pack.h: keys and values made ready for the forward kernel, 64 at a time, by whichever thread needs a block first.
 *
 * Input: a flyi_pack_cpu. Output: blocks of K and V as launch.h has them, and their states. */
#ifndef FLYMASK_PACK_H
#define FLYMASK_PACK_H

#include <sched.h>

#include "block.h"

enum {
  DEPTH = 4,   /* dim is rounded up to this */
  SPINS = 1000 /* some ten microseconds: packing a block takes a few, so that it is worth staying */
};

/* A block on its way: where its rows begin. */
typedef struct rows_of_block {
  const void *k, *v;
  const int32_t *rows;
  int count;
  float *packed_k, *packed_v; /* null: nowhere yet; V stays where it is */
} rows_of_block;

INLINE int64_t k_words(int dim) { return (int64_t)BLOCK * round_up(words_of(dim), DEPTH); }
INLINE int64_t v_words(int value_dim) { return (int64_t)(BLOCK / PAIR) * round_up(value_dim, W); }

/* Where a block is packed. Another worker may be about to say so for a block that is not this launch's. */
INLINE int64_t place_of(const flyi_pack_cpu *p, int64_t block) {
  return __atomic_load_n(p->place + block, __ATOMIC_RELAXED);
}

INLINE rows_of_block rows_of(const flyi_pack_cpu *p, int64_t block) {
  int64_t key0 = block * BLOCK, left = p->len_kv - key0, first = p->rows ? 0 : key0, place = place_of(p, block);
  return (rows_of_block){row_at(p->k, p->k_stride, NULL, first, p->type),
                         row_at(p->v, p->v_stride, NULL, first, p->type),
                         p->rows ? p->rows + key0 : NULL,
                         left < BLOCK ? (int)left : BLOCK,
                         place >= 0 ? p->packed_k + place * k_words(p->dim) : NULL,
                         place >= 0 && p->packed_v ? p->packed_v + place * v_words(p->value_dim) : NULL};
}

/* Asks for a line of each page of rows that follow each other. */
INLINE void fetch_pages(const void *data, int64_t stride, int count, int type, bool to_write) {
  int64_t bytes = stride * element_size(type);
  int each = bytes > 0 && bytes < 4096 ? 4096 / (int)bytes : 1;
  for (int i = 0; i < count; i += each) fetch_row(row_at(data, stride, NULL, i, type), 1, to_write);
}

#ifdef FLYI_DOTS
static bool pack_block(const flyi_pack_cpu *p, int64_t block) {
  rows_of_block b = rows_of(p, block);
  pack_transposed_words((word *)b.packed_k, b.k, p->k_stride, b.rows, b.count, p->dim,
                        round_up(words_of(p->dim), DEPTH));
  return lanes(pack_beside((word *)b.packed_v, b.v, p->v_stride, b.rows, b.count, BLOCK, p->value_dim)) != 0;
}

#else
/* Packs V unless it stays where it is; says whether it holds an infinity or a NaN. */
INLINE bool pack_values(const flyi_pack_cpu *p, const rows_of_block *b, int type) {
  int width = round_up(p->value_dim, W);
  vu check = (vu)0; /* x - x is 0 or NaN, and the bits of a NaN survive others: no sums that wait for each other */
  for (int key = 0; key < b->count; key++) {
    const char *row = row_at(b->v, p->v_stride, b->rows, key, type);
    for (int n = 0; n < width; n += W) {
      vf x = load_row(type, row, n, p->value_dim);
      check |= float_to_bits(x - x);
      if (b->packed_v) store(b->packed_v + key * width + n, x);
    }
  }
  if (b->packed_v) memset(b->packed_v + b->count * width, 0, sizeof(float) * width * (BLOCK - b->count));
  return lanes(bits_to_float(check) != bits_to_float(check)) != 0;
}

INLINE bool pack_typed(const flyi_pack_cpu *p, const rows_of_block *b, int type) {
  pack_transposed(b->packed_k, b->k, p->k_stride, b->rows, b->count, p->dim, round_up(p->dim, DEPTH), 1.f, true, type);
  return pack_values(p, b, type);
}

static bool pack_block(const flyi_pack_cpu *p, int64_t block) {
  rows_of_block b = rows_of(p, block);
  switch (p->type) {
  case FLY_F32:
    return pack_typed(p, &b, FLY_F32);
  case FLY_F16:
    return pack_typed(p, &b, FLY_F16);
  default:
    return pack_typed(p, &b, FLY_BF16);
  }
}

#endif

/* Its thread may have lost its core: then this one must give up its own. */
INLINE void pause_a_while(int spins) {
  if (spins >= SPINS) {
    sched_yield();
    return;
  }
#if defined __x86_64__
  _mm_pause();
#elif defined __aarch64__
  __asm__ volatile("yield");
#endif
}

/* The state of a block that is packed now, by this thread or another one. */
RARE uint8_t wait_for_block(const flyi_pack_cpu *p, int64_t block) {
  uint8_t state = FLYI_UNPACKED;
  if (__atomic_compare_exchange_n(p->state + block, &state, FLYI_PACKING, false, __ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE)) {
    state = pack_block(p, block) ? FLYI_SPECIAL : FLYI_PACKED;
    __atomic_store_n(p->state + block, state, __ATOMIC_RELEASE);
  }
  for (int spins = 0; state == FLYI_PACKING; spins += spins < SPINS) {
    pause_a_while(spins);
    state = __atomic_load_n(p->state + block, __ATOMIC_ACQUIRE);
  }
  return state;
}

INLINE uint8_t packed_state(const flyi_pack_cpu *p, int64_t block) {
  uint8_t state = __atomic_load_n(p->state + block, __ATOMIC_ACQUIRE);
  return state >= FLYI_PACKED ? state : wait_for_block(p, block);
}

#endif
