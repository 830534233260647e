/* compare_on_picture.c: the section with attention weights as a picture: one head on a short sequence, masked pairs
 * grey, for every mechanism. Weights are computed in double precision from the mechanisms' definitions. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compare.h"

enum { TOKENS = 64, BUDGET = 16, PANELS = METHODS + 1 };

/* scores[q * n + kv], and a bit for each pair that is seen. */
typedef struct scene {
  int n;
  double *scores;
  bool *sees;
} scene;

static void score(const tensors *t, scene *s) {
  const float *q = t->q.data, *k = t->k.data; /* batch 0, head 0 */
  int64_t dim = t->q.shape[3];
  for (int i = 0; i < s->n; i++)
    for (int j = 0; j < s->n; j++) {
      double sum = 0;
      for (int64_t d = 0; d < dim; d++) sum += (double)q[i * dim + d] * (double)k[j * dim + d];
      s->scores[i * s->n + j] = sum / sqrt((double)dim);
    }
}

/* weights += share * softmax over what is seen. */
static void add_softmax(const scene *s, double share, double *weights) {
  for (int i = 0; i < s->n; i++) {
    double most = -INFINITY, sum = 0;
    for (int j = 0; j < s->n; j++)
      if (s->sees[i * s->n + j]) most = fmax(most, s->scores[i * s->n + j]);
    for (int j = 0; j < s->n; j++)
      if (s->sees[i * s->n + j]) sum += exp(s->scores[i * s->n + j] - most);
    for (int j = 0; j < s->n; j++)
      if (s->sees[i * s->n + j]) weights[i * s->n + j] += share * exp(s->scores[i * s->n + j] - most) / sum;
  }
}

/* What the queries of one mask see. */
static fly_status look(const method *m, scene *s, fly_error *error) {
  graph_desc desc = {.method = *m, .n = s->n, .seed = 1};
  graph g;
  memset(s->sees, 0, (size_t)(s->n * s->n) * sizeof *s->sees);
  fly_status status = graph_create(&desc, &g, error);
  if (status != FLY_OK) return status;
  for (int i = 0; i < s->n; i++)
    for (int64_t at = g.start[i]; at < g.start[i + 1]; at++) s->sees[i * s->n + g.key[at]] = true;
  graph_free(&g);
  return FLY_OK;
}

/* MoBA chooses by the head's queries and keys: the library does. */
static fly_status look_moba(const compare_options *options, const method *m, const tensors *t, scene *s,
                            fly_error *error) {
  fly_mask *mask = NULL;
  fly_selection *selection = NULL;
  int64_t dim = t->q.shape[3], blocks = (s->n + m->block - 1) / m->block;
  fly_moba_desc desc = {FLY_INIT(fly_moba_desc), .block = m->block, .top = m->top,
                        .q = fly_tensor_dense(t->q.data, FLY_F32, 1, 1, s->n, dim),
                        .k = fly_tensor_dense(t->k.data, FLY_F32, 1, 1, s->n, dim)};
  uint8_t *bitmap = calloc((size_t)(s->n * blocks), 1);
  fly_status status = bitmap ? FLY_OK : fail_memory(error);
  if (status == FLY_OK) status = compare_mask("selected_tiles", NULL, 0, options->target, &mask, error);
  if (status == FLY_OK) status = fly_moba_select(mask, &desc, &selection, error);
  if (status == FLY_OK) fly_selection_get_bitmap(selection, bitmap);
  for (int i = 0; status == FLY_OK && i < s->n; i++)
    for (int j = 0; j < s->n; j++) s->sees[i * s->n + j] = j <= i && bitmap[i * blocks + j / m->block];
  fly_selection_release(&selection);
  fly_mask_release(&mask);
  free(bitmap);
  return status;
}

/* Weights of a method, NaN where it sees nothing. */
static fly_status weigh(const compare_options *options, method_kind kind, const tensors *t, scene *s, double *weights,
                        fly_error *error) {
  method m = method_by_touched(kind, BUDGET), part[2] = {m, m};
  part[0].kind = METHOD_SWA;
  part[1].kind = METHOD_SA;
  fly_status status = FLY_OK;
  memset(weights, 0, (size_t)(s->n * s->n) * sizeof *weights);
  if (kind == METHOD_MOBA) {
    status = look_moba(options, &m, t, s, error);
    if (status == FLY_OK) add_softmax(s, 1, weights);
  } else if (kind == METHOD_BOTH) {
    for (int i = 0; status == FLY_OK && i < 2; i++) {
      status = look(&part[i], s, error);
      if (status == FLY_OK) add_softmax(s, 0.5, weights);
    }
    if (status == FLY_OK) status = look(&m, s, error);
  } else {
    status = look(&m, s, error);
    if (status == FLY_OK) add_softmax(s, 1, weights);
  }
  for (int i = 0; status == FLY_OK && i < s->n * s->n; i++)
    weights[i] = s->sees[i] ? fmax(weights[i], 1e-4) : NAN; /* what is seen has a colour, however little it weighs */
  return status;
}

/* The same weights in the order in which SA's permutation puts the tokens. */
static fly_status permute(int n, const double *weights, double *out, fly_error *error) {
  int32_t rows[TOKENS];
  fly_status status = fly_permutation(n, 1, 0, 0, 0, rows, error);
  for (int i = 0; status == FLY_OK && i < n; i++)
    for (int j = 0; j < n; j++) out[i * n + j] = weights[rows[i] * n + rows[j]];
  return status;
}

/* Every pair: for the table. */
static fly_status add_rows(const scene *s, const char *name, const double *weights, table *rows, fly_error *error) {
  fly_status status = FLY_OK;
  for (int i = 0; status == FLY_OK && i < s->n * s->n; i++)
    if (isfinite(weights[i]))
      status = table_add(rows, error, name, (int64_t)(i / s->n), (int64_t)(i % s->n), weights[i]);
  return status;
}

static chart_panel heat_panel(const char *title, const char *x, const char *y, int n, const double *weights) {
  return (chart_panel){
      .kind = PANEL_HEAT, .title = title, .x = x, .y = y, .low = 1e-4, .high = 1, .heat = {n, weights, "weight"}};
}

/* Weights, rows of the table and a panel for each method, and one more for SA; returns in *count how many panels. */
static fly_status weigh_all(const compare_options *options, const tensors *t, scene *s, double *weights, table *rows,
                            chart_panel *panels, int *count, fly_error *error) {
  size_t pairs = (size_t)(s->n * s->n);
  fly_status status = FLY_OK;
  for (int m = 0; status == FLY_OK && m < METHODS; m++) {
    if (!options->methods[m]) continue;
    const char *name = method_name((method_kind)m);
    double *own = weights + (size_t)*count * pairs;
    status = weigh(options, (method_kind)m, t, s, own, error);
    if (status == FLY_OK) status = add_rows(s, name, own, rows, error);
    panels[(*count)++] = heat_panel(name, "key", "query", s->n, own);
    if (status != FLY_OK || m != METHOD_SA) continue;
    status = permute(s->n, own, own + pairs, error);
    panels[(*count)++] = heat_panel("SA, in permuted order", "position of key", "position of query", s->n, own + pairs);
  }
  return status;
}

static fly_status draw(const scene *s, const chart_panel *panels, int count, page *p, fly_error *error) {
  char caption[256];
  snprintf(caption, sizeof caption,
           "Attention weights of head 0 on the first %d tokens, budget of %d keys touched. Colours: the weight, "
           "logarithmic, 1e-4 and less to 1. Grey: masked",
           s->n, BUDGET);
  chart c = {.name = "picture",
             .caption = caption,
             .panels = panels,
             .count = count,
             .columns = 3,
             .width = 1100,
             .height = count > 3 ? 680 : 350,
             .raster = true};
  page_text(p,
            "Rows are queries, columns keys; the weights of a row sum to 1 (SA + SWA: the mean of two softmaxes). What "
            "is grey has no part in the softmax: a mechanism is as good as the colour it keeps.");
  return page_chart(p, &c, error);
}

fly_status section_picture(const compare_options *options, const tensors *t, page *p, fly_error *error) {
  static const column columns[] = {{"method", "method", NULL, 't', 0},
                                   {"query", "query", NULL, 'i', 0},
                                   {"key", "key", NULL, 'i', 0},
                                   {"weight", "weight", NULL, 'r', 4}};
  table rows = {.name = "picture", .caption = "Weights", .columns = columns, .column_count = 4};
  scene s = {.n = t->q.shape[2] < TOKENS ? (int)t->q.shape[2] : TOKENS};
  size_t pairs = (size_t)(s.n * s.n);
  double *weights = calloc(PANELS * pairs, sizeof *weights);
  chart_panel panels[PANELS];
  int count = 0;
  s.scores = calloc(pairs, sizeof *s.scores);
  s.sees = calloc(pairs, sizeof *s.sees);
  fly_status status = weights && s.scores && s.sees ? FLY_OK : fail_memory(error);
  progress("attention picture");
  if (status == FLY_OK) {
    score(t, &s);
    status = weigh_all(options, t, &s, weights, &rows, panels, &count, error);
  }
  if (status == FLY_OK) status = draw(&s, panels, count, p, error);
  if (status == FLY_OK) status = page_file(p, &rows, error);
  table_free(&rows);
  free(weights);
  free(s.scores);
  free(s.sees);
  return status;
}
