/* flymask/mask.h: what the source of a mask includes.
 *
 * A mask is a C function of four integers that says whether query q may see key kv:
 *
 *     #include <flymask/mask.h>
 *
 *     FLY_PARAM(int, left, 255);    // a scalar, with its default; a launch may give another value
 *     FLY_BUFFER(int32_t, doc, 1);  // captured data: element type, name, rank (1 to 4)
 *
 *     bool mask(int b, int h, int q, int kv) {
 *       return doc[q] == doc[kv] && kv <= q && q - kv <= left;
 *     }
 *
 * b is the batch entry, h the query head; q and kv are positions in the call's row order, and q has the call's
 * q_offset added. The file may define helper functions and constant tables. It may include this header and the
 * compiler's own freestanding headers (<stdint.h>, <limits.h>, ...), and nothing else.
 *
 * Meaning. The compiled mask is total: for every input it gives one answer, the same on every path (CPU, GPU,
 * analysis). Where C leaves a result undefined, this is what a mask gets:
 *
 *     signed arithmetic           wraps around, two's complement
 *     x / 0, x % 0                0, x
 *     INT_MIN / -1, INT_MIN % -1  INT_MIN, 0 (of the operands' type)
 *     shifts                      the count is taken modulo the width of the promoted left operand
 *     float to integer            saturates; a NaN gives 0
 *     buffer[i], i outside        the index is clamped to the first or the last element; an empty buffer reads 0
 *     local or constant arrays    the index is clamped in the same way; an array of arrays counts as one, row after row
 *     loops                       after 65,536 rounds of all loops together (jumps back to a loop's start) the mask
 *                                 ends with the answer false
 *     __builtin_clz, ctz of 0     the width
 *     a local never assigned      0 (and the compiler's warnings about it are errors)
 *
 * Floating-point operations are IEEE binary32/binary64, never contracted or reordered. C's / and % truncate: -1 / 4 is
 * 0 and -1 % 4 is -1, where Python floors to -1 and 3.
 *
 * Refused, with file, line and column: stores to anything but locals, writable globals, calls of functions without a
 * body here (except fly_...), recursion, inline assembly, variable-length arrays, volatile and atomic accesses,
 * conversions between pointers and integers, a pointer that may point into different objects, buffers read as another
 * type, __int128, long double, _Float16, vectors, complex numbers, loops entered by goto at several places. A mask has
 * at most 64 parameters and buffers, 256 functions, with all calls inlined 8,192 instructions (a case of a switch
 * counts as 4) and 128 loops (12, where no constants bound them to 65,536 rounds together), 16 KiB of locals a
 * function, 64 struct types, arrays and structs nested 32 deep, 1 MiB of constant tables and 1 MiB of source.
 *
 * The same file is ordinary C for gcc and clang: a parameter is then a global variable, a buffer a global pointer with
 * global dimensions NAME_dim0 .. NAME_dim3, and fly_mask_context below stands for the call. So a mask can be
 * unit-tested like any function; only the table above does not hold there (compile with -fwrapv; the
 * sanitizers find the rest). */
#ifndef FLYMASK_MASK_H
#define FLYMASK_MASK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool mask(int b, int h, int q, int kv);

#ifdef FLYMASK_COMPILING /* set by Flymask's own front end */

/* Each declaration is a global in a section that says what it is, beside a constant with its type and rank. */
#define FLY_SECTION_(name) __attribute__((section(name), used))
#define FLY_TYPE_(type)                                                                                            \
  (int)(sizeof(type) + _Generic((type)0, bool: 0x30, float: 0x40, double: 0x40, char: 0x10, signed char: 0x10,     \
    short: 0x10, int: 0x10, long: 0x10, long long: 0x10, unsigned char: 0x20, unsigned short: 0x20, unsigned: 0x20, \
    unsigned long: 0x20, unsigned long long: 0x20, default: 0x80))
#define FLY_PARAM(type, name, value)                                                               \
  FLY_SECTION_("fly.param") __typeof__((type)0) name = (value);                                    \
  FLY_SECTION_("fly.type") static const int fly_type_##name[2] = {FLY_TYPE_(type), 0}
#define FLY_BUFFER(type, name, rank)                                                               \
  FLY_SECTION_("fly.buffer") const type *name;                                                     \
  FLY_SECTION_("fly.dim") int64_t name##_dim0, name##_dim1, name##_dim2, name##_dim3;              \
  FLY_SECTION_("fly.type") static const int fly_type_##name[2] = {FLY_TYPE_(type), (rank)}

int fly_token_q(int b, int h, int q);
int fly_token_kv(int b, int h, int kv);
int fly_len_q(int b);
int fly_len_kv(int b);

#else

#define FLY_PARAM(type, name, value) type name = (value)
#define FLY_BUFFER(type, name, rank) \
  const type *name;                  \
  int64_t name##_dim0 = 1, name##_dim1 = 1, name##_dim2 = 1, name##_dim3 = 1

/* The call as an ordinary C program sees it: set it before calling mask(). Row maps NULL: the identity. */
struct fly_mask_context {
  int len_q, len_kv, q_offset;
  const int32_t *q_rows, *kv_rows;                             /* [batch, head, row], by these strides */
  int64_t q_stride_b, q_stride_h, kv_stride_b, kv_stride_h;    /* in elements; 0 broadcasts */
  const int32_t *cu_seqlens_q, *cu_seqlens_kv;                 /* [batch + 1], or NULL: every entry has len_q, len_kv */
};
__attribute__((weak)) struct fly_mask_context fly_mask_context;

static inline int fly_start_q_(int b) { return fly_mask_context.cu_seqlens_q ? fly_mask_context.cu_seqlens_q[b] : 0; }
static inline int fly_start_kv_(int b) {
  return fly_mask_context.cu_seqlens_kv ? fly_mask_context.cu_seqlens_kv[b] : 0;
}

__attribute__((unused)) static int fly_token_q(int b, int h, int q) {
  const struct fly_mask_context *c = &fly_mask_context;
  int row = q - c->q_offset + fly_start_q_(b);
  return c->q_rows ? c->q_rows[b * c->q_stride_b + h * c->q_stride_h + row] - fly_start_q_(b) + c->q_offset : q;
}
__attribute__((unused)) static int fly_token_kv(int b, int h, int kv) {
  const struct fly_mask_context *c = &fly_mask_context;
  int row = kv + fly_start_kv_(b);
  return c->kv_rows ? c->kv_rows[b * c->kv_stride_b + h * c->kv_stride_h + row] - fly_start_kv_(b) : kv;
}
__attribute__((unused)) static int fly_len_q(int b) {
  const struct fly_mask_context *c = &fly_mask_context;
  return c->cu_seqlens_q ? c->cu_seqlens_q[b + 1] - c->cu_seqlens_q[b] : c->len_q;
}
__attribute__((unused)) static int fly_len_kv(int b) {
  const struct fly_mask_context *c = &fly_mask_context;
  return c->cu_seqlens_kv ? c->cu_seqlens_kv[b + 1] - c->cu_seqlens_kv[b] : c->len_kv;
}

#endif

/* fly_token_q(b, h, q), fly_token_kv(b, h, kv): the token behind a row. With a row map, the index the map holds for
 * that row (counted from the start of the sequence, plus q_offset for queries); without one, q and kv themselves. b, h
 * and the row are clamped to the call's.
 * fly_len_q(b), fly_len_kv(b): the rows of batch entry b. */

/* The size of a buffer's dimension k (a literal 0 to 3; 1 beyond its rank). Buffers are flat, row-major. */
#define fly_dim(name, k) name##_dim##k
#define fly_at2(name, i, j) ((name)[(int64_t)(i)*fly_dim(name, 1) + (j)])
#define fly_at3(name, i, j, k) ((name)[((int64_t)(i)*fly_dim(name, 1) + (j)) * fly_dim(name, 2) + (k)])
#define fly_at4(name, i, j, k, l) \
  ((name)[(((int64_t)(i)*fly_dim(name, 1) + (j)) * fly_dim(name, 2) + (k)) * fly_dim(name, 3) + (l)])

static inline int fly_min(int a, int b) { return a < b ? a : b; }
static inline int fly_max(int a, int b) { return a > b ? a : b; }
static inline int fly_abs(int a) { return a < 0 ? -a : a; }
static inline int fly_clamp(int x, int lo, int hi) { return fly_min(fly_max(x, lo), hi); }

#endif
