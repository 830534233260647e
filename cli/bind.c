/* bind.c: from the words MASK NAME=VALUE... to a bound mask. A value is read by what the mask declares under its
 * name: an integer, a real, true or false, or the .npy file of a captured buffer. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli.h"

/* ---- the mask's file --------------------------------------------------------------------------------------------- */

static bool is_file(const char *path) {
  struct stat info;
  return stat(path, &info) == 0 && !S_ISDIR(info.st_mode);
}

static bool ends_with_c(const char *name) {
  size_t length = strlen(name);
  return length > 2 && strcmp(name + length - 2, ".c") == 0;
}

/* directory/NAME.c, if there is one; 0 or more, or -1 without memory. */
static int find_in(const char *directory, size_t length, const char *name, char **path) {
  if (!length) return 0;
  if (asprintf(path, "%.*s/%s%s", (int)length, directory, name, ends_with_c(name) ? "" : ".c") < 0) {
    *path = NULL;
    return -1;
  }
  if (is_file(*path)) return 1;
  free(*path);
  *path = NULL;
  return 0;
}

static char *directories(const char *source, const char *installed) {
  const char *own = getenv("FLYMASK_MASKS");
  char *all;
  if (asprintf(&all, "%s:%s:%s", own ? own : "", source, installed) < 0) return NULL;
  return all;
}

char *mask_directories(void) { return directories(FLYMASK_SOURCE_MASKS, FLYMASK_INSTALLED_MASKS); }
char *score_directories(void) { return directories(FLYMASK_SOURCE_SCORES, FLYMASK_INSTALLED_SCORES); }

/* `all`: the directories, freed here; NULL: out of memory. */
static fly_status find(const char *what, const char *place, const char *mask, char *all, char **path,
                       fly_error *error) {
  *path = NULL;
  if (all && (strchr(mask, '/') || (ends_with_c(mask) && is_file(mask)))) {
    free(all);
    *path = strdup(mask);
    return *path ? FLY_OK : fail_memory(error);
  }
  if (!all) return fail_memory(error);
  int found = 0;
  for (const char *at = all; found == 0; at++) {
    size_t length = strcspn(at, ":");
    found = find_in(at, length, mask, path);
    at += length;
    if (!*at) break;
  }
  free(all);
  if (found > 0) return FLY_OK;
  if (found < 0) return fail_memory(error);
  return fail(
      error, FLY_ERROR_IO, NULL,
      "no %s '%s': neither a file nor a name in %s/ (the path of a file in the current directory begins with ./)", what,
      mask, place);
}

fly_status mask_find(const char *mask, char **path, fly_error *error) {
  return find("mask", "masks", mask, mask_directories(), path, error);
}

fly_status score_find(const char *score, char **path, fly_error *error) {
  return find("score modifier", "scores", score, score_directories(), path, error);
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

/* 16 behind 0x, else 10: a leading zero changes nothing. */
static int base_of(const char *text) {
  text += *text == '-' || *text == '+';
  return text[0] == '0' && (text[1] == 'x' || text[1] == 'X') ? 16 : 10;
}

static fly_status read_integer(const fly_parameter_info *info, const char *text, fly_arg *out, fly_error *error) {
  out->kind = FLY_ARG_INTEGER;
  if (info->type == FLY_BOOL) {
    if (strcmp(text, "true") == 0 || strcmp(text, "1") == 0)
      out->integer = 1;
    else if (strcmp(text, "false") == 0 || strcmp(text, "0") == 0)
      out->integer = 0;
    else
      return fail(error, FLY_ERROR_ARGUMENT, NULL, "%s is true or false, not '%s'", info->name, text);
    return FLY_OK;
  }
  char *end;
  errno = 0;
  if (info->type == FLY_U64 && *text != '-')
    out->integer = (int64_t)strtoull(text, &end, base_of(text));
  else
    out->integer = strtoll(text, &end, base_of(text));
  if (end == text || *end || isspace((unsigned char)*text) || errno)
    return fail(error, FLY_ERROR_ARGUMENT, NULL, "%s is an integer (%s), not '%s'", info->name,
                fly_type_name(info->type), text);
  return FLY_OK;
}

static fly_status read_real(const fly_parameter_info *info, const char *text, fly_arg *out, fly_error *error) {
  char *end;
  out->kind = FLY_ARG_REAL;
  errno = 0;
  out->real = strtod(text, &end);
  bool too_large = errno == ERANGE && isinf(out->real); /* what is too small becomes 0, or the nearest subnormal */
  if (end == text || *end || isspace((unsigned char)*text) || too_large)
    return fail(error, FLY_ERROR_ARGUMENT, NULL, "%s is a number (%s), not '%s'", info->name, fly_type_name(info->type),
                text);
  return FLY_OK;
}

static fly_status make_buffer(const npy_array *array, fly_arg *arg, fly_error *error) {
  arg->kind = FLY_ARG_BUFFER;
  arg->buffer = NULL;
  return fly_buffer_create(array->type, array->rank, array->shape, array->data, &arg->buffer, error);
}

static fly_status read_buffer(const fly_buffer_info *info, const char *path, npy_array *array, fly_arg *out,
                              fly_error *error) {
  fly_status status = npy_read(path, array, error);
  if (status != FLY_OK) return status;
  if (array->rank != info->rank)
    return fail(error, FLY_ERROR_ARGUMENT, path, "has %d dimension%s, but the buffer %s has %d", array->rank,
                array->rank == 1 ? "" : "s", info->name, info->rank);
  status = npy_convert(array, info->type, path, error);
  return status == FLY_OK ? make_buffer(array, out, error) : status;
}

static fly_status read_value(const fly_mask_info *info, bool score, const char *name, const char *text,
                             npy_array *array, fly_arg *out, fly_error *error) {
  out->name = name;
  for (int i = 0; i < info->buffer_count; i++)
    if (strcmp(info->buffers[i].name, name) == 0) return read_buffer(&info->buffers[i], text, array, out, error);
  for (int i = 0; i < info->parameter_count; i++) {
    const fly_parameter_info *parameter = &info->parameters[i];
    if (strcmp(parameter->name, name) != 0) continue;
    bool real = parameter->type == FLY_F32 || parameter->type == FLY_F64;
    return real ? read_real(parameter, text, out, error) : read_integer(parameter, text, out, error);
  }
  return fail(error, FLY_ERROR_ARGUMENT, NULL, "the %s %s has no parameter or buffer '%s'",
              score ? "score modifier" : "mask", info->name, name);
}

fly_status bindings_read(const fly_mask_info *info, const arguments *args, bool score, bindings *out,
                         fly_error *error) {
  static const char prefix[] = "score.";
  size_t count = args->value_count > 0 ? (size_t)args->value_count : 1;
  *out = (bindings){.args = calloc(count, sizeof(fly_arg)),
                    .names = calloc(count, sizeof(char *)),
                    .arrays = calloc(count, sizeof(npy_array))};
  fly_status status = FLY_OK;
  if (!out->args || !out->names || !out->arrays) status = fail_memory(error);
  for (int i = 0; status == FLY_OK && i < args->value_count; i++) {
    const char *name = args->values[i], *equals = strchr(name, '=');
    bool of_score = args->score && strncmp(name, prefix, strlen(prefix)) == 0;
    if (of_score != score) continue;
    if (of_score) name += strlen(prefix);
    int k = out->count++;
    out->names[k] = strndup(name, (size_t)(equals - name));
    status = out->names[k] ? read_value(info, score, out->names[k], equals + 1, &out->arrays[k], &out->args[k], error)
                           : fail_memory(error);
  }
  if (status != FLY_OK) bindings_free(out);
  return status;
}

fly_status bindings_renew(bindings *bindings, fly_error *error) {
  for (int i = 0; i < bindings->count; i++) {
    fly_arg *arg = &bindings->args[i];
    if (arg->kind != FLY_ARG_BUFFER) continue;
    fly_buffer_release(&arg->buffer);
    fly_status status = make_buffer(&bindings->arrays[i], arg, error);
    if (status != FLY_OK) return status;
  }
  return FLY_OK;
}

void bindings_free(bindings *bindings) {
  for (int i = 0; i < bindings->count; i++) {
    if (bindings->args[i].kind == FLY_ARG_BUFFER && bindings->args[i].buffer)
      fly_buffer_release(&bindings->args[i].buffer);
    npy_free(&bindings->arrays[i]);
    free(bindings->names[i]);
  }
  free(bindings->args);
  free(bindings->names);
  free(bindings->arrays);
  memset(bindings, 0, sizeof *bindings);
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

static fly_status bind_score(const arguments *args, const char *target, bound_mask *out, fly_error *error) {
  fly_compile_options options = {FLY_INIT(fly_compile_options), .target = target};
  fly_status status = score_find(args->score, &out->score_path, error);
  if (status == FLY_OK) status = fly_score_compile_file(out->score_path, &options, &out->score, error);
  if (status == FLY_OK) status = bindings_read(fly_score_get_info(out->score), args, true, &out->score_values, error);
  if (status == FLY_OK)
    status = fly_score_bind(out->score, out->score_values.args, out->score_values.count, &out->score_bound, error);
  return status;
}

fly_status bound_mask_create(const arguments *args, bound_mask *out, fly_error *error) {
  *out = (bound_mask){0};
  fly_status status = mask_find(args->mask, &out->path, error);
  if (status != FLY_OK) return status;
  progress("compiling %s", out->path);
  const char *target = device_target(args->target) ? NULL : args->target; /* maps are built on the CPU */
  fly_compile_options options = {FLY_INIT(fly_compile_options), .target = target};
  status = fly_mask_compile_file(out->path, &options, &out->mask, error);
  if (status == FLY_OK) status = bindings_read(fly_mask_get_info(out->mask), args, false, &out->values, error);
  if (status == FLY_OK) status = fly_mask_bind(out->mask, out->values.args, out->values.count, &out->bound, error);
  if (status == FLY_OK && args->score) status = bind_score(args, target, out, error);
  progress_end();
  if (status != FLY_OK) bound_mask_free(out);
  return status;
}

void bound_mask_free(bound_mask *mask) {
  fly_bound_release(&mask->bound);
  bindings_free(&mask->values);
  fly_mask_release(&mask->mask);
  fly_bound_release(&mask->score_bound);
  bindings_free(&mask->score_values);
  fly_score_release(&mask->score);
  free(mask->path);
  free(mask->score_path);
  *mask = (bound_mask){0};
}
