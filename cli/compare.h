/* compare.h: what the files of `flymask compare` share, in the order in which a comparison meets it.
 *
 *   options  |  inputs  |  methods, and methods as calls  |  graphs of masks, coverage, small world
 *   |  tables  |  charts  |  the page  |  sections
 *
 * As everywhere in the command, what can fail returns a fly_status and fills a fly_error. Distances of windows are in
 * keys, times in milliseconds, colours are chosen to be told apart by colour-blind readers too. */
#ifndef FLYMASK_COMPARE_H
#define FLYMASK_COMPARE_H

#include "cli.h"

/* ---- options (compare_options.c) --------------------------------------------------------------------------------- */

typedef enum method_kind { METHOD_FULL, METHOD_SWA, METHOD_SA, METHOD_BOTH, METHOD_MOBA, METHODS } method_kind;
enum { SECTION_COST, SECTION_COVERAGE, SECTION_SMALL_WORLD, SECTION_PICTURE, SECTION_QUALITY, SECTIONS };
enum { LIST_MOST = 24 };

typedef struct compare_options {
  const char *q, *k, *v; /* files; all NULL: random, or the sample */
  bool random;
  int64_t shape[4]; /* of random inputs: B, H, N, D */
  bool methods[METHODS];
  int widths[LIST_MOST], width_count; /* budgets of the section on quality, in keys */
  int64_t lengths[LIST_MOST];         /* sequence lengths of the section on cost */
  int length_count, cost_width;
  int64_t coverage_length; /* of the sections on coverage and small world */
  int coverage_width;
  int seeds;          /* permutations that are drawn where something depends on one */
  int threads;        /* 0: OpenMP's */
  const char *target; /* as in fly_compile_options; NULL: the best */
  bool sections[SECTIONS];
  const char *out;
} compare_options;

/* Wrong usage leaves through argp. */
void compare_options_parse(int argc, char **argv, compare_options *out);
const char *method_option(method_kind kind); /* its name among the options: "swa" */
const char *section_option(int section);

/* FLY_OK, or an error once the user has asked to stop (a signal); long loops ask. (compare.c) */
fly_status compare_going(fly_error *error);

/* ---- inputs (compare_inputs.c) ----------------------------------------------------------------------------------- */

/* Queries, keys and values in f32, what is computed from them, and gradients. */
typedef struct tensors {
  fly_tensor q, k, v, out, lse, d_out, d_q, d_k, d_v;
  char description[512]; /* printable ASCII */
} tensors;

/* From the options' files, at random, or the sample. out and lse are there, gradients are not. */
fly_status inputs_read(const compare_options *options, tensors *out, fly_error *error);
/* Random ones, with gradients if wanted. */
fly_status inputs_draw(int64_t batch, int64_t heads, int64_t length, int64_t dim, int64_t value_dim, bool backward,
                       tensors *out, fly_error *error);
/* Zeros, in huge pages where they are many: rows are gathered from all over them. Freed with free(). */
void *compare_alloc(size_t bytes);
fly_status tensor_create(int64_t batch, int64_t heads, int64_t length, int64_t dim, fly_tensor *out, fly_error *error);
void tensors_free(tensors *t);

/* ---- methods (compare_method.c) ---------------------------------------------------------------------------------- */

/* What a mechanism does with its budget. Which fields count depends on the kind. */
typedef struct method {
  method_kind kind;
  int window;     /* SWA: keys, the query's own included */
  int reach;      /* SA: positions of the permuted order on each side */
  int block, top; /* MoBA: keys of a block, blocks of a query with its own */
} method;

/* The method whose queries touch `budget` keys (the windows are compared before causality takes keys out of them), or
 * see about that many on average. SA + SWA halves its budget. */
method method_by_touched(method_kind kind, int budget);
method method_by_visible(method_kind kind, int budget);
const char *method_name(method_kind kind);                         /* "SA + SWA" */
const char *method_text(const method *m, char *text, size_t size); /* with its numbers */
/* Mean number of keys that a query of a sequence of n is compared with. */
double method_touched(const method *m, int64_t n);

/* ---- methods as calls (compare_attempt.c) ------------------------------------------------------------------------ */

/* A method over tensors, ready to run. The tensors are borrowed. */
typedef struct attempt {
  method method;
  fly_mask *masks[2];
  fly_kernel *kernels[2];
  fly_bound *bound;
  fly_map *map;
  fly_sa *sa;
  fly_selection *selection;
  fly_attention calls[2];  /* [0] the method's, or SWA's of both; [1] SA's of both */
  fly_gated_part parts[2]; /* of SA + SWA, with gates of 1/2 */
  fly_gated_call gated;
  fly_moba_desc moba;
  tensors part[2]; /* out and lse of the parts */
  fly_tensor logits;
  double setup_ms;                              /* permutation, mask's values and block map */
  int64_t pairs;                                /* visible, over batch and heads; those of two parts added */
  int64_t tiles_full, tiles_partial, tiles_all; /* of one head */
} attempt;

fly_status attempt_create(const method *m, const tensors *t, uint64_t seed, const compare_options *options,
                          attempt *out, fly_error *error);
void attempt_free(attempt *a);
fly_status attempt_forward(attempt *a, fly_error *error); /* MoBA: its gate and grouping included */
fly_status attempt_backward(attempt *a, fly_error *error);
/* Bytes of workspace that forward and backward would like, and the workspace; gated sums have the library's. */
fly_status attempt_workspace_size(const attempt *a, size_t *bytes, fly_error *error);
void attempt_set_workspace(attempt *a, void *workspace, size_t bytes);
/* The options for what is timed: one thread, unless others are asked for. */
compare_options compare_timed(const compare_options *options);
/* One thread's time is the processor's, which other work on the machine disturbs less; else the clock's. */
double compare_clock_ms(const compare_options *timed);
/* A mask in the source tree's or the installed masks/. */
fly_status compare_mask(const char *name, const fly_arg *bake, int count, const char *target, fly_mask **out,
                        fly_error *error);
fly_status compare_kernel(fly_mask *mask, const tensors *t, fly_kernel **out, fly_error *error);

/* ---- graphs of masks (compare_graph.c) --------------------------------------------------------------------------- */

/* For every query the keys that it sees, as lists: key[start[q]] .. key[start[q + 1] - 1], in any order, each once. */
typedef struct graph {
  int64_t n, *start;
  int32_t *key;
} graph;

typedef struct graph_desc {
  method method;
  int64_t n;
  bool not_causal; /* SA only */
  uint64_t seed;
  uint32_t layer; /* MoBA: blocks are drawn at random, since there are no queries and keys to choose by */
} graph_desc;

fly_status graph_create(const graph_desc *desc, graph *out, fly_error *error);
void graph_free(graph *g);

/* ---- coverage (compare_coverage.c) ------------------------------------------------------------------------------- */

/* R_l(q), the tokens that can have reached q through l layers: bit sets. R_0(q) = {q}. */
typedef struct reach {
  int64_t n, words;
  uint64_t *now, *next;
} reach;

typedef struct coverage {
  double mean, last, worst; /* |R_l(q)| / all that there is: q + 1 tokens, or n where not causal */
  bool complete;
} coverage;

fly_status reach_create(int64_t n, reach *out, fly_error *error);
void reach_free(reach *r);
/* R_l(q) = union over the keys kv of q of R_(l-1)(kv). */
void reach_step(reach *r, const graph *layer);
coverage reach_coverage(const reach *r, bool not_causal);

/* Theory: mean coverage after `layers` layers, for each count up to that. Keys of a window of the permuted order are
 * taken as drawn independently; the file says how. */
fly_status coverage_theory(const graph_desc *desc, int layers, double *mean, fly_error *error);

/* ---- small world (compare_small_world.c) ------------------------------------------------------------------------- */

typedef struct small_world {
  double degree, clustering, path;       /* of the graph with its edges taken both ways, without self-loops */
  double directed_path;                  /* with edges from query to key alone */
  double random_clustering, random_path; /* of a random graph with as many nodes and edges */
  double sigma;
  double sigma_expected; /* against what is expected of such random graphs, in closed form; 0: too few edges for it */
} small_world;
fly_status small_world_measure(const graph *g, uint64_t seed, small_world *out, fly_error *error);
/* The graph with all edges both ways and none from a node to itself, each once. */
fly_status graph_symmetrise(const graph *g, graph *out, fly_error *error);
/* Watts and Strogatz: the mean over nodes of the share of pairs of neighbours that are neighbours. g is symmetric. */
fly_status graph_clustering(const graph *g, double *out, fly_error *error);
/* Mean length of the shortest paths over all ordered pairs that have one. */
fly_status graph_path(const graph *g, double *out, fly_error *error);
/* Erdos and Renyi: m different edges, uniform among all; symmetric. */
fly_status graph_random(int64_t n, int64_t edges, uint64_t seed, graph *out, fly_error *error);

/* ---- tables (compare_table.c) ------------------------------------------------------------------------------------ */

/* kind: 't' text, 'i' integer, 'r' real. title NULL: not in the page; unit may be NULL; digits: of a real there. */
typedef struct column {
  const char *name, *title, *unit;
  char kind;
  int digits;
} column;

typedef struct cell {
  char text[72];
  int64_t integer;
  double real; /* NaN: empty */
} cell;

typedef struct table {
  const char *name, *caption; /* the file is NAME.csv */
  const column *columns;
  int column_count, row_count, room;
  cell *cells;
} table;

/* One value a column: const char *, int64_t or double, by its kind. */
fly_status table_add(table *t, fly_error *error, ...);
void table_free(table *t);
fly_status table_csv(const table *t, const char *path, fly_error *error);
json_t *table_json(const table *t); /* an array of objects; NULL: out of memory */
void table_html(const table *t, FILE *out);
void html_text(FILE *out, const char *text); /* what HTML takes for its own is escaped */

/* ---- charts (compare_chart.c) ------------------------------------------------------------------------------------ */

typedef struct series {
  const char *title; /* NULL: not in the key */
  int style;         /* a method_kind, or STYLE_... : colour and mark */
  bool dashed;
  int count;
  double *x, *y;
  double *low, *high; /* a band; NULL: none */
} series;
enum { STYLE_OTHER = METHODS, STYLE_SECOND, STYLE_RANDOM, STYLES };

typedef struct bar {
  const char *title;
  int style;
  double value, low, high;
} bar;

/* Numbers of a square, row by row from the top; NaN is masked. */
typedef struct heat {
  int n;
  const double *values;
  const char *unit; /* of the colours */
} heat;

typedef enum panel_kind { PANEL_LINES_XY, PANEL_BARS, PANEL_HEAT } panel_kind;

typedef struct chart_panel {
  panel_kind kind;
  const char *title, *x, *y; /* labels with units */
  const char *key;           /* where gnuplot puts it; NULL: top left */
  bool log_x, log_y;
  bool kilo;        /* x in multiples of 1,024 */
  double low, high; /* of y, or of the colours; equal: chosen */
  const series *lines;
  const bar *bars;
  int count;
  heat heat;
} chart_panel;

typedef struct chart {
  const char *name, *caption; /* files NAME.svg, NAME.png, and NAME.gp, which draws them */
  const chart_panel *panels;
  int count, columns, width, height; /* in points of the PNG's half resolution */
  bool raster;                       /* the page shows the PNG: the SVG is large */
} chart;

/* FLY_OK where gnuplot can be run; else what to install. */
fly_status chart_check(fly_error *error);
fly_status chart_draw(const chart *c, const char *directory, fly_error *error);

/* ---- the page (compare_page.c) ----------------------------------------------------------------------------------- */

/* report.html and report.json in the making. */
typedef struct page {
  const char *directory;
  FILE *html;
  char *text;
  size_t size;
  json_t *json, *section; /* the section's object is json's */
} page;

fly_status page_open(const char *directory, page *out, fly_error *error);
fly_status page_section(page *p, const char *name, const char *title, fly_error *error);
/* A paragraph; the text may hold HTML. */
void page_text(page *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Writes NAME.csv, and the table into page and JSON; folded: behind a line to click on. */
fly_status page_table(page *p, const table *t, bool folded, fly_error *error);
/* Writes the table into its file and the JSON alone. */
fly_status page_file(page *p, const table *t, fly_error *error);
/* Draws it and takes the picture into the page. */
fly_status page_chart(page *p, const chart *c, fly_error *error);
/* Writes report.html and report.json. */
fly_status page_save(page *p, fly_error *error);
void page_free(page *p);

/* ---- sections (compare_on_....c) --------------------------------------------------------------------------------- */

fly_status section_cost(const compare_options *options, const tensors *t, page *p, fly_error *error);
fly_status section_coverage(const compare_options *options, const tensors *t, page *p, fly_error *error);
fly_status section_small_world(const compare_options *options, const tensors *t, page *p, fly_error *error);
fly_status section_picture(const compare_options *options, const tensors *t, page *p, fly_error *error);
fly_status section_quality(const compare_options *options, const tensors *t, page *p, fly_error *error);

#endif
