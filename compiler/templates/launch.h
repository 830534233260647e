/* launch.h: the structs that the host and compiled code share. Plain C, no library; 64-bit strides throughout. */
#ifndef FLYMASK_LAUNCH_H
#define FLYMASK_LAUNCH_H

#include <stdint.h>

/* What a compiled mask reads beside b, h, q, kv: the call, and one 8-byte slot for each global of its source.
 * Slots, in order: the parameters (integers sign- or zero-extended, f32 in the low 4 bytes), then for each buffer
 * FLYI_BUFFER_SLOTS: pointer, element count, dim0 .. dim3. */
typedef struct flyi_mask_args {
  int64_t batch, heads;
  int64_t len_q, len_kv;   /* of every entry, where cu_* are null */
  int64_t q_offset;
  const int32_t *cu_q, *cu_kv;
  const int32_t *q_rows, *kv_rows; /* not null where the mask reads tokens: the host passes the identity then */
  int64_t q_stride_b, q_stride_h, kv_stride_b, kv_stride_h;
  uint64_t slots[];
} flyi_mask_args;

enum { FLYI_BUFFER_SLOTS = 6 };

/* Pairs are evaluated in blocks of 64 x 64. */
enum { FLYI_BLOCK = 64 };

/* Bit j of bits[r] is mask(b, h, q0 + r, kv0 + j). q0 has the offset added. The block may reach beyond the lengths: the
 * caller ignores those bits. */
typedef void flyi_tile_fn(const flyi_mask_args *args, int32_t b, int32_t h, int32_t q0, int32_t kv0,
                          uint64_t bits[FLYI_BLOCK]);

#define FLYI_TILE_SYMBOL "fly_tile_bits"

#endif
