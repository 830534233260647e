/* test_op.c: op.h's harness: a kernel around one instruction. */
#include "op.h"

#include <stdio.h>

static const uint64_t special_ints[] = {0,
                                        1,
                                        2,
                                        3,
                                        7,
                                        31,
                                        32,
                                        33,
                                        63,
                                        64,
                                        0x7f,
                                        0x80,
                                        0xff,
                                        0x7fff,
                                        0x8000,
                                        0xffff,
                                        0x10000,
                                        0x7fffffff,
                                        0x80000000,
                                        0xffffffff,
                                        0x100000000,
                                        0x7fffffffffffffff,
                                        0x8000000000000000,
                                        0xffffffffffffffff,
                                        0xaaaaaaaa55555555};
static const uint32_t special_f32[] = {0,          0x80000000, 1,          0x80000001, 0x007fffff, 0x00800000,
                                       0x3f800000, 0xbf800000, 0x3f000000, 0x3fc00000, 0x40200000, 0x7f7fffff,
                                       0xff7fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0x4b000001, 0xcb7fffff,
                                       0x4f000000, 0x5f000000, 0x33800000, 0x38800000, 0x477fe000, 0x477ff000};
enum { INTS = sizeof special_ints / sizeof special_ints[0], F32S = sizeof special_f32 / sizeof special_f32[0] };

static void all_pairs(operands *o, const uint64_t *v, int n, uint64_t *seed) {
  for (int i = 0; i < n; i++)
    for (int j = 0; j < n; j++) {
      o->a[o->count] = v[i];
      o->b[o->count] = v[j];
      o->c[o->count++] = v[gpu_random(seed) % (unsigned)n];
    }
}

void operands_int(operands *o, uint64_t seed) {
  o->count = 0;
  all_pairs(o, special_ints, INTS, &seed);
  while (o->count < 2000) {
    uint64_t *to[3] = {&o->a[o->count], &o->b[o->count], &o->c[o->count]};
    for (int k = 0; k < 3; k++) *to[k] = gpu_random(&seed) >> (gpu_random(&seed) & 31);
    o->count++;
  }
}

void operands_f32(operands *o, uint64_t seed) {
  uint64_t v[F32S];
  o->count = 0;
  for (int i = 0; i < F32S; i++) v[i] = special_f32[i];
  all_pairs(o, v, F32S, &seed);
  while (o->count < 3000) {
    uint64_t *to[3] = {&o->a[o->count], &o->b[o->count], &o->c[o->count]};
    for (int k = 0; k < 3; k++) {
      uint64_t r = gpu_random(&seed);
      /* half of them near one another in size, half anything */
      *to[k] = r & 1 ? (r >> 32 & 0x807fffff) | ((120 + (r >> 8 & 15)) << 23) : r >> 32;
    }
    o->count++;
  }
}

void operands_f64(operands *o, uint64_t seed) {
  operands_f32(o, seed);
  for (int i = 0; i < o->count; i++) {
    uint64_t *of[3] = {&o->a[i], &o->b[i], &o->c[i]};
    for (int k = 0; k < 3; k++)
      *of[k] = of_f64((double)f32_of(*of[k]) * (1 + (double)(gpu_random(&seed) >> 40) * 0x1p-50));
  }
}

void operands_16(operands *o, uint64_t seed, bool bf16) {
  static const uint16_t f16s[] = {0,      0x8000, 1,      0x8001, 0x3ff,  0x400,  0x3c00, 0xbc00,
                                  0x3800, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00, 0x3555, 0x5640};
  uint64_t v[16];
  o->count = 0;
  for (int i = 0; i < 16; i++) v[i] = !bf16 ? f16s[i] : f16s[i] == 0x7e00 ? 0x7fc0 : special_f32[i] >> 16;
  all_pairs(o, v, 16, &seed);
  while (o->count < 3000) {
    uint64_t *to[3] = {&o->a[o->count], &o->b[o->count], &o->c[o->count]};
    for (int k = 0; k < 3; k++)
      *to[k] = bf16 && gpu_random(&seed) & 1 ? (gpu_random(&seed) & 0x83ff) | 0x3e00 : gpu_random(&seed) >> 48;
    o->count++;
  }
}

static const char *reg_type(char t) {
  return t == 'h' ? "b16" : t == 'r' ? "b32" : t == 'l' ? "b64" : t == 'p' ? "pred" : t == 'f' ? "f32" : "f64";
}

static int load(char *to, size_t room, char name, char type) {
  int n = snprintf(to, room, "ld.param.u64 %%x, [p%c]; add.u64 %%x, %%x, %%i; ld.global.u64 %%x, [%%x];\n", name);
  const char *how = type == 'h'   ? "cvt.u16.u64 %%%c, %%x;\n"
                    : type == 'r' ? "cvt.u32.u64 %%%c, %%x;\n"
                    : type == 'l' ? "mov.b64 %%%c, %%x;\n"
                    : type == 'p' ? "and.b64 %%x, %%x, 1; setp.ne.u64 %%%c, %%x, 0;\n"
                    : type == 'f' ? "cvt.u32.u64 %%y, %%x; mov.b32 %%%c, %%y;\n"
                                  : "mov.b64 %%%c, %%x;\n";
  return n + snprintf(to + n, room - (size_t)n, how, name);
}

CUresult op_try(const char *text, const char *types, const operands *o, uint64_t *d, int target) {
  char ptx[4000];
  size_t room = sizeof ptx;
  int n = snprintf(ptx, room,
                   ".version 8.3\n.target sm_%d\n.address_size 64\n.visible .entry k(.param .u64 pa, .param .u64 pb, "
                   ".param .u64 pc, .param .u64 pd, .param .u32 n) {\n"
                   ".reg .b64 %%x, %%i, %%o; .reg .b32 %%y, %%t, %%n; .reg .pred %%q;\n",
                   target);
  for (int k = 0; types[k]; k++)
    if (types[k] != '-') n += snprintf(ptx + n, room - (size_t)n, ".reg .%s %%%c;\n", reg_type(types[k]), "dabc"[k]);
  n += snprintf(ptx + n, room - (size_t)n,
                "mov.u32 %%t, %%ctaid.x; mov.u32 %%y, %%tid.x; mad.lo.u32 %%t, %%t, 256, %%y; ld.param.u32 %%n, [n];\n"
                "setp.ge.u32 %%q, %%t, %%n; @%%q ret; mul.wide.u32 %%i, %%t, 8; ld.param.u64 %%o, [pd]; add.u64 %%o, "
                "%%o, %%i;\n");
  for (int k = 1; types[k]; k++)
    if (types[k] != '-') n += load(ptx + n, room - (size_t)n, "dabc"[k], types[k]);
  const char *out = types[0] == 'h'   ? "cvt.u64.u16 %x, %d;"
                    : types[0] == 'r' ? "cvt.u64.u32 %x, %d;"
                    : types[0] == 'p' ? "selp.u64 %x, 1, 0, %d;"
                    : types[0] == 'f' ? "mov.b32 %y, %d; cvt.u64.u32 %x, %y;"
                                      : "mov.b64 %x, %d;";
  n += snprintf(ptx + n, room - (size_t)n, "%s\n%s\nst.global.u64 [%%o], %%x; ret; }\n", text, out);
  ck_assert_int_lt(n, (int)room);
  int count = o->count;
  CUdeviceptr in[3] = {gpu_new(o->a, (size_t)count * 8), gpu_new(o->b, (size_t)count * 8),
                       gpu_new(o->c, (size_t)count * 8)},
              result = gpu_new(NULL, (size_t)count * 8);
  void *params[] = {&in[0], &in[1], &in[2], &result, &count};
  CUresult r = gpu_launch(ptx, "k", (unsigned)(count + 255) / 256, 256, 0, params);
  if (!r) gpu_read(d, result, (size_t)count * 8);
  for (int k = 0; k < 3; k++) gpu_free(in[k]);
  gpu_free(result);
  return r;
}

void op_run(const char *text, const char *types, const operands *o, uint64_t *d) {
  CUresult r = op_try(text, types, o, d, 80);
  ck_assert_msg(r == CUDA_SUCCESS, "'%s': %d: %s", text, r, simcuda_report());
}
