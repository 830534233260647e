/* map.c: `flymask map`: a block map's counts, its size, and how long it takes to build in a warm process. */
#include <stdlib.h>
#include <unistd.h>

#include "cli.h"

static const struct argp_option options[] = {OPTION_LENGTHS, OPTION_BATCH,   OPTION_HEADS, OPTION_ROWS, OPTION_Q_OFFSET,
                                             OPTION_TILE,    OPTION_THREADS, OPTION_JSON,  {0}};

static const char doc[] =
    "Build the block map of a mask and print its counts, size and times."
    "\v"
    "Counts are summed over the batch entries and heads in which the mask differs. Times are medians: map is the build "
    "of the map by queries as runs of tiles, everything included that depends on lengths, values or buffers; "
    "transposed "
    "is the transposition to the order by keys; expand is the expansion by queries to lists of tiles, - where memory "
    "does not hold them (null in JSON).\n"
    "\n"
    "Examples:\n"
    "  flymask map causal --lengths 65536\n"
    "  flymask map sliding_window left=4095 --lengths 1,8192 --q-offset end\n"
    "  flymask map stochastic --lengths 8192 --rows random:1 --tile 64,64 --json\n";

enum { MEASURE_MS = 1500 }; /* for the three figures together */

typedef struct figures {
  fly_map_info info;
  timing map, transposed, expand;
} figures;

fly_status map_build_once(bound_mask *mask, const fly_geometry *geometry, const fly_map_options *how, timing *time,
                          fly_bound **bound, fly_map **map, fly_error *error) {
  *bound = NULL;
  *map = NULL;
  fly_status status = bindings_renew(&mask->values, error);
  if (status == FLY_OK) status = fly_mask_bind(mask->mask, mask->values.args, mask->values.count, bound, error);
  if (status != FLY_OK) return status;
  double start = now_ms();
  status = fly_map_build(*bound, geometry, how, map, error);
  timing_add(time, now_ms() - start);
  if (status != FLY_OK) fly_bound_release(bound);
  return status;
}

/* Whether the lists of tiles take at most half of the machine's memory: where more is asked for, the kernel may grant it
 * and end the process later. */
static bool lists_fit(const fly_map_info *info) {
  long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  if (pages <= 0 || page <= 0) return true;
  double rows = (double)info->batch * (double)info->heads * (double)info->tiles_q;
  double bytes = rows * (2 * sizeof(int32_t) + 2 * sizeof(int64_t)) +
                 ((double)info->tiles_full + (double)info->tiles_partial) * sizeof(int32_t);
  return bytes <= (double)pages * (double)page / 2;
}

/* Adds the time of the expansion; lists that memory does not hold leave the figure out, and are no failure. */
static fly_status measure_expand(const fly_map *map, figures *out, fly_error *error) {
  fly_map_lists lists = {0};
  if (!lists_fit(&out->info)) return FLY_OK;
  double start = now_ms();
  fly_status status = fly_map_expand(map, FLY_BY_QUERY, &lists, error);
  if (status == FLY_OK) timing_add(&out->expand, now_ms() - start);
  fly_map_lists_free(&lists);
  return status == FLY_ERROR_MEMORY ? FLY_OK : status;
}

static fly_status measure_once(bound_mask *mask, const fly_geometry *geometry, const fly_map_options *how, figures *out,
                               fly_error *error) {
  fly_bound *bound = NULL;
  fly_map *map = NULL;
  fly_status status = map_build_once(mask, geometry, how, &out->map, &bound, &map, error);
  if (status != FLY_OK) return status;
  double start = now_ms();
  if ((status = fly_map_transpose(map, error)) != FLY_OK) goto done;
  timing_add(&out->transposed, now_ms() - start);
  fly_map_get_info(map, &out->info);
  status = measure_expand(map, out, error);
done:
  fly_map_release(&map);
  fly_bound_release(&bound);
  return status;
}

static bool enough(const figures *f) {
  double total = f->map.total + f->transposed.total + f->expand.total;
  return f->map.count == TIMING_MAX || (f->map.count >= 5 && total >= MEASURE_MS);
}

/* The first build warms up and does not count. */
static fly_status measure(bound_mask *mask, const fly_geometry *geometry, const fly_map_options *how, figures *out,
                          fly_error *error) {
  progress("building the map");
  fly_status status = measure_once(mask, geometry, how, out, error);
  out->map = out->transposed = out->expand = (timing){0};
  while (status == FLY_OK && !enough(out)) {
    progress("building the map, %d", out->map.count + 1);
    status = measure_once(mask, geometry, how, out, error);
  }
  progress_end();
  return status;
}

static fly_status print_json(const figures *f, fly_error *error) {
  json_t *expand = f->expand.count ? json_real(timing_median(&f->expand)) : json_null();
  return report_json(json_pack("{sI sI sI sf sI sf sf so}", "tiles_empty", (json_int_t)f->info.tiles_empty,
                               "tiles_full", (json_int_t)f->info.tiles_full, "tiles_partial",
                               (json_int_t)f->info.tiles_partial, "sparsity", f->info.sparsity, "bytes",
                               (json_int_t)f->info.bytes, "map_ms", timing_median(&f->map), "transposed_ms",
                               timing_median(&f->transposed), "expand_ms", expand),
                     error);
}

static void print_text(const fly_geometry *geometry, const figures *f) {
  const fly_map_info *info = &f->info;
  report_line("queries x keys", "%s x %s", grouped(geometry->len_q), grouped(geometry->len_kv));
  report_line("planes", "%lld x %lld (batch entries x heads in which the mask differs)", (long long)info->batch,
              (long long)info->heads);
  report_line("tiles", "%s x %s of %lld x %lld", grouped(info->tiles_q), grouped(info->tiles_kv),
              (long long)info->tile_q, (long long)info->tile_kv);
  report_line("  empty", "%s", grouped(info->tiles_empty));
  report_line("  full", "%s", grouped(info->tiles_full));
  report_line("  partial", "%s", grouped(info->tiles_partial));
  report_line("sparsity", "%.2f %%", 100 * info->sparsity);
  report_line("size", "%s bytes", grouped((int64_t)info->bytes));
  report_line("map", "%.3f ms", timing_median(&f->map));
  report_line("transposed", "%.3f ms", timing_median(&f->transposed));
  if (f->expand.count)
    report_line("expand", "%.3f ms", timing_median(&f->expand));
  else
    report_line("expand", "-");
}

int command_map(int argc, char **argv) {
  arguments args;
  arguments_parse(argc, argv, options, doc, true, &args);
  if (args.len_q < 0) usage_error(argv[0], "--lengths NQ,NKV is missing");
  bound_mask mask = {0};
  call_geometry call = {0};
  figures *f = calloc(1, sizeof *f);
  fly_error error;
  fly_map_options how = {FLY_INIT(fly_map_options), .tile_q = args.tile_q, .tile_kv = args.tile_kv,
                         .threads = args.threads};
  fly_status status = f ? FLY_OK : fail_memory(&error);
  if (status == FLY_OK) status = geometry_create(&args, args.batch, args.heads, 0, 0, &call, &error);
  if (status == FLY_OK) status = bound_mask_create(&args, &mask, &error);
  if (status == FLY_OK) status = measure(&mask, &call.geometry, &how, f, &error);
  if (status == FLY_OK && args.json)
    status = print_json(f, &error);
  else if (status == FLY_OK)
    print_text(&call.geometry, f);
  if (status == FLY_OK) status = report_end(&error);
  if (status != FLY_OK) print_error(&error);
  bound_mask_free(&mask);
  geometry_free(&call);
  free(f);
  arguments_free(&args);
  return status == FLY_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
