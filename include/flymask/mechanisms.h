/* mechanisms.h: what is made of attention calls: merged parts, Stochastic Attention, gated sums, selected blocks. A
 * part of flymask.h. */
#ifndef FLYMASK_API_MECHANISMS_H
#define FLYMASK_API_MECHANISMS_H

#include <flymask/attention.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- 10. Permutations -------------------------------------------------------------------------------------------- */

/* A uniform permutation of 0 .. n - 1, the same on every platform, for each (seed, layer, step, head): Fisher-Yates on
 * Philox4x32-10 (Salmon et al., SC 2011). Position p of the permuted order holds token rows[p]. */
FLY_API fly_status fly_permutation(int64_t n, uint64_t seed, uint32_t layer, uint32_t step, uint32_t head,
                                   int32_t *rows, fly_error *error);
/* inverse[rows[p]] = p. An error where rows is not a permutation; inverse must not overlap it. */
FLY_API fly_status fly_permutation_inverse(int64_t n, const int32_t *rows, int32_t *inverse, fly_error *error);
/* FLY_OK where rows holds each of 0 .. n - 1 once; the error names the first offender. */
FLY_API fly_status fly_permutation_check(int64_t n, const int32_t *rows, fly_error *error);

/* ---- 11. Merging partial attentions ------------------------------------------------------------------------------ */

/* What an attention call made of some of the keys: its output and log-sum-exp. */
typedef struct fly_partial {
  fly_tensor out;        /* [batch, heads, rows, dim] in f32, f16 or bf16 */
  fly_tensor lse;        /* f32 [batch, heads, rows, 1] */
  fly_row_map rows;      /* where row r of the merged output is in this partial one; -1: nowhere. NULL: row r */
  fly_tensor d_out;      /* fly_merge_backward only: as out and lse, written; data NULL: not wanted */
  fly_tensor d_lse;
} fly_partial;

typedef struct fly_merge_call {
  size_t size;
  const fly_partial *partials;
  int count;             /* any number; with 0 the merged output is empty: 0 and -inf */
  fly_tensor out, lse;   /* written: [batch, heads, sequence, dim] in f32, f16 or bf16; f32 [.., 1], optional */
  fly_tensor d_out, d_lse; /* fly_merge_backward only: what arrives at out and lse; d_lse is optional */
  int threads;           /* as in fly_attention */
  fly_parallel_for parallel_for;
  void *parallel_user;
  struct fly_cuda *cuda; /* tensor data is in a GPU's memory (section 15); NULL: on the CPU */
  void *stream;          /* as in fly_attention */
} fly_merge_call;

/* The attention over all keys, from attentions over disjoint parts of them: split keys, blocks of keys, shards.
 *
 *     lse = log sum_i exp(lse_i)      out = sum_i exp(lse_i - lse) out_i
 *
 * in double precision, rounded once. A partial row whose LSE is -inf contributes nothing, whatever its output holds;
 * where all are empty, out is 0 and lse -inf. out and lse may be the very tensors of one partial without a row map:
 * merged in place. The result does not depend on the number of threads. */
FLY_API fly_status fly_merge(const fly_merge_call *call, fly_error *error);

/* The gradients with respect to each partial output and LSE, from d_out, d_lse and the partials as fly_merge read them
 * (out and lse of the call are not used). Rows of a partial that the merged output does not read keep their gradients;
 * empty ones get 0. No two rows may read the same row of a partial. */
FLY_API fly_status fly_merge_backward(const fly_merge_call *call, fly_error *error);

/* ---- 12. Stochastic attention ------------------------------------------------------------------------------------ */

/* Who may not see whom, beside the window: */
typedef enum fly_sa_causal {
  FLY_SA_BY_TOKEN,    /* no token sees a later one */
  FLY_SA_NOT_CAUSAL,
  FLY_SA_BY_POSITION, /* no position of the permuted order sees a later one; lets tokens see the future */
  FLY_SA_BY_BOTH
} fly_sa_causal;

/* Tokens in a random order, and a window over that order (Jin and Sui, arXiv 2604.00754). What a caller does not name
 * is one permutation for all heads and samples, causal by token. Position encodings stay the caller's, by token. */
typedef struct fly_sa_desc {
  size_t size;
  int left, right;           /* positions of the permuted order before and behind the query, inclusive; -1: unbounded */
  fly_sa_causal causal;
  int64_t batch, heads;      /* heads: query heads */
  int64_t length;            /* tokens */
  const int32_t *cu_seqlens; /* packed documents, as in fly_geometry: each is permuted in itself; length is ignored */
  uint64_t seed;             /* sample b of (layer, step, head) is fly_permutation(length, seed, layer, step, head), */
  uint32_t layer, step;      /* head is 0 unless per_head, and seed + b * 0x9E3779B97F4A7C15 is seed if per_sample */
  bool per_head, per_sample;
  fly_row_map rows;          /* the caller's permutation instead; copied. With cu_seqlens, of a document's own rows */
  int threads;               /* as in fly_attention */
  fly_parallel_for parallel_for;
  void *parallel_user;
} fly_sa_desc;

/* A permutation with its bound mask and block map: everything of an attention call but tensors and kernel. */
typedef struct fly_sa fly_sa;

/* mask: masks/stochastic.c, or stochastic_ring.c for a window that closes into a ring; others with the int parameters
 * left, right and causal (0 none, 1 by token, 2 by position, 3 both) work as well. */
FLY_API fly_status fly_sa_create(fly_mask *mask, const fly_sa_desc *desc, fly_sa **out, fly_error *error);
FLY_API fly_sa *fly_sa_retain(fly_sa *sa);
FLY_API void fly_sa_release(fly_sa **sa);

/* Sets bound, map and geometry of a call, forward or backward, whose kernel is of the same mask; what they point to
 * stays the fly_sa's. The rest of the call is as without it: tensors are in the order of tokens. */
FLY_API fly_status fly_sa_apply(const fly_sa *sa, fly_attention *call, fly_error *error);

/* ---- 13. Gated sums of attentions -------------------------------------------------------------------------------- */

/* A gate for each token and head, or for each of its channels: g = sigmoid(logit). Logits are given, or projected:
 *
 *     logit[b, h, s, c] = sum_i weight[h, c, i] x[b, s, i] + bias[h, c]      c: 0, or every channel */
typedef struct fly_gate {
  fly_tensor logits;     /* [batch, heads, sequence, 1 or value_dim]; data NULL: projected */
  fly_tensor weight;     /* [1, heads, 1 or value_dim, width] */
  fly_tensor bias;       /* [1, heads, 1 or value_dim, 1]; optional */
  fly_tensor d_logits;   /* fly_gated_backward only: as these, written; data NULL: not wanted */
  fly_tensor d_weight, d_bias;
} fly_gate;

typedef struct fly_gated_part {
  fly_attention attention; /* kernel, bound, map, geometry, out_rows, scale; the rest is the gated call's, but for */
                           /* out, lse: what this part alone makes. The backward pass reads it; a forward pass */
                           /* without a backward one may leave both NULL */
  fly_gate gate;
} fly_gated_part;

/* out = sum over parts of g_part * attention_part(q, k, v): SA + SWA with two parts, one window
 * permuted and one not. */
typedef struct fly_gated_call {
  size_t size;
  const fly_gated_part *parts;
  int count;                    /* 1 to 16 */
  fly_tensor q, k, v, out;      /* as in fly_attention, of the kernels' type */
  fly_tensor x;                 /* [batch, 1, sequence, width]; where gates are projected */
  fly_tensor d_out;             /* the rest: fly_gated_backward only */
  fly_tensor d_q, d_k, d_v, d_x; /* data NULL: not wanted */
  int threads;                  /* as in fly_attention, for the parts too */
  fly_parallel_for parallel_for;
  void *parallel_user;
  struct fly_cuda *cuda;        /* for kernels of GPUs (section 15), the parts' too */
  void *stream;
} fly_gated_call;

/* Gate tensors are f32, f16 or bf16, strides as everywhere. Rows that a part's row map does not name count as 0 in the
 * sum, and must be 0 in what the backward pass reads.
 *
 * Memory beyond the tensors: the largest workspace of a part; one output for each part but the last whose own is not
 * given, in the backward pass one output where gradients of q, k or v are wanted; and where gates are projected, logits
 * of 4 bytes and
 *
 *     on a CPU, all weights and biases in f32, 68 rows of x in f32 for each thread, and in the backward pass the sums
 *     that become the weights' gradients: once more the weights, or for few gates at most 8 MiB;
 *     on a GPU, slices of the gradient of weights, at most 8 MiB more than the largest one takes in f32.
 *
 * On a CPU it is the block that the library keeps, up to 64 MiB, for the next call (fly_attention.workspace). */
FLY_API fly_status fly_gated_forward(const fly_gated_call *call, fly_error *error);

/* The gradients of out with respect to q, k, v, x and all gates, from d_out and each part's own out and lse. The result
 * does not depend on the number of threads. */
FLY_API fly_status fly_gated_backward(const fly_gated_call *call, fly_error *error);

/* ---- 14. Selected blocks: MoBA and others ------------------------------------------------------------------------ */

/* Which blocks of keys each query of each head sees. Queries are grouped by what they see: one attention call over rows
 * that repeat a query for every tile of keys it sees something of, whose partial outputs then merge by LSE. So the work
 * is that of the selected pairs, however irregular they are. */
typedef struct fly_selection fly_selection;

typedef struct fly_selection_desc {
  size_t size;
  int block;                 /* keys of a block; the last one may be shorter */
  int64_t batch, heads;      /* heads: query heads */
  int64_t len_q, len_kv, q_offset; /* as in fly_geometry; positions are tokens, q_offset added */
  bool not_causal;           /* otherwise no query sees a key behind its own position, whatever is selected */
  int query_block;           /* queries that share a row of lists or bitmap; 0: 1 */
  int count;                 /* of a list */
  const int32_t *lists;      /* [batch, heads, query rows][count] blocks, in any order; -1: none */
  const uint8_t *bitmap;     /* or [batch, heads, query rows][key blocks], not 0: selected */
  int64_t stride_batch, stride_head, stride_row; /* of either, in elements; 0 broadcasts */
  int threads;               /* as in fly_attention */
  fly_parallel_for parallel_for;
  void *parallel_user;
  const int32_t *cu_seqlens; /* packed documents, as in fly_geometry: batch is their number, rows of lists and bitmap */
                             /* run over all, blocks are counted from the document's own first key; lengths are */
                             /* ignored, q_offset is 0 */
} fly_selection_desc;

/* mask: masks/selected_tiles.c. Its parameters size and count, where baked, must be block and 1 (blocks below 64 keys:
 * 64 / block rounded up). */
FLY_API fly_status fly_selection_create(fly_mask *mask, const fly_selection_desc *desc, fly_selection **out,
                                        fly_error *error);

/* MoBA (arXiv 2502.13189): each query sees its own block, causally, and the top - 1 earlier whole blocks whose mean key
 * has the largest product with it, in f32 on q and k as they are; of equal ones the earlier block. A NaN
 * counts as -infinity. A query that has fewer earlier blocks sees them all. No gradient flows through the choice. */
typedef struct fly_moba_desc {
  size_t size;
  int block, top;            /* block size B and k, the own block included */
  fly_tensor q, k;           /* f32, f16 or bf16; heads of q: a multiple of those of k */
  int64_t q_offset;          /* query row i is token i + q_offset */
  int threads;               /* as in fly_attention */
  fly_parallel_for parallel_for;
  void *parallel_user;
  int64_t batch;             /* with cu_seqlens: the number of documents */
  const int32_t *cu_seqlens; /* packed documents, as in fly_geometry: each has blocks of its own; q_offset is 0 */
  struct fly_cuda *cuda;     /* q and k are in a GPU's memory (section 15): blocks are chosen there, after what is on */
  void *stream;              /* the stream, and waited for: what is made of the choice is made on the host */
} fly_moba_desc;

FLY_API fly_status fly_moba_select(fly_mask *mask, const fly_moba_desc *desc, fly_selection **out, fly_error *error);

FLY_API fly_selection *fly_selection_retain(fly_selection *selection);
FLY_API void fly_selection_release(fly_selection **selection);

/* The attention that sees what was selected: kernel (of the selection's mask, without a score modifier: it would meet
 * rows of the grouped call), tensors, scale, workspace and threads of the call; its bound, map, geometry and out_rows
 * are not used. A query without any key gets output 0 and LSE -inf. The backward pass reads out and lse, as
 * fly_attention_backward does. */
FLY_API fly_status fly_selection_forward(const fly_selection *selection, const fly_attention *call, fly_error *error);
FLY_API fly_status fly_selection_backward(const fly_selection *selection, const fly_attention *call, fly_error *error);

/* Bytes of workspace, as fly_attention_workspace. Forward about 4 (value_dim + 1) a row of the grouped call, for the
 * partial outputs; backward 4 head_dim and more. Worth keeping from call to call. */
FLY_API fly_status fly_selection_workspace(const fly_selection *selection, const fly_attention *call, size_t *bytes,
                                           fly_error *error);
FLY_API fly_status fly_selection_backward_workspace(const fly_selection *selection, const fly_attention *call,
                                                    size_t *bytes, fly_error *error);

typedef struct fly_selection_info {
  int64_t batch, heads, len_q, len_kv, q_offset;
  int block;
  int64_t rows;              /* of the grouped call, for each head: the most of any */
  const fly_map *map;        /* of the grouped call; the selection's. NULL with packed documents: a call each */
} fly_selection_info;

FLY_API void fly_selection_get_info(const fly_selection *selection, fly_selection_info *info);
/* bitmap[batch, heads, len_q, key blocks]: 1 where a query's block is selected, else 0; what masks/moba.c captures.
 * With packed documents the key blocks are those of the longest one, each query's counted in its own document. */
FLY_API void fly_selection_get_bitmap(const fly_selection *selection, uint8_t *bitmap);

#ifdef __cplusplus
}
#endif
#endif
