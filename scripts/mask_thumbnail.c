/* mask_thumbnail.c: makes a small file of a picture that `flymask show` drew, which has a palette: the legend, which is
 * the last block of rows, and the margins are cut off. No pixel of the rest changes.
 * Usage: mask_thumbnail IN.png OUT.png */
#include <png.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MARGIN = 6, COLOURS = 256 };

typedef struct picture {
  png_image image;
  uint8_t *index; /* of each point, into the palette */
  uint8_t palette[COLOURS][3];
} picture;

/* False for a file without a palette. */
static bool read_picture(const char *path, picture *p) {
  p->image.version = PNG_IMAGE_VERSION;
  if (!png_image_begin_read_from_file(&p->image, path)) return false;
  bool has_palette = p->image.format & PNG_FORMAT_FLAG_COLORMAP;
  p->image.format = PNG_FORMAT_RGB_COLORMAP;
  p->index = malloc(PNG_IMAGE_SIZE(p->image));
  return has_palette && p->index && png_image_finish_read(&p->image, NULL, p->index, 0, p->palette);
}

static bool is_white(const picture *p, int x, int y) {
  return memcmp(p->palette[p->index[(size_t)y * p->image.width + x]], "\xff\xff\xff", 3) == 0;
}

static bool row_is_white(const picture *p, int y) {
  for (int x = 0; x < (int)p->image.width; x++)
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
  box b = {0, (int)p->image.width, 0, (int)p->image.height};
  while (b.bottom > 1 && row_is_white(p, b.bottom - 1)) b.bottom--;
  while (b.bottom > 1 && !row_is_white(p, b.bottom - 1)) b.bottom--; /* the legend */
  while (b.bottom > 1 && row_is_white(p, b.bottom - 1)) b.bottom--;
  while (b.top < b.bottom - 1 && row_is_white(p, b.top)) b.top++;
  while (b.right > 1 && column_is_white(p, b.right - 1, b.bottom)) b.right--;
  while (b.left < b.right - 1 && column_is_white(p, b.left, b.bottom)) b.left++;
  b.left -= b.left < MARGIN ? b.left : MARGIN, b.top -= b.top < MARGIN ? b.top : MARGIN;
  b.right += MARGIN, b.bottom += MARGIN;
  return (box){b.left, b.right < (int)p->image.width ? b.right : (int)p->image.width, b.top,
               b.bottom < (int)p->image.height ? b.bottom : (int)p->image.height};
}

static bool write_picture(const picture *p, box b, const char *path) {
  png_image image = {.version = PNG_IMAGE_VERSION,
                     .width = (png_uint_32)(b.right - b.left),
                     .height = (png_uint_32)(b.bottom - b.top),
                     .format = PNG_FORMAT_RGB_COLORMAP,
                     .colormap_entries = p->image.colormap_entries};
  const uint8_t *first = p->index + (size_t)b.top * p->image.width + b.left;
  return png_image_write_to_file(&image, path, 0, first, (png_int_32)p->image.width, p->palette);
}

int main(int argc, char **argv) {
  if (argc != 3) {
    fputs("usage: mask_thumbnail IN.png OUT.png\n", stderr);
    return 2;
  }
  picture p = {0};
  bool ok = read_picture(argv[1], &p) && write_picture(&p, find_content(&p), argv[2]);
  if (!ok) fprintf(stderr, "mask_thumbnail: cannot make %s of %s\n", argv[2], argv[1]);
  free(p.index);
  return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
