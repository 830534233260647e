/* The figures of `flymask compare` that come from masks as graphs: coverage by depth, and small worlds. Expected
 * values: brute force over matrices, closed forms, and figures computed by other programs. */
#include "cli/compare.h"
#include "support.h"

fly_status compare_going(fly_error *error) { /* of the command, which looks for signals */
  (void)error;
  return FLY_OK;
}

static fly_error error;

static graph graph_of(const graph_desc *desc) {
  graph g;
  ck_fly_ok(graph_create(desc, &g, &error), error);
  return g;
}

/* A random symmetric graph on n nodes and its matrix. */
static graph random_graph(int n, double p, uint64_t seed, bool *matrix) {
  test_random random = {seed};
  graph g = {.n = n, .start = calloc((size_t)n + 1, sizeof *g.start), .key = calloc((size_t)(n * n), sizeof *g.key)};
  memset(matrix, 0, (size_t)(n * n) * sizeof *matrix);
  for (int i = 0; i < n; i++)
    for (int j = 0; j < i; j++)
      if ((double)test_range(&random, 0, 999999) < p * 1e6) matrix[i * n + j] = matrix[j * n + i] = true;
  int64_t used = 0;
  for (int i = 0; i < n; i++) {
    g.start[i] = used;
    for (int j = n - 1; j >= 0; j--)
      if (matrix[i * n + j]) g.key[used++] = j;
  }
  g.start[n] = used;
  return g;
}

/* ---- graphs of masks --------------------------------------------------------------------------------------------- */

enum { SMALL = 150 };

/* The compiled mask's own answer for every pair of tokens. */
static void ask_mask(const char *name, const fly_arg *args, int count, const int32_t *rows, bool *sees) {
  char path[300];
  fly_mask *mask;
  fly_bound *bound;
  fly_map *map;
  fly_geometry g = {FLY_INIT(fly_geometry), .batch = 1, .heads = 1, .len_q = SMALL, .len_kv = SMALL};
  if (rows) g.q_rows = g.kv_rows = (fly_row_map){.rows = rows};
  snprintf(path, sizeof path, "%s/masks/%s.c", FLYMASK_SOURCE, name);
  ck_fly_ok(fly_mask_compile_file(path, NULL, &mask, &error), error);
  ck_fly_ok(fly_mask_bind(mask, args, count, &bound, &error), error);
  ck_fly_ok(fly_map_build(bound, &g, NULL, &map, &error), error);
  for (int i = 0; i < SMALL; i++)
    for (int j = 0; j < SMALL; j++)
      if (fly_map_visible(map, 0, 0, i, j)) sees[(rows ? rows[i] : i) * SMALL + (rows ? rows[j] : j)] = true;
  fly_map_release(&map);
  fly_bound_release(&bound);
  fly_mask_release(&mask);
}

static void expect_pairs(const graph *g, const bool *sees) {
  bool *got = calloc(SMALL * SMALL, sizeof *got);
  for (int64_t q = 0; q < SMALL; q++)
    for (int64_t i = g->start[q]; i < g->start[q + 1]; i++) {
      ck_assert_msg(!got[q * SMALL + g->key[i]], "query %d has key %d twice", (int)q, g->key[i]);
      got[q * SMALL + g->key[i]] = true;
    }
  for (int i = 0; i < SMALL * SMALL; i++)
    ck_assert_msg(got[i] == sees[i], "query %d, key %d: %d", i / SMALL, i % SMALL, got[i]);
  free(got);
}

START_TEST(graphs_hold_the_pairs_of_the_compiled_masks) {
  enum { WINDOW = 20, REACH = 9, SEED = 5, LAYER = 3 };
  int32_t rows[SMALL];
  bool *sees = calloc(SMALL * SMALL, sizeof *sees);
  ck_fly_ok(fly_permutation(SMALL, SEED, LAYER, 0, 0, rows, &error), error);
  fly_arg window[] = {FLY_INT("left", WINDOW - 1), FLY_INT("right", 0)};
  fly_arg free_sa[] = {FLY_INT("left", REACH), FLY_INT("right", REACH), FLY_INT("causal", 0)};
  fly_arg causal_sa[] = {FLY_INT("left", REACH), FLY_INT("right", REACH), FLY_INT("causal", 1)};
  graph_desc desc = {.n = SMALL, .seed = SEED, .layer = LAYER};
  for (int i = 0; i < 5; i++) {
    desc.not_causal = i == 2;
    memset(sees, 0, SMALL * SMALL * sizeof *sees);
    if (i == 0) desc.method = (method){.kind = METHOD_FULL}, ask_mask("causal", NULL, 0, NULL, sees);
    if (i == 1) desc.method = (method){.kind = METHOD_SWA, .window = WINDOW};
    if (i == 2 || i == 3) desc.method = (method){.kind = METHOD_SA, .reach = REACH};
    if (i == 4) desc.method = (method){.kind = METHOD_BOTH, .window = WINDOW, .reach = REACH};
    if (i == 1 || i == 4) ask_mask("sliding_window", window, 2, NULL, sees);
    if (i == 2) ask_mask("stochastic", free_sa, 3, rows, sees);
    if (i == 3 || i == 4) ask_mask("stochastic", causal_sa, 3, rows, sees);
    graph g = graph_of(&desc);
    expect_pairs(&g, sees);
    graph_free(&g);
  }
  free(sees);
}
END_TEST

START_TEST(moba_at_random_sees_its_own_block_and_whole_earlier_ones) {
  enum { BLOCK = 8, TOP = 4 };
  graph_desc desc = {.method = {METHOD_MOBA, .block = BLOCK, .top = TOP}, .n = SMALL, .seed = 2, .layer = 1};
  graph g = graph_of(&desc);
  int chosen[SMALL / BLOCK + 1] = {0};
  for (int q = 0; q < SMALL; q++) {
    int in_block[SMALL / BLOCK + 1] = {0}, own = q / BLOCK, others = 0;
    for (int64_t i = g.start[q]; i < g.start[q + 1]; i++) {
      ck_assert_int_le(g.key[i], q);
      in_block[g.key[i] / BLOCK]++;
    }
    ck_assert_int_eq(in_block[own], q % BLOCK + 1);
    for (int b = 0; b < own; b++) {
      ck_assert(in_block[b] == 0 || in_block[b] == BLOCK);
      others += in_block[b] > 0;
      chosen[b] += in_block[b] > 0;
    }
    ck_assert_int_eq(others, own < TOP - 1 ? own : TOP - 1);
  }
  for (int b = 0; b + 2 * TOP < SMALL / BLOCK; b++) { /* all alike: 3 of the earlier blocks */
    double expected = 0;
    for (int q = (b + 1) * BLOCK; q < SMALL; q++) expected += q / BLOCK < TOP ? 1 : (TOP - 1.0) / (q / BLOCK);
    ck_assert_double_eq_tol(chosen[b], expected, 4 * sqrt(expected));
  }
  graph_free(&g);
}
END_TEST

START_TEST(keys_touched_are_the_mean_over_queries) {
  const method methods[] = {{.kind = METHOD_FULL},        {METHOD_SWA, .window = 20},
                            {METHOD_SWA, .window = 1000}, {METHOD_SA, .reach = 9},
                            {METHOD_SA, .reach = 1000},   {METHOD_BOTH, .window = 7, .reach = 3}};
  for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
    const method *m = &methods[i];
    double sum = 0;
    for (int q = 0; q < SMALL; q++)
      for (int kv = 0; kv < SMALL; kv++) {
        sum += m->kind == METHOD_FULL && kv <= q;
        sum += (m->kind == METHOD_SWA || m->kind == METHOD_BOTH) && kv <= q && q - kv < m->window;
        sum += (m->kind == METHOD_SA || m->kind == METHOD_BOTH) && abs(q - kv) <= m->reach;
      }
    ck_assert_double_eq_tol(method_touched(m, SMALL), sum / SMALL, 1e-9);
  }
  method moba = {METHOD_MOBA, .block = 8,
                 .top = 4}; /* 8 queries touch 8, 8 touch 16, 8 touch 24, the rest 32; a tail of 6 */
  ck_assert_double_eq_tol(method_touched(&moba, SMALL), (8 * (8 + 16 + 24) + 120 * 32 + 6 * (24 + 6)) / 150.0, 1e-9);
}
END_TEST

START_TEST(budgets_by_visible_keys_are_met_on_average) {
  enum { N = 4096, BUDGET = 128 };
  for (int kind = METHOD_SWA; kind < METHODS; kind++) {
    graph_desc desc = {.method = method_by_visible((method_kind)kind, BUDGET), .n = N, .seed = 1};
    graph g = graph_of(&desc);
    double mean = (double)g.start[N] / N;
    ck_assert_msg(mean > 0.93 * BUDGET && mean < 1.03 * BUDGET, "%s: %g", method_name((method_kind)kind), mean);
    graph_free(&g);
    method m = method_by_touched((method_kind)kind, BUDGET);
    double touched = method_touched(&m, N);
    ck_assert_msg(touched > 0.95 * BUDGET && touched < 1.03 * BUDGET, "%s: %g", method_name((method_kind)kind),
                  touched);
  }
}
END_TEST

/* ---- coverage ---------------------------------------------------------------------------------------------------- */

START_TEST(propagation_equals_products_of_matrices) {
  enum { N = 70, LAYERS = 4 };
  static bool now[N][N], next[N][N], layer[N][N];
  reach r;
  ck_fly_ok(reach_create(N, &r, &error), error);
  for (int i = 0; i < N; i++) now[i][i] = true;
  for (int l = 0; l < LAYERS; l++) {
    graph g = random_graph(N, 0.04, (uint64_t)l + 1, &layer[0][0]);
    reach_step(&r, &g);
    graph_free(&g);
    int worst = N, last = 0;
    double mean = 0;
    for (int i = 0; i < N; i++) {
      int got = 0;
      for (int j = 0; j < N; j++) {
        next[i][j] = false;
        for (int k = 0; k < N; k++) next[i][j] |= layer[i][k] && now[k][j];
        got += next[i][j];
        ck_assert_int_eq(next[i][j], (int)(r.now[i * r.words + j / 64] >> (j % 64) & 1));
      }
      mean += (double)got / N / N;
      worst = got < worst ? got : worst;
      last = got;
    }
    memcpy(now, next, sizeof now);
    coverage c = reach_coverage(&r, true);
    ck_assert_double_eq_tol(c.mean, mean, 1e-12);
    ck_assert_double_eq_tol(c.worst, (double)worst / N, 1e-12);
    ck_assert_double_eq_tol(c.last, (double)last / N, 1e-12);
    ck_assert_int_eq(c.complete, worst == N);
  }
  reach_free(&r);
}
END_TEST

/* Computed by another program: n = 2,048, w = 32, layers 1 to 4; and after how many all is reached, 0: not soon. */
static const struct figure {
  method method;
  bool not_causal;
  double mean[4];
  int complete;
} figures[] = {
    {{METHOD_SWA, .window = 32}, false, {.080, .138, .187, .231}, 67},
    {{METHOD_SA, .reach = 16}, true, {.016, .414, 1.00, 1.00}, 4},
    {{METHOD_SA, .reach = 16}, false, {.020, .143, .485, .678}, 0},
    {{METHOD_BOTH, .window = 32, .reach = 16}, false, {.095, .726, 1.00, 1.00}, 3},
};

START_TEST(coverage_is_what_others_found) {
  const struct figure *f = &figures[_i];
  for (uint64_t seed = 1; seed <= 3; seed++) {
    reach r;
    coverage c = {0};
    int last = f->complete ? f->complete : 14, l = 0;
    ck_fly_ok(reach_create(2048, &r, &error), error);
    for (; l < last && !c.complete; l++) {
      graph_desc desc = {f->method, 2048, f->not_causal, seed, (uint32_t)l};
      graph g = graph_of(&desc);
      reach_step(&r, &g);
      graph_free(&g);
      c = reach_coverage(&r, f->not_causal);
      if (l < 4) ck_assert_double_eq_tol(c.mean, f->mean[l], .01);
      if (l == 7 && !f->complete) ck_assert_double_eq_tol(c.mean, .8845, .01);
    }
    ck_assert_int_ge(l, last - f->not_causal); /* whose third layer leaves one pair in two million, or none */
    ck_assert_int_eq(c.complete, f->complete > 0);
    reach_free(&r);
  }
}
END_TEST

START_TEST(theory_is_near_what_is_measured) {
  const struct figure *f = &figures[_i];
  double theory[14];
  graph_desc desc = {f->method, 2048, f->not_causal, 1, 0};
  ck_fly_ok(coverage_theory(&desc, 14, theory, &error), error);
  for (int l = 0; l < 4; l++) ck_assert_double_eq_tol(theory[l], f->mean[l], .015);
  if (f->method.kind == METHOD_SWA)
    for (int l = 0; l < 14; l++) {
      double mean = 0;
      for (int i = 0; i < 2048; i++) mean += fmin(i + 1, 31 * (l + 1) + 1) / (i + 1) / 2048;
      ck_assert_double_eq_tol(theory[l], mean, 1e-9);
    }
}
END_TEST

/* ---- small worlds ------------------------------------------------------------------------------------------------ */

START_TEST(clustering_and_paths_equal_brute_force) {
  enum { N = 60 };
  static bool matrix[N][N];
  static int far[N][N];
  for (uint64_t seed = 1; seed <= 4; seed++) { /* the thin ones fall apart */
    graph g = random_graph(N, 0.03 * (double)seed, seed, &matrix[0][0]);
    double clustering = 0, sum = 0, pairs = 0, got;
    for (int i = 0; i < N; i++) {
      int degree = 0, linked = 0;
      for (int j = 0; j < N; j++) degree += matrix[i][j];
      for (int j = 0; j < N; j++)
        for (int k = 0; k < j; k++) linked += matrix[i][j] && matrix[i][k] && matrix[j][k];
      if (degree > 1) clustering += 2.0 * linked / (degree * (degree - 1)) / N;
    }
    for (int i = 0; i < N; i++)
      for (int j = 0; j < N; j++) far[i][j] = i == j ? 0 : matrix[i][j] ? 1 : 1000;
    for (int k = 0; k < N; k++)
      for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
          if (far[i][k] + far[k][j] < far[i][j]) far[i][j] = far[i][k] + far[k][j];
    for (int i = 0; i < N; i++)
      for (int j = 0; j < N; j++)
        if (i != j && far[i][j] < 1000) sum += far[i][j], pairs++;
    ck_fly_ok(graph_clustering(&g, &got, &error), error);
    ck_assert_double_eq_tol(got, clustering, 1e-12);
    ck_fly_ok(graph_path(&g, &got, &error), error);
    ck_assert_double_eq_tol(got, sum / pairs, 1e-12);
    graph_free(&g);
  }
}
END_TEST

START_TEST(edges_go_both_ways_once_and_not_back_to_themselves) {
  int64_t start[] = {0, 3, 4, 4, 6};
  int32_t key[] = {0, 1, 3, 0, 0, 3}; /* 0 -> 0, 1, 3; 1 -> 0; 3 -> 0, 3; nothing touches 2 */
  graph g = {4, start, key}, both;
  ck_fly_ok(graph_symmetrise(&g, &both, &error), error);
  const int64_t starts[] = {0, 2, 3, 3, 4};
  const int32_t keys[] = {1, 3, 0, 0};
  for (int i = 0; i < 5; i++) ck_assert_int_eq(both.start[i], starts[i]);
  for (int i = 0; i < 4; i++) ck_assert_int_eq(both.key[i], keys[i]);
  graph_free(&both);
}
END_TEST

START_TEST(random_graphs_have_the_edges_asked_for) {
  enum { N = 500, EDGES = 5000 };
  graph g, again;
  double clustering, path;
  ck_fly_ok(graph_random(N, EDGES, 7, &g, &error), error);
  ck_fly_ok(graph_random(N, EDGES, 7, &again, &error), error);
  ck_assert_int_eq(g.start[N], 2 * EDGES);
  ck_assert_mem_eq(g.key, again.key, 2 * EDGES * sizeof *g.key);
  int most = 0;
  for (int v = 0; v < N; v++) {
    for (int64_t i = g.start[v]; i < g.start[v + 1]; i++) {
      ck_assert_int_ne(g.key[i], v);
      ck_assert(i == g.start[v] || g.key[i] > g.key[i - 1]);
    }
    int degree = (int)(g.start[v + 1] - g.start[v]);
    most = degree > most ? degree : most;
  }
  ck_assert_int_lt(most, 45); /* mean 20, deviation 4.4 */
  ck_fly_ok(graph_clustering(&g, &clustering, &error), error);
  ck_fly_ok(graph_path(&g, &path, &error), error);
  ck_assert_double_eq_tol(clustering, 20.0 / 499, .004);                /* the chance of any edge */
  ck_assert_double_eq_tol(path, (log(500) - .5772) / log(20) + .5, .1); /* Fronczak, Fronczak and Holyst 2004 */
  graph_free(&g);
  graph_free(&again);
}
END_TEST

/* As another program has them over twelve seeds of its own: clustering .4189 to .4202, paths 2.079 to 2.090, sigma 2.35
 * and 8.77 against random graphs that it drew, 2.43 and 9.17 against closed forms. */
START_TEST(small_worlds_are_what_others_found) {
  enum { SEEDS = 3 };
  static const struct {
    method method;
    double clustering, path, sigma, expected;
  } worlds[] = {{{METHOD_SWA, .window = 32}, .742, 22.5186, 2.34, 2.426},
                {{METHOD_BOTH, .window = 32, .reach = 16}, .420, 2.09, 8.77, 9.17}};
  small_world mean = {0};
  for (uint64_t seed = 1; seed <= SEEDS; seed++) {
    graph_desc desc = {.method = worlds[_i].method, .n = 2048, .seed = seed};
    graph g = graph_of(&desc);
    small_world s;
    ck_fly_ok(small_world_measure(&g, seed, &s, &error), error);
    ck_assert_double_eq_tol(s.clustering, worlds[_i].clustering, .01);
    ck_assert_double_eq_tol(s.sigma, worlds[_i].sigma, .02 * worlds[_i].sigma);
    ck_assert_double_eq_tol(s.sigma_expected, worlds[_i].expected, .01 * worlds[_i].expected);
    mean.path += s.path / SEEDS;
    graph_free(&g);
  }
  ck_assert_double_eq_tol(mean.path, worlds[_i].path, .01);
}
END_TEST

/* A ring whose nodes know two neighbours on each side: clustering 1/2, paths (n/4 + 1)/2 about; and too few edges. */
START_TEST(closed_forms_need_more_than_one_edge_a_node) {
  enum { N = 101 };
  int64_t start[N + 1];
  int32_t key[2 * N];
  graph ring = {N, start, key}, thin = {N, start, key};
  small_world s;
  for (int i = 0; i <= N; i++) start[i] = 2 * i;
  for (int i = 0; i < N; i++) key[2 * i] = (i + 1) % N, key[2 * i + 1] = (i + 2) % N;
  ck_fly_ok(small_world_measure(&ring, 1, &s, &error), error);
  ck_assert_double_eq_tol(s.degree, 4, 1e-12);
  ck_assert_double_eq_tol(s.clustering, .5, 1e-12);
  ck_assert_double_eq_tol(s.path, 13, 1e-12); /* 25 distances, four nodes at each */
  ck_assert_double_eq_tol(s.sigma_expected, .5 / .04 / (13 / (log(101) / log(4) + .5 - .5772157 / log(4))), 1e-6);
  for (int i = 0; i <= N; i++) start[i] = i / 2;
  for (int i = 0; i < N / 2; i++) key[i] = 2 * i;
  ck_fly_ok(small_world_measure(&thin, 1, &s, &error), error);
  ck_assert_double_eq(s.sigma_expected, 0);
}
END_TEST

static Suite *make(void) {
  Suite *suite = suite_create("compare_graph");
  TCase *graphs = tcase_create("graphs"), *depth = tcase_create("coverage"), *worlds = tcase_create("small worlds");
  tcase_add_test(graphs, graphs_hold_the_pairs_of_the_compiled_masks);
  tcase_add_test(graphs, moba_at_random_sees_its_own_block_and_whole_earlier_ones);
  tcase_add_test(graphs, keys_touched_are_the_mean_over_queries);
  tcase_add_test(graphs, budgets_by_visible_keys_are_met_on_average);
  tcase_add_test(depth, propagation_equals_products_of_matrices);
  tcase_add_loop_test(depth, coverage_is_what_others_found, 0, 4);
  tcase_add_loop_test(depth, theory_is_near_what_is_measured, 0, 4);
  tcase_add_test(worlds, clustering_and_paths_equal_brute_force);
  tcase_add_test(worlds, edges_go_both_ways_once_and_not_back_to_themselves);
  tcase_add_test(worlds, random_graphs_have_the_edges_asked_for);
  tcase_add_test(worlds, closed_forms_need_more_than_one_edge_a_node);
  tcase_add_loop_test(worlds, small_worlds_are_what_others_found, 0, 2);
  suite_add_tcase(suite, graphs);
  suite_add_tcase(suite, depth);
  suite_add_tcase(suite, worlds);
  return suite;
}

FLY_TEST_MAIN(make)
