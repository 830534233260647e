/* build.c: `flymask build`: a kernel image ahead of time, or the text that LLVM makes of a mask on the way. */
#include <stdlib.h>
#include <string.h>

#include "cli.h"

static const struct argp_option options[] = {
    OPTION_HEAD_DIM,
    OPTION_DTYPE,
    OPTION_SCORE,
    {"target", KEY_TARGET, "T", 0,
     "x86-64, x86-64-v3, x86-64-v4, x86-64-v4-bf16, aarch64, or a GPU: sm_80, ... (default: the best of this machine)",
     0},
    {"emit", KEY_EMIT, "image|ll|asm|ptx", 0,
     "What to write: the image (default), optimised LLVM IR, or assembly, a GPU's by the name ptx too; of the "
     "modifier, with --score",
     0},
    {"backward", KEY_BACKWARD, NULL, 0, "Of a GPU's kernels, the text of the backward ones; an image holds all", 0},
    {"decode", KEY_DECODE, NULL, 0, "Of a GPU's kernels, the text of those for few queries and many keys", 0},
    {"out", KEY_OUT, "F", 0, "The file to write; -: standard output", 0},
    {0}};

static const char doc[] =
    "Compile a mask ahead of time to the image of a kernel, which the runtime library loads without a compiler.\v"
    "NAME=VALUE makes a parameter a constant of the code: faster, but the image serves that value alone. Buffers are "
    "bound when a kernel is used, not here.\n"
    "\n"
    "Examples:\n"
    "  flymask build causal --head-dim 64 --dtype f32 -o causal.image\n"
    "  flymask build sliding_window left=255 --head-dim 128 --dtype bf16 -o w.image\n"
    "  flymask build causal --head-dim 64 --dtype f32 --emit asm -o -\n"
    "  flymask build causal --head-dim 64 --dtype f32 --target aarch64 -o c.image\n"
    "  flymask build causal --head-dim 128 --dtype bf16 --target sm_80 -o c.image\n";

/* What the mask itself is compiled for: an image for a GPU holds its code for the CPU too,
 * which maps are settled by. */
static const char *cpu_target(const arguments *args) { return device_target(args->target) ? NULL : args->target; }

/* What is built in: the mask, and the modifier where there is one. */
typedef struct sources {
  char *mask, *score; /* paths; score NULL: none */
  bindings mask_values, score_values;
} sources;

static fly_compile_options compile_options(const arguments *args, const bindings *baked) {
  return (fly_compile_options){FLY_INIT(fly_compile_options), .target = cpu_target(args), .bake = baked->args,
                               .bake_count = baked->count};
}

/* The values, as constants of the code. They are read against what the source declares, so it is compiled once
 * without. */
static fly_status read_baked(const char *path, const arguments *args, bool of_score, bindings *out, fly_error *error) {
  if (args->value_count == 0) return FLY_OK;
  fly_mask *mask = NULL;
  fly_score *score = NULL;
  fly_compile_options how = {FLY_INIT(fly_compile_options), .target = cpu_target(args)};
  fly_status status = of_score ? fly_score_compile_file(path, &how, &score, error)
                               : fly_mask_compile_file(path, &how, &mask, error);
  const fly_mask_info *info = of_score ? fly_score_get_info(score) : fly_mask_get_info(mask);
  if (status == FLY_OK) status = bindings_read(info, args, of_score, out, error);
  for (int i = 0; status == FLY_OK && i < out->count; i++)
    if (out->args[i].kind == FLY_ARG_BUFFER)
      status = fail(error, FLY_ERROR_ARGUMENT, NULL,
                    "%s is a buffer: it is bound when the kernel is used, not built in", out->args[i].name);
  fly_mask_release(&mask);
  fly_score_release(&score);
  return status;
}

static fly_status make_kernel(const sources *from, const arguments *args, fly_kernel **out, fly_error *error) {
  fly_mask *mask = NULL;
  fly_score *score = NULL;
  fly_kernel_desc desc = {FLY_INIT(fly_kernel_desc), .type = args->type, .head_dim = args->head_dim,
                          .value_dim = args->value_dim, .target = args->target};
  fly_compile_options how = compile_options(args, &from->mask_values);
  fly_compile_options how_score = compile_options(args, &from->score_values);
  fly_status status = fly_mask_compile_file(from->mask, &how, &mask, error);
  if (status == FLY_OK && from->score) status = fly_score_compile_file(from->score, &how_score, &score, error);
  desc.score = score;
  if (status == FLY_OK) status = fly_kernel_create(mask, &desc, out, error);
  fly_mask_release(&mask);
  fly_score_release(&score);
  return status;
}

static fly_status write_image(const sources *from, const arguments *args, fly_error *error) {
  fly_kernel *kernel = NULL;
  const void *bytes = NULL;
  size_t size = 0;
  fly_status status = make_kernel(from, args, &kernel, error);
  if (status == FLY_OK) status = fly_kernel_image(kernel, &bytes, &size, error);
  struct iovec part = {(void *)bytes, size};
  if (status == FLY_OK) status = file_save(args->out, &part, 1, error);
  fly_kernel_release(&kernel);
  return status;
}

/* Of the modifier, where there is one. */
static fly_status emit(const sources *from, const arguments *args, fly_emit what, char **text, fly_error *error) {
  const char *path = from->score ? from->score : from->mask;
  fly_compile_options how = compile_options(args, from->score ? &from->score_values : &from->mask_values);
  char *source = NULL;
  fly_kernel *kernel = NULL;
  fly_status status;
  fly_pass pass = args->backward ? FLY_PASS_BACKWARD : args->decode ? FLY_PASS_DECODE : FLY_PASS_FORWARD;
  if (device_target(args->target)) {
    status = make_kernel(from, args, &kernel, error);
    if (status == FLY_OK) status = fly_kernel_emit(kernel, pass, what, text, error);
    fly_kernel_release(&kernel);
    return status;
  }
  status = file_read_text(path, &source, error);
  if (status == FLY_OK)
    status = from->score ? fly_score_emit(source, path, &how, what, text, error)
                         : fly_mask_emit(source, path, &how, what, text, error);
  free(source);
  return status;
}

static fly_status write_text(const sources *from, const arguments *args, fly_error *error) {
  char *text = NULL;
  fly_status status = emit(from, args, strcmp(args->emit, "ll") == 0 ? FLY_EMIT_LL : FLY_EMIT_ASM, &text, error);
  struct iovec part = {text, text ? strlen(text) : 0};
  if (status == FLY_OK) status = file_save(args->out, &part, 1, error);
  free(text);
  return status;
}

int command_build(int argc, char **argv) {
  arguments args;
  arguments_parse(argc, argv, options, doc, true, &args);
  if (!args.head_dim) usage_error(argv[0], "--head-dim D[,DV] is missing");
  if (!args.type) usage_error(argv[0], "--dtype f32|f16|bf16 is missing");
  if (!args.out) usage_error(argv[0], "-o F is missing");
  bool ptx = args.emit && strcmp(args.emit, "ptx") == 0;
  if ((args.backward || args.decode || ptx) && !device_target(args.target))
    usage_error(argv[0], "--%s goes with --target sm_NN", ptx ? "emit ptx" : args.decode ? "decode" : "backward");
  if (args.backward && args.decode) usage_error(argv[0], "--backward and --decode exclude each other");
  sources from = {0};
  fly_error error;
  fly_status status = mask_find(args.mask, &from.mask, &error);
  if (status == FLY_OK && args.score) status = score_find(args.score, &from.score, &error);
  if (status == FLY_OK) progress("compiling %s", from.mask);
  if (status == FLY_OK) status = read_baked(from.mask, &args, false, &from.mask_values, &error);
  if (status == FLY_OK && from.score) status = read_baked(from.score, &args, true, &from.score_values, &error);
  bool image = !args.emit || strcmp(args.emit, "image") == 0;
  if (status == FLY_OK) status = image ? write_image(&from, &args, &error) : write_text(&from, &args, &error);
  progress_end();
  if (status != FLY_OK) print_error(&error);
  bindings_free(&from.mask_values);
  bindings_free(&from.score_values);
  free(from.mask);
  free(from.score);
  arguments_free(&args);
  return status == FLY_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
