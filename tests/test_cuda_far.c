/* Tensors whose last rows lie more than 4 GiB behind their first, on the simulated driver, where only the pages that
 * are touched exist: each tensor of a call in turn, against double precision. */
#include "backward_case.h"
#include "cuda_case.h"
#include "simcuda/simcuda.h"

enum { TENSORS = 9, DIM = 32 };

static const fly_type types[] = {FLY_BF16, FLY_F32};
static fly_cuda *cuda;

static void open_device(void) {
  simcuda_config config;
  simcuda_get_config(&config);
  config.memory = (uint64_t)1 << 36, config.no_races = 1; /* which would take twice the memory */
  simcuda_set_config(&config);
  cuda = cuda_open();
}
static void close_device(void) { fly_cuda_release(&cuda); }

static fly_tensor *tensor_at(fly_attention *c, int i) {
  fly_tensor *all[TENSORS] = {&c->q, &c->k, &c->v, &c->out, &c->lse, &c->d_out, &c->d_q, &c->d_k, &c->d_v};
  return all[i];
}

/* The rows of a tensor of one head, between host and device. */
static void copy_rows(const fly_tensor *device, const fly_tensor *host, bool back) {
  size_t size = fly_type_size(host->type), bytes = (size_t)host->shape[3] * size;
  for (int64_t r = 0; r < host->shape[2]; r++) {
    char *there = (char *)device->data + (size_t)(r * device->stride[2]) * size;
    char *here = (char *)host->data + (size_t)(r * host->stride[2]) * size;
    fly_error error;
    ck_fly_ok(back ? fly_cuda_read(cuda, here, there, bytes, NULL, &error)
                   : fly_cuda_write(cuda, there, here, bytes, NULL, &error),
              error);
  }
}

/* The rows of *device, which hold what the host's do, so far apart that all of them take 4.5 GiB. */
static void spread(fly_tensor *device, const fly_tensor *host) {
  int64_t apart = ((int64_t)9 << 29) / host->shape[2] / 64 * 64;
  fly_error error;
  ck_fly_ok(fly_cuda_alloc(cuda, (size_t)(apart * host->shape[2]), &device->data, &error), error);
  device->stride[2] = apart / (int64_t)fly_type_size(host->type);
  device->stride[1] = device->stride[0] = device->stride[2] * host->shape[2];
  copy_rows(device, host, false);
}

/* Forward or backward with tensor `i` far and the others near. */
static void run(fly_attention *c, const fly_kernel *kernel, int i, bool backward) {
  cuda_call on;
  fly_error error;
  cuda_call_init(&on, cuda, c, kernel);
  fly_tensor *far = tensor_at(&on.call, i);
  const fly_tensor *host = tensor_at(c, i);
  spread(far, host);
  cuda_ok(backward ? fly_attention_backward(&on.call, &error) : fly_attention_forward(&on.call, &error), &error);
  cuda_ok(fly_cuda_synchronize(cuda, NULL, &error), &error);
  cuda_call_fetch(&on, backward);
  copy_rows(far, host, true);
  fly_cuda_free(cuda, &far->data);
  cuda_call_free(&on);
}

START_TEST(rows_far_apart) {
  int sides[2] = {40, 3};
  backward_spec spec = {.call = {.type = types[_i], .dim = DIM, .len_q = 70, .len_kv = 70}};
  backward_case t;
  cuda_case d;
  backward_init(&t, &spec, see_window, sides);
  fly_attention *c = &t.base.call;
  cuda_case_open_window(&d, c, &t.base.spec, 40, 3, 0);
  for (int i = 0; i < TENSORS; i++) {
    char what[40];
    snprintf(what, sizeof what, "tensor %d is far", i);
    if (i < 5) {
      call_reset(&t.base);
      run(c, d.kernel, i, false);
      oracle_check_units(c, see_window, sides, CALL_UNTOUCHED, what);
      oracle_forward(c, see_window, sides);
    }
    backward_reset(&t);
    run(c, d.kernel, i, true);
    oracle_check_backward_units(c, see_window, sides, cuda_operands(types[_i]), what);
  }
  cuda_case_close(&d);
  backward_free(&t);
}
END_TEST

START_TEST(few_queries_and_keys_far_apart) {
  int sides[2] = {-1, -1};
  call_spec spec = {.type = types[_i], .dim = DIM, .len_q = 2, .len_kv = 600};
  call_case t;
  cuda_case d;
  call_init(&t, &spec, see_window, sides);
  cuda_case_open_window(&d, &t.call, &t.spec, -1, -1, 0);
  for (int i = 0; i < 5; i++) {
    call_reset(&t);
    run(&t.call, d.kernel, i, false);
    oracle_check_units(&t.call, see_window, sides, CALL_UNTOUCHED, "few queries");
  }
  cuda_case_close(&d);
  call_free(&t);
}
END_TEST

static Suite *make_suite(void) {
  Suite *suite = suite_create("cuda_far");
  TCase *tests = tcase_create("far");
  tcase_add_checked_fixture(tests, open_device, close_device);
  tcase_add_loop_test(tests, rows_far_apart, 0, 2);
  tcase_add_loop_test(tests, few_queries_and_keys_far_apart, 0, 2);
  suite_add_tcase(suite, tests);
  return suite;
}

FLY_TEST_MAIN(make_suite)
