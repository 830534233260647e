/* bench.c: `flymask bench`: what compiling, mapping and running a mask cost, and what share of the machine's peak
 * the kernel reaches. Every figure is a median; the peak is measured between the kernel's runs, so that both meet
 * the same machine. */
#include <errno.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

static const struct argp_option options[] = {
    OPTION_LENGTHS,
    OPTION_BATCH,
    {"heads", KEY_KV_HEADS, "HQ,HKV", 0, "Query heads, and key/value heads if fewer (HKV divides HQ)", 0},
    OPTION_HEAD_DIM,
    OPTION_DTYPE,
    OPTION_ROWS,
    OPTION_Q_OFFSET,
    OPTION_TILE,
    OPTION_SCORE,
    OPTION_THREADS,
    OPTION_RUN_TARGET,
    {"backward", KEY_BACKWARD, NULL, 0, "Measure the gradients too", 0},
    {"bandwidth", KEY_BANDWIDTH, NULL, 0, "Measure what reading the keys and values once takes, too", 0},
    {"sweep", KEY_SWEEP, NULL, 0, "Measure other sizes of tiles and ranges than those chosen, too", 0},
    OPTION_JSON,
    {0}};

static const char doc[] =
    "Measure a mask's compilation, block map and kernel on random inputs, and the machine's peak in the same run.\v"
    "All times are medians. compile cold: from the source's text to a callable kernel with an empty cache, clang "
    "included; compile cached: the same from the cache; map: the block map in a warm process; forward: one call from "
    "start to return, with a map at hand, and backward likewise. A visible pair counts 2 (D + DV) flops forward and "
    "6 D + 4 DV backward. The peak is that of independent multiply-add chains in registers at the widest vectors, on "
    "as many threads; for bf16, of its dot products where the machine has them. With few queries a call waits for "
    "memory: --bandwidth counts the bytes of K and V, each once, and sets their rate against a loop that only reads "
    "them. --sweep runs the forward call in other sizes, in turn with those that the library chooses; each ratio is "
    "the choice's time over the alternative's: above 1, the choice was not the best.\n"
    "\n"
    "On a GPU a measurement is as many calls as take 10 ms, from the first launch to the end of the last; compiling "
    "gives PTX, and no peak is measured.\n"
    "\n"
    "Examples:\n"
    "  flymask bench causal --lengths 8192 --head-dim 64 --dtype f32 --threads 1\n"
    "  flymask bench stochastic --lengths 4096 --rows random:1 --heads 9,3 \\\n"
    "      --head-dim 64 --dtype f16 --json\n"
    "  flymask bench full --lengths 1,32768 --heads 32,8 \\\n"
    "      --head-dim 128 --dtype bf16 --threads 1 --bandwidth\n";

typedef struct figures {
  device gpu;
  timing cold, cached, map, forward, backward, peak, read; /* peak: GFLOP/s in the place of ms; read: GB/s */
  int64_t pairs, bytes;                                    /* bytes: of K and V */
  int threads;
  sweep *sizes;
} figures;

/* ---- compiling --------------------------------------------------------------------------------------------------- */

static fly_kernel_desc kernel_desc(const arguments *args) {
  return (fly_kernel_desc){FLY_INIT(fly_kernel_desc), .type = args->type, .head_dim = args->head_dim,
                           .value_dim = args->value_dim, .target = args->target};
}

/* From the text to a callable kernel. */
static fly_status compile_once(const arguments *args, const char *source, const char *name, const char *cache,
                               timing *time, fly_error *error) {
  fly_mask *mask = NULL;
  fly_kernel *kernel = NULL;
  fly_compile_options how = {FLY_INIT(fly_compile_options), .cache = cache};
  fly_kernel_desc desc = kernel_desc(args);
  const void *bytes;
  size_t size;
  bool any_gpu = args->target && strcmp(args->target, "cuda") == 0;
  if (any_gpu) desc.target = "sm_80"; /* an image is for one */
  double start = now_ms();
  fly_status status = fly_mask_compile(source, name, &how, &mask, error);
  if (status == FLY_OK) status = fly_kernel_create(mask, &desc, &kernel, error);
  if (status == FLY_OK && device_target(args->target)) status = fly_kernel_image(kernel, &bytes, &size, error);
  timing_add(time, now_ms() - start);
  fly_kernel_release(&kernel);
  fly_mask_release(&mask);
  return status;
}

/* Each round has a cache of its own: the first compilation finds it empty, the second full. */
static fly_status measure_compile(const arguments *args, const char *path, figures *out, fly_error *error) {
  char *source = NULL, *cache = NULL;
  char directory[] = "/tmp/flymask-bench.XXXXXX";
  fly_status status = file_read_text(path, &source, error);
  if (status != FLY_OK) return status;
  if (!mkdtemp(directory)) {
    free(source);
    return fail(error, FLY_ERROR_IO, directory, "cannot create: %s", strerror(errno));
  }
  bool gpu = device_target(args->target); /* takes seconds */
  while (status == FLY_OK && !timing_enough(&out->cold, 0.5) && !(gpu && out->cold.total > 1000)) {
    progress("compiling, %d", out->cold.count + 1);
    if (asprintf(&cache, "%s/%d", directory, out->cold.count) < 0) {
      status = fail_memory(error);
      break;
    }
    status = compile_once(args, source, path, cache, &out->cold, error);
    for (int i = 0; status == FLY_OK && i < 3; i++)
      status = compile_once(args, source, path, cache, &out->cached, error);
    free(cache);
  }
  remove_tree(directory);
  free(source);
  return status;
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

typedef struct tensors {
  fly_tensor q, k, v, out, lse, d_out, d_q, d_k, d_v; /* the last ones for the gradients only */
} tensors;

static fly_status make_tensor(fly_type type, int64_t batch, int64_t heads, int64_t length, int64_t dim, uint64_t seed,
                              fly_tensor *out, fly_error *error) {
  int64_t count, bytes;
  if (__builtin_mul_overflow(batch * heads, length, &count) || __builtin_mul_overflow(count, dim, &count) ||
      __builtin_mul_overflow(count, 4, &bytes))
    return fail_memory(error);
  void *data = random_normal(type, count, seed);
  *out = fly_tensor_dense(data, type, batch, heads, length, dim);
  return data ? FLY_OK : fail_memory(error);
}

static fly_status make_tensors(const arguments *args, const fly_geometry *g, tensors *t, fly_error *error) {
  int64_t kv_heads = args->kv_heads ? args->kv_heads : args->heads;
  fly_status status = make_tensor(args->type, g->batch, g->heads, g->len_q, args->head_dim, 1, &t->q, error);
  if (status == FLY_OK)
    status = make_tensor(args->type, g->batch, kv_heads, g->len_kv, args->head_dim, 2, &t->k, error);
  if (status == FLY_OK)
    status = make_tensor(args->type, g->batch, kv_heads, g->len_kv, args->value_dim, 3, &t->v, error);
  if (status == FLY_OK)
    status = make_tensor(args->type, g->batch, g->heads, g->len_q, args->value_dim, 4, &t->out, error);
  if (status == FLY_OK) status = make_tensor(FLY_F32, g->batch, g->heads, g->len_q, 1, 5, &t->lse, error);
  if (!args->backward) return status;
  const fly_tensor *like[] = {&t->out, &t->q, &t->k, &t->v};
  fly_tensor *gradient[] = {&t->d_out, &t->d_q, &t->d_k, &t->d_v};
  for (int i = 0; status == FLY_OK && i < 4; i++) {
    const int64_t *s = like[i]->shape;
    status = make_tensor(args->type, s[0], s[1], s[2], s[3], 6 + (uint64_t)i, gradient[i], error);
  }
  return status;
}

static void free_tensors(tensors *t) {
  free(t->q.data);
  free(t->k.data);
  free(t->v.data);
  free(t->out.data);
  free(t->lse.data);
  free(t->d_out.data);
  free(t->d_q.data);
  free(t->d_k.data);
  free(t->d_v.data);
}

static int64_t bytes_of(const fly_tensor *t) {
  return t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3] * (int64_t)fly_type_size(t->type);
}

typedef fly_status direction(const fly_attention *call, fly_error *error);

/* So many calls one after the other, to their end. */
static fly_status run_calls(direction *run, const fly_attention *call, int calls, figures *out, double *ms,
                            fly_error *error) {
  fly_status status = FLY_OK;
  double start = now_ms();
  for (int i = 0; status == FLY_OK && i < calls; i++) status = run(call, error);
  if (status == FLY_OK) status = device_wait(&out->gpu, error);
  *ms = (now_ms() - start) / calls;
  return status;
}

/* The kernel and the peak in turn; the first run warms up. Launches cost less than they seem to where they overlap with
 * what was launched before: on a GPU several calls are one measurement. */
static fly_status measure_kernel(direction *run, const char *what, const fly_attention *call, timing *time,
                                 bool bandwidth, figures *out, fly_error *error) {
  double ms;
  fly_status status = run_calls(run, call, 1, out, &ms, error);
  if (status == FLY_OK && out->gpu.cuda) status = run_calls(run, call, 1, out, &ms, error);
  int peaks = out->peak.count + 50, calls = out->gpu.cuda && ms < 10 ? 1 + (int)(10 / (ms + 0.001)) : 1;
  while (status == FLY_OK && !timing_enough(time, 1.0)) {
    progress("running the kernel, %s, %d", what, time->count + 1);
    status = run_calls(run, call, calls, out, &ms, error);
    timing_add(time, ms);
    if (out->gpu.cuda) continue;
    if (bandwidth) timing_add(&out->read, read_rate((const fly_tensor *[]){&call->k, &call->v}, 2, out->threads));
    if (out->peak.count < peaks) timing_add(&out->peak, peak_measure(call->q.type, out->threads, 20));
  }
  return status;
}

static fly_status measure_call(const arguments *args, bound_mask *mask, const fly_geometry *geometry, figures *out,
                               fly_error *error) {
  fly_kernel *kernel = NULL;
  fly_kernel_desc desc = kernel_desc(args);
  fly_bound *bound = NULL;
  fly_map *map = NULL;
  tensors t = {0};
  fly_map_options how = {FLY_INIT(fly_map_options), .tile_q = args->tile_q, .tile_kv = args->tile_kv,
                         .threads = args->threads};
  timing warm_up = {0};
  fly_status status = map_build_once(mask, geometry, &how, &warm_up, &bound, &map, error);
  while (status == FLY_OK && !timing_enough(&out->map, 0.5)) {
    progress("building the map, %d", out->map.count + 1);
    fly_map_release(&map);
    fly_bound_release(&bound);
    status = map_build_once(mask, geometry, &how, &out->map, &bound, &map, error);
  }
  progress("counting visible pairs");
  if (status == FLY_OK) status = fly_map_visible_pairs(map, &out->pairs, error);
  progress("making inputs");
  if (status == FLY_OK) status = make_tensors(args, geometry, &t, error);
  desc.score = mask->score;
  if (status == FLY_OK) status = fly_kernel_create(mask->mask, &desc, &kernel, error);
  if (status == FLY_OK) {
    fly_attention call = {FLY_INIT(fly_attention),
                          .kernel = kernel,
                          .bound = bound,
                          .map = map,
                          .geometry = *geometry,
                          .q = t.q,
                          .k = t.k,
                          .v = t.v,
                          .out = t.out,
                          .lse = t.lse,
                          .score = mask->score_bound,
                          .threads = args->threads,
                          .d_out = t.d_out,
                          .d_q = t.d_q,
                          .d_k = t.d_k,
                          .d_v = t.d_v};
    fly_attention placed;
    out->bytes = bytes_of(&t.k) + bytes_of(&t.v);
    status = device_call(&out->gpu, &call, &placed, error);
    if (status == FLY_OK)
      status = measure_kernel(fly_attention_forward, "forward", &placed, &out->forward, args->bandwidth, out, error);
    if (status == FLY_OK && args->sweep) status = sweep_run(&placed, mask, &out->sizes, error);
    if (status == FLY_OK && args->backward)
      status = measure_kernel(fly_attention_backward, "backward", &placed, &out->backward, false, out, error);
  }
  free_tensors(&t);
  fly_kernel_release(&kernel);
  fly_map_release(&map);
  fly_bound_release(&bound);
  return status;
}

/* ---- printing ---------------------------------------------------------------------------------------------------- */

static double rate_of(const figures *f, int flops, const timing *time) {
  double ms = timing_median(time);
  return ms > 0 ? flops * (double)f->pairs / ms * 1e-6 : 0;
}

static double forward_rate(const arguments *args, const figures *f) {
  return rate_of(f, 2 * (args->head_dim + args->value_dim), &f->forward);
}

static double backward_rate(const arguments *args, const figures *f) {
  return rate_of(f, 6 * args->head_dim + 4 * args->value_dim, &f->backward);
}

static double forward_gbs(const figures *f) {
  double ms = timing_median(&f->forward);
  return ms > 0 ? (double)f->bytes / ms * 1e-6 : 0;
}

/* Adds some figures to the others; takes over both. NULL: no memory. */
static json_t *join_figures(json_t *all, json_t *more) {
  bool joined = all && more && json_object_update(all, more) == 0;
  json_decref(more);
  if (joined) return all;
  json_decref(all);
  return NULL;
}

static fly_status print_json(const arguments *args, const figures *f, fly_error *error) {
  double peak = timing_median(&f->peak), rate = forward_rate(args, f), backward = backward_rate(args, f);
  bool gpu = f->gpu.cuda != NULL;
  json_t *all = json_pack("{sf sf sf sf sI sf sf ss sf si}", "compile_cold_ms", timing_median(&f->cold),
                          "compile_cached_ms", timing_median(&f->cached), "map_ms", timing_median(&f->map),
                          "forward_ms", timing_median(&f->forward), "visible_pairs", (json_int_t)f->pairs, "gflops",
                          rate, "peak_gflops", peak, "peak_kind", gpu ? "none" : peak_kind(args->type), "peak_ratio",
                          peak > 0 ? rate / peak : 0, "threads", f->threads);
  if (args->backward)
    all = join_figures(all, json_pack("{sf sf sf}", "backward_ms", timing_median(&f->backward), "backward_gflops",
                                      backward, "backward_peak_ratio", peak > 0 ? backward / peak : 0));
  if (args->bandwidth) {
    double gbs = forward_gbs(f), read = timing_median(&f->read);
    all = join_figures(all, json_pack("{sI sf sf sf}", "bytes", (json_int_t)f->bytes, "gbs", gbs, "read_gbs", read,
                                      "read_ratio", read > 0 ? gbs / read : 0));
  }
  if (f->sizes) all = join_figures(all, json_pack("{so}", "sweep", sweep_json(f->sizes)));
  return all ? report_json(all, error) : fail_memory(error);
}

static void print_text(const arguments *args, const figures *f) {
  double peak = timing_median(&f->peak), rate = forward_rate(args, f), backward = backward_rate(args, f);
  report_line("compile, cold", "%.2f ms", timing_median(&f->cold));
  report_line("compile, cached", "%.2f ms", timing_median(&f->cached));
  report_line("map", "%.3f ms", timing_median(&f->map));
  report_line("forward", "%.3f ms", timing_median(&f->forward));
  if (args->backward) report_line("backward", "%.3f ms", timing_median(&f->backward));
  report_line("visible pairs", "%s", grouped(f->pairs));
  report_line("rate", "%.1f GFLOP/s", rate);
  if (args->backward) report_line("rate, backward", "%.1f GFLOP/s", backward);
  double gbs = forward_gbs(f), read = timing_median(&f->read);
  if (args->bandwidth) {
    report_line("keys and values", "%s bytes", grouped(f->bytes));
    report_line("bandwidth", "%.1f GB/s", gbs);
  }
  if (f->gpu.cuda) return;
  report_line("peak", "%.1f GFLOP/s (%s, %d thread%s)", peak, peak_kind(args->type), f->threads,
              f->threads == 1 ? "" : "s");
  report_line("share of the peak", "%.2f", peak > 0 ? rate / peak : 0);
  if (args->backward) report_line("share, backward", "%.2f", peak > 0 ? backward / peak : 0);
  if (f->sizes) sweep_print(f->sizes);
  if (!args->bandwidth) return;
  report_line("a loop that reads", "%.1f GB/s", read);
  report_line("share of that", "%.2f", read > 0 ? gbs / read : 0);
}

int command_bench(int argc, char **argv) {
  arguments args;
  arguments_parse(argc, argv, options, doc, true, &args);
  if (args.len_q < 0) usage_error(argv[0], "--lengths NQ,NKV is missing");
  if (!args.head_dim) usage_error(argv[0], "--head-dim D[,DV] is missing");
  if (!args.type) usage_error(argv[0], "--dtype f32|f16|bf16 is missing");
  if (args.sweep && device_target(args.target))
    usage_error(argv[0], "--sweep is for calls on the CPU, not for --target");
  bound_mask mask = {0};
  call_geometry call = {0};
  fly_error error;
  figures *f = calloc(1, sizeof *f);
  fly_status status = f ? FLY_OK : fail_memory(&error);
  if (f) f->threads = args.threads ? args.threads : omp_get_max_threads();
  if (status == FLY_OK) status = device_open(&args, &f->gpu, &error);
  if (status == FLY_OK) status = geometry_create(&args, args.batch, args.heads, 0, 0, &call, &error);
  if (status == FLY_OK) status = bound_mask_create(&args, &mask, &error);
  if (status == FLY_OK) status = measure_compile(&args, mask.path, f, &error);
  if (status == FLY_OK) status = measure_call(&args, &mask, &call.geometry, f, &error);
  progress_end();
  if (status == FLY_OK && args.json)
    status = print_json(&args, f, &error);
  else if (status == FLY_OK)
    print_text(&args, f);
  if (status == FLY_OK) status = report_end(&error);
  if (status != FLY_OK) print_error(&error);
  bound_mask_free(&mask);
  geometry_free(&call);
  if (f) device_close(&f->gpu), sweep_free(f->sizes);
  free(f);
  arguments_free(&args);
  return status == FLY_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
