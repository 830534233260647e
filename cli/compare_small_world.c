/* compare_small_world.c: is a graph a small world? From a mask's graph to its clustering, its mean path length, and
 * sigma, which sets both against a random graph with as many edges (Watts and Strogatz 1998; Humphries and Gurney
 * 2008). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compare.h"

/* ---- graphs ------------------------------------------------------------------------------------------------------ */

static int by_number(const void *a, const void *b) {
  int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
  return (x > y) - (x < y);
}

/* Sorts each list and drops what is there twice. */
static void tidy(graph *g) {
  int64_t used = 0;
  for (int64_t v = 0; v < g->n; v++) {
    int64_t first = g->start[v], last = g->start[v + 1], begin = used;
    qsort(g->key + first, (size_t)(last - first), sizeof *g->key, by_number);
    for (int64_t i = first; i < last; i++)
      if (used == begin || g->key[used - 1] != g->key[i]) g->key[used++] = g->key[i];
    g->start[v] = begin;
  }
  g->start[g->n] = used;
}

fly_status graph_symmetrise(const graph *g, graph *out, fly_error *error) {
  int64_t n = g->n, edges = g->start[n];
  *out = (graph){.n = n,
                 .start = calloc((size_t)n + 2, sizeof *out->start),
                 .key = malloc((size_t)(2 * edges) * sizeof *out->key + 1)};
  if (!out->start || !out->key) {
    graph_free(out);
    return fail_memory(error);
  }
  int64_t *at = out->start + 1; /* while they are filled, at[v] is where v's list goes on */
  for (int64_t v = 0; v < n; v++)
    for (int64_t i = g->start[v]; i < g->start[v + 1]; i++)
      if (g->key[i] != v && v + 1 < n) at[v + 1]++;
  for (int64_t v = 0; v < n; v++)
    for (int64_t i = g->start[v]; i < g->start[v + 1]; i++)
      if (g->key[i] != v && g->key[i] + 1 < n) at[g->key[i] + 1]++;
  for (int64_t v = 1; v < n; v++) at[v] += at[v - 1];
  for (int64_t v = 0; v < n; v++)
    for (int64_t i = g->start[v]; i < g->start[v + 1]; i++) {
      int32_t other = g->key[i];
      if (other == v) continue;
      out->key[at[v]++] = other;
      out->key[at[other]++] = (int32_t)v;
    }
  out->start[0] = 0;
  tidy(out);
  return FLY_OK;
}

fly_status graph_random(int64_t n, int64_t edges, uint64_t seed, graph *out, fly_error *error) {
  size_t words = (size_t)(n * n / 64 + 1);
  uint64_t *taken = calloc(words, sizeof *taken), state = (seed * 0x9E3779B97F4A7C15u) | 1;
  graph half = {
      .n = n, .start = calloc((size_t)n + 1, sizeof *half.start), .key = malloc((size_t)edges * sizeof *half.key + 1)};
  fly_status status = taken && half.start && half.key ? FLY_OK : fail_memory(error);
  for (int64_t i = 0; status == FLY_OK && i < edges;) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    int64_t a = (int64_t)((state >> 32) % (uint64_t)n), b = (int64_t)((state & 0xffffffff) % (uint64_t)n);
    if (a == b) continue;
    int64_t bit = a > b ? a * n + b : b * n + a;
    if (taken[bit / 64] >> (bit % 64) & 1) continue;
    taken[bit / 64] |= 1ull << (bit % 64);
    i++;
  }
  int64_t used = 0;
  for (int64_t a = 0; status == FLY_OK && a < n; a++) {
    half.start[a] = used;
    for (int64_t b = 0; b < a; b++)
      if (taken[(a * n + b) / 64] >> ((a * n + b) % 64) & 1) half.key[used++] = (int32_t)b;
    half.start[a + 1] = used;
  }
  if (status == FLY_OK) status = graph_symmetrise(&half, out, error);
  free(taken);
  graph_free(&half);
  return status;
}

/* ---- measures ---------------------------------------------------------------------------------------------------- */

fly_status graph_clustering(const graph *g, double *out, fly_error *error) {
  bool *near = calloc((size_t)g->n + 1, sizeof *near);
  if (!near) return fail_memory(error);
  *out = 0;
  for (int64_t v = 0; v < g->n; v++) {
    const int32_t *own = g->key + g->start[v];
    int64_t degree = g->start[v + 1] - g->start[v], twice = 0; /* each triangle is found from both its other corners */
    for (int64_t i = 0; i < degree; i++) near[own[i]] = true;
    for (int64_t i = 0; i < degree; i++)
      for (int64_t j = g->start[own[i]]; j < g->start[own[i] + 1]; j++) twice += near[g->key[j]];
    for (int64_t i = 0; i < degree; i++) near[own[i]] = false;
    if (degree > 1) *out += (double)twice / ((double)degree * (double)(degree - 1)) / (double)g->n;
  }
  free(near);
  return FLY_OK;
}

fly_status graph_path(const graph *g, double *out, fly_error *error) {
  int32_t *queue = malloc((size_t)g->n * sizeof *queue + 1), *far = malloc((size_t)g->n * sizeof *far + 1);
  fly_status status = queue && far ? FLY_OK : fail_memory(error);
  double sum = 0, pairs = 0;
  for (int64_t from = 0; status == FLY_OK && from < g->n; from++) {
    if (from % 64 == 0) status = compare_going(error);
    memset(far, 0xff, (size_t)g->n * sizeof *far);
    int64_t head = 0, tail = 0;
    queue[tail++] = (int32_t)from;
    far[from] = 0;
    while (head < tail) {
      int32_t v = queue[head++];
      for (int64_t i = g->start[v]; i < g->start[v + 1]; i++) {
        int32_t other = g->key[i];
        if (far[other] >= 0) continue;
        far[other] = far[v] + 1;
        sum += far[other];
        queue[tail++] = other;
      }
    }
    pairs += (double)(tail - 1);
  }
  *out = pairs > 0 ? sum / pairs : 0;
  free(queue);
  free(far);
  return status;
}

/* Of random graphs with n nodes of mean degree k: a share k / (n - 1) of pairs are linked, of neighbours' pairs
 * too, and paths have (ln n - gamma) / ln k + 1/2 hops (Fronczak, Fronczak and Holyst, Average path length in random
 * networks, Physical Review E 70, 2004), gamma being Euler's constant. */
static double sigma_expected(const small_world *w, double n) {
  static const double gamma = 0.57721566490153286;
  if (w->degree <= 1 || n <= 2 || w->path <= 0) return 0;
  double path = (log(n) - gamma) / log(w->degree) + 0.5;
  return w->clustering / (w->degree / (n - 1)) / (w->path / path);
}

fly_status small_world_measure(const graph *g, uint64_t seed, small_world *out, fly_error *error) {
  graph both = {0}, random = {0};
  *out = (small_world){0};
  fly_status status = graph_symmetrise(g, &both, error);
  if (status == FLY_OK) status = graph_random(g->n, both.start[g->n] / 2, seed, &random, error);
  if (status == FLY_OK) status = graph_clustering(&both, &out->clustering, error);
  if (status == FLY_OK) status = graph_path(&both, &out->path, error);
  if (status == FLY_OK) status = graph_path(g, &out->directed_path, error);
  if (status == FLY_OK) status = graph_clustering(&random, &out->random_clustering, error);
  if (status == FLY_OK) status = graph_path(&random, &out->random_path, error);
  if (status == FLY_OK && g->n > 0) {
    out->degree = (double)both.start[g->n] / (double)g->n;
    double c = out->random_clustering > 0 ? out->clustering / out->random_clustering : 0;
    double l = out->random_path > 0 ? out->path / out->random_path : 0;
    out->sigma = l > 0 ? c / l : 0;
    out->sigma_expected = sigma_expected(out, (double)g->n);
  }
  graph_free(&both);
  graph_free(&random);
  return status;
}
