/* launch.c: runs a launch's blocks on several host threads, each with a block's worth of warps of its own. Input: a
 * launch whose numbers have been checked; output: its result, and on failure the report of the first fault. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "sim.h"

static void fail_memory(launch *run) {
  int expected = 0;
  if (!atomic_compare_exchange_strong(&run->failed, &expected, 1)) return;
  run->result = CUDA_ERROR_OUT_OF_MEMORY;
  snprintf(run->report, sizeof run->report, "kernel %s: out of host memory", run->kernel);
}

static void *work(void *argument) {
  launch *run = argument;
  cta *c = calloc(1, sizeof *c);
  if (!c || !cta_create(c, run)) {
    fail_memory(run);
  } else {
    uint64_t index;
    while (!atomic_load(&run->failed) && (index = atomic_fetch_add(&run->next_cta, 1)) < run->ctas) cta_run(c, index);
  }
  if (c) cta_destroy(c);
  free(c);
  return NULL;
}

enum { MOST_THREADS = 64 };

CUresult launch_run(launch *run) {
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
  uint64_t threads = run->config.threads > 0 ? (uint64_t)run->config.threads : cores > 0 ? (uint64_t)cores : 1;
  pthread_t started[MOST_THREADS];
  unsigned count = 0;
  run->ctas = (uint64_t)run->grid[0] * run->grid[1] * run->grid[2];
  if (threads > run->ctas) threads = run->ctas;
  if (threads > MOST_THREADS) threads = MOST_THREADS;
  while (count + 1 < threads && pthread_create(&started[count], NULL, work, run) == 0) count++;
  work(run);
  for (unsigned k = 0; k < count; k++) pthread_join(started[k], NULL);
  return atomic_load(&run->failed) ? run->result : CUDA_SUCCESS;
}
