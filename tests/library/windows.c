/* windows.c: masks of distances: each query's keys are listed one by one. */
#include "scene.h"

static void draw_full(scene *s) { scene_show_rectangle(s, ALL, ALL, scene_begin(s), scene_end(s), 0, scene_end(s)); }

/* By columns: a key is seen from its own position on. */
static void draw_causal(scene *s) {
  for (int kv = 0; kv < s->len_kv; kv++) scene_show_rectangle(s, ALL, ALL, kv, scene_end(s), kv, kv + 1);
}

static void draw_prefix_lm(scene *s) {
  draw_causal(s);
  scene_show_rectangle(s, ALL, ALL, scene_begin(s), scene_end(s), 0, scene_int(s, "prefix", 0, 40));
}

/* The keys from `left` before q to `right` behind it, -1 is unbounded. */
static void show_interval(scene *s, int b, int h, int q, int left, int right) {
  int first = left < 0 ? 0 : q - left, last = right < 0 ? s->len_kv : q + right;
  scene_show_rectangle(s, b, h, q, q + 1, first, last + 1);
}

static void draw_sliding_window(scene *s) {
  int left = scene_int(s, "left", -1, 40), right = scene_int(s, "right", -1, 40);
  for (int q = scene_begin(s); q < scene_end(s); q++) show_interval(s, ALL, ALL, q, left, right);
}

/* The last `count` keys, counted. */
static void show_last(scene *s, int h, int q, int count) {
  for (int kv = q; count-- > 0; kv--) scene_show(s, ALL, h, q, kv);
}

static void draw_causal_window(scene *s) {
  int window = scene_int(s, "window", 0, 60);
  for (int q = scene_begin(s); q < scene_end(s); q++) show_last(s, ALL, q, window);
}

static void draw_symmetric_window(scene *s) {
  int radius = scene_int(s, "radius", 0, 40);
  for (int q = scene_begin(s); q < scene_end(s); q++)
    for (int d = 0; d <= radius; d++) scene_show(s, ALL, ALL, q, q - d), scene_show(s, ALL, ALL, q, q + d);
}

static void draw_head_window(scene *s) {
  int n = test_range(&s->random, 1, s->heads + 1);
  int32_t *window = scene_buffer(s, "window", FLY_I32, 1, (int64_t[]){n});
  for (int h = 0; h < n; h++) window[h] = test_range(&s->random, 0, 70);
  for (int h = 0; h < s->heads; h++)
    for (int q = scene_begin(s); q < scene_end(s); q++) show_last(s, h, q, window[scene_clamp(h, n)]);
}

/* `window` steps of `dilation` to each side; steps of 0 stay at the query. */
static void show_steps(scene *s, int window, int dilation) {
  for (int q = scene_begin(s); q < scene_end(s); q++)
    for (int step = -window; step <= window; step++) scene_show(s, ALL, ALL, q, q + step * dilation);
}

static void draw_dilated_window(scene *s) {
  int window = scene_int(s, "window", 0, 20), dilation = scene_divisor(s, "dilation", 1, 7);
  show_steps(s, window, dilation);
}

static void draw_global_window(scene *s) {
  int window = scene_int(s, "window", 0, 20), globals = scene_int(s, "globals", 0, 10);
  show_steps(s, window, 1);
  scene_show_rectangle(s, ALL, ALL, scene_begin(s), globals, 0, s->len_kv);
  scene_show_rectangle(s, ALL, ALL, scene_begin(s), scene_end(s), 0, globals);
}

/* Rows and columns of marked tokens; positions behind the buffer are as its last one. */
static void show_globals(scene *s) {
  int n = test_range(&s->random, 1, scene_end(s) + 3);
  uint8_t *is_global = scene_buffer(s, "is_global", FLY_U8, 1, (int64_t[]){n});
  for (int i = 0; i < n; i++) is_global[i] = scene_chance(s, 5) ? scene_true(s) : 0;
  for (int i = scene_begin(s); i < scene_end(s); i++)
    if (is_global[scene_clamp(i, n)]) {
      scene_show_rectangle(s, ALL, ALL, i, i + 1, 0, s->len_kv);
      scene_show_rectangle(s, ALL, ALL, scene_begin(s), scene_end(s), i, i + 1);
    }
}

static void draw_longformer(scene *s) {
  show_steps(s, scene_int(s, "window", 0, 30), 1);
  show_globals(s);
}

static void draw_longformer_dilated(scene *s) {
  draw_dilated_window(s);
  show_globals(s);
}

static void draw_streaming_llm(scene *s) {
  int sinks = scene_int(s, "sinks", 0, 12), window = scene_int(s, "window", 0, 50);
  for (int q = scene_begin(s); q < scene_end(s); q++) {
    show_last(s, ALL, q, window);
    for (int kv = 0; kv < sinks && kv <= q; kv++) scene_show(s, ALL, ALL, q, kv);
  }
}

static void draw_strided(scene *s) {
  int stride = scene_divisor(s, "stride", 1, 30);
  for (int q = scene_begin(s); q < scene_end(s); q++) {
    show_interval(s, ALL, ALL, q, stride, 0);
    for (int kv = q; kv >= 0 && stride > 0; kv -= stride) scene_show(s, ALL, ALL, q, kv);
  }
}

static void draw_strided_fixed(scene *s) {
  int stride = scene_divisor(s, "stride", 1, 30), summary = scene_int(s, "summary", 0, 12);
  int block = stride ? stride : scene_end(s); /* one block of everything */
  for (int start = 0; start < scene_end(s); start += block) {
    for (int q = start; q < start + block; q++) scene_show_rectangle(s, ALL, ALL, q, q + 1, start, q + 1);
    for (int kv = start + block - 1; kv >= start && kv >= start + block - summary; kv--)
      scene_show_rectangle(s, ALL, ALL, kv, scene_end(s), kv, kv + 1);
  }
}

static void draw_logarithmic(scene *s) {
  int window = scene_int(s, "window", 0, 20);
  for (int q = scene_begin(s); q < scene_end(s); q++) {
    show_last(s, ALL, q, window ? window : 1);
    for (int step = 1; step <= q; step *= 2) scene_show(s, ALL, ALL, q, q - step);
  }
}

/* Arithmetic modulo 2^32 by 64-bit remainders, shifts by divisions. */
static uint64_t modulo(uint64_t x) { return x % 4294967296u; }
static uint64_t fold(uint64_t x, uint64_t power, uint64_t factor) { return modulo(factor * (x ^ x / power)); }

static void draw_random_pairs(scene *s) {
  int per_mille = scene_int(s, "per_mille", 0, 1000);
  uint64_t seed = scene_int(s, "seed", 0, 1 << 30);
  for (int q = scene_begin(s); q < scene_end(s); q++) {
    uint64_t row = modulo((uint64_t)(q + 4294967296) * 2654435761u) + seed;
    for (int kv = 0; kv < s->len_kv; kv++) {
      uint64_t x = modulo(row + (uint64_t)kv * 2246822519u);
      x = fold(fold(fold(x, 65536, 2246822507u), 8192, 3266489909u), 65536, 1);
      if (1000 * (x / 65536) < (uint64_t)per_mille * 65536) scene_show(s, ALL, ALL, q, kv);
    }
    scene_show(s, ALL, ALL, q, q);
  }
}

static void draw_key_padding(scene *s) {
  int n = test_range(&s->random, 1, s->batch + 1);
  int32_t *lengths = scene_buffer(s, "lengths", FLY_I32, 1, (int64_t[]){n});
  for (int b = 0; b < n; b++) lengths[b] = test_range(&s->random, 0, s->len_kv + 5);
  for (int b = 0; b < s->batch; b++)
    scene_show_rectangle(s, b, ALL, scene_begin(s), scene_end(s), 0, lengths[scene_clamp(b, n)]);
}

/* The parameters of the two stochastic masks. */
typedef struct permuted {
  int left, right, causal;
  bool ring;
} permuted;

static void show_permuted(scene *s, const permuted *p, int b, int h, int q, int kv) {
  if (!(p->causal & 2) || kv <= q) scene_show(s, b, h, q, kv);
}

/* Tokens are visited in order: what has been passed is open to a query that comes then. */
static void sweep(scene *s, const permuted *p, int b, int h) {
  int n = s->entry_kv[b], end = 4 * (s->len_q + s->len_kv);
  bool *open = calloc(n + 1, sizeof *open);
  for (int token = scene_begin(s); token < end && n > 0; token++) {
    for (int kv = 0; kv < n; kv++) open[kv] |= scene_token_kv(s, b, h, kv) == token;
    for (int q = s->q_offset; q < s->q_offset + s->entry_q[b]; q++) {
      if (scene_token_q(s, b, h, q) != token) continue;
      bool everything = p->ring && (p->left < 0 || p->right < 0);
      int first = everything || p->left < 0 ? 0 : q - p->left;
      int last = everything ? n - 1 : p->right < 0 ? n - 1 : q + p->right;
      for (int i = first; i <= last; i++) {
        int kv = i;
        while (p->ring && kv < 0) kv += n;
        while (p->ring && kv >= n) kv -= n;
        if (kv >= 0 && kv < n && (open[kv] || !(p->causal & 1))) show_permuted(s, p, b, h, q, kv);
      }
    }
  }
  free(open);
}

static void draw_permuted(scene *s, bool ring) {
  permuted p = {.ring = ring};
  p.left = scene_int(s, "left", -1, 40);
  p.right = scene_int(s, "right", -1, 40);
  p.causal = scene_int(s, "causal", 0, 3);
  for (int b = 0; b < s->batch; b++)
    for (int h = 0; h < s->heads; h++) sweep(s, &p, b, h);
}

static void draw_stochastic(scene *s) { draw_permuted(s, false); }
static void draw_stochastic_ring(scene *s) { draw_permuted(s, true); }

const library_mask library_windows[] = {
    {"full", draw_full, true},
    {"causal", draw_causal, true},
    {"prefix_lm", draw_prefix_lm, true},
    {"sliding_window", draw_sliding_window, true},
    {"causal_window", draw_causal_window, true},
    {"symmetric_window", draw_symmetric_window, true},
    {"head_window", draw_head_window, true},
    {"dilated_window", draw_dilated_window, true},
    {"global_window", draw_global_window, true},
    {"longformer", draw_longformer, true},
    {"longformer_dilated", draw_longformer_dilated, true},
    {"streaming_llm", draw_streaming_llm, true},
    {"strided", draw_strided, true},
    {"strided_fixed", draw_strided_fixed, true},
    {"logarithmic", draw_logarithmic, true},
    {"random_pairs", draw_random_pairs, true},
    {"key_padding", draw_key_padding, true},
    {"stochastic", draw_stochastic, true},
    {"stochastic_ring", draw_stochastic_ring, true},
    {0},
};
