/* test_ptx_mutants.c: from the PTX of our own kernels each wait, barrier, commit and bounds check is removed in turn.
 * A case for each kernel and kind of mutation, named KERNEL.TYPE.DIM.KIND; it prints a table of who was noticed by
 * which check of the simulated driver.
 *
 * Every removed wait, commit and barrier has to be reported, whenever asynchronous copies land, but for one commit of
 * each forward kernel (`idle`). Bounds are checked on tensors that end with their last element, of ragged lengths,
 * with gathered rows and with rows in order. Of `branch` at least one of each kernel must lead out of bounds; of
 * `zeros` a third and more, where columns are padded; `clamp` must be reported where it is the only check. The
 * others change nothing that can be seen: bounds are kept twice in places (a row that is not there is not looked up,
 * and nothing of it is copied; its scores are masked), and branches are also choices between ways that give the
 * same. Of these some live with the same bits, and some give wrong results, which test_ptx_backward.c and
 * test_ptx_forward.c would notice. */
#include <ctype.h>

#include "simcuda/simcuda.h"
#include "support/ptx_case.h"

/* clang-format off */
PTX_MASK(window, return q - kv <= 90 && kv <= q;)
PTX_MASK(holes, return kv <= q && (q ^ kv) % 5;)
/* clang-format on */

typedef enum kind { WAIT, COMMIT, BARRIER, ZEROS, CLAMP, BRANCH, KINDS } kind;

/* What a mutation does to a line. */
static const struct {
  const char *name, *line;
} kinds[KINDS] = {
    [WAIT] = {"wait", "cp.async.wait_group"},
    [COMMIT] = {"commit", "cp.async.commit_group"},
    [BARRIER] = {"barrier", "bar."},
    [ZEROS] = {"zeros", "cp.async.c"}, /* copies whole chunks, whether the row is there or not */
    [CLAMP] = {"clamp", "min.s32"},    /* rows that are not there are looked up */
    [BRANCH] = {"branch", " bra "},
};

static const struct {
  const char *kernel;
  fly_type type;
  flyi_direction direction;
  int idle;   /* commits that only split a group which is waited for as a whole */
  int dim;    /* small ones and large ones have other tiles, and keep other operands */
  bool zeros; /* columns are padded: copies of whole chunks leave the tensor */
  int clamp;  /* how many of these must be reported */
} kernels[] = {{"fly_forward", FLY_BF16, FLYI_DIRECTION_FORWARD, 1, 56, true, 0},
               {"fly_forward", FLY_BF16, FLYI_DIRECTION_FORWARD, 1, 120, true, 0},
               {"fly_forward", FLY_F32, FLYI_DIRECTION_FORWARD, 1, 56, false, 0},
               {"fly_split", FLY_BF16, FLYI_DIRECTION_SPLIT, 0, 56, true, 0},
               {"fly_split", FLY_F32, FLYI_DIRECTION_SPLIT, 1, 56, false, 0},
               {"fly_backward_rows", FLY_BF16, FLYI_DIRECTION_BACKWARD, 0, 56, false, 1},
               {"fly_backward_keys", FLY_BF16, FLYI_DIRECTION_BACKWARD, 0, 56, true, 0},
               {"fly_backward_keys", FLY_BF16, FLYI_DIRECTION_BACKWARD, 0, 120, true, 0},
               {"fly_backward_keys", FLY_F32, FLYI_DIRECTION_BACKWARD, 0, 56, false, 0},
               {"fly_backward_queries", FLY_BF16, FLYI_DIRECTION_BACKWARD, 0, 56, true, 0},
               {"fly_backward_queries", FLY_F32, FLYI_DIRECTION_BACKWARD, 0, 56, false, 0},
               {"fly_backward_queries", FLY_BF16, FLYI_DIRECTION_BACKWARD, 0, 120, true, 0},
               {"fly_backward_finish", FLY_BF16, FLYI_DIRECTION_BACKWARD, 0, 56, false, 1}};
enum { KERNELS = sizeof kernels / sizeof kernels[0] };

static bool is_backward(int kernel) { return kernels[kernel].direction == FLYI_DIRECTION_BACKWARD; }

/* ---- a run ------------------------------------------------------------------------------------------------------- */

typedef struct outcome {
  bool reported;
  char report[400];
  uint64_t digest;
} outcome;

static uint64_t digest(uint64_t hash, const fly_tensor *x) {
  for (int64_t b = 0; x->data && b < x->shape[0]; b++)
    for (int64_t h = 0; h < x->shape[1]; h++)
      for (int64_t s = 0; s < x->shape[2]; s++)
        for (int64_t d = 0; d < x->shape[3]; d++) {
          double v = oracle_get(x, b, h, s, d);
          uint64_t bits;
          memcpy(&bits, &v, sizeof bits);
          hash = (hash ^ bits) * 0x100000001b3;
        }
  return hash;
}

/* Every tensor that a call writes; its rows hold the same before each run. */
static outcome run(ptx_case *t, bool backward) {
  outcome o = {0};
  fly_error error;
  cuda_call call;
  fly_cuda *cuda = cuda_open();
  cuda_call_init(&call, cuda, &t->base.base.call, t->kernel);
  fly_status status = backward ? fly_attention_backward(&call.call, &error) : fly_attention_forward(&call.call, &error);
  if (!status) status = fly_cuda_synchronize(cuda, NULL, &error);
  o.reported = status != FLY_OK;
  snprintf(o.report, sizeof o.report, "%s", simcuda_report());
  if (o.reported && !*o.report) ck_abort_msg("%s: %s", t->what, error.message);
  if (o.reported)
    simcuda_clear();
  else
    cuda_call_fetch(&call, backward);
  cuda_call_free(&call);
  fly_cuda_release(&cuda);
  const fly_attention *c = &t->base.base.call;
  const fly_tensor *written[] = {&c->out, &c->lse, &c->d_q, &c->d_k, &c->d_v};
  for (int i = backward ? 2 : 0; i < (backward ? 5 : 2); i++) o.digest = digest(o.digest, written[i]);
  if (backward)
    backward_reset(&t->base);
  else
    call_reset(&t->base.base);
  return o;
}

/* ---- mutations --------------------------------------------------------------------------------------------------- */

/* The body of an entry; *end is behind it. */
static char *body_of(char *ptx, const char *kernel, char **end) {
  char entry[80];
  snprintf(entry, sizeof entry, ".entry %s(", kernel);
  char *at = strstr(ptx, entry);
  ck_assert_msg(at != NULL, "no kernel %s", kernel);
  char *next = strstr(at + 1, ".entry");
  *end = next ? next : ptx + strlen(ptx);
  return at;
}

static void blank(char *line) {
  while (*line != ';') *line++ = ' ';
  *line = ' ';
}

/* A copy's size becomes that of a whole chunk: the last operand is overwritten by the one before it. */
static void copy_all(char *line) {
  char *end = strchr(line, ';'), *comma = end;
  while (*comma != ',') comma--;
  char *before = comma - 1;
  while (*before != ',') before--;
  const char *size = before + 1 + strspn(before + 1, " ");
  char text[8] = {0};
  memcpy(text, size, strspn(size, "0123456789"));
  memset(comma + 1, ' ', (size_t)(end - comma - 1));
  memcpy(comma + 1, text, strlen(text));
}

/* A minimum becomes its operand `which`. */
static bool take_operand(char *line, int which) {
  char *end = strchr(line, ';'), to[24], of[2][24];
  if (sscanf(line, "min.s32 %23[^,], %23[^,], %23[^;]", to, of[0], of[1]) != 3) return false;
  char text[80];
  int length = snprintf(text, sizeof text, "mov.b32 %s, %s", to, of[which]);
  if (length > end - line) return false;
  memset(line, ' ', (size_t)(end - line));
  memcpy(line, text, (size_t)length);
  return true;
}

/* The n-th place of the kind; NULL where there is none. */
static char *place(char *ptx, const char *kernel, kind k, int n) {
  char *end, *at = body_of(ptx, kernel, &end);
  for (; (at = strstr(at, kinds[k].line)) && at < end; at++) {
    char *line = at;
    while (line[-1] != '\n' && line[-1] != ';' && line[-1] != '{') line--;
    while (isspace((unsigned char)*line)) line++;
    if (k == BRANCH && *line != '@') continue;
    if (k == ZEROS && (!strncmp(line, "cp.async.commit", 15) || strchr(line, ';')[-1] == '6'))
      continue; /* all of 16 bytes */
    if (n-- == 0) return line;
  }
  return NULL;
}

/* `variant`: which operand of a minimum. */
static bool mutate(char *line, kind k, int variant) {
  if (k == ZEROS)
    copy_all(line);
  else if (k == CLAMP)
    return take_operand(line, variant);
  else
    blank(line);
  return true;
}

/* Two words about what was noticed. */
static const char *check_of(const outcome *o) {
  static const char *const checks[] = {
      "in flight", "race",     "uninitialised shared", "uninitialised", "out of bounds", "misaligned",
      "barrier",   "deadlock", "instructions",         "warp"};
  for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++)
    if (strstr(o->report, checks[i])) return checks[i];
  return o->report;
}

/* ---- the suite --------------------------------------------------------------------------------------------------- */

static void set_copies(int copies) {
  simcuda_config config;
  simcuda_get_config(&config);
  config.copies = copies;
  config.seed = copies == SIMCUDA_RANDOM ? 4711 : 0;
  config.instructions = 2000000; /* of a loop that has lost its end */
  simcuda_set_config(&config);
}

typedef struct subject {
  int kernel;
  ptx_case t;
  flyi_cuda_code *code;
  flyi_section sound;
  flyi_hash hash;
  outcome expected;
} subject;

/* Tiles of 16 and of 32 queries are odd in number: the next head's first one takes the place of the last. Rows are
 * gathered, or in order: then what lies behind the last row is behind the tensor. The last tiles are ragged, rows
 * repeat where `finish` has to sum them. Few queries see several tiles of each part of the keys. */
static void open_subject(subject *s, int kernel, bool gathered) {
  const flyi_cuda_code *code;
  fly_error error;
  const bool split = kernels[kernel].direction == FLYI_DIRECTION_SPLIT;
  backward_spec spec = {.call = {.type = kernels[kernel].type,
                                 .dim = kernels[kernel].dim,
                                 .heads = 2,
                                 .kv_heads = 1,
                                 .len_q = 139,
                                 .len_kv = 140,
                                 .q_rows = gathered,
                                 .kv_rows = gathered},
                        .d_lse = true};
  if (split) spec.call.len_q = 3, spec.call.len_kv = 990, spec.call.q_offset = 987;
  if (!strcmp(kernels[kernel].kernel, "fly_backward_finish")) spec.call.kv_rows = 3;
  *s = (subject){.kernel = kernel};
  ptx_init(&s->t, &spec, split ? &holes : &window, "sm_80");
  ck_fly_ok(flyi_kernel_cuda(s->t.kernel, kernels[kernel].direction, "sm_80", &code, &error), error);
  s->code = (flyi_cuda_code *)code;
  s->sound = code->ptx, s->hash = code->hash;
  s->expected = run(&s->t, is_backward(kernel));
  ck_assert_msg(!s->expected.reported, "%s", s->expected.report);
}

static void close_subject(subject *s) {
  s->code->ptx = s->sound, s->code->hash = s->hash;
  ptx_free(&s->t);
}

/* The outcome of mutant n; false: there are not so many. */
static bool run_mutant(subject *s, kind k, int n, int variant, outcome *o) {
  char *ptx = malloc(s->sound.size);
  memcpy(ptx, s->sound.data, s->sound.size);
  char *line = place(ptx, kernels[s->kernel].kernel, k, n);
  bool there = line && mutate(line, k, variant);
  if (there) {
    s->code->ptx = (flyi_section){ptx, s->sound.size};
    s->code->hash = flyi_hash_bytes(ptx, s->sound.size);
    *o = run(&s->t, is_backward(s->kernel));
    s->code->ptx = s->sound;
  }
  free(ptx);
  return there;
}

/* The same mutant with its other operand, and where scores change their sign, a way of its own
 * in the forward kernel. */
static bool reported_at_all(subject *s, kind k, int n, outcome *o) {
  fly_attention *c = &s->t.base.base.call;
  outcome other;
  if (k == CLAMP && !o->reported && run_mutant(s, k, n, 1, &other) && other.reported) *o = other;
  c->scale = -0.125f;
  if (!o->reported && !is_backward(s->kernel) && run_mutant(s, k, n, 0, &other) && other.reported) *o = other;
  c->scale = 0;
  return o->reported;
}

/* What must be noticed of so many. */
static int least_of(int kernel, kind k, int places) {
  switch (k) {
  case WAIT:
  case BARRIER:
    return places;
  case COMMIT:
    return places - kernels[kernel].idle;
  case ZEROS:
    return kernels[kernel].zeros ? places / 3 : 0;
  case CLAMP:
    return kernels[kernel].clamp;
  default:
    return 1;
  }
}

/* All mutants of a kind; returns how many there are. Bounds count where their removal leads out of bounds. */
static int run_mutants(subject *s, subject *in_order, kind k, int *noticed) {
  const char *kernel = kernels[s->kernel].kernel, *type = fly_type_name(kernels[s->kernel].type);
  int places = 0;
  *noticed = 0;
  for (outcome o, other; run_mutant(s, k, places, 0, &o); places++) {
    const bool wrong = o.digest != s->expected.digest;
    const bool outside = reported_at_all(s, k, places, &o) && !strcmp(check_of(&o), "out of bounds");
    if (in_order && !outside && run_mutant(in_order, k, places, 0, &other) && other.reported &&
        (!o.reported || !strcmp(check_of(&other), "out of bounds")))
      o = other;
    *noticed += k == BRANCH || k == ZEROS ? o.reported && !strcmp(check_of(&o), "out of bounds") : o.reported;
    printf("mutant.%s.%s.%d.%s %d: %s\n", kernel, type, kernels[s->kernel].dim, kinds[k].name, places,
           o.reported ? check_of(&o)
           : wrong    ? "a wrong result"
                      : "the same bits");
  }
  printf("mutant.%s.%s.%d.%s: %d of %d noticed\n", kernel, type, kernels[s->kernel].dim, kinds[k].name, *noticed,
         places);
  return places;
}

START_TEST(a_mutant_is_reported) { /* _i: kernel * KINDS + kind */
  const int kernel = _i / KINDS;
  const kind k = (kind)(_i % KINDS);
  const bool both = k == ZEROS || k == CLAMP; /* branches are many: in order alone */
  for (int copies = 0; copies < (k < ZEROS ? 3 : 1); copies++) {
    subject s, in_order;
    int noticed;
    set_copies(copies);
    open_subject(&s, kernel, k != BRANCH);
    if (both) open_subject(&in_order, kernel, false);
    const int places = run_mutants(&s, both ? &in_order : NULL, k, &noticed);
    ck_assert_msg(noticed >= least_of(kernel, k, places), "%s, %s: %d of %d are noticed, not %d",
                  kernels[kernel].kernel, kinds[k].name, noticed, places, least_of(kernel, k, places));
    close_subject(&s);
    if (both) close_subject(&in_order);
  }
}
END_TEST

static Suite *suite(void) {
  static char names[KERNELS * KINDS][64]; /* Check keeps the pointers */
  Suite *suite = suite_create("ptx_mutants");
  for (int i = 0; i < KERNELS * KINDS; i++) {
    snprintf(names[i], sizeof names[i], "%s.%s.%d.%s", kernels[i / KINDS].kernel,
             fly_type_name(kernels[i / KINDS].type), kernels[i / KINDS].dim, kinds[i % KINDS].name);
    TCase *mutants = tcase_create(names[i]);
    tcase_add_loop_test(mutants, a_mutant_is_reported, i, i + 1);
    suite_add_tcase(suite, mutants);
  }
  return suite;
}

FLY_TEST_MAIN(suite)
