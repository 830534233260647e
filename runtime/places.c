/* places.c: places in a workspace that are taken, given back, and taken again while they are in the cache. */
#include "call.h"

void flyi_places_init(flyi_places *p) {
  atomic_init(&p->top, 0);
  atomic_init(&p->fresh, 0);
}

/* A count of changes beside `top` tells a list that has changed in between from one that has not, though the same place
 * be its first again. */
int32_t flyi_place_take(flyi_places *p, atomic_uint *after) {
  uint64_t top = atomic_load_explicit(&p->top, memory_order_acquire), next;
  do {
    if (!(uint32_t)top) return (int32_t)atomic_fetch_add_explicit(&p->fresh, 1, memory_order_relaxed);
    next = ((top >> 32) + 1) << 32 | atomic_load_explicit(&after[(uint32_t)top - 1], memory_order_relaxed);
  } while (!atomic_compare_exchange_weak_explicit(&p->top, &top, next, memory_order_acq_rel, memory_order_acquire));
  return (int32_t)((uint32_t)top - 1);
}

void flyi_place_give(flyi_places *p, atomic_uint *after, int32_t place) {
  uint64_t top = atomic_load_explicit(&p->top, memory_order_relaxed), next;
  do {
    atomic_store_explicit(&after[place], (uint32_t)top, memory_order_relaxed);
    next = ((top >> 32) + 1) << 32 | (uint32_t)(place + 1);
  } while (!atomic_compare_exchange_weak_explicit(&p->top, &top, next, memory_order_acq_rel, memory_order_relaxed));
}
