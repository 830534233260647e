/* peak.c: how many GFLOP/s this machine's vector units reach: the measure that `bench` holds kernels against. */
#include <omp.h>
#include <string.h>
#include <time.h>

#include "cli.h"

#define DECLARE_ISA(suffix)                                                                                            \
  float cli_peak_##suffix(int64_t rounds, float factor, float term);                                                   \
  double cli_peak_flops_##suffix(void);
#if defined __aarch64__
DECLARE_ISA(aarch64)
#else
DECLARE_ISA(x86_64)
DECLARE_ISA(x86_64_v3)
DECLARE_ISA(x86_64_v4)
DECLARE_ISA(x86_64_v4_bf16)
#endif

typedef struct peak_isa {
  const char *target, *kind;
  float (*run)(int64_t rounds, float factor, float term);
  double (*flops)(void);
} peak_isa;

#if defined __aarch64__
static const peak_isa isas[] = {{"aarch64", "f32 fma, 128-bit", cli_peak_aarch64, cli_peak_flops_aarch64}};

static const peak_isa *widest(fly_type type) {
  (void)type;
  return isas;
}
#else
static const peak_isa dots = {"x86-64-v4-bf16", "bf16 dot, 512-bit", cli_peak_x86_64_v4_bf16,
                              cli_peak_flops_x86_64_v4_bf16};
static const peak_isa isas[] = {
    {"x86-64-v4", "f32 fma, 512-bit", cli_peak_x86_64_v4, cli_peak_flops_x86_64_v4},
    {"x86-64-v3", "f32 fma, 256-bit", cli_peak_x86_64_v3, cli_peak_flops_x86_64_v3},
    {"x86-64", "f32 multiply and add, 128-bit", cli_peak_x86_64, cli_peak_flops_x86_64},
};
enum { ISA_COUNT = sizeof isas / sizeof *isas };

/* What kernels for tensors of `type` multiply with. */
static const peak_isa *widest(fly_type type) {
  const char *best = fly_cpu_targets()[0];
  if (strcmp(best, dots.target) == 0) {
    if (type == FLY_BF16) return &dots;
    best = fly_cpu_targets()[1];
  }
  for (int i = 0; i < ISA_COUNT; i++)
    if (strcmp(isas[i].target, best) == 0) return &isas[i];
  return &isas[ISA_COUNT - 1];
}
#endif

const char *peak_kind(fly_type type) { return widest(type)->kind; }

/* All threads start together and run for about the same time; the rate is all their flops over the time of the
 * slowest. */
static double measure_rounds(const peak_isa *isa, int threads, int64_t rounds) {
  float sums = 0;
  double start = 0, end = 0;
  int team = 1;
#pragma omp parallel num_threads(threads) reduction(+ : sums)
  {
#pragma omp single
    {
      team = omp_get_num_threads();
      start = now_ms();
    }
    sums += isa->run(rounds, 0.999f, 0.001f);
#pragma omp barrier
#pragma omp single
    end = now_ms();
  }
  volatile float keep = sums;
  (void)keep;
  return end > start ? isa->flops() * (double)rounds * team / (end - start) * 1e-6 : 0;
}

static double thread_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

/* How many rounds take `ms` on one thread, by its own time: what else runs on the machine does not shorten the
 * measurement. */
static int64_t rounds_for(const peak_isa *isa, double ms) {
  for (int64_t rounds = 10000;; rounds *= 2) {
    double start = thread_ms();
    volatile float keep = isa->run(rounds, 0.999f, 0.001f);
    (void)keep;
    double elapsed = thread_ms() - start;
    if (elapsed >= ms / 8) return (int64_t)((double)rounds * ms / elapsed) + 1;
  }
}

double peak_measure(fly_type type, int threads, double ms) {
  const peak_isa *isa = widest(type);
  return measure_rounds(isa, threads, rounds_for(isa, ms));
}
