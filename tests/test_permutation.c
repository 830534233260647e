/* Permutations: the published test vectors of the generator, uniformity, inverse, validation. */
#include <omp.h>

#include "runtime/permutation.h"
#include "support.h"

/* From the known-answer file of Random123, the generator's reference distribution: philox4x32, 10 rounds. */
START_TEST(philox_gives_the_published_vectors) {
  static const struct {
    uint32_t counter[4], key[2], expected[4];
  } vectors[] = {
      {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
       {0xffffffff, 0xffffffff},
       {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
       {0xa4093822, 0x299f31d0},
       {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  uint32_t out[4];
  flyi_philox(vectors[_i].counter, vectors[_i].key, out);
  ck_assert_mem_eq(out, vectors[_i].expected, sizeof out);
}
END_TEST

START_TEST(every_length_gives_a_permutation) {
  fly_error error;
  for (int n = 0; n < 300; n++) {
    int32_t *rows = guard_alloc(n * sizeof *rows, 4, 0);
    ck_fly_ok(fly_permutation(n, 7, 1, 2, 3, rows, &error), error);
    ck_fly_ok(fly_permutation_check(n, rows, &error), error);
    guard_free(rows);
  }
}
END_TEST

START_TEST(streams_are_reproducible_and_distinct) {
  enum { N = 1000 };
  static int32_t a[N], b[N];
  fly_error error;
  uint64_t base[4] = {11, 0, 0, 0};
  ck_fly_ok(fly_permutation(N, base[0], 0, 0, 0, a, &error), error);
  ck_fly_ok(fly_permutation(N, base[0], 0, 0, 0, b, &error), error);
  ck_assert_mem_eq(a, b, sizeof a);
  for (int field = 0; field < 5; field++) {
    uint64_t seed = field == 0 ? 12 : field == 4 ? 11 + (1ull << 32) : 11;
    ck_fly_ok(fly_permutation(N, seed, field == 1, field == 2, field == 3, b, &error), error);
    int same = 0;
    for (int i = 0; i < N; i++) same += a[i] == b[i];
    ck_assert_int_lt(same, 20); /* one match is expected; 20 have a probability below 1e-18 */
  }
}
END_TEST

START_TEST(the_result_does_not_depend_on_threads) {
  enum { N = 4096, THREADS = 4 };
  static int32_t rows[THREADS][N];
  fly_status status[THREADS] = {0};
#pragma omp parallel for num_threads(THREADS)
  for (int t = 0; t < THREADS; t++) status[t] = fly_permutation(N, 5, 1, 0, 0, rows[t], NULL);
  for (int t = 0; t < THREADS; t++) {
    ck_assert_int_eq(status[t], FLY_OK);
    ck_assert_mem_eq(rows[t], rows[0], sizeof rows[0]);
  }
}
END_TEST

/* Each of the 24 permutations of four rows equally often: chi-square with 23 degrees of freedom, 49.7 at p = 0.001. */
START_TEST(small_permutations_are_uniform) {
  enum { DRAWS = 24000 };
  int count[256] = {0};
  for (int i = 0; i < DRAWS; i++) {
    int32_t r[4];
    ck_assert_int_eq(fly_permutation(4, i, _i, 0, 0, r, NULL), FLY_OK);
    count[r[0] << 6 | r[1] << 4 | r[2] << 2 | r[3]]++;
  }
  double chi = 0, expected = DRAWS / 24.0;
  int seen = 0;
  for (int i = 0; i < 256; i++)
    if (count[i]) seen++, chi += (count[i] - expected) * (count[i] - expected) / expected;
  ck_assert_int_eq(seen, 24);
  ck_assert_double_lt(chi, 49.7);
}
END_TEST

/* Every token at every position equally often: 16 x 16 cells, (n - 1)^2 = 225 degrees of freedom, 295 at p = 0.001. */
START_TEST(positions_are_uniform) {
  enum { N = 16, DRAWS = 20000 };
  static int count[N][N];
  memset(count, 0, sizeof count);
  for (int i = 0; i < DRAWS; i++) {
    int32_t r[N];
    ck_assert_int_eq(fly_permutation(N, 99, 0, i, 0, r, NULL), FLY_OK);
    for (int p = 0; p < N; p++) count[p][r[p]]++;
  }
  double chi = 0, expected = (double)DRAWS / N;
  for (int p = 0; p < N; p++)
    for (int t = 0; t < N; t++) chi += (count[p][t] - expected) * (count[p][t] - expected) / expected;
  ck_assert_double_lt(chi * (N - 1) / N, 295);
}
END_TEST

/* Every ordered pair of tokens at every pair of positions equally often: 56 x 28 cells. Each pair of
 * positions gives a chi-square of 55 degrees of freedom; their largest of 28 stays below 110.1, which each
 * exceeds with probability 1.5e-5. */
START_TEST(pairs_of_positions_are_uniform) {
  enum { N = 8, DRAWS = 40000 };
  static int count[N][N][N][N];
  memset(count, 0, sizeof count);
  for (int i = 0; i < DRAWS; i++) {
    int32_t r[N];
    ck_assert_int_eq(fly_permutation(N, 2024, i, 0, 0, r, NULL), FLY_OK);
    for (int p = 0; p < N; p++)
      for (int q = p + 1; q < N; q++) count[p][q][r[p]][r[q]]++;
  }
  double expected = DRAWS / 56.0;
  for (int p = 0; p < N; p++)
    for (int q = p + 1; q < N; q++) {
      double chi = 0;
      for (int a = 0; a < N; a++)
        for (int b = 0; b < N; b++)
          if (a != b) chi += (count[p][q][a][b] - expected) * (count[p][q][a][b] - expected) / expected;
      ck_assert_msg(chi < 110.1, "positions %d and %d: chi-square %g", p, q, chi);
    }
}
END_TEST

/* The distance of two given tokens: d occurs in 2 (n - d) of n (n - 1) cases. 99 cells but one, 148.2 at p = 0.001; the
 * pairs are neighbours, the ends, and two in the middle. What a window of a permutation sees depends on this alone. */
START_TEST(distances_of_pairs_are_those_of_random_positions) {
  enum { N = 100, DRAWS = 60000 };
  static const int pair[3][2] = {{10, 11}, {0, N - 1}, {37, 64}};
  int count[N] = {0};
  for (int i = 0; i < DRAWS; i++) {
    int32_t r[N], position[N];
    ck_assert_int_eq(fly_permutation(N, 77, 0, 0, i, r, NULL), FLY_OK);
    for (int p = 0; p < N; p++) position[r[p]] = p;
    count[abs(position[pair[_i][0]] - position[pair[_i][1]])]++;
  }
  double chi = 0;
  for (int d = 1; d < N; d++) {
    double expected = DRAWS * 2.0 * (N - d) / (N * (N - 1.0));
    chi += (count[d] - expected) * (count[d] - expected) / expected;
  }
  ck_assert_double_lt(chi, 148.2);
}
END_TEST

START_TEST(the_inverse_undoes) {
  enum { N = 777 };
  int32_t rows[N], inverse[N];
  fly_error error;
  ck_fly_ok(fly_permutation(N, 3, 0, 0, 0, rows, &error), error);
  ck_fly_ok(fly_permutation_inverse(N, rows, inverse, &error), error);
  for (int i = 0; i < N; i++) ck_assert_int_eq(inverse[rows[i]], i);
}
END_TEST

START_TEST(what_is_no_permutation_is_named) {
  fly_error error;
  int32_t twice[] = {0, 2, 1, 2}, high[] = {0, 4, 1, 2}, low[] = {0, -1, 1, 2}, out[4];
  ck_assert_int_eq(fly_permutation_check(4, twice, &error), FLY_ERROR_ARGUMENT);
  ck_assert_str_eq(error.message, "rows[1] and rows[3] are both 2: not a permutation");
  ck_assert_int_eq(fly_permutation_check(4, high, &error), FLY_ERROR_ARGUMENT);
  ck_assert_str_eq(error.message, "rows[1] is 4, outside 0 .. 3");
  ck_assert_int_eq(fly_permutation_inverse(4, low, out, &error), FLY_ERROR_ARGUMENT);
  ck_assert_str_eq(error.message, "rows[1] is -1, outside 0 .. 3");
  ck_assert_int_eq(fly_permutation(-1, 0, 0, 0, 0, out, &error), FLY_ERROR_ARGUMENT);
  ck_assert_int_eq(fly_permutation(4, 0, 0, 0, 0, NULL, &error), FLY_ERROR_ARGUMENT);
  ck_assert_int_eq(fly_permutation(1ll << 31, 0, 0, 0, 0, out, NULL), FLY_ERROR_ARGUMENT);
}
END_TEST

static Suite *make(void) {
  Suite *suite = suite_create("permutation");
  TCase *tests = tcase_create("all");
  tcase_add_loop_test(tests, philox_gives_the_published_vectors, 0, 3);
  tcase_add_test(tests, every_length_gives_a_permutation);
  tcase_add_test(tests, streams_are_reproducible_and_distinct);
  tcase_add_test(tests, the_result_does_not_depend_on_threads);
  tcase_add_loop_test(tests, small_permutations_are_uniform, 0, 2);
  tcase_add_test(tests, positions_are_uniform);
  tcase_add_test(tests, pairs_of_positions_are_uniform);
  tcase_add_loop_test(tests, distances_of_pairs_are_those_of_random_positions, 0, 3);
  tcase_add_test(tests, the_inverse_undoes);
  tcase_add_test(tests, what_is_no_permutation_is_named);
  suite_add_tcase(suite, tests);
  return suite;
}

FLY_TEST_MAIN(make)
