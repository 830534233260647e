/* test_kernels.c: kernels that nvcc compiled run as CUDA C says: results against plain C. */
#include <math.h>

#include "gpu.h"

static char *ptx;
static void start(void) {
  gpu_start();
  ptx = gpu_file("kernels.ptx");
}
static void stop(void) {
  free(ptx);
  gpu_stop();
}
static float small_float(uint64_t *seed) { return (float)((int64_t)(gpu_random(seed) >> 40) - (1 << 23)) / (1 << 20); }

START_TEST(saxpy_computes_every_element_and_no_other) {
  enum { N = 1000 };
  uint64_t seed = 1;
  int n = N;
  float a = 1.5f, x[N], y[N], r[N];
  for (int i = 0; i < N; i++) x[i] = small_float(&seed), y[i] = small_float(&seed);
  CUdeviceptr dx = gpu_new(x, sizeof x), dy = gpu_new(y, sizeof y);
  void *params[] = {&n, &a, &dx, &dy};
  ck_cu(gpu_launch(ptx, "saxpy", 8, 128, 0, params));
  gpu_read(r, dy, sizeof r);
  for (int i = 0; i < N; i++) ck_assert_float_eq(r[i], fmaf(a, x[i], y[i]));
  gpu_free(dx);
  gpu_free(dy);
}
END_TEST

START_TEST(reduction_over_shared_memory_and_shuffles_sums) {
  enum { N = 5000, BLOCKS = 3 };
  static float x[N];
  float sums[BLOCKS];
  int n = N;
  double want = 0;
  for (int i = 0; i < N; i++) want += x[i] = (float)((i * 37) % 101); /* integers: exact in any order */
  CUdeviceptr dx = gpu_new(x, sizeof x), ds = gpu_new(NULL, sizeof sums);
  void *params[] = {&n, &dx, &ds};
  ck_cu(gpu_launch(ptx, "reduce", BLOCKS, 256, 0, params));
  gpu_read(sums, ds, sizeof sums);
  ck_assert_double_eq((double)sums[0] + sums[1] + sums[2], want);
  gpu_free(dx);
  gpu_free(ds);
}
END_TEST

START_TEST(histogram_counts_with_shared_and_global_atomics) {
  enum { N = 10000 };
  static unsigned char x[N];
  unsigned want[256] = {0}, bins[256] = {0};
  uint64_t seed = 5;
  int n = N;
  for (int i = 0; i < N; i++) want[x[i] = (unsigned char)(gpu_random(&seed) >> 33 & gpu_random(&seed) >> 50)]++;
  CUdeviceptr dx = gpu_new(x, sizeof x), db = gpu_new(bins, sizeof bins);
  void *params[] = {&n, &dx, &db};
  ck_cu(gpu_launch(ptx, "histogram", 5, 192, 0, params));
  gpu_read(bins, db, sizeof bins);
  ck_assert_mem_eq(bins, want, sizeof want);
  gpu_free(dx);
  gpu_free(db);
}
END_TEST

static float bf16(uint16_t h) {
  uint32_t bits = (uint32_t)h << 16;
  float x;
  memcpy(&x, &bits, 4);
  return x;
}

/* _i: eager, late, random copies */
START_TEST(matmul_with_mma_and_double_buffered_copies) {
  enum { N = 128, K = 160 };
  static uint16_t a[N * K], b[N * K];
  static float c[N * N];
  uint64_t seed = 9;
  int n = N, k = K;
  simcuda_config config;
  simcuda_get_config(&config);
  config.copies = _i;
  config.seed = 77;
  simcuda_set_config(&config);
  for (int i = 0; i < N * K; i++) { /* any bf16 of a moderate exponent */
    a[i] = (uint16_t)(0x3f00 + (gpu_random(&seed) >> 40 & 0x80ff));
    b[i] = (uint16_t)(0x3f00 + (gpu_random(&seed) >> 40 & 0x80ff));
  }
  CUdeviceptr da = gpu_new(a, sizeof a), db = gpu_new(b, sizeof b), dc = gpu_new(NULL, sizeof c);
  void *params[] = {&n, &k, &da, &db, &dc};
  ck_cu(gpu_launch2(ptx, "matmul", N / 64, N / 64, 128, 0, params));
  gpu_read(c, dc, sizeof c);
  for (int i = 0; i < N; i++)
    for (int j = 0; j < N; j++) {
      double want = 0, size = 0;
      for (int t = 0; t < K; t++) {
        double p = (double)bf16(a[i * K + t]) * bf16(b[j * K + t]);
        want += p;
        size += fabs(p);
      }
      ck_assert_double_eq_tol(c[i * N + j], want, size * 0x1p-20);
    }
  gpu_free(da);
  gpu_free(db);
  gpu_free(dc);
}
END_TEST

typedef struct options {
  long long scale;
  int table[4];
  double bias;
} options;

START_TEST(calls_structs_switches_and_wide_arithmetic) {
  enum { N = 300 };
  static const int primes[8] = {2, 3, 5, 7, 11, 13, 17, 19};
  int n = N, x[N];
  long long y[N];
  double z[N];
  options o = {123456789012LL, {3, -1, 4, 1000}, 0.25};
  for (int i = 0; i < N; i++) x[i] = i * 7 - 900;
  CUdeviceptr dx = gpu_new(x, sizeof x), dy = gpu_new(NULL, sizeof y), dz = gpu_new(NULL, sizeof z);
  void *params[] = {&o, &n, &dx, &dy, &dz};
  ck_cu(gpu_launch(ptx, "mixed", 3, 128, 0, params));
  gpu_read(y, dy, sizeof y);
  gpu_read(z, dz, sizeof z);
  for (int i = 0; i < N; i++) {
    int v = x[i], pick = v * (v & 7) + o.table[v & 3];
    switch (v % 6) {
    case 0:
      pick += 100;
      break;
    case 1:
      pick *= 3;
      break;
    case 2:
      pick = pick / 7 - 5;
      break;
    case 3:
      pick ^= 0x55;
      break;
    case 4:
      pick %= 11;
      break;
    case 5:
      pick = __builtin_popcount((unsigned)pick) + (pick ? __builtin_clz((unsigned)pick) : 32);
      break;
    default:
      pick = -pick;
    }
    ck_assert_int_eq(y[i], o.scale * pick / (v * (long long)v + 1));
    double p = 0, t = v * 0.125;
    for (int k = 0; k < 5; k++) p = fma(p, t, primes[k]);
    ck_assert_double_eq_tol(z[i], p / (1 + v * v) + o.bias + sqrt((double)(v * v)), 1e-12 * (fabs(p) + 1000));
  }
  gpu_free(dx);
  gpu_free(dy);
  gpu_free(dz);
}
END_TEST

static double half(uint16_t h) {
  int e = h >> 10 & 31, m = h & 1023;
  double x = e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
  return h & 0x8000 ? -x : x;
}

START_TEST(half_arithmetic_and_expanded_functions) {
  enum { N = 200 };
  uint16_t x[N], p[2 * N], y[N], q[2 * N];
  float z[N];
  int n = N;
  uint64_t seed = 3;
  for (int i = 0; i < N; i++) x[i] = (uint16_t)(0x3000 + (gpu_random(&seed) >> 40) % 0x1200 + (i & 1 ? 0x8000 : 0));
  for (int i = 0; i < 2 * N; i++) p[i] = (uint16_t)(0x3000 + (gpu_random(&seed) >> 40) % 0x1200);
  CUdeviceptr dx = gpu_new(x, sizeof x), dp = gpu_new(p, sizeof p), dy = gpu_new(NULL, sizeof y),
              dq = gpu_new(NULL, sizeof q), dz = gpu_new(NULL, sizeof z);
  void *params[] = {&n, &dx, &dp, &dy, &dq, &dz};
  ck_cu(gpu_launch(ptx, "halves", 2, 128, 0, params));
  gpu_read(y, dy, sizeof y);
  gpu_read(q, dq, sizeof q);
  gpu_read(z, dz, sizeof z);
  for (int i = 0; i < N; i++) {
    double v = half(x[i]), want = v * v + 0.5;
    ck_assert_double_le(fabs(half(y[i]) - want), want * 0x1.01p-11);
    for (int h = 0; h < 2; h++) {
      double u = half(p[2 * i + h]), best = fmax(u + u, u * u);
      ck_assert_double_le(fabs(half(q[2 * i + h]) - best), best * 0x1.01p-11);
    }
    double f = exp(-v * v) + log(1 + v * v) + sin(v) * cos(v) + v / (1 + fabs(v)) + tanh(v);
    ck_assert_double_eq_tol(z[i], f, 4e-6);
  }
  CUdeviceptr all[] = {dx, dp, dy, dq, dz};
  for (int i = 0; i < 5; i++) gpu_free(all[i]);
}
END_TEST

static Suite *suite(void) {
  Suite *s = suite_create("simcuda.kernels");
  TCase *c = tcase_create("nvcc");
  tcase_add_checked_fixture(c, start, stop);
  tcase_add_test(c, saxpy_computes_every_element_and_no_other);
  tcase_add_test(c, reduction_over_shared_memory_and_shuffles_sums);
  tcase_add_test(c, histogram_counts_with_shared_and_global_atomics);
  tcase_add_loop_test(c, matmul_with_mma_and_double_buffered_copies, 0, 3);
  tcase_add_test(c, calls_structs_switches_and_wide_arithmetic);
  tcase_add_test(c, half_arithmetic_and_expanded_functions);
  suite_add_tcase(s, c);
  return s;
}
GPU_TEST_MAIN(suite)
