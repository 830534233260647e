/* gradients.c: the backward half of `flymask run`: gradients of the output, and of the log-sum-exp, come from .npy
 * files; those of Q, K, V and the sinks go to others. */
#include <stdlib.h>
#include <string.h>

#include "cli.h"

bool gradients_wanted(const arguments *args) { return args->d_out != NULL; }

void gradients_check_usage(const arguments *args, const char *command) {
  bool wanted = args->d_q || args->d_k || args->d_v || args->d_sink;
  if (wanted && !args->d_out) usage_error(command, "--dq, --dk and --dv need --dout F, the gradient of the output");
  if (!wanted && args->d_out) usage_error(command, "--dout needs one of --dq F, --dk F and --dv F");
  if (args->d_sink && !args->sink) usage_error(command, "--dsink needs --sink F");
  if (args->d_lse && !args->d_out) usage_error(command, "--dlse needs --dout F");
}

/* A file that is shaped as `like`, in its type; a narrower one is widened. */
static fly_status read_like(const char *path, const npy_array *like, const char *what, npy_array *out,
                            fly_error *error) {
  fly_status status = npy_read(path, out, error);
  if (status != FLY_OK) return status;
  if (out->rank != like->rank || memcmp(out->shape, like->shape, sizeof *like->shape * (size_t)like->rank) != 0)
    return fail(error, FLY_ERROR_ARGUMENT, path, "is not shaped as %s", what);
  if (out->type != like->type && !(like->type == FLY_F32 && out->type == FLY_F16))
    return fail(error, FLY_ERROR_ARGUMENT, path, "holds %s, but %s holds %s", fly_type_name(out->type), what,
                fly_type_name(like->type));
  return npy_convert(out, like->type, path, error);
}

fly_status gradients_read(const arguments *args, const npy_array *out, const npy_array *lse, gradients *g,
                          fly_error *error) {
  fly_status status = read_like(args->d_out, out, "the output", &g->d_out, error);
  if (status == FLY_OK && args->d_lse) status = read_like(args->d_lse, lse, "the log-sum-exp", &g->d_lse, error);
  return status;
}

/* An array for the gradient of a tensor. */
static fly_status make_like(const fly_tensor *like, npy_array *out, fly_tensor *tensor, fly_error *error) {
  *out = (npy_array){.type = like->type, .rank = 4};
  memcpy(out->shape, like->shape, sizeof like->shape);
  out->count = like->shape[0] * like->shape[1] * like->shape[2] * like->shape[3];
  out->data = calloc((size_t)out->count + 1, fly_type_size(out->type));
  *tensor = *like;
  tensor->data = out->data;
  return out->data ? FLY_OK : fail_memory(error);
}

fly_status gradients_compute(const arguments *args, device *d, const fly_attention *forward, gradients *g,
                             fly_error *error) {
  fly_attention call = *forward;
  fly_status status = FLY_OK;
  call.d_out = call.out;
  call.d_out.data = g->d_out.data;
  if (args->d_lse) {
    call.d_lse = call.lse;
    call.d_lse.data = g->d_lse.data;
  }
  if (args->d_q) status = make_like(&call.q, &g->d_q, &call.d_q, error);
  if (status == FLY_OK && args->d_k) status = make_like(&call.k, &g->d_k, &call.d_k, error);
  if (status == FLY_OK && args->d_v) status = make_like(&call.v, &g->d_v, &call.d_v, error);
  if (status == FLY_OK && args->d_sink) status = make_like(&call.sink, &g->d_sink, &call.d_sink, error);
  if (status != FLY_OK) return status;
  progress("gradients over %s queries and %s keys", grouped(call.geometry.len_q), grouped(call.geometry.len_kv));
  status = device_run(d, &call, true, &g->ms, error);
  progress_end();
  return status;
}

static fly_status write_sink(const arguments *args, const gradients *g, fly_error *error) {
  int64_t heads = g->d_sink.shape[1];
  if (!args->d_sink) return FLY_OK;
  fly_status status = npy_write(args->d_sink, FLY_F32, 1, &heads, g->d_sink.data, error);
  if (status == FLY_OK) report_line("dsink", "%s: [%lld] f32", args->d_sink, (long long)heads);
  return status;
}

static fly_status write_one(const char *path, const char *name, const npy_array *array, fly_error *error) {
  if (!path) return FLY_OK;
  fly_status status = npy_write(path, array->type, array->rank, array->shape, array->data, error);
  const int64_t *s = array->shape;
  if (status == FLY_OK)
    report_line(name, "%s: [%lld, %lld, %lld, %lld] %s", path, (long long)s[0], (long long)s[1], (long long)s[2],
                (long long)s[3], fly_type_name(array->type));
  return status;
}

fly_status gradients_write(const arguments *args, const gradients *g, fly_error *error) {
  fly_status status = write_one(args->d_q, "dq", &g->d_q, error);
  if (status == FLY_OK) status = write_one(args->d_k, "dk", &g->d_k, error);
  if (status == FLY_OK) status = write_one(args->d_v, "dv", &g->d_v, error);
  if (status == FLY_OK) status = write_sink(args, g, error);
  if (status == FLY_OK) report_line("time, backward", "%.3f ms, %s", g->ms, time_includes(args));
  return status;
}

void gradients_free(gradients *g) {
  npy_free(&g->d_out);
  npy_free(&g->d_lse);
  npy_free(&g->d_q);
  npy_free(&g->d_k);
  npy_free(&g->d_v);
  npy_free(&g->d_sink);
}
