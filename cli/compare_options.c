/* compare_options.c: the options of `flymask compare`. Wrong usage leaves through argp. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "compare.h"

enum { KEY_RANDOM = 2000, KEY_METHODS, KEY_WIDTHS, KEY_COST, KEY_WIDTH, KEY_COVERAGE, KEY_SEEDS, KEY_SECTIONS };

static const struct argp_option options[] = {
    {"q", KEY_Q, "F", 0, "Queries [batch, heads, seq, head_dim], f32 or f16", 1},
    {"k", KEY_K, "F", 0, "Keys [batch, kv_heads, seq, head_dim]", 2},
    {"v", KEY_V, "F", 0, "Values [batch, kv_heads, seq, value_dim]", 3},
    {"random", KEY_RANDOM, "B,H,N,D", 0, "Random inputs instead: batch, heads, tokens, head dimension", 4},
    {"out", KEY_OUT, "DIR", 0, "Where the report goes (needed)", 5},
    {"methods", KEY_METHODS, "LIST", 0,
     "Of full,swa,sa,sa+swa,moba (default all); full is always run where others are "
     "held against it",
     6},
    {"sections", KEY_SECTIONS, "LIST", 0, "Of cost,coverage,small-world,picture,quality (default all)", 7},
    {"widths", KEY_WIDTHS, "LIST", 0, "Budgets of keys in the section on quality (default 32,64,128,256,512)", 8},
    {"lengths", KEY_COST, "LIST", 0,
     "Sequence lengths in the section on cost (default 1024,2048,4096,8192,16384,32768)", 9},
    {"width", KEY_WIDTH, "W", 0, "Budget of keys in the section on cost (default 256)", 10},
    {"coverage", KEY_COVERAGE, "N,W", 0, "Tokens and window of coverage and small world (default 2048,32)", 11},
    {"seeds", KEY_SEEDS, "N", 0, "Permutations drawn where something depends on one (default 5)", 12},
    {"threads", KEY_THREADS, "N", 0,
     "Threads at most (default: as many as OpenMP would use; for cost: one, timed by the processor's clock)", 13},
    {"target", KEY_TARGET, "T", 0,
     "x86-64, x86-64-v3, x86-64-v4 or x86-64-v4-bf16 (default: the best that this machine runs)", 14},
    {0}};

static const char doc[] =
    "Compare full causal attention, sliding windows (SWA), Stochastic Attention (SA), gated SA + SWA and MoBA: "
    "their cost, how far information travels, and how close they come to full attention, on the same inputs and "
    "budgets.\v"
    "Without --q, --k and --v, or --random, the sample of the sources is the input. Writes report.html, one file "
    "to read; report.json; and for each table a .csv, for each chart a .svg, a .png and the gnuplot script that "
    "draws them. The directory is filled when all is done, so that an interrupted run leaves it as it was. The "
    "default run takes one to two minutes.\n"
    "\n"
    "Examples:\n"
    "  flymask compare -o report\n"
    "  flymask compare --q q.npy --k k.npy --v v.npy --widths 64,256 -o report\n"
    "  flymask compare --sections cost --methods swa,sa --random 1,1,2048,64 \\\n"
    "      --lengths 8192,65536,524288 -o linear";

/* ---- values ------------------------------------------------------------------------------------------------------ */

static const char *const method_options[METHODS] = {"full", "swa", "sa", "sa+swa", "moba"};
static const char *const section_options[SECTIONS] = {"cost", "coverage", "small-world", "picture", "quality"};

const char *method_option(method_kind kind) { return method_options[kind]; }
const char *section_option(int section) { return section_options[section]; }

/* A list of integers, ascending or not; returns their number. */
static int parse_numbers(struct argp_state *state, const char *what, const char *text, int64_t low, int64_t high,
                         int64_t *values) {
  int count = 0;
  for (const char *at = text;; at++) {
    char *end;
    errno = 0;
    long long value = strtoll(at, &end, 10);
    if (end == at || isspace((unsigned char)*at) || errno || value < low || value > high || (*end && *end != ','))
      argp_error(state, "%s wants integers of %lld to %lld, separated by commas, not '%s'", what, (long long)low,
                 (long long)high, text);
    if (count == LIST_MOST) argp_error(state, "%s takes at most %d numbers", what, LIST_MOST);
    values[count++] = value;
    at = end;
    if (!*at) return count;
  }
}

static void parse_names(struct argp_state *state, const char *what, const char *text, const char *const *names,
                        int count, bool *chosen) {
  memset(chosen, 0, sizeof *chosen * (size_t)count);
  for (const char *at = text;; at++) {
    size_t length = strcspn(at, ",");
    bool known = false;
    for (int i = 0; i < count; i++)
      if (strlen(names[i]) == length && strncmp(names[i], at, length) == 0) chosen[i] = known = true;
    if (!known) {
      char all[128] = "";
      for (int i = 0; i < count; i++) snprintf(all + strlen(all), sizeof all - strlen(all), " %s", names[i]);
      argp_error(state, "%s knows%s; not '%.*s'", what, all, (int)length, at);
    }
    at += length;
    if (!*at) return;
  }
}

static int64_t parse_number(struct argp_state *state, const char *what, const char *text, int64_t low, int64_t high) {
  int64_t values[LIST_MOST];
  if (parse_numbers(state, what, text, low, high, values) != 1) argp_error(state, "%s wants one number", what);
  return values[0];
}

static void parse_random(struct argp_state *state, const char *text, compare_options *o) {
  int64_t values[LIST_MOST];
  if (parse_numbers(state, "--random", text, 1, INT32_MAX, values) != 4)
    argp_error(state, "--random wants B,H,N,D, not '%s'", text);
  if (values[2] < 2 || values[3] > 512) argp_error(state, "--random wants 2 tokens or more and D of 1 to 512");
  memcpy(o->shape, values, sizeof o->shape);
  o->random = true;
}

/* ---- options ----------------------------------------------------------------------------------------------------- */

static error_t parse_lists(int key, char *text, struct argp_state *state, compare_options *o) {
  int64_t values[LIST_MOST];
  switch (key) {
  case KEY_METHODS:
    parse_names(state, "--methods", text, method_options, METHODS, o->methods);
    return 0;
  case KEY_SECTIONS:
    parse_names(state, "--sections", text, section_options, SECTIONS, o->sections);
    return 0;
  case KEY_WIDTHS:
    o->width_count = parse_numbers(state, "--widths", text, 4, 1 << 20, values);
    for (int i = 0; i < o->width_count; i++) o->widths[i] = (int)values[i];
    return 0;
  case KEY_COST:
    o->length_count = parse_numbers(state, "--lengths", text, 64, 1 << 24, o->lengths);
    return 0;
  case KEY_COVERAGE:
    if (parse_numbers(state, "--coverage", text, 2, 1 << 15, values) != 2)
      argp_error(state, "--coverage wants N,W, not '%s'", text);
    if (values[0] < 16) argp_error(state, "--coverage wants 16 tokens or more");
    o->coverage_length = values[0];
    o->coverage_width = (int)values[1];
    return 0;
  default:
    return ARGP_ERR_UNKNOWN;
  }
}

static error_t parse_one(int key, char *text, struct argp_state *state) {
  compare_options *o = state->input;
  switch (key) {
  case KEY_Q:
    o->q = text;
    return 0;
  case KEY_K:
    o->k = text;
    return 0;
  case KEY_V:
    o->v = text;
    return 0;
  case KEY_OUT:
    o->out = text;
    return 0;
  case KEY_TARGET:
    o->target = text;
    return 0;
  case KEY_RANDOM:
    parse_random(state, text, o);
    return 0;
  case KEY_WIDTH:
    o->cost_width = (int)parse_number(state, "--width", text, 4, 1 << 20);
    return 0;
  case KEY_SEEDS:
    o->seeds = (int)parse_number(state, "--seeds", text, 1, 100);
    return 0;
  case KEY_THREADS:
    o->threads = (int)parse_number(state, "--threads", text, 1, 4096);
    return 0;
  case ARGP_KEY_ARG:
    argp_error(state, "unexpected argument '%s'", text);
    return 0;
  default:
    return parse_lists(key, text, state, o);
  }
}

void compare_options_parse(int argc, char **argv, compare_options *out) {
  *out = (compare_options){.widths = {32, 64, 128, 256, 512},
                           .width_count = 5,
                           .lengths = {1024, 2048, 4096, 8192, 16384, 32768},
                           .length_count = 6,
                           .cost_width = 256,
                           .coverage_length = 2048,
                           .coverage_width = 32,
                           .seeds = 5};
  for (int i = 0; i < METHODS; i++) out->methods[i] = true;
  for (int i = 0; i < SECTIONS; i++) out->sections[i] = true;
  struct argp argp = {.options = options, .parser = parse_one, .doc = doc};
  error_t failed = argp_parse(&argp, argc, argv, 0, NULL, out);
  if (failed) {
    fprintf(stderr, "flymask: %s\n", strerror(failed));
    exit(EXIT_FAILURE);
  }
  if (!out->out || !*out->out) usage_error(argv[0], "-o DIR is missing");
  const char *const *runs = fly_cpu_targets();
  while (out->target && *runs && strcmp(*runs, out->target) != 0) runs++;
  if (out->target && !*runs)
    usage_error(argv[0], "--target T is none of x86-64, x86-64-v3, ... that this machine runs (--help)");
  int files = (out->q != NULL) + (out->k != NULL) + (out->v != NULL);
  if (files != 0 && files != 3) usage_error(argv[0], "--q F, --k F and --v F go together");
  if (files && out->random) usage_error(argv[0], "--random and files exclude each other");
}
