/* gpu_bench.c: times kernels from images on CUDA device 0, with libflymask_runtime alone. Output: a JSON array,
 * one object a setting, which gpu_peers.py reads.
 *
 *     gpu_bench IMAGES [--rehearse] > flymask.json
 *
 * A figure is the median of measurements of at least 10 ms each, from the first launch to the end of the last;
 * block maps are at hand. Flops are 2 (D + DV) a visible pair forward, 6 D + 4 DV backward. --rehearse runs the
 * smallest sizes, once. */
#include <flymask/flymask.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MEASUREMENTS = 15, HEADS = 16, SIDE = 128, WINDOW = 1024, MOST_MEMORY = 10 };

static const char *const mask_names[] = {"causal", "sliding_window", "document", "stochastic"};

typedef struct setting {
  const char *mask;
  int window; /* of sliding_window: positions back, itself included */
  int dim, batch, heads, length;
} setting;

typedef struct bench {
  const char *images;
  bool rehearse, first;
  fly_cuda *cuda;
} bench;

static int fail(const fly_error *error) {
  fprintf(stderr, "gpu_bench: %s\n", error->message);
  return 1;
}

static double now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* ---- objects ----------------------------------------------------------------------------------------------------- */

static fly_status load(const char *folder, const char *mask, int dim, fly_kernel **out, fly_error *error) {
  char path[512];
  *out = NULL;
  snprintf(path, sizeof path, "%s/bench.%s.bf16.%d.image", folder, mask, dim);
  FILE *file = fopen(path, "rb");
  long size = -1;
  if (file && fseek(file, 0, SEEK_END) == 0) size = ftell(file);
  uint8_t *bytes = size > 0 ? malloc((size_t)size) : NULL;
  if (!bytes || fseek(file, 0, SEEK_SET) || fread(bytes, 1, (size_t)size, file) != (size_t)size) {
    *error = (fly_error){.status = FLY_ERROR_IO};
    snprintf(error->message, sizeof error->message, "%s cannot be read", path);
  } else {
    *error = (fly_error){0};
    if (fly_kernel_load(bytes, (size_t)size, out, error)) *out = NULL;
  }
  free(bytes);
  if (file) fclose(file);
  return *out ? FLY_OK : error->status;
}

/* Documents of uneven lengths, the same as in gpu_peers.py: 100, 700, 300, 1500, 50, 1000, 100, ... */
static fly_status documents(int length, fly_buffer **out, fly_error *error) {
  static const int lengths[] = {100, 700, 300, 1500, 50, 1000};
  int32_t *ids = malloc((size_t)length * sizeof *ids);
  int64_t shape[] = {length};
  for (int i = 0, d = 0, left = lengths[0]; ids && i < length; i++, left--) {
    if (left == 0) left = lengths[++d % 6];
    ids[i] = d;
  }
  fly_status status = fly_buffer_create(FLY_I32, 1, shape, ids, out, error);
  free(ids);
  return status;
}

/* What a call is over: a map, or for stochastic attention a fly_sa that has one. */
typedef struct domain {
  fly_bound *bound;
  fly_map *map;
  fly_sa *sa;
} domain;

static fly_status make_domain(const setting *s, const fly_kernel *kernel, fly_attention *call, domain *d,
                              fly_error *error) {
  fly_mask *mask = fly_kernel_mask(kernel);
  fly_buffer *doc = NULL;
  fly_arg args[2];
  int count = 0;
  fly_status status = FLY_OK;
  *d = (domain){0};
  if (strcmp(s->mask, "stochastic") == 0) {
    fly_sa_desc desc = {FLY_INIT(fly_sa_desc), .left = SIDE, .right = SIDE, .batch = s->batch, .heads = s->heads};
    desc.length = s->length, desc.seed = 1;
    if (!(status = fly_sa_create(mask, &desc, &d->sa, error))) status = fly_sa_apply(d->sa, call, error);
    return status;
  }
  call->geometry = (fly_geometry){FLY_INIT(fly_geometry), .batch = s->batch, .heads = s->heads};
  call->geometry.len_q = call->geometry.len_kv = s->length;
  if (s->window) args[count++] = FLY_INT("left", s->window - 1), args[count++] = FLY_INT("right", 0);
  if (strcmp(s->mask, "document") == 0) {
    if ((status = documents(s->length, &doc, error))) return status;
    args[count++] = FLY_CAPTURE("doc", doc);
  }
  status = fly_mask_bind(mask, args, count, &d->bound, error);
  if (!status) status = fly_map_build(d->bound, &call->geometry, NULL, &d->map, error);
  fly_buffer_release(&doc);
  call->bound = d->bound, call->map = d->map;
  return status;
}

/* Random tensors of the device: q, k, v, d_out in the range in which softmax does something; the rest is written. */
static fly_status make_tensors(bench *b, const setting *s, fly_attention *call, void *memory[MOST_MEMORY],
                               fly_error *error) {
  fly_tensor *all[] = {&call->q, &call->k, &call->v, &call->d_out, &call->out, &call->d_q, &call->d_k, &call->d_v};
  size_t count = (size_t)s->batch * (size_t)s->heads * (size_t)s->length * (size_t)s->dim;
  uint16_t *values = malloc(count * sizeof *values);
  fly_status status = values ? FLY_OK : FLY_ERROR_MEMORY;
  if (!values) snprintf(error->message, sizeof error->message, "out of memory");
  uint32_t state = 1;
  for (size_t i = 0; values && i < count; i++) {
    state = state * 1664525u + 1013904223u;
    float x = (float)(int32_t)state * 0x1p-31f * 1.7f; /* uniform, deviation 1 */
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    values[i] = (uint16_t)(bits >> 16);
  }
  for (int i = 0; !status && i < 8; i++) {
    status = fly_cuda_alloc(b->cuda, count * 2, &memory[i], error);
    if (!status && i < 4) status = fly_cuda_write(b->cuda, memory[i], values, count * 2, NULL, error);
    *all[i] = fly_tensor_dense(memory[i], FLY_BF16, s->batch, s->heads, s->length, s->dim);
  }
  if (!status) status = fly_cuda_alloc(b->cuda, count / (size_t)s->dim * 4, &memory[8], error);
  call->lse = fly_tensor_dense(memory[8], FLY_F32, s->batch, s->heads, s->length, 1);
  free(values);
  return status;
}

/* Kept from call to call, as a caller would. */
static fly_status make_workspace(bench *b, fly_attention *call, void **memory, fly_error *error) {
  size_t bytes;
  fly_status status = fly_attention_backward_workspace(call, &bytes, error);
  if (!status) status = fly_cuda_alloc(b->cuda, bytes, memory, error);
  if (!status) call->workspace = *memory, call->workspace_size = bytes;
  return status;
}

/* ---- measuring --------------------------------------------------------------------------------------------------- */

typedef fly_status direction(const fly_attention *call, fly_error *error);

static fly_status run_calls(const bench *b, direction *run, const fly_attention *call, int calls, double *ms,
                            fly_error *error) {
  fly_status status = FLY_OK;
  double start = now_ms();
  for (int i = 0; !status && i < calls; i++) status = run(call, error);
  if (!status) status = fly_cuda_synchronize(b->cuda, NULL, error);
  *ms = (now_ms() - start) / calls;
  return status;
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static fly_status measure(const bench *b, direction *run, const fly_attention *call, double *median, fly_error *error) {
  double ms[MEASUREMENTS];
  fly_status status = run_calls(b, run, call, 1, &ms[0], error); /* loads code, copies maps */
  *median = ms[0];
  if (status || b->rehearse || (status = run_calls(b, run, call, 3, &ms[0], error))) return status;
  int calls = ms[0] < 10 ? 1 + (int)(10 / ms[0]) : 1;
  for (int i = 0; !status && i < MEASUREMENTS; i++) status = run_calls(b, run, call, calls, &ms[i], error);
  qsort(ms, MEASUREMENTS, sizeof *ms, by_value);
  *median = ms[MEASUREMENTS / 2];
  return status;
}

static void print(bench *b, const setting *s, int64_t pairs, double forward, double backward) {
  double flops = (double)pairs * s->dim * 1e-9; /* per millisecond: in TFLOP/s */
  printf("%s  {\"mask\": \"%s\", \"window\": %d, \"dim\": %d, \"batch\": %d, \"heads\": %d, \"length\": %d, "
         "\"pairs\": %lld, \"forward_ms\": %.5f, \"backward_ms\": %.5f, \"forward_tflops\": %.3f, "
         "\"backward_tflops\": %.3f}",
         b->first ? "" : ",\n", s->mask, s->window, s->dim, s->batch, s->heads, s->length, (long long)pairs, forward,
         backward, 4 * flops / forward, 10 * flops / backward);
  fflush(stdout);
  b->first = false;
}

static fly_status run_setting(bench *b, const setting *s, fly_error *error) {
  fly_kernel *kernel = NULL;
  domain d = {0};
  void *memory[MOST_MEMORY] = {0};
  fly_attention call = {FLY_INIT(fly_attention), .cuda = b->cuda};
  double forward = 0, backward = 0;
  int64_t pairs = 0;
  fly_status status = load(b->images, s->mask, s->dim, &kernel, error);
  call.kernel = kernel;
  if (!status) status = make_domain(s, kernel, &call, &d, error);
  if (!status) status = fly_map_visible_pairs(call.map, &pairs, error);
  if (!status) status = make_tensors(b, s, &call, memory, error);
  if (!status) status = make_workspace(b, &call, &memory[MOST_MEMORY - 1], error);
  if (!status) status = measure(b, fly_attention_forward, &call, &forward, error);
  if (!status) status = measure(b, fly_attention_backward, &call, &backward, error);
  if (!status) print(b, s, pairs, forward, backward);
  for (int i = 0; i < MOST_MEMORY; i++) fly_cuda_free(b->cuda, &memory[i]);
  fly_sa_release(&d.sa);
  fly_map_release(&d.map);
  fly_bound_release(&d.bound);
  fly_kernel_release(&kernel);
  return status;
}

/* ---- settings ---------------------------------------------------------------------------------------------------- */

/* 16,384 tokens in all, as attention benchmarks usually have; then those of arXiv 2604.00754: batch and heads 16,
 * windows of 256, 2,048 to 32,768 tokens. */
static fly_status run_all(bench *b, fly_error *error) {
  fly_status status = FLY_OK;
  for (int m = 0; m < 4 && !status; m++)
    for (int dim = 64; dim <= 128 && !status; dim *= 2)
      for (int n = 2048; n <= 16384 && !status; n *= 2) {
        setting s = {mask_names[m], m == 1 ? WINDOW : 0, dim, 16384 / n, HEADS, n};
        if (b->rehearse) s.batch = 1, s.heads = 2, s.length = 256;
        status = run_setting(b, &s, error);
        if (b->rehearse) break;
      }
  for (int m = 0; m < 4 && !status && !b->rehearse; m++)
    for (int n = 2048; m != 2 && n <= 32768 && !status; n *= 2)
      status = run_setting(b, &(setting){mask_names[m], m == 1 ? 2 * SIDE : 0, 64, 16, HEADS, n}, error);
  return status;
}

int main(int argc, char **argv) {
  bench b = {.first = true};
  fly_error error;
  if (argc < 2 || argc > 3 || (argc == 3 && strcmp(argv[2], "--rehearse") != 0)) {
    fprintf(stderr, "usage: gpu_bench IMAGES [--rehearse]\n");
    return 2;
  }
  b.images = argv[1], b.rehearse = argc == 3;
  if (fly_cuda_create(&(fly_cuda_desc){FLY_INIT(fly_cuda_desc), .primary = true}, &b.cuda, &error)) return fail(&error);
  printf("[\n");
  fly_status status = run_all(&b, &error);
  printf("\n]\n");
  fly_cuda_release(&b.cuda);
  return status ? fail(&error) : 0;
}
