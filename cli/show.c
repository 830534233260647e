/* show.c: `flymask show`: from a mask and lengths to a PNG of one plane of its block map. */
#include <stdlib.h>
#include <string.h>

#include "picture.h"

static const struct argp_option options[] = {
    OPTION_LENGTHS,
    OPTION_BATCH,
    OPTION_HEADS,
    {"at", KEY_AT, "B,H", 0, "The batch entry and head to draw (default 0,0)", 0},
    OPTION_ROWS,
    OPTION_Q_OFFSET,
    OPTION_TILE,
    OPTION_THREADS,
    {"no-legend", KEY_NO_LEGEND, NULL, 0, "Draw neither the legend of the colours nor wide margins", 0},
    {"out", KEY_OUT, "F.png", 0, "The PNG to write", 0},
    {0}};

static const char doc[] =
    "Draw the block map of a mask: empty, full and partial tiles, queries down, keys to the right.\v"
    "Up to 512 queries and keys the pairs inside partial tiles are drawn too. Where there are more tiles than "
    "points, a point mixes the colours of its tiles.\n"
    "\n"
    "Examples:\n"
    "  flymask show causal --lengths 512 --tile 64,64 -o causal.png\n"
    "  flymask show stochastic left=64 --lengths 512 --rows random:1 -o sa.png\n"
    "  flymask show sliding_window left=4095 --lengths 65536 -o window.png\n";

enum { MARGIN = 24, PAIRS_MOST = 512, SIDE = 896, SIDE_LEAST = 200, SIDE_MOST = 1700 };

/* The longer side has a whole number of points for each pair, or tile, where that is possible. */
static void choose_size(panel *panel, const fly_map_info *info) {
  int64_t len_q = panel->view.len_q, len_kv = panel->view.len_kv, longest = len_q > len_kv ? len_q : len_kv;
  int64_t tiles = info->tiles_q > info->tiles_kv ? info->tiles_q : info->tiles_kv, side = SIDE;
  if (panel->view.points)
    side = longest * (longest < SIDE ? SIDE / longest : 1);
  else if (tiles > SIDE)
    side = tiles < SIDE_MOST ? tiles : SIDE_MOST;
  else if (longest % (len_q > len_kv ? info->tile_q : info->tile_kv) == 0)
    side = tiles * (SIDE / tiles);
  int64_t height = len_q * side / longest, width = len_kv * side / longest;
  panel->height = (int)(height > SIDE_LEAST ? height : SIDE_LEAST);
  panel->width = (int)(width > SIDE_LEAST ? width : SIDE_LEAST);
}

static void describe(panel *panel, const arguments *args, const fly_map_info *info) {
  const char *name = strrchr(args->mask, '/') ? strrchr(args->mask, '/') + 1 : args->mask;
  snprintf(panel->title, sizeof panel->title, "%s", name);
  size_t used = 0;
  for (int i = 0; i < args->value_count && used < sizeof panel->subtitle; i++)
    used += (size_t)snprintf(panel->subtitle + used, sizeof panel->subtitle - used, "%s%s", i ? "  " : "",
                             args->values[i]);
  snprintf(panel->lines[0], sizeof panel->lines[0], "%s queries x %s keys, tiles of %lld x %lld",
           grouped(panel->view.len_q), grouped(panel->view.len_kv), (long long)info->tile_q, (long long)info->tile_kv);
  snprintf(panel->lines[1], sizeof panel->lines[1], "%s empty (%.2f %%), %s full, %s partial",
           grouped(info->tiles_empty), 100 * info->sparsity, grouped(info->tiles_full), grouped(info->tiles_partial));
  if (info->batch * info->heads > 1)
    snprintf(panel->lines[2], sizeof panel->lines[2], "batch entry %lld, head %lld; tiles are counted over all planes",
             (long long)panel->view.b, (long long)panel->view.h);
}

static fly_status draw(const panel *panel, bool legend, const char *path, fly_error *error) {
  int margin = legend ? MARGIN : MARGIN / 4, width = panel_width(panel) + (legend ? 0 : MARGIN);
  int height = PANEL_TOP + panel->height + PANEL_BOTTOM + (legend ? MARGIN : 0);
  int legend_width = legend ? legend_draw(NULL, 0, 0, panel->view.points) : 0;
  if (width < legend_width) width = legend_width;
  picture p;
  fly_status status = picture_create(width + 2 * margin, height + 2 * margin, &p, error);
  if (status == FLY_OK) status = panel_draw(&p, margin, margin, panel, error);
  if (status == FLY_OK) {
    if (legend) legend_draw(&p, margin, p.height - margin - 16, panel->view.points);
    status = picture_save(&p, path, error);
  }
  if (status == FLY_OK) report_line("picture", "%s: %d x %d points", path, p.width, p.height);
  picture_free(&p);
  return status;
}

static fly_status show(const arguments *args, bound_mask *mask, const fly_geometry *g, fly_error *error) {
  if (g->len_q == 0 || g->len_kv == 0) return fail(error, FLY_ERROR_ARGUMENT, NULL, "there are no pairs to draw");
  if (args->show_b >= g->batch || args->show_h >= g->heads)
    return fail(error, FLY_ERROR_ARGUMENT, NULL, "--at %lld,%lld is outside --batch %lld and --heads %lld",
                (long long)args->show_b, (long long)args->show_h, (long long)g->batch, (long long)g->heads);
  fly_map_options how = {FLY_INIT(fly_map_options), .tile_q = args->tile_q, .tile_kv = args->tile_kv,
                         .threads = args->threads};
  fly_map *map = NULL;
  fly_map_info info;
  progress("building the map");
  fly_status status = fly_map_build(mask->bound, g, &how, &map, error);
  if (status == FLY_OK) {
    panel panel = {.view = {map, args->show_b, args->show_h, g->len_q, g->len_kv, false}};
    panel.view.points = g->len_q <= PAIRS_MOST && g->len_kv <= PAIRS_MOST;
    fly_map_get_info(map, &info);
    choose_size(&panel, &info);
    describe(&panel, args, &info);
    status = draw(&panel, !args->no_legend, args->out, error);
  }
  fly_map_release(&map);
  return status;
}

int command_show(int argc, char **argv) {
  arguments args;
  arguments_parse(argc, argv, options, doc, true, &args);
  if (args.len_q < 0) usage_error(argv[0], "--lengths NQ,NKV is missing");
  if (!args.out) usage_error(argv[0], "-o F.png is missing");
  bound_mask mask = {0};
  call_geometry call = {0};
  fly_error error;
  fly_status status = geometry_create(&args, args.batch, args.heads, 0, 0, &call, &error);
  if (status == FLY_OK) status = bound_mask_create(&args, &mask, &error);
  if (status == FLY_OK) status = show(&args, &mask, &call.geometry, &error);
  progress_end();
  if (status == FLY_OK) status = report_end(&error);
  if (status != FLY_OK) print_error(&error);
  bound_mask_free(&mask);
  geometry_free(&call);
  arguments_free(&args);
  return status == FLY_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
