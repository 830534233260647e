/* startup.c: a program that compiles its masks when it starts, in parallel. The first start runs clang for each;
 * every later one takes them from the cache. Here both happen in one run, on a cache directory of its own.
 *
 * Usage: startup MASK.c... */
#include <flymask/flymask.h>
#include <ftw.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef struct job {
  const char *path, *cache;
  fly_mask *mask;
  fly_kernel *kernel;
  fly_error error;
  double ms;
  pthread_t thread;
} job;

static double now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

/* From the source to a kernel that can be called. */
static void *compile(void *context) {
  job *job = context;
  double start = now_ms();
  fly_compile_options options = {FLY_INIT(fly_compile_options), .cache = job->cache};
  fly_kernel_desc desc = {FLY_INIT(fly_kernel_desc), .type = FLY_F32, .head_dim = 64};
  if (fly_mask_compile_file(job->path, &options, &job->mask, &job->error) == FLY_OK)
    fly_kernel_create(job->mask, &desc, &job->kernel, &job->error);
  job->ms = now_ms() - start;
  return NULL;
}

/* Compiles all masks at once; how many failed. */
static int start_up(const char *title, int count, char **paths, const char *cache) {
  job *jobs = calloc((size_t)count, sizeof *jobs);
  int failed = 0, started = 0;
  if (!jobs) return count;
  double start = now_ms();
  for (; started < count; started++) {
    jobs[started].path = paths[started];
    jobs[started].cache = cache;
    if (pthread_create(&jobs[started].thread, NULL, compile, &jobs[started])) break;
  }
  for (int i = 0; i < started; i++) pthread_join(jobs[i].thread, NULL);
  printf("%s: %d masks in %.1f ms\n", title, started, now_ms() - start);
  for (int i = 0; i < started; i++) {
    job *job = &jobs[i];
    if (job->kernel) {
      printf("  %-40s %7.2f ms%s\n", job->path, job->ms, fly_mask_get_info(job->mask)->from_cache ? " (cache)" : "");
    } else {
      printf("  %s:%d:%d: %s\n", job->path, job->error.line, job->error.column, job->error.message);
      failed++;
    }
    fly_kernel_release(&job->kernel);
    fly_mask_release(&job->mask);
  }
  free(jobs);
  return failed + count - started;
}

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *walk) {
  (void)info, (void)kind, (void)walk;
  return remove(path);
}

int main(int argc, char **argv) {
  char cache[] = "/tmp/flymask-startup.XXXXXX";
  if (argc < 2) {
    fprintf(stderr, "usage: %s MASK.c...\n", argv[0]);
    return 2;
  }
  if (!mkdtemp(cache)) {
    perror(cache);
    return 1;
  }
  int failed = start_up("first start", argc - 1, argv + 1, cache);
  failed += start_up("second start", argc - 1, argv + 1, cache);
  nftw(cache, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
  return failed != 0;
}
