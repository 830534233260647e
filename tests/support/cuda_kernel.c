/* cuda_kernel.c: kernels of the CUDA suites. Compiled with FLYMASK_NO_COMPILER it loads images alone. */
#include "cuda_kernel.h"

#include <unistd.h>

static void path_of(char *path, size_t size, const cuda_kernel_spec *s) {
  snprintf(path, size, "%s/%s%s%s.%s.%d.%d.image", getenv("FLYMASK_GPU_IMAGES"), s->name, s->score ? "+" : "",
           s->score ? s->score : "", fly_type_name(s->type), s->dim, s->value_dim);
}

fly_kernel *cuda_kernel(const char *name, const char *source, fly_type type, int dim, int value_dim) {
  return cuda_kernel_of(&(cuda_kernel_spec){name, source, NULL, NULL, type, dim, value_dim});
}

#ifdef FLYMASK_NO_COMPILER

bool cuda_kernel_packing(void) { return false; }

fly_kernel *cuda_kernel_of(const cuda_kernel_spec *spec) {
  char path[512];
  fly_kernel *kernel;
  fly_error error;
  path_of(path, sizeof path, spec);
  FILE *file = fopen(path, "rb");
  if (!file) ck_abort_msg("no image %s", path);
  fseek(file, 0, SEEK_END);
  long size = ftell(file);
  rewind(file);
  void *bytes = malloc((size_t)size + 1);
  ck_assert_uint_eq(fread(bytes, 1, (size_t)size, file), (size_t)size);
  fclose(file);
  ck_fly_ok(fly_kernel_load(bytes, (size_t)size, &kernel, &error), error);
  free(bytes);
  return kernel;
}

#else

bool cuda_kernel_packing(void) { return getenv("FLYMASK_GPU_IMAGES") != NULL; }

/* Cases that are packed side by side may need the same image: it appears under its name when it is whole. */
static void write_image(const fly_kernel *kernel, const char *path) {
  const void *bytes;
  size_t size;
  char temporary[544];
  fly_error error;
  ck_fly_ok(fly_kernel_image(kernel, &bytes, &size, &error), error);
  snprintf(temporary, sizeof temporary, "%s.%ld", path, (long)getpid());
  FILE *file = fopen(temporary, "wb");
  ck_assert_ptr_nonnull(file);
  ck_assert_uint_eq(fwrite(bytes, 1, size, file), size);
  ck_assert_int_eq(fclose(file), 0);
  ck_assert_int_eq(rename(temporary, path), 0);
}

static fly_mask *compile_mask(const cuda_kernel_spec *s) {
  char path[512], text[2048];
  fly_mask *mask;
  fly_error error;
  if (s->source) {
    snprintf(text, sizeof text, "#include <flymask/mask.h>\n%s\n", s->source);
    ck_fly_ok(fly_mask_compile(text, s->name, NULL, &mask, &error), error);
  } else {
    snprintf(path, sizeof path, "%s/masks/%s.c", FLYMASK_SOURCE, s->name);
    ck_fly_ok(fly_mask_compile_file(path, NULL, &mask, &error), error);
  }
  return mask;
}

static fly_score *compile_score(const cuda_kernel_spec *s) {
  char path[512], text[2048];
  fly_score *score = NULL;
  fly_error error;
  if (s->score_source) {
    snprintf(text, sizeof text, "#include <flymask/score.h>\n%s\n", s->score_source);
    ck_fly_ok(fly_score_compile(text, s->score, NULL, &score, &error), error);
  } else if (s->score) {
    snprintf(path, sizeof path, "%s/scores/%s.c", FLYMASK_SOURCE, s->score);
    ck_fly_ok(fly_score_compile_file(path, NULL, &score, &error), error);
  }
  return score;
}

fly_kernel *cuda_kernel_of(const cuda_kernel_spec *spec) {
  char path[512];
  fly_kernel *kernel;
  fly_error error;
  fly_mask *mask = compile_mask(spec);
  fly_score *score = compile_score(spec);
  const char *target = getenv("FLYMASK_TEST_TARGET"); /* beside SIMCUDA_ARCH, which is the device */
  fly_kernel_desc desc = {FLY_INIT(fly_kernel_desc),    .type = spec->type, .head_dim = spec->dim,
                          .value_dim = spec->value_dim, .score = score,     .target = target ? target : "sm_80"};
  ck_fly_ok(fly_kernel_create(mask, &desc, &kernel, &error), error);
  fly_mask_release(&mask);
  fly_score_release(&score);
  if (cuda_kernel_packing()) {
    path_of(path, sizeof path, spec);
    if (access(path, F_OK) != 0) write_image(kernel, path);
  }
  return kernel;
}

#endif
