/* panel.c: a block map as a person reads it: title, axes with lengths, the tiles, lines of text below; and the
 * legend of the colours. */
#include <string.h>

#include "picture.h"

/* The distance of tick marks: 1, 2 or 5 times a power of ten (1, 2, 4 ... for lengths that are multiples of 64). */
static int64_t tick_distance(int64_t length, int points) {
  int64_t most = points / 110 > 1 ? points / 110 : 1, distance = 1;
  if (length % 64 == 0) {
    while (length / distance > most) distance *= 2;
    return distance;
  }
  static const int factor[] = {1, 2, 5};
  for (int64_t power = 1;; power *= 10)
    for (int i = 0; i < 3; i++)
      if (length / (power * factor[i]) <= most) return power * factor[i];
}

static void draw_axes(picture *p, int x, int y, const panel *panel) {
  const tile_view *view = &panel->view;
  int width = panel->width, height = panel->height;
  char text[32];
  picture_fill(p, x - 1, y - 1, width + 2, 1, GREY);
  picture_fill(p, x - 1, y + height, width + 2, 1, GREY);
  picture_fill(p, x - 1, y - 1, 1, height + 2, GREY);
  picture_fill(p, x + width, y - 1, 1, height + 2, GREY);
  int64_t step = tick_distance(view->len_kv, width);
  for (int64_t at = 0; at <= view->len_kv; at += step) {
    int px = x + (int)(at * width / view->len_kv);
    snprintf(text, sizeof text, "%lld", (long long)at);
    picture_fill(p, px, y - 7, 1, 6, GREY);
    picture_text(p, px - text_width(text, SMALL) / 2, y - 24, SMALL, GREY, text);
  }
  int widest = 0;
  step = tick_distance(view->len_q, height);
  for (int64_t at = 0; at <= view->len_q; at += step) {
    int py = y + (int)(at * height / view->len_q);
    snprintf(text, sizeof text, "%lld", (long long)at);
    picture_fill(p, x - 7, py, 6, 1, GREY);
    int wide = text_width(text, SMALL);
    widest = wide > widest ? wide : widest;
    picture_text(p, x - 11 - wide, py - SMALL / 3, SMALL, GREY, text);
  }
  picture_text(p, x + (width - text_width("keys", SMALL)) / 2, y - 48, SMALL, INK, "keys");
  int left = x - 11 - widest - 28;
  picture_text_up(p, left > 2 ? left : 2, y + (height - text_width("queries", SMALL)) / 2, SMALL, INK, "queries");
}

int legend_draw(picture *p, int x, int y, bool points) {
  const struct {
    color c;
    const char *text;
  } entries[] = {{tiles_color(FLY_FULL, false), "full tile: every pair visible"},
                 {tiles_color(FLY_PARTIAL, true), "visible pair in a partial tile"},
                 {tiles_color(FLY_PARTIAL, false), points ? "hidden pair in a partial tile" : "partial tile"},
                 {tiles_color(FLY_EMPTY, false), "empty tile: skipped"}};
  int at = x;
  for (int i = 0; i < 4; i++) {
    if (i == 1 && !points) continue;
    if (p) {
      picture_fill(p, at - 1, y - 1, 18, 18, GREY);
      picture_fill(p, at, y, 16, 16, entries[i].c);
      picture_text(p, at + 24, y + 1, SMALL, INK, entries[i].text);
    }
    at += 24 + text_width(entries[i].text, SMALL) + 32;
  }
  return at - 32 - x;
}

int panel_width(const panel *panel) {
  int texts[2 + PANEL_LINES] = {text_width(panel->title, LARGE), text_width(panel->subtitle, SMALL)};
  int most = panel->width;
  for (int i = 0; i < PANEL_LINES; i++) texts[2 + i] = text_width(panel->lines[i], SMALL);
  for (int i = 0; i < 2 + PANEL_LINES; i++) most = texts[i] > most ? texts[i] : most;
  return PANEL_LEFT + most;
}

fly_status panel_draw(picture *p, int x, int y, const panel *panel, fly_error *error) {
  int left = x + PANEL_LEFT, top = y + PANEL_TOP;
  picture_text(p, left, y, LARGE, INK, panel->title);
  picture_text(p, left, y + 30, SMALL, GREY, panel->subtitle);
  fly_status status = tiles_draw(p, left, top, panel->width, panel->height, &panel->view, error);
  if (status != FLY_OK) return status;
  draw_axes(p, left, top, panel);
  for (int i = 0; i < PANEL_LINES; i++)
    picture_text(p, left, top + panel->height + 16 + PANEL_LINE * i, SMALL, INK, panel->lines[i]);
  return FLY_OK;
}
