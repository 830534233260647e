/* The masks of masks/ on a CUDA device, simulated here, through the public API: forward and backward over the scenes of
 * library/, whose marks are a formulation of their own, against attention in double precision.
 *
 * A case for each mask, direction and element type, named MASK.fwd.bf16: ctest runs each alone by CK_RUN_CASE.
 * FLYMASK_TEST_DIM in the environment is a head dimension to take instead of the case's own. */
#include "library/scene_call.h"
#include "cuda_call.h"
#include "cuda_kernel.h"

static const struct {
  const char *name;
  fly_type type;
  double operands; /* what P and dS are rounded by */
} types[] = {{"bf16", FLY_BF16, 0x1p-8}, {"f16", FLY_F16, 0x1p-11}, {"f32", FLY_F32, 0}};
enum { TYPES = 3, DIRECTIONS = 2, VARIANTS = TYPES * DIRECTIONS };

/* Head dimensions of the kernel: each case compiles one. */
static const int dims[][2] = {{64, 64}, {32, 48}, {80, 80}, {40, 24}, {128, 128}};
enum { DIMS = 5 };

static void check_scene(fly_cuda *cuda, const fly_kernel *kernel, scene *s, int type, bool backward, const int dim[2],
                        int variant, const char *name) {
  scene_call t;
  char what[256];
  scene_call_init(&t, s, fly_kernel_mask(kernel), types[type].type, dim[0], dim[1], variant, backward);
  snprintf(what, sizeof what, "%s, %s", name, t.what);
  if (backward) {
    cuda_backward(cuda, &t.call, kernel);
    oracle_check_backward_units(&t.call, scene_sees, s, types[type].operands, what);
  } else {
    cuda_forward(cuda, &t.call, kernel);
    oracle_check_units(&t.call, scene_sees, s, SCENE_UNTOUCHED, what);
  }
  scene_call_free(&t);
}

START_TEST(a_mask_on_the_device_is_attention_over_what_it_shows) {
  int index = _i / VARIANTS, type = _i % TYPES;
  bool backward = _i / TYPES % DIRECTIONS;
  const library_mask *entry = library_mask_at(index);
  const char *given = getenv("FLYMASK_TEST_DIM");
  const int all = given ? atoi(given) : 0, same[2] = {all, all}, *dim = given ? same : dims[(index + type) % DIMS];
  fly_kernel *kernel = cuda_kernel(entry->name, NULL, types[type].type, dim[0], dim[1]);
  fly_cuda *cuda = cuda_kernel_packing() ? NULL : cuda_open();
  scene *s;
  for (int k = 0; cuda && (s = scene_create(k, (uint64_t)type, false, entry->negative)); k++) {
    entry->draw(s);
    check_scene(cuda, kernel, s, type, backward, dim, index + k, entry->name);
    scene_free(s);
  }
  fly_kernel_release(&kernel);
  fly_cuda_release(&cuda);
}
END_TEST

static Suite *cuda_masks_suite(void) {
  static char names[128 * VARIANTS][48]; /* Check keeps the pointers */
  Suite *suite = suite_create("cuda_masks");
  const library_mask *m;
  for (int i = 0; (m = library_mask_at(i / VARIANTS)); i++) {
    if (i == 128 * VARIANTS) abort(); /* more masks than there is room for */
    snprintf(names[i], sizeof names[i], "%s.%s.%s", m->name, i / TYPES % DIRECTIONS ? "bwd" : "fwd",
             types[i % TYPES].name);
    TCase *tcase = tcase_create(names[i]);
    tcase_add_loop_test(tcase, a_mask_on_the_device_is_attention_over_what_it_shows, i, i + 1);
    suite_add_tcase(suite, tcase);
  }
  return suite;
}

FLY_TEST_MAIN(cuda_masks_suite)
