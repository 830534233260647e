/* pyramid.c: minima and maxima of captured arrays.
 *
 * Over a range of indices: a sparse table over blocks of 64 elements (level j holds blocks i .. i + 2^j - 1), so
 * that a query is two look-ups and a scan of the two ends. Over a box of a table: cells of 2^l x 2^l. */
#include <stdlib.h>
#include <string.h>

#include "pyramid.h"

enum { BLOCK = 64 };

struct flyi_ranges {
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

static void set_element(void *data, int bytes, int64_t i, int64_t value) {
  switch (bytes) {
  case 1:
    ((int8_t *)data)[i] = (int8_t)value;
    break;
  case 2:
    ((int16_t *)data)[i] = (int16_t)value;
    break;
  case 4:
    ((int32_t *)data)[i] = (int32_t)value;
    break;
  default:
    ((int64_t *)data)[i] = value;
  }
}

#define SCAN(T)                                                                                                        \
  {                                                                                                                    \
    const T *p = data;                                                                                                 \
    T lo = p[first], hi = lo;                                                                                          \
    for (int64_t i = first; i <= last; i++) lo = p[i] < lo ? p[i] : lo, hi = p[i] > hi ? p[i] : hi;                    \
    return (flyi_interval){lo, hi};                                                                                    \
  }

static flyi_interval scan(const void *data, int bytes, int64_t first, int64_t last) {
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

/* ---- ranges of indices ------------------------------------------------------------------------------------------- */

static void free_ranges(flyi_ranges *r) {
  if (!r) return;
  for (int j = 0; j < r->levels; j++) free(r->level[j]);
  free(r);
}

static flyi_ranges *build_ranges(const flyi_pyramid *p) {
  flyi_ranges *r = flyi_alloc(1, sizeof *r);
  if (!r) return NULL;
  r->blocks = (p->count + BLOCK - 1) / BLOCK;
  for (int64_t span = 1; span <= r->blocks; span *= 2, r->levels++) {
    int64_t entries = r->blocks - span + 1;
    flyi_interval *level = r->level[r->levels] = flyi_grow(NULL, entries, sizeof *level);
    if (!level) return free_ranges(r), NULL;
    if (span == 1) {
      for (int64_t i = 0; i < entries; i++) {
        int64_t last = i * BLOCK + BLOCK - 1;
        level[i] = scan(p->data, p->bytes, i * BLOCK, last < p->count ? last : p->count - 1);
      }
    } else {
      const flyi_interval *half = r->level[r->levels - 1];
      for (int64_t i = 0; i < entries; i++) level[i] = flyi_hull(half[i], half[i + span / 2]);
    }
  }
  return r;
}

bool flyi_pyramid_ranges(flyi_pyramid *p) {
  if (p->count <= 2 * BLOCK || atomic_load_explicit(&p->ranges, memory_order_acquire)) return true;
  flyi_ranges *built = build_ranges(p), *none = NULL;
  if (built && !atomic_compare_exchange_strong(&p->ranges, &none, built)) free_ranges(built); /* another thread's */
  return built != NULL;
}

flyi_interval flyi_pyramid_range(const flyi_pyramid *p, flyi_interval x) {
  if (x.lo < 0) x.lo = 0;
  if (x.hi > p->count - 1) x.hi = p->count - 1;
  if (x.lo > x.hi) return flyi_top(8 * p->bytes); /* a load that is never reached: the others are clamped by the mask */
  if (x.lo == x.hi) {
    int64_t value = element(p->data, p->bytes, x.lo);
    return (flyi_interval){value, value};
  }
  const flyi_ranges *ranges = atomic_load_explicit(&p->ranges, memory_order_acquire);
  int64_t first = (x.lo + BLOCK - 1) / BLOCK, end = (x.hi + 1) / BLOCK; /* whole blocks */
  if (first >= end || !ranges) return scan(p->data, p->bytes, x.lo, x.hi);
  int j = 63 - __builtin_clzll((uint64_t)(end - first));
  flyi_interval r = flyi_hull(ranges->level[j][first], ranges->level[j][end - (1ll << j)]);
  if (x.lo < first * BLOCK) r = flyi_hull(r, scan(p->data, p->bytes, x.lo, first * BLOCK - 1));
  if (x.hi >= end * BLOCK) r = flyi_hull(r, scan(p->data, p->bytes, end * BLOCK, x.hi));
  return r;
}

/* ---- boxes of a table -------------------------------------------------------------------------------------------- */

static void free_mip(flyi_mip *m) {
  if (!m) return;
  for (int l = 1; l <= m->levels; l++) free(m->cell[l]);
  free(m);
}

/* Minimum and maximum of a cell. */
static flyi_interval cell(const flyi_mip *m, int level, int64_t row, int64_t column) {
  int64_t at = row * m->width[level] + column;
  if (level == 0) {
    int64_t value = element(m->data, m->bytes, at);
    return (flyi_interval){value, value};
  }
  int64_t cells = m->width[level] * m->height[level];
  return (flyi_interval){element(m->cell[level], m->bytes, at), element(m->cell[level], m->bytes, cells + at)};
}

static flyi_interval quarter_hull(const flyi_mip *m, int level, int64_t row, int64_t column) {
  bool below = 2 * row + 1 < m->height[level], beside = 2 * column + 1 < m->width[level];
  flyi_interval r = cell(m, level, 2 * row, 2 * column);
  if (beside) r = flyi_hull(r, cell(m, level, 2 * row, 2 * column + 1));
  if (below) r = flyi_hull(r, cell(m, level, 2 * row + 1, 2 * column));
  if (below && beside) r = flyi_hull(r, cell(m, level, 2 * row + 1, 2 * column + 1));
  return r;
}

static bool build_level(flyi_mip *m) {
  int l = m->levels;
  int64_t rows = (m->height[l] + 1) / 2, columns = (m->width[l] + 1) / 2, cells = rows * columns;
  void *out = flyi_grow(NULL, 2 * cells, m->bytes);
  if (!out) return false;
  for (int64_t i = 0; i < rows; i++) {
    for (int64_t j = 0; j < columns; j++) {
      flyi_interval r = quarter_hull(m, l, i, j);
      set_element(out, m->bytes, i * columns + j, r.lo);
      set_element(out, m->bytes, cells + i * columns + j, r.hi);
    }
  }
  m->levels = l + 1;
  m->cell[l + 1] = out, m->height[l + 1] = rows, m->width[l + 1] = columns;
  return true;
}

static flyi_mip *find_mip(flyi_mip *first, int64_t columns) {
  while (first && first->columns != columns) first = first->next;
  return first;
}

/* One and the same mip for all threads: nodes are equal where their mips are. */
const flyi_mip *flyi_pyramid_mip(flyi_pyramid *p, int64_t columns) {
  flyi_mip *first = atomic_load_explicit(&p->mips, memory_order_acquire), *found = find_mip(first, columns);
  if (found) return found;
  flyi_mip *m = flyi_alloc(1, sizeof *m);
  if (!m) return NULL;
  m->data = p->data, m->bytes = p->bytes;
  m->columns = m->width[0] = columns;
  m->rows = m->height[0] = p->count / columns;
  while (m->levels < 31 && (m->height[m->levels] > 1 || m->width[m->levels] > 1))
    if (!build_level(m)) return free_mip(m), NULL;
  do {
    if ((found = find_mip(first, columns))) return free_mip(m), found; /* another thread's */
    m->next = first;
  } while (!atomic_compare_exchange_weak(&p->mips, &first, m));
  return m;
}

static void clip(flyi_interval *x, int64_t count) {
  if (x->lo < 0) x->lo = 0;
  if (x->hi > count - 1) x->hi = count - 1;
}

flyi_interval flyi_mip_range(const flyi_mip *m, flyi_interval u, flyi_interval v) {
  clip(&u, m->rows), clip(&v, m->columns);
  if (u.lo > u.hi || v.lo > v.hi) return flyi_top(8 * m->bytes);
  int l = 0;
  while (l < m->levels && ((u.hi >> l) - (u.lo >> l) > 1 || (v.hi >> l) - (v.lo >> l) > 1)) l++;
  flyi_interval r = cell(m, l, u.lo >> l, v.lo >> l);
  for (int64_t i = u.lo >> l; i <= u.hi >> l; i++)
    for (int64_t j = v.lo >> l; j <= v.hi >> l; j++) r = flyi_hull(r, cell(m, l, i, j));
  return r;
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
  free_ranges(p->ranges);
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
