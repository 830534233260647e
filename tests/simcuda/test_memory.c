/* test_memory.c: loads and stores of every space, type and vector, generic addresses, atomics, calls, tables of
 * branches, special registers, constants and initial values, asynchronous copies with zero fill, mbarriers and bulk
 * copies. */
#include <stdio.h>

#include "op.h"

#define HEAD ".version 8.3\n.target sm_80\n.address_size 64\n"
#define HEAD90 ".version 8.3\n.target sm_90\n.address_size 64\n"
#define ENTRY                                                                                                          \
  ".visible .entry k(.param .u64 p, .param .u64 q) {\n.reg .b64 %g, %o, %z, %y; .reg .b32 %t, %a, %b, %x<9>; .reg "    \
  ".b16 %h<9>; .reg .f32 %f<9>; .reg .pred %p, %q;\n"                                                                  \
  "ld.param.u64 %g, [p]; ld.param.u64 %o, [q]; mov.u32 %t, %tid.x;\n"

/* Runs k(p, q) with one block; q holds `bytes` bytes of results. */
static void run(const char *ptx, const void *in, size_t in_bytes, void *out, size_t bytes, unsigned threads,
                unsigned dynamic) {
  CUdeviceptr p = gpu_new(in, in_bytes), q = gpu_new(NULL, bytes);
  void *params[] = {&p, &q};
  ck_cu(gpu_launch(ptx, "k", 1, threads, dynamic, params));
  gpu_read(out, q, bytes);
  gpu_free(p);
  gpu_free(q);
}

START_TEST(loads_extend_by_their_type_into_wider_registers) {
  uint8_t bytes[16] = {0x80, 0xff, 0x7f, 0x81, 0xfe, 0xff, 0xff, 0x8f, 1, 2, 3, 4, 5, 6, 7, 0x88};
  uint64_t r[8];
  run(HEAD ENTRY "ld.global.s8 %z, [%g]; st.global.u64 [%o], %z; ld.global.u8 %z, [%g]; st.global.u64 [%o+8], %z; "
                 "ld.global.s16 %z, [%g+2]; st.global.u64 [%o+16], %z;\n"
                 "ld.global.u32 %z, [%g+4]; st.global.u64 [%o+24], %z; ld.global.s32 %z, [%g+4]; st.global.u64 "
                 "[%o+32], %z; ld.global.s8 %x1, [%g+1]; cvt.u64.u32 %z, %x1; st.global.u64 [%o+40], %z;\n"
                 "ld.global.b8 %h1, [%g+3]; cvt.u64.u16 %z, %h1; st.global.u64 [%o+48], %z; ld.global.s8 %h1, [%g]; "
                 "cvt.u64.u16 %z, %h1; st.global.u64 [%o+56], %z; ret; }",
      bytes, sizeof bytes, r, sizeof r, 1, 0);
  uint64_t want[8] = {(uint64_t)-128, 0x80,  (uint64_t)(int16_t)0x817f, 0x8ffffffe, 0xffffffff8ffffffe, 0xffffffff,
                      0x81,           0xff80};
  ck_assert_mem_eq(r, want, sizeof r);
}
END_TEST

START_TEST(vectors_go_and_come_in_order) {
  uint32_t in[8] = {11, 22, 33, 44, 55, 66, 77, 88}, r[8];
  run(HEAD ENTRY ".local .align 16 .b8 depot[64]; ld.global.v4.u32 {%x1,%x2,%x3,%x4}, [%g+16]; mov.u32 %a, depot; "
                 "st.local.v2.b32 [%a+8], {%x1,%x2}; st.local.v2.b32 [%a], {%x3,%x4};\n"
                 "ld.local.v4.b32 {%x5,%x6,%x7,%x8}, [%a]; st.global.v4.b32 [%o], {%x5,%x6,%x7,%x8}; mov.u64 %z, "
                 "depot; cvta.local.u64 %z, %z; ld.u32 %x1, [%z+4]; st.global.u32 [%o+16], %x1;\n"
                 "mov.u32 %x2, 0x11223344; st.global.u8 [%o+20], %x2; shr.u32 %x2, %x2, 8; st.global.u8 [%o+21], %x2; "
                 "mov.u16 %h1, 0x5566; st.global.u16 [%o+22], %h1;\n"
                 "ld.global.v2.u64 {%z,_}, [%g]; st.global.u64 [%o+24], %z; ret; }",
      in, sizeof in, r, sizeof r, 1, 0);
  uint32_t want[8] = {77, 88, 55, 66, 88, 0x55663344, 11, 22};
  ck_assert_mem_eq(r, want, sizeof r);
}
END_TEST

START_TEST(generic_addresses_lead_to_their_spaces) {
  uint32_t in[2] = {5, 6}, r[8];
  run(HEAD ".const .align 4 .b32 six[2] = {60, 61};\n.global .align 8 .b32 nine[3] = {90, 91};\n" ENTRY
           ".shared .align 8 .b8 sh[16]; mov.u32 %a, sh; st.shared.u32 [%a+4], 123; mov.u64 %z, sh; cvta.shared.u64 "
           "%z, %z; ld.u32 %x1, [%z+4]; st.global.u32 [%o], %x1;\n"
           "isspacep.shared %p, %z; selp.u32 %x2, 1, 0, %p; isspacep.global %p, %z; selp.u32 %x3, 2, 0, %p; or.b32 "
           "%x2, %x2, %x3; st.global.u32 [%o+4], %x2;\n"
           "cvta.to.shared.u64 %z, %z; cvt.u32.u64 %b, %z; ld.shared.u32 %x1, [%b+4]; st.global.u32 [%o+8], %x1; "
           "mov.u64 %z, six; cvta.const.u64 %z, %z; ld.u32 %x1, [%z+4]; st.global.u32 [%o+12], %x1;\n"
           "mov.u64 %z, nine; ld.global.u32 %x1, [%z+4]; ld.global.u32 %x2, [nine+8]; st.global.v2.u32 [%o+16], {%x1, "
           "%x2}; ld.const.u32 %x1, [six]; isspacep.global %p, %g;\n"
           "selp.u32 %x2, 1, 0, %p; st.global.v2.u32 [%o+24], {%x1, %x2}; ret; }",
      in, sizeof in, r, sizeof r, 1, 0);
  uint32_t want[8] = {123, 1, 123, 61, 91, 0, 60, 1};
  ck_assert_mem_eq(r, want, sizeof r);
}
END_TEST

START_TEST(static_and_dynamic_shared_memory_lie_apart) {
  uint32_t in[1] = {0}, r[4];
  run(HEAD ".extern .shared .align 16 .b8 dyn[];\n.shared .align 4 .b8 fixed[20];\n" ENTRY
           "st.shared.u32 [fixed+16], 7; st.shared.u32 [dyn], 8; st.shared.u32 [dyn+60], 9; ld.shared.u32 %x1, "
           "[fixed+16]; ld.shared.u32 %x2, [dyn]; ld.shared.u32 %x3, [dyn+60]; mov.u32 %x4, %dynamic_smem_size;\n"
           "st.global.v4.u32 [%o], {%x1,%x2,%x3,%x4}; ret; }",
      in, sizeof in, r, sizeof r, 1, 64);
  uint32_t want[4] = {7, 8, 9, 64};
  ck_assert_mem_eq(r, want, sizeof r);
}
END_TEST

START_TEST(atomics_return_what_was_there) {
  uint32_t in[16] = {10, 10, 10, 5, 5, 0, 7, 0xf0, 0xf0, 0xf0, 0x3f800000, 0}, r[28];
  run(HEAD ENTRY
      "atom.global.add.u32 %x0, [%g], 3; st.global.u32 [%o], %x0; atom.global.min.s32 %x0, [%g+4], -3; st.global.u32 "
      "[%o+4], %x0; atom.global.max.u32 %x0, [%g+8], -3; st.global.u32 [%o+8], %x0;\n"
      "atom.global.inc.u32 %x0, [%g+12], 5; st.global.u32 [%o+12], %x0; atom.global.inc.u32 %x0, [%g+16], 6; "
      "st.global.u32 [%o+16], %x0; atom.global.dec.u32 %x0, [%g+20], 9; st.global.u32 [%o+20], %x0;\n"
      "atom.relaxed.gpu.global.cas.b32 %x0, [%g+24], 7, 77; st.global.u32 [%o+24], %x0; atom.global.and.b32 %x0, "
      "[%g+28], 0x3c; st.global.u32 [%o+28], %x0; atom.global.or.b32 %x0, [%g+32], 0x3c; st.global.u32 [%o+32], %x0;\n"
      "atom.global.exch.b32 %x0, [%g+36], 42; st.global.u32 [%o+36], %x0; atom.global.add.f32 %f0, [%g+40], "
      "0f40000000; st.global.f32 [%o+40], %f0; red.global.add.u32 [%g+44], 1; mov.u32 %x0, 0; st.global.u32 [%o+44], "
      "%x0;\n"
      "mov.u32 %a, 0; loop: ld.global.u32 %x1, [%g]; st.global.u32 [%o+48], %x1; add.s64 %g, %g, 4; add.s64 %o, %o, 4; "
      "add.u32 %a, %a, 1; setp.lt.u32 %p, %a, 12; @%p bra loop; ret; }",
      in, sizeof in, r, sizeof r, 1, 0);
  uint32_t before[12] = {10, 10, 10, 5, 5, 0, 7, 0xf0, 0xf0, 0xf0, 0x3f800000, 0};
  uint32_t after[12] = {13, (uint32_t)-3, (uint32_t)-3, 0, 6, 9, 77, 0x30, 0xfc, 42, 0x40400000, 1};
  ck_assert_mem_eq(r, before, sizeof before);
  ck_assert_mem_eq(r + 12, after, sizeof after);
}
END_TEST

START_TEST(wide_and_packed_atomics) {
  uint64_t in[4] = {UINT64_C(1) << 40, 0, 0x3c003c003c003c00, 5}, r[4];
  double half = 0.5;
  memcpy(&in[1], &half, 8);
  run(HEAD ENTRY
      ".reg .f64 %d; atom.global.add.u64 %z, [%g], 7; atom.global.add.f64 %d, [%g+8], 0d3FF8000000000000; mov.b32 %x1, "
      "0x40003c00; atom.global.add.noftz.f16x2 %x0, [%g+16], %x1; atom.global.cas.b64 %y, [%g+24], 5, 6;\n"
      "ld.global.u64 %z, [%g]; st.global.u64 [%o], %z; ld.global.u64 %z, [%g+8]; st.global.u64 [%o+8], %z; "
      "ld.global.u64 %z, [%g+16]; st.global.u64 [%o+16], %z; ld.global.u64 %z, [%g+24]; st.global.u64 [%o+24], %z; "
      "ret; }",
      in, sizeof in, r, sizeof r, 1, 0);
  double sum;
  memcpy(&sum, &r[1], 8);
  ck_assert_uint_eq(r[0], (UINT64_C(1) << 40) + 7);
  ck_assert_double_eq(sum, 2.0);
  ck_assert_uint_eq(r[2], 0x3c003c0042004000); /* 1 + 2 on top of 1 + 1 */
  ck_assert_uint_eq(r[3], 6);
}
END_TEST

START_TEST(atomics_of_all_blocks_add_up) {
  static const char ptx[] = HEAD ENTRY
      "red.global.add.u32 [%g], %t; atom.global.max.u32 %x1, [%g+4], %t; red.global.add.f32 [%g+8], 0f3F800000; ret; }";
  uint32_t in[3] = {0, 0, 0}, r[3];
  CUdeviceptr p = gpu_new(in, sizeof in);
  void *params[] = {&p, &p};
  ck_cu(gpu_launch(ptx, "k", 50, 96, 0, params));
  gpu_read(r, p, sizeof r);
  ck_assert_uint_eq(r[0], 50 * 95 * 96 / 2);
  ck_assert_uint_eq(r[1], 95);
  ck_assert_float_eq(f32_of(r[2]), 4800);
  gpu_free(p);
}
END_TEST

START_TEST(functions_are_called_with_values_and_structs) {
  uint32_t in[64], r[64];
  for (uint32_t i = 0; i < 64; i++) in[i] = i * 3;
  run(HEAD ".func (.param .b32 r) twice(.param .b32 x) { .reg .b32 %v; ld.param.b32 %v, [x]; add.u32 %v, %v, %v; "
           "st.param.b32 [r], %v; ret; }\n"
           ".func (.param .b32 r) mix(.param .align 8 .b8 s[16], .param .b32 x) { .reg .b32 %v, %w; .reg .pred %p; "
           "ld.param.b32 %v, [x]; ld.param.b32 %w, [s+8]; setp.gt.u32 %p, %v, %w; @%p bra over;\n"
           "{ .param .b32 a; .param .b32 b; st.param.b32 [a], %v; call.uni (b), twice, (a); ld.param.b32 %v, [b]; } "
           "over: add.u32 %v, %v, 1; st.param.b32 [r], %v; ret; }\n" ENTRY
           "mad.wide.u32 %z, %t, 4, %g; ld.global.u32 %x1, [%z]; mov.u32 %x2, 90; { .param .align 8 .b8 s[16]; .param "
           ".b32 x; .param .b32 y; st.param.b32 [s+8], %x2; st.param.b32 [x], %x1; call (y), mix, (s, x); ld.param.b32 "
           "%x3, [y]; }\n"
           "setp.lt.u32 %p, %t, 10; @!%p bra skip; { .param .b32 x; .param .b32 y; st.param.b32 [x+0], %x3; call (y), "
           "twice, (x); ld.param.b32 %x3, [y+0]; } skip: bar.sync 0; mad.wide.u32 %z, %t, 4, %o; st.global.u32 [%z], "
           "%x3; ret; }",
      in, sizeof in, r, sizeof r, 64, 0);
  for (uint32_t i = 0; i < 64; i++) {
    uint32_t v = in[i] > 90 ? in[i] + 1 : 2 * in[i] + 1;
    ck_assert_uint_eq(r[i], i < 10 ? 2 * v : v);
  }
}
END_TEST

START_TEST(tables_of_branches) {
  uint32_t in[1] = {0}, r[32];
  run(HEAD ENTRY
      "rem.u32 %x1, %t, 3; list: .branchtargets zero, one, two; brx.idx %x1, list; zero: mov.u32 %x2, 100; bra.uni "
      "done; one: mov.u32 %x2, 200; bra.uni done; two: mov.u32 %x2, 300;\n"
      "done: bar.warp.sync -1; add.u32 %x2, %x2, %t; mad.wide.u32 %z, %t, 4, %o; st.global.u32 [%z], %x2; ret; }",
      in, sizeof in, r, sizeof r, 32, 0);
  for (uint32_t i = 0; i < 32; i++) ck_assert_uint_eq(r[i], 100 * (i % 3 + 1) + i);
}
END_TEST

START_TEST(special_registers_tell_the_place) {
  static const char ptx[] = HEAD ENTRY
      "mov.u32 %x0, %ctaid.x; mov.u32 %x1, %ctaid.y; mov.u32 %x2, %nctaid.x; mad.lo.u32 %x0, %x1, %x2, %x0; mov.u32 "
      "%x1, %ntid.x; mov.u32 %x2, %ntid.y; mul.lo.u32 %x3, %x1, %x2; mov.u32 %x4, %tid.y;\n"
      "mad.lo.u32 %x4, %x4, %x1, %t; mad.lo.u32 %x5, %x0, %x3, %x4; mul.wide.u32 %z, %x5, 16; add.u64 %o, %o, %z; "
      "mov.u32 %x6, %laneid; mov.u32 %x7, %warpid; mov.u32 %x8, %lanemask_lt; mov.u32 %x0, %nwarpid;\n"
      "st.global.v4.u32 [%o], {%x6,%x7,%x8,%x0}; ret; }";
  enum { N = 3 * 2 * 48 };
  uint32_t r[N][4];
  CUdeviceptr p = gpu_new(NULL, sizeof r);
  CUmodule module;
  CUfunction function;
  void *params[] = {&p, &p};
  ck_cu(cuModuleLoadData(&module, ptx));
  ck_cu(cuModuleGetFunction(&function, module, "k"));
  ck_cu(cuLaunchKernel(function, 3, 2, 1, 12, 4, 1, 0, NULL, params, NULL));
  gpu_read(r, p, sizeof r);
  for (uint32_t i = 0; i < N; i++) {
    uint32_t t = i % 48;
    ck_assert_uint_eq(r[i][0], t % 32);
    ck_assert_uint_eq(r[i][1], t / 32);
    ck_assert_uint_eq(r[i][2], (1u << t % 32) - 1);
    ck_assert_uint_eq(r[i][3], 2);
  }
  ck_cu(cuModuleUnload(module));
  gpu_free(p);
}
END_TEST

/* --- asynchronous copies; _i: late, eager, random ------------------------------------------------ */
static void copies(int mode, int arch) {
  simcuda_config config;
  simcuda_get_config(&config);
  config.copies = mode;
  config.seed = mode == SIMCUDA_RANDOM ? 99 : 0;
  config.arch = arch;
  simcuda_set_config(&config);
}

START_TEST(copies_fill_with_zeros_beyond_their_source) {
  uint8_t in[64], r[64];
  for (int i = 0; i < 64; i++) in[i] = (uint8_t)(i + 1);
  copies(_i, 80);
  run(HEAD ENTRY
      ".shared .align 16 .b8 sh[64]; mov.u32 %a, sh; mov.u32 %x1, 5; mov.u32 %x2, 0; cp.async.cg.shared.global [%a], "
      "[%g], 16; cp.async.cg.shared.global [%a+16], [%g+16], 16, %x1; cp.async.ca.shared.global [%a+32], [%g+32], 8, "
      "3;\n"
      "cp.async.ca.shared.global [%a+40], [%g+40], 4; cp.async.ca.shared.global.L2::128B [%a+44], [%g+44], 4, %x2; "
      "cp.async.cg.shared.global [%a+48], [%g+48], 16; cp.async.commit_group; cp.async.wait_group 0;\n"
      "ld.shared.v4.u32 {%x1,%x2,%x3,%x4}, [%a]; st.global.v4.u32 [%o], {%x1,%x2,%x3,%x4}; ld.shared.v4.u32 "
      "{%x1,%x2,%x3,%x4}, [%a+16]; st.global.v4.u32 [%o+16], {%x1,%x2,%x3,%x4};\n"
      "ld.shared.v4.u32 {%x1,%x2,%x3,%x4}, [%a+32]; st.global.v4.u32 [%o+32], {%x1,%x2,%x3,%x4}; ld.shared.v4.u32 "
      "{%x1,%x2,%x3,%x4}, [%a+48]; st.global.v4.u32 [%o+48], {%x1,%x2,%x3,%x4}; ret; }",
      in, sizeof in, r, sizeof r, 1, 0);
  for (int i = 0; i < 64; i++)
    ck_assert_uint_eq(r[i], (i >= 21 && i < 32) || (i >= 35 && i < 40) || (i >= 44 && i < 48) ? 0 : i + 1);
}
END_TEST

START_TEST(groups_complete_in_order) {
  uint32_t in[4] = {1, 2, 3, 4}, r[4];
  copies(_i, 80);
  run(HEAD ENTRY
      ".shared .align 16 .b8 sh[16]; mov.u32 %a, sh; cp.async.ca.shared.global [%a], [%g], 4; cp.async.commit_group; "
      "cp.async.ca.shared.global [%a+4], [%g+4], 4; cp.async.commit_group; cp.async.ca.shared.global [%a+8], [%g+8], "
      "4;\n"
      "cp.async.wait_group 1; ld.shared.u32 %x1, [%a]; cp.async.wait_group 0; ld.shared.u32 %x2, [%a+4]; "
      "cp.async.wait_all; ld.shared.u32 %x3, [%a+8]; mov.u32 %x4, 4; st.global.v4.u32 [%o], {%x1,%x2,%x3,%x4}; ret; }",
      in, sizeof in, r, sizeof r, 1, 0);
  ck_assert_mem_eq(r, in, sizeof r);
}
END_TEST

START_TEST(mbarriers_pass_data_between_warps) {
  /* warp 0 produces four times into one buffer, warp 1 consumes: full and empty barriers with parities */
  uint32_t in[1] = {0}, r[4 * 32];
  copies(_i, 80);
  run(HEAD ENTRY
      ".shared .align 8 .b8 bars[16]; .shared .align 4 .b8 sh[128]; .reg .b32 %n, %ph; mov.u32 %a, bars; setp.eq.u32 "
      "%p, %t, 0; @%p mbarrier.init.shared.b64 [%a], 32; @%p mbarrier.init.shared.b64 [%a+8], 32;\n"
      "bar.sync 0; mov.u32 %n, 0; and.b32 %x1, %t, 31; shl.b32 %x2, %x1, 2; mov.u32 %b, sh; add.u32 %b, %b, %x2; "
      "setp.ge.u32 %p, %t, 32; @%p bra consumer;\n"
      "produce: and.b32 %ph, %n, 1; xor.b32 %ph, %ph, 1; empty: mbarrier.test_wait.parity.shared.b64 %q, [%a+8], %ph; "
      "@!%q bra empty; mad.lo.u32 %x3, %n, 100, %t; st.shared.u32 [%b], %x3; mbarrier.arrive.shared.b64 %z, [%a];\n"
      "add.u32 %n, %n, 1; setp.lt.u32 %q, %n, 4; @%q bra produce; bra.uni done;\n"
      "consumer: and.b32 %ph, %n, 1; full: mbarrier.test_wait.parity.shared.b64 %q, [%a], %ph; @!%q bra full; "
      "ld.shared.u32 %x3, [%b]; mbarrier.arrive.shared.b64 %z, [%a+8]; mad.lo.u32 %x4, %n, 32, %x1; mad.wide.u32 %y, "
      "%x4, 4, %o;\n"
      "st.global.u32 [%y], %x3; add.u32 %n, %n, 1; setp.lt.u32 %q, %n, 4; @%q bra consumer; done: ret; }",
      in, sizeof in, r, sizeof r, 64, 0);
  for (uint32_t i = 0; i < 128; i++) ck_assert_uint_eq(r[i], i / 32 * 100 + i % 32);
}
END_TEST

START_TEST(copies_arrive_on_mbarriers) {
  uint32_t in[64], r[64];
  for (uint32_t i = 0; i < 64; i++) in[i] = i * i;
  copies(_i, 80);
  run(HEAD ENTRY
      ".shared .align 8 .b8 bar[8]; .shared .align 4 .b8 sh[256]; mov.u32 %a, bar; setp.eq.u32 %p, %t, 0; @%p "
      "mbarrier.init.shared.b64 [%a], 64; bar.sync 0; shl.b32 %x1, %t, 2; mov.u32 %b, sh; add.u32 %x2, %b, %x1;\n"
      "mad.wide.u32 %z, %t, 4, %g; cp.async.ca.shared.global [%x2], [%z], 4; cp.async.mbarrier.arrive.noinc.shared.b64 "
      "[%a]; wait: mbarrier.test_wait.parity.shared.b64 %q, [%a], 0; @!%q bra wait; xor.b32 %x1, %x1, 128;\n"
      "add.u32 %x2, %b, %x1; ld.shared.u32 %x3, [%x2]; mad.wide.u32 %z, %t, 4, %o; st.global.u32 [%z], %x3; ret; }",
      in, sizeof in, r, sizeof r, 64, 0);
  for (uint32_t i = 0; i < 64; i++) ck_assert_uint_eq(r[i], (i ^ 32) * (i ^ 32));
}
END_TEST

START_TEST(bulk_copies_complete_by_bytes) {
  uint32_t in[64], r[64];
  for (uint32_t i = 0; i < 64; i++) in[i] = i + 1000;
  copies(_i, 90);
  run(HEAD90 ENTRY
      ".shared .align 8 .b8 bar[8]; .shared .align 16 .b8 sh[256]; mov.u32 %a, bar; mov.u32 %b, sh; setp.eq.u32 %p, "
      "%t, 0; @%p mbarrier.init.shared::cta.b64 [%a], 1; @%p fence.proxy.async.shared::cta; bar.sync 0;\n"
      "@!%p bra wait; mbarrier.arrive.expect_tx.shared::cta.b64 _, [%a], 256; mov.u32 %x1, 256; "
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%b], [%g], %x1, [%a];\n"
      "wait: mbarrier.try_wait.parity.shared::cta.b64 %q, [%a], 0; @!%q bra wait; mad.lo.u32 %x1, %t, 4, %b; "
      "ld.shared.u32 %x2, [%x1]; mad.wide.u32 %z, %t, 4, %o; st.global.u32 [%z], %x2; ret; }",
      in, sizeof in, r, sizeof r, 64, 0);
  ck_assert_mem_eq(r, in, sizeof r);
}
END_TEST

START_TEST(bulk_copies_store_from_shared_memory) {
  uint32_t in[64], r[64];
  for (uint32_t i = 0; i < 64; i++) in[i] = i + 7;
  copies(_i, 90);
  run(HEAD90 ENTRY
      ".shared .align 16 .b8 sh[256]; mov.u32 %b, sh; mad.lo.u32 %x1, %t, 4, %b; mad.wide.u32 %z, %t, 4, %g; "
      "ld.global.u32 %x2, [%z]; st.shared.u32 [%x1], %x2; fence.proxy.async.shared::cta; bar.sync 0; setp.eq.u32 %p, "
      "%t, 0; @!%p bra done; cp.async.bulk.global.shared::cta.bulk_group [%o], [%b], 128; "
      "cp.async.bulk.commit_group; cp.async.bulk.global.shared::cta.bulk_group [%o+128], [%b+128], 128; "
      "cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 1; st.shared.u32 [%b], 0; "
      "cp.async.bulk.wait_group 0; done: ret; }",
      in, sizeof in, r, sizeof r, 64, 0);
  ck_assert_mem_eq(r, in, sizeof r);
}
END_TEST

static Suite *suite(void) {
  Suite *s = suite_create("simcuda.memory");
  TCase *c = tcase_create("memory");
  tcase_add_checked_fixture(c, gpu_start, gpu_stop);
  tcase_add_test(c, loads_extend_by_their_type_into_wider_registers);
  tcase_add_test(c, vectors_go_and_come_in_order);
  tcase_add_test(c, generic_addresses_lead_to_their_spaces);
  tcase_add_test(c, static_and_dynamic_shared_memory_lie_apart);
  tcase_add_test(c, atomics_return_what_was_there);
  tcase_add_test(c, wide_and_packed_atomics);
  tcase_add_test(c, atomics_of_all_blocks_add_up);
  tcase_add_test(c, functions_are_called_with_values_and_structs);
  tcase_add_test(c, tables_of_branches);
  tcase_add_test(c, special_registers_tell_the_place);
  tcase_add_loop_test(c, copies_fill_with_zeros_beyond_their_source, 0, 3);
  tcase_add_loop_test(c, groups_complete_in_order, 0, 3);
  tcase_add_loop_test(c, mbarriers_pass_data_between_warps, 0, 3);
  tcase_add_loop_test(c, copies_arrive_on_mbarriers, 0, 3);
  tcase_add_loop_test(c, bulk_copies_complete_by_bytes, 0, 3);
  tcase_add_loop_test(c, bulk_copies_store_from_shared_memory, 0, 3);
  suite_add_tcase(s, c);
  return s;
}
GPU_TEST_MAIN(suite)
