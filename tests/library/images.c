/* images.c: masks of neighbourhoods in sequences, images and videos: windows are moved inwards first, then filled;
 * layouts are tables, made by visiting the pixels in storage order. */
#include "scene.h"

/* The first of `kernel` places around `at` that fit into 0 .. length - 1. */
static int window_begin(int at, int kernel, int length) {
  int begin = at - kernel / 2;
  if (begin + kernel > length) begin = length - kernel;
  return begin < 0 ? 0 : begin;
}

static int window_end(int at, int kernel, int length) {
  int end = window_begin(at, kernel, length) + kernel;
  return end > length ? length : end;
}

static void draw_natten_1d(scene *s) {
  int kernel = scene_int(s, "kernel", 0, 60);
  for (int b = 0; b < s->batch; b++)
    for (int q = scene_begin(s); q < scene_end(s); q++) {
      int n = s->entry_kv[b];
      scene_show_rectangle(s, b, ALL, q, q + 1, window_begin(q, kernel, n), window_end(q, kernel, n));
    }
}

/* index[y][x]: the position of a pixel, or of a tile's first. */
enum { SIDE = 64 };
typedef struct canvas {
  int height, width, index[SIDE][SIDE];
} canvas;

static void show_neighbourhoods(scene *s, const canvas *c, int kernel_h, int kernel_w) {
  for (int y = 0; y < c->height; y++)
    for (int x = 0; x < c->width; x++)
      for (int i = window_begin(y, kernel_h, c->height); i < window_end(y, kernel_h, c->height); i++)
        for (int j = window_begin(x, kernel_w, c->width); j < window_end(x, kernel_w, c->width); j++)
          scene_show(s, ALL, ALL, c->index[y][x], c->index[i][j]);
}

static void draw_natten_2d(scene *s) {
  canvas c = {.height = scene_int(s, "height", 1, 15)};
  c.width = scene_int(s, "width", 1, 15);
  int kernel_h = scene_int(s, "kernel_h", 0, 9), kernel_w = scene_int(s, "kernel_w", 0, 9), next = 0;
  for (int y = 0; y < c.height; y++)
    for (int x = 0; x < c.width; x++) c.index[y][x] = next++;
  show_neighbourhoods(s, &c, kernel_h, kernel_w);
}

static void draw_natten_2d_tiled(scene *s) {
  canvas c = {.height = scene_int(s, "height", 1, 15)};
  int tile_h = scene_int(s, "tile_h", 1, 5), tile_w = scene_int(s, "tile_w", 1, 5), next = 0;
  c.width = scene_int(s, "width", 1, 4) * tile_w;
  s->args[s->arg_count - 1].value = c.width;
  int kernel_h = scene_int(s, "kernel_h", 0, 9), kernel_w = scene_int(s, "kernel_w", 0, 9);
  for (int ty = 0; ty < c.height; ty += tile_h)
    for (int tx = 0; tx < c.width; tx += tile_w)
      for (int y = ty; y < ty + tile_h; y++)
        for (int x = tx; x < tx + tile_w; x++) c.index[y][x] = next++; /* rows below the canvas count too */
  show_neighbourhoods(s, &c, kernel_h, kernel_w);
}

/* The curve visits the quadrants upper left, upper right, lower left, lower right, each in the same way. */
static void visit_quadrants(canvas *c, int y, int x, int side, int *next) {
  if (side == 1) {
    c->index[y][x] = (*next)++;
    return;
  }
  for (int quadrant = 0; quadrant < 4; quadrant++)
    visit_quadrants(c, y + quadrant / 2 * (side / 2), x + quadrant % 2 * (side / 2), side / 2, next);
}

static void draw_natten_2d_morton(scene *s) {
  canvas c = {.height = scene_int(s, "height", 1, 17)};
  c.width = scene_int(s, "width", 1, 17);
  int kernel_h = scene_int(s, "kernel_h", 0, 9), kernel_w = scene_int(s, "kernel_w", 0, 9), next = 0;
  visit_quadrants(&c, 0, 0, SIDE, &next);
  show_neighbourhoods(s, &c, kernel_h, kernel_w);
}

/* Tiles of a video (an image is one of one frame): windows along each axis, filled tile by tile; then the text. */
typedef struct video {
  int tiles[3], kernel[3], tile, text;
} video;

static int tile_number(const video *v, const int at[3]) { return (at[0] * v->tiles[1] + at[1]) * v->tiles[2] + at[2]; }

static void show_tile(scene *s, const video *v, const int at[3]) {
  int begin[3], end[3], i[3], q = tile_number(v, at) * v->tile;
  for (int axis = 0; axis < 3; axis++) {
    begin[axis] = window_begin(at[axis], v->kernel[axis], v->tiles[axis]);
    end[axis] = window_end(at[axis], v->kernel[axis], v->tiles[axis]);
  }
  for (i[0] = begin[0]; i[0] < end[0]; i[0]++)
    for (i[1] = begin[1]; i[1] < end[1]; i[1]++)
      for (i[2] = begin[2]; i[2] < end[2]; i[2]++) {
        int kv = tile_number(v, i) * v->tile;
        scene_show_rectangle(s, ALL, ALL, q, q + v->tile, kv, kv + v->tile);
      }
}

static void show_video(scene *s, const video *v) {
  int at[3], image = v->tiles[0] * v->tiles[1] * v->tiles[2] * v->tile;
  for (at[0] = 0; at[0] < v->tiles[0]; at[0]++)
    for (at[1] = 0; at[1] < v->tiles[1]; at[1]++)
      for (at[2] = 0; at[2] < v->tiles[2]; at[2]++) show_tile(s, v, at);
  scene_show_rectangle(s, ALL, ALL, image, scene_end(s), 0, image);
  scene_show_rectangle(s, ALL, ALL, scene_begin(s), scene_end(s), image, image + v->text);
}

static void draw_sliding_tile_2d(scene *s) {
  video v = {.tiles = {1}, .kernel = {1}};
  v.tiles[1] = scene_int(s, "tiles_h", 1, 5), v.tiles[2] = scene_int(s, "tiles_w", 1, 5);
  v.kernel[1] = scene_int(s, "kernel_h", 0, 4), v.kernel[2] = scene_int(s, "kernel_w", 0, 4);
  v.tile = scene_int(s, "tile", 1, 9), v.text = scene_int(s, "text", 0, 20);
  show_video(s, &v);
}

static void draw_sliding_tile_3d(scene *s) {
  video v = {.tiles = {scene_int(s, "tiles_t", 1, 4)}};
  v.tiles[1] = scene_int(s, "tiles_h", 1, 4), v.tiles[2] = scene_int(s, "tiles_w", 1, 4);
  v.kernel[0] = scene_int(s, "kernel_t", 0, 4), v.kernel[1] = scene_int(s, "kernel_h", 0, 4);
  v.kernel[2] = scene_int(s, "kernel_w", 0, 4);
  v.tile = scene_int(s, "tile", 1, 4), v.text = scene_int(s, "text", 0, 20);
  show_video(s, &v);
}

/* The prompt sees all and is seen by all. */
static void show_prompt(scene *s, int prompt) {
  scene_show_rectangle(s, ALL, ALL, scene_begin(s), prompt, 0, scene_end(s));
  scene_show_rectangle(s, ALL, ALL, scene_begin(s), scene_end(s), 0, prompt);
}

static void draw_svg_spatial(scene *s) {
  int prompt = scene_int(s, "prompt", 0, 10), frame = scene_int(s, "frame", 1, 20),
      frames = scene_int(s, "frames", 0, 3);
  int sink = scene_int(s, "sink", 0, 1), rounding = scene_int(s, "rounding", 1, 16), band = 0;
  while (band + rounding <= frames * frame) band += rounding;
  show_prompt(s, prompt);
  if (sink) scene_show_rectangle(s, ALL, ALL, scene_begin(s), scene_end(s), prompt, prompt + frame);
  for (int q = scene_begin(s); q < scene_end(s); q++)
    scene_show_rectangle(s, ALL, ALL, q, q + 1, q - band + 1, q + band);
}

/* Each pair of places in a frame, in every pair of frames. */
static void draw_svg_temporal(scene *s) {
  int prompt = scene_int(s, "prompt", 0, 10), frame = scene_int(s, "frame", 1, 20),
      frames = scene_int(s, "frames", 1, 9);
  int width = scene_int(s, "width", 0, 4), reach = 0;
  while (frames * (reach + 1) <= width * frame) reach++;
  show_prompt(s, prompt);
  for (int i = 0; i < frame; i++)
    for (int j = 0; j < frame; j++)
      for (int q = prompt + i; q < scene_end(s) && abs(i - j) < reach; q += frame)
        for (int kv = prompt + j; kv < scene_end(s); kv += frame) scene_show(s, ALL, ALL, q, kv);
}

const library_mask library_images[] = {
    {"natten_1d", draw_natten_1d, true},
    {"natten_2d", draw_natten_2d, true},
    {"natten_2d_tiled", draw_natten_2d_tiled, true},
    {"natten_2d_morton", draw_natten_2d_morton, true},
    {"sliding_tile_2d", draw_sliding_tile_2d, false},
    {"sliding_tile_3d", draw_sliding_tile_3d, false},
    {"svg_spatial", draw_svg_spatial, true},
    {"svg_temporal", draw_svg_temporal, true},
    {0},
};
