/* Mask programs: what is written is read back, what is damaged is refused, and what is decoded says the truth about
 * every box of pairs. The truth is an interpreter of the program (support/interpret.c), one pair at a time. */
#include "interpret.h"

#include "runtime/nodes.h"

/* ---- cases ------------------------------------------------------------------------------------------------------- */

static fly_buffer *random_buffer(test_random *random, fly_type type, int64_t limit) {
  int64_t count = test_range(random, 0, 7) ? test_range(random, 1, 300) : test_range(random, 0, 2);
  int32_t data[300];
  uint8_t bytes[300];
  int64_t climb = 0;
  bool sorted = test_range(random, 0, 1);
  for (int64_t i = 0; i < count; i++) {
    climb += test_range(random, 0, 9) == 0;
    data[i] = (int32_t)(sorted ? climb : test_range(random, -limit, limit));
    bytes[i] = (uint8_t)data[i];
  }
  fly_buffer *buffer;
  fly_error error;
  ck_fly_ok(fly_buffer_create(type, 1, &count, type == FLY_U8 ? (void *)bytes : (void *)data, &buffer, &error), error);
  return buffer;
}

static void bind_random(test_random *random, program_case *c) {
  fly_buffer *buffers[] = {random_buffer(random, FLY_I32, 200), random_buffer(random, FLY_U8, 90)};
  int64_t parameters[] = {test_range(random, -3, 40), test_range(random, -100, 100)};
  program_case_bind(c, parameters, 2, buffers, 2);
}

typedef struct geometry_case {
  fly_geometry geometry;
  int32_t rows[2][300];
  int32_t cu_q[4], cu_kv[4];
} geometry_case;

static void random_geometry(test_random *random, geometry_case *c) {
  int64_t packed = test_range(random, 0, 3) == 0;
  *c = (geometry_case){.geometry = {FLY_INIT(fly_geometry), .batch = 3, .heads = 2, .len_q = test_range(random, 1, 90),
                                    .len_kv = test_range(random, 1, 90),
                                    .q_offset = test_range(random, 0, 3) ? 0 : test_range(random, -50, 200)}};
  fly_geometry *g = &c->geometry;
  for (int b = 0; b < 3; b++) {
    c->cu_q[b + 1] = c->cu_q[b] + (int32_t)test_range(random, 1, 70);
    c->cu_kv[b + 1] = c->cu_kv[b] + (int32_t)test_range(random, 1, 70);
  }
  if (packed) g->cu_seqlens_q = c->cu_q, g->cu_seqlens_kv = c->cu_kv;
  for (int k = 0; k < 300; k++)
    c->rows[0][k] = (int32_t)test_range(random, 0, 250), c->rows[1][k] = (int32_t)test_range(random, 0, 99);
  if (test_range(random, 0, 1)) g->q_rows = (fly_row_map){c->rows[0], 0, packed ? 0 : g->len_q};
  if (test_range(random, 0, 1)) g->kv_rows = (fly_row_map){c->rows[1], packed ? 0 : g->len_kv, 0};
}

/* Decodes the case's bytes for one (b, h). */
typedef struct decoded {
  flyi_program program;
  flyi_arrays arrays;
  flyi_nodes nodes;
  flyi_interval *value;
} decoded;

static decoded decode(const program_case *c, const fly_geometry *g, int b, int h) {
  decoded d = {.arrays = {NULL}};
  fly_error error;
  ck_fly_ok(flyi_program_parse(c->mask.image.program, &c->mask.image, &d.program, &error), error);
  ck_fly_ok(flyi_decode(&d.program, &c->bound, g, b, h, &d.arrays, &d.nodes, &error), error);
  d.value = calloc(flyi_nodes_room(&d.nodes), sizeof *d.value);
  return d;
}

static void decoded_free(decoded *d) {
  flyi_nodes_free(&d->nodes);
  flyi_arrays_free(&d->arrays);
  flyi_program_free(&d->program);
  free(d->value);
}

static flyi_interval verdict(decoded *d, flyi_box box) {
  flyi_nodes_evaluate(&d->nodes, 0, d->nodes.count, &box, d->value);
  return d->value[d->nodes.answer];
}

/* ---- soundness --------------------------------------------------------------------------------------------------- */

static void check_box(const program_case *c, decoded *d, const fly_geometry *g, int b, int h, flyi_box box,
                      long round) {
  bool visible = false, hidden = false;
  for (int64_t q = box.q0; q <= box.q1; q++)
    for (int64_t kv = box.kv0; kv <= box.kv1; kv++) {
      int see = interpret(c, g, b, h, (int)q, (int)kv);
      expect(see >= 0, "program %ld does not end", round);
      visible |= see == 1, hidden |= see == 0;
    }
  flyi_interval r = verdict(d, box);
  expect((r.hi || !visible) && (!r.lo || !hidden), "program %ld, (%d, %d): [%lld, %lld] x [%lld, %lld] is %s", round, b,
         h, (long long)box.q0, (long long)box.q1, (long long)box.kv0, (long long)box.kv1, r.lo ? "full" : "empty");
  bool pair = box.q0 == box.q1 && box.kv0 == box.kv1;
  expect(!pair || d->nodes.unknown || r.lo == r.hi, "program %ld, (%d, %d): the pair %lld, %lld is undecided", round, b,
         h, (long long)box.q0, (long long)box.kv0);
}

static flyi_box random_box(test_random *random, flyi_box all, int64_t side) {
  int64_t q = test_range(random, all.q0, all.q1), kv = test_range(random, all.kv0, all.kv1);
  flyi_box box = {q, q + test_range(random, 0, side), kv, kv + test_range(random, 0, side)};
  if (box.q1 > all.q1) box.q1 = all.q1;
  if (box.kv1 > all.kv1) box.kv1 = all.kv1;
  return box;
}

START_TEST(verdicts_of_random_programs_hold_for_every_pair) {
  test_random random = {.state = 99};
  long decided = 0, boxes = 0;
  for (long round = 0; round < 20000; round++) {
    program_case c = {0};
    geometry_case g;
    random_program(&random, round % 5 == 4, &c.program);
    bind_random(&random, &c);
    random_geometry(&random, &g);
    int b = (int)test_range(&random, 0, 2), h = (int)test_range(&random, 0, 1);
    decoded d = decode(&c, &g.geometry, b, h);
    for (int k = 0; k < 40; k++, boxes++) {
      flyi_box box = random_box(&random, d.nodes.domain, k < 20 ? 0 : k < 36 ? 5 : 12);
      check_box(&c, &d, &g.geometry, b, h, box, round);
      flyi_interval r = verdict(&d, box);
      decided += r.lo == r.hi && k >= 20;
    }
    decoded_free(&d);
    program_case_free(&c);
  }
  ck_assert_int_gt(decided, boxes / 10); /* and it does decide */
}
END_TEST

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

START_TEST(programs_survive_writing_and_reading) {
  test_random random = {.state = 5};
  fly_error error;
  for (int round = 0; round < 300; round++) {
    program_case c = {0};
    flyi_program again;
    flyi_bytes bytes = {0};
    random_program(&random, true, &c.program);
    bind_random(&random, &c);
    ck_fly_ok(flyi_program_parse(c.mask.image.program, &c.mask.image, &again, &error), error);
    ck_assert_int_eq(again.instructions, c.program.instructions);
    ck_fly_ok(flyi_program_encode(&again, &bytes, &error), error);
    ck_assert_uint_eq(bytes.size, c.bytes.size);
    ck_assert_mem_eq(bytes.data, c.bytes.data, bytes.size);
    flyi_bytes_free(&bytes);
    flyi_program_free(&again);
    program_case_free(&c);
  }
}
END_TEST

START_TEST(every_part_of_a_program_alone_is_refused) {
  test_random random = {.state = 6};
  program_case c = {0};
  flyi_program parsed;
  fly_error error;
  random_program(&random, true, &c.program);
  bind_random(&random, &c);
  for (size_t size = 0; size < c.bytes.size; size++) {
    uint8_t *bytes = guard_alloc(size, 1, 0);
    memcpy(bytes, c.bytes.data, size);
    ck_assert_int_eq(flyi_program_parse((flyi_section){bytes, size}, &c.mask.image, &parsed, &error), FLY_ERROR_IMAGE);
    flyi_program_free(&parsed);
    guard_free(bytes);
  }
  program_case_free(&c);
}
END_TEST

START_TEST(damaged_programs_are_refused_or_at_least_harmless) {
  test_random random = {.state = 8};
  long accepted = 0;
  for (int round = 0; round < 60; round++) {
    program_case c = {0};
    geometry_case g;
    random_program(&random, false, &c.program);
    bind_random(&random, &c);
    random_geometry(&random, &g);
    uint8_t *bytes = guard_alloc(c.bytes.size, 1, 0);
    for (int k = 0; k < 300; k++) {
      memcpy(bytes, c.bytes.data, c.bytes.size);
      for (int64_t n = test_range(&random, 1, 3); n > 0; n--)
        bytes[test_range(&random, 5, (int64_t)c.bytes.size - 1)] = (uint8_t)test_range(
            &random, 0, test_range(&random, 0, 1) ? 255 : 45);
      flyi_section section = {bytes, c.bytes.size};
      if (flyi_program_check(section, &c.mask.image, NULL)) continue;
      flyi_section whole = c.mask.image.program;
      c.mask.image.program = section;
      decoded d = decode(&c, &g.geometry, 1, 1);
      verdict(&d, d.nodes.domain);
      for (int n = 0; n < 5; n++) verdict(&d, random_box(&random, d.nodes.domain, 9));
      decoded_free(&d);
      c.mask.image.program = whole;
      accepted++;
    }
    guard_free(bytes);
    program_case_free(&c);
  }
  ck_assert_int_gt(accepted, 500);
}
END_TEST

/* A program in parts, so that each can be broken: entry -> loop header (a phi) -> body -> header, -> exit. */
typedef struct parts {
  flyi_instruction extra; /* in the entry; op LIMIT: none */
  int header_loop;
  int32_t entry_target, body_target;
  int phi_width;
  int32_t branch_value, answer; /* 0: the right ones */
} parts;

static const parts sound = {{.op = FLYI_OP_LIMIT}, 2, 1, 1, 32, 0, 0};

static fly_status parse_parts(parts x, fly_error *error) {
  program_case c = {0};
  flyi_program *p = &c.program, parsed;
  int64_t parameters[] = {1}, one = 1;
  int32_t datum = 1;
  fly_buffer *buffer;
  ck_fly_ok(fly_buffer_create(FLY_I32, 1, &one, &datum, &buffer, error), *error);
  if (x.extra.op != FLYI_OP_LIMIT) flyi_program_add(p, x.extra);
  int32_t edge = p->edges, target_args[2] = {FLYI_VALUE_Q, FLYI_VALUE_Q};
  add_edge(p, x.entry_target, 0, target_args, x.entry_target == 1);
  end_block(p, 0, 0, 0, FLYI_END_JUMP, 0, edge);
  int32_t first = p->instructions, i = put(p, FLYI_OP_PHI, x.phi_width, 0, 0);
  int32_t more = put(p, FLYI_OP_SLT, 1, FLYI_VALUE_Q, FLYI_VALUE_KV);
  edge = p->edges;
  add_edge(p, 2, 0, NULL, 0), add_edge(p, 3, 0, NULL, 0);
  end_block(p, first, 1, x.header_loop, FLYI_END_BRANCH, x.branch_value ? x.branch_value : more, edge);
  first = p->instructions;
  int32_t next = put(p, FLYI_OP_ADD, 32, x.phi_width == 32 ? i : FLYI_VALUE_Q, FLYI_VALUE_KV);
  edge = p->edges;
  add_edge(p, x.body_target, 0, &next, x.body_target == 1);
  end_block(p, first, 0, 0, FLYI_END_JUMP, 0, edge);
  end_block(p, p->instructions, 0, 0, FLYI_END_RETURN, x.answer ? x.answer : more, p->edges);
  program_case_bind(&c, parameters, 1, &buffer, 1);
  fly_status status = flyi_program_parse(c.mask.image.program, &c.mask.image, &parsed, error);
  flyi_program_free(&parsed);
  program_case_free(&c);
  return status;
}

START_TEST(what_the_decoder_relies_on_is_checked) {
  fly_error error;
  ck_fly_ok(parse_parts(sound, &error), error);
  static const struct {
    const char *message;
    parts parts;
  } broken[] = {
      {"enters a loop through its side", {{.op = FLYI_OP_LIMIT}, 2, 2, 1, 32, 0, 0}},
      {"jumps to its entry", {{.op = FLYI_OP_LIMIT}, 2, 1, 0, 32, 0, 0}},
      {"jumps back to no loop's header", {{.op = FLYI_OP_LIMIT}, 2, 1, 2, 32, 0, 0}},
      {"jumps back to no loop's header", {{.op = FLYI_OP_LIMIT}, 0, 1, 1, 32, 0, 0}},
      {"has a number out of range", {{.op = FLYI_OP_LIMIT}, 9, 1, 1, 32, 0, 0}},
      {"gives a phi another width", {{.op = FLYI_OP_LIMIT}, 2, 1, 1, 16, 0, 0}},
      {"decides by a value of another width", {{.op = FLYI_OP_LIMIT}, 2, 1, 1, 32, FLYI_VALUE_Q, 0}},
      {"decides by a value of another width", {{.op = FLYI_OP_LIMIT}, 2, 1, 1, 32, 0, FLYI_VALUE_KV}},
#define EXTRA(MESSAGE, ...) {MESSAGE, {{__VA_ARGS__}, 2, 1, 1, 32, 0, 0}}
      EXTRA("has a number out of range", .op = FLYI_OP_ADD, .width = 32, .a = FLYI_VALUE_FIRST),
      EXTRA("has a number out of range", .op = FLYI_OP_ADD, .width = 65),
      EXTRA("has an instruction that is none", .op = FLYI_OP_ADD, .width = 0),
      EXTRA("mixes widths", .op = FLYI_OP_ADD, .width = 16),
      EXTRA("mixes widths", .op = FLYI_OP_ZEXT, .width = 32),
      EXTRA("mixes widths", .op = FLYI_OP_TRUNC, .width = 32),
      EXTRA("mixes widths", .op = FLYI_OP_EQ, .width = 32),
      EXTRA("mixes widths", .op = FLYI_OP_SELECT, .width = 32),
      EXTRA("mixes widths", .op = FLYI_OP_LOAD, .width = 32, .k = 0),
      EXTRA("reads a value of another width", .op = FLYI_OP_LOAD, .width = 8, .k = 0),
      EXTRA("reads a buffer that is not declared", .op = FLYI_OP_LOAD, .width = 32, .k = 1),
      EXTRA("reads a buffer that is not declared", .op = FLYI_OP_COUNT, .width = 64, .k = -1),
      EXTRA("reads a buffer that is not declared", .op = FLYI_OP_DIM, .width = 64, .k = 4),
      EXTRA("has a size of other than 64 bits", .op = FLYI_OP_COUNT, .width = 32, .k = 0),
      EXTRA("reads a parameter that is not declared", .op = FLYI_OP_PARAM, .width = 32, .k = 1),
      EXTRA("reads a value of another width", .op = FLYI_OP_PARAM, .width = 64, .k = 0),
      EXTRA("reads a table that is not there", .op = FLYI_OP_TABLE, .width = 32, .k = 0),
  };
  for (size_t k = 0; k < sizeof broken / sizeof *broken; k++) {
    ck_assert_msg(parse_parts(broken[k].parts, &error) == FLY_ERROR_IMAGE, "%zu is accepted: %s", k, broken[k].message);
    ck_assert_msg(strstr(error.message, broken[k].message) != NULL, "%zu: '%s', not '%s'", k, error.message,
                  broken[k].message);
  }
}
END_TEST

/* ---- what folds -------------------------------------------------------------------------------------------------- */

static int32_t k32(flyi_program *p, int64_t k) { return put_k(p, FLYI_OP_CONST, 32, 0, k); }
static int32_t k64(flyi_program *p, int64_t k) { return put_k(p, FLYI_OP_CONST, 64, 0, k); }

/* doc[q] == doc[kv], with or without clamped indices. */
static void document(flyi_program *p, bool clamped) {
  int32_t element[2];
  for (int k = 0; k < 2; k++) {
    int32_t index = put(p, FLYI_OP_SEXT, 64, k ? FLYI_VALUE_KV : FLYI_VALUE_Q, 0);
    if (clamped) {
      int32_t last = put(p, FLYI_OP_SUB, 64, put_k(p, FLYI_OP_COUNT, 64, 0, 0), k64(p, 1));
      index = put(p, FLYI_OP_SMAX, 64, put(p, FLYI_OP_SMIN, 64, index, last), k64(p, 0));
    }
    element[k] = put_k(p, FLYI_OP_LOAD, 32, index, 0);
  }
  end_block(p, 0, 0, 0, FLYI_END_RETURN, put(p, FLYI_OP_EQ, 1, element[0], element[1]), 0);
}

/* q / size == kv / size, guarded against a size of 0 or not. */
static void chunks(flyi_program *p, bool guarded) {
  int32_t size = put_k(p, FLYI_OP_PARAM, 32, 0, 0), quotient[2];
  for (int k = 0; k < 2; k++) {
    int32_t x = k ? FLYI_VALUE_KV : FLYI_VALUE_Q;
    if (!guarded) {
      quotient[k] = put(p, FLYI_OP_SDIV, 32, x, size);
      continue;
    }
    int32_t zero = put(p, FLYI_OP_EQ, 1, size, k32(p, 0)), minus = put(p, FLYI_OP_EQ, 1, size, k32(p, -1));
    int32_t divisor = put3(p, FLYI_OP_SELECT, 32, put(p, FLYI_OP_OR, 1, zero, minus), k32(p, 1), size);
    int32_t r = put(p, FLYI_OP_SDIV, 32, x, divisor);
    r = put3(p, FLYI_OP_SELECT, 32, minus, put(p, FLYI_OP_SUB, 32, k32(p, 0), x), r);
    quotient[k] = put3(p, FLYI_OP_SELECT, 32, zero, k32(p, 0), r);
  }
  end_block(p, 0, 0, 0, FLYI_END_RETURN, put(p, FLYI_OP_EQ, 1, quotient[0], quotient[1]), 0);
}

START_TEST(guards_that_the_domain_makes_superfluous_cost_nothing) {
  static void (*const make[])(flyi_program *, bool) = {document, chunks};
  int32_t doc[100];
  int64_t hundred = 100, size[] = {37};
  fly_geometry g = {FLY_INIT(fly_geometry), .batch = 1, .heads = 1, .len_q = 60, .len_kv = 100, .q_offset = 40};
  fly_error error;
  for (int i = 0; i < 100; i++) doc[i] = i / 30;
  for (int which = 0; which < 2; which++) {
    program_case c[2] = {0};
    decoded d[2];
    fly_buffer *buffer = NULL;
    ck_fly_ok(fly_buffer_create(FLY_I32, 1, &hundred, doc, &buffer, &error), error);
    for (int k = 0; k < 2; k++) {
      make[which](&c[k].program, k);
      fly_buffer *own = fly_buffer_retain(buffer);
      program_case_bind(&c[k], size, 1, &own, 1);
      d[k] = decode(&c[k], &g, 0, 0);
    }
    ck_assert(flyi_nodes_equal(&d[0].nodes, &d[1].nodes));
    for (int k = 0; k < 2; k++) decoded_free(&d[k]), program_case_free(&c[k]);
    fly_buffer_release(&buffer);
  }
}
END_TEST

/* while (x > kv) x = parent[x]; return x == kv: nobody knows beforehand how often. */
static void ancestors(flyi_program *p) {
  int32_t edge = p->edges, q = FLYI_VALUE_Q;
  add_edge(p, 1, 0, &q, 1);
  end_block(p, 0, 0, 0, FLYI_END_JUMP, 0, edge);
  int32_t first = p->instructions, x = put(p, FLYI_OP_PHI, 32, 0, 0), more = put(p, FLYI_OP_SLT, 1, FLYI_VALUE_KV, x);
  edge = p->edges;
  add_edge(p, 2, 0, NULL, 0), add_edge(p, 3, 0, &x, 1);
  end_block(p, first, 1, 2, FLYI_END_BRANCH, more, edge);
  first = p->instructions;
  int32_t last = put(p, FLYI_OP_SUB, 64, put_k(p, FLYI_OP_COUNT, 64, 0, 0), k64(p, 1));
  int32_t index = put(p, FLYI_OP_SMAX, 64, put(p, FLYI_OP_SMIN, 64, put(p, FLYI_OP_SEXT, 64, x, 0), last), k64(p, 0));
  int32_t parent = put_k(p, FLYI_OP_LOAD, 32, index, 0);
  edge = p->edges;
  add_edge(p, 1, 0, &parent, 1);
  end_block(p, first, 0, 0, FLYI_END_JUMP, 0, edge);
  first = p->instructions;
  int32_t y = put(p, FLYI_OP_PHI, 32, 0, 0);
  end_block(p, first, 1, 0, FLYI_END_RETURN, put(p, FLYI_OP_EQ, 1, y, FLYI_VALUE_KV), p->edges);
}

START_TEST(a_loop_without_a_bound_is_given_up_soundly) {
  enum { N = 3000 };
  test_random random = {.state = 12};
  program_case c = {0};
  int32_t *parent = calloc(N, sizeof *parent);
  int64_t n = N;
  fly_buffer *buffer;
  fly_error error;
  for (int i = 1; i < N; i++) parent[i] = (int32_t)test_range(&random, i > 3 ? i - 3 : 0, i - 1);
  ck_fly_ok(fly_buffer_create(FLY_I32, 1, &n, parent, &buffer, &error), error);
  ancestors(&c.program);
  program_case_bind(&c, NULL, 0, &buffer, 1);
  fly_geometry g = {FLY_INIT(fly_geometry), .batch = 1, .heads = 1, .len_q = N, .len_kv = N};
  decoded d = decode(&c, &g, 0, 0);
  ck_assert(d.nodes.unknown);
  ck_assert_int_le(d.nodes.count, 2 * FLYI_NODE_LIMIT);
  for (int k = 0; k < 60; k++) check_box(&c, &d, &g, 0, 0, random_box(&random, d.nodes.domain, 3), k);
  flyi_interval above = verdict(&d, (flyi_box){0, 99, 200, 299}); /* x <= q < kv: decided in the first round */
  ck_assert(above.lo == 0 && above.hi == 0);
  decoded_free(&d);
  program_case_free(&c);
  free(parent);
}
END_TEST

/* for (i = 0; i < 50000; i++) for (j = 0; j < 50000; j++); return true: all constants, but too long. */
START_TEST(a_long_loop_of_constants_does_not_hang_the_decoder) {
  program_case c = {0};
  flyi_program *p = &c.program;
  int32_t start = k32(p, 0), edge = p->edges;
  add_edge(p, 1, 0, &start, 1);
  end_block(p, 0, 0, 0, FLYI_END_JUMP, 0, edge);
  int32_t first = p->instructions, i = put(p, FLYI_OP_PHI, 32, 0, 0), more = put(p, FLYI_OP_SLT, 1, i, k32(p, 50000));
  int32_t zero = k32(p, 0);
  edge = p->edges;
  add_edge(p, 2, 0, &zero, 1), add_edge(p, 4, 0, NULL, 0);
  end_block(p, first, 1, 3, FLYI_END_BRANCH, more, edge);
  first = p->instructions;
  int32_t j = put(p, FLYI_OP_PHI, 32, 0, 0), next = put(p, FLYI_OP_ADD, 32, j, k32(p, 1));
  int32_t again = put(p, FLYI_OP_SLT, 1, next, k32(p, 50000));
  edge = p->edges;
  add_edge(p, 2, 0, &next, 1), add_edge(p, 3, 0, NULL, 0);
  end_block(p, first, 1, 1, FLYI_END_BRANCH, again, edge);
  first = p->instructions;
  int32_t step = put(p, FLYI_OP_ADD, 32, i, k32(p, 1));
  edge = p->edges;
  add_edge(p, 1, 0, &step, 1);
  end_block(p, first, 0, 0, FLYI_END_JUMP, 0, edge);
  first = p->instructions;
  end_block(p, first, 0, 0, FLYI_END_RETURN, put_k(p, FLYI_OP_CONST, 1, 0, 1), p->edges);
  program_case_bind(&c, NULL, 0, NULL, 0);
  fly_geometry g = {FLY_INIT(fly_geometry), .batch = 1, .heads = 1, .len_q = 9, .len_kv = 9};
  decoded d = decode(&c, &g, 0, 0);
  ck_assert(d.nodes.unknown);
  decoded_free(&d);
  program_case_free(&c);
}
END_TEST

static Suite *suite(void) {
  Suite *s = suite_create("program");
  TCase *c = tcase_create("bytes");
  tcase_add_test(c, programs_survive_writing_and_reading);
  tcase_add_test(c, every_part_of_a_program_alone_is_refused);
  tcase_add_test(c, damaged_programs_are_refused_or_at_least_harmless);
  tcase_add_test(c, what_the_decoder_relies_on_is_checked);
  suite_add_tcase(s, c);
  c = tcase_create("decoding");
  tcase_add_test(c, verdicts_of_random_programs_hold_for_every_pair);
  tcase_add_test(c, guards_that_the_domain_makes_superfluous_cost_nothing);
  tcase_add_test(c, a_loop_without_a_bound_is_given_up_soundly);
  tcase_add_test(c, a_long_loop_of_constants_does_not_hang_the_decoder);
  suite_add_tcase(s, c);
  return s;
}

FLY_TEST_MAIN(suite)
