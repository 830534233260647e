/* mma.c: mma.sync, ldmatrix, stmatrix, movmatrix (PTX ISA, "Warp Level Matrix Multiply-Accumulate"). Within a
 * fragment register lane 4 g + t holds row g, columns 2 t and 2 t + 1 of an 8 x 8 block, so the 32 lanes of one
 * register are that block row by row. Products are exact in f32; they are added one after the other in f32: the
 * ISA leaves the order open. */
#include "shadow.h"

typedef float row8 __attribute__((vector_size(32), aligned(4)));

/* The halves of a register's lanes as floats: [0] the low ones. */
static inline void widen(float out[2][LANES], const uint32_t *x, bool is_bf16) {
  VECTOR {
    out[0][l] = as_f32(is_bf16 ? x[l] << 16 : f16_bits(x[l] & 0xffff));
    out[1][l] = as_f32(is_bf16 ? x[l] & 0xffff0000 : f16_bits(x[l] >> 16));
  }
}

/* d[16][8] += a[16][K] b[K][8]: eight rows at a time, so that their sums do not wait for one another. */
static inline void multiply(float d[16][8], const float a[16][16], const float b[16][8], int depth) {
  for (int first = 0; first < 16; first += 8) {
    row8 sum[8];
    memcpy(sum, d[first], sizeof sum);
    for (int k = 0; k < depth; k++) {
      row8 x;
      memcpy(&x, b[k], sizeof x);
      for (int r = 0; r < 8; r++) sum[r] += a[first + r][k] * x;
    }
    memcpy(d[first], sum, sizeof sum);
  }
}

/* Within eight columns (or rows, of B) the even ones come first: so lanes are read in order. The same for A and B. */
static inline void load_halves(const warp *w, const instr *i, float a[16][16], float b[16][8], int depth,
                               bool is_bf16) {
  int blocks = depth / 8; /* A: register 2 j + half holds rows 8 half, k 8 j */
  float f[2][LANES];
  for (int k = 0; k < 2 * blocks; k++) {
    widen(f, r32(w, i->s[k]), is_bf16);
    for (int g = 0; g < 8; g++)
      for (int h = 0; h < 2; h++) memcpy(&a[g + 8 * (k & 1)][8 * (k >> 1) + 4 * h], &f[h][4 * g], 16);
  }
  for (int j = 0; j < blocks; j++) {
    widen(f, r32(w, i->s[2 * blocks + j]), is_bf16);
    for (int h = 0; h < 2; h++)
      for (int t = 0; t < 4; t++)
        for (int g = 0; g < 8; g++) b[8 * j + 4 * h + t][g] = f[h][4 * g + t];
  }
}

/* The low 13 bits of a tf32 operand do not take part. */
static void load_tf32(const warp *w, const instr *i, float a[16][16], float b[16][8], int depth) {
  int blocks = depth / 4;
  for (int k = 0; k < 2 * blocks; k++)
    for (int l = 0; l < LANES; l++)
      a[l / 4 + 8 * (k & 1)][4 * (k >> 1) + (l & 3)] = as_f32(r32(w, i->s[k])[l] & ~0x1fffu);
  for (int j = 0; j < blocks; j++)
    for (int l = 0; l < LANES; l++) b[4 * j + (l & 3)][l / 4] = as_f32(r32(w, i->s[2 * blocks + j])[l] & ~0x1fffu);
}

static bool whole(warp *w, const instr *i) {
  if (!need_whole_warp(w, i)) return false;
  if (w->active == ALL_LANES) return true;
  fault(w, i, -1, CUDA_ERROR_LAUNCH_FAILED, "matrix operation in a warp of %d lanes", __builtin_popcount(w->exists));
  return false;
}

/* Register r of C holds rows 8 r.. for packed f16; for f32 register pairs 2 r, 2 r + 1 hold columns 2 t, 2 t + 1. */
static inline void finish(const warp *w, const instr *i, float a[16][16], float b[16][8], int depth, uint32_t c_at) {
  float d[16][8];
  for (int l = 0; l < LANES; l++)
    for (int r = 0; r < 4; r++)
      d[l / 4 + 8 * (r >> 1)][2 * (l & 3) + (r & 1)] = ((const float *)reg(w, i->s[c_at + (uint32_t)r]))[l];
  multiply(d, (const float(*)[16])a, (const float(*)[8])b, depth);
  for (int r = 0; r < 4; r++) {
    float *to = reg(w, i->d[r]);
    for (int l = 0; l < LANES; l++) {
      float x = d[l / 4 + 8 * (r >> 1)][2 * (l & 3) + (r & 1)];
      to[l] = x != x ? as_f32(0x7fffffff) : x;
    }
  }
}

#define MMA(name, depth, is_bf16)                                                                                      \
  static void name(warp *w, const instr *i) {                                                                          \
    float a[16][16], b[16][8];                                                                                         \
    if (!whole(w, i)) return;                                                                                          \
    load_halves(w, i, a, b, depth, is_bf16);                                                                           \
    finish(w, i, a, b, depth, 3 * (depth) / 8);                                                                        \
  }
MMA(mma_bf16_16, 16, true)
MMA(mma_bf16_8, 8, true)
MMA(mma_f16_16, 16, false)
MMA(mma_f16_8, 8, false)
static void mma_tf32(warp *w, const instr *i) { /* imm: depth */
  float a[16][16], b[16][8];
  if (!whole(w, i)) return;
  load_tf32(w, i, a, b, (int)i->imm);
  finish(w, i, a, b, (int)i->imm, (uint32_t)(3 * i->imm / 4));
}
static void mma_f16_acc(warp *w, const instr *i) { /* C and D in f16 */
  float a[16][16], b[16][8], d[16][8];
  uint32_t c_at = (uint32_t)(3 * i->imm / 8);
  if (!whole(w, i)) return;
  load_halves(w, i, a, b, (int)i->imm, false);
  for (int l = 0; l < LANES; l++)
    for (int r = 0; r < 4; r++)
      d[l / 4 + 8 * (r >> 1)][2 * (l & 3) + (r & 1)] = from_f16(
          (uint16_t)(r32(w, i->s[c_at + (uint32_t)(r >> 1)])[l] >> (16 * (r & 1))));
  multiply(d, (const float(*)[16])a, (const float(*)[8])b, (int)i->imm);
  for (int r = 0; r < 2; r++)
    for (int l = 0; l < LANES; l++) {
      uint32_t low = to_f16(d[l / 4 + 8 * r][2 * (l & 3)], RN), high = to_f16(d[l / 4 + 8 * r][2 * (l & 3) + 1], RN);
      r32(w, i->d[r])[l] = low | high << 16;
    }
}

static bool fragment(decoder *d, const ptx_operand *o, uint32_t count, ptx_type type, bool is_dst) {
  if (count == 1 && o->kind == K_REG) return is_dst ? def(d, o, type) : use(d, o, type);
  if (o->kind != K_VECTOR || o->count != count) return decode_fail(d, "a fragment of %u registers is wanted", count);
  for (uint32_t k = 0; k < count; k++)
    if (!(is_dst ? def(d, &o->items[k], type) : use(d, &o->items[k], type))) return false;
  return true;
}

bool decode_mma(decoder *d) {
  const ptx_operand *o = d->in->operands;
  int depth = 0;
  if (!mod_take(d, "sync") || !mod_take(d, "aligned")) return decode_fail(d, "mma.sync.aligned");
  if (mod_take(d, "m16n8k16"))
    depth = 16;
  else if (mod_take(d, "m16n8k8"))
    depth = 8;
  else if (mod_take(d, "m16n8k4"))
    depth = 4;
  if (!depth || !mod_take(d, "row") || !mod_take(d, "col")) return decode_fail(d, "shape or layout not supported");
  ptx_type dt = mod_type(d), at = mod_type(d), bt = mod_type(d), ct = mod_type(d);
  if (d->failed || at != bt || dt != ct || !want_operands(d, 4, 4)) return decode_fail(d, "types not supported");
  bool half = at == T_F16 || at == T_BF16, acc16 = dt == T_F16;
  run_fn *run = NULL;
  if (at == T_BF16 && dt == T_F32) run = depth == 16 ? mma_bf16_16 : depth == 8 ? mma_bf16_8 : NULL;
  if (at == T_F16 && dt == T_F32) run = depth == 16 ? mma_f16_16 : depth == 8 ? mma_f16_8 : NULL;
  if (at == T_F16 && acc16 && depth >= 8) run = mma_f16_acc;
  if (at == T_TF32 && dt == T_F32 && depth <= 8) run = mma_tf32;
  d->out->imm = depth;
  uint32_t an = (uint32_t)depth / (half ? 4 : 2);
  ptx_type acc = acc16 ? T_B32 : T_F32;
  return run ? fragment(d, &o[0], acc16 ? 2 : 4, acc, true) && fragment(d, &o[1], an, T_B32, false) &&
                   fragment(d, &o[2], an / 2, T_B32, false) && fragment(d, &o[3], acc16 ? 2 : 4, acc, false) &&
                   decode_done(d, run)
             : decode_fail(d, "types not supported");
}

/* --- 8 x 8 matrices between shared memory and fragments ------------------------------------------ */
/* Lane 8 j + r gives the address of row r of matrix j. count: matrices; mode: .trans */
static bool matrix_rows(warp *w, const instr *i, uint8_t *rows[LANES], bool write) {
  uint64_t address[LANES];
  if (!whole(w, i)) return false;
  lane_addresses(w, i, 0, address);
  for (int l = 0; l < 8 * i->count; l++) {
    ptx_space space = (ptx_space)i->space;
    uint64_t at = address[l] - SHARED_BASE;
    if (space == S_SHARED && !write && !(at & 15) && quick_read(w, w->cta->shadow, at, 16, WHOLE_WARP)) {
      rows[l] = w->cta->shared + at;
    } else if (space == S_SHARED && !write) { /* all lanes take part of a row */
      if (!(address[l] & 15) && !shadow_access(w, i, -1, (uint32_t)address[l], 16, ACCESS_READ)) return false;
      rows[l] = atomic_at(w, i, l, space, address[l], 16);
    } else {
      rows[l] = data_at(w, i, l, space, address[l], 16, 16, write ? ACCESS_WRITE : ACCESS_READ);
    }
    if (!rows[l]) return false;
  }
  return true;
}

static void ldmatrix(warp *w, const instr *i) {
  uint8_t *rows[LANES];
  if (!matrix_rows(w, i, rows, false)) return;
  for (uint32_t j = 0; j < i->count; j++) {
    uint32_t *d = r32(w, i->d[j]);
    if (!i->mode) {
      for (int r = 0; r < 8; r++) memcpy(&d[4 * r], rows[8 * j + (uint32_t)r], 16);
      continue;
    }
    uint16_t m[8][8];
    for (int r = 0; r < 8; r++) memcpy(m[r], rows[8 * j + (uint32_t)r], 16);
    for (int l = 0; l < LANES; l++) d[l] = m[2 * (l & 3)][l / 4] | (uint32_t)m[2 * (l & 3) + 1][l / 4] << 16;
  }
}

static void stmatrix(warp *w, const instr *i) {
  uint8_t *rows[LANES];
  if (!matrix_rows(w, i, rows, true)) return;
  for (uint32_t j = 0; j < i->count; j++) {
    const uint32_t *s = r32(w, i->s[1 + j]);
    for (int l = 0; l < LANES; l++)
      for (int h = 0; h < 2; h++) {
        int row = i->mode ? 2 * (l & 3) + h : l / 4, column = i->mode ? l / 4 : 2 * (l & 3) + h;
        uint16_t x = (uint16_t)(s[l] >> (16 * h));
        memcpy(rows[8 * j + (uint32_t)row] + 2 * column, &x, 2);
      }
  }
}

static void movmatrix(warp *w, const instr *i) {
  uint16_t m[8][8];
  if (!whole(w, i)) return;
  memcpy(m, r32(w, i->s[0]), sizeof m);
  for (int l = 0; l < LANES; l++)
    r32(w, i->d[0])[l] = m[2 * (l & 3)][l / 4] | (uint32_t)m[2 * (l & 3) + 1][l / 4] << 16;
}

static bool take_matrix(decoder *d) {
  if (!mod_take(d, "sync") || !mod_take(d, "aligned") || !mod_take(d, "m8n8"))
    return decode_fail(d, ".sync.aligned.m8n8 is wanted");
  d->out->count = mod_take(d, "x1") ? 1 : mod_take(d, "x2") ? 2 : mod_take(d, "x4") ? 4 : 0;
  d->out->mode = mod_take(d, "trans");
  d->out->space = mod_take(d, "shared") || mod_take(d, "shared::cta") ? S_SHARED : S_GENERIC;
  if (!d->out->count) return decode_fail(d, ".x1, .x2 or .x4 is missing");
  return mod_type(d) == T_B16 || decode_fail(d, "not .b16");
}

bool decode_ldmatrix(decoder *d) {
  const ptx_operand *o = d->in->operands;
  return take_matrix(d) && want_operands(d, 2, 2) && fragment(d, &o[0], d->out->count, T_B32, true) &&
         use_address(d, &o[1]) && decode_done(d, ldmatrix);
}

bool decode_stmatrix(decoder *d) {
  const ptx_operand *o = d->in->operands;
  if (d->module->ptx->target < 90) return decode_fail(d, "needs sm_90");
  return take_matrix(d) && want_operands(d, 2, 2) && use_address(d, &o[0]) &&
         fragment(d, &o[1], d->out->count, T_B32, false) && decode_done(d, stmatrix);
}

bool decode_movmatrix(decoder *d) {
  if (!mod_take(d, "sync") || !mod_take(d, "aligned") || !mod_take(d, "m8n8") || !mod_take(d, "trans"))
    return decode_fail(d, "movmatrix.sync.aligned.m8n8.trans");
  const ptx_operand *o = d->in->operands;
  return mod_type(d) == T_B16 && want_operands(d, 2, 2) && def(d, &o[0], T_B32) && use(d, &o[1], T_B32) &&
         decode_done(d, movmatrix);
}
