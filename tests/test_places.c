/* Places of packed blocks, claimed by several workers at once: one for each block, none twice, and never more of them
 * than there are blocks, which is all that a workspace has. */
#include "runtime/call.h"
#include "support.h"

enum { BLOCKS = 8, WORKERS = 4, REPEATS = 3000, BEHIND = 64 };

typedef struct claims {
  flyi_schedule schedule;
  flyi_places places;
  atomic_uint next[BLOCKS + BEHIND]; /* a place too many would have its entry behind the last one */
  atomic_int place[BLOCKS], users[BLOCKS + 1];
  atomic_int arrived;
  fly_map map;
} claims;

static const fly_run all = {.first = 0, .count = BLOCKS, .kind = FLY_FULL};

static void begin(claims *c) {
  flyi_places_init(&c->places);
  atomic_init(&c->arrived, 0);
  for (int i = 0; i < BLOCKS; i++) atomic_init(&c->place[i], FLYI_NOWHERE), atomic_init(&c->users[i], WORKERS);
  for (int i = 0; i < BLOCKS + BEHIND; i++) atomic_init(&c->next[i], 0);
  c->map.info.tile_kv = FLYI_BLOCK;
  c->schedule = (flyi_schedule){.key_blocks = BLOCKS,
                                .map = &c->map,
                                .places = &c->places,
                                .next_place = c->next,
                                .place = c->place,
                                .users = c->users};
}

/* All workers begin together, where they have a thread each. */
static void claim(void *context, int64_t item, int worker) {
  claims *c = context;
  (void)item, (void)worker;
  atomic_fetch_add(&c->arrived, 1);
  for (int i = 0; i < 1000 && atomic_load(&c->arrived) < WORKERS; i++) flyi_pause(i);
  flyi_schedule_claim_runs(&c->schedule, 0, &all, 1, BLOCKS);
}

static void finish(void *context, int64_t item, int worker) {
  claims *c = context;
  (void)item, (void)worker;
  flyi_schedule_done(&c->schedule, 0, &all, 1, BLOCKS);
}

START_TEST(a_block_has_one_place_whoever_claims_it) {
  static claims c;
  flyi_threads threads = {.limit = WORKERS};
  for (int repeat = 0; repeat < REPEATS; repeat++) {
    unsigned taken = 0;
    begin(&c);
    flyi_parallel(&threads, WORKERS, claim, &c);
    for (int i = 0; i < BLOCKS; i++) {
      int place = atomic_load(&c.place[i]);
      ck_assert_msg(place >= 0 && place < BLOCKS, "block %d is at place %d of %d", i, place, BLOCKS);
      taken |= 1u << place;
    }
    ck_assert_msg(taken == (1u << BLOCKS) - 1, "two blocks have the same place");
    ck_assert_int_eq((int)atomic_load(&c.places.fresh), BLOCKS);
    flyi_parallel(&threads, WORKERS, finish, &c);
  }
}
END_TEST

/* What was given back last comes first, and fresh ones only when there is none. */
START_TEST(places_come_back_last_in_first_out) {
  static claims c;
  begin(&c);
  for (int i = 0; i < 3; i++) ck_assert_int_eq(flyi_place_take(&c.places, c.next), i);
  flyi_place_give(&c.places, c.next, 0), flyi_place_give(&c.places, c.next, 2);
  static const int order[] = {2, 0, 3};
  for (int i = 0; i < 3; i++) ck_assert_int_eq(flyi_place_take(&c.places, c.next), order[i]);
}
END_TEST

static Suite *make_suite(void) {
  Suite *suite = suite_create("places");
  TCase *tests = tcase_create("places");
  tcase_add_test(tests, a_block_has_one_place_whoever_claims_it);
  tcase_add_test(tests, places_come_back_last_in_first_out);
  suite_add_tcase(suite, tests);
  return suite;
}

FLY_TEST_MAIN(make_suite)
