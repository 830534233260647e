/* compare_on_coverage.c: the section on coverage: what share of the earlier tokens can have reached a token through l
 * layers, by exact propagation through each layer's own mask, with theory's curves; and depth beside cost. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compare.h"

enum { DEPTH_MOST = 100, DEPTH_DRAWN = 10, VARIANTS = 8 };
static const double seconds_most = 20; /* of one mechanism: long sequences then show fewer layers */

typedef struct variant {
  graph_desc desc; /* without n, seed and layer */
  const char *name;
  int style;
} variant;

/* Over the seeds, by depth - 1. */
typedef struct outcome {
  double mean[DEPTH_MOST], low[DEPTH_MOST], high[DEPTH_MOST], last[DEPTH_MOST], worst[DEPTH_MOST], theory[DEPTH_MOST];
  int depth, complete; /* layers that were run; after how many every seed was complete, 0: never */
} outcome;

static int make_variants(const compare_options *options, variant *out) {
  int w = options->coverage_width, count = 0, half = w / 2 > 0 ? w / 2 : 1;
  method swa = method_by_touched(METHOD_SWA, w), sa = method_by_touched(METHOD_SA, w), wide = {METHOD_SA, .reach = w};
  method both = {METHOD_BOTH, .window = w, .reach = half}, shared = method_by_touched(METHOD_BOTH, w),
         moba = method_by_touched(METHOD_MOBA, w);
  const bool *wanted = options->methods;
  if (wanted[METHOD_FULL]) out[count++] = (variant){{.method = {METHOD_FULL}}, "full causal", METHOD_FULL};
  if (wanted[METHOD_SWA]) out[count++] = (variant){{.method = swa}, "SWA", METHOD_SWA};
  if (wanted[METHOD_SA]) {
    out[count++] = (variant){{.method = sa, .not_causal = true}, "SA, not causal", STYLE_SECOND};
    out[count++] = (variant){{.method = sa}, "SA", METHOD_SA};
    out[count++] = (variant){{.method = wide}, "SA, w visible", STYLE_RANDOM};
  }
  if (wanted[METHOD_BOTH]) {
    out[count++] = (variant){{.method = both}, "SA + SWA, w each", METHOD_BOTH};
    out[count++] = (variant){{.method = shared}, "SA + SWA, w shared", STYLE_OTHER};
  }
  if (wanted[METHOD_MOBA]) out[count++] = (variant){{.method = moba}, "MoBA, blocks at random", METHOD_MOBA};
  return count;
}

/* ---- measuring --------------------------------------------------------------------------------------------------- */

static bool draws(const variant *v) { return v->desc.method.kind != METHOD_SWA && v->desc.method.kind != METHOD_FULL; }

static fly_status one_layer(const variant *v, int64_t n, uint64_t seed, int layer, reach *r, fly_error *error) {
  graph_desc desc = v->desc;
  graph g;
  desc.n = n;
  desc.seed = seed;
  desc.layer = (uint32_t)layer;
  fly_status status = graph_create(&desc, &g, error);
  if (status != FLY_OK) return status;
  reach_step(r, &g);
  graph_free(&g);
  return FLY_OK;
}

/* All seeds go down together, layer by layer, until all are complete. */
static fly_status measure(const compare_options *options, const variant *v, outcome *out, fly_error *error) {
  int64_t n = options->coverage_length;
  int seeds = draws(v) ? options->seeds : 1;
  reach *all = calloc((size_t)seeds, sizeof *all);
  fly_status status = all ? FLY_OK : fail_memory(error);
  for (int s = 0; status == FLY_OK && s < seeds; s++) status = reach_create(n, &all[s], error);
  double start = now_ms();
  for (int l = 0; status == FLY_OK && l < DEPTH_MOST && !out->complete; l++) {
    bool complete = true;
    out->low[l] = out->worst[l] = 1;
    if (l >= DEPTH_DRAWN && now_ms() - start > 1e3 * seconds_most) break;
    for (int s = 0; status == FLY_OK && s < seeds; s++) {
      progress("coverage: %s, layer %d", v->name, l + 1);
      status = one_layer(v, n, (uint64_t)s + 1, l, &all[s], error);
      if (status == FLY_OK) status = compare_going(error);
      coverage c = reach_coverage(&all[s], v->desc.not_causal);
      out->mean[l] += c.mean / seeds;
      out->last[l] += c.last / seeds;
      out->low[l] = fmin(out->low[l], c.mean);
      out->high[l] = fmax(out->high[l], c.mean);
      out->worst[l] = fmin(out->worst[l], c.worst);
      complete = complete && c.complete;
    }
    out->depth = l + 1;
    if (complete) out->complete = l + 1;
  }
  for (int s = 0; all && s < seeds; s++) reach_free(&all[s]);
  free(all);
  graph_desc desc = v->desc;
  desc.n = n;
  return status == FLY_OK ? coverage_theory(&desc, DEPTH_MOST, out->theory, error) : status;
}

/* Milliseconds of one forward call; NaN for what the library's calls do not have. */
static fly_status time_forward(const compare_options *options, const variant *v, const tensors *t, double *ms,
                               double *visible, fly_error *error) {
  attempt a;
  timing time = {0};
  *ms = *visible = NAN;
  if (v->desc.not_causal) return FLY_OK;
  compare_options timed = compare_timed(options);
  fly_status status = attempt_create(&v->desc.method, t, 1, &timed, &a, error);
  if (status != FLY_OK) return status;
  status = attempt_forward(&a, error);
  while (status == FLY_OK && !timing_enough(&time, 0.1)) {
    double start = compare_clock_ms(&timed);
    status = attempt_forward(&a, error);
    timing_add(&time, compare_clock_ms(&timed) - start);
  }
  *ms = timing_least(&time);
  *visible = (double)a.pairs / (double)(t->q.shape[1] * t->q.shape[2]);
  attempt_free(&a);
  return status;
}

/* ---- telling ----------------------------------------------------------------------------------------------------- */

static int depth_theory(const variant *v, int64_t n, const outcome *o) {
  const method *m = &v->desc.method;
  if (m->kind == METHOD_FULL) return 1;
  if (m->kind == METHOD_SWA) return m->window > 1 ? (int)((n - 1 + m->window - 2) / (m->window - 1)) : 0;
  for (int l = 0; l < DEPTH_MOST; l++)
    if (o->theory[l] >= 0.99) return l + 1;
  return 0;
}

static void depth_text(int depth, int run, char *text, size_t size) {
  if (depth)
    snprintf(text, size, "%d", depth);
  else
    snprintf(text, size, "not within %d", run);
}

static fly_status add_depths(const compare_options *options, const variant *v, const outcome *o, const tensors *t,
                             table *rows, fly_error *error) {
  int64_t n = options->coverage_length;
  double ms, visible;
  char form[64], complete[32], most[32], expected[32] = "-";
  int almost = 0;
  for (int l = o->depth; l > 0 && o->mean[l - 1] >= 0.99; l--) almost = l;
  fly_status status = time_forward(options, v, t, &ms, &visible, error);
  if (status != FLY_OK) return status;
  depth_text(o->complete, o->depth, complete, sizeof complete);
  depth_text(almost, o->depth, most, sizeof most);
  int theory = depth_theory(v, n, o);
  if (theory && !draws(v)) snprintf(expected, sizeof expected, "%d, complete", theory);
  if (theory && draws(v) && v->desc.method.kind != METHOD_MOBA)
    snprintf(expected, sizeof expected, "%d, 99 %%", theory);
  return table_add(rows, error, v->name, method_text(&v->desc.method, form, sizeof form),
                   method_touched(&v->desc.method, n), visible, ms, most, complete, expected);
}

static fly_status add_layers(const variant *v, const outcome *o, table *rows, fly_error *error) {
  fly_status status = FLY_OK;
  for (int l = 0; status == FLY_OK && l < o->depth; l++)
    status = table_add(rows, error, v->name, (int64_t)l + 1, o->mean[l], o->low[l], o->high[l], o->last[l], o->worst[l],
                       o->theory[l]);
  return status;
}

static fly_status draw(const compare_options *options, const variant *variants, outcome *all, int count, page *p,
                       fly_error *error) {
  double depth[DEPTH_DRAWN];
  series lines[2][2 * VARIANTS];
  int used[2] = {0, 0};
  char caption[320];
  for (int l = 0; l < DEPTH_DRAWN; l++) depth[l] = l + 1;
  for (int i = 0; i < count; i++) {
    outcome *o = &all[i];
    for (int l = o->complete; o->complete && l < DEPTH_DRAWN; l++) /* what is complete stays so */
      o->mean[l] = o->low[l] = o->high[l] = o->worst[l] = o->last[l] = 1;
    lines[0][used[0]++] = (series){.title = variants[i].name,
                                   .style = variants[i].style,
                                   .count = DEPTH_DRAWN,
                                   .x = depth,
                                   .y = o->mean,
                                   .low = o->low,
                                   .high = o->high};
    lines[1][used[1]++] = (series){
        .title = variants[i].name, .style = variants[i].style, .count = DEPTH_DRAWN, .x = depth, .y = o->worst};
  }
  for (int i = 0; i < count; i++)
    if (isfinite(all[i].theory[0]))
      lines[0][used[0]++] = (series){
          .style = variants[i].style, .dashed = true, .count = DEPTH_DRAWN, .x = depth, .y = all[i].theory};
  snprintf(
      caption, sizeof caption,
      "Share of the earlier tokens (of all tokens where not causal) that can have reached a token, n = %s, w = %d. "
      "Left: mean over tokens, solid measured over %d seeds, dashed theory. Right: the token that has least",
      grouped(options->coverage_length), options->coverage_width, options->seeds);
  chart_panel panels[] = {{.kind = PANEL_LINES_XY,
                           .title = "mean over tokens",
                           .x = "layers",
                           .y = "share of tokens reached",
                           .low = 0,
                           .high = 1.02,
                           .lines = lines[0],
                           .count = used[0],
                           .key = "off"},
                          {.kind = PANEL_LINES_XY,
                           .title = "worst token",
                           .x = "layers",
                           .y = "share of tokens reached",
                           .low = 0,
                           .high = 1.02,
                           .lines = lines[1],
                           .count = used[1],
                           .key = "outside right center"}};
  chart c = {
      .name = "coverage", .caption = caption, .panels = panels, .count = 2, .columns = 2, .width = 1200, .height = 460};
  return page_chart(p, &c, error);
}

static void introduce(const compare_options *options, page *p) {
  page_text(
      p,
      "R<sub>l</sub>(q) is the set of tokens that can have reached token q through l layers: the union of "
      "R<sub>l-1</sub>(kv) over the keys kv that q sees in layer l, whose permutation is its own. The share is "
      "that of the q + 1 tokens that q may know of (of all n where not causal). n = %s, w = %d. Touched: SWA "
      "sees w keys; SA looks at w / 2 positions on each side (w visible: w on each side); SA + SWA has both "
      "(w each), or half of each (w shared). MoBA chooses by the data; here its blocks are drawn at random, anew in "
      "each layer.",
      grouped(options->coverage_length), options->coverage_width);
  page_text(
      p,
      "Theory: in SWA fields grow by w - 1 tokens a layer. A key of the permuted window is any token, so after a "
      "layer a share f of the tokens becomes 1 - (1 - f)<sup>w + 1</sup> where not causal: depth grows as "
      "log<sub>w</sub> n. By token, the same argument runs over the tokens between two: what lies far back is reached "
      "soon, what is near only when something between them is seen, so SA alone has a long tail; SWA closes it. Theory "
      "takes the fields of a token's keys for independent of each other, and every token for an average one: where "
      "windows are small, it is ahead of what is measured.");
}

fly_status section_coverage(const compare_options *options, const tensors *like, page *p, fly_error *error) {
  static const column layer_columns[] = {{"method", "method", NULL, 't', 0},
                                         {"layers", "layers", NULL, 'i', 0},
                                         {"mean", "mean", NULL, 'r', 3},
                                         {"least_mean", "least seed's mean", NULL, 'r', 3},
                                         {"most_mean", "most seed's mean", NULL, 'r', 3},
                                         {"last_token", "last token", NULL, 'r', 3},
                                         {"worst_token", "worst token", NULL, 'r', 3},
                                         {"theory", "theory, mean", NULL, 'r', 3}};
  static const column depth_columns[] = {{"method", "method", NULL, 't', 0},
                                         {"form", "form", NULL, 't', 0},
                                         {"touched_keys", "keys touched", "a query", 'r', 1},
                                         {"visible_keys", "keys visible", "a query", 'r', 1},
                                         {"forward_ms", "forward", "ms a layer", 'r', 3},
                                         {"depth_99", "layers to a mean of 99 %", NULL, 't', 0},
                                         {"depth_complete", "layers to complete", "every token, every seed", 't', 0},
                                         {"depth_theory", "theory", NULL, 't', 0}};
  char caption[200];
  table layers = {.name = "coverage",
                  .caption = "Coverage by layer",
                  .columns = layer_columns,
                  .column_count = sizeof layer_columns / sizeof *layer_columns};
  table depths = {.name = "depth",
                  .caption = caption,
                  .columns = depth_columns,
                  .column_count = sizeof depth_columns / sizeof *depth_columns};
  variant variants[VARIANTS];
  int64_t heads = like->q.shape[1] < 2 ? 1 : 2;
  snprintf(caption, sizeof caption,
           "Cost and depth by mechanism: forward time of one layer, %lld head%s of dimension %lld, random inputs; keys "
           "that both parts of SA + SWA see count twice",
           (long long)heads, heads == 1 ? "" : "s", (long long)like->q.shape[3]);
  int count = make_variants(options, variants);
  outcome *all = calloc(VARIANTS, sizeof *all);
  tensors t = {0};
  fly_status status = all ? FLY_OK : fail_memory(error);
  if (status == FLY_OK)
    status = inputs_draw(1, heads, options->coverage_length, like->q.shape[3], like->v.shape[3], false, &t, error);
  for (int i = 0; status == FLY_OK && i < count; i++) {
    status = measure(options, &variants[i], &all[i], error);
    if (status == FLY_OK) status = add_layers(&variants[i], &all[i], &layers, error);
    if (status == FLY_OK) status = add_depths(options, &variants[i], &all[i], &t, &depths, error);
  }
  if (status == FLY_OK) {
    introduce(options, p);
    status = draw(options, variants, all, count, p, error);
  }
  if (status == FLY_OK) status = page_table(p, &depths, false, error);
  if (status == FLY_OK) status = page_table(p, &layers, true, error);
  table_free(&layers);
  table_free(&depths);
  tensors_free(&t);
  free(all);
  return status;
}
