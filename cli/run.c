/* run.c: `flymask run`: attention over .npy files. Input: a mask, perhaps a modifier, Q, K, V. Output: the files of
 * output, log-sum-exp and gradients (gradients.c) that are asked for. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

static const struct argp_option options[] = {
    {"q", KEY_Q, "F", 0, "Queries [batch, heads, seq, head_dim], f32 or f16", 0},
    {"k", KEY_K, "F", 0, "Keys [batch, kv_heads, seq, head_dim]; kv_heads divides heads", 0},
    {"v", KEY_V, "F", 0, "Values [batch, kv_heads, seq, value_dim]", 0},
    {"out", KEY_OUT, "F", 0, "Write the output [batch, heads, seq, value_dim] here, in the inputs' type", 0},
    {"lse", KEY_LSE, "F", 0, "Write the natural log-sum-exp [batch, heads, seq] here, in f32", 0},
    {"dout", KEY_D_OUT, "F", 0, "Read the gradient of the output here, shaped as the output", 0},
    {"dlse", KEY_D_LSE, "F", 0, "Read the gradient of the log-sum-exp here (default: zeros)", 0},
    {"dq", KEY_D_Q, "F", 0, "Write the gradient of the queries here", 0},
    {"dk", KEY_D_K, "F", 0, "Write the gradient of the keys here", 0},
    {"dv", KEY_D_V, "F", 0, "Write the gradient of the values here", 0},
    {"sink", KEY_SINK, "F", 0, "Read a logit for each query head, f32 [heads], that counts in the denominator alone",
     0},
    {"dsink", KEY_D_SINK, "F", 0, "Write the gradient of the sinks here", 0},
    OPTION_ROWS,
    OPTION_Q_OFFSET,
    OPTION_SCORE,
    {"scale", KEY_SCALE, "X", 0, "Factor of the scores (default 1 / sqrt(head_dim))", 0},
    OPTION_THREADS,
    OPTION_RUN_TARGET,
    {0}};

static const char doc[] =
    "Attention over .npy files: out = softmax(scale Q K^T, where the mask sees) V, and its gradients.\v"
    "Inputs may be in C or Fortran order and in any version of the format. .npy has no bf16: convert to f32. With "
    "--rows the output's rows go back to where the queries came from; rows that no query comes from are 0, their LSE "
    "is -inf.\n"
    "\n"
    "Examples:\n"
    "  flymask run causal --q q.npy --k k.npy --v v.npy --out out.npy\n"
    "  flymask run sliding_window left=255 right=0 --q q.npy --k k.npy --v v.npy \\\n"
    "      --out out.npy --lse lse.npy\n"
    "  flymask run stochastic left=128 right=128 --rows perm.npy \\\n"
    "      --q q.npy --k k.npy --v v.npy --out out.npy\n"
    "  flymask run causal --target cuda --q q.npy --k k.npy --v v.npy --out out.npy\n"
    "  flymask run causal --q q.npy --k k.npy --v v.npy \\\n"
    "      --dout dout.npy --dq dq.npy --dk dk.npy --dv dv.npy\n"
    "  flymask run causal --score softcap score.cap=30 \\\n"
    "      --q q.npy --k k.npy --v v.npy --out out.npy\n";

typedef struct inputs {
  npy_array q, k, v, sink; /* sink: empty where there is none */
} inputs;

static fly_status read_tensor(const char *path, npy_array *out, fly_error *error) {
  fly_status status = npy_read(path, out, error);
  if (status != FLY_OK) return status;
  if (out->rank != 4)
    return fail(error, FLY_ERROR_ARGUMENT, path, "has %d dimensions; [batch, heads, seq, head_dim] has 4", out->rank);
  if (out->type != FLY_F32 && out->type != FLY_F16)
    return fail(error, FLY_ERROR_ARGUMENT, path, "holds %s; f32 and f16 are supported", fly_type_name(out->type));
  return FLY_OK;
}

static fly_status read_sink(const arguments *args, inputs *in, fly_error *error) {
  if (!args->sink) return FLY_OK;
  fly_status status = npy_read(args->sink, &in->sink, error);
  if (status != FLY_OK) return status;
  if (in->sink.rank != 1 || in->sink.shape[0] != in->q.shape[1] || in->sink.type != FLY_F32)
    return fail(error, FLY_ERROR_ARGUMENT, args->sink, "must hold f32 [%lld], a logit for each query head",
                (long long)in->q.shape[1]);
  return FLY_OK;
}

static fly_status check_shapes(const arguments *args, const inputs *in, fly_error *error) {
  const int64_t *q = in->q.shape, *k = in->k.shape, *v = in->v.shape;
  if (in->k.type != in->q.type || in->v.type != in->q.type)
    return fail(error, FLY_ERROR_ARGUMENT, in->k.type != in->q.type ? args->k : args->v, "holds %s, but %s holds %s",
                fly_type_name(in->k.type != in->q.type ? in->k.type : in->v.type), args->q, fly_type_name(in->q.type));
  if (k[0] != v[0] || k[1] != v[1] || k[2] != v[2])
    return fail(error, FLY_ERROR_ARGUMENT, args->v, "keys and values differ in batch, heads or length");
  if (q[0] != k[0] || q[3] != k[3])
    return fail(error, FLY_ERROR_ARGUMENT, args->k, "queries and keys differ in batch or head_dim");
  if (q[3] < 1 || q[3] > 512 || v[3] < 1 || v[3] > 512)
    return fail(error, FLY_ERROR_ARGUMENT, q[3] < 1 || q[3] > 512 ? args->q : args->v, "head_dim must be 1 to 512");
  if (k[1] == 0 || q[1] % k[1] != 0)
    return fail(error, FLY_ERROR_ARGUMENT, args->k, "%lld key heads do not divide %lld query heads", (long long)k[1],
                (long long)q[1]);
  return FLY_OK;
}

static fly_tensor tensor_of(const npy_array *array) {
  const int64_t *s = array->shape;
  return fly_tensor_dense(array->data, array->type, s[0], s[1], s[2], s[3]);
}

/* The output: zeros, and LSE -inf, where no row of the call writes. */
static fly_status make_outputs(const inputs *in, npy_array *out, npy_array *lse, fly_error *error) {
  *out = (npy_array){.type = in->q.type, .rank = 4};
  memcpy(out->shape, in->q.shape, sizeof out->shape);
  out->shape[3] = in->v.shape[3];
  *lse = (npy_array){.type = FLY_F32, .rank = 3};
  memcpy(lse->shape, in->q.shape, 3 * sizeof *lse->shape);
  lse->count = lse->shape[0] * lse->shape[1] * lse->shape[2];
  if (__builtin_mul_overflow(lse->count, out->shape[3], &out->count)) return fail_memory(error);
  out->data = calloc((size_t)out->count + 1, fly_type_size(out->type));
  float *values = lse->data = calloc((size_t)lse->count + 1, sizeof(float));
  if (!out->data || !values) return fail_memory(error);
  for (int64_t i = 0; i < lse->count; i++) values[i] = -INFINITY;
  return FLY_OK;
}

static fly_status attend(const arguments *args, const inputs *in, bound_mask *mask, const fly_geometry *geometry,
                         npy_array *out, npy_array *lse, gradients *g, double *ms, fly_error *error) {
  fly_kernel *kernel = NULL;
  device gpu = {0};
  fly_kernel_desc desc = {FLY_INIT(fly_kernel_desc),        .type = in->q.type,     .head_dim = (int)in->q.shape[3],
                          .value_dim = (int)in->v.shape[3], .target = args->target, .score = mask->score};
  fly_status status = fly_kernel_create(mask->mask, &desc, &kernel, error);
  if (status != FLY_OK) return status;
  const int64_t *s = lse->shape;
  fly_attention call = {FLY_INIT(fly_attention),
                        .kernel = kernel,
                        .bound = mask->bound,
                        .geometry = *geometry,
                        .q = tensor_of(&in->q),
                        .k = tensor_of(&in->k),
                        .v = tensor_of(&in->v),
                        .out = tensor_of(out),
                        .lse = fly_tensor_dense(lse->data, FLY_F32, s[0], s[1], s[2], 1),
                        .scale = args->scale,
                        .score = mask->score_bound,
                        .sink = fly_tensor_dense(in->sink.data, FLY_F32, 1, in->q.shape[1], 1, 1),
                        .threads = args->threads};
  progress("attention over %s queries and %s keys", grouped(geometry->len_q), grouped(geometry->len_kv));
  status = device_open(args, &gpu, error);
  if (status == FLY_OK) status = device_run(&gpu, &call, false, ms, error);
  progress_end();
  if (status == FLY_OK && gradients_wanted(args)) status = gradients_compute(args, &gpu, &call, g, error);
  device_close(&gpu);
  fly_kernel_release(&kernel);
  return status;
}

static fly_status write_outputs(const arguments *args, const npy_array *out, const npy_array *lse, const gradients *g,
                                double ms, fly_error *error) {
  fly_status status = FLY_OK;
  if (args->out) status = npy_write(args->out, out->type, out->rank, out->shape, out->data, error);
  if (status == FLY_OK && args->lse) status = npy_write(args->lse, lse->type, lse->rank, lse->shape, lse->data, error);
  if (status != FLY_OK) return status;
  const int64_t *s = out->shape;
  if (args->out)
    report_line("out", "%s: [%lld, %lld, %lld, %lld] %s", args->out, (long long)s[0], (long long)s[1], (long long)s[2],
                (long long)s[3], fly_type_name(out->type));
  if (args->lse)
    report_line("lse", "%s: [%lld, %lld, %lld] f32", args->lse, (long long)s[0], (long long)s[1], (long long)s[2]);
  report_line("time", "%.3f ms, %s", ms, time_includes(args));
  if (gradients_wanted(args)) status = gradients_write(args, g, error);
  return status == FLY_OK ? report_end(error) : status;
}

/* One file for two outputs would hold the last one alone. */
static void check_outputs(const arguments *a, const char *command) {
  const struct {
    const char *option, *path;
  } outputs[] = {{"--out", a->out}, {"--lse", a->lse}, {"--dq", a->d_q},
                 {"--dk", a->d_k},  {"--dv", a->d_v},  {"--dsink", a->d_sink}};
  for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++)
    for (size_t j = 0; j < i; j++)
      if (outputs[i].path && outputs[j].path && file_same(outputs[i].path, outputs[j].path))
        usage_error(command, "%s and %s are the same file, %s", outputs[j].option, outputs[i].option, outputs[i].path);
}

int command_run(int argc, char **argv) {
  arguments args;
  arguments_parse(argc, argv, options, doc, true, &args);
  if (!args.q || !args.k || !args.v) usage_error(argv[0], "--q F, --k F and --v F are needed");
  gradients_check_usage(&args, argv[0]);
  check_outputs(&args, argv[0]);
  inputs in = {0};
  npy_array out = {0}, lse = {0};
  gradients g = {0};
  bound_mask mask = {0};
  call_geometry call = {0};
  double ms = 0;
  fly_error error;
  fly_status status = read_tensor(args.q, &in.q, &error);
  if (status == FLY_OK) status = read_tensor(args.k, &in.k, &error);
  if (status == FLY_OK) status = read_tensor(args.v, &in.v, &error);
  if (status == FLY_OK) status = check_shapes(&args, &in, &error);
  if (status == FLY_OK) status = read_sink(&args, &in, &error);
  if (status == FLY_OK)
    status = geometry_create(&args, in.q.shape[0], in.q.shape[1], in.q.shape[2], in.k.shape[2], &call, &error);
  if (status == FLY_OK) status = bound_mask_create(&args, &mask, &error);
  if (status == FLY_OK) status = make_outputs(&in, &out, &lse, &error);
  if (status == FLY_OK && gradients_wanted(&args)) status = gradients_read(&args, &out, &lse, &g, &error);
  if (status == FLY_OK) status = attend(&args, &in, &mask, &call.geometry, &out, &lse, &g, &ms, &error);
  if (status == FLY_OK) status = write_outputs(&args, &out, &lse, &g, ms, &error);
  if (status != FLY_OK) print_error(&error);
  bound_mask_free(&mask);
  geometry_free(&call);
  npy_free(&out);
  npy_free(&lse);
  gradients_free(&g);
  npy_free(&in.q);
  npy_free(&in.k);
  npy_free(&in.v);
  npy_free(&in.sink);
  arguments_free(&args);
  return status == FLY_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
