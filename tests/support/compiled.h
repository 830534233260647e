/* compiled.h: masks compiled without a cache, and their bits, for tests. The code is loaded twice, by ORC and by the
 * runtime's own loader; both must give the same bits. */
#ifndef TEST_COMPILED_H
#define TEST_COMPILED_H

#include "support.h"

#include "runtime/runtime.h"

typedef struct compiled {
  fly_mask *mask;
  flyi_code loaded; /* mask's code by flyi_code_load */
} compiled;

/* target NULL: the best. extra: options beside cache and target (NULL: none). */
compiled compiled_from(const char *source, const char *target, const fly_compile_options *extra);
compiled compiled_from_mask(fly_mask *mask); /* takes over the reference */
void compiled_free(compiled *c);

/* A call of a compiled mask: bound, with its arguments. */
typedef struct compiled_call {
  const compiled *code;
  fly_bound *bound;
  flyi_mask_args *args;
} compiled_call;

compiled_call compiled_bind(const compiled *c, const fly_arg *arguments, int count, const fly_geometry *geometry);
void compiled_call_free(compiled_call *call);

/* The 64 x 64 block whose first pair is (q0, kv0): positions, q0 with the offset. */
void compiled_bits(const compiled_call *call, int b, int h, int q0, int kv0, uint64_t bits[FLYI_BLOCK]);

#endif
