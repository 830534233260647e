/* The tables of `flymask compare`: what a value becomes in CSV, JSON and HTML. */
#include <unistd.h>

#include "cli/compare.h"
#include "support.h"

static const column columns[] = {{"name", "name", NULL, 't', 0},
                                 {"count", "count", "keys", 'i', 0},
                                 {"share", "share", NULL, 'r', 2},
                                 {"hidden", NULL, NULL, 'r', 0}};

static table example(void) {
  table t = {.name = "example", .caption = "An example", .columns = columns, .column_count = 4};
  fly_error error;
  ck_fly_ok(table_add(&t, &error, "SA, \"w\" < 3", (int64_t)1234567, 0.125, 5.0), error);
  ck_fly_ok(table_add(&t, &error, "plain", (int64_t)-1, NAN, NAN), error);
  return t;
}

START_TEST(csv_quotes_what_needs_it_and_leaves_out_what_is_not_there) {
  char path[] = "/tmp/flymask-table.XXXXXX", *text;
  int file = mkstemp(path);
  fly_error error;
  table t = example();
  ck_assert_int_ge(file, 0);
  close(file);
  ck_fly_ok(table_csv(&t, path, &error), error);
  ck_fly_ok(file_read_text(path, &text, &error), error);
  ck_assert_str_eq(text, "name,count,share,hidden\n\"SA, \"\"w\"\" < 3\",1234567,0.125,5\nplain,-1,,\n");
  free(text);
  unlink(path);
  table_free(&t);
}
END_TEST

START_TEST(json_has_types_and_null) {
  table t = example();
  json_t *got = table_json(&t);
  json_t *want = json_pack("[{ss si sf sf} {ss si sn sn}]", "name", "SA, \"w\" < 3", "count", 1234567, "share", 0.125,
                           "hidden", 5.0, "name", "plain", "count", -1, "share", "hidden");
  ck_assert(got && want && json_equal(got, want));
  json_decref(got);
  json_decref(want);
  table_free(&t);
}
END_TEST

START_TEST(html_is_escaped_and_shows_only_columns_with_a_title) {
  char *text = NULL;
  size_t size;
  table t = example();
  FILE *out = open_memstream(&text, &size);
  table_html(&t, out);
  fclose(out);
  ck_assert_ptr_nonnull(strstr(text, "<td class=\"text\">SA, \"w\" &lt; 3</td><td>1,234,567</td><td>0.12</td></tr>"));
  ck_assert_ptr_nonnull(strstr(text, "<td class=\"text\">plain</td><td>-1</td><td>&ndash;</td></tr>"));
  ck_assert_ptr_nonnull(strstr(text, "count<br><span class=\"unit\">keys</span>"));
  ck_assert_ptr_null(strstr(text, "hidden"));
  free(text);
  table_free(&t);
}
END_TEST

START_TEST(many_rows_are_kept) {
  table t = {.columns = columns, .column_count = 4};
  fly_error error;
  for (int i = 0; i < 1000; i++) ck_fly_ok(table_add(&t, &error, "row", (int64_t)i, i / 8.0, 0.0), error);
  ck_assert_int_eq(t.row_count, 1000);
  for (int i = 0; i < 1000; i++) ck_assert(t.cells[4 * i + 1].integer == i && t.cells[4 * i + 2].real == i / 8.0);
  table_free(&t);
}
END_TEST

static Suite *make(void) {
  Suite *suite = suite_create("compare_table");
  TCase *tcase = tcase_create("tables");
  tcase_add_test(tcase, csv_quotes_what_needs_it_and_leaves_out_what_is_not_there);
  tcase_add_test(tcase, json_has_types_and_null);
  tcase_add_test(tcase, html_is_escaped_and_shows_only_columns_with_a_title);
  tcase_add_test(tcase, many_rows_are_kept);
  suite_add_tcase(suite, tcase);
  return suite;
}

FLY_TEST_MAIN(make)
