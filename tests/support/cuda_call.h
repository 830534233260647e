/* cuda_call.h: attention calls of tests on a CUDA device, real or simulated: the tensors of a host call are copied
 * there, each into memory that ends with its last element, and what the call wrote comes back into them. */
#ifndef TEST_CUDA_CALL_H
#define TEST_CUDA_CALL_H

#include "oracle.h"

/* The handle of device 0. Fails the test where there is none. */
fly_cuda *cuda_open(void);

/* A host tensor's copy on the device, without data where that has none; its bytes back; its end. */
fly_tensor cuda_tensor_put(fly_cuda *cuda, const fly_tensor *host);
void cuda_tensor_get(fly_cuda *cuda, const fly_tensor *device, const fly_tensor *host);
void cuda_tensor_free(fly_cuda *cuda, fly_tensor *device);

/* Fails the test with the driver's report, where there is an error. */
void cuda_ok(fly_status status, const fly_error *error);

typedef struct cuda_call {
  fly_attention call; /* tensors are the device's; everything else the host call's */
  const fly_attention *host;
  void *memory[12];
} cuda_call;

/* kernel is for a GPU; bound and map are the host call's. */
void cuda_call_init(cuda_call *t, fly_cuda *cuda, const fly_attention *host, const fly_kernel *kernel);
/* out and lse, or the gradients, back into the host call's tensors, which must be as they were when copied. */
void cuda_call_fetch(cuda_call *t, bool backward);
void cuda_call_free(cuda_call *t);

/* All of it: the host call, done on the device. Both have to succeed. */
void cuda_forward(fly_cuda *cuda, const fly_attention *host, const fly_kernel *kernel);
void cuda_backward(fly_cuda *cuda, const fly_attention *host, const fly_kernel *kernel);

#endif
