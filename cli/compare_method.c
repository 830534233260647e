/* compare_method.c: the mechanisms that are compared, and how a budget of keys becomes their windows and blocks. */
#include "compare.h"

enum { MOBA_TOP = 4 }; /* blocks of a query with its own: budgets that are powers of two make such blocks */

static int at_least(int value, int least) { return value > least ? value : least; }

method method_by_touched(method_kind kind, int budget) {
  method m = {.kind = kind};
  if (kind == METHOD_SWA) m.window = budget;
  if (kind == METHOD_SA) m.reach = at_least(budget / 2, 1);
  if (kind == METHOD_BOTH) m.window = at_least(budget / 2, 1), m.reach = at_least(budget / 4, 1);
  if (kind == METHOD_MOBA) m.top = MOBA_TOP, m.block = at_least(budget / MOBA_TOP, 1);
  return m;
}

/* SA by token sees half of its window on average, MoBA half of its own block. */
method method_by_visible(method_kind kind, int budget) {
  method m = method_by_touched(kind, budget);
  if (kind == METHOD_SA) m.reach = budget;
  if (kind == METHOD_BOTH) m.reach = at_least(budget / 2, 1);
  if (kind == METHOD_MOBA) m.block = at_least((2 * budget + MOBA_TOP) / (2 * MOBA_TOP - 1), 1);
  return m;
}

const char *method_name(method_kind kind) {
  static const char *const names[METHODS] = {"full causal", "SWA", "SA", "SA + SWA", "MoBA"};
  return names[kind];
}

const char *method_text(const method *m, char *text, size_t size) {
  switch (m->kind) {
  case METHOD_SWA:
    snprintf(text, size, "window %d", m->window);
    break;
  case METHOD_SA:
    snprintf(text, size, "%d each side", m->reach);
    break;
  case METHOD_BOTH:
    snprintf(text, size, "%d each side + window %d", m->reach, m->window);
    break;
  case METHOD_MOBA:
    snprintf(text, size, "%d blocks of %d", m->top, m->block);
    break;
  default:
    snprintf(text, size, "every earlier token");
  }
  return text;
}

static double mean_window(int64_t window, int64_t n) {
  double w = window < n ? (double)window : (double)n;
  return w - w * (w - 1) / (2 * (double)n);
}

/* Positions q - reach .. q + reach, cut off at both ends. */
static double mean_permuted(int64_t reach, int64_t n) {
  double r = reach < n ? (double)reach : (double)n - 1;
  return 2 * r + 1 - r * (r + 1) / (double)n;
}

static double mean_blocks(const method *m, int64_t n) {
  double sum = 0;
  for (int64_t first = 0, own = 0; first < n; first += m->block, own++) {
    int64_t length = n - first < m->block ? n - first : m->block, earlier = own < m->top - 1 ? own : m->top - 1;
    sum += (double)length * (double)(earlier * m->block + length);
  }
  return sum / (double)n;
}

double method_touched(const method *m, int64_t n) {
  switch (m->kind) {
  case METHOD_SWA:
    return mean_window(m->window, n);
  case METHOD_SA:
    return mean_permuted(m->reach, n);
  case METHOD_BOTH:
    return mean_window(m->window, n) + mean_permuted(m->reach, n);
  case METHOD_MOBA:
    return mean_blocks(m, n);
  default:
    return 0.5 * (double)(n + 1);
  }
}
