/* compare_graph.c: masks as graphs. From a method, a length and a layer's seed to the keys of every query, by the
 * mechanisms' definitions in plain C; the tests hold them to the compiled masks, pair by pair. */
#include <stdlib.h>
#include <string.h>

#include "compare.h"

void graph_free(graph *g) {
  free(g->start);
  free(g->key);
  *g = (graph){0};
}

/* ---- Stochastic Attention ---------------------------------------------------------------------------------------- */

typedef struct permuted {
  int32_t *token, *position; /* of each position; of each token */
} permuted;

static void permuted_free(permuted *p) {
  free(p->token);
  free(p->position);
}

static fly_status permuted_create(const graph_desc *desc, permuted *out, fly_error *error) {
  size_t n = (size_t)desc->n;
  out->token = malloc(n * sizeof *out->token + 1);
  out->position = malloc(n * sizeof *out->position + 1);
  if (!out->token || !out->position) return fail_memory(error);
  fly_status status = fly_permutation(desc->n, desc->seed, desc->layer, 0, 0, out->token, error);
  if (status == FLY_OK) status = fly_permutation_inverse(desc->n, out->token, out->position, error);
  return status;
}

/* ---- MoBA -------------------------------------------------------------------------------------------------------- */

/* top - 1 different ones of `earlier` blocks, uniform, by Floyd's way: few draws, no list of all. */
static int draw_blocks(int64_t earlier, int wanted, uint64_t *state, int64_t *blocks) {
  int count = 0;
  for (int64_t j = earlier > wanted ? earlier - wanted : 0; j < earlier; j++) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    int64_t pick = (int64_t)((*state >> 33) % (uint64_t)(j + 1));
    for (int i = 0; i < count; i++)
      if (blocks[i] == pick) pick = j;
    blocks[count++] = pick;
  }
  return count;
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

/* At most so many keys has a query. */
static int64_t most_keys(const graph_desc *desc) {
  const method *m = &desc->method;
  int64_t most = desc->n;
  switch (m->kind) {
  case METHOD_SWA:
    most = m->window;
    break;
  case METHOD_SA:
    most = 2 * (int64_t)m->reach + 1;
    break;
  case METHOD_BOTH:
    most = m->window + 2 * (int64_t)m->reach + 1;
    break;
  case METHOD_MOBA:
    most = (int64_t)m->block * m->top;
    break;
  default:
    break;
  }
  return most < desc->n ? most : desc->n;
}

static int64_t window_keys(const method *m, int64_t q, int32_t *keys) {
  int64_t count = 0;
  for (int64_t kv = q - m->window + 1 > 0 ? q - m->window + 1 : 0; kv <= q; kv++) keys[count++] = (int32_t)kv;
  return count;
}

/* Of the permuted order's window; those of the last `near` tokens are left out, where SWA sees them already. */
static int64_t stochastic_keys(const graph_desc *desc, const permuted *p, int64_t q, int near, int32_t *keys) {
  int64_t at = p->position[q], first = at - desc->method.reach, last = at + desc->method.reach, count = 0;
  for (int64_t i = first > 0 ? first : 0; i <= last && i < desc->n; i++) {
    int64_t kv = p->token[i];
    bool seen = kv <= q && q - kv < near;
    if ((kv <= q || desc->not_causal) && !seen) keys[count++] = (int32_t)kv;
  }
  return count;
}

static int64_t block_keys(const graph_desc *desc, int64_t q, uint64_t *state, int64_t *blocks, int32_t *keys) {
  const method *m = &desc->method;
  int64_t own = q / m->block, count = 0;
  int drawn = draw_blocks(own, m->top - 1, state, blocks);
  for (int i = 0; i < drawn; i++)
    for (int j = 0; j < m->block; j++) keys[count++] = (int32_t)(blocks[i] * m->block + j);
  for (int64_t kv = own * m->block; kv <= q; kv++) keys[count++] = (int32_t)kv;
  return count;
}

fly_status graph_create(const graph_desc *desc, graph *out, fly_error *error) {
  const method *m = &desc->method;
  permuted p = {0};
  int64_t most = most_keys(desc), used = 0, *blocks = NULL;
  uint64_t state = desc->seed * 0x9E3779B97F4A7C15u + desc->layer;
  fly_status status = FLY_OK;
  *out = (graph){.n = desc->n};
  size_t room = (size_t)(desc->n + 1) * sizeof *out->start;
  out->start = malloc(room);
  out->key = malloc((size_t)desc->n * (size_t)most * sizeof *out->key + 1);
  blocks = malloc(sizeof *blocks * (size_t)(m->kind == METHOD_MOBA ? m->top : 1));
  if (!out->start || !out->key || !blocks) status = fail_memory(error);
  if (status == FLY_OK && (m->kind == METHOD_SA || m->kind == METHOD_BOTH)) status = permuted_create(desc, &p, error);
  for (int64_t q = 0; status == FLY_OK && q < desc->n; q++) {
    int32_t *keys = out->key + used;
    out->start[q] = used;
    if (m->kind == METHOD_SWA || m->kind == METHOD_BOTH) used += window_keys(m, q, keys);
    if (m->kind == METHOD_SA) used += stochastic_keys(desc, &p, q, 0, keys);
    if (m->kind == METHOD_BOTH) used += stochastic_keys(desc, &p, q, m->window, out->key + used);
    if (m->kind == METHOD_MOBA) used += block_keys(desc, q, &state, blocks, keys);
    if (m->kind == METHOD_FULL)
      for (int64_t kv = 0; kv <= q; kv++) out->key[used++] = (int32_t)kv;
  }
  if (status == FLY_OK) out->start[desc->n] = used;
  permuted_free(&p);
  free(blocks);
  if (status != FLY_OK) graph_free(out);
  return status;
}
