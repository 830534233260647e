/* The masks of masks/, compiled as ordinary C, show exactly the pairs that the formulations of library/ mark. */
#include <dirent.h>
#include <flymask/mask.h>

#include "library/scene.h"
#include "native.h"

enum { SEEDS = 8, PAD = 512 };

static bool see(void *context, int b, int h, int q_row, int kv_row) {
  native_mask *m = context;
  return m->mask(b, h, q_row + m->context->q_offset, kv_row);
}

/* Clamping of indices, which the compiled mask has, is made of padding here, where a buffer has one dimension. */
static void *padded(const scene_arg *arg) {
  size_t size = fly_type_size(arg->type), last = arg->count - 1;
  char *data = malloc((arg->count + 2 * PAD) * size);
  ck_assert_ptr_nonnull(data);
  for (int64_t i = -PAD; i < arg->count + PAD; i++) {
    size_t from = i<0 ? 0 : i>(int64_t) last ? last : (size_t)i;
    memcpy(data + (i + PAD) * size, (char *)arg->data + from * size, size);
  }
  return data;
}

static void bind(native_mask *m, const scene *s, void **memory) {
  *m->context = (struct fly_mask_context){.len_q = s->len_q, .len_kv = s->len_kv, .q_offset = s->q_offset};
  m->context->q_rows = s->q_rows, m->context->kv_rows = s->kv_rows;
  m->context->q_stride_h = s->ragged ? s->cu_q[s->batch] : s->len_q;
  m->context->kv_stride_h = s->ragged ? s->cu_kv[s->batch] : s->len_kv;
  m->context->q_stride_b = s->ragged ? 0 : (int64_t)s->heads * s->len_q;
  m->context->kv_stride_b = s->ragged ? 0 : (int64_t)s->heads * s->len_kv;
  m->context->cu_seqlens_q = s->ragged ? s->cu_q : NULL, m->context->cu_seqlens_kv = s->ragged ? s->cu_kv : NULL;
  for (int i = 0; i < s->arg_count; i++) {
    const scene_arg *arg = &s->args[i];
    memory[i] = arg->data && arg->rank == 1 ? padded(arg) : NULL;
    char *data = memory[i] ? (char *)memory[i] + PAD * fly_type_size(arg->type) : arg->data;
    if (arg->data)
      native_set_buffer(m, arg->name, data, arg->shape, arg->rank);
    else
      native_set_int(m, arg->name, arg->value);
  }
}

START_TEST(every_mask_shows_what_its_convention_says) {
  const library_mask *entry = library_mask_at(_i);
  native_mask m = native_load(entry->name);
  for (int seed = 0; seed < SEEDS; seed++) {
    scene *s;
    for (int k = 0; (s = scene_create(k, seed, false, entry->negative)); k++) {
      void *memory[SCENE_ARGS] = {0};
      entry->draw(s);
      bind(&m, s, memory);
      library_compare(entry->name, s, (library_source){&m, see});
      for (int i = 0; i < s->arg_count; i++) free(memory[i]);
      scene_free(s);
    }
  }
  native_close(&m);
}
END_TEST

START_TEST(every_file_of_the_library_is_tested) {
  DIR *masks = opendir(FLYMASK_SOURCE "/masks");
  ck_assert_ptr_nonnull(masks);
  struct dirent *file;
  int files = 0;
  while ((file = readdir(masks))) {
    size_t length = strlen(file->d_name);
    if (length < 3 || strcmp(file->d_name + length - 2, ".c") != 0) continue;
    bool found = false;
    const library_mask *m;
    for (int i = 0; (m = library_mask_at(i)); i++)
      found |= strlen(m->name) == length - 2 && memcmp(m->name, file->d_name, length - 2) == 0;
    ck_assert_msg(found, "masks/%s has no formulation in tests/library", file->d_name);
    files++;
  }
  closedir(masks);
  ck_assert_ptr_null(library_mask_at(files)); /* and none is there twice */
  ck_assert_int_gt(files, 0);
}
END_TEST

/* A test that shows all pairs or none says little: over its scenes, each mask but `full` must show some and hide
 * some. */
START_TEST(scenes_show_and_hide) {
  const library_mask *entry = library_mask_at(_i);
  long shown = 0, hidden = 0;
  for (int seed = 0; seed < SEEDS; seed++) {
    scene *s;
    for (int k = 0; (s = scene_create(k, seed, false, entry->negative)); k++) {
      entry->draw(s);
      for (long i = 0, n = (long)s->batch * s->heads * s->len_q * s->len_kv; i < n; i++)
        s->seen[i] ? shown++ : hidden++;
      scene_free(s);
    }
  }
  ck_assert_msg(shown > (shown + hidden) / 100, "%s: %ld of %ld pairs shown", entry->name, shown, shown + hidden);
  if (strcmp(entry->name, "full") != 0) ck_assert_msg(hidden > shown / 100, "%s: %ld hidden", entry->name, hidden);
}
END_TEST

/* A case for each mask: CK_RUN_CASE=NAME runs one alone. */
static Suite *library_suite(void) {
  Suite *suite = suite_create("library");
  TCase *files = tcase_create("files");
  tcase_add_test(files, every_file_of_the_library_is_tested);
  suite_add_tcase(suite, files);
  const library_mask *m;
  for (int i = 0; (m = library_mask_at(i)); i++) {
    TCase *tcase = tcase_create(m->name);
    tcase_add_loop_test(tcase, every_mask_shows_what_its_convention_says, i, i + 1);
    tcase_add_loop_test(tcase, scenes_show_and_hide, i, i + 1);
    suite_add_tcase(suite, tcase);
  }
  return suite;
}

FLY_TEST_MAIN(library_suite)
