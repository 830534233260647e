/* check.c: `flymask check`: compiles and verifies a mask and says what it declares and reads; with lengths also what its
 * author should know before it runs. */
#include <stdlib.h>
#include <string.h>

#include "cli.h"

static const struct argp_option options[] = {OPTION_LENGTHS,  OPTION_BATCH, OPTION_HEADS, OPTION_ROWS,
                                             OPTION_Q_OFFSET, OPTION_JSON,  OPTION_SCORE, {0}};

static const char doc[] = "Compile and verify a mask, and say what it reads, its parameters with their defaults, and "
                          "its buffers. An error is "
                          "printed as FILE:LINE:COLUMN. Values that are given are checked too."
                          "\v"
                          "With --lengths every pair of such a call is looked at: query rows that see no key, "
                          "conditions that are always true or "
                          "false, indices outside a buffer, signed overflow, division by zero, / and % of negative "
                          "numbers, shifts beyond the "
                          "width, a mask that reads neither q nor kv. Findings are printed as warnings with "
                          "FILE:LINE:COLUMN, and the exit code "
                          "is 1 where there is one.\n"
                          "\n"
                          "Examples:\n"
                          "  flymask check masks/causal.c\n"
                          "  flymask check sliding_window left=255 right=0\n"
                          "  flymask check document doc=documents.npy --lengths 8192 --json\n"
                          "  flymask check causal --score softcap score.cap=30\n";

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
  if (f->kind == FLY_FINDING_INDEX || f->kind == FLY_FINDING_BLIND_ROWS)
    json_object_update_new(out, json_pack("{sI sI}", "low", (json_int_t)f->low, "high", (json_int_t)f->high));
  return out;
}

static fly_status print_findings(const arguments *args, const char *path, const fly_mask_info *info,
                                 const fly_findings *findings, fly_error *error) {
  if (!args->json) {
    if (!findings->count) print_info(path, info);
    for (int i = 0; i < findings->count; i++) {
      const fly_finding *f = &findings->finding[i];
      printf("%s:%d:%d: warning: %s [%s]\n", path, f->line, f->column, f->message, fly_finding_name(f->kind));
    }
    return FLY_OK;
  }
  json_t *list = json_array();
  for (int i = 0; i < findings->count; i++) json_array_append_new(list, finding_json(&findings->finding[i]));
  return report_json(json_pack("{ss so}", "file", path, "findings", list), error);
}

/* Looks for them and prints them; *found: whether there are any. */
static fly_status find(const arguments *args, const char *path, fly_mask *mask, const bindings *values, bool *found,
                       fly_error *error) {
  call_geometry call = {0};
  fly_findings findings = {0};
  char *source = NULL;
  fly_status status = geometry_create(args, args->batch, args->heads, 0, 0, &call, error);
  if (status == FLY_OK) status = file_read_text(path, &source, error);
  if (status == FLY_OK)
    status = fly_mask_check(source, path, NULL, values->args, values->count, &call.geometry, &findings, error);
  if (status == FLY_OK) status = print_findings(args, path, fly_mask_get_info(mask), &findings, error);
  *found = findings.count > 0;
  fly_findings_free(&findings);
  geometry_free(&call);
  free(source);
  return status;
}

static fly_status check_score(const arguments *args, fly_error *error) {
  char *path = NULL;
  fly_score *score = NULL;
  bindings values = {0};
  fly_status status = score_find(args->score, &path, error);
  if (status == FLY_OK) status = fly_score_compile_file(path, NULL, &score, error);
  if (status == FLY_OK) status = bindings_read(fly_score_get_info(score), args, true, &values, error);
  if (status == FLY_OK) status = check_values(NULL, score, &values, error);
  if (status == FLY_OK) print_info(path, fly_score_get_info(score));
  bindings_free(&values);
  fly_score_release(&score);
  free(path);
  return status;
}

int command_check(int argc, char **argv) {
  arguments args;
  arguments_parse(argc, argv, options, doc, true, &args);
  if (args.len_q < 0 && (args.json || args.rows)) usage_error(argv[0], "--lengths NQ,NKV is missing");
  char *path = NULL;
  fly_mask *mask = NULL;
  bindings values = {0};
  fly_error error;
  bool found = false;
  fly_status status = mask_find(args.mask, &path, &error);
  if (status == FLY_OK) status = fly_mask_compile_file(path, NULL, &mask, &error);
  if (status == FLY_OK) status = bindings_read(fly_mask_get_info(mask), &args, false, &values, &error);
  if (status == FLY_OK && args.len_q >= 0) {
    status = find(&args, path, mask, &values, &found, &error);
  } else if (status == FLY_OK && (status = check_values(mask, NULL, &values, &error)) == FLY_OK) {
    print_info(path, fly_mask_get_info(mask));
  }
  if (status == FLY_OK && args.score) status = check_score(&args, &error);
  if (status == FLY_OK) status = report_end(&error);
  if (status != FLY_OK) print_error(&error);
  bindings_free(&values);
  fly_mask_release(&mask);
  free(path);
  arguments_free(&args);
  return status == FLY_OK && !found ? EXIT_SUCCESS : EXIT_FAILURE;
}
