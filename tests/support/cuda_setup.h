/* cuda_setup.h: one call on the host and on the simulated driver, with all that can be copied to a device: the suites
 * of what goes wrong and of what is left behind share it. */
#ifndef TEST_CUDA_SETUP_H
#define TEST_CUDA_SETUP_H

#include "cuda_call.h"
#include "tests/simcuda/driver.h"
#include "tests/simcuda/simcuda.h"

enum { SETUP_N = 150, SETUP_D = 64 };

/* The mask reads a buffer and tokens; keys and queries go through a row map. */
typedef struct cuda_setup {
  fly_cuda *cuda;
  fly_mask *mask;
  fly_bound *bound;
  fly_kernel *kernel;
  fly_attention host;
  int32_t rows[SETUP_N], group[SETUP_N];
  uint16_t q[SETUP_N * SETUP_D], k[SETUP_N * SETUP_D], v[SETUP_N * SETUP_D], out[SETUP_N * SETUP_D];
  uint16_t d_out[SETUP_N * SETUP_D], d_q[SETUP_N * SETUP_D], d_k[SETUP_N * SETUP_D], d_v[SETUP_N * SETUP_D];
  float lse[SETUP_N];
  cuda_call t;
} cuda_setup;

cuda_setup *cuda_setup_open(void);
void cuda_setup_close(cuda_setup *s); /* nothing must be left on the device */

/* What the driver counts; nothing of this process must be alive there. */
simcuda_counts cuda_setup_counts(void);
void cuda_setup_check_nothing_left(void);

/* A kernel of the setup's mask. */
fly_kernel *cuda_setup_kernel(const cuda_setup *s, const char *target);
/* The predicate of the mask; context: the setup. */
bool cuda_setup_sees(void *context, int b, int h, int q, int kv);

fly_status cuda_setup_run(const cuda_setup *s, bool backward, fly_error *error);
/* What the device holds is right; it is right after one more call; the call is refused. */
void cuda_setup_check_result(cuda_setup *s, bool backward);
void cuda_setup_check_works(cuda_setup *s, bool backward);
void cuda_setup_refuse(const cuda_setup *s, bool backward, fly_status status, const char *words);
/* Destroys what the device holds of results. */
void cuda_setup_spoil(cuda_setup *s, bool backward);
/* Makes the primary context current. */
void cuda_setup_push_primary(void);

#endif
