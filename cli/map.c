/* map.c: `flymask map`: a block map's counts, its size, and how long it takes to build in a warm process; its tiles as
 * text or in FlexAttention's arrays. A map may also come from such arrays, or from a bitmap. */
#include <stdlib.h>
#include <unistd.h>

#include "cli.h"

static const struct argp_option options[] = {
    OPTION_LENGTHS,
    OPTION_BATCH,
    OPTION_HEADS,
    OPTION_ROWS,
    OPTION_Q_OFFSET,
    OPTION_TILE,
    {"from-bitmap", KEY_FROM_BITMAP, "F.npy", 0,
     "The map of a bitmap [Q, KV] or [B, H, Q, KV], not 0 where a pair is visible. A MASK given too must see the same "
     "pairs",
     0},
    {"from-arrays", KEY_FROM_ARRAYS, "DIR", 0,
     "The map of FlexAttention's arrays, DIR/kv_num_blocks.npy and so on; needs --lengths. A MASK given too decides "
     "partial tiles",
     0},
    {"to-arrays", KEY_TO_ARRAYS, "DIR", 0, "Write the map as these arrays (int32), kv_ and q_", 0},
    {"text", KEY_TEXT, NULL, 0, "Print the tiles: # full, + partial, . empty", 0},
    {"at", KEY_AT, "B,H", 0, "The batch entry and head that --text prints (default 0,0)", 0},
    OPTION_THREADS,
    OPTION_JSON,
    {0}};

static const char doc[] =
    "Build the block map of a mask and print its counts, size and times.\v"
    "Counts are summed over the batch entries and heads in which the mask differs. Times are medians: map is the "
    "build of the map by queries as runs of tiles, everything included that depends on lengths, values or buffers; "
    "transposed is the transposition to the order by keys; expand is the expansion by queries to lists of tiles, - "
    "where memory does not hold them (null in JSON).\n"
    "\n"
    "Examples:\n"
    "  flymask map causal --lengths 65536\n"
    "  flymask map sliding_window left=4095 --lengths 1,8192 --q-offset end\n"
    "  flymask map stochastic --lengths 8192 --rows random:1 --tile 64,64 --json\n"
    "  flymask map streaming_llm --lengths 8192 --to-arrays blocks --text\n"
    "  flymask map --from-arrays blocks --lengths 8192\n"
    "  flymask map bitmask bits=bits.npy --from-bitmap pairs.npy\n";

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

/* Whether the lists of tiles take at most half of the machine's memory: where more is asked for, the kernel may grant
 * it and end the process later. */
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

/* ---- printing ---------------------------------------------------------------------------------------------------- */

static fly_status print_json(const figures *f, const char *text, fly_error *error) {
  json_t *out = json_pack("{sI sI sI sf sI}", "tiles_empty", (json_int_t)f->info.tiles_empty, "tiles_full",
                          (json_int_t)f->info.tiles_full, "tiles_partial", (json_int_t)f->info.tiles_partial,
                          "sparsity", f->info.sparsity, "bytes", (json_int_t)f->info.bytes);
  if (f->map.count) {
    json_object_set_new(out, "undecided", json_integer((json_int_t)f->info.undecided));
    json_object_set_new(out, "map_ms", json_real(timing_median(&f->map)));
    json_object_set_new(out, "transposed_ms", json_real(timing_median(&f->transposed)));
    json_object_set_new(out, "expand_ms", f->expand.count ? json_real(timing_median(&f->expand)) : json_null());
  }
  if (text) json_object_set_new(out, "text", json_string(text));
  return report_json(out, error);
}

static void print_times(const figures *f) {
  report_line("undecided", "%s tiles, settled by the compiled mask", grouped(f->info.undecided));
  report_line("map", "%.3f ms", timing_median(&f->map));
  report_line("transposed", "%.3f ms", timing_median(&f->transposed));
  if (f->expand.count)
    report_line("expand", "%.3f ms", timing_median(&f->expand));
  else
    report_line("expand", "-");
}

static void print_text(const fly_geometry *geometry, const figures *f, const char *text) {
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
  if (f->map.count) print_times(f);
  if (text) fputs(text, stdout);
}

/* Everything that is asked for of a map. */
static fly_status report(const arguments *args, const fly_geometry *geometry, const figures *f, fly_map *map,
                         fly_error *error) {
  char *text = NULL;
  fly_status status = FLY_OK;
  if (args->text) status = fly_map_text(map, args->show_b, args->show_h, 0, &text, error);
  if (status == FLY_OK && args->to_arrays) status = map_write_arrays(map, args->to_arrays, error);
  if (status == FLY_OK && args->json)
    status = print_json(f, text, error);
  else if (status == FLY_OK)
    print_text(geometry, f, text);
  if (status == FLY_OK) status = report_end(error);
  free(text);
  return status;
}

/* ---- where a map comes from -------------------------------------------------------------------------------------- */

static fly_status from_mask(const arguments *args, const fly_map_options *how, figures *f, fly_error *error) {
  bound_mask mask = {0};
  call_geometry call = {0};
  fly_map *map = NULL;
  fly_status status = geometry_create(args, args->batch, args->heads, 0, 0, &call, error);
  if (status == FLY_OK) status = bound_mask_create(args, &mask, error);
  if (status == FLY_OK) status = measure(&mask, &call.geometry, how, f, error);
  if (status == FLY_OK) status = fly_map_build(mask.bound, &call.geometry, how, &map, error);
  if (status == FLY_OK) status = report(args, &call.geometry, f, map, error);
  fly_map_release(&map);
  bound_mask_free(&mask);
  geometry_free(&call);
  return status;
}

/* The pairs of a bitmap are compared with the mask's, where there is one; those of arrays are the mask's. */
static fly_status bind_mask(const arguments *args, fly_map **map, fly_error *error) {
  bound_mask mask = {0};
  fly_map *bound = NULL;
  if (!args->mask) return FLY_OK;
  fly_status status = bound_mask_create(args, &mask, error);
  if (status == FLY_OK) status = fly_map_bind(*map, mask.bound, &bound, error);
  bound_mask_free(&mask);
  if (status != FLY_OK) return status;
  fly_map_release(map);
  *map = bound;
  return FLY_OK;
}

static fly_status from_file(const arguments *args, const fly_map_options *how, figures *f, fly_error *error) {
  map_source source = {0};
  call_geometry call = {0};
  fly_map *map = NULL;
  fly_status status = map_source_read(args, &source, error);
  if (status != FLY_OK) return status;
  int64_t batch = args->batch == 1 ? source.batch : args->batch, heads = args->heads == 1 ? source.heads : args->heads;
  status = geometry_create(args, batch, heads, source.len_q, source.len_kv, &call, error);
  if (status == FLY_OK) status = map_source_make(&source, &call.geometry, how, &map, error);
  if (status == FLY_OK) status = bind_mask(args, &map, error);
  if (status == FLY_OK) {
    fly_map_get_info(map, &f->info);
    status = report(args, &call.geometry, f, map, error);
  }
  fly_map_release(&map);
  geometry_free(&call);
  map_source_free(&source);
  return status;
}

static void check_usage(const arguments *args, const char *command) {
  if (args->from_bitmap && args->from_arrays) usage_error(command, "--from-bitmap or --from-arrays: not both");
  if (args->len_q < 0 && !args->from_bitmap) usage_error(command, "--lengths NQ,NKV is missing");
  if (args->value_count && !args->mask) usage_error(command, "values, but no MASK given");
}

int command_map(int argc, char **argv) {
  arguments args;
  arguments_parse(argc, argv, options, doc, true, &args);
  check_usage(&args, argv[0]);
  figures *f = calloc(1, sizeof *f);
  fly_error error;
  fly_map_options how = {FLY_INIT(fly_map_options), .tile_q = args.tile_q, .tile_kv = args.tile_kv,
                         .threads = args.threads};
  fly_status status = f ? FLY_OK : fail_memory(&error);
  bool file = args.from_bitmap || args.from_arrays;
  if (status == FLY_OK) status = file ? from_file(&args, &how, f, &error) : from_mask(&args, &how, f, &error);
  if (status != FLY_OK) print_error(&error);
  free(f);
  arguments_free(&args);
  return status == FLY_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
