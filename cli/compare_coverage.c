/* compare_coverage.c: which tokens can have reached which through some layers of attention. From one graph a layer to
 * the receptive fields, exactly, as bit sets; and what theory expects of them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compare.h"

/* ---- exact propagation ------------------------------------------------------------------------------------------- */

fly_status reach_create(int64_t n, reach *out, fly_error *error) {
  *out = (reach){.n = n, .words = (n + 63) / 64};
  size_t count = (size_t)(n * out->words) + 1;
  out->now = calloc(count, sizeof *out->now);
  out->next = calloc(count, sizeof *out->next);
  if (!out->now || !out->next) {
    reach_free(out);
    return fail_memory(error);
  }
  for (int64_t q = 0; q < n; q++) out->now[q * out->words + q / 64] |= 1ull << (q % 64);
  return FLY_OK;
}

void reach_free(reach *r) {
  free(r->now);
  free(r->next);
  *r = (reach){0};
}

void reach_step(reach *r, const graph *layer) {
  for (int64_t q = 0; q < r->n; q++) {
    uint64_t *all = r->next + q * r->words;
    memset(all, 0, (size_t)r->words * sizeof *all);
    for (int64_t i = layer->start[q]; i < layer->start[q + 1]; i++) {
      const uint64_t *one = r->now + layer->key[i] * r->words;
      for (int64_t word = 0; word < r->words; word++) all[word] |= one[word];
    }
  }
  uint64_t *was = r->now;
  r->now = r->next;
  r->next = was;
}

coverage reach_coverage(const reach *r, bool not_causal) {
  coverage c = {.worst = 1, .complete = true};
  for (int64_t q = 0; q < r->n; q++) {
    int64_t there = not_causal ? r->n : q + 1, got = 0;
    for (int64_t word = 0; word < r->words; word++) got += __builtin_popcountll(r->now[q * r->words + word]);
    double share = (double)got / (double)there;
    c.mean += share / (double)r->n;
    if (share < c.worst) c.worst = share;
    if (got < there) c.complete = false;
    c.last = share;
  }
  return c;
}

/* ---- theory ------------------------------------------------------------------------------------------------------ */

/* The mean over queries of coverage where g[d] is the probability that the token d places back has reached a query. */
static double causal_mean(const double *g, int64_t n) {
  double sum = 0, mean = 0;
  for (int64_t d = 0; d < n; d++) {
    sum += g[d];
    mean += sum / (double)(d + 1) / (double)n;
  }
  return mean;
}

/* log(1 - g), kept finite where g is 1. */
static double log_missed(double g) { return g < 1 ? log1p(-g) : -700; }

/* One layer more of g. A token d places back reaches the query unless it misses, each by itself, the tokens of SWA's
 * window, d, d - 1, ... places further on, and the 2 r other positions of the permuted window (without a window: the
 * query itself and those). Such a position holds any token: with probability d / n one between the two, which the token
 * had then reached with the mean of g over smaller distances. sums[d]: of log_missed over smaller distances. */
static void causal_layer(const double *g, int64_t n, int window, int reach, double *sums, double *next) {
  double below = 0; /* the sum of g over smaller distances */
  int64_t near = window > 0 ? window : 1;
  sums[0] = 0;
  for (int64_t d = 0; d < n; d++) sums[d + 1] = sums[d] + log_missed(g[d]);
  for (int64_t d = 0; d < n; d++) {
    double missed = sums[d + 1] - sums[d + 1 > near ? d + 1 - near : 0];
    next[d] = d > 0 ? 1 - exp(missed + 2.0 * reach * log_missed(below / (double)n)) : 1;
    below += g[d];
  }
}

fly_status coverage_theory(const graph_desc *desc, int layers, double *mean, fly_error *error) {
  int64_t n = desc->n;
  const method *m = &desc->method;
  if (m->kind == METHOD_SA && desc->not_causal) { /* 2 r + 1 tokens, each of whose fields holds a share f of all */
    double f = 1 / (double)n;
    for (int l = 0; l < layers; l++) mean[l] = f = 1 - pow(1 - f, 2.0 * m->reach + 1);
    return FLY_OK;
  }
  if (m->kind == METHOD_FULL || m->kind == METHOD_MOBA) {
    for (int l = 0; l < layers; l++) mean[l] = m->kind == METHOD_FULL ? 1 : NAN;
    return FLY_OK;
  }
  double *g = calloc((size_t)n + 1, sizeof *g), *next = calloc((size_t)n + 1, sizeof *next),
         *sums = calloc((size_t)n + 1, sizeof *sums);
  if (!g || !next || !sums) {
    free(g);
    free(next);
    free(sums);
    return fail_memory(error);
  }
  int window = m->kind == METHOD_SA ? 0 : m->window, reach = m->kind == METHOD_SWA ? 0 : m->reach;
  g[0] = 1;
  for (int l = 0; l < layers; l++) {
    causal_layer(g, n, window, reach, sums, next);
    double *was = g;
    g = next;
    next = was;
    mean[l] = causal_mean(g, n);
  }
  free(g);
  free(next);
  free(sums);
  return FLY_OK;
}
