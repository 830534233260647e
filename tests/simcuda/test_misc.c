/* test_misc.c: the instructions that the other suites leave out: barriers that reduce, arrive and admit parts of
 * warps, mbarriers' other operations, tests of floats, approximations of halves, parts of registers, hints and
 * clocks. */
#include <stdio.h>

#include "exact.h"
#include "op.h"

#define HEAD ".version 8.3\n.target sm_80\n.address_size 64\n"
#define HEAD90 ".version 8.3\n.target sm_90\n.address_size 64\n"
#define ENTRY                                                                                                          \
  ".visible .entry k(.param .u64 p) {\n.reg .b64 %o, %z, %y; .reg .b32 %t, %a, %b, %x<9>; .reg .b16 %h<5>; .reg .f32 " \
  "%f<4>; .reg .pred %p, %q;\nld.param.u64 %o, [p]; mov.u32 %t, %tid.x; mad.wide.u32 %o, %t, 4, %o;\n"

static operands in;
static uint64_t out[OP_MOST];

/* Each of `threads` threads stores one word. */
static void run(const char *ptx, uint32_t *r, unsigned threads) {
  CUdeviceptr p = gpu_new(NULL, threads * 4);
  void *params[] = {&p};
  ck_cu(gpu_launch(ptx, "k", 1, threads, 0, params));
  gpu_read(r, p, threads * 4);
  gpu_free(p);
}
static void device(int arch) {
  simcuda_config config;
  simcuda_get_config(&config);
  config.arch = arch;
  simcuda_set_config(&config);
}

START_TEST(barriers_reduce_predicates) {
  uint32_t r[96];
  run(HEAD ENTRY
      "setp.lt.u32 %p, %t, 40; bar.red.popc.u32 %x1, 0, %p; bar.red.and.pred %q, 0, !%p; selp.u32 %x2, 1000, 0, "
      "%q; bar.red.or.pred %q, 0, %p; selp.u32 %x3, 10000, 0, %q; add.u32 %x1, %x1, %x2; add.u32 %x1, %x1, "
      "%x3; setp.lt.u32 %p, %t, 1000; bar.red.and.pred %q, 3, 96, %p; selp.u32 %x2, 100000, 0, %q; add.u32 "
      "%x1, %x1, %x2; st.global.u32 [%o], %x1; ret; }",
      r, 96);
  for (int i = 0; i < 96; i++) ck_assert_uint_eq(r[i], 110040);
}
END_TEST

START_TEST(barriers_without_aligned_take_parts_of_warps) {
  uint32_t r[64];
  run(HEAD ENTRY
      ".shared .align 4 .b8 sh[4]; setp.lt.u32 %p, %t, 7; @%p bra few; barrier.sync 1; ld.shared.u32 %x1, [sh]; bra "
      "done; few: setp.eq.u32 %q, %t, 3; @%q st.shared.u32 [sh], 55; barrier.sync 1; mov.u32 %x1, 44; done: "
      "barrier.cta.sync.aligned 0; st.global.u32 [%o], %x1; ret; }",
      r, 64);
  for (int i = 0; i < 64; i++) ck_assert_uint_eq(r[i], i < 7 ? 44 : 55);
}
END_TEST

START_TEST(mbarriers_count_bytes_drop_and_begin_anew) {
  uint32_t r[32];
  device(90);
  run(HEAD90 ENTRY ".shared .align 8 .b8 m[8]; mov.u32 %a, m; setp.eq.u32 %p, %t, 0; @!%p bra done; "
                   "mbarrier.init.shared::cta.b64 [%a], 2; "
                   "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%a], 64; mbarrier.arrive.shared::cta.b64 %z, [%a]; "
                   "mbarrier.arrive_drop.shared::cta.b64 %y, [%a]; mbarrier.test_wait.shared::cta.b64 %q, [%a], %z; "
                   "selp.u32 %x1, 1, 0, %q; "
                   "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%a], 64; mbarrier.test_wait.shared::cta.b64 %q, "
                   "[%a], %z; selp.u32 %x2, "
                   "10, 0, %q; mbarrier.test_wait.parity.shared::cta.b64 %q, [%a], 1; selp.u32 %x3, 100, 0, %q; "
                   "mbarrier.arrive.shared::cta.b64 %y, [%a], 1; mbarrier.test_wait.parity.shared::cta.b64 %q, [%a], "
                   "1; selp.u32 %x4, 1000, 0, "
                   "%q; mbarrier.inval.shared::cta.b64 [%a]; mbarrier.init.shared::cta.b64 [%a], 5; "
                   "mbarrier.test_wait.parity.shared::cta.b64 %q, [%a], 1; selp.u32 %x5, 10000, 0, %q; add.u32 %x1, "
                   "%x1, %x2; add.u32 %x1, "
                   "%x1, %x3; add.u32 %x1, %x1, %x4; add.u32 %x1, %x1, %x5; st.global.u32 [%o], %x1; done: ret; }",
      r, 32);
  /* bytes outstanding: not complete; then phase 0 is done, phase 1 is not; one arrival is enough after the drop; a
   * fresh barrier answers true for parity 1 */
  ck_assert_uint_eq(r[0], 11010);
}
END_TEST

START_TEST(one_lane_is_elected) {
  uint32_t r[64];
  device(90);
  run(HEAD90 ENTRY
      "elect.sync %x1|%p, -1; selp.u32 %x2, 100, 0, %p; add.u32 %x1, %x1, %x2; st.global.u32 [%o], %x1; ret; }",
      r, 64);
  int leaders = 0;
  for (int i = 0; i < 32; i++) leaders += r[i] >= 100;
  ck_assert_int_eq(leaders, 1);
}
END_TEST

START_TEST(hints_fences_and_clocks_change_nothing) {
  uint32_t r[32];
  run(HEAD ENTRY
      ".shared .align 4 .b8 sh[128]; prefetch.global.L2 [%o]; nanosleep.u32 20; membar.gl; fence.acq_rel.gpu; "
      "membar.cta; "
      "fence.sc.sys; mov.u32 %x1, %clock; mov.u64 %z, %clock64; mov.u64 %y, %globaltimer; shl.b32 %x2, %t, 2; mov.u32 "
      "%a, "
      "sh; add.u32 %a, %a, %x2; st.volatile.shared.u32 [%a], %t; ld.volatile.shared.u32 %x3, [%a]; "
      "st.relaxed.gpu.global.u32 [%o], %x3; ld.acquire.gpu.global.u32 %x3, [%o]; st.release.sys.global.u32 [%o], %x3; "
      "ld.global.L1::no_allocate.L2::128B.u32 %x4, [%o]; atom.shared.add.u32 %x5, [%a], 3; red.shared.max.u32 [%a], 5; "
      "ld.shared.u32 %x6, [%a]; add.u32 %x4, %x4, %x6; st.global.cs.u32 [%o], %x4; ret; }",
      r, 32);
  for (uint32_t i = 0; i < 32; i++) ck_assert_uint_eq(r[i], i + (i + 3 > 5 ? i + 3 : 5));
}
END_TEST

START_TEST(copies_ignore_their_source_where_told) {
  uint32_t r[32];
  run(HEAD ENTRY
      ".shared .align 4 .b8 sh[128]; st.global.u32 [%o], 9; shl.b32 %x2, %t, 2; mov.u32 %a, sh; add.u32 %a, %a, %x2; "
      "setp.lt.u32 %p, %t, 12; cp.async.ca.shared.global [%a], [%o], 4, %p; cp.async.wait_all; ld.shared.u32 %x1, "
      "[%a]; "
      "st.global.u32 [%o], %x1; ret; }",
      r, 32);
  for (int i = 0; i < 32; i++) ck_assert_uint_eq(r[i], i < 12 ? 0 : 9);
}
END_TEST

/* --- lane by lane -------------------------------------------------------------------------------- */
START_TEST(parts_of_registers) {
  operands_int(&in, 5);
  op_run("{.reg .b16 h<4>; mov.b64 {h0,h1,h2,h3}, %a; mov.b64 %d, {h3,h2,h1,h0};}", "ll", &in, out);
  for (int i = 0; i < in.count; i++)
    for (int k = 0; k < 4; k++) ck_assert((out[i] >> (16 * k) & 0xffff) == (in.a[i] >> (48 - 16 * k) & 0xffff));
  op_run("{.reg .b16 h; mov.b32 {_, h}, %a; mov.b32 %d, {h, h};}", "rr", &in, out);
  for (int i = 0; i < in.count; i++) ck_assert(out[i] == (in.a[i] >> 16 & 0xffff) * 0x10001);
  op_run("mul24.lo.u32 %d, %a, %b;", "rrr", &in, out);
  for (int i = 0; i < in.count; i++) ck_assert(out[i] == (uint32_t)((in.a[i] & 0xffffff) * (in.b[i] & 0xffffff)));
  op_run("mul24.lo.s32 %d, %a, %b;", "rrr", &in, out);
  for (int i = 0; i < in.count; i++) { /* sign-extended from 24 bits */
    int64_t a = (int64_t)(in.a[i] & 0xffffff) - (in.a[i] & 0x800000 ? 1 << 24 : 0);
    int64_t b = (int64_t)(in.b[i] & 0xffffff) - (in.b[i] & 0x800000 ? 1 << 24 : 0);
    ck_assert(out[i] == (uint32_t)(a * b));
  }
  op_run("dp2a.hi.u32.s32 %d, %a, %b, %c;", "rrrr", &in, out);
  for (int i = 0; i < in.count; i++) {
    int64_t sum = (int64_t)(in.c[i] & 0xffffffff);
    for (int k = 0; k < 2; k++) sum += (int64_t)(in.a[i] >> (16 * k) & 0xffff) * (int8_t)(in.b[i] >> (16 + 8 * k));
    ck_assert(out[i] == (uint32_t)sum);
  }
  op_run("bfind.shiftamt.u32 %d, %a;", "rr", &in, out);
  for (int i = 0; i < in.count; i++) {
    uint32_t a = (uint32_t)in.a[i], n = 0;
    while (n < 32 && !(a << n & 0x80000000)) n++;
    ck_assert(out[i] == (a ? n : 0xffffffff));
  }
  op_run("bmsk.wrap.b32 %d, %a, %b;", "rrr", &in, out);
  for (int i = 0; i < in.count; i++)
    for (unsigned k = 0; k < 32; k++)
      ck_assert((out[i] >> k & 1) == (k >= (in.a[i] & 31) && k - (in.a[i] & 31) < (in.b[i] & 31)));
  op_run("cnot.b32 %d, %a;", "rr", &in, out);
  for (int i = 0; i < in.count; i++) ck_assert(out[i] == ((uint32_t)in.a[i] == 0));
}
END_TEST

START_TEST(floats_are_classified_and_select) {
  static const char *const tests[] = {"finite", "infinite", "number", "notanumber", "normal", "subnormal"};
  operands_f32(&in, 6);
  for (int k = 0; k < 6; k++) {
    char text[60];
    snprintf(text, sizeof text, "testp.%s.f32 %%d, %%a;", tests[k]);
    op_run(text, "pf", &in, out);
    for (int i = 0; i < in.count; i++) {
      uint32_t e = in.a[i] >> 23 & 255, m = in.a[i] & 0x7fffff;
      bool want[] = {e < 255, e == 255 && !m, e < 255 || !m, e == 255 && m, e > 0 && e < 255, e == 0 && m};
      ck_assert(out[i] == want[k]);
    }
  }
  op_run("slct.f32.f32 %d, %a, %b, %c;", "ffff", &in, out);
  for (int i = 0; i < in.count; i++) ck_assert(out[i] == (f32_of(in.c[i]) >= 0 ? in.a[i] : in.b[i]));
  op_run("set.lt.f32.f32 %d, %a, %b;", "fff", &in, out);
  for (int i = 0; i < in.count; i++) ck_assert(f32_of(out[i]) == (f32_of(in.a[i]) < f32_of(in.b[i])));
  op_run("set.geu.u32.f32 %d, %a, %b;", "rff", &in, out);
  for (int i = 0; i < in.count; i++) ck_assert(out[i] == (!(f32_of(in.a[i]) < f32_of(in.b[i])) ? 0xffffffff : 0));
  op_run("max.ftz.f32 %d, %a, 0f00000000;", "ff", &in, out);
  for (int i = 0; i < in.count; i++) {
    float a = f32_of(in.a[i]);
    ck_assert(same_value(f32_of(out[i]), a >= 0x1p-126f ? a : 0));
  }
  device(86);
  ck_cu(op_try("min.xorsign.abs.f32 %d, %a, %b;", "fff", &in, out, 86));
  for (int i = 0; i < in.count; i++) {
    float a = f32_of(in.a[i]), b = f32_of(in.b[i]), v = fminf(fabsf(a), fabsf(b));
    if (a == a && b == b) ck_assert(same_value(f32_of(out[i]), signbit(a) != signbit(b) ? -v : v));
  }
  op_run("div.full.f32 %d, %a, %b;", "fff", &in, out);
  for (int i = 0; i < in.count; i++) { /* two ulps, as the ISA says; not at the ends of the range */
    double a = f32_of(in.a[i]), b = f32_of(in.b[i]), q = a / b;
    if (fabs(b) > 0x1p-100 && fabs(b) < 0x1p100 && fabs(q) > 0x1p-100 && fabs(q) < 0x1p100)
      ck_assert(fabs(f32_of(out[i]) - q) <= fabs(q) * 0x1p-22);
  }
}
END_TEST

START_TEST(approximations_of_halves) { /* _i: 0 f16, 1 bf16 */
  char text[80];
  operands_16(&in, 7, _i);
  for (int op = 0; op < 2; op++) {
    snprintf(text, sizeof text,
             _i && !op ? "%s.approx.ftz.bf16 %%d, %%a;"
             : _i      ? "%s.approx.bf16 %%d, %%a;"
                       : "%s.approx.f16 %%d, %%a;",
             op ? "tanh" : "ex2");
    device(90);
    ck_cu(op_try(text, "hh", &in, out, 90));
    for (int i = 0; i < in.count; i++) {
      double x = _i ? value_bf16(in.a[i] & 0xffff) : value_f16(in.a[i] & 0xffff), want = op ? tanh(x) : exp2(x);
      double got = _i ? value_bf16(out[i]) : value_f16(out[i]), top = _i ? 0x1.fep127 : 65504,
             least = _i ? 0x1p-126 : 0x1p-14;
      if (!(fabs(want) <= top) || fabs(want) < least) continue;
      ck_assert(fabs(got - want) <= fabs(want) * (_i ? 0x1p-7 : 0x1p-9));
    }
  }
}
END_TEST

START_TEST(packed_bf16_minimum_and_fused_relu) {
  operands_16(&in, 8, true);
  for (int i = 0; i < in.count; i++)
    in.a[i] = (in.a[i] & 0xffff) | in.b[i] << 16, in.b[i] = (in.b[i] & 0xffff) | in.c[i] << 16;
  op_run("min.NaN.bf16x2 %d, %a, %b;", "rrr", &in, out);
  for (int i = 0; i < in.count; i++)
    for (int h = 0; h < 32; h += 16) {
      double a = value_bf16(in.a[i] >> h & 0xffff), b = value_bf16(in.b[i] >> h & 0xffff);
      double want = a != a || b != b ? NAN : a == b ? (signbit(a) ? a : b) : a < b ? a : b;
      ck_assert(same_value(value_bf16(out[i] >> h & 0xffff), want));
    }
  op_run("abs.bf16x2 %d, %a;", "rr", &in, out);
  for (int i = 0; i < in.count; i++) ck_assert(out[i] == (in.a[i] & 0x7fff7fff));
}
END_TEST

static Suite *suite(void) {
  Suite *s = suite_create("simcuda.misc");
  TCase *c = tcase_create("misc");
  tcase_add_checked_fixture(c, gpu_start, gpu_stop);
  tcase_add_test(c, barriers_reduce_predicates);
  tcase_add_test(c, barriers_without_aligned_take_parts_of_warps);
  tcase_add_test(c, mbarriers_count_bytes_drop_and_begin_anew);
  tcase_add_test(c, one_lane_is_elected);
  tcase_add_test(c, hints_fences_and_clocks_change_nothing);
  tcase_add_test(c, copies_ignore_their_source_where_told);
  tcase_add_test(c, parts_of_registers);
  tcase_add_test(c, floats_are_classified_and_select);
  tcase_add_loop_test(c, approximations_of_halves, 0, 2);
  tcase_add_test(c, packed_bf16_minimum_and_fused_relu);
  suite_add_tcase(s, c);
  return s;
}
GPU_TEST_MAIN(suite)
