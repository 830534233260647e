/* test_checks.c: each check of the simulated driver finds its fault, names it, and lets the sound kernel pass. A case
 * is the body of a kernel with one line marked: with that line as it is the kernel runs; changed, it is reported. */
#include <stdio.h>

#include "gpu.h"

typedef struct fault_case {
  const char *name, *body;
  const char *good, *bad; /* replace the one '@@' of the body */
  CUresult error;
  const char *report; /* must occur in the report */
  unsigned threads, dynamic;
} fault_case;

/* %g: a buffer of 1,024 ints; %c: constant memory; %t: thread, %w: warp; sh: 4 KiB of static shared memory */
static const char prologue[] =
    ".version 8.3\n.target sm_80\n.address_size 64\n.const .align 4 .b32 table[4] = {1, 2, 3, 4};\n"
    ".visible .entry k(.param .u64 p) {\n.reg .b32 %t, %w, %a, %b, %x, %y, %s; .reg .b64 %g, %c, %z; .reg .pred %p, "
    "%q;\n"
    ".reg .b16 %h; .reg .f32 %f; .shared .align 16 .b8 sh[4096];\n"
    "ld.param.u64 %g, [p]; mov.u64 %c, table; mov.u32 %t, %tid.x; shr.u32 %w, %t, 5; mov.u32 %s, sh; shl.b32 %b, %t, "
    "2; add.u32 %a, %s, %b;\n";

#define RACE CUDA_ERROR_LAUNCH_FAILED, "race"
#define STORE_READ_OTHER                                                                                               \
  "st.shared.u32 [%a], %t;\n@@\nxor.b32 %b, %b, 128; add.u32 %a, %s, %b; ld.shared.u32 %x, [%a];\n"

/* Warp 0 stores data, then a flag; warp 1 polls it and reads. */
#define FLAG(before, after)                                                                                            \
  "setp.eq.u32 %p, %t, 0; @%p st.shared.u32 [%s+512], 0; bar.sync 0; setp.lt.u32 %q, %t, 32; @!%q bra take; "          \
  "st.shared.u32 [%a], %t; bar.warp.sync -1; " before " @%p st.volatile.shared.u32 [%s+512], 1; bra done; "            \
  "take: ld.volatile.shared.u32 %x, [%s+512]; setp.eq.u32 %p, %x, 0; @%p bra take; " after                             \
  " ld.shared.u32 %y, [%a+-128]; done:"

/* A body that begins with ! is for sm_90. */
#define BULK(expected, fence)                                                                                          \
  "!setp.eq.u32 %p, %t, 0; @!%p bra go; mbarrier.init.shared::cta.b64 [%s], 1; " fence                                 \
  " mbarrier.arrive.expect_tx.shared::cta.b64 _, [%s], " expected "; add.u32 %x, %s, 16; mov.u32 %y, 128; "            \
  "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%x], [%g], %y, [%s]; go: bar.sync 0; "
#define POLL "poll: mbarrier.try_wait.parity.shared::cta.b64 %q, [%s], 0; @!%q bra poll;"
#define BULK_STORE(fence, wait)                                                                                        \
  "!st.shared.u32 [%a], %t; " fence " bar.sync 0; setp.ne.u32 %p, %t, 0; @%p exit; mov.u32 %y, 128; "                  \
  "cp.async.bulk.global.shared::cta.bulk_group [%g], [%s], %y; cp.async.bulk.commit_group; " wait

static const fault_case cases[] = {
    {"global load beyond the end", "ld.global.u32 %x, [%g+@@];", "4092", "4096", CUDA_ERROR_ILLEGAL_ADDRESS,
     "out of bounds", 1, 0},
    {"global store before the begin", "st.global.u32 [%g+@@], %t;", "0", "-4", CUDA_ERROR_ILLEGAL_ADDRESS,
     "out of bounds", 1, 0},
    {"vector load over the end", "ld.global.v4.u32 {%x,%x,%x,%x}, [%g+@@];", "4080", "4096", CUDA_ERROR_ILLEGAL_ADDRESS,
     "out of bounds", 1, 0},
    {"wild pointer", "mov.u64 %z, 64; @@ ld.global.u32 %x, [%z];", "mov.u64 %z, %g;", "", CUDA_ERROR_ILLEGAL_ADDRESS,
     "nothing is at", 1, 0},
    {"misaligned load", "ld.global.@@ [%g+4];", "u32 %x,", "v2.u32 {%x,%y},", CUDA_ERROR_MISALIGNED_ADDRESS,
     "misaligned", 1, 0},
    {"misaligned shared store", "st.shared.u32 [%s+@@], %t;", "4", "2", CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned", 1,
     0},
    {"shared store beyond the end", "st.shared.u32 [%s+@@], %t;", "4092", "4096", CUDA_ERROR_ILLEGAL_ADDRESS,
     "out of bounds", 1, 0},
    {"write to constant memory", "@@.u32 [%z], %t;", "mov.u64 %z, %g; st.global", "mov.u64 %z, %c; st.global",
     CUDA_ERROR_ILLEGAL_ADDRESS, "constant", 1, 0},
    {"global load of constant memory", "ld.@@.u32 %x, [%c];", "const", "global", CUDA_ERROR_INVALID_ADDRESS_SPACE,
     "constant", 1, 0},
    {"write to a parameter", "@@", "mov.u32 %x, 1;", "mov.u64 %z, p; cvta.param.u64 %z, %z; st.u32 [%z], %t;",
     CUDA_ERROR_ILLEGAL_ADDRESS, "parameter", 1, 0},
    {"uninitialised register", "@@ add.u32 %y, %x, 1;", "mov.u32 %x, 3;", "", CUDA_ERROR_LAUNCH_FAILED,
     "uninitialised register %x", 1, 0},
    {"register set on one way only",
     "setp.lt.u32 %p, %t, 3; setp.gt.u32 %q, %t, 99;\n@@ bra over;\nmov.u32 %x, 3;\nover: add.u32 %y, %x, 1;", "@%q",
     "@%p", CUDA_ERROR_LAUNCH_FAILED, "uninitialised", 32, 0},
    {"register set under a guard", "setp.lt.u32 %p, %t, 3; @@ mov.u32 %x, 3; add.u32 %y, %x, 1;", "", "@%p",
     CUDA_ERROR_LAUNCH_FAILED, "lane 3", 32, 0},
    {"uninitialised guard", "@@ @%p add.u32 %y, %t, 1;", "setp.lt.u32 %p, %t, 3;", "", CUDA_ERROR_LAUNCH_FAILED,
     "uninitialised", 1, 0},
    {"uninitialised value handed on by mov", "@@ mov.u32 %y, %x; add.u32 %y, %y, 1;", "mov.u32 %x, 3;", "",
     CUDA_ERROR_LAUNCH_FAILED, "uninitialised register %y", 1, 0},
    {"uninitialised shared memory", "@@ ld.shared.u32 %x, [%a];", "st.shared.u32 [%a], %t;", "",
     CUDA_ERROR_LAUNCH_FAILED, "uninitialised shared memory", 32, 0},
    {"one uninitialised byte",
     "mov.u16 %h, 7; st.shared.u8 [%a], %h; st.shared.u8 [%a+1], %h; @@ ld.shared.u16 %h, [%a+2]; ",
     "st.shared.u8 [%a+2], %h; st.shared.u8 [%a+3], %h;", "st.shared.u8 [%a+3], %h;", CUDA_ERROR_LAUNCH_FAILED,
     "uninitialised shared memory, byte 2", 1, 0},
    {"read before a barrier", STORE_READ_OTHER, "bar.sync 0;", "bar.warp.sync -1;", CUDA_ERROR_LAUNCH_FAILED, "shared",
     64, 0},
    {"write after another warp's read",
     "st.shared.u32 [%a], %t; bar.sync 0; ld.shared.u32 %x, [%s];\n@@\nsetp.eq.u32 %p, %t, 63; @%p st.shared.u32 [%s], "
     "%t;",
     "bar.sync 0;", "", RACE, 64, 0},
    {"two warps write one word", "setp.eq.u32 %p, %t, @@; setp.eq.or.u32 %p, %t, 63, %p; @%p st.shared.u32 [%s], %t;",
     "63", "0", RACE, 64, 0},
    {"neighbours' halves of a word are no race",
     "shl.b32 %b, %t, @@; add.u32 %a, %s, %b; mov.u16 %h, 1; shr.u32 %x, %t, 5; st.shared.u16 [%a], %h;", "1", "0",
     CUDA_ERROR_MISALIGNED_ADDRESS, "", 64, 0},
    {"lanes of a warp without bar.warp.sync",
     "st.shared.u32 [%a], %t;\n@@\nxor.b32 %b, %b, 4; add.u32 %a, %s, %b; ld.shared.u32 %x, [%a];", "bar.warp.sync -1;",
     "", RACE, 32, 0},
    {"atomics do not race, a plain write does",
     "setp.eq.u32 %p, %t, 0; @%p st.shared.u32 [%s], 0; bar.sync 0; @@.u32 [%s], 1;", "red.shared.add", "st.shared",
     RACE, 64, 0},
    {"barrier in a part of a warp", "setp.lt.u32 %p, %t, 7; @@ bar.sync 0;", "", "@%p", CUDA_ERROR_LAUNCH_FAILED,
     "a part of the warp", 32, 0},
    {"barrier after lanes have exited", "setp.lt.u32 %p, %t, 7; @@ bar.sync 0;", "", "@%p exit;",
     CUDA_ERROR_LAUNCH_FAILED, "exited", 32, 0},
    {"barrier that a warp never reaches", "setp.eq.u32 %p, %w, 1; @@ bar.sync 0;", "", "@%p exit;",
     CUDA_ERROR_LAUNCH_TIMEOUT, "deadlock", 64, 0},
    {"counts that differ",
     "setp.eq.u32 %p, %w, 1; @%p bra other; bar.sync 1, 96; bra.uni done; other: bar.sync 1, @@; done:", "96", "64",
     CUDA_ERROR_LAUNCH_FAILED, "barrier misuse", 96, 0},
    {"count that is no multiple of a warp", "mov.u32 %x, @@; bar.sync 1, %x;", "64", "48", CUDA_ERROR_LAUNCH_FAILED,
     "barrier misuse", 64, 0},
    {"barrier number 16", "mov.u32 %x, @@; bar.sync %x;", "15", "16", CUDA_ERROR_LAUNCH_FAILED, "barrier misuse", 64,
     0},
    {"producer and consumer",
     "setp.eq.u32 %p, %w, 1; @%p bra take; st.shared.u32 [%a], %t; @@ bra.uni done; take: bar.sync 2, 64; "
     "ld.shared.u32 %x, [%a+-128]; done:",
     "bar.arrive 2, 64;", "", CUDA_ERROR_LAUNCH_TIMEOUT, "deadlock", 64, 0},
    {"consumer that does not wait",
     "setp.eq.u32 %p, %w, 0; @%p bra put; @@ ld.shared.u32 %x, [%a+-128]; bra.uni done; put: st.shared.u32 [%a], %t; "
     "bar.arrive 2, 64; done:",
     "bar.sync 2, 64;", "bar.arrive 2, 64;", CUDA_ERROR_LAUNCH_FAILED, "shared", 64, 0},
    {"shuffle in a part of a warp", "setp.lt.u32 %p, %t, 7; @@ shfl.sync.bfly.b32 %x, %t, 1, 31, -1;", "", "@%p",
     CUDA_ERROR_LAUNCH_FAILED, "member mask", 32, 0},
    {"vote of lanes not in the mask", "setp.lt.u32 %p, %t, 7; vote.sync.any.pred %q, %p, @@;", "-1", "3",
     CUDA_ERROR_LAUNCH_FAILED, "member mask", 32, 0},
    {"trap", "setp.gt.u32 %p, %t, @@; @%p trap;", "31", "30", CUDA_ERROR_LAUNCH_FAILED, "trap", 32, 0},
    {"endless loop", "loop: add.u32 %t, %t, 1; setp.ne.u32 %p, %t, @@; @%p bra loop;", "1000", "0", CUDA_SUCCESS, "", 1,
     0},
    {"asynchronous copy without a wait",
     "cp.async.ca.shared.global [%a], [%g], 4; cp.async.commit_group; @@ ld.shared.u32 %x, [%a];",
     "cp.async.wait_group 0;", "", CUDA_ERROR_LAUNCH_FAILED, "in flight", 32, 0},
    {"wait for too few groups",
     "cp.async.ca.shared.global [%a], [%g], 4; cp.async.commit_group; cp.async.wait_group @@; ld.shared.u32 %x, [%a];",
     "0", "1", CUDA_ERROR_LAUNCH_FAILED, "in flight", 32, 0},
    {"copies that were not committed",
     "cp.async.ca.shared.global [%a], [%g], 4; @@ cp.async.wait_group 0; ld.shared.u32 %x, [%a];",
     "cp.async.commit_group;", "", CUDA_ERROR_LAUNCH_FAILED, "in flight", 32, 0},
    {"write over a copy in flight", "cp.async.ca.shared.global [%a], [%g], 4; @@ st.shared.u32 [%a], %t;",
     "cp.async.wait_all;", "", CUDA_ERROR_LAUNCH_FAILED, "in flight", 32, 0},
    {"another lane's copy before a barrier",
     "cp.async.ca.shared.global [%a], [%g], 4; cp.async.wait_all; @@ xor.b32 %b, %b, 4; add.u32 %a, %s, %b; "
     "ld.shared.u32 %x, [%a];",
     "bar.sync 0;", "", RACE, 32, 0},
    {"copy from a misaligned source", "cp.async.ca.shared.global [%a], [%g+@@], 4;", "4", "2",
     CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned", 32, 0},
    {"copy from beyond the end", "cp.async.ca.shared.global [%a], [%g+@@], 4;", "4092", "4096",
     CUDA_ERROR_ILLEGAL_ADDRESS, "out of bounds", 32, 0},
    {"source bytes 0 read nothing", "mov.u32 %x, @@; cp.async.ca.shared.global [%a], [%g+4096], 4, %x;", "0", "4",
     CUDA_ERROR_ILLEGAL_ADDRESS, "out of bounds", 32, 0},
    {"mbarrier used before its initialisation is seen",
     "setp.eq.u32 %p, %t, 0; @%p mbarrier.init.shared.b64 [%s], 64;\n@@\nmbarrier.arrive.shared.b64 %z, [%s];",
     "bar.sync 0;", "bar.warp.sync -1;", CUDA_ERROR_LAUNCH_FAILED, "", 64, 0},
    {"mbarrier that nobody waits for",
     "setp.eq.u32 %p, %t, 0; @%p mbarrier.init.shared.b64 [%s], 64; bar.sync 0; st.shared.u32 [%a+64], %t; "
     "mbarrier.arrive.shared.b64 %z, [%s];\n"
     "@@ xor.b32 %b, %b, 128; add.u32 %a, %s, %b; ld.shared.u32 %x, [%a+64];",
     "poll: mbarrier.test_wait.shared.b64 %q, [%s], %z; @!%q bra poll;", "", CUDA_ERROR_LAUNCH_FAILED, "shared", 64, 0},
    {"mbarrier with too large a count",
     "setp.eq.u32 %p, %t, 0; @%p mbarrier.init.shared.b64 [%s], @@; bar.sync 0; mbarrier.arrive.shared.b64 %z, [%s];\n"
     "poll: mbarrier.test_wait.shared.b64 %q, [%s], %z; @!%q bra poll;",
     "64", "65", CUDA_ERROR_LAUNCH_TIMEOUT, "deadlock", 64, 0},
    {"mbarrier initialised twice",
     "setp.eq.u32 %p, %t, 0; @!%p exit; mbarrier.init.shared.b64 [%s], 1; @@ mbarrier.init.shared.b64 [%s], 1;",
     "mbarrier.inval.shared.b64 [%s];", "", CUDA_ERROR_LAUNCH_FAILED, "again", 32, 0},
    {"bulk copy without its wait", BULK("128", "fence.proxy.async.shared::cta;") "@@ ld.shared.u32 %x, [%a+16];", POLL,
     "", CUDA_ERROR_LAUNCH_FAILED, "in flight", 32, 0},
    {"bulk copy of fewer bytes than expected", BULK("@@", "fence.proxy.async.shared::cta;") POLL, "128", "256",
     CUDA_ERROR_LAUNCH_TIMEOUT, "deadlock", 32, 0},
    {"mbarrier not fenced for a bulk copy", BULK("128", "@@") POLL, "fence.proxy.async.shared::cta;", "",
     CUDA_ERROR_LAUNCH_FAILED, "not fenced", 32, 0},
    {"bulk store of what is not fenced", BULK_STORE("@@", "cp.async.bulk.wait_group 0;"),
     "fence.proxy.async.shared::cta;", "", CUDA_ERROR_LAUNCH_FAILED, "not fenced", 32, 0},
    {"bulk store that is not waited for", BULK_STORE("fence.proxy.async.shared::cta;", "@@"),
     "cp.async.bulk.wait_group.read 0;", "", CUDA_ERROR_LAUNCH_FAILED, "in flight", 32, 0},
    {"write over the source of a bulk store",
     BULK_STORE("fence.proxy.async.shared::cta;", "@@ st.shared.u32 [%s], 0; cp.async.bulk.wait_group 0;"),
     "cp.async.bulk.wait_group.read 0;", "", CUDA_ERROR_LAUNCH_FAILED, "in flight", 32, 0},
    {"flag stored without a fence before", FLAG("@@", "membar.cta;"), "membar.cta;", "", RACE, 64, 0},
    {"flag read without a fence behind", FLAG("fence.acq_rel.cta;", "@@"), "fence.acq_rel.cta;", "", RACE, 64, 0},
    {"global data of another warp before a barrier",
     "mul.wide.u32 %z, %t, 4; add.u64 %z, %z, %g; st.global.u32 [%z], %t; @@ xor.b32 %b, %b, 128; cvt.u64.u32 %z, %b; "
     "add.u64 %z, %z, %g; ld.global.u32 %x, [%z];",
     "bar.sync 0;", "bar.warp.sync -1;", RACE, 64, 0},
    {"global data of another lane before a barrier",
     "mul.wide.u32 %z, %t, 4; add.u64 %z, %z, %g; st.global.u32 [%z], %t; @@ xor.b32 %b, %b, 4; cvt.u64.u32 %z, %b; "
     "add.u64 %z, %z, %g; ld.global.u32 %x, [%z];",
     "bar.warp.sync -1;", "", RACE, 32, 0},
    {"global data written over that other lanes read",
     "setp.eq.u32 %p, %t, 0; @%p st.global.u32 [%g], %t; bar.warp.sync -1; ld.global.u32 %x, [%g]; @@ "
     "@%p st.global.u32 [%g], %x;",
     "bar.warp.sync -1;", "", RACE, 32, 0},
    {"branch table index", "list: .branchtargets one, two; mov.u32 %x, @@; brx.idx %x, list; one: two:", "1", "2",
     CUDA_ERROR_ILLEGAL_INSTRUCTION, "branch index", 1, 0},
    {"unknown instruction", "@@", "add.u32 %x, %t, 1;", "vadd.u32.u32.u32 %x, %t, %t;", CUDA_ERROR_INVALID_PTX, "'vadd",
     1, 0},
    {"unknown modifier", "mul.@@.u32 %x, %t, 3;", "lo", "lowest", CUDA_ERROR_INVALID_PTX, "lo", 1, 0},
    {"register of the wrong width", "add.u32 %x, @@, 1;", "%t", "%g", CUDA_ERROR_INVALID_PTX, "register", 1, 0},
};
enum { CASES = sizeof cases / sizeof cases[0] };

static CUresult run_body(const fault_case *c, const char *line) {
  char text[4000], body[2000];
  const char *at = strstr(c->body, "@@");
  ck_assert(at != NULL);
  snprintf(body, sizeof body, "%.*s%s%s", (int)(at - c->body), c->body, line, at + 2);
  bool hopper = body[0] == '!';
  snprintf(text, sizeof text, "%s%s\nret;\n}\n", prologue, body + hopper);
  if (hopper) {
    simcuda_config config;
    simcuda_get_config(&config);
    config.arch = 90;
    simcuda_set_config(&config);
    strstr(text, "sm_80")[3] = '9';
  }
  int data[1024] = {0};
  CUdeviceptr p = gpu_new(data, sizeof data);
  void *params[] = {&p};
  CUresult r = gpu_launch(text, "k", 1, c->threads, c->dynamic, params);
  gpu_free(p);
  return r;
}

START_TEST(each_fault_is_found_and_named) { /* _i: case, in each mode of copies */
  const fault_case *c = &cases[_i];
  for (int copies = 0; copies < 3; copies++) {
    simcuda_config config;
    simcuda_get_config(&config);
    config.copies = copies;
    config.seed = copies == SIMCUDA_RANDOM ? 12345 : 0;
    config.instructions = 3000000;
    simcuda_set_config(&config);
    CUresult good = run_body(c, c->good);
    ck_assert_msg(good == CUDA_SUCCESS, "%s: the sound kernel fails: %d %s", c->name, good, simcuda_report());
    CUresult bad = run_body(c, c->bad);
    if (c->error == CUDA_SUCCESS)
      ck_assert_msg(bad == CUDA_ERROR_LAUNCH_TIMEOUT, "%s: %d", c->name, bad);
    else
      ck_assert_msg(bad == c->error && strstr(simcuda_report(), c->report), "%s: %d %s", c->name, bad,
                    simcuda_report());
    if (bad != CUDA_ERROR_INVALID_PTX)
      ck_assert_msg(strstr(simcuda_report(), "kernel k, block (0,0,0), warp ") != NULL, "%s", simcuda_report());
  }
}
END_TEST

START_TEST(use_after_free_is_told_from_out_of_bounds) {
  static const char ptx[] = ".version 8.3\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 p) { .reg "
                            ".b64 %g; .reg .b32 %x; ld.param.u64 %g, [p]; ld.global.u32 %x, [%g]; ret; }";
  CUdeviceptr p = gpu_new(NULL, 64);
  void *params[] = {&p};
  ck_cu(gpu_launch(ptx, "k", 1, 1, 0, params));
  gpu_free(p);
  ck_assert_int_eq(gpu_launch(ptx, "k", 1, 1, 0, params), CUDA_ERROR_ILLEGAL_ADDRESS);
  ck_assert_msg(strstr(simcuda_report(), "use after free") != NULL, "%s", simcuda_report());
}
END_TEST

/* _i: 0 apart, 1 both write, 2 one reads, 3 has read; 4 with atomics in the kernel */
START_TEST(blocks_that_touch_one_word_race) {
  static const char *const lines[] = {
      "st.global.u32 [%z], %c;", "st.global.u32 [%g], %c;", "st.global.u32 [%z], %c; ld.global.u32 %c, [%g];",
      "st.global.u32 [%z], %c; ld.global.u32 %c, [%g+12];", "atom.global.add.u32 %c, [%g], 1;"};
  static const char *const by[] = {NULL, "a write by block 0 of the same launch",
                                   "a write by block 0 of the same launch", "a read by block 2 of the same launch",
                                   NULL};
  char ptx[700];
  int zeros[4] = {0};
  snprintf(ptx, sizeof ptx,
           ".version 8.3\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 p) { .reg .b64 %%g, %%z; .reg "
           ".b32 %%c; "
           "ld.param.u64 %%g, [p]; mov.u32 %%c, %%ctaid.x; mad.wide.u32 %%z, %%c, 4, %%g; %s ret; }",
           lines[_i]);
  simcuda_config config;
  simcuda_get_config(&config);
  config.threads = 1;
  simcuda_set_config(&config);
  CUdeviceptr p = gpu_new(zeros, sizeof zeros);
  void *params[] = {&p};
  for (int again = 0; again < 2; again++) { /* an earlier launch does not count */
    CUresult r = gpu_launch(ptx, "k", 4, 1, 0, params);
    if (!by[_i])
      ck_cu(r);
    else
      ck_assert_msg(r == CUDA_ERROR_LAUNCH_FAILED && strstr(simcuda_report(), by[_i]), "%d %s", r, simcuda_report());
  }
  gpu_free(p);
}
END_TEST

START_TEST(a_report_names_block_warp_lane_and_line) {
  static const char ptx[] = ".version 8.3\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 p) {\n.reg "
                            ".b64 %g, %o; .reg .b32 %t, %c; .reg .pred %p;\n"
                            "ld.param.u64 %g, [p];\nmov.u32 %t, %tid.x;\nmov.u32 %c, %ctaid.y;\nsetp.eq.u32 %p, %t, "
                            "70;\nsetp.eq.and.u32 %p, %c, 2, %p;\n@%p st.global.u32 [%g+64], %t;\nret; }";
  CUdeviceptr p = gpu_new(NULL, 64);
  void *params[] = {&p};
  ck_assert_int_eq(gpu_launch2(ptx, "k", 1, 4, 96, 0, params), CUDA_ERROR_ILLEGAL_ADDRESS);
  ck_assert_str_eq(simcuda_report() + strlen(simcuda_report()) - strlen("of an allocation of 64"),
                   "of an allocation of 64");
  ck_assert_msg(
      strstr(simcuda_report(),
             "kernel k, block (0,2,0), warp 2, lane 6, PTX line 11 'st.global.u32': out of bounds: 4 bytes") != NULL,
      "%s", simcuda_report());
  gpu_free(p);
}
END_TEST

static Suite *suite(void) {
  Suite *s = suite_create("simcuda.checks");
  TCase *c = tcase_create("checks");
  tcase_add_checked_fixture(c, gpu_start, gpu_stop);
  tcase_add_loop_test(c, each_fault_is_found_and_named, 0, CASES);
  tcase_add_loop_test(c, blocks_that_touch_one_word_race, 0, 5);
  tcase_add_test(c, use_after_free_is_told_from_out_of_bounds);
  tcase_add_test(c, a_report_names_block_warp_lane_and_line);
  suite_add_tcase(s, c);
  return s;
}
GPU_TEST_MAIN(suite)
