/* gpu_bench.c: times kernels from images on CUDA device 0, with libflymask_runtime alone. Output: JSON, the device and
 * an object for each setting, which gpu_peers.py reads.
 *
 *     gpu_bench --device                             one line about the device, or why there is none
 *     gpu_bench IMAGES [--rehearse] > flymask.json
 *
 * IMAGES/target names what the images are compiled for ("kernels" of the JSON, beside "target", the device's own).
 *
 * A figure is the median of measurements of at least 10 ms each, from the first launch to the end of the last; block
 * maps are at hand, and MoBA's blocks are chosen before ("choice_ms": once, with what is made of the choice). Flops are
 * 2 (D + DV) a visible pair forward, 6 D + 4 DV backward. A setting for which the device has too little memory is left
 * out, with a word; one that fails otherwise too, and the bench ends with 1. --rehearse runs the smallest sizes,
 * once. */
#include <flymask/flymask.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MEASUREMENTS = 15, HEADS = 16, SIDE = 128, WINDOW = 1024, BLOCK = 512, TOP = 3, TENSORS = 8 };

typedef enum kind { CAUSAL, WINDOWED, DOCUMENTS, STOCHASTIC, MOBA, KINDS } kind;
static const char *const names[] = {"causal", "sliding_window", "document", "stochastic", "moba"};
static const char *const masks[] = {"causal", "sliding_window", "document", "stochastic", "selected_tiles"};

typedef struct setting {
  kind kind;
  int window; /* of a sliding window: positions back, itself included */
  int block;  /* of MoBA */
  int dim, batch, heads, length;
} setting;

typedef struct bench {
  const char *images;
  bool rehearse, first, failed;
  fly_cuda *cuda;
} bench;

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

/* A call, and what it is over: a map, a fly_sa that has one, or selected blocks. */
typedef struct workload {
  fly_attention call;
  fly_kernel *kernel;
  fly_bound *bound;
  fly_map *map;
  fly_sa *sa;
  fly_selection *selection;
  double choice_ms;
  uint16_t *values; /* of the host, for q, k, v and d_out: each begins an element behind the one before */
  void *memory[TENSORS + 2];
} workload;

static fly_status bind_stochastic(const setting *s, workload *w, fly_error *error) {
  fly_sa_desc desc = {FLY_INIT(fly_sa_desc), .left = SIDE, .right = SIDE, .batch = s->batch, .heads = s->heads};
  desc.length = s->length, desc.seed = 1;
  fly_status status = fly_sa_create(fly_kernel_mask(w->kernel), &desc, &w->sa, error);
  return status ? status : fly_sa_apply(w->sa, &w->call, error);
}

static fly_status choose_blocks(const setting *s, workload *w, fly_error *error) {
  fly_moba_desc desc = {FLY_INIT(fly_moba_desc), .block = s->block, .top = TOP,
                        .q = w->call.q,          .k = w->call.k,    .cuda = w->call.cuda};
  double start = now_ms();
  fly_status status = fly_moba_select(fly_kernel_mask(w->kernel), &desc, &w->selection, error);
  w->choice_ms = now_ms() - start;
  return status;
}

static fly_status bind_mask(const setting *s, workload *w, fly_error *error) {
  fly_attention *call = &w->call;
  fly_buffer *doc = NULL;
  fly_arg args[2];
  int count = 0;
  fly_status status = FLY_OK;
  call->geometry = (fly_geometry){FLY_INIT(fly_geometry), .batch = s->batch, .heads = s->heads};
  call->geometry.len_q = call->geometry.len_kv = s->length;
  if (s->window) args[count++] = FLY_INT("left", s->window - 1), args[count++] = FLY_INT("right", 0);
  if (s->kind == DOCUMENTS) {
    if ((status = documents(s->length, &doc, error))) return status;
    args[count++] = FLY_CAPTURE("doc", doc);
  }
  status = fly_mask_bind(fly_kernel_mask(w->kernel), args, count, &w->bound, error);
  if (!status) status = fly_map_build(w->bound, &call->geometry, NULL, &w->map, error);
  fly_buffer_release(&doc);
  call->bound = w->bound, call->map = w->map;
  return status;
}

static fly_status make_domain(const setting *s, workload *w, fly_error *error) {
  if (s->kind == STOCHASTIC) return bind_stochastic(s, w, error);
  if (s->kind == MOBA) return choose_blocks(s, w, error);
  return bind_mask(s, w, error);
}

static fly_status count_pairs(const workload *w, int64_t *pairs, fly_error *error) {
  fly_selection_info info = {.map = w->call.map};
  if (w->selection) fly_selection_get_info(w->selection, &info);
  return fly_map_visible_pairs(info.map, pairs, error);
}

static size_t elements(const setting *s) {
  return (size_t)s->batch * (size_t)s->heads * (size_t)s->length * (size_t)s->dim;
}

/* Uniform, deviation 1: in the range in which softmax does something. */
static fly_status draw(const setting *s, workload *w, fly_error *error) {
  size_t count = elements(s) + 4;
  w->values = malloc(count * sizeof *w->values);
  if (!w->values) {
    *error = (fly_error){.status = FLY_ERROR_MEMORY};
    snprintf(error->message, sizeof error->message, "out of memory: %zu bytes", count * sizeof *w->values);
    return FLY_ERROR_MEMORY;
  }
  uint32_t state = 1;
  for (size_t i = 0; i < count; i++) {
    state = state * 1664525u + 1013904223u;
    float x = (float)(int32_t)state * 0x1p-31f * 1.7f;
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    w->values[i] = (uint16_t)(bits >> 16);
  }
  return FLY_OK;
}

/* On the device: q, k, v, d_out with their values; the rest is written by calls. */
static fly_status make_tensors(bench *b, const setting *s, workload *w, fly_error *error) {
  fly_attention *c = &w->call;
  fly_tensor *all[TENSORS] = {&c->q, &c->k, &c->v, &c->d_out, &c->out, &c->d_q, &c->d_k, &c->d_v};
  size_t bytes = elements(s) * 2;
  fly_status status = FLY_OK;
  for (int i = 0; !status && i < TENSORS; i++) {
    status = fly_cuda_alloc(b->cuda, bytes, &w->memory[i], error);
    if (!status && i < 4) status = fly_cuda_write(b->cuda, w->memory[i], w->values + i, bytes, NULL, error);
    *all[i] = fly_tensor_dense(w->memory[i], FLY_BF16, s->batch, s->heads, s->length, s->dim);
  }
  if (!status) status = fly_cuda_alloc(b->cuda, elements(s) / (size_t)s->dim * 4, &w->memory[TENSORS], error);
  c->lse = fly_tensor_dense(w->memory[TENSORS], FLY_F32, s->batch, s->heads, s->length, 1);
  return status;
}

/* One for both directions, kept from call to call as a caller would. */
static fly_status make_workspace(bench *b, workload *w, fly_error *error) {
  fly_attention *c = &w->call;
  size_t forward = 0, backward = 0;
  fly_status status = w->selection ? fly_selection_workspace(w->selection, c, &forward, error)
                                   : fly_attention_workspace(c, &forward, error);
  if (!status)
    status = w->selection ? fly_selection_backward_workspace(w->selection, c, &backward, error)
                          : fly_attention_backward_workspace(c, &backward, error);
  if (forward > backward) backward = forward;
  if (!status) status = fly_cuda_alloc(b->cuda, backward, &w->memory[TENSORS + 1], error);
  if (!status) c->workspace = w->memory[TENSORS + 1], c->workspace_size = backward;
  return status;
}

/* ---- measuring --------------------------------------------------------------------------------------------------- */

static fly_status run(const workload *w, bool backward, fly_error *error) {
  if (w->selection)
    return backward ? fly_selection_backward(w->selection, &w->call, error)
                    : fly_selection_forward(w->selection, &w->call, error);
  return backward ? fly_attention_backward(&w->call, error) : fly_attention_forward(&w->call, error);
}

static fly_status run_calls(const bench *b, const workload *w, bool backward, int calls, double *ms, fly_error *error) {
  fly_status status = FLY_OK;
  double start = now_ms();
  for (int i = 0; !status && i < calls; i++) status = run(w, backward, error);
  if (!status) status = fly_cuda_synchronize(b->cuda, NULL, error);
  *ms = (now_ms() - start) / calls;
  return status;
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static fly_status measure(const bench *b, const workload *w, bool backward, double *median, fly_error *error) {
  double ms[MEASUREMENTS];
  fly_status status = run_calls(b, w, backward, 1, &ms[0], error); /* loads code, copies maps */
  *median = ms[0];
  if (status || b->rehearse || (status = run_calls(b, w, backward, 3, &ms[0], error))) return status;
  int calls = ms[0] < 10 ? 1 + (int)(10 / ms[0]) : 1;
  for (int i = 0; !status && i < MEASUREMENTS; i++) status = run_calls(b, w, backward, calls, &ms[i], error);
  if (status) return status;
  qsort(ms, MEASUREMENTS, sizeof *ms, by_value);
  *median = ms[MEASUREMENTS / 2];
  return FLY_OK;
}

static void print(bench *b, const setting *s, const workload *w, int64_t pairs, double forward, double backward) {
  double flops = (double)pairs * s->dim * 1e-9; /* per millisecond: in TFLOP/s */
  printf(
      "%s  {\"mask\": \"%s\", \"window\": %d, \"block\": %d, \"top\": %d, \"dim\": %d, \"batch\": %d, \"heads\": %d, "
      "\"length\": %d, \"pairs\": %lld, \"choice_ms\": %.5f, \"forward_ms\": %.5f, \"backward_ms\": %.5f, "
      "\"forward_tflops\": %.3f, \"backward_tflops\": %.3f}",
      b->first ? "" : ",\n", names[s->kind], s->window, s->block, s->block ? TOP : 0, s->dim, s->batch, s->heads,
      s->length, (long long)pairs, w->choice_ms, forward, backward, 4 * flops / forward, 10 * flops / backward);
  fflush(stdout);
  b->first = false;
}

static void discard(bench *b, workload *w) {
  for (int i = 0; i < TENSORS + 2; i++) fly_cuda_free(b->cuda, &w->memory[i]);
  free(w->values);
  fly_selection_release(&w->selection);
  fly_sa_release(&w->sa);
  fly_map_release(&w->map);
  fly_bound_release(&w->bound);
  fly_kernel_release(&w->kernel);
}

static void run_setting(bench *b, const setting *s) {
  fly_error failure = {0}, *error = &failure;
  workload w = {.call = {FLY_INIT(fly_attention), .cuda = b->cuda}};
  double forward = 0, backward = 0;
  int64_t pairs = 0;
  fly_status status = load(b->images, masks[s->kind], s->dim, &w.kernel, error);
  w.call.kernel = w.kernel;
  if (!status) status = draw(s, &w, error);
  if (!status) status = make_tensors(b, s, &w, error);
  if (!status) status = make_domain(s, &w, error);
  if (!status) status = count_pairs(&w, &pairs, error);
  if (!status) status = make_workspace(b, &w, error);
  if (!status) status = measure(b, &w, false, &forward, error);
  if (!status) status = measure(b, &w, true, &backward, error);
  if (!status) print(b, s, &w, pairs, forward, backward);
  discard(b, &w);
  if (status)
    fprintf(stderr, "gpu_bench: %s, D %d, batch %d, %d tokens: %s\n", names[s->kind], s->dim, s->batch, s->length,
            error->message);
  b->failed |= status && status != FLY_ERROR_MEMORY;
}

/* ---- settings ---------------------------------------------------------------------------------------------------- */

static setting setting_of(const bench *b, kind kind, int dim, int length) {
  setting s = {.kind = kind, .dim = dim, .batch = 16384 / length, .heads = HEADS, .length = length};
  if (kind == WINDOWED) s.window = WINDOW;
  if (kind == MOBA) s.block = BLOCK;
  if (b->rehearse) s.batch = 1, s.heads = 2, s.length /= 16, s.window /= 16, s.block /= 16;
  return s;
}

/* 16,384 tokens in all, as attention benchmarks usually have; then those of arXiv 2604.00754: batch and heads 16,
 * windows of 256, 2,048 to 32,768 tokens. A rehearsal has two lengths of each mask. */
static void run_all(bench *b) {
  for (int k = 0; k < KINDS; k++)
    for (int dim = 64; dim <= (b->rehearse ? 64 : 128); dim *= 2)
      for (int n = 2048; n <= (b->rehearse ? 4096 : 16384); n *= 2) {
        setting s = setting_of(b, (kind)k, dim, n);
        run_setting(b, &s);
      }
  static const kind paper[] = {CAUSAL, WINDOWED, STOCHASTIC};
  for (int i = 0; i < 3 && !b->rehearse; i++)
    for (int n = 2048; n <= 32768; n *= 2) {
      const setting s = {.kind = paper[i],
                         .window = paper[i] == WINDOWED ? 2 * SIDE : 0,
                         .dim = 64,
                         .batch = 16,
                         .heads = HEADS,
                         .length = n};
      run_setting(b, &s);
    }
}

/* What the images are for; "unknown" where the folder does not say. */
static void read_target(const char *folder, char target[16]) {
  char path[512];
  snprintf(path, sizeof path, "%s/target", folder);
  FILE *file = fopen(path, "r");
  if (!file || fscanf(file, "%15[a-z0-9_]", target) != 1) strcpy(target, "unknown");
  if (file) fclose(file);
}

static int usage(void) {
  fprintf(stderr, "usage: gpu_bench --device | gpu_bench IMAGES [--rehearse]\n");
  return 2;
}

int main(int argc, char **argv) {
  bench b = {.first = true};
  fly_error error;
  fly_cuda_info device;
  if (argc < 2 || argc > 3 || (argc == 3 && strcmp(argv[2], "--rehearse") != 0)) return usage();
  b.images = argv[1], b.rehearse = argc == 3;
  if (fly_cuda_create(&(fly_cuda_desc){FLY_INIT(fly_cuda_desc), .primary = true}, &b.cuda, &error)) {
    fprintf(stderr, "gpu_bench: %s\n", error.message);
    return 1;
  }
  fly_cuda_get_info(b.cuda, &device);
  if (strcmp(argv[1], "--device") == 0) {
    printf("%s, %s, %d multiprocessors, %zu MiB, driver for CUDA %d.%d\n", device.name, device.target,
           device.multiprocessors, device.memory >> 20, device.driver_version / 1000,
           device.driver_version % 1000 / 10);
  } else {
    char target[16];
    read_target(b.images, target);
    printf("{\"device\": \"%s\", \"target\": \"%s\", \"kernels\": \"%s\", \"multiprocessors\": %d, \"driver\": %d, "
           "\"settings\": [\n",
           device.name, device.target, target, device.multiprocessors, device.driver_version);
    run_all(&b);
    printf("\n]}\n");
  }
  fly_cuda_release(&b.cuda);
  return b.failed;
}
