/* test_rows_mutants.c: from the kernels that no mask is joined with (merging, also of the parts of a split call and of
 * selected blocks; gated sums; their projections; MoBA's choice) each barrier and each check of bounds is removed in
 * turn, in the template's source, which is compiled as when the library is built. A case for each template; it prints a
 * table of what noticed whom.
 *
 * Kernels are launched by themselves, on several arguments; tensors end with their last element. A mutant has to be
 * reported by the simulated driver, or to change what is written, in one of these. */
#include "simcuda/simcuda.h"
#include "support/ptx_mutate.h"
#include "support/rows_launch.h"

/* ---- mutants ----------------------------------------------------------------------------------------------------- */

enum { MOST_CHECKS = 32, MOST_WAYS = 32 };

/* clang-format off */
static const struct template {
  const char *name, *kernel; /* of its kernels one that tells it */
  rows_launch *launch;
  int ways;
  struct {
    const char *name, *text, *instead;
    int again; /* so many times the text comes before */
  } checks[MOST_CHECKS];
} templates[] = {
    {"merge", "fly_merge_rows", rows_merge, ROWS_MERGE_WAYS, {
      {"warps without a row", "if (grid_row() >= c->total) return;", "", 0},
      {"warps without a row, backward", "if (grid_row() >= c->total) return;", "", 1},
      {"a packed entry's end", "if (at.row >= cu[1] - start) return;", "", 0},
      {"lanes without a partial", "if (i >= c->count) return e;", "", 0},
      {"rows that are not there", "if (e.row >= 0) e.lse", "e.lse", 0},
      {"partials without a row map", "if (!p->rows) return at.row;", "", 0},
      {"partials without weight", "ballot(weight != 0)", "ballot(e.row >= 0)", 0},
      {"lanes without weight", "ballot(weight != 0)", "ballot(1)", 0},
      {"columns that are read", "if (column + 32 * k < c->dim)", "", 0},
      {"columns that are written", "if (column < c->dim) store", "store", 0},
      {"rows that go elsewhere", "if (c->out_rows) to", "to", 0},
      {"no LSE wanted", "if (c->lse.data && lane_index() == 0)", "if (lane_index() == 0)", 0},
      {"one lane's LSE", "if (c->lse.data && lane_index() == 0)", "if (c->lse.data)", 0},
      {"columns of a product", "n < dim; n += 32", "n <= dim; n += 32", 0},
      {"no gradient of LSE given", "c->lse.data ? (double)", "1 ? (double)", 0},
      {"no gradient of LSE wanted", "if (p->d_lse.data && lane_index() == 0)", "if (lane_index() == 0)", 0},
      {"one lane's gradient of LSE", "if (p->d_lse.data && lane_index() == 0)", "if (p->d_lse.data)", 0},
      {"no gradient of the output wanted", "if (!p->d_out.data) return;", "", 0},
      {"columns of a gradient", "n < c->dim; n += 32", "n <= c->dim; n += 32", 0},
      {"gradients of rows that are not there", "pass ? e.row >= 0 : weight != 0", "pass || weight != 0", 0},
      {"products without weight", "pass ? e.row >= 0 : weight != 0", "e.row >= 0", 0}}},
    {"gate", "fly_gate_rows", rows_gate, ROWS_GATE_WAYS, {
      {"warps without a row", "if (grid_row() >= c->total) return;", "", 0},
      {"warps without a row, backward", "if (grid_row() >= c->total) return;", "", 1},
      {"warps without a row, zeros", "if (grid_row() >= c->total) return;", "", 2},
      {"columns", "n < c->dim; n += 32", "n <= c->dim; n += 32", 0},
      {"columns, backward", "n < c->dim; n += 32", "n <= c->dim; n += 32", 1},
      {"columns, zeros", "n < c->dim; n += 32", "n <= c->dim; n += 32", 2},
      {"one gate for all channels", "p->channels == 1 ? 0 : n", "n", 0},
      {"one gate for all channels, backward", "if (p->channels != 1) g", "g", 0},
      {"no gate for all channels, backward", "if (p->channels == 1) g", "g", 0},
      {"no share wanted", "if (p->d_out.data) store", "store", 0},
      {"no gradient of logits wanted", "if (!p->d_logits.data) continue;", "", 0},
      {"no gradient of a logit wanted", "if (!p->d_logits.data || ", "if (", 0},
      {"gradients by channel", " || p->channels != 1) return;", ") return;", 0},
      {"the barrier", "warp_barrier(); /*", "/*", 0},
      {"one lane's gradient", "if (lane_index() == 0) store", "store", 0}}},
    {"project", "fly_gate_product", rows_project, ROWS_PROJECT_WAYS, {
      {"the barrier before copies", "barrier();\n      copy_factor", "copy_factor", 0},
      {"the barrier behind them", "barrier();\n      multiply", "multiply", 0},
      {"rows of a factor", "r < rows - first && ", "", 0},
      {"depth of a factor", " && c < end - k", "", 0},
      {"rows of ones", "if (row >= m->rows) return 1;", "", 0},
      {"the last slice's end", "behind < f->depth ? (i32)behind : f->depth", "(i32)behind", 0},
      {"rows of a product", "if (i >= p->rows || ", "if (", 0},
      {"columns of a product", " || j >= p->columns) continue;", ") continue;", 0},
      {"threads without an element", "if (i >= total) return;", "", 0},
      {"no gradient wanted", "if (!to->data) return;", "", 0},
      {"slices", "k < s->slices", "k <= s->slices", 0}}},
    {"choose", "fly_choose_blocks", rows_choose, ROWS_CHOOSE_WAYS, {
      {"warps without a block", "if (at >= c->kv_planes * c->blocks) return;", "", 0},
      {"columns of a mean", "n < c->dim; n += 32", "n <= c->dim; n += 32", 0},
      {"keys of a mean", "i < c->block; i++", "i <= c->block; i++", 0},
      {"columns of a score", "n < c->dim; n++", "n <= c->dim; n++", 0},
      {"earlier blocks", "j < earlier; j += 32", "j <= earlier; j += 32", 0},
      {"scores of earlier blocks", "j < earlier; j += 32", "j <= earlier; j += 32", 1},
      {"NaN", "sum > -infinity() ? sum : -infinity()", "sum", 0},
      {"blocks that are taken", "is_before(last, x) && ", "", 0},
      {"warps without a query", "at < c->total; at", "at <= c->total; at", 0},
      {"one lane's own block", "if (lane_index() == 0) list[0]", "list[0]", 0},
      {"one lane's list", "if (lane_index() == 0) list[i]", "list[i]", 0},
      {"the list's end", "i < c->top", "i <= c->top", 0},
      {"fewer blocks than places", "i <= own ? last.block : -1", "last.block", 0}}},
};
/* clang-format on */
enum { TEMPLATES = sizeof templates / sizeof *templates };

/* The file, whole. */
static char *read_text(const char *path) {
  FILE *f = fopen(path, "rb");
  ck_assert_msg(f != NULL, "%s", path);
  char *text = calloc(1, 1 << 20);
  ck_assert_int_lt(fread(text, 1, (1 << 20) - 1, f), (1 << 20) - 1);
  fclose(f);
  return text;
}

/* The template's PTX without one of its checks. */
static char *compile_without(const struct template *t, int check) {
  char path[512], ptx[520], command[2048];
  snprintf(path, sizeof path, "%s/compiler/templates/%s_ptx.c", FLYMASK_SOURCE, t->name);
  char *source = read_text(path), *at = source;
  const char *text = t->checks[check].text;
  for (int n = 0; (at = strstr(at, text)) && n < t->checks[check].again; n++) at++;
  ck_assert_msg(at != NULL, "%s_ptx.c has no '%s' (%s)", t->name, text, t->checks[check].name);
  snprintf(path, sizeof path, "%s/mutant.%s.c", FLYMASK_BUILD, t->name);
  snprintf(ptx, sizeof ptx, "%s.ptx", path);
  FILE *f = fopen(path, "w");
  ck_assert(f != NULL);
  fprintf(f, "%.*s%s%s", (int)(at - source), source, t->checks[check].instead, at + strlen(text));
  fclose(f);
  free(source);
  snprintf(command, sizeof command, "%s -w -I'%s/compiler/templates' -S '%s' -o '%s'", PTX_COMPILER, FLYMASK_SOURCE,
           path, ptx);
  ck_assert_msg(system(command) == 0, "%s", command);
  char *made = read_text(ptx);
  remove(path), remove(ptx);
  return made;
}

/* What the driver is given instead of the text that has the kernel; NULL: nothing. */
static struct {
  const char *kernel;
  char *ptx;
  int (*load)(flyi_cuda_module *, const void *, unsigned, int *, void **);
} mutant;

static int load_mutant(flyi_cuda_module *module, const void *image, unsigned options, int *option, void **value) {
  return mutant.load(module, mutant.ptx && strstr(image, mutant.kernel) ? mutant.ptx : image, options, option, value);
}

/* ---- a run ------------------------------------------------------------------------------------------------------- */

static ptx_outcome run(const struct template *t, int way) {
  rows_device d;
  ptx_outcome o = {0};
  fly_error error;
  bool pushed;
  rows_open(&d, (uint64_t)way + 1);
  mutant.load = d.cuda->driver.module_load, d.cuda->driver.module_load = load_mutant;
  ck_fly_ok(flyi_cuda_enter(d.cuda, &pushed, &error), error);
  fly_status status = t->launch(&d, way, &error);
  flyi_cuda_leave(d.cuda, pushed);
  if (!status) status = fly_cuda_synchronize(d.cuda, NULL, &error);
  o.reported = status != FLY_OK;
  snprintf(o.report, sizeof o.report, "%s", simcuda_report());
  if (o.reported && !*o.report) ck_abort_msg("%s, way %d: %s", t->name, way, error.message);
  if (o.reported)
    simcuda_clear();
  else
    o.digest = rows_digest(&d);
  rows_close(&d);
  return o;
}

/* What of the mutant is noticed: a check's words, or what was written; NULL: nothing. */
static const char *noticed(const struct template *t, const ptx_outcome *expected) {
  static ptx_outcome o;
  bool wrong = false;
  for (int way = 0; way < t->ways; way++) {
    o = run(t, way);
    if (o.reported) return ptx_check_of(&o);
    wrong |= o.digest != expected[way].digest;
  }
  return wrong ? "a wrong result" : NULL;
}

START_TEST(what_is_removed_is_missed) { /* _i: template */
  const struct template *t = &templates[_i];
  ptx_outcome expected[MOST_WAYS];
  int missed = 0;
  ptx_set_copies(SIMCUDA_LATE);
  mutant.ptx = NULL, mutant.kernel = t->kernel;
  for (int way = 0; way < t->ways; way++) {
    expected[way] = run(t, way);
    ck_assert_msg(!expected[way].reported, "%s, way %d: %s", t->name, way, expected[way].report);
  }
  for (int i = 0; i < MOST_CHECKS && t->checks[i].name; i++) {
    mutant.ptx = compile_without(t, i);
    const char *by = noticed(t, expected);
    printf("mutant.%s, %s: %s\n", t->name, t->checks[i].name, by ? by : "the same bits");
    missed += !by;
    free(mutant.ptx);
  }
  fflush(stdout);
  ck_assert_msg(missed == 0, "%s: %d of these are not noticed", t->name, missed);
}
END_TEST

static Suite *suite(void) {
  Suite *suite = suite_create("rows_mutants");
  for (int i = 0; i < TEMPLATES; i++) {
    TCase *mutants = tcase_create(templates[i].name);
    tcase_add_loop_test(mutants, what_is_removed_is_missed, i, i + 1);
    suite_add_tcase(suite, mutants);
  }
  return suite;
}

FLY_TEST_MAIN(suite)
