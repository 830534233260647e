/* attention.h: kernels, and the calls that run them, forward and backward. A part of flymask.h. */
#ifndef FLYMASK_API_ATTENTION_H
#define FLYMASK_API_ATTENTION_H

#include <flymask/map.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- 7. Kernels -------------------------------------------------------------------------------------------------- */

/* Code for one mask, score modifier, element type and head dimension on one target. Lengths, batch, heads, strides,
 * scale and parameters are arguments of a call: a new value never compiles again. A kernel retains its mask and its
 * modifier; desc is copied. */
typedef struct fly_kernel fly_kernel;

typedef struct fly_kernel_desc {
  size_t size;
  fly_type type;      /* of Q, K, V and the output: FLY_F32, FLY_F16, FLY_BF16; sums are f32 */
  int head_dim;       /* D, 1 to 512; GPUs: to 256 */
  int value_dim;      /* DV, 1 to 512; 0: head_dim; GPUs: to 256 */
  const char *target; /* as in fly_compile_options, or an NVIDIA GPU's (section 15); default: the mask's */
  fly_score *score;   /* NULL: scores are as they are */
} fly_kernel_desc;

FLY_API fly_status fly_kernel_create(fly_mask *mask, const fly_kernel_desc *desc, fly_kernel **out, fly_error *error);
FLY_API fly_kernel *fly_kernel_retain(fly_kernel *kernel);
FLY_API void fly_kernel_release(fly_kernel **kernel);
FLY_API fly_mask *fly_kernel_mask(const fly_kernel *kernel); /* borrowed */
FLY_API fly_score *fly_kernel_score(const fly_kernel *kernel); /* borrowed; NULL: it has none */

/* ---- 8. Attention ------------------------------------------------------------------------------------------------ */

/* [batch, heads, sequence, dimension]; strides in elements, the last one must be 1. Strides of 0 broadcast inputs.
 * Tensors may be parts of one array, as a projection leaves them: [batch, sequence, heads of q, k and v, dimension]. */
typedef struct fly_tensor {
  void *data;
  fly_type type;
  int64_t shape[4], stride[4];
} fly_tensor;

/* A tensor in row-major order without gaps. */
FLY_API fly_tensor fly_tensor_dense(void *data, fly_type type, int64_t batch, int64_t heads, int64_t seq, int64_t dim);

/* out = softmax(S, over the keys that the mask lets a query see) V, where S = scale Q K^T, or score(scale Q K^T) with a
 * modifier.
 *
 * Query head h reads key/value head h / (heads of q / heads of k), which must divide. A query that sees no key gets
 * output 0 and LSE -inf. Rows of out and lse that no row of the call maps to keep their value. The result does not
 * depend on the number of threads. The numerics of a row depend only on that row, its keys and the map's tiles, and on
 * which of two ways the call takes: where the longest entry has 512 keys or more and its queries, times the query heads
 * of a key/value head, are 16 or less, as when a model writes one token after the other, the keys are split into ranges
 * of 2048, each read once for all query heads, and the ranges' results merged by LSE (not with a score modifier or a
 * sink; on GPUs, section 15).
 *
 * A sink is a logit z[h] for each query head that takes part in the softmax's denominator alone (as learned by
 * gpt-oss): out = sum_j exp(S_j) V_j / (exp(z) + sum_j exp(S_j)), LSE = log(exp(z) + sum_j exp(S_j)); a query that sees
 * no key then gets output 0 and LSE z. -infinity is no sink. */
typedef struct fly_attention {
  size_t size;
  const fly_kernel *kernel;
  fly_bound *bound;      /* of the kernel's mask */
  const fly_map *map;    /* NULL: built for this call */
  fly_geometry geometry; /* batch, heads and lengths may be 0: taken from the tensors */
  fly_tensor q, k, v;
  fly_tensor out;        /* of the kernel's type, or f32 (forward only): what is merged later loses nothing */
  fly_tensor lse;        /* optional (data NULL): f32 [batch, heads, sequence, 1], natural logarithm */
  fly_row_map out_rows;  /* where output and LSE rows go; NULL: q_rows. No row twice within one (batch, head) */
  float scale;           /* 0: 1 / sqrt(head_dim) */
  void *workspace;       /* fly_attention_workspace bytes, aligned to 64; NULL: the library's, which keeps one of
                            at most 64 MiB for the next call */
  size_t workspace_size;
  int threads;           /* at most; default: OpenMP's */
  fly_parallel_for parallel_for;
  void *parallel_user;
  fly_tensor d_out;         /* the rest: fly_attention_backward only */
  fly_tensor d_lse;         /* optional: f32, as lse */
  fly_tensor d_q, d_k, d_v; /* as q, k, v; data NULL: not wanted */
  bool add_gradients;       /* add to what d_q, d_k, d_v and d_sink hold, in their type, instead of overwriting it */
  fly_bound *score;         /* of the kernel's score modifier, both directions; NULL where it has none */
  fly_tensor sink;          /* optional, both directions: f32 [1, heads, 1, 1]; not in fly_selection_... */
  fly_tensor d_sink;        /* fly_attention_backward: its gradient, as sink; NULL: not wanted. Not in gated calls */
  struct fly_cuda *cuda;    /* kernels for NVIDIA GPUs only, and then needed: section 15 */
  void *stream;             /* CUstream; NULL: the context's default stream */
  const struct fly_cpu_sizes *sizes; /* of fly_attention_forward on a CPU; NULL: the library's choice */
} fly_attention;

FLY_API fly_status fly_attention_forward(const fly_attention *call, fly_error *error);

/* Bytes of workspace that the call would like; less is an error, NULL leaves it to the library. They depend
 * on the number of threads: where call->threads is 0, on what OpenMP would use at that moment, so set it
 * where the two may differ. */
FLY_API fly_status fly_attention_workspace(const fly_attention *call, size_t *bytes, fly_error *error);

/* The sizes in which a forward call on a CPU works. The library chooses them by a small model of caches and head dims
 * (docs/cpu.md); a call may bring others, to measure them (`flymask bench --sweep`). 0: the library's choice. Only
 * split_keys changes results, by rounding. */
typedef struct fly_cpu_sizes {
  size_t size;
  int32_t item_queries; /* that pass together over their keys: 64, or 128 where the map's tile_q is a multiple of it */
  int32_t split_keys;   /* keys of a range, where few queries see many keys: a multiple of 64 */
  int64_t phase_bytes;  /* of a phase's packed keys and values, a worker: at least one (batch, head) fits; to 2^40 */
} fly_cpu_sizes;

/* What a forward call would use: the sizes that it brings, and the library's in the place of zeros. A call without a
 * map is taken for one whose map has the default tiles. out->size says how much is written: FLY_INIT(fly_cpu_sizes). */
FLY_API fly_status fly_attention_sizes(const fly_attention *attention, fly_cpu_sizes *out, fly_error *error);

/* The gradients of out and lse with respect to q, k, v and sink, by the same call: q, k, v, out and lse (not optional
 * here) are what the forward call read and wrote, d_out is the gradient that arrives at out, and d_lse, where
 * given, the one at lse. d_out has the shape of out and, as d_lse, is read through out_rows, in
 * which rows may repeat here.
 *
 * Every row of d_q, d_k and d_v is written (or added to): one that the call does not read gets 0, one that it reads
 * several times (heads that share keys, row maps with repetitions) the sum, in a fixed order. Sums are f32 and rounded
 * once. A query with LSE -inf contributes nothing. The result does not depend on the number of threads. */
FLY_API fly_status fly_attention_backward(const fly_attention *call, fly_error *error);

/* As fly_attention_workspace. At most, with n = len_q + len_kv in whole blocks of 64, for each query head of each batch
 * entry: about 4 n (2 head_dim + value_dim) bytes; runtime/backward.c has the formula. */
FLY_API fly_status fly_attention_backward_workspace(const fly_attention *call, size_t *bytes, fly_error *error);

#ifdef __cplusplus
}
#endif
#endif
