/* tokens.h: what fly_len_... and fly_token_... of a mask or a score modifier become: functions of the templates that
 * are joined with them at run time. */
#ifndef FLYMASK_TOKENS_H
#define FLYMASK_TOKENS_H

#include "launch.h"

static inline int64_t clamp(int64_t x, int64_t count) { return x < 0 ? 0 : x >= count ? count - 1 : x; }

int32_t flyi_len_q(const flyi_mask_args *a, int32_t b) {
  int64_t e = clamp(b, a->batch), all = a->len_q;
  return a->cu_q ? a->cu_q[e + 1] - a->cu_q[e] : (int32_t)all;
}

int32_t flyi_len_kv(const flyi_mask_args *a, int32_t b) {
  int64_t e = clamp(b, a->batch), all = a->len_kv;
  return a->cu_kv ? a->cu_kv[e + 1] - a->cu_kv[e] : (int32_t)all;
}

/* The token behind row `row` of (b, h): the row map's entry, counted from the start of the sequence. What does not
 * depend on `row` is computed whether or not there are rows, so that it moves out of loops. */
static inline int32_t token(const flyi_mask_args *a, const int32_t *rows, int64_t stride_b, int64_t stride_h,
                            const int32_t *cu, int32_t length, int32_t b, int32_t h, int64_t row) {
  int64_t e = clamp(b, a->batch), plane = e * stride_b + clamp(h, a->heads) * stride_h, start = cu ? cu[e] : 0;
  return length == 0 ? 0 : rows[plane + start + clamp(row, length)] - (int32_t)start;
}

int32_t flyi_token_q(const flyi_mask_args *a, int32_t b, int32_t h, int32_t q) {
  return token(a, a->q_rows, a->q_stride_b, a->q_stride_h, a->cu_q, flyi_len_q(a, b), b, h, q - a->q_offset) +
         (int32_t)a->q_offset;
}

int32_t flyi_token_kv(const flyi_mask_args *a, int32_t b, int32_t h, int32_t kv) {
  return token(a, a->kv_rows, a->kv_stride_b, a->kv_stride_h, a->cu_kv, flyi_len_kv(a, b), b, h, kv);
}

#endif
