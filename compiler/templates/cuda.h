/* cuda.h: the warp-level machine that the CUDA templates are written for: one PTX instruction each. Layouts of operands
 * are those of the PTX ISA (section 9.7.14, "Warp-level matrix instructions"), with g = lane / 4 and t = lane % 4:
 *
 *     mma.m16n8k16   A, 4 registers of two: row g + 8 (i & 1), k = 2t + 8 (i >> 1) .. +1
 *                    B, 2 registers of two: k = 2t + 8 i .. +1, column g
 *                    C, 4 floats: row g + 8 (i >> 1), column 2t + (i & 1)
 *     ldmatrix.x4    lanes 8j .. 8j + 7 give the rows (16 bytes) of matrix j; a lane gets columns 2t .. +1 of row g
 *                    of each (.trans: rows 2t .. +1 of column g)
 *
 * Shared memory is touched by volatile assembly alone, which keeps its order among itself and barriers. */
#ifndef FLYMASK_CUDA_H
#define FLYMASK_CUDA_H

#include "launch_cuda.h"

typedef uint32_t u32;
typedef uint16_t u16;
typedef uint64_t u64;
typedef int32_t i32;
typedef int64_t i64;

#define INL static inline __attribute__((always_inline))
#define UNROLL _Pragma("clang loop unroll(full)")
#define ROLLED _Pragma("clang loop unroll(disable)")
#define GLOBAL __attribute__((address_space(1)))
#define SHARED __attribute__((address_space(3)))
#define KERNEL __attribute__((nvptx_kernel)) void

/* What a template is compiled for: set when a mask is joined with it, before anything is optimised. Loops up to them
 * are unrolled whole, arrays as large as the largest of them need: what is not used vanishes. */
#define CONSTANT extern const i32

/* ---- who and where ----------------------------------------------------------------------------------------------- */

extern SHARED char flyi_shared[] __attribute__((aligned(128)));

INL u32 shared_base(void) { return (u32)(u64)(SHARED char *)flyi_shared; }
INL i32 thread_index(void) { return __nvvm_read_ptx_sreg_tid_x(); }
INL u32 block_index(void) { return (u32)__nvvm_read_ptx_sreg_ctaid_x(); }

/* A value that the optimiser cannot take apart. */
INL i32 opaque(i32 x) {
  i32 y;
  __asm__("mov.b32 %0, %1;" : "=r"(y) : "r"(x));
  return y;
}

/* A value that is new each time: what follows from it is worked out again, and takes no registers in between. */
INL i32 renewed(i32 x) {
  __asm__ volatile("mov.b32 %0, %0;" : "+r"(x));
  return x;
}

/* ---- barriers, copies -------------------------------------------------------------------------------------------- */

INL void barrier(void) { __syncthreads(); }
/* Of `threads` (a multiple of 32) that meet at barrier `id`, 1 to 15. */
INL void barrier_of(i32 id, i32 threads) { __asm__ volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory"); }
/* Of a warp's lanes: what each did to memory comes before what all do. */
INL void warp_barrier(void) { __asm__ volatile("bar.warp.sync -1;" ::: "memory"); }

/* 16 bytes to shared memory, of which the first `size` are read and the others zero. */
INL void copy16(u32 to, u64 from, u32 size) {
  __asm__ volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(size) : "memory");
}
/* 4 bytes, of which `size` (0 or 4) are read. */
INL void copy4(u32 to, u64 from, u32 size) {
  __asm__ volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(size) : "memory");
}
INL void copies_commit(void) { __asm__ volatile("cp.async.commit_group;" ::: "memory"); }
/* All but the newest n groups of this thread's copies have landed. A barrier must follow. */
#define copies_wait(n) __asm__ volatile("cp.async.wait_group %0;" ::"n"(n) : "memory")

/* ---- shared memory ----------------------------------------------------------------------------------------------- */

INL void load_matrices(u32 r[4], u32 at) {
  __asm__ volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                   : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                   : "r"(at)
                   : "memory");
}
INL void load_transposed(u32 r[4], u32 at) {
  __asm__ volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                   : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                   : "r"(at)
                   : "memory");
}
INL void store_shared(u32 at, u32 x) { __asm__ volatile("st.shared.b32 [%0], %1;" ::"r"(at), "r"(x) : "memory"); }
INL void store_shared4(u32 at, const u32 x[4]) {
  __asm__ volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(at), "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3])
                   : "memory");
}
INL u32 load_shared(u32 at) {
  u32 x;
  __asm__ volatile("ld.shared.b32 %0, [%1];" : "=r"(x) : "r"(at) : "memory");
  return x;
}
INL void load_shared2(float x[2], u32 at) {
  __asm__ volatile("ld.shared.v2.f32 {%0,%1}, [%2];" : "=f"(x[0]), "=f"(x[1]) : "r"(at) : "memory");
}
INL void load_shared4(u32 x[4], u32 at) {
  __asm__ volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];"
                   : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                   : "r"(at)
                   : "memory");
}

/* ---- arithmetic -------------------------------------------------------------------------------------------------- */

/* C += A B, 16 x 8 x 16, sums in f32. `bf16`: else f16. */
INL void multiply_add(i32 bf16, float c[4], const u32 a[4], u32 b0, u32 b1) {
  if (bf16)
    __asm__("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    __asm__("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Two floats as bf16 or f16, round to nearest even, `low` in the low half. */
INL u32 pack(i32 bf16, float low, float high) {
  u32 r;
  if (bf16)
    __asm__("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  else
    __asm__("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
/* The float of 16 bits. */
INL float widen(i32 bf16, u32 x) {
  float r;
  if (bf16) return __builtin_bit_cast(float, x << 16);
  __asm__("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"((u16)x));
  return r;
}

/* PTX's approximations: at most 2 ulp; subnormals count as 0; 2^-inf is 0. */
INL float exp2_of(float x) {
  float r;
  __asm__("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
INL float log2_of(float x) {
  float r;
  __asm__("lg2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
INL float reciprocal(float x) {
  float r;
  __asm__("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
INL float greater(float a, float b) { return __builtin_fmaxf(a, b); } /* of a NaN and a number, the number */
INL float multiply_plus(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
INL float infinity(void) { return __builtin_inff(); }

/* keep ? a : b. Written in C, the back end turns a select by (c1 && c2) with a single use into two selects; ptxas folds
 * this form into the last comparison and one select. */
INL float choose(_Bool keep, float a, float b) {
  float r;
  __asm__("{.reg .pred p; setp.ne.u32 p, %1, 0; selp.f32 %0, %2, %3, p;}" : "=f"(r) : "r"((u32)keep), "f"(a), "f"(b));
  return r;
}

/* ---- across a warp ----------------------------------------------------------------------------------------------- */

INL float exchange(float x, i32 mask) { /* of lane ^ mask */
  return __builtin_bit_cast(float, __nvvm_shfl_sync_bfly_i32(-1, __builtin_bit_cast(i32, x), mask, 31));
}
INL i32 of_lane(i32 x, i32 lane) { return __nvvm_shfl_sync_idx_i32(-1, x, lane, 31); }
INL float of_lane_f(float x, i32 lane) { return __builtin_bit_cast(float, of_lane(__builtin_bit_cast(i32, x), lane)); }
/* Bit l: whether lane l says so. */
INL u32 ballot(_Bool x) {
  u32 r;
  __asm__ volatile("{.reg .pred p; setp.ne.u32 p, %1, 0; vote.sync.ballot.b32 %0, p, -1;}" : "=r"(r) : "r"((u32)x));
  return r;
}
/* Over the four lanes that share a row of C. */
INL float row_max(float x) {
  x = greater(x, exchange(x, 1));
  return greater(x, exchange(x, 2));
}
INL float row_sum(float x) {
  x += exchange(x, 1);
  return x + exchange(x, 2);
}

#endif
