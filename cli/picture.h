/* picture.h: pictures of block maps: a picture (picture.c), a plane of tiles in it (tiles.c), with title and axes
 * (panel.c). Lengths are points. */
#ifndef FLYMASK_CLI_PICTURE_H
#define FLYMASK_CLI_PICTURE_H

#include <cairo.h>

#include "cli.h"

typedef uint32_t color; /* 0xRRGGBB */
enum { WHITE = 0xffffff, INK = 0x20242c, GREY = 0x7a8089 };

typedef struct picture {
  int width, height;
  cairo_surface_t *surface;
  cairo_t *cairo;
} picture;

/* Also after a failure, *out is the caller's to free. */
fly_status picture_create(int width, int height, picture *out, fly_error *error);
void picture_free(picture *picture);
void picture_fill(picture *p, int x, int y, int width, int height, color c);
/* width x height points, row by row. */
void picture_points(picture *p, int x, int y, int width, int height, color *points);
/* Text of SMALL or LARGE size; (x, y) is the upper left corner of its capitals. */
void picture_text(picture *p, int x, int y, int size, color c, const char *text);
/* The same, turned so that it reads upwards; (x, y) is the corner of what it covers. */
void picture_text_up(picture *p, int x, int y, int size, color c, const char *text);
int text_width(const char *text, int size);
enum { SMALL = 18, LARGE = 27 };
fly_status picture_save(const picture *p, const char *path, fly_error *error);

/* A map's plane (b, h), drawn in a square or rectangle of `width` x `height` at (x, y): keys to the right, queries
 * down. */
typedef struct tile_view {
  const fly_map *map;
  int64_t b, h, len_q, len_kv;
  bool points; /* draw the pairs inside partial tiles */
} tile_view;
fly_status tiles_draw(picture *p, int x, int y, int width, int height, const tile_view *view, fly_error *error);
/* Of a tile, or of a visible pair inside one. */
color tiles_color(fly_tile_kind kind, bool visible);

/* A view with title, axes and lines of text. It takes PANEL_LEFT + width by PANEL_TOP + height + PANEL_BOTTOM
 * points. */
enum {
  PANEL_LINES = 3,
  PANEL_LINE = 25,
  PANEL_LEFT = 110,
  PANEL_TOP = 116,
  PANEL_BOTTOM = 16 + PANEL_LINE * PANEL_LINES
};
typedef struct panel {
  char title[64], subtitle[128], lines[PANEL_LINES][96];
  tile_view view;
  int width, height; /* of the view */
} panel;
int panel_width(const panel *panel); /* of the view and of every text */
fly_status panel_draw(picture *p, int x, int y, const panel *panel, fly_error *error);
/* The colours' meaning, in one line; its width is returned, also with p NULL. */
int legend_draw(picture *p, int x, int y, bool points);

#endif
