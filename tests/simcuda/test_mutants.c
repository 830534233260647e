/* test_mutants.c: in kernels that nvcc compiled each wait, commit, barrier and bounds check is removed in turn: every
 * mutant must be reported by the check that is there for it, whenever its asynchronous copies land. */
#include <stdio.h>

#include "gpu.h"

enum { N = 128, K = 160 };
typedef struct mutation {
  const char *kernel, *line, *by; /* instruction to remove; words that the report may contain, separated by | */
  int known_idle;                 /* how many of its places are on ways that these arguments do not take */
} mutation;
static const mutation mutations[] = {
    {"saxpy", "@%p1 bra", "out of bounds", 0},
    {"reduce", "bar.sync", "race|uninitialised shared", 0},
    {"histogram", "bar.sync", "race|uninitialised shared", 0},
    {"matmul", "bar.sync", "race|uninitialised shared|in flight", 0},
    {"matmul", "cp.async.wait_group", "in flight", 0},
    {"matmul", "cp.async.commit_group", "in flight", 0},
};
enum { MUTATIONS = sizeof mutations / sizeof mutations[0] };

static CUresult launch(const char *ptx, const char *kernel) {
  static uint16_t half[N * K];
  static unsigned char bytes[4096];
  int n = 1000, size = N, depth = K;
  float scale = 2;
  for (int i = 0; i < N * K; i++) half[i] = 0x3f80;
  CUdeviceptr a = gpu_new(half, sizeof half), b = gpu_new(half, sizeof half), c = gpu_new(NULL, N * N * 4),
              x = gpu_new(bytes, 4000), y = gpu_new(bytes, 4000);
  void *saxpy[] = {&n, &scale, &x, &y}, *reduce[] = {&n, &x, &y}, *matmul[] = {&size, &depth, &a, &b, &c},
       *histogram[] = {&n, &x, &y};
  CUresult r = kernel[0] == 's'   ? gpu_launch(ptx, kernel, 4, 256, 0, saxpy)
               : kernel[0] == 'r' ? gpu_launch(ptx, kernel, 2, 128, 0, reduce)
               : kernel[0] == 'h' ? gpu_launch(ptx, kernel, 2, 128, 0, histogram)
                                  : gpu_launch2(ptx, kernel, N / 64, N / 64, 128, 0, matmul);
  CUdeviceptr all[] = {a, b, c, x, y};
  for (int k = 0; k < 5; k++) gpu_free(all[k]);
  return r;
}

static bool reported_by(const char *words) {
  char copy[100];
  snprintf(copy, sizeof copy, "%s", words);
  for (char *word = strtok(copy, "|"); word; word = strtok(NULL, "|"))
    if (strstr(simcuda_report(), word)) return true;
  return false;
}

/* Blanks the n-th place of the instruction within the kernel; false where there is none. */
static bool mutate(char *ptx, const mutation *m, int n) {
  char entry[60];
  snprintf(entry, sizeof entry, ".entry %s(", m->kernel);
  char *at = strstr(ptx, entry), *end = at ? strstr(at + 1, ".entry") : NULL;
  ck_assert(at != NULL);
  while ((at = strstr(at, m->line)) && (!end || at < end)) {
    if (n-- == 0) {
      while (*at != ';') *at++ = ' ';
      *at = ' ';
      return true;
    }
    at++;
  }
  return false;
}

START_TEST(a_removed_synchronisation_is_reported) { /* _i: mutation */
  const mutation *m = &mutations[_i];
  for (int copies = 0; copies < 3; copies++) {
    simcuda_config config;
    simcuda_get_config(&config);
    config.copies = copies;
    config.seed = copies == SIMCUDA_RANDOM ? 4711 : 0;
    simcuda_set_config(&config);
    char *ptx = gpu_file("kernels.ptx");
    CUresult sound = launch(ptx, m->kernel);
    ck_assert_msg(sound == CUDA_SUCCESS, "%s: %s", m->kernel, simcuda_report());
    int places = 0, idle = 0;
    for (;; places++) {
      char *mutant = gpu_file("kernels.ptx");
      bool there = mutate(mutant, m, places);
      if (there) {
        CUresult r = launch(mutant, m->kernel);
        if (r == CUDA_SUCCESS)
          idle++;
        else
          ck_assert_msg(reported_by(m->by), "%s without '%s' %d: %d %s", m->kernel, m->line, places, r,
                        simcuda_report());
      }
      free(mutant);
      if (!there) break;
    }
    ck_assert_int_gt(places, 0);
    ck_assert_msg(idle == m->known_idle, "%s without '%s': %d of %d mutants pass unnoticed", m->kernel, m->line, idle,
                  places);
    free(ptx);
  }
}
END_TEST

static Suite *suite(void) {
  Suite *s = suite_create("simcuda.mutants");
  TCase *c = tcase_create("mutants");
  tcase_add_checked_fixture(c, gpu_start, gpu_stop);
  tcase_add_loop_test(c, a_removed_synchronisation_is_reported, 0, MUTATIONS);
  suite_add_tcase(s, c);
  return s;
}
GPU_TEST_MAIN(suite)
