/* demo.c: `flymask demo`: sliding-window, stochastic and full causal attention over the same real queries, keys and
 * values. A table compares their cost and their results; a picture shows their block maps side by side. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "picture.h"

static const struct argp_option options[] = {
    {"out", KEY_OUT, "DIR", 0, "Directory for the results, made where it is missing (default flymask-demo)", 0},
    {"sample", KEY_SAMPLE, "DIR", 0,
     "Directory with q.npy, k.npy, v.npy and perm.npy (default: the sample of the sources)", 0},
    OPTION_THREADS,
    {0}};

static const char doc[] = "Sliding-window, stochastic and full causal attention over the same sample: what they cost, "
                          "and how far their results are "
                          "from full attention."
                          "\v"
                          "Writes maps.png, and swa.npy, sa.npy and full.npy with the outputs. Times are medians of "
                          "calls with a map at hand.\n"
                          "\n"
                          "Example:\n"
                          "  flymask demo -o results\n";

/* What is compared; full attention first, the others are held against it. */
static const struct contestant {
  const char *mask, *file, *name, *title, *subtitle;
  bool permuted;
  int value_count;
  const char *values[2];
} contestants[] = {
    {"causal", "full", "full causal", "Full causal attention", "every earlier token", false, 0, {0}},
    {"sliding_window",
     "swa",
     "sliding window",
     "Sliding window (SWA)",
     "the last 256 tokens",
     false,
     2,
     {"left=255", "right=0"}},
    {"stochastic",
     "sa",
     "stochastic",
     "Stochastic attention (SA)",
     "within 128 in random order, none later",
     true,
     2,
     {"left=128", "right=128"}},
};
enum { CONTESTANTS = sizeof contestants / sizeof *contestants, TILE = 64, VIEW = 512, MARGIN = 32, GAP = 40 };

typedef struct sample {
  npy_array q, k, v, perm;
} sample;

typedef struct result {
  bound_mask mask;
  fly_map *map;
  fly_map_info info;
  npy_array out;
  timing forward;
  int64_t pairs;
  double frobenius, most; /* difference to full attention */
} result;

/* ---- the sample -------------------------------------------------------------------------------------------------- */

static fly_status read_one(const char *directory, const char *name, int rank, npy_array *out, fly_error *error) {
  char *path;
  if (asprintf(&path, "%s/%s", directory, name) < 0) return fail_memory(error);
  fly_status status = npy_read(path, out, error);
  if (status == FLY_OK && out->rank != rank)
    status = fail(error, FLY_ERROR_ARGUMENT, path, "has %d dimensions, not %d", out->rank, rank);
  if (status == FLY_OK && rank == 1)
    status = npy_convert(out, FLY_I32, path, error);
  else if (status == FLY_OK && out->type != FLY_F16)
    status = fail(error, FLY_ERROR_ARGUMENT, path, "does not hold f16");
  free(path);
  return status;
}

static fly_status read_sample(const char *directory, sample *out, fly_error *error) {
  fly_status status = read_one(directory, "q.npy", 4, &out->q, error);
  if (status == FLY_OK) status = read_one(directory, "k.npy", 4, &out->k, error);
  if (status == FLY_OK) status = read_one(directory, "v.npy", 4, &out->v, error);
  if (status == FLY_OK) status = read_one(directory, "perm.npy", 1, &out->perm, error);
  if (status != FLY_OK) return status;
  const int64_t *q = out->q.shape, *k = out->k.shape, *v = out->v.shape;
  bool fits = q[0] == 1 && k[0] == 1 && k[1] > 0 && q[1] > 0 && q[1] % k[1] == 0 && q[2] > 0 && q[2] == k[2] &&
              q[3] == k[3] && q[3] > 0 && q[3] <= 256 && memcmp(k, v, sizeof(int64_t) * 4) == 0;
  if (!fits) return fail(error, FLY_ERROR_ARGUMENT, directory, "the shapes of q, k and v do not belong together");
  if (out->perm.count != q[2])
    return fail(error, FLY_ERROR_ARGUMENT, directory, "perm.npy permutes %lld tokens, not %lld",
                (long long)out->perm.count, (long long)q[2]);
  return fly_permutation_check(out->perm.count, out->perm.data, error);
}

static void free_sample(sample *s) {
  npy_free(&s->q);
  npy_free(&s->k);
  npy_free(&s->v);
  npy_free(&s->perm);
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

static fly_geometry geometry_of(const struct contestant *c, const sample *s) {
  fly_geometry g = {FLY_INIT(fly_geometry), .batch = 1, .heads = s->q.shape[1], .len_q = s->q.shape[2],
                    .len_kv = s->k.shape[2]};
  if (c->permuted) g.q_rows = g.kv_rows = (fly_row_map){.rows = s->perm.data};
  return g;
}

static fly_tensor tensor_of(const npy_array *array) {
  const int64_t *s = array->shape;
  return fly_tensor_dense(array->data, array->type, s[0], s[1], s[2], s[3]);
}

static fly_status measure(const struct contestant *c, const sample *s, int threads, result *r, fly_error *error) {
  fly_kernel *kernel = NULL;
  fly_kernel_desc desc = {FLY_INIT(fly_kernel_desc), .type = FLY_F16, .head_dim = (int)s->q.shape[3]};
  fly_status status = fly_kernel_create(r->mask.mask, &desc, &kernel, error);
  if (status != FLY_OK) return status;
  fly_attention call = {
      FLY_INIT(fly_attention),       .kernel = kernel,      .bound = r->mask.bound, .map = r->map,
      .geometry = geometry_of(c, s), .q = tensor_of(&s->q), .k = tensor_of(&s->k),  .v = tensor_of(&s->v),
      .out = tensor_of(&r->out),     .threads = threads};
  status = fly_attention_forward(&call, error); /* warms up */
  while (status == FLY_OK && !timing_enough(&r->forward, 0.5)) {
    progress("%s attention, %d", c->name, r->forward.count + 1);
    double start = now_ms();
    status = fly_attention_forward(&call, error);
    timing_add(&r->forward, now_ms() - start);
  }
  fly_kernel_release(&kernel);
  return status;
}

static fly_status attend(const struct contestant *c, const sample *s, int threads, result *r, fly_error *error) {
  const char *values[2] = {c->values[0], c->values[1]};
  arguments args = {.mask = c->mask, .values = values, .value_count = c->value_count};
  fly_map_options how = {FLY_INIT(fly_map_options), .tile_q = TILE, .tile_kv = TILE, .threads = threads};
  fly_geometry geometry = geometry_of(c, s);
  r->out = s->q; /* its shape */
  r->out.data = calloc((size_t)s->q.count, sizeof(uint16_t));
  if (!r->out.data) return fail_memory(error);
  fly_status status = bound_mask_create(&args, &r->mask, error);
  if (status == FLY_OK) status = fly_map_build(r->mask.bound, &geometry, &how, &r->map, error);
  if (status == FLY_OK) status = fly_map_visible_pairs(r->map, &r->pairs, error);
  if (status != FLY_OK) return status;
  fly_map_get_info(r->map, &r->info);
  return measure(c, s, threads, r, error);
}

static void compare(const npy_array *full, result *r) {
  const uint16_t *a = full->data, *b = r->out.data;
  double difference = 0, norm = 0;
  for (int64_t i = 0; i < full->count; i++) {
    double x = f16_to_f32(a[i]), d = f16_to_f32(b[i]) - x;
    difference += d * d;
    norm += x * x;
    if (fabs(d) > r->most) r->most = fabs(d);
  }
  r->frobenius = norm > 0 ? sqrt(difference / norm) : 0;
}

static double gflops(const sample *s, const result *r) {
  double ms = timing_median(&r->forward);
  return ms > 0 ? 4.0 * (double)s->q.shape[3] * (double)r->pairs / ms * 1e-6 : 0;
}

/* ---- showing ----------------------------------------------------------------------------------------------------- */

static void print_table(const sample *s, const result results[CONTESTANTS]) {
  printf("%lld tokens, %lld query heads, %lld key/value heads, head_dim %lld, f16; tiles of %d x %d\n\n",
         (long long)s->q.shape[2], (long long)s->q.shape[1], (long long)s->k.shape[1], (long long)s->q.shape[3], TILE,
         TILE);
  printf("%-15s %14s %16s %9s %9s   %s\n", "attention", "visible pairs", "non-empty tiles", "ms", "GFLOP/s",
         "difference to full: relative, most");
  for (int i = 0; i < CONTESTANTS; i++) {
    const result *r = &results[i];
    int64_t tiles = r->info.tiles_full + r->info.tiles_partial;
    printf("%-15s %14s %9s of %3s %9.3f %9.1f   ", contestants[i].name, grouped(r->pairs), grouped(tiles),
           grouped(tiles + r->info.tiles_empty), timing_median(&r->forward), gflops(s, r));
    if (i == 0)
      puts("-");
    else
      printf("%.4f, %.4f\n", r->frobenius, r->most);
  }
  putchar('\n');
}

static fly_status draw_one(picture *p, int index, const sample *s, const result *r, fly_error *error) {
  const struct contestant *c = &contestants[index];
  int64_t n = s->q.shape[2], tiles = r->info.tiles_full + r->info.tiles_partial, all = tiles + r->info.tiles_empty;
  panel panel = {.view = {r->map, 0, 0, n, n, true}, .width = VIEW, .height = VIEW};
  snprintf(panel.title, sizeof panel.title, "%s", c->title);
  snprintf(panel.subtitle, sizeof panel.subtitle, "%s", c->subtitle);
  snprintf(panel.lines[0], sizeof panel.lines[0], "%s of %s tiles, %s visible pairs", grouped(tiles), grouped(all),
           grouped(r->pairs / s->q.shape[1]));
  snprintf(panel.lines[1], sizeof panel.lines[1], "%.2f ms for %lld heads", timing_median(&r->forward),
           (long long)s->q.shape[1]);
  snprintf(panel.lines[2], sizeof panel.lines[2], c->permuted ? "rows and columns are in permuted order" : "");
  return panel_draw(p, MARGIN + index * (PANEL_LEFT + VIEW + GAP), 3 * MARGIN, &panel, error);
}

static fly_status draw(const char *path, const sample *s, const result results[CONTESTANTS], fly_error *error) {
  char title[128];
  picture p;
  int width = 2 * MARGIN + CONTESTANTS * (PANEL_LEFT + VIEW) + (CONTESTANTS - 1) * GAP;
  fly_status status = picture_create(width, 5 * MARGIN + PANEL_TOP + VIEW + PANEL_BOTTOM, &p, error);
  snprintf(title, sizeof title, "Which keys each of %lld queries sees: block maps of %d x %d tiles",
           (long long)s->q.shape[2], TILE, TILE);
  if (status == FLY_OK) picture_text(&p, MARGIN, MARGIN, LARGE, INK, title);
  for (int i = 0; status == FLY_OK && i < CONTESTANTS; i++) status = draw_one(&p, i, s, &results[i], error);
  if (status == FLY_OK) {
    legend_draw(&p, MARGIN + PANEL_LEFT, p.height - MARGIN - 16, true);
    status = picture_save(&p, path, error);
  }
  picture_free(&p);
  return status;
}

static fly_status write_results(const char *directory, const sample *s, const result results[CONTESTANTS],
                                fly_error *error) {
  char *path;
  fly_status status = FLY_OK;
  if (mkdir(directory, 0777) != 0 && errno != EEXIST)
    return fail(error, FLY_ERROR_IO, directory, "cannot create: %s", strerror(errno));
  if (asprintf(&path, "%s/maps.png", directory) < 0) return fail_memory(error);
  status = draw(path, s, results, error);
  if (status == FLY_OK) printf("the block maps, side by side:  %s\n", path);
  free(path);
  for (int i = 0; status == FLY_OK && i < CONTESTANTS; i++) {
    const npy_array *out = &results[i].out;
    if (asprintf(&path, "%s/%s.npy", directory, contestants[i].file) < 0) return fail_memory(error);
    status = npy_write(path, out->type, out->rank, out->shape, out->data, error);
    if (status == FLY_OK) printf("output of %-20s %s\n", contestants[i].name, path);
    free(path);
  }
  return status;
}

int command_demo(int argc, char **argv) {
  arguments args;
  arguments_parse(argc, argv, options, doc, false, &args);
  sample s = {0};
  fly_error error;
  result *results = calloc(CONTESTANTS, sizeof *results);
  fly_status status = results ? FLY_OK : fail_memory(&error);
  if (status == FLY_OK) status = read_sample(args.sample ? args.sample : FLYMASK_SOURCE_SAMPLE, &s, &error);
  for (int i = 0; status == FLY_OK && i < CONTESTANTS; i++) {
    status = attend(&contestants[i], &s, args.threads, &results[i], &error);
    if (status == FLY_OK) compare(&results[0].out, &results[i]);
  }
  progress_end();
  if (status == FLY_OK) {
    print_table(&s, results);
    status = write_results(args.out ? args.out : "flymask-demo", &s, results, &error);
  }
  if (status == FLY_OK) status = report_end(&error);
  if (status != FLY_OK) print_error(&error);
  for (int i = 0; results && i < CONTESTANTS; i++) {
    fly_map_release(&results[i].map);
    bound_mask_free(&results[i].mask);
    npy_free(&results[i].out);
  }
  free(results);
  free_sample(&s);
  arguments_free(&args);
  return status == FLY_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
