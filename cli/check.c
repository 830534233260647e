/* check.c: `flymask check`: compiles and verifies a mask, and a score modifier beside it, and says what they declare
 * and read; with lengths also what their author should know before they run. */
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

static const struct argp_option options[] = {OPTION_LENGTHS, OPTION_BATCH, OPTION_HEADS,   OPTION_ROWS, OPTION_Q_OFFSET,
                                             OPTION_JSON,    OPTION_SCORE, OPTION_SECONDS, {0}};

static const char doc[] = "Compile and verify a mask, and say what it reads, its parameters with their defaults, and "
                          "its buffers. An error is "
                          "printed as FILE:LINE:COLUMN. Values that are given are checked too."
                          "\v"
                          "With --lengths every pair of such a call is looked at: query rows that see no key, "
                          "conditions that are always true or "
                          "false, indices outside a buffer, signed overflow, division by zero, / and % of negative "
                          "numbers, shifts beyond the "
                          "width, a mask that reads neither q nor kv. A modifier is looked at over the pairs "
                          "that the mask sees, also for scores that are NaN or infinite and for one that ignores s. "
                          "Findings are printed as warnings with "
                          "FILE:LINE:COLUMN, and the exit code "
                          "is 1 where there is one.\n"
                          "\n"
                          "Examples:\n"
                          "  flymask check masks/causal.c\n"
                          "  flymask check sliding_window left=255 right=0\n"
                          "  flymask check document doc=documents.npy --lengths 8192 --json\n"
                          "  flymask check causal --score softcap score.cap=30 --lengths 4096\n";

static void format_default(const fly_parameter_info *info, char text[64]) {
  if (info->type == FLY_F32 || info->type == FLY_F64)
    snprintf(text, 64, "%.9g", info->value.real);
  else if (info->type == FLY_BOOL)
    snprintf(text, 64, "%s", info->value.integer ? "true" : "false");
  else if (info->type == FLY_U64)
    snprintf(text, 64, "%llu", (unsigned long long)info->value.integer);
  else
    snprintf(text, 64, "%lld", (long long)info->value.integer);
}

static void print_reads(const fly_mask_info *info) {
  const struct {
    bool reads;
    const char *name;
  } all[] = {{info->reads_b, "b"},
             {info->reads_h, "h"},
             {info->reads_q, "q"},
             {info->reads_kv, "kv"},
             {info->reads_token_q, "token_q"},
             {info->reads_token_kv, "token_kv"},
             {info->reads_len_q, "len_q"},
             {info->reads_len_kv, "len_kv"}};
  printf("reads     ");
  bool any = false;
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    if (!all[i].reads) continue;
    printf("%s%s", any ? ", " : "", all[i].name);
    any = true;
  }
  puts(any ? "" : "nothing");
}

static void print_info(const char *path, const fly_mask_info *info) {
  printf("%s: ok\n", path);
  print_reads(info);
  for (int i = 0; i < info->parameter_count; i++) {
    char value[64];
    format_default(&info->parameters[i], value);
    printf("parameter %s %s = %s\n", fly_type_name(info->parameters[i].type), info->parameters[i].name, value);
  }
  for (int i = 0; i < info->buffer_count; i++) {
    const fly_buffer_info *buffer = &info->buffers[i];
    printf("buffer    %s %s, %d dimension%s\n", fly_type_name(buffer->type), buffer->name, buffer->rank,
           buffer->rank == 1 ? "" : "s");
  }
}

/* Binds the given values; buffers that are not given are stood in for by empty ones. mask NULL: the modifier's. */
static fly_status check_values(fly_mask *mask, fly_score *score, const bindings *values, fly_error *error) {
  static const int64_t nothing[4];
  const fly_mask_info *info = mask ? fly_mask_get_info(mask) : fly_score_get_info(score);
  size_t count = (size_t)values->count, most = count + (size_t)info->buffer_count + 1;
  fly_arg *args = calloc(most, sizeof *args);
  fly_bound *bound = NULL;
  fly_status status = args ? FLY_OK : fail_memory(error);
  if (args && count) memcpy(args, values->args, sizeof *args * count);
  for (int i = 0; status == FLY_OK && i < info->buffer_count; i++) {
    const fly_buffer_info *buffer = &info->buffers[i];
    bool given = false;
    for (int j = 0; j < values->count; j++) given |= strcmp(values->args[j].name, buffer->name) == 0;
    if (given) continue;
    fly_buffer *empty;
    status = fly_buffer_create(buffer->type, buffer->rank, nothing, NULL, &empty, error);
    if (status == FLY_OK) args[count++] = FLY_CAPTURE(buffer->name, empty);
  }
  if (status == FLY_OK)
    status = mask ? fly_mask_bind(mask, args, (int)count, &bound, error)
                  : fly_score_bind(score, args, (int)count, &bound, error);
  for (size_t i = (size_t)values->count; i < count; i++) fly_buffer_release(&args[i].buffer);
  fly_bound_release(&bound);
  free(args);
  return status;
}

/* ---- findings ---------------------------------------------------------------------------------------------------- */

static json_t *finding_json(const fly_finding *f) {
  json_t *out = json_pack("{ss si si ss}", "kind", fly_finding_name(f->kind), "line", f->line, "column", f->column,
                          "message", f->message);
  if (f->b >= 0)
    json_object_update_new(
        out, json_pack("{sI sI sI}", "b", (json_int_t)f->b, "h", (json_int_t)f->h, "q", (json_int_t)f->q));
  if (f->b >= 0 && f->kv >= 0) json_object_set_new(out, "kv", json_integer((json_int_t)f->kv));
  if (f->b >= 0 && !isnan(f->s)) json_object_set_new(out, "s", json_real((double)f->s));
  if (f->kind != FLY_FINDING_INDEX && f->kind != FLY_FINDING_BLIND_ROWS) return out;
  if (f->low > INT64_MIN) json_object_set_new(out, "low", json_integer((json_int_t)f->low));
  if (f->high < INT64_MAX) json_object_set_new(out, "high", json_integer((json_int_t)f->high));
  if (f->kind == FLY_FINDING_INDEX) json_object_set_new(out, "open", json_boolean(f->open));
  return out;
}

static json_t *findings_json(const char *path, const fly_findings *findings) {
  json_t *list = json_array();
  for (int i = 0; i < findings->count; i++) json_array_append_new(list, finding_json(&findings->finding[i]));
  return json_pack("{ss so si}", "file", path, "findings", list, "undecided", findings->undecided);
}

static void print_findings(const char *path, const fly_mask_info *info, const fly_findings *findings, double seconds) {
  if (!findings->count) print_info(path, info);
  for (int i = 0; i < findings->count; i++) {
    const fly_finding *f = &findings->finding[i];
    printf("%s:%d:%d: warning: %s [%s]\n", path, f->line, f->column, f->message, fly_finding_name(f->kind));
  }
  if (findings->undecided)
    printf(
        "%s: note: %d question%s not decided: each has %g seconds and 64 (batch, head), all together have %g seconds "
        "(--seconds)\n",
        path, findings->undecided, findings->undecided == 1 ? " was" : "s were", seconds / 30, seconds);
}

/* The last resort, for a source that keeps even one block of pairs busy: nothing else could interrupt it. */
static void give_up(int signal) {
  static const char text[] = "flymask: the source takes too long: not even a block of 64 x 64 pairs is done in time\n";
  (void)signal;
  ssize_t written = write(STDERR_FILENO, text, sizeof text - 1);
  _exit(written < 0 ? EXIT_USAGE : EXIT_FAILURE);
}

static void limit_time(double seconds) {
  signal(SIGALRM, give_up);
  alarm(seconds > 0 ? (unsigned)(2 * seconds) + 10 : 0);
}

/* A source that is looked at: a mask, or (score not NULL) a modifier, over the pairs that `seen` sees. */
typedef struct looked_at {
  const char *path;
  const bindings *values;
  fly_mask *mask;
  fly_score *score;
  const fly_bound *seen;
} looked_at;

static fly_status find(const arguments *args, const looked_at *what, fly_findings *findings, fly_error *error) {
  fly_compile_options how = {FLY_INIT(fly_compile_options), .check_seconds = args->seconds};
  const bindings *v = what->values;
  call_geometry call = {0};
  char *source = NULL;
  fly_status status = geometry_create(args, args->batch, args->heads, 0, 0, &call, error);
  if (status == FLY_OK) status = file_read_text(what->path, &source, error);
  limit_time(args->seconds);
  if (status == FLY_OK && what->score)
    status = fly_score_check(source, what->path, &how, v->args, v->count, what->seen, &call.geometry, findings, error);
  else if (status == FLY_OK)
    status = fly_mask_check(source, what->path, &how, v->args, v->count, &call.geometry, findings, error);
  limit_time(0);
  geometry_free(&call);
  free(source);
  return status;
}

/* Looks for findings, or without lengths only at values; prints the text, or adds to *report. */
static fly_status look_at(const arguments *args, const looked_at *what, bool *found, json_t **report,
                          fly_error *error) {
  const fly_mask_info *info = what->score ? fly_score_get_info(what->score) : fly_mask_get_info(what->mask);
  fly_findings findings = {0};
  fly_status status = args->len_q < 0 ? check_values(what->mask, what->score, what->values, error)
                                      : find(args, what, &findings, error);
  if (status == FLY_OK && args->json)
    *report = findings_json(what->path, &findings);
  else if (status == FLY_OK)
    print_findings(what->path, info, &findings, args->seconds);
  *found |= findings.count > 0;
  fly_findings_free(&findings);
  return status;
}

static fly_status check_score(const arguments *args, fly_bound *seen, bool *found, json_t **report, fly_error *error) {
  looked_at what = {.seen = seen};
  bindings values = {0};
  char *path = NULL;
  fly_status status = score_find(args->score, &path, error);
  if (status == FLY_OK) status = fly_score_compile_file(path, NULL, &what.score, error);
  if (status == FLY_OK) status = bindings_read(fly_score_get_info(what.score), args, true, &values, error);
  what.path = path, what.values = &values;
  if (status == FLY_OK) status = look_at(args, &what, found, report, error);
  bindings_free(&values);
  fly_score_release(&what.score);
  free(path);
  return status;
}

/* The mask, then the modifier, over the pairs that the mask sees. */
static fly_status check(const arguments *args, bool *found, json_t **report, fly_error *error) {
  looked_at what = {0};
  json_t *of_score = NULL;
  bindings values = {0};
  fly_bound *bound = NULL;
  char *path = NULL;
  fly_status status = mask_find(args->mask, &path, error);
  if (status == FLY_OK) status = fly_mask_compile_file(path, NULL, &what.mask, error);
  if (status == FLY_OK) status = bindings_read(fly_mask_get_info(what.mask), args, false, &values, error);
  what.path = path, what.values = &values;
  if (status == FLY_OK) status = look_at(args, &what, found, report, error);
  if (status == FLY_OK && args->score && args->len_q >= 0)
    status = fly_mask_bind(what.mask, values.args, values.count, &bound, error);
  if (status == FLY_OK && args->score) status = check_score(args, bound, found, &of_score, error);
  if (of_score) json_object_set_new(*report, "score", of_score);
  fly_bound_release(&bound);
  bindings_free(&values);
  fly_mask_release(&what.mask);
  free(path);
  return status;
}

int command_check(int argc, char **argv) {
  arguments args;
  arguments_parse(argc, argv, options, doc, true, &args);
  if (args.len_q < 0 && (args.json || args.rows)) usage_error(argv[0], "--lengths NQ,NKV is missing");
  if (!(args.seconds > 0)) args.seconds = 60;
  fly_error error;
  bool found = false;
  json_t *report = NULL;
  fly_status status = check(&args, &found, &report, &error);
  if (status == FLY_OK && report) {
    status = report_json(report, &error);
    report = NULL; /* consumed */
  }
  if (status == FLY_OK) status = report_end(&error);
  if (status != FLY_OK) print_error(&error);
  json_decref(report);
  arguments_free(&args);
  return status == FLY_OK && !found ? EXIT_SUCCESS : EXIT_FAILURE;
}
