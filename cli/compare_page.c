/* compare_page.c: the report in the making. From sections, texts, tables and charts to report.html, one file that
 * needs nothing else, report.json, and the tables' and charts' own files. */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "compare.h"

static const char head[] =
    "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
    "<title>Attention mechanisms compared</title>\n<style>\n"
    "body{font:16px/1.5 system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif;color:#20242c;max-width:62rem;"
    "margin:2rem auto;padding:0 1rem}\n"
    "h1{font-size:1.7rem;margin-bottom:.3rem}h2{font-size:1.3rem;margin-top:2.5rem;border-bottom:1px solid #d5d8de}\n"
    "figure{margin:1.2rem 0}figure img{width:100%;height:auto;border:1px solid #e4e6ea}\n"
    "figcaption,caption,.note{color:#555c68;font-size:.9rem}\n"
    ".scroll{overflow-x:auto;margin:1rem 0}table{border-collapse:collapse;font-size:.86rem}\n"
    "th,td{padding:.25rem .6rem;text-align:right;border-bottom:1px solid #e4e6ea;font-variant-numeric:tabular-nums}\n"
    "th{vertical-align:bottom;background:#f5f6f8}.text{text-align:left;white-space:nowrap}.unit{font-weight:normal;"
    "color:#6c7380}\n"
    "summary{cursor:pointer;color:#0b5394}code{background:#f2f3f5;padding:0 .2rem}nav a{margin-right:1rem}\n"
    "</style></head><body>\n";

static char *path_in(const char *directory, const char *name, const char *ending) {
  char *path;
  return asprintf(&path, "%s/%s%s", directory, name, ending) < 0 ? NULL : path;
}

fly_status page_open(const char *directory, page *out, fly_error *error) {
  *out = (page){.directory = directory, .json = json_object()};
  out->html = open_memstream(&out->text, &out->size);
  if (!out->json || !out->html) {
    page_free(out);
    return fail_memory(error);
  }
  fputs(head, out->html);
  return FLY_OK;
}

fly_status page_section(page *p, const char *name, const char *title, fly_error *error) {
  fprintf(p->html, "<h2 id=\"%s\">%s</h2>\n", name, title);
  p->section = json_object();
  if (json_object_set_new(p->json, name, p->section) == 0) return FLY_OK;
  p->section = NULL;
  return fail_memory(error);
}

void page_text(page *p, const char *format, ...) {
  va_list values;
  va_start(values, format);
  fputs("<p>", p->html);
  vfprintf(p->html, format, values);
  fputs("</p>\n", p->html);
  va_end(values);
}

fly_status page_file(page *p, const table *t, fly_error *error) {
  json_t *rows = table_json(t);
  if (!rows || json_object_set_new(p->section, t->name, rows) != 0) return fail_memory(error);
  char *path = path_in(p->directory, t->name, ".csv");
  fly_status status = path ? table_csv(t, path, error) : fail_memory(error);
  free(path);
  return status;
}

fly_status page_table(page *p, const table *t, bool folded, fly_error *error) {
  if (folded)
    fprintf(p->html, "<details><summary>%s (%d rows, <code>%s.csv</code>)</summary>", t->caption, t->row_count,
            t->name);
  else
    fprintf(p->html, "<p class=\"note\">%s (<code>%s.csv</code>)</p>", t->caption, t->name);
  fputs("<div class=\"scroll\">", p->html);
  table_html(t, p->html);
  fputs(folded ? "</div></details>\n" : "</div>\n", p->html);
  return page_file(p, t, error);
}

/* ---- pictures ---------------------------------------------------------------------------------------------------- */

static void base64(const uint8_t *bytes, size_t size, FILE *out) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (size_t i = 0; i < size; i += 3) {
    size_t left = size - i;
    uint32_t word = (uint32_t)bytes[i] << 16 | (left > 1 ? (uint32_t)bytes[i + 1] << 8 : 0) |
                    (left > 2 ? bytes[i + 2] : 0);
    putc(digits[word >> 18], out);
    putc(digits[word >> 12 & 63], out);
    putc(left > 1 ? digits[word >> 6 & 63] : '=', out);
    putc(left > 2 ? digits[word & 63] : '=', out);
  }
}

static fly_status inline_file(const char *path, FILE *out, fly_error *error) {
  FILE *file = fopen(path, "rbe");
  if (!file) return fail(error, FLY_ERROR_IO, path, "cannot open: %s", strerror(errno));
  uint8_t bytes[3 * 4096];
  size_t got;
  while ((got = fread(bytes, 1, sizeof bytes, file)) > 0) base64(bytes, got, out);
  fly_status status = ferror(file) ? fail(error, FLY_ERROR_IO, path, "cannot read") : FLY_OK;
  fclose(file);
  return status;
}

fly_status page_chart(page *p, const chart *c, fly_error *error) {
  fly_status status = chart_draw(c, p->directory, error);
  if (status != FLY_OK) return status;
  char *path = path_in(p->directory, c->name, c->raster ? ".png" : ".svg");
  if (!path) return fail_memory(error);
  fprintf(p->html, "<figure><img alt=\"%s\" src=\"data:image/%s;base64,", c->caption, c->raster ? "png" : "svg+xml");
  status = inline_file(path, p->html, error);
  fprintf(p->html,
          "\"><figcaption>%s (<code>%s.svg</code>, <code>.png</code>, <code>.gp</code>)</figcaption></figure>\n",
          c->caption, c->name);
  free(path);
  return status;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static fly_status save_text(const page *p, const char *name, const char *text, size_t size, fly_error *error) {
  char *path = path_in(p->directory, name, "");
  struct iovec part = {(void *)text, size};
  fly_status status = path ? file_save(path, &part, 1, error) : fail_memory(error);
  free(path);
  return status;
}

fly_status page_save(page *p, fly_error *error) {
  fputs("</body></html>\n", p->html);
  bool whole = !ferror(p->html);
  if (fclose(p->html) != 0) whole = false;
  p->html = NULL;
  if (!whole) return fail_memory(error);
  fly_status status = save_text(p, "report.html", p->text, p->size, error);
  if (status != FLY_OK) return status;
  char *json = json_dumps(p->json, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
  status = json ? save_text(p, "report.json", json, strlen(json), error) : fail_memory(error);
  free(json);
  return status;
}

void page_free(page *p) {
  if (p->html) fclose(p->html);
  free(p->text);
  json_decref(p->json);
  *p = (page){0};
}
