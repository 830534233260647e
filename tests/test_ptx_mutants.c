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
#include "simcuda/simcuda.h"
#include "support/ptx_case.h"
#include "support/ptx_mutate.h"

/* clang-format off */
PTX_MASK(window, return q - kv <= 90 && kv <= q;)
PTX_MASK(holes, return kv <= q && (q ^ kv) % 5;)
/* clang-format on */
/* Reads tokens, which the kernel of dK and dV stages in shared memory. No oracle asks it. */
static const ptx_mask tokens = {
    "tokens", shows_window,
    "#include <flymask/mask.h>\nbool mask(int b, int h, int q, int kv) "
    "{ return q - kv <= 90 && kv - q <= 90 && fly_token_kv(b, h, kv) <= fly_token_q(b, h, q); }"};

static const struct {
  const char *kernel;
  fly_type type;
  flyi_direction direction;
  int idle;         /* commits that only split a group which is waited for as a whole */
  int dim;          /* small ones and large ones have other tiles, and keep other operands */
  bool zeros;       /* columns are padded: copies of whole chunks leave the tensor */
  int clamp;        /* how many of these must be reported */
  const char *with; /* tokens: the mask that reads them; sink: one for each head */
} kernels[] = {{"fly_forward", FLY_BF16, FLYI_DIRECTION_FORWARD, 1, 56, true, 0, NULL},
               {"fly_forward", FLY_BF16, FLYI_DIRECTION_FORWARD, 1, 120, true, 0, NULL},
               {"fly_forward", FLY_F32, FLYI_DIRECTION_FORWARD, 1, 56, false, 0, NULL},
               {"fly_split", FLY_BF16, FLYI_DIRECTION_SPLIT, 0, 56, true, 0, NULL},
               {"fly_split", FLY_F32, FLYI_DIRECTION_SPLIT, 1, 56, false, 0, NULL},
               {"fly_backward_rows", FLY_BF16, FLYI_DIRECTION_BACKWARD, 0, 56, false, 1, NULL},
               {"fly_backward_keys", FLY_BF16, FLYI_DIRECTION_BACKWARD, 0, 56, true, 0, NULL},
               {"fly_backward_keys", FLY_BF16, FLYI_DIRECTION_BACKWARD, 0, 120, true, 0, NULL},
               {"fly_backward_keys", FLY_F32, FLYI_DIRECTION_BACKWARD, 0, 56, false, 0, NULL},
               {"fly_backward_queries", FLY_BF16, FLYI_DIRECTION_BACKWARD, 0, 56, true, 0, NULL},
               {"fly_backward_queries", FLY_F32, FLYI_DIRECTION_BACKWARD, 0, 56, false, 0, NULL},
               {"fly_backward_queries", FLY_BF16, FLYI_DIRECTION_BACKWARD, 0, 120, true, 0, NULL},
               {"fly_backward_finish", FLY_BF16, FLYI_DIRECTION_BACKWARD, 0, 56, false, 1, NULL},
               {"fly_backward_keys", FLY_BF16, FLYI_DIRECTION_BACKWARD, 0, 56, true, 0, "tokens"},
               {"fly_backward_keys", FLY_BF16, FLYI_DIRECTION_BACKWARD, 0, 120, true, 0, "tokens"},
               {"fly_backward_sink", FLY_BF16, FLYI_DIRECTION_BACKWARD, 0, 56, false, 0, "sink"}};
enum { KERNELS = sizeof kernels / sizeof kernels[0], HEADS = 2 };

static bool is_with(int kernel, const char *what) {
  return kernels[kernel].with && !strcmp(kernels[kernel].with, what);
}
static bool is_backward(int kernel) { return kernels[kernel].direction == FLYI_DIRECTION_BACKWARD; }

/* KERNEL.TYPE.DIM.KIND, or KERNEL.WITH.TYPE.DIM.KIND */
static void name_of(char name[80], int kernel, ptx_kind kind) {
  const char *with = kernels[kernel].with;
  snprintf(name, 80, "%s%s%s.%s.%d.%s", kernels[kernel].kernel, with ? "." : "", with ? with : "",
           fly_type_name(kernels[kernel].type), kernels[kernel].dim, ptx_kind_name(kind));
}

/* ---- a run ------------------------------------------------------------------------------------------------------- */

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
static ptx_outcome run(ptx_case *t, bool backward) {
  ptx_outcome o = {0};
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
  const fly_tensor *written[] = {&c->out, &c->lse, &c->d_q, &c->d_k, &c->d_v, &c->d_sink};
  for (int i = backward ? 2 : 0; i < (backward ? 6 : 2); i++) o.digest = digest(o.digest, written[i]);
  if (c->d_sink.data) memset(c->d_sink.data, 0, HEADS * sizeof(float));
  if (backward)
    backward_reset(&t->base);
  else
    call_reset(&t->base.base);
  return o;
}

/* ---- the suite --------------------------------------------------------------------------------------------------- */

typedef struct subject {
  int kernel;
  ptx_case t;
  flyi_cuda_code *code;
  flyi_section sound;
  flyi_hash hash;
  ptx_outcome expected;
  float sink[HEADS], d_sink[HEADS];
} subject;

/* A value that some queries of its tile do not see is an infinity: the forward kernel works their rows out again. */
static double put_value(subject *s, double value) {
  const fly_tensor *v = &s->t.base.base.call.v;
  double before = oracle_get(v, 0, 0, 70, 1);
  oracle_set(v, 0, 0, 70, 1, value);
  return before;
}

/* Tiles of 16 and of 32 queries are odd in number: the next head's first one takes the place of the last. Rows are
 * gathered, or in order: then what lies behind the last row is behind the tensor. The last tiles are ragged, rows
 * repeat where `finish` has to sum them. Few queries see several tiles of each part of the keys. */
static void open_subject(subject *s, int kernel, bool gathered) {
  const flyi_cuda_code *code;
  fly_error error;
  const bool split = kernels[kernel].direction == FLYI_DIRECTION_SPLIT;
  backward_spec spec = {.call = {.type = kernels[kernel].type,
                                 .dim = kernels[kernel].dim,
                                 .heads = HEADS,
                                 .kv_heads = 1,
                                 .len_q = 139,
                                 .len_kv = 140,
                                 .q_rows = gathered,
                                 .kv_rows = gathered},
                        .d_lse = true};
  if (split) spec.call.len_q = 3, spec.call.len_kv = 990, spec.call.q_offset = 987;
  if (!strcmp(kernels[kernel].kernel, "fly_backward_finish")) spec.call.kv_rows = 3;
  *s = (subject){.kernel = kernel};
  ptx_init(&s->t, &spec, split ? &holes : is_with(kernel, "tokens") ? &tokens : &window, "sm_80");
  if (is_with(kernel, "sink")) {
    fly_attention *c = &s->t.base.base.call;
    s->sink[1] = 0.5f;
    c->sink = fly_tensor_dense(s->sink, FLY_F32, 1, HEADS, 1, 1);
    c->d_sink = fly_tensor_dense(s->d_sink, FLY_F32, 1, HEADS, 1, 1);
  }
  ck_fly_ok(flyi_kernel_cuda(s->t.kernel, kernels[kernel].direction, "sm_80", &code, &error), error);
  s->code = (flyi_cuda_code *)code;
  s->sound = code->ptx, s->hash = code->hash;
  double value = put_value(s, INFINITY);
  s->expected = run(&s->t, is_backward(kernel));
  ck_assert_msg(!s->expected.reported, "%s", s->expected.report);
  put_value(s, value);
  s->expected = run(&s->t, is_backward(kernel));
  ck_assert_msg(!s->expected.reported, "%s", s->expected.report);
}

static void close_subject(subject *s) {
  s->code->ptx = s->sound, s->code->hash = s->hash;
  ptx_free(&s->t);
}

/* The outcome of mutant n; false: there are not so many. */
static bool run_mutant(subject *s, ptx_kind k, int n, int variant, ptx_outcome *o) {
  char *ptx = malloc(s->sound.size);
  memcpy(ptx, s->sound.data, s->sound.size);
  bool there = ptx_mutate(ptx, kernels[s->kernel].kernel, k, n, variant);
  if (there) {
    s->code->ptx = (flyi_section){ptx, s->sound.size};
    s->code->hash = flyi_hash_bytes(ptx, s->sound.size);
    *o = run(&s->t, is_backward(s->kernel));
    s->code->ptx = s->sound;
  }
  free(ptx);
  return there;
}

/* The same mutant with its other operand; and where scores change their sign, or with an infinity, ways of their own in
 * the forward kernel. */
static bool reported_at_all(subject *s, ptx_kind k, int n, ptx_outcome *o) {
  fly_attention *c = &s->t.base.base.call;
  ptx_outcome other;
  if (k == PTX_CLAMP && !o->reported && run_mutant(s, k, n, 1, &other) && other.reported) *o = other;
  c->scale = -0.125f;
  if (!o->reported && !is_backward(s->kernel) && run_mutant(s, k, n, 0, &other) && other.reported) *o = other;
  c->scale = 0;
  double value = put_value(s, INFINITY);
  if (!o->reported && k == PTX_BARRIER && run_mutant(s, k, n, 0, &other) && other.reported) *o = other;
  put_value(s, value);
  return o->reported;
}

/* What must be noticed of so many. */
static int least_of(int kernel, ptx_kind k, int places) {
  switch (k) {
  case PTX_WAIT:
  case PTX_BARRIER:
    return places;
  case PTX_COMMIT:
    return places - kernels[kernel].idle;
  case PTX_ZEROS:
    return kernels[kernel].zeros ? places / 3 : 0;
  case PTX_CLAMP:
    return kernels[kernel].clamp;
  default:
    return 1;
  }
}

/* All mutants of a kind; returns how many there are. Bounds count where their removal leads out of bounds. */
static int run_mutants(subject *s, subject *in_order, ptx_kind k, int *noticed) {
  int places = 0;
  char name[80];
  name_of(name, s->kernel, k);
  *noticed = 0;
  for (ptx_outcome o, other; run_mutant(s, k, places, 0, &o); places++) {
    const bool wrong = o.digest != s->expected.digest;
    const bool outside = reported_at_all(s, k, places, &o) && !strcmp(ptx_check_of(&o), "out of bounds");
    if (in_order && !outside && run_mutant(in_order, k, places, 0, &other) && other.reported &&
        (!o.reported || !strcmp(ptx_check_of(&other), "out of bounds")))
      o = other;
    *noticed += o.reported && ((k != PTX_BRANCH && k != PTX_ZEROS) || !strcmp(ptx_check_of(&o), "out of bounds"));
    printf("mutant.%s %d: %s\n", name, places,
           o.reported ? ptx_check_of(&o)
           : wrong    ? "a wrong result"
                      : "the same bits");
  }
  printf("mutant.%s: %d of %d noticed\n", name, *noticed, places);
  return places;
}

START_TEST(a_mutant_is_reported) { /* _i: kernel * PTX_KINDS + kind */
  const int kernel = _i / PTX_KINDS;
  const ptx_kind k = (ptx_kind)(_i % PTX_KINDS);
  const bool both = k == PTX_ZEROS || k == PTX_CLAMP; /* branches are many: in order alone */
  for (int copies = 0; copies < (k < PTX_ZEROS ? 3 : 1); copies++) {
    subject s, in_order;
    int noticed;
    ptx_set_copies(copies);
    open_subject(&s, kernel, k != PTX_BRANCH);
    if (both) open_subject(&in_order, kernel, false);
    const int places = run_mutants(&s, both ? &in_order : NULL, k, &noticed);
    ck_assert_msg(noticed >= least_of(kernel, k, places), "%s, %s: %d of %d are noticed, not %d",
                  kernels[kernel].kernel, ptx_kind_name(k), noticed, places, least_of(kernel, k, places));
    close_subject(&s);
    if (both) close_subject(&in_order);
  }
}
END_TEST

static Suite *suite(void) {
  static char names[KERNELS * PTX_KINDS][80]; /* Check keeps the pointers */
  Suite *suite = suite_create("ptx_mutants");
  for (int i = 0; i < KERNELS * PTX_KINDS; i++) {
    name_of(names[i], i / PTX_KINDS, (ptx_kind)(i % PTX_KINDS));
    TCase *mutants = tcase_create(names[i]);
    tcase_add_loop_test(mutants, a_mutant_is_reported, i, i + 1);
    suite_add_tcase(suite, mutants);
  }
  return suite;
}

FLY_TEST_MAIN(suite)
