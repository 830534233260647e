/* launch_cuda.h: what the host and the CUDA kernels share, beside launch.h. Plain C, no library.
 *
 * A kernel has one argument, passed by value: a flyi_cuda_call, and right behind it the flyi_mask_args with as many
 * slots as the mask and the score modifier have (flyi_cuda_argument_size). All pointers in both are the device's; those
 * of flyi_mask_args are stored as if they were the host's.
 *
 * Grid: (call.tiles * pairs, 1, 1), where pairs = batch * heads (of key/value heads, where the outer tiles are keys).
 * Block x does what flyi_cuda_work_of says. Threads of a block and dynamic shared memory: as the image's entry says. */
#ifndef FLYMASK_LAUNCH_CUDA_H
#define FLYMASK_LAUNCH_CUDA_H

#include "launch.h"

enum {
  FLYI_CUDA_MAX_ARGUMENT = 4096, /* bytes: what every driver takes */
  FLYI_CUDA_ROWS_BEHIND = 256,   /* entries of q_rows and kv_rows that may be read behind the last one */
  FLYI_CUDA_MAX_LENGTH = 1 << 30 /* of q + |q_offset| and kv: so that q - kv is an int */
};

/* What a kernel of an image does. The outer tile is what a block of threads owns, the inner ones what it walks
 * through. */
typedef enum flyi_cuda_role {
  FLYI_CUDA_FORWARD,          /* outer: queries, inner: keys. Writes out, lse */
  FLYI_CUDA_BACKWARD_ROWS,    /* outer: queries. Writes neg_lse and delta */
  FLYI_CUDA_BACKWARD_KEYS,    /* outer: keys (of call.walk query heads), inner: queries. Writes d_k, d_v */
  FLYI_CUDA_BACKWARD_QUERIES, /* outer: queries, inner: keys. Writes d_q */
  FLYI_CUDA_FORWARD_SPLIT,    /* outer: queries of call.walk heads, which lie together; a part of the inner tiles.
                                 Writes part_out, part_lse, which fly_merge_rows (launch_rows.h) makes out and lse of */
  FLYI_CUDA_BACKWARD_FINISH,  /* outer: rows of the tensor call.finish.to. Sums rows that repeat, zeroes
                                 those not read */
  FLYI_CUDA_BACKWARD_SINK,    /* block h: query head h. Writes d_sink; after ROWS */
  FLYI_CUDA_ROLES
} flyi_cuda_role;

/* What a kernel asks of its call. */
enum {
  /* base, strides and whole rows of all 16-bit tensors that the kernel reads in tiles: multiples of 16 bytes */
  FLYI_CUDA_ALIGNED = 1
};

/* A tensor: row r of (b, h) begins at element b * stride_b + h * stride_h + r * stride_row. stride_row, in bytes, is
 * below 2^32; no stride is negative. data 0: there is none. stride_b is 0 in a packed (ragged) call. */
typedef struct flyi_cuda_tensor {
  uint64_t data;
  int64_t stride_b, stride_h, stride_row;
} flyi_cuda_tensor;

/* A block map in one order: compressed rows of runs. Row i of plane p, r = p * rows + i, has runs[start[r]] ..
 * runs[start[r + 1] - 1]; ascending; kinds FLY_FULL and FLY_PARTIAL. A map row is `outer` outer tiles of the kernel
 * high, a map column `inner` inner tiles wide: the host coarsens maps whose tiles are no multiples of the kernel's.
 * What lies beyond an entry's length is ignored. */
typedef struct flyi_cuda_map {
  uint64_t start;             /* int64 [planes * rows + 1] */
  uint64_t runs;              /* struct fly_run; 8 bytes each. One readable run lies behind the last */
  uint64_t order;             /* int32 [planes * rows]: a plane's rows, longest first; 0: ascending */
  uint64_t plane_of;          /* int32: plane_of[b * plane_stride_b + h * plane_stride_h], h a query head */
  int32_t plane_stride_b, plane_stride_h;
  int32_t rows;               /* of every plane; shorter ones end with empty rows */
  int32_t outer, inner;
  int32_t reserved;
} flyi_cuda_map;

/* One launch of BACKWARD_FINISH: the role's pairs are the batch entries times heads of `to`, its tiles cover `to`'s
 * rows. Behind row r of plane p, i = p * (rows + 1) + r, are the rows of the call list[first[i]] .. list[first[i + 1]
 * - 1], in the order in which they are summed, as places in sums. sums 0: the list is not read, and `first` tells which
 * rows are read at all. */
typedef struct flyi_cuda_finish {
  flyi_cuda_tensor to;
  uint64_t sums;                         /* call.sums_q, sums_k or sums_v */
  uint64_t first, list;                  /* int32 */
  int32_t rows, heads, dim;              /* of `to` */
  int32_t reserved;
} flyi_cuda_finish;

/* A backward call launches, on one stream: ROWS, KEYS (where d_k or d_v is wanted), QUERIES (where d_q is), SINK (where
 * d_sink is), and FINISH once for each gradient that has sums (rows of the tensor repeat among the call's rows) or rows
 * that the call does not read. */
typedef struct flyi_cuda_call {
  flyi_cuda_tensor q, k, v, out, lse;    /* lse: f32, may be 0 in a forward call */
  flyi_cuda_tensor sink, d_sink;         /* f32 [1, heads, 1, 1], or 0; d_sink in a backward call */
  flyi_cuda_map by_query, by_key;        /* by_key: role BACKWARD_KEYS only */
  uint64_t out_rows;                     /* int32, as mask.q_rows, which it may equal; 0: the identity */
  int64_t out_rows_stride_b, out_rows_stride_h;
  float scale, scale_log2;               /* scale * log2(e) */
  int32_t group;                         /* query heads of a key/value head */
  int32_t out_type;                      /* fly_type: the kernel's, or FLY_F32 */
  int32_t dim, value_dim;
  int32_t tiles;                         /* rows * outer of the map that the role walks: those beyond an entry's end
                                            do nothing */
  int32_t together;                      /* pairs of (batch, head) whose tiles are dealt in turn: see flyi_cuda_work */
  /* backward; rows of d_out, d_lse go through out_rows, of d_q through q_rows, of d_k and d_v through kv_rows */
  flyi_cuda_tensor d_out, d_lse, d_q, d_k, d_v;
  uint64_t neg_lse, delta;               /* workspace, f32 [batch * heads][rows_q], all written by ROWS, whose tiles
                                            cover rows_q */
  uint64_t sums_q, sums_k, sums_v;       /* workspace, f32 [batch * heads][rows_q][dim], [pairs of KEYS][rows_kv][dim or
                                            value_dim]: where gradients wait for BACKWARD_FINISH, if rows repeat;
                                            0: they go straight to their tensor */
  int32_t rows_q, rows_kv;               /* of the longest entry, rounded up to multiples of 256 */
  int32_t add_gradients;
  int32_t walk;                          /* query heads of a pair of BACKWARD_KEYS and of FORWARD_SPLIT: group, or 1
                                            where kv_rows (in FORWARD_SPLIT also the map) differ by head */
  flyi_cuda_finish finish;
  /* FORWARD_SPLIT, whose grid is (parts * tiles * pairs, 1, 1): see split_cuda.h */
  int32_t parts;                         /* a block walks part x % parts of its inner tiles */
  uint64_t part_out, part_lse;           /* f32 [part][batch][heads][rows_q][value_dim], and without value_dim */
  int64_t part_stride;                   /* rows of a part: batch * heads * rows_q */
  /* then flyi_mask_args: lengths, cu_q, cu_kv, q_rows, kv_rows (null: the identity; not where the mask or the modifier
     reads tokens), slots of the mask, slots of the modifier */
} flyi_cuda_call;

/* Bytes of the argument for so many slots (launch.h). */
static inline int64_t flyi_cuda_argument_size(int64_t slots) {
  return (int64_t)(sizeof(flyi_cuda_call) + sizeof(flyi_mask_args)) + 8 * slots;
}

/* Which outer tile of which (batch, head) block x works on. Groups of `together` pairs come one after the other; within
 * a group the longest map rows of all its pairs come first, so that no multiprocessor waits at the end; a small group
 * keeps its keys and values in the cache. `place` is the map row's place in the plane's order. */
typedef struct flyi_cuda_work {
  int32_t pair;  /* b * heads + h */
  int32_t place; /* of the map row */
  int32_t tile;  /* which of the row's outer tiles */
} flyi_cuda_work;
static inline flyi_cuda_work flyi_cuda_work_of(uint32_t x, int32_t pairs, int32_t tiles, int32_t together,
                                               int32_t outer) {
  uint32_t group = (uint32_t)tiles * (uint32_t)together; /* below 2^31: the grid */
  uint32_t g = x / group, inside = x % group, first = g * (uint32_t)together;
  uint32_t size = (uint32_t)pairs - first < (uint32_t)together ? (uint32_t)pairs - first : (uint32_t)together;
  uint32_t at = inside / size;
  return (flyi_cuda_work){(int32_t)(first + inside % size), (int32_t)(at / (uint32_t)outer),
                          (int32_t)(at % (uint32_t)outer)};
}

#endif
