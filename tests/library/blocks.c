/* blocks.c: masks of blocks: rectangles of pairs, block by block. */
#include "scene.h"

/* The positions of block i of `count`, each `size` long: the first begins and the last ends where positions do. A
 * size of 0 puts all into block 0. */
typedef struct span {
  int begin, end;
} span;

static span block(const scene *s, int i, int count, int size) {
  span all = {scene_begin(s), scene_end(s)}, none = {0, 0};
  if (size == 0 || count == 1) return i == 0 ? all : none;
  return (span){i == 0 ? all.begin : i * size, i == count - 1 ? all.end : (i + 1) * size};
}

static void show_block(scene *s, int b, int h, span q, span kv) {
  scene_show_rectangle(s, b, h, q.begin, q.end, kv.begin, kv.end);
}

static void show_causal(scene *s, int b, int h, span q, span kv) {
  for (int i = q.begin; i < q.end; i++)
    scene_show_rectangle(s, b, h, i, i + 1, kv.begin, kv.end < i + 1 ? kv.end : i + 1);
}

static void draw_chunked(scene *s) {
  int size = scene_divisor(s, "size", 1, 50), count = size ? scene_end(s) / size + 1 : 1;
  for (int i = 0; i < count; i++) show_causal(s, ALL, ALL, block(s, i, count, size), block(s, i, count, size));
}

static void draw_block_sparse(scene *s) {
  int size = scene_divisor(s, "size", 1, 40);
  int rows = test_range(&s->random, 1, 6), columns = test_range(&s->random, 1, 6);
  uint8_t *bitmap = scene_buffer(s, "bitmap", FLY_U8, 2, (int64_t[]){rows, columns});
  for (int i = 0; i < rows; i++)
    for (int j = 0; j < columns; j++)
      if ((bitmap[i * columns + j] = scene_chance(s, 40) ? scene_true(s) : 0) != 0)
        show_block(s, ALL, ALL, block(s, i, rows, size), block(s, j, columns, size));
}

/* The planes (b, h) that entry i of a dimension stands for: i itself, and all behind it if it is the last. */
static bool stands_for(int i, int count, int plane) { return plane == i || (i == count - 1 && plane > i); }

/* Calls `show` for each 1 of a random table [batches, heads, rows, columns] and each plane that it is for. */
static void draw_table(scene *s, const char *name, int rows, int columns,
                       void (*show)(scene *s, int b, int h, span q, span kv), int size_q, int size_kv) {
  int batches = scene_chance(s, 50) ? 1 : s->batch, heads = scene_chance(s, 30) ? 1 : s->heads;
  uint8_t *table = scene_buffer(s, name, FLY_U8, 4, (int64_t[]){batches, heads, rows, columns});
  for (int e = 0; e < batches * heads * rows * columns; e++) {
    if (!scene_chance(s, 40)) continue;
    table[e] = scene_true(s);
    int j = e % columns, i = e / columns % rows;
    for (int b = 0; b < s->batch; b++)
      for (int h = 0; h < s->heads; h++)
        if (stands_for(e / columns / rows / heads, batches, b) && stands_for(e / columns / rows % heads, heads, h))
          show(s, b, h, block(s, i, rows, size_q), block(s, j, columns, size_kv));
  }
}

static void draw_block_selected(scene *s) {
  int size_q = scene_divisor(s, "size_q", 1, 40), size_kv = scene_divisor(s, "size_kv", 1, 40);
  int rows = test_range(&s->random, 1, 6), columns = test_range(&s->random, 1, 6);
  draw_table(s, "bitmap", rows, columns, show_block, size_q, size_kv);
}

static void draw_moba(scene *s) {
  int size = scene_divisor(s, "size", 1, 40), columns = test_range(&s->random, 1, 6);
  draw_table(s, "selected", test_range(&s->random, 1, scene_end(s) + 2), columns, show_causal, 1, size);
}

/* Block by block of each row's tile, up to the row's token where that bounds it. */
static void draw_selected_tiles(scene *s) {
  int size = scene_int(s, "size", 1, 30), count = scene_int(s, "count", 1, 5);
  int rows = test_range(&s->random, 1, s->len_q);
  int causal = scene_int(s, "causal", 0, 1), offset = scene_int(s, "offset", -3, 3);
  int batch = scene_chance(s, 50) ? 1 : s->batch, heads = scene_chance(s, 50) ? 1 : s->heads;
  int32_t *tile = scene_buffer(s, "tile", FLY_I32, 3, (int64_t[]){batch, heads, rows});
  uint64_t *blocks = scene_buffer(s, "blocks", FLY_U64, 3, (int64_t[]){batch, heads, rows});
  for (int i = 0; i < batch * heads * rows; i++)
    tile[i] = test_range(&s->random, 0, 3), blocks[i] = test_next(&s->random);
  for (int b = 0; b < s->batch; b++)
    for (int h = 0; h < s->heads; h++)
      for (int q = s->q_offset; q < s->q_offset + s->entry_q[b]; q++) {
        int at = (scene_clamp(b, batch) * heads + scene_clamp(h, heads)) * rows + scene_clamp(q, rows);
        int end = causal ? scene_token_q(s, b, h, q) + offset + 1 : INT32_MAX;
        for (int i = 0; i < count; i++) {
          int first = (tile[at] * count + i) * size, last = first + size < end ? first + size : end;
          if (blocks[at] >> i & 1 && first < last) scene_show_rectangle(s, b, h, q, q + 1, first, last);
        }
      }
}

/* A dense matrix of blocks, filled pattern by pattern. */
static void draw_bigbird(scene *s) {
  enum { MOST = 12 };
  int size = scene_divisor(s, "size", 1, 30), blocks = test_range(&s->random, 1, MOST);
  int heads = scene_chance(s, 50) ? 1 : s->heads;
  int32_t *picks = scene_buffer(s, "picks", FLY_I32, 3, (int64_t[]){heads, blocks, 3});
  for (int i = 0; i < heads * blocks * 3; i++) picks[i] = test_range(&s->random, -1, blocks - 1);
  for (int h = 0; h < s->heads; h++) {
    bool matrix[MOST][MOST] = {0};
    for (int i = 0; i < blocks; i++) {
      matrix[i][0] = matrix[0][i] = matrix[i][blocks - 1] = matrix[blocks - 1][i] = matrix[i][i] = true;
      if (i > 0) matrix[i][i - 1] = matrix[i - 1][i] = true;
      for (int k = 0; k < 3; k++) {
        int pick = picks[(scene_clamp(h, heads) * blocks + i) * 3 + k];
        if (pick >= 0) matrix[i][pick] = true;
      }
    }
    for (int i = 0; i < blocks; i++)
      for (int j = 0; j < blocks; j++)
        if (matrix[i][j]) show_block(s, ALL, h, block(s, i, blocks, size), block(s, j, blocks, size));
  }
}

/* Each entry on its own, as if it were the whole sequence. */
static void draw_batchify(scene *s) {
  int size = scene_divisor(s, "size", 1, 60), left = scene_int(s, "left", -1, 20),
      right = scene_int(s, "right", -1, 20);
  int prefix = scene_int(s, "prefix", 0, 12), entry = size ? size : scene_end(s);
  for (int start = 0; start < scene_end(s); start += entry)
    for (int q = 0; q < entry; q++) {
      int first = left < 0 || q < left ? 0 : q - left, last = right < 0 || q + right >= entry ? entry - 1 : q + right;
      int at = start + q, inner = prefix < entry ? prefix : entry;
      scene_show_rectangle(s, ALL, ALL, at, at + 1, start + first, start + last + 1);
      scene_show_rectangle(s, ALL, ALL, at, at + 1, start, start + inner);
    }
}

/* The paper's three parts, block by block: block-diagonal, offset block-causal, block-causal. */
static void draw_block_diffusion(scene *s) {
  int length = scene_int(s, "length", 1, scene_end(s)), size = scene_divisor(s, "size", 1, 20);
  int step = size ? size : scene_end(s), end = scene_end(s);
  for (int i = 0; i * step < end; i++) {
    int noised = i * step, noised_end = noised + step < length ? noised + step : length;
    int clean = length + i * step, clean_end = clean + step;
    if (noised < length) scene_show_rectangle(s, ALL, ALL, noised, noised_end, noised, noised_end);
    if (noised < length) scene_show_rectangle(s, ALL, ALL, noised, noised_end, length, clean);
    scene_show_rectangle(s, ALL, ALL, clean, clean_end, length, clean_end);
  }
}

static void draw_flamingo(scene *s) {
  int size = scene_divisor(s, "size", 1, 40), images = test_range(&s->random, 1, 6);
  int32_t *intervals = scene_buffer(s, "intervals", FLY_I32, 2, (int64_t[]){images, 2});
  for (int i = 0; i < images; i++) {
    span seen_by = {test_range(&s->random, -3, scene_end(s)), test_range(&s->random, -3, scene_end(s))};
    intervals[2 * i] = seen_by.begin, intervals[2 * i + 1] = seen_by.end;
    show_block(s, ALL, ALL, seen_by, block(s, i, images, size));
  }
}

/* A dense matrix, packed by adding powers of two. */
static void draw_bitmask(scene *s) {
  int rows = test_range(&s->random, 1, scene_end(s) + 3), bytes = test_range(&s->random, 1, s->len_kv / 8 + 2);
  uint8_t *bits = scene_buffer(s, "bits", FLY_U8, 2, (int64_t[]){rows, bytes});
  for (int q = 0; q < rows; q++)
    for (int byte = 0; byte < bytes; byte++)
      for (int i = 0, power = 1; i < 8; i++, power += power)
        if (scene_chance(s, 30)) {
          bits[q * bytes + byte] += power;
          scene_show(s, ALL, ALL, q, 8 * byte + i);
        }
}

const library_mask library_blocks[] = {
    {"chunked", draw_chunked, true},
    {"block_sparse", draw_block_sparse, true},
    {"block_selected", draw_block_selected, true},
    {"moba", draw_moba, true},
    {"selected_tiles", draw_selected_tiles, true},
    {"bigbird", draw_bigbird, true},
    {"batchify", draw_batchify, false},
    {"block_diffusion", draw_block_diffusion, false},
    {"flamingo", draw_flamingo, true},
    {"bitmask", draw_bitmask, true},
    {0},
};
