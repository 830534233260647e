/* Flymask: attention masks written in C, compiled to block-sparse flash-attention kernels.
 *
 * This header reads from top to bottom as the tutorial:
 *
 *     1  errors
 *     2  element types, captured buffers
 *     3  compile a mask; and, or, not
 *     4  bind its parameters and buffers; score modifiers
 *     5  the call's geometry; what a mask's author should know before it runs
 *     6  block maps; operations on maps
 *     7  kernels
 *     8  attention, forward and backward; sinks
 *     9  permutations
 *    10  images: ahead-of-time compilation; what the compiler made, as text; targets
 *    11  merging partial attentions
 *    12  stochastic attention
 *    13  gated sums of attentions
 *    14  selected blocks: MoBA and others
 *    15  NVIDIA GPUs
 *
 * Conventions. Tensors are [batch, heads, sequence, dimension]. Every fallible function returns a fly_status (FLY_OK is
 * 0) and, on failure only, fills the caller's fly_error (which may be NULL); *out is then NULL. Objects are immutable
 * and reference-counted: fly_X_retain, fly_X_release (which sets the caller's pointer to NULL); they may be shared
 * between threads, and every function here may be called from several threads at once. Inputs are borrowed for the call
 * unless a comment says otherwise. NULL in the place of an object never crashes: the result is FLY_ERROR_ARGUMENT,
 * NULL, -1 or a struct of zeros; retaining or releasing it does nothing.
 *
 * The library never prints, exits or aborts. Two things that it uses do, and end the process: LLVM where it cannot
 * allocate while it compiles [compiler], and OpenMP where it cannot start the threads it is asked for (ask for fewer,
 * or bring a parallel_for). Everywhere else a failed allocation is FLY_ERROR_MEMORY and leaves nothing behind.
 *
 * Structs that may grow begin with `size`: set it with FLY_INIT(type), or to sizeof(type); fields you do not name
 * are 0 and mean the default.
 *
 * Two libraries: libflymask_runtime has everything but the functions marked [compiler], and links no LLVM;
 * libflymask adds those. */
#ifndef FLYMASK_FLYMASK_H
#define FLYMASK_FLYMASK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(FLYMASK_STATIC)
#define FLY_API
#else
#define FLY_API __attribute__((visibility("default")))
#endif

#define FLY_VERSION "0.1.0"
#define FLY_INIT(type) .size = sizeof(type)

/* ---- 1. Errors --------------------------------------------------------------------------------------------------- */

typedef enum fly_status {
  FLY_OK = 0,
  FLY_ERROR_ARGUMENT = -1,    /* a value, shape or combination that this call does not accept */
  FLY_ERROR_MEMORY = -2,      /* out of memory */
  FLY_ERROR_SOURCE = -3,      /* a mask's or modifier's source does not compile, or is refused; it says where */
  FLY_ERROR_TOOL = -4,        /* clang is missing, too new, or was stopped by its limits */
  FLY_ERROR_IMAGE = -5,       /* an image that is damaged, foreign, of another version or target */
  FLY_ERROR_IO = -6,          /* a file or directory */
  FLY_ERROR_UNSUPPORTED = -7, /* well-formed, but not something this build or machine can do */
  FLY_ERROR_INTERNAL = -8,    /* our own fault: please report it */
  FLY_ERROR_DEVICE = -9       /* the CUDA driver: it is missing, or it refused; the message has its words */
} fly_status;

/* What went wrong and what to do about it. line and column count from 1 and are 0 where there is
 * no place in a source. */
typedef struct fly_error {
  fly_status status;
  int line, column;
  char file[256];
  char message[1024]; /* one line, without file and line; ends without a newline */
} fly_error;

/* A short name of a status: "argument", "source", ... Never NULL. */
FLY_API const char *fly_status_name(fly_status status);

/* ---- 2. Element types and captured buffers ----------------------------------------------------------------------- */

typedef enum fly_type {
  FLY_TYPE_NONE,
  FLY_F32, FLY_F16, FLY_BF16, /* tensors; FLY_F32 also for buffers and parameters */
  FLY_F64,                    /* parameters only */
  FLY_I8, FLY_I16, FLY_I32, FLY_I64, FLY_U8, FLY_U16, FLY_U32, FLY_U64, /* buffers and parameters */
  FLY_BOOL                    /* parameters, and buffers of bytes 0 or 1 */
} fly_type;

FLY_API size_t fly_type_size(fly_type type);      /* in bytes; 0 for FLY_TYPE_NONE */
FLY_API const char *fly_type_name(fly_type type); /* "f32", "i8", ... */

/* Data that a mask reads. An immutable copy of host memory in row-major order. */
typedef struct fly_buffer fly_buffer;

/* Copies rank (1 to 4) dimensions of `type` from `data`. Dimensions of 0 are allowed; reads of
 * an empty buffer give 0. */
FLY_API fly_status fly_buffer_create(fly_type type, int rank, const int64_t *shape, const void *data, fly_buffer **out,
                                     fly_error *error);
FLY_API fly_buffer *fly_buffer_retain(fly_buffer *buffer);
FLY_API void fly_buffer_release(fly_buffer **buffer);

/* ---- 3. Compile a mask ------------------------------------------------------------------------------------------- */

/* A verified, analysed mask with its compiled code: what flymask/mask.h describes, after its way
 * through the compiler. */
typedef struct fly_mask fly_mask;

/* A parameter's value or a buffer, by name. */
typedef struct fly_arg {
  const char *name;
  enum { FLY_ARG_INTEGER, FLY_ARG_REAL, FLY_ARG_BUFFER } kind;
  union {
    int64_t integer;
    double real;
    fly_buffer *buffer;
  };
} fly_arg;
#define FLY_INT(NAME, VALUE) ((fly_arg){.name = (NAME), .kind = FLY_ARG_INTEGER, .integer = (VALUE)})
#define FLY_REAL(NAME, VALUE) ((fly_arg){.name = (NAME), .kind = FLY_ARG_REAL, .real = (VALUE)})
#define FLY_CAPTURE(NAME, BUFFER) ((fly_arg){.name = (NAME), .kind = FLY_ARG_BUFFER, .buffer = (BUFFER)})

typedef struct fly_compile_options {
  size_t size;
  const char *clang;     /* the compiler to run; default: $FLYMASK_CLANG, then clang-<LLVM major>, then clang */
  const char *cache;     /* directory of the cache; default: $XDG_CACHE_HOME/flymask, ~/.cache/flymask; "": no cache */
  const char *target;    /* "x86-64", "x86-64-v3", "x86-64-v4", "x86-64-v4-bf16", "aarch64"; default: the best of this
                            machine. What is made for another architecture serves fly_kernel_image alone */
  const fly_arg *bake;   /* parameters made constants of the code: faster, but another value compiles again */
  int bake_count;
  double clang_seconds;  /* time limit for clang; default 10, at most a day */
  size_t clang_bytes;    /* memory limit for clang; default 2 GiB */
  double check_seconds;  /* time limit for what fly_mask_check and fly_score_check look at; default 60, at most a day */
} fly_compile_options;

/* Compiles the mask in `source` (a NUL-terminated C text; `name` is the file name in errors), or takes it from the
 * cache. options may be NULL. Several threads may compile at once. [compiler] */
FLY_API fly_status fly_mask_compile(const char *source, const char *name, const fly_compile_options *options,
                                    fly_mask **out, fly_error *error);
/* The same for a file. [compiler] */
FLY_API fly_status fly_mask_compile_file(const char *path, const fly_compile_options *options, fly_mask **out,
                                         fly_error *error);

typedef enum fly_combine { FLY_AND, FLY_OR, FLY_NOT } fly_combine;

/* The mask `left and right`, `left or right`, or `not left` (right is then NULL). Parameters and buffers of both
 * remain; a name that both have becomes NAME.left and NAME.right. The 65,536 rounds of loops (flymask/mask.h) count for
 * each part alone: one that runs out of them is false, the rest is as ever. What comes out
 * combines again. [compiler] */
FLY_API fly_status fly_mask_combine(fly_combine how, const fly_mask *left, const fly_mask *right,
                                    const fly_compile_options *options, fly_mask **out, fly_error *error);

FLY_API fly_mask *fly_mask_retain(fly_mask *mask);
FLY_API void fly_mask_release(fly_mask **mask);

typedef struct fly_parameter_info {
  const char *name;
  fly_type type;
  union {
    int64_t integer; /* all integer types and FLY_BOOL */
    double real;     /* FLY_F32, FLY_F64 */
  } value;           /* the default */
} fly_parameter_info;

typedef struct fly_buffer_info {
  const char *name;
  fly_type type;
  int rank;
} fly_buffer_info;

/* What a mask declares and reads. Owned by the mask. */
typedef struct fly_mask_info {
  const char *name;   /* the source's file name */
  const char *target; /* what its code is for */
  int parameter_count, buffer_count;
  const fly_parameter_info *parameters;
  const fly_buffer_info *buffers;
  bool reads_b, reads_h, reads_q, reads_kv; /* b or h also through fly_token_... and fly_len_... */
  bool reads_token_q, reads_token_kv, reads_len_q, reads_len_kv;
  bool from_cache;    /* this object came from the cache, without a compilation */
} fly_mask_info;

FLY_API const fly_mask_info *fly_mask_get_info(const fly_mask *mask);

/* ---- 4. Bind parameters and buffers; score modifiers ------------------------------------------------------------- */

/* A mask with a value for every parameter (the default where none is given) and a buffer for every declaration. It
 * retains the mask and the buffers, and copies the args: the caller may release or change all of them. */
typedef struct fly_bound fly_bound;

/* An unknown name, a missing buffer, another element type or rank, a value outside the parameter's type: an error. */
FLY_API fly_status fly_mask_bind(fly_mask *mask, const fly_arg *args, int count, fly_bound **out, fly_error *error);
FLY_API fly_bound *fly_bound_retain(fly_bound *bound);
FLY_API void fly_bound_release(fly_bound **bound);

/* Score modifiers: what flymask/score.h describes, s' = score(s, b, h, q, kv) for each pair before the softmax, with
 * the derivative that the backward pass needs. They are compiled, cached, bound and described as masks are, from
 * sources of their own; a kernel joins one with a mask (fly_kernel_desc), and a call binds both. */
typedef struct fly_score fly_score;

FLY_API fly_status fly_score_compile(const char *source, const char *name, const fly_compile_options *options,
                                     fly_score **out, fly_error *error); /* [compiler] */
FLY_API fly_status fly_score_compile_file(const char *path, const fly_compile_options *options, fly_score **out,
                                          fly_error *error); /* [compiler] */
FLY_API fly_score *fly_score_retain(fly_score *score);
FLY_API void fly_score_release(fly_score **score);
FLY_API const fly_mask_info *fly_score_get_info(const fly_score *score);
FLY_API fly_status fly_score_bind(fly_score *score, const fly_arg *args, int count, fly_bound **out, fly_error *error);

/* ---- 5. The call's geometry -------------------------------------------------------------------------------------- */

/* Row r of (b, h) in the call is row rows[b * stride_batch + h * stride_head + r] of the tensor. Strides in elements, 0
 * broadcasts; rows NULL is the identity. h counts query heads, for kv_rows too. With cu_seqlens, r counts over the
 * whole packed sequence and entries are rows of the packed tensor. */
typedef struct fly_row_map {
  const int32_t *rows;
  int64_t stride_batch, stride_head;
} fly_row_map;

/* What a mask is evaluated over; shared by block maps and attention calls.
 *
 * The mask sees q = row + q_offset and kv = row, for rows in the call's order. q_offset = len_kv - len_q gives
 * flash-attention's bottom-right alignment. len_q and len_kv are the call's lengths and may differ from the tensors'
 * when there are row maps (a paged cache, a selection of rows).
 *
 * Ragged batches: cu_seqlens_q and cu_seqlens_kv (both or neither), int32 [batch + 1], ascending from 0: entry b has
 * the rows cu[b] .. cu[b + 1] - 1 of packed tensors whose own batch dimension is 1. len_q and
 * len_kv are then ignored. */
typedef struct fly_geometry {
  size_t size;
  int64_t batch, heads; /* heads: query heads */
  int64_t len_q, len_kv;
  int64_t q_offset;
  fly_row_map q_rows, kv_rows;
  const int32_t *cu_seqlens_q, *cu_seqlens_kv;
} fly_geometry;

/* The caller's own threads: run body(context, i) for each i in [0, count), in any order, on any threads, and return
 * when all are done. `user` is the field beside it. Bodies that have been started must progress independently of each
 * other (on threads of the operating system), or run one after the other: one may wait for another that has started,
 * but never for one that has not. NULL: OpenMP, as the caller has set it up. */
typedef void (*fly_parallel_for)(void *user, int64_t count, void (*body)(void *context, int64_t i), void *context);

/* ---- what a mask's author should know before it runs [compiler] */

typedef enum fly_finding_kind {
  FLY_FINDING_BLIND_ROWS,       /* query rows that see no key: low to high are the first of them */
  FLY_FINDING_ALWAYS_TRUE,      /* a condition on q or kv, not on captured data, that never decides anything; */
  FLY_FINDING_ALWAYS_FALSE,     /* for lengths up to three times the call's, and offsets of either sign */
  FLY_FINDING_INDEX,            /* an index outside its buffer or array: it runs from low to high */
  FLY_FINDING_OVERFLOW,         /* of signed arithmetic */
  FLY_FINDING_DIVISION_BY_ZERO, /* / or % */
  FLY_FINDING_NEGATIVE_OPERAND, /* / or % with a result that is not Python's: C truncates, Python floors */
  FLY_FINDING_SHIFT,            /* a count below 0, or of the width and more */
  FLY_FINDING_READS_NOTHING,    /* neither q nor kv; a mask that reads nothing at all is a constant, and not reported */
  FLY_FINDING_NOT_FINITE,       /* a modifier's result is NaN or +infinity: the query's output becomes NaN */
  FLY_FINDING_READS_NO_SCORE    /* a modifier's result does not depend on s; constants are not reported */
} fly_finding_kind;

typedef struct fly_finding {
  fly_finding_kind kind;
  int line, column;     /* from 1 */
  int64_t b, h, q, kv;  /* a pair that shows it; b and h -1: there is none. q has the offset added */
  int64_t low, high;    /* of BLIND_ROWS and INDEX; INT64_MIN, INT64_MAX: no such index was found in time */
  bool open;            /* of INDEX: the time was up before it was certain that it runs no further */
  float s;              /* of a modifier: the score that shows it, beside the pair; NaN: any does */
  char message[384];
} fly_finding;

typedef struct fly_findings {
  int count;     /* ordered by line and column */
  fly_finding *finding;
  int undecided; /* questions that took too long: what they are about may be there, and is not among the findings */
} fly_findings;

/* Compiles the source as fly_mask_compile does, binds the args, and looks for each of the above over all pairs of the
 * geometry: exactly, so that there are no false alarms; what takes longer than check_seconds, or a thirtieth of
 * that for one question, is left undecided (the time is looked at between blocks of 64 x 64 pairs). At most 64 (b, h)
 * are looked at, and the map is built. The findings are the caller's, to be freed with fly_findings_free. All errors of
 * compiling, binding and mapping. [compiler] */
FLY_API fly_status fly_mask_check(const char *source, const char *name, const fly_compile_options *options,
                                  const fly_arg *args, int count, const fly_geometry *geometry, fly_findings *out,
                                  fly_error *error);
/* The same for a score modifier, over the pairs that `mask` sees (NULL: all): what it does for others is ignored. Where
 * an answer depends on the score, s = 0, 1, -1, 30 and -30 are tried: a finding is still certain, that there is none is
 * not. Conditions on the score are never reported as always true or false. [compiler] */
FLY_API fly_status fly_score_check(const char *source, const char *name, const fly_compile_options *options,
                                   const fly_arg *args, int count, const fly_bound *mask, const fly_geometry *geometry,
                                   fly_findings *out, fly_error *error);
FLY_API void fly_findings_free(fly_findings *findings); /* [compiler] */
/* "blind-rows", "overflow", ...: the names of the kinds in lower case, with hyphens. Never NULL. [compiler] */
FLY_API const char *fly_finding_name(fly_finding_kind kind);

/* ---- 6. Block maps ----------------------------------------------------------------------------------------------- */

/* For every (b, h) and tile of queries, the tiles of keys that are full (every pair visible) or partial; the rest are
 * empty. Where the mask does not read b or h, that dimension is 1. A map records what it was built for; an attention
 * call with other lengths, parameters, buffers, row maps or offset refuses it. A map retains its fly_bound and copies
 * what it needs of the geometry; an attention call reads the row maps and cu_seqlens of its own geometry, which the
 * caller keeps until it returns. */
typedef struct fly_map fly_map;

typedef struct fly_map_options {
  size_t size;
  int tile_q, tile_kv; /* default 128; kernels want multiples of 64 */
  bool fast;           /* leave tiles that analysis cannot decide partial, instead of settling them exactly */
  int threads;         /* at most; default: OpenMP's */
  fly_parallel_for parallel_for; /* this and threads: also for fly_map_transpose and fly_map_visible_pairs of the map */
  void *parallel_user;
} fly_map_options;

FLY_API fly_status fly_map_build(fly_bound *bound, const fly_geometry *geometry, const fly_map_options *options,
                                 fly_map **out, fly_error *error);
FLY_API fly_map *fly_map_retain(fly_map *map);
FLY_API void fly_map_release(fly_map **map);

typedef struct fly_map_info {
  int64_t batch, heads;       /* of the map: 1 where the mask does not read it */
  int64_t tile_q, tile_kv;
  int64_t tiles_q, tiles_kv;  /* rows and columns; of the longest entry in a ragged batch */
  int64_t tiles_empty, tiles_full, tiles_partial; /* summed over the map's (b, h) */
  int64_t undecided;          /* tiles that analysis left to the compiled mask (or, in a fast map, partial) */
  double sparsity;            /* empty / all, 0 to 1; 0 for a map without tiles */
  size_t bytes;               /* memory of the map */
} fly_map_info;

FLY_API void fly_map_get_info(const fly_map *map, fly_map_info *info);

typedef enum fly_tile_kind { FLY_EMPTY, FLY_FULL, FLY_PARTIAL } fly_tile_kind;

/* `count` consecutive tiles of one kind (full or partial), from tile `first`. */
typedef struct fly_run {
  int32_t first, count : 30;
  uint32_t kind : 2;
} fly_run;

typedef enum fly_order {
  FLY_BY_QUERY, /* a row is a tile of queries, its runs are tiles of keys */
  FLY_BY_KEY    /* the transpose */
} fly_order;

/* The runs of one row, ascending; *runs stays the map's. b and h are the call's. FLY_BY_KEY needs fly_map_transpose
 * first. Returns their number, or -1 where the row does not exist. */
FLY_API int64_t fly_map_row(const fly_map *map, fly_order order, int64_t b, int64_t h, int64_t row,
                            const fly_run **runs);

/* Builds the transposed order, once; later calls do nothing. Thread-safe. */
FLY_API fly_status fly_map_transpose(fly_map *map, fly_error *error);

/* The map as lists of tile indices, the meaning of FlexAttention's BlockMask: row i of (b, h) has num[r] partial tiles,
 * index[start[r]] .. , and full_num[r] full tiles, full_index[full_start[r]] ... , where r = (b * heads + h) * rows +
 * i. Lists are ascending and packed: start[r + 1] == start[r] + num[r]. */
typedef struct fly_map_lists {
  int64_t batch, heads, rows;
  int32_t *num, *full_num;     /* [batch, heads, rows] */
  int64_t *start, *full_start; /* [batch * heads * rows + 1] */
  int32_t *index, *full_index;
} fly_map_lists;

FLY_API fly_status fly_map_expand(const fly_map *map, fly_order order, fly_map_lists *out, fly_error *error);
FLY_API void fly_map_lists_free(fly_map_lists *lists);

/* The pairs that the call sees: the sum over batch and query heads. Settles partial tiles with the compiled mask. */
FLY_API fly_status fly_map_visible_pairs(const fly_map *map, int64_t *pairs, fly_error *error);

/* One pair (b, h, q row, kv row) by the compiled mask: 1 visible, 0 not; -1 outside the map's geometry, and where
 * nothing decides it (a map from arrays). Slow: for tests and pictures. */
FLY_API int fly_map_visible(const fly_map *map, int64_t b, int64_t h, int64_t q_row, int64_t kv_row);

/* ---- operations on maps. What comes out is a map of its own, and uses the threads of its (left) map.
 *
 * What a map says of a pair: visible where its tile is full, hidden where it is empty; in a partial tile its mask,
 * bitmap or the maps it was made of decide. A map that comes from arrays says nothing of these pairs until a mask is
 * bound to it: it can be looked at and operated on, and then what nobody can decide stays partial. An attention call
 * takes maps of fly_map_build and fly_map_bind, and what fly_map_crop and fly_map_slice make of these. */

/* `left and right`, `left or right`, or `not left` (right is then NULL), for two maps of the same geometry and tiles:
 * anything else is an error. Exact where both are: where two partial tiles meet, both are asked for the pairs. For an
 * attention call, bind the mask that fly_mask_combine makes in the same way. */
FLY_API fly_status fly_map_combine(fly_combine how, const fly_map *left, const fly_map *right, fly_map **out,
                                   fly_error *error);

/* The same tiles, and a mask that decides the pairs of partial ones. Where the map knows these pairs, the mask must
 * agree: the first pair that differs is an error. Where it does not (a map from arrays), the mask is believed.
 * Attention calls never ask about full and empty tiles: those of the map hold, so that arrays may also select among the
 * tiles that a mask sees. On GPUs a kernel has tiles of its own, of up to 128 x 64, and asks the mask for all pairs of
 * one that holds map tiles of several kinds: tiles of 128 (FlexAttention's) always hold, smaller ones where they are
 * the mask's or fill such a tile. Otherwise the call is refused, and names the map's first tile that is neither. */
FLY_API fly_status fly_map_bind(const fly_map *map, fly_bound *bound, fly_map **out, fly_error *error);

/* The first len_q queries and len_kv keys of every (b, h): tiles that are cut are settled again, so that the result
 * equals the map that fly_map_build would give. Lengths beyond the map's are an error; ragged batches are
 * FLY_ERROR_UNSUPPORTED. */
FLY_API fly_status fly_map_crop(const fly_map *map, int64_t len_q, int64_t len_kv, fly_map **out, fly_error *error);

/* `count` query rows from row `first` on, any of them: the map of a call with the map's q_offset + first, and query row
 * maps that start with row `first`. As for fly_map_crop. */
FLY_API fly_status fly_map_slice(const fly_map *map, int64_t first, int64_t count, fly_map **out, fly_error *error);

/* A map as the arrays of FlexAttention's BlockMask: in FLY_BY_QUERY kv_num_blocks, kv_indices, full_kv_num_blocks and
 * full_kv_indices; in FLY_BY_KEY those that are named q_ for kv_. Row-major. Of index[b, h, row], the first num[b, h,
 * row] are the partial tiles of the row; behind them stand the other columns. */
typedef struct fly_map_arrays {
  size_t size;
  int64_t batch, heads, rows, columns;
  int32_t *num;   /* [batch, heads, rows] */
  int32_t *index; /* [batch, heads, rows, columns] */
  int32_t *full_num, *full_index;
} fly_map_arrays;

/* Ascending, padded with the other columns, ascending too, as create_block_mask has them. FLY_BY_KEY needs
 * fly_map_transpose first. The arrays are the caller's, to be freed with fly_map_arrays_free. */
FLY_API fly_status fly_map_to_arrays(const fly_map *map, fly_order order, fly_map_arrays *out, fly_error *error);
FLY_API void fly_map_arrays_free(fly_map_arrays *arrays);

/* From arrays in FLY_BY_QUERY, which are read and stay the caller's; the order in a list does not matter, full_num and
 * full_index may both be NULL. batch and heads are each 1 or the geometry's; rows and columns those of its lengths in
 * the options' tiles. Counts and columns outside, or a column listed twice, are an error. No ragged batches. */
FLY_API fly_status fly_map_from_arrays(const fly_map_arrays *arrays, const fly_geometry *geometry,
                                       const fly_map_options *options, fly_map **out, fly_error *error);

/* From a byte for each pair, not 0 where it is visible: a FLY_BOOL or FLY_U8 buffer [Q, KV] or [B, H, Q, KV], B and H
 * each 1 or the geometry's, of any lengths, by rows of the call. geometry NULL: the buffer's shape. The map retains the
 * buffer, which decides the pairs; for attention calls bind masks/bitmask.c, or any other mask
 * that sees these pairs. */
FLY_API fly_status fly_map_from_bitmap(fly_buffer *pairs, const fly_geometry *geometry, const fly_map_options *options,
                                       fly_map **out, fly_error *error);

/* Whether two maps have the same tiles of the same kinds: batch, heads, lengths, tile sizes and every row; not what
 * decides the partial ones. False for NULL. */
FLY_API bool fly_map_equal(const fly_map *a, const fly_map *b);

/* The tiles of (b, h) as lines of characters: '#' full, '+' partial, '.' empty. Where there are more rows or columns of
 * tiles than `columns` (0: 64), a character stands for a square of tiles, and '+' also for a mixture. *text is the
 * caller's, to be freed with free(). */
FLY_API fly_status fly_map_text(const fly_map *map, int64_t b, int64_t h, int columns, char **text, fly_error *error);

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

/* [batch, heads, sequence, dimension]; strides in elements, the last one must be 1. Strides of 0 broadcast inputs. */
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
  int64_t phase_bytes;  /* of a phase's packed keys and values, a worker: so many (batch, head) as fit, 1 at least; to 2^40 */
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

/* ---- 9. Permutations --------------------------------------------------------------------------------------------- */

/* A uniform permutation of 0 .. n - 1, the same on every platform, for each (seed, layer, step, head): Fisher-Yates on
 * Philox4x32-10 (Salmon et al., SC 2011). Position p of the permuted order holds token rows[p]. */
FLY_API fly_status fly_permutation(int64_t n, uint64_t seed, uint32_t layer, uint32_t step, uint32_t head,
                                   int32_t *rows, fly_error *error);
/* inverse[rows[p]] = p. An error where rows is not a permutation; inverse must not overlap it. */
FLY_API fly_status fly_permutation_inverse(int64_t n, const int32_t *rows, int32_t *inverse, fly_error *error);
/* FLY_OK where rows holds each of 0 .. n - 1 once; the error names the first offender. */
FLY_API fly_status fly_permutation_check(int64_t n, const int32_t *rows, fly_error *error);

/* ---- 10. Images -------------------------------------------------------------------------------------------------- */

/* A kernel as plain bytes: version, target, code, mask program, declarations, shapes. They can be kept, shipped and
 * loaded where there is no compiler. The bytes stay the kernel's. */
FLY_API fly_status fly_kernel_image(const fly_kernel *kernel, const void **bytes, size_t *size, fly_error *error);
/* Checks everything before anything is trusted: what is damaged, foreign, of another version or build, or for a machine
 * other than this one is FLY_ERROR_IMAGE. But the machine code in an image is not verified: it runs in this process
 * with all its rights, and a checksum that fits proves nothing about who wrote it. Load images only from where you
 * would load a shared library. */
FLY_API fly_status fly_kernel_load(const void *bytes, size_t size, fly_kernel **out, fly_error *error);

/* What the compiler made on the way, as text: FLY_EMIT_LL after optimisation, FLY_EMIT_ASM. *text is the caller's, to
 * be freed with free(). [compiler] */
typedef enum fly_emit { FLY_EMIT_LL, FLY_EMIT_ASM } fly_emit;
FLY_API fly_status fly_mask_emit(const char *source, const char *name, const fly_compile_options *options,
                                 fly_emit what, char **text, fly_error *error);
FLY_API fly_status fly_score_emit(const char *source, const char *name, const fly_compile_options *options,
                                  fly_emit what, char **text, fly_error *error);

/* The same of a kernel for a GPU, whose assembly is PTX: of its forward kernels, the backward ones, or those for few
 * queries and many keys. [compiler] */
typedef enum fly_pass { FLY_PASS_FORWARD, FLY_PASS_BACKWARD, FLY_PASS_DECODE } fly_pass;
FLY_API fly_status fly_kernel_emit(const fly_kernel *kernel, fly_pass pass, fly_emit what, char **text,
                                   fly_error *error);

/* The targets this machine runs, best first, NULL-terminated: "x86-64-v4-bf16" (x86-64-v4 with AVX512-BF16: bf16
 * tensors are multiplied as they are, and P rounded to bf16: beside f32's errors, an output is off by at most 2^-8 sum
 * P |V|, dV by 2^-8 sum P |dO|, dQ and dK by 2^-8 sum |dS| |K| and |Q|; subnormal numbers are zeros), "x86-64-v4",
 * "x86-64-v3", "x86-64"; on AArch64 "aarch64" (NEON; f16 and bf16 are widened to f32). A mask is compiled for any of
 * all these, also of the architecture that is not this machine's: it cannot be bound here (FLY_ERROR_UNSUPPORTED), but
 * a kernel made of it has an image, which fly_kernel_load takes on such a machine. */
FLY_API const char *const *fly_cpu_targets(void);

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
 * sum, and must be 0 in what the backward pass reads. Memory beyond the tensors: one output for each part but the last
 * whose own is not given, and logits of 4 bytes where they are projected; on a GPU also slices of the gradient of
 * weights, at most 8 MiB more than the largest one takes in f32. */
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
 * has the largest product with it, in f32 on q and k as they are; of equal ones the earlier block, and NaN is the
 * least. A query that has fewer earlier blocks sees them all. No gradient flows through the choice. */
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

/* ---- 15. NVIDIA GPUs --------------------------------------------------------------------------------------------- */

/* A kernel whose target is a GPU's ("sm_80", or "cuda" for any from sm_80 on) is called as every other:
 * fly_attention_forward and fly_attention_backward, with `cuda` and `stream` of the call set. Tensor data, lse and
 * workspace are then pointers to memory of the device; masks, buffers, maps, geometry, row maps and cu_seqlens stay
 * what they are on the host. A call checks, launches on the stream and returns: results are there when the stream gets
 * there, and tensors must live until then. A workspace that is not given is taken from the driver's pool in the order
 * of the stream: for backward calls that repeat, keep one. threads and parallel_for concern the block map alone. Row
 * maps and cu_seqlens are checked on the host, in each call row by row; those of a fly_sa once.
 *
 * Few queries over 512 keys or more: where the queries, times the query heads of a key/value head, are 16 or less (64,
 * where the usual way would leave multiprocessors without work), the keys are split into as many parts as fill the
 * device, of 256 keys at least, and the parts merged by LSE: the result also depends on the number of multiprocessors.
 *
 * fly_merge, fly_gated_... and fly_selection_... work on the device likewise, with `cuda` and `stream` of their calls.
 * Projected gates are multiplied in f32 (for at most 2^31 - 1 tokens). Row maps and selections stay on the host:
 * fly_moba_select is the one call that waits for the device, for what queries chose there.
 *
 * Weights of the softmax below 2^-126 count as 0 on a GPU, so that a row whose LSE is more than 87 above a sink adds
 * nothing to the sink's gradient.
 *
 * libcuda.so.1 is looked for when a fly_cuda is created, and not before: without it everything else works as ever. */

/* A CUDA context as this library uses it, and what calls have put there. The first call on a context with a kernel
 * loads its code; the first with a map or a captured buffer copies it (and may wait for the stream while it does);
 * later ones find it there. Each copy is freed with the object it is of, or with the last reference to the fly_cuda,
 * whichever comes first, by the driver's cuMemFree, which waits for the device. A call without a map builds one on the
 * host and copies it, each time.
 *
 * Objects and fly_cuda may be released in any order and by any thread. The context has to outlive the last reference: a
 * primary context (that of PyTorch and of the CUDA runtime) is retained, so that it does; one made by cuCtxCreate must
 * not be destroyed before. It need not be current where calls are made: each makes it so for its own duration. */
typedef struct fly_cuda fly_cuda;

typedef struct fly_cuda_desc {
  size_t size;
  bool primary; /* the primary context of `device`, made if need be, instead of the one current on the calling thread */
  int device;   /* its ordinal */
} fly_cuda_desc;

/* desc NULL: the context that is current. FLY_ERROR_DEVICE: no driver, no device; FLY_ERROR_ARGUMENT: no such device,
 * or no context is current; FLY_ERROR_UNSUPPORTED: a device below sm_80, or a driver before CUDA 12. */
FLY_API fly_status fly_cuda_create(const fly_cuda_desc *desc, fly_cuda **out, fly_error *error);
FLY_API fly_cuda *fly_cuda_retain(fly_cuda *cuda);
FLY_API void fly_cuda_release(fly_cuda **cuda);

typedef struct fly_cuda_info {
  char name[128];      /* of the device */
  char target[16];     /* "sm_80": what it runs natively; it runs kernels for lower targets too */
  int device;          /* its ordinal */
  int multiprocessors;
  int shared_memory;   /* bytes that a block may use */
  int driver_version;  /* 12040: CUDA 12.4 */
  size_t memory;       /* bytes, of the device */
  size_t resident;     /* bytes that copies of maps and buffers take now */
  int64_t uploads;     /* such copies made so far */
} fly_cuda_info;

FLY_API void fly_cuda_get_info(const fly_cuda *cuda, fly_cuda_info *info);

/* Device memory, for programs that use no other CUDA library: aligned to 256 bytes, not initialised. fly_cuda_free sets
 * the pointer to NULL and waits for the device. */
FLY_API fly_status fly_cuda_alloc(fly_cuda *cuda, size_t bytes, void **out, fly_error *error);
FLY_API void fly_cuda_free(fly_cuda *cuda, void **memory);
/* Copies in the order of the stream. Write: `host` may be used again when it returns; read: the bytes are there. */
FLY_API fly_status fly_cuda_write(fly_cuda *cuda, void *device, const void *host, size_t bytes, void *stream,
                                  fly_error *error);
FLY_API fly_status fly_cuda_read(fly_cuda *cuda, void *host, const void *device, size_t bytes, void *stream,
                                 fly_error *error);
/* Waits for the stream. An error of a kernel that ran there shows here, or at any later call. */
FLY_API fly_status fly_cuda_synchronize(fly_cuda *cuda, void *stream, fly_error *error);

#ifdef __cplusplus
}
#endif
#endif
