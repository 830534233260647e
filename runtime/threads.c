/* threads.c: work for several threads: OpenMP's, or the caller's own parallel-for.
 *
 * Each worker takes the next item from a shared counter, so items start in ascending order whatever runs them; where
 * the caller's pool runs workers one after the other, the first one does everything. */
#include <omp.h>
#include <sched.h>

#include "runtime.h"

enum { SPINS = 256 }; /* before the processor is offered to others: fewer than in pack.h, as a turn may be tiles away */

typedef struct work {
  atomic_llong next;
  int64_t count;
  void (*body)(void *context, int64_t item, int worker);
  void *context;
} work;

int flyi_worker_count(const flyi_threads *threads, int64_t count) {
  int64_t limit = threads->limit > 0 ? threads->limit : omp_get_max_threads();
  if (limit > count) limit = count;
  return limit < 1 ? 1 : (int)limit;
}

static void drain(void *shared, int64_t worker) {
  work *w = shared;
  for (int64_t item; (item = atomic_fetch_add_explicit(&w->next, 1, memory_order_relaxed)) < w->count;)
    w->body(w->context, item, (int)worker);
}

void flyi_parallel(const flyi_threads *threads, int64_t count, void (*body)(void *context, int64_t item, int worker),
                   void *context) {
  int workers = flyi_worker_count(threads, count);
  work shared = {.count = count, .body = body, .context = context};
  if (workers == 1) {
    drain(&shared, 0);
  } else if (threads->parallel_for) {
    threads->parallel_for(threads->user, workers, drain, &shared);
  } else {
#pragma omp parallel num_threads(workers)
    drain(&shared, omp_get_thread_num());
  }
}

void flyi_pause(int spins) {
  if (spins >= SPINS)
    sched_yield();
  else
#if defined __aarch64__
    __asm__ volatile("yield");
#else
    __builtin_ia32_pause();
#endif
}
