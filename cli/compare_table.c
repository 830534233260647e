/* compare_table.c: tables of text, integers and reals. From rows to a CSV file, JSON objects and HTML. */
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "compare.h"

fly_status table_add(table *t, fly_error *error, ...) {
  if (t->row_count == t->room) {
    int room = t->room ? 2 * t->room : 32;
    cell *grown = realloc(t->cells, (size_t)room * (size_t)t->column_count * sizeof *grown);
    if (!grown) return fail_memory(error);
    t->cells = grown;
    t->room = room;
  }
  cell *row = t->cells + (size_t)t->row_count++ * (size_t)t->column_count;
  va_list values;
  va_start(values, error);
  for (int i = 0; i < t->column_count; i++) {
    row[i] = (cell){.real = NAN};
    if (t->columns[i].kind == 't') snprintf(row[i].text, sizeof row[i].text, "%s", va_arg(values, const char *));
    if (t->columns[i].kind == 'i') row[i].integer = va_arg(values, int64_t);
    if (t->columns[i].kind == 'r') row[i].real = va_arg(values, double);
  }
  va_end(values);
  return FLY_OK;
}

void table_free(table *t) {
  free(t->cells);
  t->cells = NULL;
  t->row_count = t->room = 0;
}

/* ---- CSV --------------------------------------------------------------------------------------------------------- */

static void csv_text(FILE *out, const char *text) {
  if (!strpbrk(text, ",\"\n")) {
    fputs(text, out);
    return;
  }
  putc('"', out);
  for (; *text; text++) {
    if (*text == '"') putc('"', out);
    putc(*text, out);
  }
  putc('"', out);
}

fly_status table_csv(const table *t, const char *path, fly_error *error) {
  struct iovec part = {0};
  char *text = NULL;
  FILE *out = open_memstream(&text, &part.iov_len);
  if (!out) return fail_memory(error);
  for (int i = 0; i < t->column_count; i++) fprintf(out, "%s%s", i ? "," : "", t->columns[i].name);
  putc('\n', out);
  for (int row = 0; row < t->row_count; row++)
    for (int i = 0; i < t->column_count; i++) {
      const cell *c = t->cells + (size_t)row * (size_t)t->column_count + i;
      if (i) putc(',', out);
      if (t->columns[i].kind == 't') csv_text(out, c->text);
      if (t->columns[i].kind == 'i') fprintf(out, "%lld", (long long)c->integer);
      if (t->columns[i].kind == 'r' && isfinite(c->real)) fprintf(out, "%.9g", c->real);
      if (i + 1 == t->column_count) putc('\n', out);
    }
  fly_status status = fclose(out) == 0 ? FLY_OK : fail_memory(error);
  part.iov_base = text;
  if (status == FLY_OK) status = file_save(path, &part, 1, error);
  free(text);
  return status;
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static json_t *cell_json(char kind, const cell *c) {
  if (kind == 't') return json_string(c->text);
  if (kind == 'i') return json_integer(c->integer);
  return isfinite(c->real) ? json_real(c->real) : json_null();
}

json_t *table_json(const table *t) {
  json_t *all = json_array();
  for (int row = 0; all && row < t->row_count; row++) {
    json_t *object = json_object();
    bool whole = object != NULL;
    for (int i = 0; whole && i < t->column_count; i++) {
      const cell *c = t->cells + (size_t)row * (size_t)t->column_count + i;
      whole = json_object_set_new(object, t->columns[i].name, cell_json(t->columns[i].kind, c)) == 0;
    }
    if (!whole) json_decref(object);
    if (!whole || json_array_append_new(all, object) != 0) {
      json_decref(all);
      return NULL;
    }
  }
  return all;
}

/* ---- HTML -------------------------------------------------------------------------------------------------------- */

void html_text(FILE *out, const char *text) {
  for (; *text; text++) {
    const char *entity = *text == '<' ? "&lt;" : *text == '>' ? "&gt;" : *text == '&' ? "&amp;" : NULL;
    if (entity)
      fputs(entity, out);
    else
      putc(*text, out);
  }
}

static void cell_html(const column *column, const cell *c, FILE *out) {
  fprintf(out, "<td%s>", column->kind == 't' ? " class=\"text\"" : "");
  if (column->kind == 't') html_text(out, c->text);
  if (column->kind == 'i') fputs(grouped(c->integer), out);
  if (column->kind == 'r') {
    if (!isfinite(c->real))
      fputs("&ndash;", out);
    else
      fprintf(out, "%.*f", column->digits, c->real);
  }
  fputs("</td>", out);
}

void table_html(const table *t, FILE *out) {
  fputs("<table><thead><tr>", out);
  for (int i = 0; i < t->column_count; i++) {
    const column *c = &t->columns[i];
    if (!c->title) continue;
    fprintf(out, "<th%s>", c->kind == 't' ? " class=\"text\"" : "");
    html_text(out, c->title);
    if (c->unit) fprintf(out, "<br><span class=\"unit\">%s</span>", c->unit);
    fputs("</th>", out);
  }
  fputs("</tr></thead><tbody>\n", out);
  for (int row = 0; row < t->row_count; row++) {
    fputs("<tr>", out);
    for (int i = 0; i < t->column_count; i++)
      if (t->columns[i].title) cell_html(&t->columns[i], t->cells + (size_t)row * (size_t)t->column_count + i, out);
    fputs("</tr>\n", out);
  }
  fputs("</tbody></table>\n", out);
}
