/* `flymask list` names every mask that a name finds, with the first sentence of its file. */
#include <dirent.h>
#include <jansson.h>
#include <unistd.h>

#include "command.h"
#include "support.h"

static const char *directory;

static void make_directory(void) { directory = command_make_directory(); }

static void write_text(const char *name, const char *text) {
  char path[160];
  snprintf(path, sizeof path, "%s/%s", directory, name);
  FILE *file = fopen(path, "w");
  ck_assert_ptr_nonnull(file);
  fputs(text, file);
  fclose(file);
}

static int is_mask(const struct dirent *entry) {
  size_t length = strlen(entry->d_name);
  return length > 2 && strcmp(entry->d_name + length - 2, ".c") == 0;
}

/* The lines of one kind, as JSON has them and as files are there; returns what follows. */
static const char *check_lines(const char *line, const json_t *masks, const char *files) {
  struct dirent **entries;
  const char *before = "";
  int count = scandir(files, &entries, is_mask, NULL);
  ck_assert_int_gt(count, 0);
  ck_assert_int_eq(json_array_size(masks), count);
  for (int i = 0; i < count; i++) {
    json_t *mask = json_array_get(masks, i);
    const char *name = json_string_value(json_object_get(mask, "name"));
    const char *text = json_string_value(json_object_get(mask, "description"));
    const char *path = json_string_value(json_object_get(mask, "path"));
    ck_assert(name && text && path && strcmp(before, name) < 0);
    ck_assert_msg(strlen(text) > 10 && !strchr(text, '\n') && !strchr(text, '*'), "%s: %s", name, text);
    ck_assert_int_eq(access(path, R_OK), 0);
    size_t length = strlen(name);
    ck_assert(strncmp(line, name, length) == 0 && line[length] == ' ');
    line += length + strspn(line + length, " ");
    ck_assert_int_eq(strncmp(line, text, strlen(text)), 0);
    line += strlen(text);
    ck_assert_int_eq(*line++, '\n');
    before = name;
    bool found = false; /* among the files */
    for (int k = 0; k < count; k++)
      found |= strlen(entries[k]->d_name) == length + 2 && strncmp(entries[k]->d_name, name, length) == 0;
    ck_assert_msg(found, "%s", name);
  }
  for (int i = 0; i < count; i++) free(entries[i]);
  free(entries);
  return line;
}

START_TEST(list_names_every_mask_and_modifier_with_a_description) {
  static const char title[] = "\nScore modifiers (--score):\n";
  command_result r = command_run(directory, "list --json");
  json_t *object = json_loads(r.out, JSON_REJECT_DUPLICATES, NULL);
  command_free(&r);
  r = command_run(directory, "list");
  ck_assert_int_eq(r.code, 0);
  const char *line = check_lines(r.out, json_object_get(object, "masks"), FLYMASK_SOURCE "/masks");
  ck_assert_int_eq(strncmp(line, title, strlen(title)), 0);
  line = check_lines(line + strlen(title), json_object_get(object, "scores"), FLYMASK_SOURCE "/scores");
  ck_assert_int_eq(*line, 0);
  json_decref(object);
  command_free(&r);
}
END_TEST

START_TEST(list_takes_the_first_sentence_of_a_mask) {
  write_text("one.c", "/* one.c: not the name. More. */\n");
  write_text("two.c", "\n/* two: the first\n * sentence, of 1.5 lines. The second. */\n");
  write_text("three.c", "int none;\n");
  setenv("FLYMASK_MASKS", directory, 1);
  command_result r = command_run("/", "list");
  unsetenv("FLYMASK_MASKS");
  ck_assert_int_eq(r.code, 0);
  char *two = strstr(r.out, "\ntwo ");
  ck_assert_ptr_nonnull(two);
  two += 4 + strspn(two + 4, " ");
  ck_assert_int_eq(strncmp(two, "the first sentence, of 1.5 lines\n", 33), 0);
  ck_assert_ptr_nonnull(strstr(r.out, " one.c: not the name\n"));
  ck_assert_ptr_nonnull(strstr(r.out, "\nthree "));
  command_free(&r);
}
END_TEST

static Suite *make_suite(void) {
  Suite *suite = suite_create("cli_list");
  TCase *c = tcase_create("cli_list");
  tcase_add_checked_fixture(c, make_directory, command_remove_directory);
  tcase_add_test(c, list_names_every_mask_and_modifier_with_a_description);
  tcase_add_test(c, list_takes_the_first_sentence_of_a_mask);
  suite_add_tcase(suite, c);
  return suite;
}

FLY_TEST_MAIN(make_suite)
