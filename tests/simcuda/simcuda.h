/* simcuda.h: control of the simulated driver, beside the driver's own functions. A test links libcuda.so.1 of this
 * directory or finds these by dlsym. Settings hold from the next launch on; all are safe to call from any thread.
 *
 * The environment sets the same: SIMCUDA_ARCH (80), SIMCUDA_SMS, SIMCUDA_SHARED (bytes a block), SIMCUDA_MEMORY
 * (bytes), SIMCUDA_COPIES (late, eager or random:SEED), SIMCUDA_STREAMS (eager or late), SIMCUDA_THREADS,
 * SIMCUDA_PTXAS (1 or a path), SIMCUDA_FAIL (n:error), SIMCUDA_DEVICES (0: no device), SIMCUDA_POOLS (0: no memory
 * pools). */
#ifndef SIMCUDA_H
#define SIMCUDA_H

#include <stdint.h>

/* When a kernel's asynchronous copies land: at once, as late as the waits allow, or at seeded random times
 * between. */
enum simcuda_copies { SIMCUDA_LATE, SIMCUDA_EAGER, SIMCUDA_RANDOM };

typedef struct simcuda_config {
  int arch; /* 80, 86, 90: compute capability */
  int sms;
  int threads;           /* host threads of a launch; 0: as many as there are cores */
  uint32_t shared_block; /* bytes of shared memory a block may opt in to */
  uint64_t memory;       /* bytes of device memory */
  int copies;            /* enum simcuda_copies */
  uint64_t seed;         /* of random copies and of the order in which warps run; 0: warps run in turn */
  int late_streams;      /* operations in streams other than the default run when something waits for them */
  int no_races;          /* leave out the race check: faster */
  uint64_t instructions; /* warp instructions a block may take before it counts as hung */
  int no_pools;          /* the device has no memory pools: nothing is allocated in the order of a stream */
} simcuda_config;

void simcuda_get_config(simcuda_config *config);
void simcuda_set_config(const simcuda_config *config);

/* What went wrong in the last failed launch, copy or free: kernel, block, warp, lane, PTX line and what; "" where
 * nothing has. The text lives until the next failure. */
const char *simcuda_report(void);
/* Forgets the report and a context's sticky error, so that one process can provoke many. */
void simcuda_clear(void);

/* The n-th driver call from now (1 is the next) fails with `error`, and the report names it; 0 ends it. Calls counts
 * them since the last call of this. */
void simcuda_fail_call(uint64_t n, int error);
uint64_t simcuda_calls(void);

/* What is alive: for leak checks. */
typedef struct simcuda_counts {
  uint64_t allocations, bytes, host_allocations, modules, streams, events, contexts, primary_retains;
  uint64_t launches, instructions; /* done so far; warp instructions */
} simcuda_counts;
void simcuda_get_counts(simcuda_counts *counts);

#endif
