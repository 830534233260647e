/* scene.c: see scene.h. */
#include "scene.h"

#include "cli/npy.h"

fly_mask *scene_mask(const char *name) {
  fly_mask *mask = NULL;
  fly_error error = {0};
  char path[512];
  snprintf(path, sizeof path, "%s/masks/%s.c", FLYMASK_SOURCE, name);
  ck_fly_ok(fly_mask_compile_file(path, NULL, &mask, &error), error);
  return mask;
}

fly_mask *scene_source(const char *source) {
  fly_mask *mask = NULL;
  fly_error error = {0};
  ck_fly_ok(fly_mask_compile(source, "test.c", NULL, &mask, &error), error);
  return mask;
}

fly_kernel *scene_kernel(fly_mask *mask, fly_type type, int dim, int value_dim) {
  fly_kernel *kernel = NULL;
  fly_error error = {0};
  fly_kernel_desc desc = {FLY_INIT(fly_kernel_desc), .type = type, .head_dim = dim, .value_dim = value_dim};
  ck_fly_ok(fly_kernel_create(mask, &desc, &kernel, &error), error);
  return kernel;
}

/* ---- failing allocations ----------------------------------------------------------------------------------------- */

typedef struct selecting {
  fly_mask *mask;
  const fly_moba_desc *desc;
  const fly_attention *call;
  fly_selection *selection;
} selecting;

static fly_status select_blocks(void *context) {
  selecting *s = context;
  fly_error error;
  return fly_moba_select(s->mask, s->desc, &s->selection, &error);
}

static fly_status selected_forward(void *context) {
  selecting *s = context;
  fly_error error;
  return fly_selection_forward(s->selection, s->call, &error);
}

static fly_status selected_backward(void *context) {
  selecting *s = context;
  fly_error error;
  return fly_selection_backward(s->selection, s->call, &error);
}

void scene_failing_selection(fly_mask *mask, const fly_moba_desc *desc, const fly_attention *call) {
  selecting s = {mask, desc, call, NULL};
  ck_assert_int_gt(test_failing_allocations(select_blocks, &s), 1);
  ck_assert_int_gt(test_failing_allocations(selected_forward, &s), 1);
  ck_assert_int_gt(test_failing_allocations(selected_backward, &s), 1);
  fly_selection_release(&s.selection);
}

/* ---- real inputs ------------------------------------------------------------------------------------------------- */

const char *scene_data(void) {
  const char *directory = getenv("FLYMASK_TEST_DATA");
  if (!directory) puts("SKIPPED: set FLYMASK_TEST_DATA to compare with its references");
  return directory;
}

static npy_array load(const char *name) {
  char path[512];
  npy_array a;
  fly_error error = {0};
  snprintf(path, sizeof path, "%s/%s.npy", getenv("FLYMASK_TEST_DATA"), name);
  ck_fly_ok(npy_read(path, &a, &error), error);
  return a;
}

fly_tensor scene_load(const char *name) {
  npy_array a = load(name);
  ck_assert(a.type == FLY_F16 || a.type == FLY_F32);
  ck_assert(a.rank == 3 || a.rank == 4);
  fly_tensor t = scene_tensor(FLY_F32, a.shape[0], a.shape[1], a.shape[2], a.rank == 4 ? a.shape[3] : 1, -1);
  for (int64_t i = 0; i < a.count; i++)
    ((float *)t.data)[i] = a.type == FLY_F16 ? (float)test_from_f16(((uint16_t *)a.data)[i]) : ((float *)a.data)[i];
  npy_free(&a);
  return t;
}

int32_t *scene_load_rows(const char *name, int64_t *count) {
  npy_array a = load(name);
  ck_assert_int_eq(a.type, FLY_I32);
  int32_t *rows = malloc((size_t)a.count * sizeof *rows);
  memcpy(rows, a.data, (size_t)a.count * sizeof *rows);
  *count = a.count;
  npy_free(&a);
  return rows;
}
