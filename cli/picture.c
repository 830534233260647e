/* picture.c: a picture in memory, drawn and written as a PNG by Cairo: rectangles, single points, text. Rectangles and
 * points lie on whole pixels, so that their colours are exact. */
#include <math.h>
#include <stdlib.h>

#include "picture.h"

static fly_status fail_cairo(fly_error *error, const char *path, const char *what, cairo_status_t status) {
  if (status == CAIRO_STATUS_NO_MEMORY) return fail_memory(error);
  return fail(error, FLY_ERROR_IO, path, "cannot make %s: %s", what, cairo_status_to_string(status));
}

static void set_color(cairo_t *cairo, color c) {
  cairo_set_source_rgb(cairo, (c >> 16) / 255.0, (c >> 8 & 255) / 255.0, (c & 255) / 255.0);
}

/* Errors stay in the context, which then ignores what is drawn: picture_save reports them. */
fly_status picture_create(int width, int height, picture *out, fly_error *error) {
  *out = (picture){width, height, cairo_image_surface_create(CAIRO_FORMAT_RGB24, width, height), NULL};
  out->cairo = cairo_create(out->surface);
  cairo_status_t status = cairo_status(out->cairo);
  if (status != CAIRO_STATUS_SUCCESS) return fail_cairo(error, NULL, "a picture", status);
  picture_fill(out, 0, 0, width, height, WHITE);
  return FLY_OK;
}

void picture_free(picture *picture) {
  cairo_destroy(picture->cairo);
  cairo_surface_destroy(picture->surface);
  *picture = (struct picture){0};
}

void picture_fill(picture *p, int x, int y, int width, int height, color c) {
  set_color(p->cairo, c);
  cairo_rectangle(p->cairo, x, y, width, height);
  cairo_fill(p->cairo);
}

void picture_points(picture *p, int x, int y, int width, int height, color *points) {
  cairo_surface_t *from = cairo_image_surface_create_for_data((unsigned char *)points, CAIRO_FORMAT_RGB24, width,
                                                              height, width * (int)sizeof *points);
  cairo_set_source_surface(p->cairo, from, x, y);
  cairo_rectangle(p->cairo, x, y, width, height);
  cairo_fill(p->cairo);
  set_color(p->cairo, INK); /* lets go of the points */
  cairo_surface_destroy(from);
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

enum { TEXT_MOST = 160 };
static const double CAPITALS = 0.729; /* the height of DejaVu's capitals, in sizes */

static void choose_font(cairo_t *cairo, int size) {
  cairo_select_font_face(cairo, "DejaVu Sans", CAIRO_FONT_SLANT_NORMAL, CAIRO_FONT_WEIGHT_NORMAL);
  cairo_set_font_size(cairo, size);
}

/* False where it is not UTF-8. */
static bool measure(const char *text, int size, double *width) {
  cairo_surface_t *surface = cairo_image_surface_create(CAIRO_FORMAT_A8, 1, 1);
  cairo_t *cairo = cairo_create(surface);
  cairo_text_extents_t extents = {0};
  choose_font(cairo, size);
  cairo_text_extents(cairo, text, &extents);
  bool valid = cairo_status(cairo) != CAIRO_STATUS_INVALID_STRING;
  *width = extents.x_advance;
  cairo_destroy(cairo);
  cairo_surface_destroy(surface);
  return valid;
}

/* A file's name may be of any bytes, and a text may have been cut: Cairo takes UTF-8 alone. */
static double drawable(const char *text, int size, char out[TEXT_MOST]) {
  double width;
  snprintf(out, TEXT_MOST, "%s", text);
  if (measure(out, size, &width)) return width;
  for (char *c = out; *c; c++)
    if (*c & 0x80) *c = '?';
  measure(out, size, &width);
  return width;
}

int text_width(const char *text, int size) {
  char shown[TEXT_MOST];
  return (int)(drawable(text, size, shown) + 0.5);
}

static void draw_text(picture *p, double x, double y, double turn, int size, color c, const char *text) {
  char shown[TEXT_MOST];
  drawable(text, size, shown);
  cairo_save(p->cairo);
  set_color(p->cairo, c);
  choose_font(p->cairo, size);
  cairo_translate(p->cairo, x, y);
  cairo_rotate(p->cairo, turn);
  cairo_move_to(p->cairo, 0, 0);
  cairo_show_text(p->cairo, shown);
  cairo_restore(p->cairo);
}

void picture_text(picture *p, int x, int y, int size, color c, const char *text) {
  draw_text(p, x, y + CAPITALS * size, 0, size, c, text);
}

void picture_text_up(picture *p, int x, int y, int size, color c, const char *text) {
  draw_text(p, x + CAPITALS * size, y + text_width(text, size), -M_PI / 2, size, c, text);
}

/* ---- PNG --------------------------------------------------------------------------------------------------------- */

static cairo_status_t write_part(void *file, const unsigned char *data, unsigned size) {
  return fwrite(data, 1, size, file) == size ? CAIRO_STATUS_SUCCESS : CAIRO_STATUS_NO_MEMORY;
}

/* First to memory, so that a file is whole or not there. */
fly_status picture_save(const picture *p, const char *path, fly_error *error) {
  char *bytes = NULL;
  size_t size = 0;
  FILE *memory = open_memstream(&bytes, &size);
  if (!memory) return fail_memory(error);
  cairo_status_t drawn = cairo_status(p->cairo);
  if (drawn == CAIRO_STATUS_SUCCESS) drawn = cairo_surface_write_to_png_stream(p->surface, write_part, memory);
  if (fclose(memory) != 0) drawn = CAIRO_STATUS_NO_MEMORY;
  fly_status status = drawn == CAIRO_STATUS_SUCCESS ? FLY_OK : fail_cairo(error, path, "the picture", drawn);
  if (status == FLY_OK) status = file_save(path, &(struct iovec){bytes, size}, 1, error);
  free(bytes);
  return status;
}
