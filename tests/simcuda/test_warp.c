/* test_warp.c: exchanges within a warp and matrix instructions, against the ISA's formulas written out here: shfl's
 * segments, votes, matches, reductions; fragments of mma, ldmatrix, stmatrix, movmatrix element by element. */
#include <math.h>
#include <stdio.h>

#include "exact.h"
#include "op.h"

static operands in;
static uint64_t out[OP_MOST];
static uint64_t seed = 1;

/* One warp: %a, %b, %c of lane l are a[l], b[l], c[l]. */
static void warps(int count) {
  in.count = 32 * count;
  for (int i = 0; i < in.count; i++)
    in.a[i] = gpu_random(&seed) >> 20, in.b[i] = gpu_random(&seed) >> 20, in.c[i] = gpu_random(&seed) >> 20;
}

START_TEST(shuffles_follow_segments_and_clamps) { /* _i: mode */
  static const char *const modes[] = {"up", "down", "bfly", "idx"};
  static const int cs[] = {0, 31, 0x1000 | 15, 0x1800 | 7, 0x1c00 | 3, 0x1c00, 0x101f};
  for (int k = 0; k < 7; k++) {
    char text[200];
    warps(8);
    snprintf(text, sizeof text,
             "{.reg .pred p; .reg .b32 v, k; shfl.sync.%s.b32 v|p, %%a, %%b, %d, -1; selp.u32 k, 1, 0, p; mov.b64 %%d, "
             "{v, k};}",
             modes[_i], cs[k]);
    op_run(text, "lrr", &in, out);
    for (int i = 0; i < in.count; i++) {
      int lane = i & 31, b = (int)(in.b[i] & 31), seg = cs[k] >> 8 & 31, cv = cs[k] & 31;
      int max_lane = (lane & seg) | (cv & ~seg), min_lane = lane & seg, j;
      bool p;
      switch (_i) { /* as in the ISA's description */
      case 0:
        j = lane - b, p = j >= max_lane;
        break;
      case 1:
        j = lane + b, p = j <= max_lane;
        break;
      case 2:
        j = lane ^ b, p = j <= max_lane;
        break;
      default:
        j = min_lane | (b & ~seg), p = j <= max_lane;
        break;
      }
      if (!p) j = lane;
      uint64_t want = (in.a[i - lane + j] & 0xffffffff) | (uint64_t)p << 32;
      if (out[i] != want)
        ck_abort_msg("%s, c %#x, lane %d, b %d: %#lx, not %#lx", modes[_i], cs[k], lane, b, out[i], want);
    }
  }
}
END_TEST

START_TEST(votes_matches_and_reductions) {
  warps(32);
  for (int i = 0; i < in.count; i++) {
    if ((i >> 5) % 4 == 0) in.a[i] |= 1; /* unanimous warps too */
    if ((i >> 5) % 4 == 1) in.a[i] &= ~UINT64_C(1);
    in.b[i] &= 3;
    if ((i >> 5) % 4 == 2) in.b[i] = 2;
  }
  static const struct {
    const char *text, *types;
  } table[] = {{"vote.sync.all.pred %d, %a, -1;", "pp"},
               {"vote.sync.any.pred %d, %a, -1;", "pp"},
               {"vote.sync.uni.pred %d, %a, -1;", "pp"},
               {"vote.sync.ballot.b32 %d, !%a, -1;", "rp"},
               {"match.any.sync.b32 %d, %b, -1;", "r-r"},
               {"match.all.sync.b64 %d, %b, -1;", "r-l"},
               {"redux.sync.add.s32 %d, %c, -1;", "r--r"},
               {"redux.sync.min.s32 %d, %c, -1;", "r--r"},
               {"redux.sync.max.u32 %d, %c, -1;", "r--r"},
               {"redux.sync.xor.b32 %d, %c, -1;", "r--r"},
               {"activemask.b32 %d;", "r"}};
  for (int k = 0; k < 11; k++) {
    op_run(table[k].text, table[k].types, &in, out);
    for (int i = 0; i < in.count; i++) {
      int first = i & ~31;
      uint32_t yes = 0, same = 0, add = 0, xors = 0, top = 0;
      int32_t low = INT32_MAX;
      for (int l = 0; l < 32; l++) {
        uint32_t c = (uint32_t)in.c[first + l];
        yes |= (uint32_t)(in.a[first + l] & 1) << l;
        same |= (uint32_t)(in.b[first + l] == in.b[i]) << l;
        add += c, xors ^= c;
        if (c > top) top = c;
        if ((int32_t)c < low) low = (int32_t)c;
      }
      uint64_t want[] = {yes == ~0u,
                         yes != 0,
                         yes == 0 || yes == ~0u,
                         (uint32_t)~yes,
                         same,
                         same == ~0u ? same : 0,
                         add,
                         (uint32_t)low,
                         top,
                         xors,
                         ~0u};
      if (out[i] != want[k]) ck_abort_msg("%s in lane %d: %#lx, not %#lx", table[k].text, i & 31, out[i], want[k]);
    }
  }
}
END_TEST

START_TEST(lanes_that_part_meet_again) {
  /* each lane takes its own way through a loop; whoever is there together says so */
  warps(2);
  op_run("{.reg .pred p; .reg .b32 n, m; and.b32 n, %a, 7; mov.u32 %d, 0; loop: setp.eq.u32 p, n, 0; @p bra done; "
         "add.u32 %d, %d, n; sub.u32 n, n, 1; bra loop;\n"
         "done: activemask.b32 m; setp.ne.u32 p, m, -1; @p trap;}",
         "rr", &in, out);
  for (int i = 0; i < in.count; i++) {
    unsigned n = in.a[i] & 7;
    ck_assert_uint_eq(out[i], n * (n + 1) / 2);
  }
}
END_TEST

START_TEST(the_order_of_blocks_in_the_text_does_not_matter) {
  /* the rare way lies behind the end, as compilers put it; the loop's exit lies before its body */
  warps(2);
  op_run("{.reg .pred p; .reg .b32 n, m; and.b32 n, %a, 7; setp.lt.u32 p, n, 3; @p bra rare; mov.u32 %d, 1; join: "
         "activemask.b32 m; setp.ne.u32 p, m, -1; @p trap; bra.uni head;\n"
         "rare: add.u32 n, n, 2; mov.u32 %d, 100; bra join;\n"
         "leave: activemask.b32 m; setp.ne.u32 p, m, -1; @p trap; bra.uni done;\n"
         "head: setp.eq.u32 p, n, 0; @p bra leave; add.u32 %d, %d, n; sub.u32 n, n, 1; bra head; done:}",
         "rr", &in, out);
  for (int i = 0; i < in.count; i++) {
    unsigned n = in.a[i] & 7, first = n < 3 ? 100 : 1;
    if (n < 3) n += 2;
    ck_assert_uint_eq(out[i], first + n * (n + 1) / 2);
  }
}
END_TEST

/* --- matrices ------------------------------------------------------------------------------------ */
typedef struct shape {
  const char *text; /* the instruction without operands */
  int k, a_regs, b_regs, c_regs;
  char type; /* b bf16, h f16, t tf32 */
  bool half_sum;
} shape;
static const shape shapes[] = {
    {"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", 16, 4, 2, 4, 'b', false},
    {"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", 16, 4, 2, 4, 'h', false},
    {"mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32", 8, 2, 1, 4, 'b', false},
    {"mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", 8, 2, 1, 4, 'h', false},
    {"mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", 8, 4, 2, 4, 't', false},
    {"mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32", 4, 2, 1, 4, 't', false},
    {"mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16", 16, 4, 2, 2, 'h', true},
};

static double element(uint32_t reg, int half, char type) {
  uint32_t h = reg >> (16 * half) & 0xffff;
  return type == 'b' ? value_bf16(h) : type == 'h' ? value_f16(h) : f32_of(reg & 0xffffe000);
}
static uint32_t random_operand(char type) {
  if (type == 't') return (uint32_t)of_f32((float)((int64_t)(gpu_random(&seed) >> 40) - (1 << 23)) * 0x1p-20f);
  uint32_t r = 0;
  for (int h = 0; h < 32; h += 16)
    r |= (type == 'b' ? 0x3e80 + (uint32_t)(gpu_random(&seed) >> 40 & 0x81ff)
                      : 0x3400 + (uint32_t)(gpu_random(&seed) >> 40 & 0x8bff))
         << h;
  return r;
}

START_TEST(mma_multiplies_the_fragments_of_the_isa) { /* _i: shape */
  const shape *s = &shapes[_i];
  char ptx[3000];
  int n = snprintf(ptx, sizeof ptx,
                   ".version 8.3\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 p, .param .u64 q) "
                   "{\n.reg .b32 %%t, %%r<16>; .reg .f32 %%f<8>; .reg .b64 %%g, %%o;\n"
                   "ld.param.u64 %%g, [p]; mov.u32 %%t, %%tid.x; mad.wide.u32 %%g, %%t, 64, %%g; ld.param.u64 %%o, "
                   "[q]; mad.wide.u32 %%o, %%t, 16, %%o;\n");
  for (int k = 0; k < s->a_regs + s->b_regs + (s->half_sum ? 2 : 0); k++)
    n += snprintf(ptx + n, sizeof ptx - (size_t)n, "ld.global.b32 %%r%d, [%%g+%d];\n", k, 4 * k);
  for (int k = 0; !s->half_sum && k < 4; k++)
    n += snprintf(ptx + n, sizeof ptx - (size_t)n, "ld.global.f32 %%f%d, [%%g+%d];\n", k,
                  4 * (s->a_regs + s->b_regs + k));
  const char *a = s->a_regs == 4 ? "{%r0,%r1,%r2,%r3}" : "{%r0,%r1}", *b = s->a_regs == 4 ? "{%r4,%r5}" : "{%r2}";
  snprintf(ptx + n, sizeof ptx - (size_t)n,
           s->half_sum ? "%s {%%r8,%%r9}, %s, %s, {%%r6,%%r7}; st.global.v2.b32 [%%o], {%%r8,%%r9}; ret; }"
                       : "%s {%%f4,%%f5,%%f6,%%f7}, %s, %s, {%%f0,%%f1,%%f2,%%f3}; st.global.v4.f32 [%%o], "
                         "{%%f4,%%f5,%%f6,%%f7}; ret; }",
           s->text, a, b);
  uint32_t regs[32][16] = {{0}}, result[32][4];
  double A[16][16] = {{0}}, B[16][8] = {{0}}, C[16][8] = {{0}};
  bool seen_a[16][16] = {{0}}, seen_b[16][8] = {{0}};
  for (int l = 0; l < 32; l++) {
    int g = l >> 2, t = l & 3;
    for (int k = 0; k < s->a_regs + s->b_regs; k++) regs[l][k] = random_operand(s->type);
    for (int k = 0; k < 4; k++) {
      uint32_t *c = &regs[l][s->a_regs + s->b_regs + (s->half_sum ? k / 2 : k)];
      if (!s->half_sum)
        *c = (uint32_t)of_f32((float)(gpu_random(&seed) >> 44));
      else if (!(k & 1))
        *c = random_operand('h');
      C[g + 8 * (k >> 1)][2 * t + (k & 1)] = s->half_sum ? element(*c, k & 1, 'h') : f32_of(*c);
    }
    int per = s->type == 't' ? 1 : 2;
    for (int i = 0; i < per * s->a_regs; i++) { /* PTX ISA, fragment tables of each shape */
      int row = s->type == 't' ? g + 8 * (i & 1) : g + 8 * (i >> 1 & 1),
          col = s->type == 't' ? t + 4 * (i >> 1) : 2 * t + (i & 1) + 8 * (i >> 2);
      A[row][col] = element(regs[l][i / per], i % per, s->type);
      seen_a[row][col] = true;
    }
    for (int i = 0; i < per * s->b_regs; i++) {
      int row = s->type == 't' ? t + 4 * i : 2 * t + (i & 1) + 8 * (i >> 1);
      B[row][g] = element(regs[l][s->a_regs + i / per], i % per, s->type);
      seen_b[row][g] = true;
    }
  }
  CUdeviceptr p = gpu_new(regs, sizeof regs), q = gpu_new(NULL, sizeof result);
  void *params[] = {&p, &q};
  ck_cu(gpu_launch(ptx, "k", 1, 32, 0, params));
  gpu_read(result, q, sizeof result);
  for (int l = 0; l < 32; l++)
    for (int i = 0; i < 4; i++) {
      int row = (l >> 2) + 8 * (i >> 1), col = 2 * (l & 3) + (i & 1);
      double want = C[row][col], size = fabs(want), got;
      for (int k = 0; k < s->k; k++) {
        ck_assert(seen_a[row][k] && seen_b[k][col]);
        want += A[row][k] * B[k][col];
        size += fabs(A[row][k] * B[k][col]);
      }
      const uint32_t *r = (const uint32_t *)result + (s->half_sum ? 4 * l + i / 2 : 4 * l + i);
      got = s->half_sum ? element(*r, i & 1, 'h') : f32_of(*r);
      ck_assert_double_eq_tol(got, want, size * (s->half_sum ? 0x1p-10 : 0x1p-21));
    }
  gpu_free(p);
  gpu_free(q);
}
END_TEST

/* Stores 512 bytes, loads x4 of them with rows in an order of its own, stores the fragments; then stmatrix back. */
START_TEST(ldmatrix_and_stmatrix_deal_rows_to_lanes) { /* _i: 1 .trans */
  char ptx[2000];
  snprintf(
      ptx, sizeof ptx,
      ".version 8.3\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 p, .param .u64 q) {\n.reg .b32 "
      "%%t, %%a, %%b, %%r<8>; .reg .b64 %%g, %%o, %%w; .shared .align 16 .b8 sh[512]; .shared .align 16 .b8 to[512];\n"
      "ld.param.u64 %%g, [p]; mov.u32 %%t, %%tid.x; mad.wide.u32 %%w, %%t, 16, %%g; ld.global.v4.b32 "
      "{%%r0,%%r1,%%r2,%%r3}, [%%w]; mov.u32 %%a, sh; mad.lo.u32 %%b, %%t, 16, %%a;\n"
      "st.shared.v4.b32 [%%b], {%%r0,%%r1,%%r2,%%r3}; bar.sync 0; xor.b32 %%b, %%t, 5; mad.lo.u32 %%b, %%b, 16, %%a;\n"
      "ldmatrix.sync.aligned.m8n8.x4%s.shared.b16 {%%r4,%%r5,%%r6,%%r7}, [%%b]; ld.param.u64 %%o, [q]; mad.wide.u32 "
      "%%w, %%t, 16, %%o; st.global.v4.b32 [%%w], {%%r4,%%r5,%%r6,%%r7};\n"
      "mov.u32 %%a, to; mad.lo.u32 %%b, %%t, 16, %%a; stmatrix.sync.aligned.m8n8.x4%s.shared.b16 [%%b], "
      "{%%r4,%%r5,%%r6,%%r7}; bar.sync 0;\n"
      "ld.shared.v4.b32 {%%r0,%%r1,%%r2,%%r3}, [%%b]; st.global.v4.b32 [%%w+512], {%%r0,%%r1,%%r2,%%r3}; ret; }",
      _i ? ".trans" : "", _i ? ".trans" : "");
  uint16_t m[32][8];
  uint32_t f[32][4], back[128 + 128];
  simcuda_config config;
  simcuda_get_config(&config);
  config.arch = 90;
  simcuda_set_config(&config);
  for (int r = 0; r < 32; r++)
    for (int c = 0; c < 8; c++) m[r][c] = (uint16_t)(r * 256 + c);
  CUdeviceptr p = gpu_new(m, sizeof m), q = gpu_new(NULL, sizeof back);
  void *params[] = {&p, &q};
  ck_cu(gpu_launch(ptx, "k", 1, 32, 0, params));
  gpu_read(back, q, sizeof back);
  memcpy(f, back, sizeof f);
  for (int l = 0; l < 32; l++)
    for (int j = 0; j < 4; j++)
      for (int h = 0; h < 2; h++) {
        int row = _i ? 2 * (l % 4) + h : l / 4, col = _i ? l / 4 : 2 * (l % 4) + h;
        ck_assert_uint_eq(f[l][j] >> (16 * h) & 0xffff,
                          m[(8 * j + row) ^ 5][col]); /* lane 8 j + row named row (8 j + row) ^ 5 */
      }
  for (int r = 0; r < 32; r++) ck_assert_mem_eq((const uint8_t *)(back + 128) + 16 * r, m[r ^ 5], 16);
  gpu_free(p);
  gpu_free(q);
}
END_TEST

START_TEST(movmatrix_transposes) {
  warps(1);
  op_run("movmatrix.sync.aligned.m8n8.trans.b16 %d, %a;", "rr", &in, out);
  for (int l = 0; l < 32; l++)
    for (int h = 0; h < 2;
         h++) { /* element (l / 4, 2 (l % 4) + h) of the result is (2 (l % 4) + h, l / 4) of the source */
      int row = 2 * (l % 4) + h, col = l / 4;
      ck_assert_uint_eq(out[l] >> (16 * h) & 0xffff, in.a[4 * row + col / 2] >> (16 * (col % 2)) & 0xffff);
    }
}
END_TEST

static Suite *suite(void) {
  Suite *s = suite_create("simcuda.warp");
  TCase *c = tcase_create("warp");
  tcase_add_checked_fixture(c, gpu_start, gpu_stop);
  tcase_add_loop_test(c, shuffles_follow_segments_and_clamps, 0, 4);
  tcase_add_test(c, votes_matches_and_reductions);
  tcase_add_test(c, lanes_that_part_meet_again);
  tcase_add_test(c, the_order_of_blocks_in_the_text_does_not_matter);
  tcase_add_loop_test(c, mma_multiplies_the_fragments_of_the_isa, 0, 7);
  tcase_add_loop_test(c, ldmatrix_and_stmatrix_deal_rows_to_lanes, 0, 2);
  tcase_add_test(c, movmatrix_transposes);
  suite_add_tcase(s, c);
  return s;
}
GPU_TEST_MAIN(suite)
