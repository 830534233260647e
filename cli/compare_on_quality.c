/* compare_on_quality.c: the section on quality: how far each mechanism's output is from full attention's over the
 * given queries, keys and values, by budget, with the spread over permutations. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compare.h"

enum { BY_TOUCHED, BY_VISIBLE, MATCHES };
enum { UNION = METHODS, KINDS }; /* SA + SWA by one softmax over what both see, beside the gated sum */

/* Over the seeds. */
typedef struct spread {
  double mean, low, high;
} spread;

typedef struct figure {
  method method;
  double touched, visible; /* keys a query */
  spread error, cosine, mass;
  bool known;
} figure;

typedef struct board {
  figure all[MATCHES][KINDS][LIST_MOST];
  tensors full, far, merged; /* outputs: full attention's; those of SA's keys that SWA does not see; the union's */
  const tensors *t;
  double first; /* share of full attention's weight that lies on the first token */
} board;

static const char *kind_name(int kind) {
  return kind == UNION ? "SA + SWA, one softmax" : method_name((method_kind)kind);
}

/* ---- differences ------------------------------------------------------------------------------------------------- */

typedef struct difference {
  double error, cosine, mass;
} difference;

/* Relative L2 norm of out - full; mean cosine between rows; mean share of full attention's weight on visible keys,
 * which is exp(lse - lse of full attention). */
static difference differ(const fly_tensor *full, const fly_tensor *full_lse, const fly_tensor *out,
                         const fly_tensor *lse) {
  const float *a = full->data, *b = out->data, *la = full_lse->data, *lb = lse->data;
  int64_t rows = full->shape[0] * full->shape[1] * full->shape[2], dim = full->shape[3];
  difference d = {0};
  double apart = 0, norm = 0;
  for (int64_t i = 0; i < rows; i++) {
    double aa = 0, ab = 0, bb = 0;
    for (int64_t j = 0; j < dim; j++) {
      double x = a[i * dim + j], y = b[i * dim + j];
      aa += x * x, ab += x * y, bb += y * y;
      apart += (x - y) * (x - y);
    }
    norm += aa;
    d.cosine += aa > 0 && bb > 0 ? ab / sqrt(aa * bb) / (double)rows : 0;
    d.mass += exp((double)lb[i] - (double)la[i]) / (double)rows;
  }
  d.error = norm == 0 ? 0 : sqrt(apart / norm); /* NaN where norm is */
  return d;
}

static void add_to(spread *s, double value, int seed, int seeds) {
  s->mean += value / seeds;
  s->low = seed == 0 || value < s->low ? value : s->low;
  s->high = seed == 0 || value > s->high ? value : s->high;
}

static void add_difference(figure *f, difference d, int seed, int seeds) {
  add_to(&f->error, d.error, seed, seeds);
  add_to(&f->cosine, d.cosine, seed, seeds);
  add_to(&f->mass, d.mass, seed, seeds);
  f->known = true;
}

/* ---- SA + SWA by one softmax ------------------------------------------------------------------------------------- */

static const char far_source[] = "#include <flymask/mask.h>\n"
                                 "FLY_PARAM(int, reach, 128);\n"
                                 "FLY_PARAM(int, near, 256);\n"
                                 "bool mask(int b, int h, int q, int kv) {\n"
                                 "  return kv - q <= reach && q - kv <= reach &&\n"
                                 "         fly_token_q(b, h, q) - fly_token_kv(b, h, kv) >= near;\n"
                                 "}\n";

/* SA without what SWA sees: rows as SA's. */
static fly_status attend_far(const compare_options *options, const attempt *a, board *b, int64_t *pairs,
                             fly_error *error) {
  fly_mask *mask = NULL;
  fly_kernel *kernel = NULL;
  fly_bound *bound = NULL;
  fly_map *map = NULL;
  fly_compile_options how = {FLY_INIT(fly_compile_options), .target = options->target};
  fly_arg args[] = {FLY_INT("reach", a->method.reach), FLY_INT("near", a->method.window)};
  fly_status status = fly_mask_compile(far_source, "far.c", &how, &mask, error);
  if (status == FLY_OK) status = compare_kernel(mask, b->t, &kernel, error);
  if (status == FLY_OK) status = fly_mask_bind(mask, args, 2, &bound, error);
  if (status == FLY_OK) status = fly_map_build(bound, &a->calls[1].geometry, NULL, &map, error);
  if (status == FLY_OK) status = fly_map_visible_pairs(map, pairs, error);
  if (status == FLY_OK) {
    fly_attention call = a->calls[1];
    call.kernel = kernel, call.bound = bound, call.map = map;
    call.out = b->far.out, call.lse = b->far.lse;
    status = fly_attention_forward(&call, error);
  }
  fly_map_release(&map);
  fly_bound_release(&bound);
  fly_kernel_release(&kernel);
  fly_mask_release(&mask);
  return status;
}

/* After the gated call: SWA's part merged with SA's other keys. *pairs becomes what both see. */
static fly_status attend_union(const compare_options *options, attempt *a, board *b, int64_t *pairs, fly_error *error) {
  int64_t far = 0, near = 0;
  fly_status status = attend_far(options, a, b, &far, error);
  if (status == FLY_OK) status = fly_map_visible_pairs(a->map, &near, error);
  *pairs = far + near;
  fly_partial partials[] = {{.out = a->part[0].out, .lse = a->part[0].lse}, {.out = b->far.out, .lse = b->far.lse}};
  fly_merge_call merge = {FLY_INIT(fly_merge_call), .partials = partials, .count = 2,
                          .out = b->merged.out,     .lse = b->merged.lse, .threads = options->threads};
  return status == FLY_OK ? fly_merge(&merge, error) : status;
}

/* ---- measuring --------------------------------------------------------------------------------------------------- */

static fly_status measure_once(const compare_options *options, board *b, const method *m, int seed, int seeds,
                               figure *own, figure *as_union, fly_error *error) {
  const tensors *t = b->t;
  double rows = (double)(t->q.shape[0] * t->q.shape[1] * t->q.shape[2]);
  attempt a;
  fly_status status = attempt_create(m, t, (uint64_t)seed + 1, options, &a, error);
  if (status == FLY_OK) status = attempt_forward(&a, error);
  if (status == FLY_OK) {
    int64_t pairs = a.pairs;
    difference d = differ(&b->full.out, &b->full.lse, &t->out, &t->lse);
    if (!isfinite(d.error)) /* finite inputs were checked */
      status = fail(error, FLY_ERROR_ARGUMENT, NULL,
                    "scores of these queries and keys overflow f32: nothing to compare");
    if (status == FLY_OK && m->kind == METHOD_BOTH &&
        (status = attend_union(options, &a, b, &pairs, error)) == FLY_OK) {
      difference u = differ(&b->full.out, &b->full.lse, &b->merged.out, &b->merged.lse);
      d.mass = u.mass; /* both see the same keys */
      add_difference(as_union, u, seed, seeds);
      as_union->visible += (double)pairs / rows / seeds;
    }
    add_difference(own, d, seed, seeds);
    own->visible += (double)pairs / rows / seeds;
    attempt_free(&a);
  }
  return status;
}

static fly_status measure_kind(const compare_options *options, board *b, int match, method_kind kind, int at,
                               fly_error *error) {
  int budget = options->widths[at], seeds = kind == METHOD_SA || kind == METHOD_BOTH ? options->seeds : 1;
  figure *own = &b->all[match][kind][at], *as_union = &b->all[match][UNION][at];
  method m = match == BY_TOUCHED ? method_by_touched(kind, budget) : method_by_visible(kind, budget);
  fly_status status = FLY_OK;
  own->method = m;
  own->touched = method_touched(&m, b->t->q.shape[2]);
  if (kind == METHOD_BOTH) as_union->method = m, as_union->touched = own->touched;
  for (int seed = 0; status == FLY_OK && seed < seeds; seed++) {
    progress("quality: %s, budget %d, permutation %d", method_name(kind), budget, seed + 1);
    status = measure_once(options, b, &m, seed, seeds, own, as_union, error);
  }
  return status;
}

static fly_status create_like(const tensors *t, tensors *out, fly_error *error) {
  const int64_t *s = t->out.shape;
  fly_status status = tensor_create(s[0], s[1], s[2], s[3], &out->out, error);
  return status == FLY_OK ? tensor_create(s[0], s[1], s[2], 1, &out->lse, error) : status;
}

/* The mean over queries and heads of exp(score of the first key - lse of full attention). */
static double first_share(const tensors *t, const fly_tensor *full_lse) {
  const int64_t *s = t->q.shape, dim = s[3], share = s[1] / t->k.shape[1];
  const float *q = t->q.data, *k = t->k.data, *lse = full_lse->data;
  double sum = 0;
  for (int64_t row = 0; row < s[0] * s[1] * s[2]; row++) {
    int64_t head = row / s[2];
    double score = 0;
    for (int64_t d = 0; d < dim; d++) score += (double)q[row * dim + d] * (double)k[head / share * s[2] * dim + d];
    sum += exp(score / sqrt((double)dim) - (double)lse[row]);
  }
  return sum / (double)(s[0] * s[1] * s[2]);
}

static fly_status measure(const compare_options *options, const tensors *t, board *b, fly_error *error) {
  method full = {.kind = METHOD_FULL};
  attempt a;
  b->t = t;
  fly_status status = create_like(t, &b->full, error);
  if (status == FLY_OK) status = create_like(t, &b->far, error);
  if (status == FLY_OK) status = create_like(t, &b->merged, error);
  if (status == FLY_OK) status = attempt_create(&full, t, 0, options, &a, error);
  if (status == FLY_OK) {
    progress("quality: full attention");
    status = attempt_forward(&a, error);
    attempt_free(&a);
  }
  if (status != FLY_OK) return status;
  int64_t rows = t->out.shape[0] * t->out.shape[1] * t->out.shape[2];
  memcpy(b->full.out.data, t->out.data, (size_t)(rows * t->out.shape[3]) * sizeof(float));
  memcpy(b->full.lse.data, t->lse.data, (size_t)rows * sizeof(float));
  b->first = first_share(t, &b->full.lse);
  for (int match = 0; match < MATCHES; match++)
    for (int kind = METHOD_SWA; kind < METHODS; kind++)
      for (int at = 0; status == FLY_OK && options->methods[kind] && at < options->width_count; at++)
        status = measure_kind(options, b, match, (method_kind)kind, at, error);
  return status;
}

/* ---- telling ----------------------------------------------------------------------------------------------------- */

static const column columns[] = {{"budget", "budget", "keys", 'i', 0},
                                 {"method", "method", NULL, 't', 0},
                                 {"form", "form", NULL, 't', 0},
                                 {"touched_keys", "keys touched", "a query", 'r', 1},
                                 {"visible_keys", "keys visible", "a query", 'r', 1},
                                 {"relative_l2", "relative L2", NULL, 'r', 4},
                                 {"relative_l2_low", "least", NULL, 'r', 4},
                                 {"relative_l2_high", "most", NULL, 'r', 4},
                                 {"cosine", "cosine", NULL, 'r', 4},
                                 {"cosine_low", NULL, NULL, 'r', 4},
                                 {"cosine_high", NULL, NULL, 'r', 4},
                                 {"mass", "mass kept", NULL, 'r', 4},
                                 {"mass_low", NULL, NULL, 'r', 4},
                                 {"mass_high", NULL, NULL, 'r', 4}};

static const char *const match_names[MATCHES] = {"keys touched", "keys visible"};

static fly_status add_table(const compare_options *options, const board *b, int match, page *p, fly_error *error) {
  static const char *const names[MATCHES] = {"quality_by_touched", "quality_by_visible"};
  static const char *const captions[MATCHES] = {
      "Budgets matched by keys touched: SA looks at w / 2 positions on each side",
      "Budgets matched by keys visible: SA looks at w positions on each side, of which it sees about w"};
  table rows = {.name = names[match],
                .caption = captions[match],
                .columns = columns,
                .column_count = sizeof columns / sizeof *columns};
  fly_status status = FLY_OK;
  char form[64];
  for (int at = 0; at < options->width_count; at++)
    for (int kind = METHOD_SWA; status == FLY_OK && kind < KINDS; kind++) {
      const figure *f = &b->all[match][kind][at];
      if (!f->known) continue;
      status = table_add(&rows, error, (int64_t)options->widths[at], kind_name(kind),
                         method_text(&f->method, form, sizeof form), f->touched, f->visible, f->error.mean,
                         f->error.low, f->error.high, f->cosine.mean, f->cosine.low, f->cosine.high, f->mass.mean,
                         f->mass.low, f->mass.high);
    }
  if (status == FLY_OK) status = page_table(p, &rows, false, error);
  table_free(&rows);
  return status;
}

/* Of one panel: for each kind a line with its band. */
typedef struct line_data {
  double x[KINDS][LIST_MOST], y[KINDS][LIST_MOST], low[KINDS][LIST_MOST], high[KINDS][LIST_MOST];
  series lines[KINDS];
  int count;
} line_data;

static void make_lines(const compare_options *options, const board *b, int match, int what, line_data *out) {
  for (int kind = METHOD_SWA; kind < KINDS; kind++) {
    if (!b->all[match][kind][0].known) continue;
    for (int at = 0; at < options->width_count; at++) {
      const figure *f = &b->all[match][kind][at];
      const spread *s = what == 0 ? &f->error : what == 1 ? &f->cosine : &f->mass;
      out->x[kind][at] = match == BY_TOUCHED ? f->touched : f->visible;
      out->y[kind][at] = s->mean;
      out->low[kind][at] = s->low;
      out->high[kind][at] = s->high;
    }
    out->lines[out->count++] = (series){.title = kind_name(kind),
                                        .style = kind == UNION ? STYLE_SECOND : kind,
                                        .count = options->width_count,
                                        .x = out->x[kind],
                                        .y = out->y[kind],
                                        .low = out->low[kind],
                                        .high = out->high[kind]};
  }
}

static double most_error(const compare_options *options, const board *b) {
  double most = 0;
  for (int kind = METHOD_SWA; kind < KINDS; kind++)
    for (int at = 0; at < options->width_count; at++) most = fmax(most, b->all[BY_TOUCHED][kind][at].error.high);
  return most;
}

static fly_status draw(const compare_options *options, const board *b, page *p, fly_error *error) {
  enum { MEASURES = 3 };
  static const char *const titles[MEASURES] = {"error of the output", "direction of the output", "attention mass kept"};
  static const char *const labels[MEASURES] = {"relative L2", "mean cosine", "share of the weight"};
  chart_panel panels[MEASURES * MATCHES];
  line_data *data = calloc(MEASURES * MATCHES, sizeof *data);
  char caption[400], names[MEASURES * MATCHES][80];
  if (!data) return fail_memory(error);
  for (int match = 0; match < MATCHES; match++)
    for (int what = 0; what < MEASURES; what++) {
      int i = match * MEASURES + what;
      make_lines(options, b, match, what, &data[i]);
      snprintf(names[i], sizeof names[i], "%s", titles[what]);
      panels[i] = (chart_panel){.kind = PANEL_LINES_XY,
                                .title = names[i],
                                .y = labels[what],
                                .x = match == BY_TOUCHED ? "keys touched a query" : "keys visible a query",
                                .log_x = true,
                                .lines = data[i].lines,
                                .count = data[i].count,
                                .key = i == 0 ? "top right" : "off"};
      if (what == 0) panels[i].high = 1.5 * most_error(options, b); /* room for the key */
    }
  snprintf(
      caption, sizeof caption,
      "Distance to full causal attention by budget, mean over %d permutations, bands from the least to the most. Upper "
      "row: budgets matched by keys touched; lower row: by keys visible. Left: less is better; middle and right: "
      "more is better. SA + SWA keeps the same mass gated and by one softmax",
      options->seeds);
  chart c = {.name = "quality",
             .caption = caption,
             .panels = panels,
             .count = MEASURES * MATCHES,
             .columns = MEASURES,
             .width = 1200,
             .height = 760};
  fly_status status = page_chart(p, &c, error);
  free(data);
  return status;
}

/* Who comes closest, and where SA stands against SWA. */
static void tell(const compare_options *options, const board *b, int match, page *p) {
  int wins[KINDS] = {0}, least = -1;
  for (int at = 0; at < options->width_count; at++) {
    least = -1;
    for (int kind = METHOD_SWA; kind < KINDS; kind++)
      if (b->all[match][kind][at].known &&
          (least < 0 || b->all[match][kind][at].error.mean < b->all[match][least][at].error.mean))
        least = kind;
    if (least >= 0) wins[least]++;
  }
  fprintf(p->html, "<p>Matched by <b>%s</b>, the least error has", match_names[match]);
  const char *between = "";
  for (int kind = METHOD_SWA; kind < KINDS; kind++)
    if (wins[kind]) {
      fprintf(p->html, "%s %s at %d of %d budgets", between, kind_name(kind), wins[kind], options->width_count);
      between = ",";
    }
  fputs(".", p->html);
  for (int at = 0; options->methods[METHOD_SA] && options->methods[METHOD_SWA] && at < options->width_count; at++) {
    double sa = b->all[match][METHOD_SA][at].error.mean, swa = b->all[match][METHOD_SWA][at].error.mean;
    fprintf(p->html, "%s %.2f at %d", at ? "," : " SA's error over SWA's:", swa > 0 ? sa / swa : 0,
            options->widths[at]);
  }
  fputs(".</p>\n", p->html);
}

static void introduce(const board *b, page *p) {
  page_text(
      p,
      "Each mechanism takes full attention's place over the inputs above, with nothing trained for it: this measures "
      "what a layer loses at once, not what a model learns to do without. <i>Relative L2</i>: norm of the difference "
      "of the outputs over the norm of full attention's. <i>Cosine</i>: mean over tokens and heads. <i>Mass "
      "kept</i>: the share of full attention's weights that lies on visible keys. SA + SWA is gated with 1/2 and "
      "1/2, as gates are before they learn; \"one softmax\" is the attention over the union of the keys, the two "
      "merged by their log-sum-exp.");
  page_text(
      p,
      "Of full attention's weights, %.0f %% lies on the first token here. Models often rest much of it there, on a "
      "value that is small, so as to attend to little. A mechanism whose queries do not see that token spreads the "
      "weight over others, and its error may exceed 1, which is that of an output of zeros: read the errors with this "
      "in mind.",
      100 * b->first);
}

fly_status section_quality(const compare_options *options, const tensors *t, page *p, fly_error *error) {
  bool any = false;
  for (int kind = METHOD_SWA; kind < METHODS; kind++) any = any || options->methods[kind];
  if (!any) {
    page_text(p, "No method was chosen that could be held against full attention.");
    return FLY_OK;
  }
  board *b = calloc(1, sizeof *b);
  fly_status status = b ? measure(options, t, b, error) : fail_memory(error);
  if (status == FLY_OK) {
    introduce(b, p);
    status = draw(options, b, p, error);
  }
  if (status == FLY_OK && json_object_set_new(p->section, "weight_on_first_token", json_real(b->first)) != 0)
    status = fail_memory(error);
  for (int match = 0; status == FLY_OK && match < MATCHES; match++) {
    tell(options, b, match, p);
    status = add_table(options, b, match, p, error);
  }
  if (b) {
    tensors_free(&b->full);
    tensors_free(&b->far);
    tensors_free(&b->merged);
  }
  free(b);
  return status;
}
