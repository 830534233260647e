// CUDA C kernels whose PTX, as nvcc makes it, is kept beside: an independent source of PTX for the simulated driver.
//   nvcc -arch=sm_80 -ptx kernels.cu -o kernels.ptx
#include <cuda_bf16.h>
#include <cuda_fp16.h>

extern "C" __global__ void saxpy(int n, float a, const float *x, float *y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}

// One sum a block: shuffles within warps, shared memory between them.
extern "C" __global__ void reduce(int n, const float *x, float *sums) {
  __shared__ float part[32];
  float sum = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += x[i];
  for (int m = 16; m; m >>= 1) sum += __shfl_xor_sync(~0u, sum, m);
  if ((threadIdx.x & 31) == 0) part[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x < 32) {
    sum = threadIdx.x < blockDim.x / 32 ? part[threadIdx.x] : 0;
    for (int m = 16; m; m >>= 1) sum += __shfl_down_sync(~0u, sum, m);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
  }
}

// 256 bins: shared counters a block, then global ones.
extern "C" __global__ void histogram(int n, const unsigned char *x, unsigned *bins) {
  __shared__ unsigned mine[256];
  for (int i = threadIdx.x; i < 256; i += blockDim.x) mine[i] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&mine[x[i]], 1u);
  __syncthreads();
  for (int i = threadIdx.x; i < 256; i += blockDim.x) atomicAdd(&bins[i], mine[i]);
}

// C = A B^T in bf16 with f32 sums: 64 x 64 a block of 4 warps, k in steps of 32, double buffered with cp.async.
__device__ __forceinline__ unsigned address(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void copy16(unsigned to, const void *from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
extern "C" __global__ void __launch_bounds__(128) matmul(int n, int k, const __nv_bfloat16 *a, const __nv_bfloat16 *b, float *c) {
  __shared__ __align__(128) __nv_bfloat16 sa[2][64][40], sb[2][64][40];
  int lane = threadIdx.x & 31, warp = threadIdx.x / 32, row0 = blockIdx.y * 64, col0 = blockIdx.x * 64;
  float sum[8][4] = {};
  auto fetch = [&](int stage, int k0) {
    for (int i = threadIdx.x; i < 64 * 4; i += 128) {
      int r = i / 4, ch = i % 4 * 8;
      copy16(address(&sa[stage][r][ch]), &a[(row0 + r) * k + k0 + ch]);
      copy16(address(&sb[stage][r][ch]), &b[(col0 + r) * k + k0 + ch]);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  fetch(0, 0);
  for (int t = 0; t < k / 32; t++) {
    if (t + 1 < k / 32) {
      fetch((t + 1) & 1, (t + 1) * 32);
      asm volatile("cp.async.wait_group 1;" ::: "memory");
    } else {
      asm volatile("cp.async.wait_group 0;" ::: "memory");
    }
    __syncthreads();
    for (int kk = 0; kk < 32; kk += 16) {
      unsigned f[4], g[4];
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                   : "=r"(f[0]), "=r"(f[1]), "=r"(f[2]), "=r"(f[3])
                   : "r"(address(&sa[t & 1][warp * 16 + (lane & 15)][kk + (lane >> 4) * 8])) : "memory");
      for (int j = 0; j < 8; j += 2) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(g[0]), "=r"(g[1]), "=r"(g[2]), "=r"(g[3])
                     : "r"(address(&sb[t & 1][j * 8 + (lane & 7) + (lane >> 4) * 8][kk + (lane >> 3 & 1) * 8])) : "memory");
        for (int h = 0; h < 2; h++)
          asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                       : "+f"(sum[j + h][0]), "+f"(sum[j + h][1]), "+f"(sum[j + h][2]), "+f"(sum[j + h][3])
                       : "r"(f[0]), "r"(f[1]), "r"(f[2]), "r"(f[3]), "r"(g[2 * h]), "r"(g[2 * h + 1]));
      }
    }
    __syncthreads();
  }
  for (int j = 0; j < 8; j++)
    for (int i = 0; i < 4; i++) c[(row0 + warp * 16 + lane / 4 + 8 * (i >> 1)) * n + col0 + j * 8 + (lane & 3) * 2 + (i & 1)] = sum[j][i];
}

// A struct by value, calls that are not inlined, constant memory, a switch, local arrays, 64-bit and double arithmetic.
struct options {
  long long scale;
  int table[4];
  double bias;
};
__constant__ int primes[8] = {2, 3, 5, 7, 11, 13, 17, 19};
__device__ float tally[2];
__noinline__ __device__ double polynomial(double x, int terms) {
  double y = 0;
  for (int i = 0; i < terms; i++) y = y * x + primes[i & 7];
  return y;
}
extern "C" __global__ void mixed(options o, int n, const int *x, long long *y, double *z) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int local[8];
  for (int j = 0; j < 8; j++) local[j] = x[i] * j + o.table[j & 3];
  int v = x[i], pick = local[(v & 7)];
  switch (v % 6) {
  case 0: pick += 100; break;
  case 1: pick *= 3; break;
  case 2: pick = pick / 7 - 5; break;
  case 3: pick ^= 0x55; break;
  case 4: pick = pick % 11; break;
  case 5: pick = __popc(pick) + __clz(pick); break;
  default: pick = -pick;
  }
  y[i] = o.scale * pick / (v * v + 1LL);
  z[i] = polynomial(v * 0.125, 5) / (1 + v * v) + o.bias + sqrt((double)(v * v));
  if (v > 0) atomicAdd(&tally[0], 1.0f);
}

// Halves, packed halves and the math that nvcc expands.
extern "C" __global__ void halves(int n, const __half *x, const __half2 *p, __half *y, __half2 *q, float *z) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  y[i] = __hfma(x[i], x[i], __float2half(0.5f));
  q[i] = __hmax2(__hadd2(p[i], p[i]), __hmul2(p[i], p[i]));
  float f = __half2float(x[i]);
  z[i] = expf(-f * f) + logf(1 + f * f) + sinf(f) * cosf(f) + f / (1 + fabsf(f)) + tanhf(f);
}
