/* ptx_case.h: backward calls for tests on a CUDA device: backward_case's tensors and maps, with a mask that is
 * compiled from C and is at the same time the oracle's predicate. */
#ifndef TEST_PTX_CASE_H
#define TEST_PTX_CASE_H

#include "backward_case.h"
#include "cuda_call.h"

/* A mask twice: as a predicate, compiled natively, and as source. The body may use b, h, q, kv. */
#define PTX_MASK(name, ...)                                                                                            \
  static bool shows_##name(void *context, int b, int h, int q, int kv) {                                               \
    (void)context, (void)b, (void)h, (void)q, (void)kv;                                                                \
    __VA_ARGS__                                                                                                        \
  }                                                                                                                    \
  static const ptx_mask name = {                                                                                       \
      #name, shows_##name, "#include <flymask/mask.h>\nbool mask(int b, int h, int q, int kv) {" #__VA_ARGS__ "}"};

typedef struct ptx_mask {
  const char *name;
  oracle_predicate *see;
  const char *source;
} ptx_mask;

/* A backward call on a device; base.base.call is the host's. */
typedef struct ptx_case {
  backward_case base;
  const ptx_mask *mask;
  fly_mask *compiled;
  fly_kernel *kernel;
  fly_bound *bound;
  char what[256];
} ptx_case;

void ptx_init(ptx_case *t, const backward_spec *spec, const ptx_mask *mask, const char *target);
void ptx_run(ptx_case *t, fly_cuda *cuda); /* the call has to succeed; gradients are in the host's tensors then */
void ptx_check(ptx_case *t);               /* compares them with the oracle's */
void ptx_free(ptx_case *t);

/* Initialises, runs, compares, frees, on a device of its own. */
void ptx_test(const backward_spec *spec, const ptx_mask *mask);

/* What P and dS are rounded by as operands of a tensor core. */
double ptx_operands(fly_type type);

#endif
