/* NULL in the place of an object or of a place to write is an error, NULL, -1 or a struct of
 * zeros, and never a crash. */
#include "support.h"

/* A failed call says why, and leaves NULL where it has something to give. */
#define REFUSED(call)                                                                                                  \
  do {                                                                                                                 \
    error = (fly_error){0};                                                                                            \
    ck_assert_msg((call) == FLY_ERROR_ARGUMENT && error.status == FLY_ERROR_ARGUMENT, "%s: %s", #call, error.message); \
    ck_assert_msg(strstr(error.message, "NULL") != NULL, "%s: %s", #call, error.message);                              \
    ck_assert_int_eq((call), FLY_ERROR_ARGUMENT); /* also where nobody listens */                                      \
  } while (0)

static fly_error error;

START_TEST(maps) {
  fly_map *map = (fly_map *)&error;
  fly_map_info info;
  fly_map_lists lists;
  const fly_run *runs = (const fly_run *)&error;
  int64_t pairs;
  REFUSED(fly_map_build(NULL, &(fly_geometry){FLY_INIT(fly_geometry)}, NULL, &map, &error));
  ck_assert_ptr_null(map);
  memset(&info, 7, sizeof info);
  fly_map_get_info(NULL, &info);
  const unsigned char *bytes = (const unsigned char *)&info;
  for (size_t i = 0; i < offsetof(fly_map_info, bytes) + sizeof info.bytes; i++) ck_assert_int_eq(bytes[i], 0);
  fly_map_get_info(NULL, NULL);
  ck_assert_int_eq(fly_map_row(NULL, FLY_BY_QUERY, 0, 0, 0, &runs), -1);
  ck_assert_ptr_null(runs);
  ck_assert_int_eq(fly_map_row(NULL, FLY_BY_KEY, 0, 0, 0, NULL), -1);
  ck_assert_int_eq(fly_map_visible(NULL, 0, 0, 0, 0), -1);
  REFUSED(fly_map_transpose(NULL, &error));
  REFUSED(fly_map_expand(NULL, FLY_BY_QUERY, &lists, &error));
  REFUSED(fly_map_visible_pairs(NULL, &pairs, &error));
  fly_map_lists_free(NULL);
  fly_map_arrays arrays;
  char *text;
  REFUSED(fly_map_combine(FLY_NOT, NULL, NULL, &map, &error));
  REFUSED(fly_map_bind(NULL, NULL, &map, &error));
  REFUSED(fly_map_crop(NULL, 0, 0, &map, &error));
  REFUSED(fly_map_slice(NULL, 0, 0, &map, &error));
  REFUSED(fly_map_to_arrays(NULL, FLY_BY_QUERY, &arrays, &error));
  REFUSED(fly_map_from_arrays(NULL, NULL, NULL, &map, &error));
  REFUSED(fly_map_from_bitmap(NULL, NULL, NULL, &map, &error));
  REFUSED(fly_map_text(NULL, 0, 0, 0, &text, &error));
  ck_assert(!fly_map_equal(NULL, NULL));
  fly_map_arrays_free(NULL);
  fly_map_release(NULL);
  map = NULL;
  fly_map_release(&map);
  ck_assert_ptr_null(fly_map_retain(NULL));
}
END_TEST

START_TEST(masks_and_kernels) {
  fly_mask *mask;
  fly_bound *bound = (fly_bound *)&error;
  fly_kernel *kernel = (fly_kernel *)&error;
  fly_buffer *buffer = (fly_buffer *)&error;
  const void *bytes;
  size_t size;
  ck_assert_ptr_null(fly_mask_get_info(NULL));
  ck_assert_ptr_null(fly_kernel_mask(NULL));
  REFUSED(fly_mask_compile(NULL, "none", NULL, &mask, &error));
  ck_assert_ptr_null(mask);
  REFUSED(fly_mask_compile_file(NULL, NULL, &mask, &error));
  REFUSED(fly_mask_combine(FLY_NOT, NULL, NULL, NULL, &mask, &error));
  REFUSED(fly_mask_bind(NULL, NULL, 0, &bound, &error));
  ck_assert_ptr_null(bound);
  REFUSED(fly_kernel_create(NULL, &(fly_kernel_desc){FLY_INIT(fly_kernel_desc)}, &kernel, &error));
  ck_assert_ptr_null(kernel);
  REFUSED(fly_kernel_image(NULL, &bytes, &size, &error));
  REFUSED(fly_kernel_load(NULL, 4096, &kernel, &error));
  REFUSED(fly_buffer_create(FLY_I32, 1, NULL, &size, &buffer, &error));
  ck_assert_ptr_null(buffer);
  ck_assert_ptr_null(fly_mask_retain(NULL));
  ck_assert_ptr_null(fly_bound_retain(NULL));
  ck_assert_ptr_null(fly_kernel_retain(NULL));
  ck_assert_ptr_null(fly_buffer_retain(NULL));
  fly_mask_release(NULL), fly_bound_release(NULL), fly_kernel_release(NULL), fly_buffer_release(NULL);
  fly_mask_release(&(fly_mask *){NULL}), fly_bound_release(&(fly_bound *){NULL});
  fly_kernel_release(&(fly_kernel *){NULL}), fly_buffer_release(&(fly_buffer *){NULL});
}
END_TEST

START_TEST(calls) {
  size_t size;
  REFUSED(fly_attention_forward(NULL, &error));
  REFUSED(fly_attention_backward(NULL, &error));
  REFUSED(fly_attention_workspace(NULL, &size, &error));
  REFUSED(fly_attention_backward_workspace(NULL, &size, &error));
  REFUSED(fly_attention_sizes(NULL, &(fly_cpu_sizes){FLY_INIT(fly_cpu_sizes)}, &error));
  REFUSED(fly_attention_workspace(&(fly_attention){FLY_INIT(fly_attention)}, NULL, &error));
  REFUSED(fly_attention_forward(&(fly_attention){FLY_INIT(fly_attention)}, &error));
}
END_TEST

START_TEST(selections) {
  fly_selection_info info;
  memset(&info, 0x5a, sizeof info);
  fly_selection_get_info(NULL, &info);
  ck_assert_int_eq(info.rows, 0);
  ck_assert_ptr_null(info.map);
  uint8_t bitmap = 7;
  fly_selection_get_bitmap(NULL, &bitmap);
  ck_assert_int_eq(bitmap, 7);
}
END_TEST

static Suite *make_suite(void) {
  Suite *suite = suite_create("null");
  TCase *tests = tcase_create("null");
  tcase_add_test(tests, maps);
  tcase_add_test(tests, masks_and_kernels);
  tcase_add_test(tests, calls);
  tcase_add_test(tests, selections);
  suite_add_tcase(suite, tests);
  return suite;
}

FLY_TEST_MAIN(make_suite)
