/* images.c: see images.h. And what suites call that compile masks of the library by name: the mask of an image. */
#include "images.h"

#include "support.h"

void *image_read(const char *name, const char *type, size_t *size) {
  char path[512];
  snprintf(path, sizeof path, "%s/tests/images/%s.%s.image", FLYMASK_BUILD, name, type);
  FILE *file = fopen(path, "rb");
  ck_assert_msg(file != NULL, "%s is not there", path);
  ck_assert_int_eq(fseek(file, 0, SEEK_END), 0);
  *size = (size_t)ftell(file);
  rewind(file);
  void *bytes = malloc(*size);
  ck_assert_uint_eq(fread(bytes, 1, *size, file), *size);
  fclose(file);
  return bytes;
}

fly_kernel *image_kernel(const char *name, const char *type) {
  size_t size;
  fly_error error = {0};
  fly_kernel *kernel;
  void *bytes = image_read(name, type, &size);
  ck_fly_ok(fly_kernel_load(bytes, size, &kernel, &error), error);
  free(bytes);
  return kernel;
}

fly_status fly_mask_compile_file(const char *path, const fly_compile_options *options, fly_mask **out,
                                 fly_error *error) {
  char name[128];
  const char *file = strrchr(path, '/') + 1;
  (void)options, (void)error;
  snprintf(name, sizeof name, "%.*s", (int)strcspn(file, "."), file);
  fly_kernel *kernel = image_kernel(name, "f32");
  *out = fly_mask_retain(fly_kernel_mask(kernel));
  fly_kernel_release(&kernel);
  return FLY_OK;
}

fly_status fly_mask_compile(const char *source, const char *name, const fly_compile_options *options, fly_mask **out,
                            fly_error *error) {
  (void)source, (void)options, (void)error;
  *out = NULL;
  ck_abort_msg("%s: there is no compiler here", name);
}
