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

enum { COLORS = 256 };

typedef struct palette {
  uint8_t rgb[COLORS][3];
  int count;
} palette;

/* The colour's place in the palette, where it is added if it is new; -1: there are too many. */
static int palette_index(palette *all, const uint8_t *rgb) {
  for (int i = 0; i < all->count; i++)
    if (memcmp(all->rgb[i], rgb, 3) == 0) return i;
  if (all->count == COLORS) return -1;
  memcpy(all->rgb[all->count], rgb, 3);
  return all->count++;
}

/* One byte a point; false where the colours are more than a palette holds. */
static bool make_indices(const picture *p, palette *all, uint8_t *indices) {
  size_t points = (size_t)p->width * (size_t)p->height;
  int index = 0;
  *all = (palette){0};
  for (size_t i = 0; i < points; i++) {
    bool same = i > 0 && memcmp(p->rgb + 3 * i, p->rgb + 3 * (i - 1), 3) == 0;
    if (!same && (index = palette_index(all, p->rgb + 3 * i)) < 0) return false;
    indices[i] = (uint8_t)index;
  }
  return true;
}

/* Most pictures have a few colours: with a palette the file is several times smaller. */
fly_status picture_save(const picture *p, const char *path, fly_error *error) {
  png_image image = {.version = PNG_IMAGE_VERSION,
                     .width = (png_uint_32)p->width,
                     .height = (png_uint_32)p->height,
                     .format = PNG_FORMAT_RGB};
  palette colors;
  fly_status status = FLY_OK;
  uint8_t *indices = malloc((size_t)p->width * (size_t)p->height), *bytes = NULL;
  if (!indices) return fail_memory(error);
  bool few = make_indices(p, &colors, indices);
  if (few) image.format = PNG_FORMAT_RGB_COLORMAP, image.colormap_entries = (png_uint_32)colors.count;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(image);
  if (!(bytes = malloc(size))) {
    status = fail_memory(error);
  } else if (!png_image_write_to_memory(&image, bytes, &size, 0, few ? indices : p->rgb, 0, few ? colors.rgb : NULL)) {
    status = fail(error, FLY_ERROR_IO, path, "cannot make a PNG: %s", image.message);
  } else {
    struct iovec part = {bytes, size};
    status = file_save(path, &part, 1, error);
  }
  free(indices);
  free(bytes);
  return status;
}
