/* mask_thumbnail.c: makes a small file of a picture that `flymask show` drew: the legend, which is the last block of
 * rows, and the margins are cut off, the colours become a palette. No pixel of the rest changes.
 * Usage: mask_thumbnail IN.png OUT.png */
#include <png.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MARGIN = 6, COLOURS = 256 };

typedef struct picture {
  int width, height;
  uint8_t *rgb;
} picture;

static bool read_picture(const char *path, picture *p) {
  png_image image = {.version = PNG_IMAGE_VERSION};
  if (!png_image_begin_read_from_file(&image, path)) return false;
  image.format = PNG_FORMAT_RGB;
  *p = (picture){(int)image.width, (int)image.height, malloc(PNG_IMAGE_SIZE(image))};
  return p->rgb && png_image_finish_read(&image, NULL, p->rgb, 0, NULL);
}

static bool is_white(const picture *p, int x, int y) {
  return memcmp(p->rgb + 3 * ((size_t)y * p->width + x), "\xff\xff\xff", 3) == 0;
}

static bool row_is_white(const picture *p, int y) {
  for (int x = 0; x < p->width; x++)
    if (!is_white(p, x, y)) return false;
  return true;
}

static bool column_is_white(const picture *p, int x, int height) {
  for (int y = 0; y < height; y++)
    if (!is_white(p, x, y)) return false;
  return true;
}

/* What is left: [left, right) x [top, bottom). */
typedef struct box {
  int left, right, top, bottom;
} box;

static box find_content(const picture *p) {
  box b = {0, p->width, 0, p->height};
  while (b.bottom > 1 && row_is_white(p, b.bottom - 1)) b.bottom--;
  while (b.bottom > 1 && !row_is_white(p, b.bottom - 1)) b.bottom--; /* the legend */
  while (b.bottom > 1 && row_is_white(p, b.bottom - 1)) b.bottom--;
  while (b.top < b.bottom - 1 && row_is_white(p, b.top)) b.top++;
  while (b.right > 1 && column_is_white(p, b.right - 1, b.bottom)) b.right--;
  while (b.left < b.right - 1 && column_is_white(p, b.left, b.bottom)) b.left++;
  b.left -= b.left < MARGIN ? b.left : MARGIN, b.top -= b.top < MARGIN ? b.top : MARGIN;
  b.right += MARGIN, b.bottom += MARGIN;
  return (box){b.left, b.right < p->width ? b.right : p->width, b.top, b.bottom < p->height ? b.bottom : p->height};
}

/* The colour's place in the palette, where it is added if it is new; -1: there are too many. */
static int palette_index(uint8_t palette[COLOURS][3], int *count, const uint8_t *rgb) {
  for (int i = 0; i < *count; i++)
    if (memcmp(palette[i], rgb, 3) == 0) return i;
  if (*count == COLOURS) return -1;
  memcpy(palette[*count], rgb, 3);
  return (*count)++;
}

static bool write_picture(const picture *p, box b, const char *path) {
  static uint8_t palette[COLOURS][3];
  int count = 0, width = b.right - b.left, height = b.bottom - b.top;
  uint8_t *indices = malloc((size_t)width * height);
  bool ok = indices != NULL;
  for (int i = 0; ok && i < width * height; i++) {
    int x = b.left + i % width, y = b.top + i / width;
    int index = palette_index(palette, &count, p->rgb + 3 * ((size_t)y * p->width + x));
    ok = index >= 0;
    indices[i] = (uint8_t)index;
  }
  png_image image = {.version = PNG_IMAGE_VERSION, .width = (png_uint_32)width, .height = (png_uint_32)height};
  image.format = PNG_FORMAT_RGB_COLORMAP, image.colormap_entries = (png_uint_32)count;
  ok = ok && png_image_write_to_file(&image, path, 0, indices, 0, palette);
  free(indices);
  return ok;
}

int main(int argc, char **argv) {
  if (argc != 3) {
    fputs("usage: mask_thumbnail IN.png OUT.png\n", stderr);
    return 2;
  }
  picture p = {0};
  bool ok = read_picture(argv[1], &p) && write_picture(&p, find_content(&p), argv[2]);
  if (!ok) fprintf(stderr, "mask_thumbnail: cannot make %s of %s\n", argv[2], argv[1]);
  free(p.rgb);
  return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
