/* picture.c: a picture in memory with rectangles and text, written as a PNG. */
#include <png.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

fly_status picture_create(int width, int height, picture *out, fly_error *error) {
  *out = (picture){.width = width, .height = height};
  out->rgb = malloc((size_t)width * (size_t)height * 3);
  if (!out->rgb) return fail_memory(error);
  memset(out->rgb, 0xff, (size_t)width * (size_t)height * 3);
  return FLY_OK;
}

void picture_free(picture *picture) {
  free(picture->rgb);
  picture->rgb = NULL;
}

void picture_dot(picture *p, int x, int y, color c) {
  if (x < 0 || y < 0 || x >= p->width || y >= p->height) return;
  uint8_t *at = p->rgb + 3 * ((size_t)y * (size_t)p->width + (size_t)x);
  at[0] = (uint8_t)(c >> 16);
  at[1] = (uint8_t)(c >> 8);
  at[2] = (uint8_t)c;
}

void picture_fill(picture *p, int x, int y, int width, int height, color c) {
  for (int j = y; j < y + height; j++)
    for (int i = x; i < x + width; i++) picture_dot(p, i, j, c);
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

enum { GLYPH_WIDTH = 5, ADVANCE = 6 };

int text_width(const char *text, int scale) {
  int length = (int)strlen(text);
  return length ? (length * ADVANCE - 1) * scale : 0;
}

static void draw_text(picture *p, int x, int y, int scale, color c, const char *text, bool down) {
  for (int at = 0; *text; text++, at += ADVANCE) {
    const uint8_t *rows = font_glyph(*text);
    for (int j = 0; j < GLYPH_ROWS; j++)
      for (int i = 0; i < GLYPH_WIDTH; i++) {
        if (!(rows[j] >> (GLYPH_WIDTH - 1 - i) & 1)) continue;
        int across = down ? TEXT_HEIGHT - 1 - j : at + i, along = down ? at + i : j;
        picture_fill(p, x + across * scale, y + along * scale, scale, scale, c);
      }
  }
}

void picture_text(picture *p, int x, int y, int scale, color c, const char *text) {
  draw_text(p, x, y, scale, c, text, false);
}

void picture_text_down(picture *p, int x, int y, int scale, color c, const char *text) {
  draw_text(p, x, y, scale, c, text, true);
}

/* ---- PNG --------------------------------------------------------------------------------------------------------- */

fly_status picture_save(const picture *p, const char *path, fly_error *error) {
  png_image image = {.version = PNG_IMAGE_VERSION,
                     .width = (png_uint_32)p->width,
                     .height = (png_uint_32)p->height,
                     .format = PNG_FORMAT_RGB};
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(image);
  void *bytes = malloc(size);
  if (!bytes) return fail_memory(error);
  fly_status status;
  if (!png_image_write_to_memory(&image, bytes, &size, 0, p->rgb, 0, NULL)) {
    status = fail(error, FLY_ERROR_IO, path, "cannot make a PNG: %s", image.message);
  } else {
    struct iovec part = {bytes, size};
    status = file_save(path, &part, 1, error);
  }
  free(bytes);
  return status;
}
