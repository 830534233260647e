/* scene.c: geometries, values, marks, and the comparison with a source of answers. */
#include "scene.h"

typedef struct geometry {
  int len_q, len_kv, q_offset, batch, heads;
  bool ragged, rows;
} geometry;

static const geometry geometries[] = {
    {1, 1, 0, 1, 1, false, false},    {5, 5, 0, 1, 2, false, false},      {64, 64, 0, 1, 3, false, false},
    {97, 97, 0, 2, 2, false, true},   {130, 130, 0, 1, 1, false, true},   {61, 131, 0, 1, 2, false, false},
    {61, 131, 70, 2, 1, false, true}, {131, 61, -70, 1, 1, false, false}, {1, 140, 139, 1, 2, false, false},
    {40, 50, 7, 2, 3, false, true},   {60, 80, 0, 3, 2, true, false},     {50, 50, 2, 2, 2, true, true},
};

int scene_clamp(int position, int count) { return position < 0 ? 0 : position >= count ? count - 1 : position; }
bool scene_chance(scene *s, int percent) { return test_range(&s->random, 1, 100) <= percent; }
uint8_t scene_true(scene *s) {
  static const uint8_t values[] = {1, 1, 2, 128, 255};
  return values[test_range(&s->random, 0, 4)];
}

int scene_begin(const scene *s) { return s->q_offset < 0 ? s->q_offset : 0; }
int scene_end(const scene *s) { return s->len_q + s->q_offset > s->len_kv ? s->len_q + s->q_offset : s->len_kv; }

/* Tokens of a row map: a permutation where `distinct`, else any rows, some of them twice. */
static void draw_rows(scene *s, int32_t *rows, int count, int start, bool distinct) {
  for (int i = 0; i < count; i++) rows[i] = start + (distinct ? i : (int)test_range(&s->random, 0, 2 * count));
  for (int i = count - 1; i > 0; i--) {
    int j = test_range(&s->random, 0, i);
    int32_t other = rows[j];
    rows[j] = rows[i], rows[i] = other;
  }
}

static int32_t *draw_row_map(scene *s, const int *entries, const int32_t *cu, int len, bool distinct) {
  int total = s->ragged ? cu[s->batch] : s->batch * len;
  int32_t *rows = malloc(((size_t)total * s->heads + 1) * sizeof *rows);
  ck_assert_ptr_nonnull(rows);
  for (int b = 0; b < s->batch; b++)
    for (int h = 0; h < s->heads; h++) {
      int at = s->ragged ? h * total + cu[b] : (b * s->heads + h) * len;
      draw_rows(s, rows + at, entries[b], s->ragged ? cu[b] : 0, distinct);
    }
  return rows;
}

scene *scene_create(int k, uint64_t seed, bool zero, bool negative) {
  if (k >= (int)(sizeof geometries / sizeof *geometries)) return NULL;
  const geometry *g = &geometries[k];
  scene *s = calloc(1, sizeof *s);
  ck_assert_ptr_nonnull(s);
  s->random.state = 0x9e3779b97f4a7c15u * (seed * 100 + k + 1);
  s->zero = zero, s->ragged = g->ragged;
  s->batch = g->batch, s->heads = g->heads, s->len_q = g->len_q, s->len_kv = g->len_kv;
  s->q_offset = g->q_offset < 0 && !negative ? 0 : g->q_offset;
  for (int b = 0; b < s->batch; b++) {
    bool longest = !s->ragged || b == 1;
    s->entry_q[b] = longest ? s->len_q : test_range(&s->random, 0, s->len_q);
    s->entry_kv[b] = longest ? s->len_kv : test_range(&s->random, 0, s->len_kv);
    s->cu_q[b + 1] = s->cu_q[b] + s->entry_q[b];
    s->cu_kv[b + 1] = s->cu_kv[b] + s->entry_kv[b];
  }
  bool square = s->len_q == s->len_kv && !s->ragged;
  if (g->rows) s->kv_rows = draw_row_map(s, s->entry_kv, s->cu_kv, s->len_kv, true);
  if (g->rows) s->q_rows = draw_row_map(s, s->entry_q, s->cu_q, s->len_q, square);
  s->seen = calloc((size_t)s->batch * s->heads * s->len_q, s->len_kv);
  ck_assert_ptr_nonnull(s->seen);
  return s;
}

void scene_free(scene *s) {
  for (int i = 0; i < s->arg_count; i++)
    if (s->args[i].data) guard_free(s->args[i].data);
  free(s->q_rows);
  free(s->kv_rows);
  free(s->seen);
  free(s);
}

static scene_arg *add(scene *s, const char *name) {
  ck_assert_int_lt(s->arg_count, SCENE_ARGS);
  scene_arg *arg = &s->args[s->arg_count++];
  arg->name = name;
  return arg;
}

int scene_int(scene *s, const char *name, int lo, int hi) {
  return add(s, name)->value = test_range(&s->random, lo, hi);
}

int scene_divisor(scene *s, const char *name, int lo, int hi) {
  int value = scene_int(s, name, lo, hi);
  return s->zero && scene_chance(s, 50) ? (s->args[s->arg_count - 1].value = 0) : value;
}

void *scene_buffer(scene *s, const char *name, fly_type type, int rank, const int64_t *shape) {
  scene_arg *arg = add(s, name);
  arg->type = type, arg->rank = rank, arg->count = 1;
  for (int k = 0; k < rank; k++) arg->count *= arg->shape[k] = shape[k];
  arg->data = guard_alloc(arg->count * fly_type_size(type), 1, 0);
  memset(arg->data, 0, arg->count * fly_type_size(type));
  return arg->data;
}

/* The map's row: entry b of a ragged batch begins at cu[b], other batches are [batch, heads, len]. */
static int64_t row_at(const scene *s, const int32_t *cu, int len, int b, int h, int row) {
  return s->ragged ? (int64_t)h * cu[s->batch] + cu[b] + row : ((int64_t)b * s->heads + h) * len + row;
}

int scene_token_q(const scene *s, int b, int h, int q) {
  if (!s->q_rows) return q;
  int token = s->q_rows[row_at(s, s->cu_q, s->len_q, b, h, q - s->q_offset)];
  return token - (s->ragged ? s->cu_q[b] : 0) + s->q_offset;
}

int scene_token_kv(const scene *s, int b, int h, int kv) {
  if (!s->kv_rows) return kv;
  return s->kv_rows[row_at(s, s->cu_kv, s->len_kv, b, h, kv)] - (s->ragged ? s->cu_kv[b] : 0);
}

void scene_show(scene *s, int b, int h, int q, int kv) {
  int row = q - s->q_offset;
  if (row < 0 || row >= s->len_q || kv < 0 || kv >= s->len_kv) return;
  for (int e = b == ALL ? 0 : b; e < (b == ALL ? s->batch : b + 1); e++)
    for (int i = h == ALL ? 0 : h; i < (h == ALL ? s->heads : h + 1); i++)
      s->seen[(((size_t)e * s->heads + i) * s->len_q + row) * s->len_kv + kv] = 1;
}

void scene_show_rectangle(scene *s, int b, int h, int q_begin, int q_end, int kv_begin, int kv_end) {
  if (q_begin < s->q_offset) q_begin = s->q_offset;
  if (q_end > s->q_offset + s->len_q) q_end = s->q_offset + s->len_q;
  if (kv_begin < 0) kv_begin = 0;
  if (kv_end > s->len_kv) kv_end = s->len_kv;
  for (int q = q_begin; q < q_end; q++)
    for (int kv = kv_begin; kv < kv_end; kv++) scene_show(s, b, h, q, kv);
}

const library_mask *library_mask_at(int i) {
  const library_mask *parts[] = {library_windows, library_blocks, library_documents, library_images};
  for (int part = 0; part < 4; part++)
    for (const library_mask *m = parts[part]; m->name; m++)
      if (i-- == 0) return m;
  return NULL;
}

/* "size=3 doc=i32[20]", for failures. */
static void describe(const scene *s, char *text, size_t size) {
  size_t used = 0;
  for (int i = 0; i < s->arg_count && used < size; i++) {
    const scene_arg *a = &s->args[i];
    if (!a->data) {
      used += snprintf(text + used, size - used, " %s=%d", a->name, a->value);
      continue;
    }
    used += snprintf(text + used, size - used, " %s=%s[", a->name, fly_type_name(a->type));
    for (int k = 0; k < a->rank && used < size; k++)
      used += snprintf(text + used, size - used, k ? ", %ld" : "%ld", (long)a->shape[k]);
    if (used < size) used += snprintf(text + used, size - used, "]");
  }
}

void library_compare(const char *mask, const scene *s, library_source source) {
  char values[512] = "";
  describe(s, values, sizeof values);
  for (int b = 0; b < s->batch; b++)
    for (int h = 0; h < s->heads; h++)
      for (int q = 0; q < s->entry_q[b]; q++)
        for (int kv = 0; kv < s->entry_kv[b]; kv++) {
          bool expected = s->seen[(((size_t)b * s->heads + h) * s->len_q + q) * s->len_kv + kv];
          bool seen = source.see(source.context, b, h, q, kv);
          if (seen == expected) continue;
          ck_abort_msg("%s%s: %d x %d, q_offset %d%s%s: (%d, %d, %d, %d) is %s", mask, values, s->len_q, s->len_kv,
                       s->q_offset, s->ragged ? ", ragged" : "", s->q_rows ? ", row maps" : "", b, h, q + s->q_offset,
                       kv, seen ? "visible" : "hidden");
        }
}
