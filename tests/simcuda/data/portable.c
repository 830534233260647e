/* portable.c: portable.h as a kernel; and a block's work: shared memory, shuffles, barriers, as LLVM writes them. */
#include "portable.h"

#define GLOBAL __attribute__((address_space(1)))
#define SHARED __attribute__((address_space(3)))
#define KERNEL __attribute__((nvptx_kernel))

typedef struct arguments {
  const GLOBAL u32 *a, *b;
  GLOBAL u64 *out;
  int n;
} arguments;

KERNEL void all_functions(const arguments x) {
  int i = __nvvm_read_ptx_sreg_ctaid_x() * __nvvm_read_ptx_sreg_ntid_x() + __nvvm_read_ptx_sreg_tid_x();
  if (i < x.n) x.out[i] = everything(x.a[i], x.b[i]);
}

/* Running sums of 256 values: within warps by shuffles, across them by shared memory. */
static SHARED int totals[8];
KERNEL void running_sums(const arguments x) {
  int t = __nvvm_read_ptx_sreg_tid_x(), lane = t & 31, v = (int)x.a[t];
  for (int d = 1; d < 32; d *= 2) {
    int o = __nvvm_shfl_sync_up_i32(-1, v, d, 0);
    if (lane >= d) v += o;
  }
  if (lane == 31) totals[t / 32] = v;
  __syncthreads();
  for (int k = 0; k < t / 32; k++) v += totals[k];
  x.out[t] = (u64)(s64)v;
}
