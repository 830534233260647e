/* args.c: the commands' arguments. Each command lists its options; one parser understands them all, so that an
 * option means the same wherever it stands. Wrong usage leaves through argp with a hint at --help. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

typedef struct parse {
  arguments *args;
  bool takes_mask;
} parse;

/* ---- values ------------------------------------------------------------------------------------------------------ */

static int64_t parse_integer(struct argp_state *state, const char *what, const char *text, int64_t low, int64_t high) {
  char *end;
  errno = 0;
  long long value = strtoll(text, &end, 10);
  if (end == text || *end || isspace((unsigned char)*text) || errno || value < low || value > high)
    argp_error(state, "%s wants an integer of %lld to %lld, not '%s'", what, (long long)low, (long long)high, text);
  return value;
}

/* "A,B", or "A" where one is enough: *second is then left alone and the result is false. */
static bool parse_pair(struct argp_state *state, const char *what, const char *text, int64_t low, int64_t high,
                       bool both, int64_t *first, int64_t *second) {
  char part[64];
  const char *comma = strchr(text, ',');
  if ((!comma && both) || strlen(text) >= sizeof part) {
    argp_error(state, "%s wants two integers, A,B, not '%s'", what, text);
    return false;
  }
  size_t length = comma ? (size_t)(comma - text) : strlen(text);
  memcpy(part, text, length);
  part[length] = 0;
  *first = parse_integer(state, what, part, low, high);
  if (comma) *second = parse_integer(state, what, comma + 1, low, high);
  return comma != NULL;
}

static fly_type parse_type(struct argp_state *state, const char *text) {
  static const fly_type types[] = {FLY_F32, FLY_F16, FLY_BF16};
  for (int i = 0; i < 3; i++)
    if (strcmp(text, fly_type_name(types[i])) == 0) return types[i];
  argp_error(state, "--dtype wants f32, f16 or bf16, not '%s'", text);
  return FLY_TYPE_NONE;
}

static float parse_scale(struct argp_state *state, const char *text) {
  char *end;
  float value = strtof(text, &end);
  if (end == text || *end || isspace((unsigned char)*text) || !isfinite(value) || value == 0)
    argp_error(state, "--scale wants a finite number other than 0, not '%s'", text);
  return value;
}

static double parse_seconds(struct argp_state *state, const char *text) {
  char *end;
  double value = strtod(text, &end);
  if (end == text || *end || isspace((unsigned char)*text) || !(value > 0 && value <= 86400))
    argp_error(state, "--seconds wants a number above 0, and of 86400 at most, not '%s'", text);
  return value;
}

static void parse_rows(struct argp_state *state, const char *text) {
  if (strncmp(text, "random:", 7) != 0) return;
  char *end;
  errno = 0;
  (void)strtoull(text + 7, &end, 10);
  if (!isdigit((unsigned char)text[7]) || *end || errno)
    argp_error(state, "--rows random:SEED wants a seed of 0 to 18446744073709551615, not '%s'", text + 7);
}

static void parse_emit(struct argp_state *state, const char *text) {
  static const char *const kinds[] = {"image", "ll", "asm", "ptx"};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (strcmp(text, kinds[i]) == 0) return;
  argp_error(state, "--emit wants image, ll, asm or ptx, not '%s'", text);
}

/* ---- positional arguments ---------------------------------------------------------------------------------------- */

static bool name_ok(const char *text, size_t length) {
  if (!length || isdigit((unsigned char)*text)) return false;
  for (size_t i = 0; i < length; i++)
    if (!isalnum((unsigned char)text[i]) && text[i] != '_' && text[i] != '.') return false;
  return true;
}

static error_t parse_positional(struct argp_state *state, arguments *args, const char *text) {
  if (!args->mask) {
    args->mask = text;
    return 0;
  }
  const char *equals = strchr(text, '=');
  if (!equals || !name_ok(text, (size_t)(equals - text))) argp_error(state, "NAME=VALUE expected, not '%s'", text);
  size_t length = (size_t)(equals + 1 - text);
  for (int i = 0; i < args->value_count; i++)
    if (strncmp(args->values[i], text, length) == 0) argp_error(state, "'%.*s' is given twice", (int)length - 1, text);
  const char **grown = realloc(args->values, sizeof *grown * (size_t)(args->value_count + 1));
  if (!grown) return ENOMEM;
  args->values = grown;
  args->values[args->value_count++] = text;
  return 0;
}

/* ---- options ----------------------------------------------------------------------------------------------------- */

/* Options of the call: which rows meet which. */
static bool parse_geometry(int key, char *text, struct argp_state *state, arguments *a) {
  int64_t first, second;
  switch (key) {
  case KEY_ROWS:
    parse_rows(state, text);
    a->rows = text;
    return true;
  case KEY_LENGTHS:
    if (!parse_pair(state, "--lengths", text, 0, INT32_MAX, false, &a->len_q, &a->len_kv)) a->len_kv = a->len_q;
    return true;
  case KEY_BATCH:
    a->batch = parse_integer(state, "--batch", text, 1, INT32_MAX);
    return true;
  case KEY_HEADS:
    a->heads = parse_integer(state, "--heads", text, 1, INT32_MAX);
    return true;
  case KEY_KV_HEADS:
    if (!parse_pair(state, "--heads", text, 1, INT32_MAX, false, &a->heads, &a->kv_heads)) a->kv_heads = a->heads;
    if (a->heads % a->kv_heads) argp_error(state, "--heads HQ,HKV: HKV must divide HQ, not '%s'", text);
    return true;
  case KEY_Q_OFFSET:
    a->offset_end = strcmp(text, "end") == 0;
    a->q_offset = a->offset_end ? 0 : parse_integer(state, "--q-offset", text, INT32_MIN, INT32_MAX);
    return true;
  case KEY_TILE:
    parse_pair(state, "--tile", text, 1, 1 << 20, true, &first, &second);
    a->tile_q = (int)first;
    a->tile_kv = (int)second;
    return true;
  case KEY_AT:
    parse_pair(state, "--at", text, 0, INT32_MAX, true, &a->show_b, &a->show_h);
    return true;
  default:
    return false;
  }
}

/* Files. */
static bool parse_file(int key, char *text, arguments *a) {
  switch (key) {
  case KEY_Q:
    a->q = text;
    return true;
  case KEY_K:
    a->k = text;
    return true;
  case KEY_V:
    a->v = text;
    return true;
  case KEY_OUT:
    a->out = text;
    return true;
  case KEY_LSE:
    a->lse = text;
    return true;
  case KEY_D_OUT:
    a->d_out = text;
    return true;
  case KEY_D_LSE:
    a->d_lse = text;
    return true;
  case KEY_D_Q:
    a->d_q = text;
    return true;
  case KEY_D_K:
    a->d_k = text;
    return true;
  case KEY_D_V:
    a->d_v = text;
    return true;
  case KEY_SINK:
    a->sink = text;
    return true;
  case KEY_D_SINK:
    a->d_sink = text;
    return true;
  case KEY_SAMPLE:
    a->sample = text;
    return true;
  case KEY_FROM_BITMAP:
    a->from_bitmap = text;
    return true;
  case KEY_FROM_ARRAYS:
    a->from_arrays = text;
    return true;
  case KEY_TO_ARRAYS:
    a->to_arrays = text;
    return true;
  default:
    return false;
  }
}

/* Options of kernels and output. */
static bool parse_other(int key, char *text, struct argp_state *state, arguments *a) {
  int64_t first, second;
  switch (key) {
  case KEY_HEAD_DIM:
    if (!parse_pair(state, "--head-dim", text, 1, 512, false, &first, &second)) second = first;
    a->head_dim = (int)first;
    a->value_dim = (int)second;
    return true;
  case KEY_DTYPE:
    a->type = parse_type(state, text);
    return true;
  case KEY_SCALE:
    a->scale = parse_scale(state, text);
    return true;
  case KEY_SECONDS:
    a->seconds = parse_seconds(state, text);
    return true;
  case KEY_THREADS:
    a->threads = (int)parse_integer(state, "--threads", text, 1, 4096);
    return true;
  case KEY_TARGET:
    a->target = text;
    return true;
  case KEY_EMIT:
    parse_emit(state, text);
    a->emit = text;
    return true;
  case KEY_JSON:
    a->json = true;
    return true;
  case KEY_SCORE:
    a->score = text;
    return true;
  case KEY_BANDWIDTH:
    a->bandwidth = true;
    return true;
  case KEY_SWEEP:
    a->sweep = true;
    return true;
  case KEY_BACKWARD:
    a->backward = true;
    return true;
  case KEY_DECODE:
    a->decode = true;
    return true;
  case KEY_TEXT:
    a->text = true;
    return true;
  case KEY_NO_LEGEND:
    a->no_legend = true;
    return true;
  default:
    return false;
  }
}

static error_t parse_argument(int key, char *text, struct argp_state *state) {
  parse *p = state->input;
  switch (key) {
  case ARGP_KEY_ARG:
    if (!p->takes_mask) argp_error(state, "unexpected argument '%s'", text);
    return parse_positional(state, p->args, text);
  case ARGP_KEY_NO_ARGS:
    if (p->takes_mask && !p->args->from_bitmap && !p->args->from_arrays) argp_error(state, "no MASK given");
    return 0;
  default:
    return parse_geometry(key, text, state, p->args) || parse_file(key, text, p->args) ||
                   parse_other(key, text, state, p->args)
               ? 0
               : ARGP_ERR_UNKNOWN;
  }
}

void arguments_parse(int argc, char **argv, const struct argp_option *options, const char *doc, bool takes_mask,
                     arguments *out) {
  enum { OPTIONS_MOST = 24 };
  struct argp_option ordered[OPTIONS_MOST] = {{0}};
  for (int i = 0; i < OPTIONS_MOST - 1 && options[i].name; i++) {
    ordered[i] = options[i];
    ordered[i].group = i + 1; /* argp sorts by name within a group: keep our order */
  }
  *out = (arguments){.len_q = -1, .len_kv = -1, .batch = 1, .heads = 1};
  struct argp argp = {
      .options = ordered, .parser = parse_argument, .args_doc = takes_mask ? MASK_ARGUMENTS : NULL, .doc = doc};
  parse p = {out, takes_mask};
  error_t failed = argp_parse(&argp, argc, argv, 0, NULL, &p);
  if (failed) {
    fprintf(stderr, "flymask: %s\n", strerror(failed));
    exit(EXIT_FAILURE);
  }
}

void arguments_free(arguments *args) {
  free(args->values);
  *args = (arguments){0};
}

void usage_error(const char *command, const char *format, ...) {
  fprintf(stderr, "%s: ", command);
  va_list list;
  va_start(list, format);
  vfprintf(stderr, format, list);
  va_end(list);
  fprintf(stderr, "\nTry `%s --help' or `%s --usage' for more information.\n", command, command);
  exit(EXIT_USAGE);
}
