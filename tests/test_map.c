/* Block maps as a caller sees them: dimensions that collapse, what a map keeps, threads, errors, memory. That tiles
 * are right is shown by test_map_soundness.c and test_map_answers.c. */
#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>

#include "map_case.h"

static const char causal[] = "bool mask(int b, int h, int q, int kv) { return kv <= q; }";
static const char head_window[] = "FLY_BUFFER(int, width, 1);"
                                  "bool mask(int b, int h, int q, int kv) { return kv <= q && q - kv < width[h]; }";
static const char by_token[] =
    "bool mask(int b, int h, int q, int kv) { return fly_token_kv(b, h, kv) <= fly_token_q(b, h, q); }";

/* ---- dimensions -------------------------------------------------------------------------------------------------- */

static void expect_shape(const char *body, const fly_geometry *g, const fly_arg *args, int count, int64_t batch,
                         int64_t heads, int planes) {
  fly_bound *bound = map_bind(body, args, count);
  fly_map *map = map_build(bound, g, 16);
  fly_map_info info;
  fly_map_get_info(map, &info);
  ck_assert_int_eq(info.batch, batch);
  ck_assert_int_eq(info.heads, heads);
  ck_assert_int_eq(map->plane_count, planes);
  check_map(map, true, truth_compiled, NULL, body);
  fly_map_release(&map);
  fly_bound_release(&bound);
}

START_TEST(a_dimension_that_the_mask_does_not_read_is_1) {
  fly_geometry g = map_square(3, 4, 70);
  expect_shape(causal, &g, NULL, 0, 1, 1, 1);
  expect_shape("bool mask(int b, int h, int q, int kv) { return kv <= q + b; }", &g, NULL, 0, 3, 1, 3);
  expect_shape("bool mask(int b, int h, int q, int kv) { return kv <= q + h; }", &g, NULL, 0, 1, 4, 4);
  expect_shape("bool mask(int b, int h, int q, int kv) { return kv < fly_len_kv(b) - 5; }", &g, NULL, 0, 1, 1, 1);
}
END_TEST

START_TEST(heads_that_mean_the_same_share_a_plane) {
  int32_t width[] = {9, 30, 9, 30, 9, 9};
  int64_t n = 6;
  fly_buffer *buffer;
  fly_error error;
  ck_fly_ok(fly_buffer_create(FLY_I32, 1, &n, width, &buffer, &error), error);
  fly_geometry g = map_square(2, 6, 70);
  fly_arg arg = FLY_CAPTURE("width", buffer);
  expect_shape(head_window, &g, &arg, 1, 1, 6, 2);
  fly_buffer_release(&buffer);
}
END_TEST

/* The analysis knows nothing of floating point, so it cannot know that two heads are alike. */
START_TEST(heads_that_analysis_does_not_understand_are_not_shared) {
  fly_geometry g = map_square(1, 3, 70);
  expect_shape("bool mask(int b, int h, int q, int kv) { return kv * 1.5f < (float)q * (float)(h + 1); }", &g, NULL, 0,
               1, 3, 3);
}
END_TEST

START_TEST(row_maps_count_only_where_tokens_are_read) {
  enum { N = 60 };
  int32_t rows[3 * 2 * N], cu[] = {0, N, 2 * N, 3 * N};
  fly_error error;
  for (int i = 0; i < 6; i++) ck_fly_ok(fly_permutation(N, 1, 0, 0, (uint32_t)i, rows + i * N, &error), error);
  fly_geometry g = map_square(3, 2, N);
  g.kv_rows = (fly_row_map){rows, 2 * N, N};
  expect_shape(causal, &g, NULL, 0, 1, 1, 1);
  expect_shape(by_token, &g, NULL, 0, 3, 2, 6);
  g.kv_rows = (fly_row_map){rows, 0, N};
  expect_shape(by_token, &g, NULL, 0, 1, 2, 2);
  g.kv_rows = (fly_row_map){rows, N, 0};
  expect_shape(by_token, &g, NULL, 0, 3, 1, 3);
  g.kv_rows = (fly_row_map){rows, 0, 0};
  expect_shape(by_token, &g, NULL, 0, 1, 1, 1);
  for (int i = 0; i < 3 * N; i++) rows[i] = (i * 7 + i / N) % (3 * N); /* packed: each entry has rows of its own */
  g.cu_seqlens_q = g.cu_seqlens_kv = cu;
  expect_shape(by_token, &g, NULL, 0, 3, 1, 3);
  g.q_rows = g.kv_rows, g.kv_rows = (fly_row_map){NULL, 0, 0};
  expect_shape(by_token, &g, NULL, 0, 3, 1, 3);
  g.q_rows.rows = NULL;
  expect_shape(by_token, &g, NULL, 0, 1, 1, 1);
}
END_TEST

START_TEST(ragged_entries_have_rows_of_their_own) {
  int32_t cu_q[] = {0, 40, 40, 101}, cu_kv[] = {0, 33, 70, 70};
  fly_geometry g = {FLY_INIT(fly_geometry), .batch = 3, .heads = 2, .cu_seqlens_q = cu_q, .cu_seqlens_kv = cu_kv};
  fly_bound *bound = map_bind(causal, NULL, 0);
  fly_map *map = map_build(bound, &g, 16);
  const fly_run *runs;
  fly_map_info info;
  fly_map_get_info(map, &info);
  ck_assert_int_eq(info.batch, 3);
  ck_assert_int_eq(info.tiles_q, 4);                                   /* 61 rows */
  ck_assert_int_eq(info.tiles_kv, 3);                                  /* 37 keys */
  ck_assert_int_eq(fly_map_row(map, FLY_BY_QUERY, 0, 1, 2, &runs), 1); /* key 32 alone: full */
  ck_assert_int_eq(fly_map_row(map, FLY_BY_QUERY, 0, 1, 3, &runs), -1);
  ck_assert_int_eq(fly_map_row(map, FLY_BY_QUERY, 1, 0, 0, &runs), -1);
  ck_assert_int_eq(fly_map_row(map, FLY_BY_QUERY, 2, 0, 3, &runs), 0); /* rows, but no keys */
  ck_assert_int_eq(fly_map_row(map, FLY_BY_QUERY, 3, 0, 0, &runs), -1);
  ck_assert_int_eq(fly_map_row(map, FLY_BY_QUERY, 0, 2, 0, &runs), -1);
  check_map(map, true, truth_compiled, NULL, "ragged");
  fly_map_release(&map);
  fly_bound_release(&bound);
}
END_TEST

START_TEST(empty_calls_have_empty_maps) {
  fly_bound *bound = map_bind(causal, NULL, 0);
  fly_geometry empty[] = {map_square(1, 1, 0), map_square(0, 3, 50), map_square(2, 0, 50), map_square(2, 2, 50),
                          map_square(2, 2, 50)};
  empty[3].len_q = 0, empty[4].len_kv = 0;
  for (size_t i = 0; i < sizeof empty / sizeof *empty; i++) {
    fly_map *map = map_build(bound, &empty[i], 0);
    fly_map_info info;
    fly_map_get_info(map, &info);
    ck_assert_int_eq(info.tiles_empty + info.tiles_full + info.tiles_partial, 0);
    ck_assert(info.sparsity == 0);
    check_map(map, true, truth_compiled, NULL, "empty");
    fly_map_release(&map);
  }
  fly_bound_release(&bound);
}
END_TEST

/* ---- what a map keeps -------------------------------------------------------------------------------------------- */

START_TEST(a_map_keeps_what_it_was_built_for) {
  enum { N = 90 };
  int32_t *rows = malloc(2 * N * sizeof *rows), *cu = malloc(3 * sizeof *cu), token[2 * N];
  for (int i = 0; i < 2 * N; i++) token[i] = rows[i] = (i * 37) % (2 * N);
  cu[0] = 0, cu[1] = N, cu[2] = 2 * N;
  fly_geometry g = {FLY_INIT(fly_geometry), .batch = 2,          .heads = 1,
                    .cu_seqlens_q = cu,     .cu_seqlens_kv = cu, .kv_rows = {rows, 0, 0}};
  fly_bound *bound = map_bind(by_token, NULL, 0);
  fly_map *map = map_build(bound, &g, 16), *again;
  memset(rows, 0x55, 2 * N * sizeof *rows), memset(cu, 0x55, 3 * sizeof *cu);
  free(rows), free(cu);
  fly_bound_release(&bound);
  again = fly_map_retain(map);
  fly_map_release(&again);
  ck_assert_ptr_null(again);
  for (int q = 0; q < N; q++)
    for (int kv = 0; kv < N; kv++)
      expect(fly_map_visible(map, 1, 0, q, kv) == (token[N + kv] - N <= q), "pair %d, %d", q, kv);
  ck_assert_int_eq(fly_map_visible(map, 2, 0, 0, 0), -1);
  ck_assert_int_eq(fly_map_visible(map, 0, 0, N, 0), -1);
  ck_assert_int_eq(fly_map_visible(map, 0, 0, 0, N), -1);
  ck_assert_int_eq(fly_map_visible(map, 0, 0, 0, -1), -1);
  check_map(map, true, truth_compiled, NULL, "kept");
  fly_map_release(&map);
}
END_TEST

START_TEST(the_query_offset_moves_positions_and_not_rows) {
  fly_geometry g = map_square(1, 1, 100);
  g.len_q = 10, g.q_offset = 90;
  fly_bound *bound = map_bind(causal, NULL, 0);
  fly_map *map = map_build(bound, &g, 5);
  int64_t pairs;
  fly_error error;
  ck_fly_ok(fly_map_visible_pairs(map, &pairs, &error), error);
  ck_assert_int_eq(pairs, 10 * 90 + 55);
  ck_assert_int_eq(fly_map_visible(map, 0, 0, 0, 90), 1);
  ck_assert_int_eq(fly_map_visible(map, 0, 0, 0, 91), 0);
  fly_map_release(&map);
  fly_bound_release(&bound);
}
END_TEST

START_TEST(a_causal_map_of_a_million_tokens_is_small) {
  fly_geometry g = map_square(1, 1, 1 << 20);
  fly_bound *bound = map_bind(causal, NULL, 0);
  fly_map *map = map_build(bound, &g, 128);
  fly_map_info info;
  fly_error error;
  const fly_run *runs;
  fly_map_get_info(map, &info);
  ck_assert_uint_lt(info.bytes, 1000000);
  ck_assert_int_eq(info.tiles_full, 8192ll * 8191 / 2);
  ck_assert_int_eq(info.tiles_partial, 8192);
  ck_assert_int_eq(info.undecided, 0);
  ck_fly_ok(fly_map_transpose(map, &error), error);
  for (int64_t i = 0; i < 8192; i++) {
    ck_assert_int_eq(fly_map_row(map, FLY_BY_KEY, 0, 0, i, &runs), i == 8191 ? 1 : 2);
    ck_assert(runs[0].first == i && runs[0].count == 1 && runs[0].kind == FLY_PARTIAL);
  }
  fly_map_release(&map);
  fly_bound_release(&bound);
}
END_TEST

/* ---- threads ----------------------------------------------------------------------------------------------------- */

static void backwards(void *user, int64_t count, void (*body)(void *context, int64_t i), void *context) {
  ++*(int *)user;
  while (count-- > 0) body(context, count);
}

static void expect_same(const fly_map *a, const fly_map *b) {
  ck_assert_int_eq(a->plane_count, b->plane_count);
  ck_assert_mem_eq(&a->info, &b->info, sizeof a->info);
  for (int i = 0; i < a->plane_count; i++) {
    const flyi_plane *p = &a->planes[i], *r = &b->planes[i];
    ck_assert_mem_eq(p->start, r->start, ((size_t)p->rows + 1) * sizeof *p->start);
    ck_assert_mem_eq(p->runs, r->runs, (size_t)p->start[p->rows] * sizeof *p->runs);
  }
}

START_TEST(the_number_of_threads_does_not_change_a_map) {
  enum { N = 20000 };
  int32_t *doc = malloc(N * sizeof *doc);
  test_random random = {.state = 2};
  int64_t n = N;
  int called = 0;
  fly_buffer *buffer;
  fly_error error;
  for (int i = 0; i < N; i++) doc[i] = i ? doc[i - 1] + (test_range(&random, 0, 700) == 0) : 0;
  ck_fly_ok(fly_buffer_create(FLY_I32, 1, &n, doc, &buffer, &error), error);
  fly_arg arg = FLY_CAPTURE("doc", buffer);
  fly_bound *bound = map_bind("FLY_BUFFER(int, doc, 1); bool mask(int b, int h, int q, int kv)"
                          "{ return doc[q] == doc[kv] && q - kv < 900 + 100 * h && kv - q < h; }",
                          &arg, 1);
  fly_geometry g = map_square(1, 3, N);
  for (int fast = 0; fast < 2; fast++) {
    fly_map *first = NULL;
    for (int threads = 1; threads < 6; threads++) {
      fly_map_options options = {FLY_INIT(fly_map_options), .tile_q = 16, .tile_kv = 16, .fast = fast,
                                 .threads = threads};
      if (threads == 5) options.parallel_for = backwards, options.parallel_user = &called;
      fly_map *map;
      ck_fly_ok(fly_map_build(bound, &g, &options, &map, &error), error);
      if (!first) first = fly_map_retain(map);
      expect_same(first, map);
      fly_map_release(&map);
    }
    fly_map_release(&first);
  }
  ck_assert_int_gt(called, 0);
  fly_bound_release(&bound);
  fly_buffer_release(&buffer);
  free(doc);
}
END_TEST

static int threads_of_this_process(void) {
  int count = 0;
  DIR *tasks = opendir("/proc/self/task");
  ck_assert_ptr_nonnull(tasks);
  for (struct dirent *entry; (entry = readdir(tasks));) count += entry->d_name[0] != '.';
  closedir(tasks);
  return count;
}

/* Each test is a process of its own: OpenMP has started no thread here before. */
START_TEST(a_map_uses_only_the_threads_that_it_was_given) {
  void (*set_threads)(int);
  *(void **)&set_threads = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
  ck_assert(set_threads);
  set_threads(4);
  fly_bound *bound = map_bind("bool mask(int b, int h, int q, int kv) { return (q ^ kv) % 7 < h; }", NULL, 0);
  fly_geometry g = map_square(1, 5, 700);
  int64_t pairs;
  int called = 0, started = threads_of_this_process(); /* 1, but where all tests run in one process */
  fly_error error;
  for (int round = 0; round < 3; round++) {
    fly_map_options options = {FLY_INIT(fly_map_options), .tile_q = 16, .tile_kv = 16, .threads = round ? 4 : 1};
    fly_map *map;
    if (round == 1) options.parallel_for = backwards, options.parallel_user = &called;
    ck_fly_ok(fly_map_build(bound, &g, &options, &map, &error), error);
    ck_assert_int_gt(map->plane_count, 1);
    int before = called;
    ck_fly_ok(fly_map_transpose(map, &error), error);
    int transposed = called;
    ck_fly_ok(fly_map_visible_pairs(map, &pairs, &error), error);
    fly_map_release(&map);
    if (round == 1) ck_assert(before > 0 && transposed == before + 1 && called > transposed);
    int threads = threads_of_this_process();
    ck_assert_int_eq(threads, round == 2 && started == 1 ? 4 : started); /* the last: such threads would be seen */
  }
  fly_bound_release(&bound);
}
END_TEST

typedef struct crew {
  pthread_barrier_t barrier;
  void (*body)(void *context, int64_t i);
  void *context;
  atomic_llong next;
} crew;

static void *crew_member(void *shared) {
  crew *c = shared;
  pthread_barrier_wait(&c->barrier);
  c->body(c->context, atomic_fetch_add(&c->next, 1));
  return NULL;
}

/* All workers at once. */
static void together(void *user, int64_t count, void (*body)(void *context, int64_t i), void *context) {
  (void)user;
  pthread_t thread[8];
  crew c = {.body = body, .context = context};
  ck_assert_int_le(count, 8);
  pthread_barrier_init(&c.barrier, NULL, (unsigned)count);
  for (int64_t i = 0; i < count; i++) ck_assert_int_eq(pthread_create(&thread[i], NULL, crew_member, &c), 0);
  for (int64_t i = 0; i < count; i++) pthread_join(thread[i], NULL);
  pthread_barrier_destroy(&c.barrier);
}

/* Threads that meet an array at the same time must come to one pyramid, or equal heads would not share a plane. */
START_TEST(heads_share_a_plane_whichever_thread_finds_a_table_first) {
  int32_t width[8] = {70, 70, 70, 70, 70, 70, 70, 70};
  static uint8_t table[128 * 128];
  int64_t n = 8, shape[] = {128, 128};
  fly_buffer *buffer[2];
  fly_error error;
  fly_geometry g = map_square(1, 8, 64);
  ck_fly_ok(fly_buffer_create(FLY_I32, 1, &n, width, &buffer[0], &error), error);
  for (int round = 0; round < 150; round++) {
    ck_fly_ok(fly_buffer_create(FLY_U8, 2, shape, table, &buffer[1], &error), error); /* no pyramid yet */
    fly_arg args[] = {FLY_CAPTURE("width", buffer[0]), FLY_CAPTURE("table", buffer[1])};
    fly_bound *bound = map_bind("FLY_BUFFER(int, width, 1); FLY_BUFFER(uint8_t, table, 2);\n"
                            "static const int constants[16] = {5, 3, 1, 7, 4, 2, 9, 8, 0, 6, 5, 5, 2, 1, 3, 9};\n"
                            "bool mask(int b, int h, int q, int kv)"
                            "{ return constants[kv & 15] + fly_at2(table, q, kv) < width[h]; }",
                            args, 2);
    fly_map_options options = {FLY_INIT(fly_map_options), .tile_q = 16, .tile_kv = 16, .threads = 8,
                               .parallel_for = together};
    fly_map *map;
    ck_fly_ok(fly_map_build(bound, &g, &options, &map, &error), error);
    ck_assert_int_eq(map->info.heads, 8);
    ck_assert_int_eq(map->plane_count, 1);
    fly_map_release(&map);
    fly_bound_release(&bound);
    fly_buffer_release(&buffer[1]);
  }
  fly_buffer_release(&buffer[0]);
}
END_TEST

typedef struct shared {
  fly_bound *bound;
  fly_map *map;
  fly_geometry geometry;
  fly_map *built;
} shared;

static void *build_and_transpose(void *context) {
  shared *s = context;
  fly_map_options options = {FLY_INIT(fly_map_options), .tile_q = 32, .tile_kv = 32, .threads = 1};
  if (fly_map_build(s->bound, &s->geometry, &options, &s->built, NULL) || fly_map_transpose(s->map, NULL)) return NULL;
  return s;
}

START_TEST(masks_buffers_and_maps_can_be_shared_between_threads) {
  enum { N = 3000, THREADS = 4 };
  static int32_t doc[N];
  int64_t n = N;
  fly_buffer *buffer;
  fly_error error;
  for (int i = 0; i < N; i++) doc[i] = i / 177;
  fly_geometry g = map_square(1, 1, N);
  for (int round = 0; round < 8; round++) {
    ck_fly_ok(fly_buffer_create(FLY_I32, 1, &n, doc, &buffer, &error), error); /* whose pyramid nobody has built yet */
    fly_arg arg = FLY_CAPTURE("doc", buffer);
    fly_bound *bound = map_bind(
        "FLY_BUFFER(int, doc, 1); bool mask(int b, int h, int q, int kv) { return doc[q] == doc[kv]; }", &arg, 1);
    fly_bound *other = map_bind(causal, NULL, 0);
    fly_map *map = map_build(other, &g, 16);
    pthread_t thread[THREADS];
    shared s[THREADS];
    for (int i = 0; i < THREADS; i++) {
      s[i] = (shared){bound, map, g, NULL};
      ck_assert_int_eq(pthread_create(&thread[i], NULL, build_and_transpose, &s[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
      void *done;
      pthread_join(thread[i], &done);
      ck_assert_ptr_nonnull(done);
      expect_same(s[0].built, s[i].built);
    }
    check_map(map, true, truth_compiled, NULL, "shared");
    for (int i = 0; i < THREADS; i++) fly_map_release(&s[i].built);
    fly_map_release(&map);
    fly_bound_release(&bound), fly_bound_release(&other);
    fly_buffer_release(&buffer);
  }
}
END_TEST

/* ---- errors ------------------------------------------------------------------------------------------------------ */

static void expect_error(fly_bound *bound, const fly_geometry *g, const fly_map_options *options, const char *message) {
  fly_map *map = (fly_map *)1;
  fly_error error;
  ck_assert_int_eq(fly_map_build(bound, g, options, &map, &error), FLY_ERROR_ARGUMENT);
  ck_assert_ptr_null(map);
  ck_assert_msg(strstr(error.message, message) != NULL, "'%s', not '%s'", error.message, message);
  ck_assert_int_eq(fly_map_build(bound, g, options, &map, NULL), FLY_ERROR_ARGUMENT);
}

START_TEST(wrong_arguments_are_errors) {
  fly_bound *bound = map_bind(causal, NULL, 0);
  fly_geometry g = map_square(1, 1, 100), bad = map_square(1, 1, -1), unset = {.batch = 1, .heads = 1};
  fly_map_options no_size = {.tile_q = 64}, negative = {FLY_INIT(fly_map_options), .tile_q = -64};
  fly_map_options tiny = {FLY_INIT(fly_map_options), .tile_q = 1, .tile_kv = 1};
  expect_error(NULL, &g, NULL, "bound is NULL");
  expect_error(bound, NULL, NULL, "geometry is NULL");
  expect_error(bound, &bad, NULL, "lengths -1");
  expect_error(bound, &unset, NULL, "geometry.size");
  expect_error(bound, &g, &no_size, "options.size is 0");
  expect_error(bound, &g, &negative, "tiles of -64 x 128");
  g.len_q = INT32_MAX;
  expect_error(bound, &g, &tiny, "use larger tiles");
  g.len_q = 100;
  fly_map *map = map_build(bound, &g, 16);
  fly_map_lists lists;
  fly_error error;
  const fly_run *runs;
  ck_assert_int_eq(fly_map_expand(map, FLY_BY_KEY, &lists, &error), FLY_ERROR_ARGUMENT);
  ck_assert_msg(strstr(error.message, "fly_map_transpose") != NULL, "%s", error.message);
  ck_assert_ptr_null(lists.index);
  ck_assert_int_eq(fly_map_row(map, FLY_BY_KEY, 0, 0, 0, &runs), -1);
  ck_assert_int_eq(fly_map_transpose(NULL, &error), FLY_ERROR_ARGUMENT);
  ck_assert_int_eq(fly_map_visible_pairs(map, NULL, &error), FLY_ERROR_ARGUMENT);
  fly_map_release(&map), fly_map_release(&map), fly_map_release(NULL);
  fly_bound_release(&bound);
}
END_TEST

/* Whatever allocation fails, the call says so and leaves nothing behind (the sanitizers look for leaks). */
START_TEST(failing_allocations_are_errors) {
  int32_t rows[200];
  fly_error error;
  for (int i = 0; i < 200; i++) rows[i] = 199 - i;
  fly_bound *bound = map_bind(by_token, NULL, 0);
  fly_geometry g = map_square(2, 2, 200);
  g.kv_rows.rows = rows;
  fly_map_options options = {FLY_INIT(fly_map_options), .tile_q = 16, .tile_kv = 16, .threads = 1};
  fly_map *map = NULL;
  fly_map_lists lists;
  int64_t pairs;
  long failures = 0, n;
  for (n = 1; !map; n++) {
    flyi_fail_allocation(n);
    fly_status status = fly_map_build(bound, &g, &options, &map, &error);
    flyi_fail_allocation(0);
    ck_assert(status == FLY_OK ? map != NULL : status == FLY_ERROR_MEMORY && !map);
    failures += status != FLY_OK;
  }
  ck_assert_int_gt(failures, 20);
  for (int what = 0; what < 3; what++) {
    fly_status status = FLY_ERROR_MEMORY;
    for (n = 1; status; n++) {
      flyi_fail_allocation(n);
      status = what == 0   ? fly_map_transpose(map, &error)
               : what == 1 ? fly_map_expand(map, FLY_BY_KEY, &lists, &error)
                           : fly_map_visible_pairs(map, &pairs, &error);
      flyi_fail_allocation(0);
      ck_assert(status == FLY_OK || status == FLY_ERROR_MEMORY);
    }
    ck_assert_int_gt(n, 2);
    if (what == 1) fly_map_lists_free(&lists);
  }
  check_map(map, true, truth_compiled, NULL, "after failures");
  fly_map_release(&map);
  fly_bound_release(&bound);
}
END_TEST

static Suite *suite(void) {
  Suite *s = suite_create("map");
  TCase *c = tcase_create("map");
  tcase_add_test(c, a_dimension_that_the_mask_does_not_read_is_1);
  tcase_add_test(c, heads_that_mean_the_same_share_a_plane);
  tcase_add_test(c, heads_that_analysis_does_not_understand_are_not_shared);
  tcase_add_test(c, row_maps_count_only_where_tokens_are_read);
  tcase_add_test(c, ragged_entries_have_rows_of_their_own);
  tcase_add_test(c, empty_calls_have_empty_maps);
  tcase_add_test(c, a_map_keeps_what_it_was_built_for);
  tcase_add_test(c, the_query_offset_moves_positions_and_not_rows);
  tcase_add_test(c, a_causal_map_of_a_million_tokens_is_small);
  tcase_add_test(c, the_number_of_threads_does_not_change_a_map);
  tcase_add_test(c, masks_buffers_and_maps_can_be_shared_between_threads);
  tcase_add_test(c, a_map_uses_only_the_threads_that_it_was_given);
  tcase_add_test(c, heads_share_a_plane_whichever_thread_finds_a_table_first);
  tcase_add_test(c, wrong_arguments_are_errors);
  tcase_add_test(c, failing_allocations_are_errors);
  suite_add_tcase(s, c);
  return s;
}

FLY_TEST_MAIN(suite)
