/* memory.c: device memory. Addresses are made up: each allocation has granules of 2 MiB of a large range of its
 * own, with unused room before and behind it, so that a stray address hits nothing, and a freed one is known as
 * such. The bytes lie in host memory elsewhere. Pinned host memory keeps its address on the device, as with
 * unified addressing. */
#include <pthread.h>
#include <stdlib.h>

#include "sim.h"

#define RANGE_BEGIN UINT64_C(0x0a0000000000)
enum { GRANULE_BITS = 21, GRANULES = 131072, GAP = 512 };
enum { LARGE = 1 << 30 }; /* bytes from which on memory is not filled: pages that are not touched do not exist */

static struct {
  pthread_mutex_t lock;
  _Atomic(allocation *) granules[GRANULES]; /* who lives, or lived, there */
  uint32_t next;
  allocation *all;
  _Atomic(allocation *) pinned;
  uint64_t in_use, count, pinned_count;
} memory = {.lock = PTHREAD_MUTEX_INITIALIZER};

static uint32_t granules_of(uint64_t size) {
  return (uint32_t)((size + 2 * GAP + (1 << GRANULE_BITS) - 1) >> GRANULE_BITS) + 1;
}

/* A run of granules where nothing lives: the range is used round about, so that freed addresses stay unused for
 * long. */
static bool find_room(uint32_t need, uint32_t *at) {
  for (uint32_t tries = 0, run = 0, g = memory.next; tries < 2 * GRANULES; tries++, g++) {
    if (g == GRANULES) g = run = 0;
    allocation *a = atomic_load(&memory.granules[g]);
    run = a && !a->freed ? 0 : run + 1;
    if (run == need) {
      *at = g + 1 - need;
      memory.next = g + 1 == GRANULES ? 0 : g + 1;
      return true;
    }
  }
  return false;
}

static bool create_locked(allocation *a) {
  uint32_t need = granules_of(a->size), at = 0;
  if (a->kind == MEMORY_PINNED) {
    a->base = (uint64_t)(uintptr_t)a->host;
    a->next = atomic_load(&memory.pinned);
    atomic_store(&memory.pinned, a);
    memory.pinned_count++;
    return true;
  }
  if (need > GRANULES || !find_room(need, &at)) return false;
  a->base = RANGE_BEGIN + ((uint64_t)at << GRANULE_BITS) + GAP;
  for (uint32_t g = 0; g < need; g++) atomic_store(&memory.granules[at + g], a);
  a->next = memory.all;
  memory.all = a;
  if (a->kind == MEMORY_DEVICE) {
    memory.in_use += a->size;
    memory.count++;
  }
  return true;
}

allocation *memory_create(uint64_t size, memory_kind kind, void *context) {
  allocation *a = calloc(1, sizeof *a);
  size_t room = (size + 511) & ~(size_t)511;
  if (a) a->host = room >= size ? aligned_alloc(512, room ? room : 512) : NULL;
  if (!a || !a->host) {
    free(a);
    return NULL;
  }
  if (size < LARGE) memset(a->host, 0xff, size);
  a->size = size;
  a->kind = kind;
  a->context = context;
  pthread_mutex_lock(&memory.lock);
  bool ok = create_locked(a);
  pthread_mutex_unlock(&memory.lock);
  if (ok) return a;
  free(a->host);
  free(a);
  return NULL;
}

static void drop(allocation *a) {
  a->freed = true;
  if (a->kind == MEMORY_DEVICE) {
    memory.in_use -= a->size;
    memory.count--;
  } else if (a->kind == MEMORY_PINNED) {
    memory.pinned_count--;
  }
  free(a->host);
  a->host = NULL;
  free(atomic_exchange(&a->touched, NULL));
}

touched *memory_touched(allocation *a) {
  touched *words = atomic_load_explicit(&a->touched, memory_order_acquire), *nobody = NULL;
  if (words) return words;
  words = calloc(a->size / 4 + 1, sizeof *words);
  if (!words || atomic_compare_exchange_strong(&a->touched, &nobody, words)) return words;
  free(words);
  return nobody; /* another thread was first */
}

void memory_forget_touched(void) {
  pthread_mutex_lock(&memory.lock);
  for (allocation *a = memory.all; a; a = a->next) free(atomic_exchange(&a->touched, NULL));
  for (allocation *a = atomic_load(&memory.pinned); a; a = a->next) free(atomic_exchange(&a->touched, NULL));
  pthread_mutex_unlock(&memory.lock);
}

bool memory_destroy(uint64_t base, memory_kind kind) {
  bool found = false;
  pthread_mutex_lock(&memory.lock);
  allocation *a = memory_find(base);
  if (a && !a->freed && a->base == base && a->kind == kind) {
    drop(a);
    found = true;
  }
  pthread_mutex_unlock(&memory.lock);
  return found;
}

allocation *memory_find(uint64_t address) {
  uint64_t g = (address - RANGE_BEGIN) >> GRANULE_BITS;
  if (address >= RANGE_BEGIN && g < GRANULES) return atomic_load_explicit(&memory.granules[g], memory_order_acquire);
  allocation *dead = NULL;
  for (allocation *a = atomic_load(&memory.pinned); a; a = a->next)
    if (address >= a->base && address - a->base < a->size) {
      if (!a->freed) return a;
      dead = a;
    }
  return dead;
}

uint64_t memory_in_use(void) {
  pthread_mutex_lock(&memory.lock);
  uint64_t bytes = memory.in_use;
  pthread_mutex_unlock(&memory.lock);
  return bytes;
}

void memory_count(simcuda_counts *counts) {
  pthread_mutex_lock(&memory.lock);
  counts->allocations = memory.count;
  counts->bytes = memory.in_use;
  counts->host_allocations = memory.pinned_count;
  pthread_mutex_unlock(&memory.lock);
}

void memory_drop_context(void *context) {
  pthread_mutex_lock(&memory.lock);
  for (allocation *a = memory.all; a; a = a->next)
    if (a->context == context && !a->freed) drop(a);
  for (allocation *a = atomic_load(&memory.pinned); a; a = a->next)
    if (a->context == context && !a->freed) drop(a);
  pthread_mutex_unlock(&memory.lock);
}
