/* compare_on_cost.c: the section on cost: times of the mechanisms, forward and backward, by sequence length. All
 * mechanisms run in turn, so that they meet the same machine; the figures are the least of all rounds, since other
 * work on the machine only adds. */
#include <math.h>
#include <stdlib.h>

#include "compare.h"

enum { ROUNDS_LEAST = 4, ROUNDS_MOST = 40 }; /* the first one warms up */
static const double seconds_enough = 3;      /* of all mechanisms at one length, once there are enough rounds */
static const double flops_most = 5e11;       /* of one forward call: what would take longer is left out */

static const column columns[] = {{"method", "method", NULL, 't', 0},
                                 {"form", "form", NULL, 't', 0},
                                 {"tokens", "tokens", NULL, 'i', 0},
                                 {"touched_keys", "keys touched", "a query", 'r', 1},
                                 {"visible_keys", "keys visible", "a query", 'r', 1},
                                 {"visible_pairs", "visible pairs", NULL, 'i', 0},
                                 {"tiles_full", "tiles full", "128 x 128", 'i', 0},
                                 {"tiles_partial", "tiles partial", "128 x 128", 'i', 0},
                                 {"tiles_all", "all tiles", NULL, 'i', 0},
                                 {"setup_ms", "set-up", "ms", 'r', 2},
                                 {"forward_ms", "forward", "ms", 'r', 3},
                                 {"backward_ms", "backward", "ms", 'r', 3},
                                 {"forward_gflops", "forward", "GFLOP/s", 'r', 1},
                                 {"backward_gflops", "backward", "GFLOP/s", 'r', 1},
                                 {"ns_a_token", "both", "ns a token and head", 'r', 0}};

/* By method and length; NaN: not run. */
typedef struct figures {
  double tokens[LIST_MOST], forward[METHODS][LIST_MOST], backward[METHODS][LIST_MOST], token[METHODS][LIST_MOST];
} figures;

typedef struct contest {
  attempt attempts[METHODS];
  void *workspace; /* of all in turn, as programs keep one from call to call */
  bool runs[METHODS];
  timing forward[METHODS], backward[METHODS];
} contest;

/* ---- measuring --------------------------------------------------------------------------------------------------- */

static fly_status run_round(const compare_options *options, contest *c, int round, fly_error *error) {
  fly_status status = FLY_OK;
  for (int m = 0; status == FLY_OK && m < METHODS; m++) {
    if (!c->runs[m]) continue;
    double start = compare_clock_ms(options);
    status = attempt_forward(&c->attempts[m], error);
    double middle = compare_clock_ms(options);
    if (status == FLY_OK) status = attempt_backward(&c->attempts[m], error);
    if (round == 0) continue;
    timing_add(&c->forward[m], middle - start);
    timing_add(&c->backward[m], compare_clock_ms(options) - middle);
  }
  return status;
}

static fly_status add_rows(const contest *c, const tensors *t, figures *f, int at, table *rows, fly_error *error) {
  int64_t n = t->q.shape[2], heads = t->q.shape[1], d = t->q.shape[3], dv = t->v.shape[3];
  char form[64];
  fly_status status = FLY_OK;
  for (int m = 0; status == FLY_OK && m < METHODS; m++) {
    if (!c->runs[m]) continue;
    const attempt *a = &c->attempts[m];
    double pairs = (double)a->pairs, forward = timing_least(&c->forward[m]), backward = timing_least(&c->backward[m]);
    f->forward[m][at] = forward;
    f->backward[m][at] = backward;
    f->token[m][at] = (forward + backward) * 1e6 / (double)(n * heads);
    status = table_add(rows, error, method_name(a->method.kind), method_text(&a->method, form, sizeof form), n,
                       method_touched(&a->method, n), pairs / (double)(n * heads), a->pairs, a->tiles_full,
                       a->tiles_partial, a->tiles_all, a->setup_ms, forward, backward,
                       2 * (double)(d + dv) * pairs / forward * 1e-6,
                       (double)(6 * d + 4 * dv) * pairs / backward * 1e-6, f->token[m][at]);
  }
  return status;
}

static fly_status keep_workspace(contest *c, fly_error *error) {
  size_t most = 0, bytes;
  fly_status status = FLY_OK;
  for (int m = 0; m < METHODS && status == FLY_OK; m++) {
    if (!c->runs[m]) continue;
    status = attempt_workspace_size(&c->attempts[m], &bytes, error);
    if (bytes > most) most = bytes;
  }
  if (status != FLY_OK) return status;
  most = (most + 63) / 64 * 64;
  c->workspace = compare_alloc(most < 4 << 20 ? 4 << 20 : most); /* aligned, as it is large */
  if (!c->workspace) return fail_memory(error);
  for (int m = 0; m < METHODS; m++)
    if (c->runs[m]) attempt_set_workspace(&c->attempts[m], c->workspace, most);
  return FLY_OK;
}

static fly_status measure_length(const compare_options *options, int64_t heads, const tensors *like, int at, figures *f,
                                 table *rows, fly_error *error) {
  tensors t;
  contest *c = calloc(1, sizeof *c);
  if (!c) return fail_memory(error);
  int64_t n = options->lengths[at], d = like->q.shape[3], dv = like->v.shape[3];
  f->tokens[at] = (double)n;
  progress("cost: %s tokens", grouped(n));
  fly_status status = inputs_draw(1, heads, n, d, dv, true, &t, error);
  for (int m = 0; status == FLY_OK && m < METHODS; m++) {
    method form = method_by_touched((method_kind)m, options->cost_width);
    double flops = 2 * (double)(d + dv) * method_touched(&form, n) * (double)n * (double)heads;
    f->forward[m][at] = f->backward[m][at] = f->token[m][at] = NAN;
    if (!options->methods[m] || (m == METHOD_FULL && flops > flops_most)) continue;
    status = attempt_create(&form, &t, 1, options, &c->attempts[m], error);
    c->runs[m] = true;
  }
  if (status == FLY_OK) status = keep_workspace(c, error);
  double start = now_ms();
  for (int round = 0; status == FLY_OK && round < ROUNDS_MOST; round++) {
    if (round >= ROUNDS_LEAST && now_ms() - start > 1e3 * seconds_enough) break;
    progress("cost: %s tokens, round %d", grouped(n), round + 1);
    status = run_round(options, c, round, error);
  }
  if (status == FLY_OK) status = add_rows(c, &t, f, at, rows, error);
  for (int m = 0; m < METHODS; m++) attempt_free(&c->attempts[m]);
  tensors_free(&t);
  free(c->workspace);
  free(c);
  return status;
}

/* ---- telling ----------------------------------------------------------------------------------------------------- */

/* Where costs are near each other, from 0; else logarithmic. */
static void scale_tokens(const compare_options *options, const figures *f, chart_panel *panel) {
  double least = INFINITY, most = 0;
  for (int m = 0; m < METHODS; m++)
    for (int i = 0; options->methods[m] && i < options->length_count; i++)
      if (isfinite(f->token[m][i])) least = fmin(least, f->token[m][i]), most = fmax(most, f->token[m][i]);
  if (most > 5 * least) return;
  panel->log_y = false;
  panel->low = 0, panel->high = 1.1 * most;
}

static fly_status draw(const compare_options *options, figures *f, int64_t heads, int64_t dim, page *p,
                       fly_error *error) {
  series lines[3][METHODS];
  double(*values[3])[LIST_MOST] = {f->forward, f->backward, f->token};
  int count = 0;
  for (int m = 0; m < METHODS; m++) {
    if (!options->methods[m]) continue;
    for (int i = 0; i < 3; i++)
      lines[i][count] = (series){.title = method_name((method_kind)m),
                                 .style = m,
                                 .count = options->length_count,
                                 .x = f->tokens,
                                 .y = values[i][m]};
    count++;
  }
  char caption[256];
  snprintf(caption, sizeof caption,
           "Time of one layer by sequence length, %lld head%s of dimension %lld, budget of %d keys touched. Left "
           "and middle: both axes logarithmic. Right: a flat line is a cost that is linear in the length",
           (long long)heads, heads == 1 ? "" : "s", (long long)dim, options->cost_width);
  chart_panel panels[] = {{.kind = PANEL_LINES_XY,
                           .title = "forward",
                           .x = "tokens (ki: 1,024)",
                           .y = "ms",
                           .log_x = true,
                           .kilo = true,
                           .log_y = true,
                           .lines = lines[0],
                           .count = count},
                          {.kind = PANEL_LINES_XY,
                           .title = "backward",
                           .key = "off",
                           .x = "tokens (ki: 1,024)",
                           .y = "ms",
                           .log_x = true,
                           .kilo = true,
                           .log_y = true,
                           .lines = lines[1],
                           .count = count},
                          {.kind = PANEL_LINES_XY,
                           .title = "forward and backward, a token",
                           .key = "off",
                           .x = "tokens (ki: 1,024)",
                           .y = "ns a token and head",
                           .log_x = true,
                           .kilo = true,
                           .log_y = true,
                           .lines = lines[2],
                           .count = count}};
  scale_tokens(options, f, &panels[2]);
  chart c = {
      .name = "cost", .caption = caption, .panels = panels, .count = 3, .columns = 3, .width = 1200, .height = 420};
  return page_chart(p, &c, error);
}

/* At the longest sequence that both ran: how many times the forward and the backward time of a is that of b. */
static void tell_ratio(const compare_options *options, const figures *f, int a, int b, page *p) {
  for (int i = options->length_count - 1; i >= 0; i--) {
    if (!options->methods[a] || !options->methods[b] || !isfinite(f->forward[a][i]) || !isfinite(f->forward[b][i]))
      continue;
    fprintf(p->html, "<li>%s takes %.2f times as long forward as %s at %s tokens, and %.2f times backward.</li>\n",
            method_name((method_kind)a), f->forward[a][i] / f->forward[b][i], method_name((method_kind)b),
            grouped(options->lengths[i]), f->backward[a][i] / f->backward[b][i]);
    return;
  }
}

static void tell_growth(const compare_options *options, const figures *f, page *p) {
  for (int m = METHOD_SWA; m < METHODS; m++) {
    double least = INFINITY, most = 0;
    int64_t from = 0, to = 0;
    for (int i = 0; options->methods[m] && i < options->length_count; i++) {
      if (options->lengths[i] < 8192 || !isfinite(f->token[m][i])) continue;
      if (!from) from = options->lengths[i];
      to = options->lengths[i];
      least = fmin(least, f->token[m][i]);
      most = fmax(most, f->token[m][i]);
    }
    if (from < to)
      fprintf(p->html, "<li>%s from %s to %s tokens: %.0f to %.0f ns a token and head, %.0f %% apart.</li>\n",
              method_name((method_kind)m), grouped(from), grouped(to), least, most, 100 * (most / least - 1));
  }
}

fly_status section_cost(const compare_options *given, const tensors *t, page *p, fly_error *error) {
  const compare_options own = compare_timed(given), *options = &own;
  table rows = {.name = "cost",
                .caption = "Cost by method and length",
                .columns = columns,
                .column_count = sizeof columns / sizeof *columns};
  int64_t heads = t->q.shape[1] < 2 ? 1 : 2;
  figures *f = calloc(1, sizeof *f);
  fly_status status = f ? FLY_OK : fail_memory(error);
  for (int i = 0; status == FLY_OK && i < options->length_count; i++)
    status = measure_length(options, heads, t, i, f, &rows, error);
  if (status == FLY_OK) {
    page_text(
        p,
        "One layer, one sequence, %lld head%s of dimension %lld, random inputs; the budget is %d keys touched a "
        "query (SA + SWA share it). Times are the least of calls in turn, since other work on the machine only "
        "adds (%s). MoBA's include its gate and the grouping of queries, forward; SA's permutation and every "
        "block map are set-up, once for a layer and step. Tiles are those of one head; SA + SWA has those of both its "
        "parts, and pairs that both see count twice; MoBA's are of the grouped call, in which a query is a row for "
        "each of its blocks. A visible pair counts 2 (D + DV) flops forward and 6 D + 4 DV backward. Full attention is "
        "left out where a call takes more than %.0f GFLOP.",
        (long long)heads, heads == 1 ? "" : "s", (long long)t->q.shape[3], options->cost_width,
        options->threads == 1 ? "of one thread, on the processor's clock" : "from call to return", flops_most * 1e-9);
    status = draw(options, f, heads, t->q.shape[3], p, error);
  }
  if (status == FLY_OK) {
    fputs("<ul>\n", p->html);
    tell_ratio(options, f, METHOD_FULL, METHOD_SWA, p);
    tell_ratio(options, f, METHOD_SA, METHOD_SWA, p);
    tell_ratio(options, f, METHOD_BOTH, METHOD_SWA, p);
    tell_ratio(options, f, METHOD_MOBA, METHOD_SWA, p);
    tell_growth(options, f, p);
    fputs("</ul>\n", p->html);
    status = page_table(p, &rows, true, error);
  }
  table_free(&rows);
  free(f);
  return status;
}
