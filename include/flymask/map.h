/* map.h: block maps: which tiles of a call are empty, full or partial. A part of flymask.h. */
#ifndef FLYMASK_API_MAP_H
#define FLYMASK_API_MAP_H

#include <flymask/geometry.h>

#ifdef __cplusplus
extern "C" {
#endif

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

#ifdef __cplusplus
}
#endif
#endif
