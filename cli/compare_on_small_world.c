/* compare_on_small_world.c: the section on small worlds: clustering, path length and sigma of the mechanisms' masks as
 * graphs, beside the fruit fly's brain as published. */
#include <math.h>
#include <stdlib.h>

#include "compare.h"

enum { VARIANTS = 3 };

/* As A. Lin et al. 2024 published them (introduce names the paper): of edges taken both ways, but for directed_path. */
static const small_world fruit_fly = {.clustering = 0.0463,
                                      .path = 3.91,
                                      .directed_path = 4.42,
                                      .random_clustering = 0.0003,
                                      .random_path = 3.57,
                                      .sigma_expected = 141};
static const int64_t fruit_fly_neurons = 127978;

typedef struct spread {
  double mean, low, high;
} spread;

typedef struct outcome {
  small_world mean;
  spread clustering, path, sigma;
} outcome;

static void add_to(spread *s, double value, int seed, int seeds) {
  s->mean += value / seeds;
  s->low = seed == 0 || value < s->low ? value : s->low;
  s->high = seed == 0 || value > s->high ? value : s->high;
}

static fly_status measure(const compare_options *options, const method *m, outcome *out, fly_error *error) {
  fly_status status = FLY_OK;
  *out = (outcome){0};
  for (int s = 0; status == FLY_OK && s < options->seeds; s++) {
    progress("small world: %s, seed %d", method_name(m->kind), s + 1);
    graph_desc desc = {.method = *m, .n = options->coverage_length, .seed = (uint64_t)s + 1};
    graph g = {0};
    small_world one;
    status = graph_create(&desc, &g, error);
    if (status == FLY_OK) status = small_world_measure(&g, (uint64_t)s + 1, &one, error);
    graph_free(&g);
    if (status != FLY_OK) break;
    double part = 1.0 / options->seeds;
    out->mean.degree += part * one.degree;
    out->mean.directed_path += part * one.directed_path;
    out->mean.random_clustering += part * one.random_clustering;
    out->mean.random_path += part * one.random_path;
    out->mean.sigma_expected += part * one.sigma_expected;
    add_to(&out->clustering, one.clustering, s, options->seeds);
    add_to(&out->path, one.path, s, options->seeds);
    add_to(&out->sigma, one.sigma, s, options->seeds);
  }
  return status;
}

static fly_status draw(const compare_options *options, const method *methods, const outcome *all, int count, page *p,
                       fly_error *error) {
  bar bars[3][VARIANTS + 2];
  char caption[400];
  const outcome *last = &all[count - 1];
  for (int i = 0; i < count; i++) {
    const char *name = method_name(methods[i].kind);
    int style = methods[i].kind;
    bars[0][i] = (bar){name, style, all[i].clustering.mean, all[i].clustering.low, all[i].clustering.high};
    bars[1][i] = (bar){name, style, all[i].path.mean, all[i].path.low, all[i].path.high};
    bars[2][i] = (bar){name, style, all[i].sigma.mean, all[i].sigma.low, all[i].sigma.high};
  }
  double longest = 0;
  for (int i = 0; i < count; i++) longest = fmax(longest, all[i].path.high);
  double c = last->mean.random_clustering, l = last->mean.random_path;
  double fly_c = fruit_fly.clustering, fly_l = fruit_fly.path;
  bars[0][count] = (bar){"random graph", STYLE_RANDOM, c, c, c};
  bars[0][count + 1] = (bar){"fruit fly", STYLE_SECOND, fly_c, fly_c, fly_c};
  bars[1][count] = (bar){"random graph", STYLE_RANDOM, l, l, l};
  bars[1][count + 1] = (bar){"fruit fly", STYLE_SECOND, fly_l, fly_l, fly_l};
  bars[2][count] = (bar){"random graph", STYLE_RANDOM, 1, 1, 1};
  snprintf(
      caption, sizeof caption,
      "Masks of one layer as graphs with edges both ways, n = %s, w = %d, mean over %d seeds. The random graph has "
      "as many edges as %s. The fruit fly's graph is larger and sparser (127,978 neurons), and so its sigma, 141, "
      "is on another scale: it is not drawn",
      grouped(options->coverage_length), options->coverage_width, options->seeds, method_name(methods[count - 1].kind));
  chart_panel panels[] = {{.kind = PANEL_BARS,
                           .title = "clustering",
                           .y = "share of neighbours' pairs",
                           .bars = bars[0],
                           .count = count + 2,
                           .low = 0,
                           .high = 1},
                          {.kind = PANEL_BARS,
                           .title = "mean shortest path",
                           .y = "hops",
                           .bars = bars[1],
                           .count = count + 2,
                           .log_y = true,
                           .low = 1,
                           .high = longest > 50 ? 2 * longest : 100},
                          {.kind = PANEL_BARS,
                           .title = "small-worldness sigma",
                           .y = "ratio",
                           .bars = bars[2],
                           .count = count + 1,
                           .low = 0,
                           .high = 1.25 * last->sigma.high + 1}};
  chart chart = {.name = "small_world",
                 .caption = caption,
                 .panels = panels,
                 .count = 3,
                 .columns = 3,
                 .width = 1100,
                 .height = 420};
  return page_chart(p, &chart, error);
}

static void introduce(page *p) {
  page_text(
      p, "A mask is a graph: tokens are nodes, and each pair that sees each other is an edge. Clustering is the mean "
         "over nodes of the share of pairs of neighbours that are neighbours themselves; the path is the mean "
         "length of the shortest paths, with edges taken both ways (and in the table from query to key alone, over the "
         "pairs that have one). Sigma = (clustering / random clustering) / (path / random path): a small world is "
         "clustered as a lattice and short as a random graph, so its sigma is far above 1. One layer of SA alone is a "
         "lattice in another order, with its long paths; the union with SWA is a small world.");
  page_text(
      p,
      "Which random graph: <i>sigma</i> is against an Erd&#337;s-R&eacute;nyi graph of as many edges, taken both ways, "
      "that is drawn and measured, a new one for each seed. <i>Sigma, expected</i> is against what such graphs are "
      "expected to have, with k neighbours: clustering k / (n - 1) and paths of (ln n - 0.5772) / ln k + 1/2 hops "
      "(Fronczak et al. 2004, <a href=\"https://doi.org/10.1103/PhysRevE.70.056110\">doi "
      "10.1103/PhysRevE.70.056110</a>). For graphs as small and dense as these the formula is some percent off; "
      "for large ones, as brains are, it is what papers use.");
  page_text(
      p,
      "Beside them the fruit fly: 127,978 neurons, 2,613,129 connections (20 a neuron, 0.02 %% of all possible "
      "ones), clustering %.4f, %.2f hops from neuron to neuron along connections and %.2f against them too, where "
      "a random graph has %.4f and %.2f (A. Lin et al., Network statistics of the whole-brain connectome "
      "of Drosophila, Nature 634, 2024, <a href=\"https://doi.org/10.1038/s41586-024-07968-y\">doi "
      "10.1038/s41586-024-07968-y</a>; quoted, not measured here): a sigma of %.0f, by the formula above.",
      fruit_fly.clustering, fruit_fly.directed_path, fruit_fly.path, fruit_fly.random_clustering, fruit_fly.random_path,
      fruit_fly.sigma_expected);
}

static fly_status add_fruit_fly(table *rows, fly_error *error) {
  const small_world *f = &fruit_fly;
  return table_add(rows, error, "fruit fly's brain", "published", fruit_fly_neurons, NAN, f->clustering, f->path,
                   f->directed_path, f->random_clustering, f->random_path, NAN, NAN, NAN, f->sigma_expected);
}

fly_status section_small_world(const compare_options *options, const tensors *t, page *p, fly_error *error) {
  (void)t;
  static const column columns[] = {{"graph", "graph", NULL, 't', 0},
                                   {"form", "form", NULL, 't', 0},
                                   {"nodes", "nodes", NULL, 'i', 0},
                                   {"degree", "neighbours", "mean", 'r', 1},
                                   {"clustering", "clustering", NULL, 'r', 3},
                                   {"path", "path", "hops", 'r', 2},
                                   {"directed_path", "path, query to key", "hops", 'r', 2},
                                   {"random_clustering", "random clustering", NULL, 'r', 4},
                                   {"random_path", "random path", "hops", 'r', 2},
                                   {"sigma", "sigma", NULL, 'r', 2},
                                   {"sigma_low", "sigma, least", NULL, 'r', 2},
                                   {"sigma_high", "sigma, most", NULL, 'r', 2},
                                   {"sigma_expected", "sigma, expected", NULL, 'r', 2}};
  table rows = {.name = "small_world",
                .caption = "Small world",
                .columns = columns,
                .column_count = sizeof columns / sizeof *columns};
  int w = options->coverage_width, half = w / 2 > 0 ? w / 2 : 1, count = 0;
  const method known[] = {
      {METHOD_SWA, .window = w}, {METHOD_SA, .reach = half}, {METHOD_BOTH, .window = w, .reach = half}};
  method methods[VARIANTS];
  outcome all[VARIANTS];
  char form[64];
  fly_status status = FLY_OK;
  for (int i = 0; status == FLY_OK && i < VARIANTS; i++) {
    if (!options->methods[known[i].kind]) continue;
    methods[count] = known[i];
    outcome *o = &all[count];
    status = measure(options, &methods[count], o, error);
    if (status == FLY_OK)
      status = table_add(&rows, error, method_name(known[i].kind), method_text(&known[i], form, sizeof form),
                         options->coverage_length, o->mean.degree, o->clustering.mean, o->path.mean,
                         o->mean.directed_path, o->mean.random_clustering, o->mean.random_path, o->sigma.mean,
                         o->sigma.low, o->sigma.high, o->mean.sigma_expected);
    count++;
  }
  if (status == FLY_OK) status = add_fruit_fly(&rows, error);
  if (status == FLY_OK) introduce(p);
  if (status == FLY_OK && count == 0) page_text(p, "None of the methods here (SWA, SA, SA + SWA) was chosen.");
  if (status == FLY_OK && count > 0) status = draw(options, methods, all, count, p, error);
  if (status == FLY_OK) status = page_table(p, &rows, false, error);
  table_free(&rows);
  return status;
}
