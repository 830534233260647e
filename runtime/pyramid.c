/* pyramid.c: summaries of captured arrays: minima and maxima, and which bits are set in all elements and in any.
 *
 * Over a range of indices: a sparse table over blocks of 64 elements (level j holds blocks i .. i + 2^j - 1), so
 * that a query is two look-ups and a scan of the two ends. Over a box of a table: cells of 2^l
 * x 2^l, or longer ones. */
#include <stdlib.h>
#include <string.h>

#include "pyramid.h"

enum { BLOCK = 64 };

typedef enum summary { RANGE, BITS } summary;

struct flyi_ranges {
  summary kind;
  int64_t blocks;
  int levels;
  flyi_interval *level[58];
};

static int64_t element(const void *data, int bytes, int64_t i) {
  switch (bytes) {
  case 1:
    return ((const int8_t *)data)[i];
  case 2:
    return ((const int16_t *)data)[i];
  case 4:
    return ((const int32_t *)data)[i];
  default:
    return ((const int64_t *)data)[i];
  }
}

#define SCAN(T)                                                                                                        \
  {                                                                                                                    \
    const T *p = data;                                                                                                 \
    T lo = p[first], hi = lo;                                                                                          \
    for (int64_t i = first; i <= last; i++) lo = p[i] < lo ? p[i] : lo, hi = p[i] > hi ? p[i] : hi;                    \
    return (flyi_interval){lo, hi};                                                                                    \
  }

static flyi_interval scan_range(const void *data, int bytes, int64_t first, int64_t last) {
  switch (bytes) {
  case 1:
    SCAN(int8_t)
  case 2:
    SCAN(int16_t)
  case 4:
    SCAN(int32_t)
  default:
    SCAN(int64_t)
  }
}

/* What two summaries say together: of bits, lo has those that are set in all, hi those in any. */
static inline flyi_interval join(summary kind, flyi_interval a, flyi_interval b) {
  return kind == RANGE ? flyi_hull(a, b) : (flyi_interval){a.lo & b.lo, a.hi | b.hi};
}

static flyi_interval scan(summary kind, const void *data, int bytes, int64_t first, int64_t last) {
  if (kind == RANGE) return scan_range(data, bytes, first, last);
  flyi_interval r = {-1, 0};
  for (int64_t i = first; i <= last; i++) {
    int64_t x = element(data, bytes, i);
    r = (flyi_interval){r.lo & x, r.hi | x};
  }
  return r;
}

/* ---- ranges of indices ------------------------------------------------------------------------------------------- */

static void free_ranges(flyi_ranges *r) {
  if (!r) return;
  for (int j = 0; j < r->levels; j++) free(r->level[j]);
  free(r);
}

static flyi_ranges *build_ranges(const flyi_pyramid *p, summary kind) {
  flyi_ranges *r = flyi_alloc(1, sizeof *r);
  if (!r) return NULL;
  r->kind = kind;
  r->blocks = (p->count + BLOCK - 1) / BLOCK;
  for (int64_t span = 1; span <= r->blocks; span *= 2, r->levels++) {
    int64_t entries = r->blocks - span + 1;
    flyi_interval *level = r->level[r->levels] = flyi_grow(NULL, entries, sizeof *level);
    if (!level) return free_ranges(r), NULL;
    if (span == 1) {
      for (int64_t i = 0; i < entries; i++) {
        int64_t last = i * BLOCK + BLOCK - 1;
        level[i] = scan(kind, p->data, p->bytes, i * BLOCK, last < p->count ? last : p->count - 1);
      }
    } else {
      const flyi_interval *half = r->level[r->levels - 1];
      for (int64_t i = 0; i < entries; i++) level[i] = join(kind, half[i], half[i + span / 2]);
    }
  }
  return r;
}

static bool prepare(const flyi_pyramid *p, _Atomic(flyi_ranges *) *slot, summary kind) {
  if (p->count <= 2 * BLOCK || atomic_load_explicit(slot, memory_order_acquire)) return true;
  flyi_ranges *built = build_ranges(p, kind), *none = NULL;
  if (built && !atomic_compare_exchange_strong(slot, &none, built)) free_ranges(built); /* another thread's */
  return built != NULL;
}

bool flyi_pyramid_ranges(flyi_pyramid *p) { return prepare(p, &p->ranges, RANGE); }

static flyi_interval query(const flyi_pyramid *p, const flyi_ranges *ranges, summary kind, flyi_interval x) {
  int64_t first = (x.lo + BLOCK - 1) / BLOCK, end = (x.hi + 1) / BLOCK; /* whole blocks */
  if (first >= end || !ranges) return scan(kind, p->data, p->bytes, x.lo, x.hi);
  int j = 63 - __builtin_clzll((uint64_t)(end - first));
  flyi_interval r = join(kind, ranges->level[j][first], ranges->level[j][end - (1ll << j)]);
  if (x.lo < first * BLOCK) r = join(kind, r, scan(kind, p->data, p->bytes, x.lo, first * BLOCK - 1));
  if (x.hi >= end * BLOCK) r = join(kind, r, scan(kind, p->data, p->bytes, end * BLOCK, x.hi));
  return r;
}

static bool clip(flyi_interval *x, int64_t count) {
  if (x->lo < 0) x->lo = 0;
  if (x->hi > count - 1) x->hi = count - 1;
  return x->lo <= x->hi;
}

flyi_interval flyi_pyramid_range(const flyi_pyramid *p, flyi_interval x) {
  if (!clip(&x, p->count)) return flyi_top(8 * p->bytes); /* never reached: the mask clamps what is */
  if (x.lo == x.hi) {
    int64_t value = element(p->data, p->bytes, x.lo);
    return (flyi_interval){value, value};
  }
  return query(p, atomic_load_explicit(&p->ranges, memory_order_acquire), RANGE, x);
}

bool flyi_pyramid_prepare_bits(flyi_pyramid *p) { return prepare(p, &p->bits, BITS); }

static flyi_bits as_bits(flyi_interval all_and_any) {
  return (flyi_bits){(uint64_t)all_and_any.lo, (uint64_t)(all_and_any.hi & ~all_and_any.lo)};
}

flyi_bits flyi_pyramid_bits(const flyi_pyramid *p, flyi_interval x) {
  if (!clip(&x, p->count)) return (flyi_bits){0, ~0ull};
  return as_bits(query(p, atomic_load_explicit(&p->bits, memory_order_acquire), BITS, x));
}

/* ---- boxes of a table -------------------------------------------------------------------------------------------- */

static void free_mip(flyi_mip *m) {
  if (!m) return;
  for (int l = 1; l <= m->levels; l++) free(m->cell[l]);
  free_mip(m->bits);
  free(m);
}

/* The summary of a cell. */
static flyi_interval cell(const flyi_mip *m, int level, int64_t row, int64_t column) {
  int64_t at = row * m->width[level] + column;
  if (level == 0) {
    int64_t value = element(m->data, m->bytes, at);
    return (flyi_interval){value, value};
  }
  int64_t cells = m->width[level] * m->height[level];
  return (flyi_interval){element(m->cell[level], m->bytes, at), element(m->cell[level], m->bytes, cells + at)};
}

/* The two summaries of a row of cells, of which level 0 has one array for both. */
typedef struct cells {
  void *lo, *hi;
} cells;

static cells row_of_cells(const flyi_mip *m, int level, int64_t row) {
  char *data = level ? m->cell[level] : (void *)(uintptr_t)m->data;
  size_t at = (size_t)(row * m->width[level] * m->bytes),
         other = (size_t)(m->width[level] * m->height[level] * m->bytes);
  return (cells){data + at, data + at + (level ? other : 0)};
}

/* Joins a row into another, and neighbours in a row: `count` of them, the last may stand alone. */
#define FOLDS(T, NAME)                                                                                                 \
  static void NAME##_rows(summary kind, cells to, cells from, int64_t count) {                                         \
    T *lo = to.lo, *hi = to.hi;                                                                                        \
    const T *a = from.lo, *b = from.hi;                                                                                \
    if (kind == RANGE)                                                                                                 \
      for (int64_t j = 0; j < count; j++) lo[j] = a[j] < lo[j] ? a[j] : lo[j], hi[j] = b[j] > hi[j] ? b[j] : hi[j];    \
    else                                                                                                               \
      for (int64_t j = 0; j < count; j++) lo[j] &= a[j], hi[j] |= b[j];                                                \
  }                                                                                                                    \
  static void NAME##_pairs(summary kind, cells row, int64_t count) {                                                   \
    T *lo = row.lo, *hi = row.hi;                                                                                      \
    for (int64_t j = 0; j < (count + 1) / 2; j++) {                                                                    \
      int64_t i = 2 * j, k = i + 1 < count ? i + 1 : i;                                                                \
      lo[j] = kind == RANGE ? (lo[i] < lo[k] ? lo[i] : lo[k]) : (T)(lo[i] & lo[k]);                                    \
      hi[j] = kind == RANGE ? (hi[i] > hi[k] ? hi[i] : hi[k]) : (T)(hi[i] | hi[k]);                                    \
    }                                                                                                                  \
  }
FOLDS(int8_t, bytes)
FOLDS(int16_t, halves)
FOLDS(int32_t, words)
FOLDS(int64_t, longs)

static void fold_rows(const flyi_mip *m, cells to, cells from, int64_t count) {
  static void (*const fold[])(summary, cells, cells,
                              int64_t) = {[1] = bytes_rows, [2] = halves_rows, [4] = words_rows, [8] = longs_rows};
  fold[m->bytes](m->of_bits ? BITS : RANGE, to, from, count);
}

static void fold_pairs(const flyi_mip *m, cells row, int64_t count) {
  static void (*const fold[])(summary, cells,
                              int64_t) = {[1] = bytes_pairs, [2] = halves_pairs, [4] = words_pairs, [8] = longs_pairs};
  fold[m->bytes](m->of_bits ? BITS : RANGE, row, count);
}

/* Row `row` of the next level, from the rows of this one, in `scratch`. */
static void fold(const flyi_mip *m, int level, int64_t row, int rows_by, int columns_by, cells scratch) {
  int64_t count = m->width[level], first = row << rows_by, end = (row + 1) << rows_by;
  size_t bytes = (size_t)(count * m->bytes);
  if (end > m->height[level]) end = m->height[level];
  cells from = row_of_cells(m, level, first);
  memcpy(scratch.lo, from.lo, bytes), memcpy(scratch.hi, from.hi, bytes);
  for (int64_t i = first + 1; i < end; i++) fold_rows(m, scratch, row_of_cells(m, level, i), count);
  for (int k = 0; k < columns_by; k++, count = (count + 1) / 2) fold_pairs(m, scratch, count);
}

static bool build_level(flyi_mip *m) {
  int l = m->levels, rows_by = 1, columns_by = 1;
  if (l == 0 && m->aspect) rows_by = m->aspect > 0 ? m->aspect : 0, columns_by = m->aspect < 0 ? -m->aspect : 0;
  int64_t rows = ((m->height[l] - 1) >> rows_by) + 1, columns = ((m->width[l] - 1) >> columns_by) + 1;
  size_t row_bytes = (size_t)(columns * m->bytes);
  char *out = flyi_grow(NULL, 2 * rows * columns, m->bytes);
  cells scratch = {flyi_grow(NULL, m->width[l], m->bytes), flyi_grow(NULL, m->width[l], m->bytes)};
  bool ok = out && scratch.lo && scratch.hi;
  for (int64_t i = 0; ok && i < rows; i++) {
    fold(m, l, i, rows_by, columns_by, scratch);
    memcpy(out + i * row_bytes, scratch.lo, row_bytes), memcpy(out + (rows + i) * row_bytes, scratch.hi, row_bytes);
  }
  free(scratch.lo), free(scratch.hi);
  if (!ok) return free(out), false;
  m->levels = l + 1;
  m->cell[l + 1] = out, m->height[l + 1] = rows, m->width[l + 1] = columns;
  m->row_shift[l + 1] = m->row_shift[l] + rows_by, m->column_shift[l + 1] = m->column_shift[l] + columns_by;
  return true;
}

static flyi_mip *build_mip(const void *data, int bytes, int64_t rows, int64_t columns, int aspect, summary kind) {
  flyi_mip *m = flyi_alloc(1, sizeof *m);
  if (!m) return NULL;
  m->data = data, m->bytes = bytes, m->aspect = aspect, m->of_bits = kind == BITS;
  m->columns = m->width[0] = columns;
  m->rows = m->height[0] = rows;
  while (m->levels < 31 && (m->height[m->levels] > 1 || m->width[m->levels] > 1))
    if (!build_level(m)) return free_mip(m), NULL;
  return m;
}

static flyi_mip *find_mip(flyi_mip *first, int64_t columns, int aspect) {
  while (first && (first->columns != columns || first->aspect != aspect)) first = first->next;
  return first;
}

/* One and the same mip for all threads: nodes are equal where their mips are. */
flyi_mip *flyi_pyramid_mip(flyi_pyramid *p, int64_t columns, int aspect) {
  flyi_mip *first = atomic_load_explicit(&p->mips, memory_order_acquire), *found = find_mip(first, columns, aspect);
  if (found) return found;
  flyi_mip *m = build_mip(p->data, p->bytes, p->count / columns, columns, aspect, RANGE);
  if (!m) return NULL;
  do {
    if ((found = find_mip(first, columns, aspect))) return free_mip(m), found; /* another thread's */
    m->next = first;
  } while (!atomic_compare_exchange_weak(&p->mips, &first, m));
  return m;
}

bool flyi_mip_prepare_bits(flyi_mip *m) {
  if (atomic_load_explicit(&m->bits, memory_order_acquire)) return true;
  flyi_mip *made = build_mip(m->data, m->bytes, m->rows, m->columns, m->aspect, BITS), *none = NULL;
  if (made && !atomic_compare_exchange_strong(&m->bits, &none, made)) free_mip(made); /* another thread's */
  return made != NULL;
}

/* At the lowest level at which two rows and columns of cells are enough. */
static flyi_interval box(const flyi_mip *m, flyi_interval u, flyi_interval v) {
  const summary kind = m->of_bits ? BITS : RANGE;
  int l = 0;
  while (l < m->levels && ((u.hi >> m->row_shift[l]) - (u.lo >> m->row_shift[l]) > 1 ||
                           (v.hi >> m->column_shift[l]) - (v.lo >> m->column_shift[l]) > 1))
    l++;
  int64_t u0 = u.lo >> m->row_shift[l], u1 = u.hi >> m->row_shift[l];
  int64_t v0 = v.lo >> m->column_shift[l], v1 = v.hi >> m->column_shift[l];
  flyi_interval r = cell(m, l, u0, v0);
  for (int64_t i = u0; i <= u1; i++)
    for (int64_t j = v0; j <= v1; j++) r = join(kind, r, cell(m, l, i, j));
  return r;
}

flyi_interval flyi_mip_range(const flyi_mip *m, flyi_interval u, flyi_interval v) {
  return clip(&u, m->rows) && clip(&v, m->columns) ? box(m, u, v) : flyi_top(8 * m->bytes);
}

flyi_bits flyi_mip_bits(const flyi_mip *m, flyi_interval u, flyi_interval v) {
  if (!clip(&u, m->rows) || !clip(&v, m->columns)) return (flyi_bits){0, ~0ull};
  return as_bits(box(atomic_load_explicit(&m->bits, memory_order_acquire), u, v));
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

flyi_pyramid *flyi_pyramid_create(const void *data, int bytes, int64_t count) {
  flyi_pyramid *p = flyi_alloc(1, sizeof *p);
  if (!p) return NULL;
  p->data = data, p->bytes = bytes, p->count = count;
  return p;
}

void flyi_pyramid_free(flyi_pyramid *p) {
  if (!p) return;
  free_ranges(p->ranges), free_ranges(p->bits);
  for (flyi_mip *m = p->mips, *next; m; m = next) {
    next = m->next;
    free_mip(m);
  }
  free(p);
}

flyi_pyramid *flyi_pyramid_of(fly_buffer *buffer) {
  flyi_pyramid *p = atomic_load_explicit(&buffer->pyramid, memory_order_acquire);
  if (p) return p;
  flyi_pyramid *made = flyi_pyramid_create(buffer->data, (int)fly_type_size(buffer->type),
                                           buffer->count ? buffer->count : 1);
  if (!made) return NULL;
  if (atomic_compare_exchange_strong(&buffer->pyramid, &p, made)) return made;
  flyi_pyramid_free(made); /* another thread's is there */
  return p;
}
