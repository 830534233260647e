/* cuda_tile.h: what the CUDA templates do with tiles: find a block's work, walk the runs of its map row, gather rows
 * into swizzled tiles of shared memory, apply the mask to scores.
 *
 * A tile in shared memory has `width` columns of 16 bits (a multiple of 16), in rows of tile_pitch(width) bytes.
 * 16-byte chunk c of row r lies at chunk c ^ (r & 7): so that the eight rows of a matrix that ldmatrix reads lie in
 * different banks, and so do the eight chunks of a row that copies write. */
#ifndef FLYMASK_CUDA_TILE_H
#define FLYMASK_CUDA_TILE_H

#include "cuda.h"

typedef const flyi_cuda_call *call_t; /* the kernel's argument */
typedef i32 i32x2 __attribute__((ext_vector_type(2)));

/* Sizes that arrays are made for. */
enum { MAX_BLOCKS = 2 /* of 16 rows a warp owns */, MAX_INNER = 64 /* columns of a tile */, MAX_WIDTH = 256 };

/* fly_type and fly_tile_kind of flymask.h */
enum { TYPE_F32 = 1, TYPE_F16 = 2, TYPE_BF16 = 3 };
enum { EMPTY, FULL, PARTIAL };

/* ---- the call ---------------------------------------------------------------------------------------------------- */

INL const flyi_mask_args *args_of(call_t call) { return (const flyi_mask_args *)(call + 1); }
INL const GLOBAL i32 *ints(u64 p) { return (const GLOBAL i32 *)p; }
INL const GLOBAL i64 *longs(u64 p) { return (const GLOBAL i64 *)p; }
INL u64 address(const void *p) { return (u64)p; }

/* Rows of the call that belong to entry b, of queries or keys: the first one's place in a packed sequence, and how
 * many. */
struct span {
  i32 start, length;
};
INL struct span span_of(const int32_t *cu, i64 length, i32 b) {
  const GLOBAL i32 *at = ints(address(cu));
  if (!at) return (struct span){0, (i32)length};
  i32 start = at[b];
  return (struct span){start, at[b + 1] - start};
}
INL struct span queries_of(call_t call, i32 b) { return span_of(args_of(call)->cu_q, args_of(call)->len_q, b); }
INL struct span keys_of(call_t call, i32 b) { return span_of(args_of(call)->cu_kv, args_of(call)->len_kv, b); }

/* Row r of the call, of one (b, h): memory row map[r], or start + r. */
struct rows {
  const GLOBAL i32 *map;
  i32 start;
};
INL struct rows rows_of(u64 map, i64 stride_b, i64 stride_h, i32 start, i32 b, i32 h) {
  return (struct rows){map ? ints(map) + b * stride_b + h * stride_h + start : 0, start};
}
INL struct rows query_rows(call_t call, struct span s, i32 b, i32 h) {
  const flyi_mask_args *a = args_of(call);
  return rows_of(address(a->q_rows), a->q_stride_b, a->q_stride_h, s.start, b, h);
}
INL struct rows key_rows(call_t call, struct span s, i32 b, i32 h) {
  const flyi_mask_args *a = args_of(call);
  return rows_of(address(a->kv_rows), a->kv_stride_b, a->kv_stride_h, s.start, b, h);
}
INL struct rows output_rows(call_t call, struct span s, i32 b, i32 h) {
  return rows_of(call->out_rows, call->out_rows_stride_b, call->out_rows_stride_h, s.start, b, h);
}
INL i32 row_at(struct rows r, i32 i) { return r.map ? r.map[i] : r.start + i; }

/* The plane of (b, h) of a tensor with elements of `size` bytes, and the bytes from row to row. */
INL u64 plane_of(const flyi_cuda_tensor *t, i32 b, i32 h, i32 size) {
  return t->data + (u64)(b * t->stride_b + h * t->stride_h) * (u32)size;
}
INL u32 pitch_of(const flyi_cuda_tensor *t, i32 size) { return (u32)t->stride_row * (u32)size; }
INL u64 row_address(u64 plane, u32 pitch, i32 row) { return plane + (u64)(u32)row * pitch; }

/* What the mask's fly_token_... and fly_len_... become. Any argument is in range afterwards. */
INL i32 inside(i64 x, i64 count) { return (i32)(x < 0 ? 0 : x >= count ? count - 1 : x); }
INL i32 at_most(i32 x, i32 last) { return x < last ? x : last; }
INL i32 token(const flyi_mask_args *a, struct rows (*rows)(call_t, struct span, i32, i32), struct span s, i32 b, i32 h,
              i64 row) {
  call_t call = (call_t)a - 1;
  if (s.length == 0) return 0;
  return row_at(rows(call, s, b, inside(h, a->heads)), inside(row, s.length)) - s.start;
}
__attribute__((always_inline)) i32 flyi_len_q(const flyi_mask_args *a, i32 b) {
  return queries_of((call_t)a - 1, inside(b, a->batch)).length;
}
__attribute__((always_inline)) i32 flyi_len_kv(const flyi_mask_args *a, i32 b) {
  return keys_of((call_t)a - 1, inside(b, a->batch)).length;
}
__attribute__((always_inline)) i32 flyi_token_q(const flyi_mask_args *a, i32 b, i32 h, i32 q) {
  i32 e = inside(b, a->batch);
  return token(a, query_rows, queries_of((call_t)a - 1, e), e, h, q - a->q_offset) + (i32)a->q_offset;
}
__attribute__((always_inline)) i32 flyi_token_kv(const flyi_mask_args *a, i32 b, i32 h, i32 kv) {
  i32 e = inside(b, a->batch);
  return token(a, key_rows, keys_of((call_t)a - 1, e), e, h, kv);
}

/* ---- a block's work ---------------------------------------------------------------------------------------------- */

struct work {
  i32 b, h;    /* h: of the pairs that the role counts */
  i32 map_row; /* which row of the plane's map */
  i32 tile;    /* which outer tile: rows tile * rows of a tile .. */
};
INL struct work work_of(call_t call, const flyi_cuda_map *map, i32 heads, u32 x) {
  i32 pairs = (i32)args_of(call)->batch * heads;
  flyi_cuda_work w = flyi_cuda_work_of(x, pairs, call->tiles, call->together, map->outer);
  i32 b = w.pair / heads, h = w.pair % heads;
  i32 query_head = heads == (i32)args_of(call)->heads ? h : h * call->group;
  i32 plane = ints(map->plane_of)[b * map->plane_stride_b + query_head * map->plane_stride_h];
  i32 row = map->order ? ints(map->order)[plane * map->rows + w.place] : w.place;
  return (struct work){b, h, row, row * map->outer + w.tile};
}

/* ---- walking the runs -------------------------------------------------------------------------------------------- */

/* One inner tile after the other, with the next run read ahead. Everything here is uniform over the block. */
struct walk {
  const GLOBAL i32x2 *at;
  i32x2 run;            /* *at */
  i32 left;             /* runs from `at` on */
  i32 tile, stop, kind; /* kind EMPTY: past the end */
};
struct step {
  i32 tile, kind;
};

INL void walk_run(struct walk *w, i32 inner, i32 tiles) {
  w->kind = EMPTY;
  if (w->left == 0) return;
  w->tile = w->run.x * inner;
  i32 stop = w->tile + (i32)((u32)w->run.y << 2 >> 2) * inner;
  w->stop = stop < tiles ? stop : tiles;
  w->kind = (i32)((u32)w->run.y >> 30);
  w->left--;
  w->run = *++w->at; /* there is one behind the last */
}
/* Row `row` of the plane of query head h. tiles: inner ones of the entry; none lies beyond. */
INL struct walk walk_of(const flyi_cuda_map *map, i32 b, i32 h, i32 row, i32 tiles) {
  struct walk w;
  i64 plane = ints(map->plane_of)[b * map->plane_stride_b + h * map->plane_stride_h];
  const GLOBAL i64 *start = longs(map->start) + (plane * map->rows + row);
  i64 first = start[0];
  w.left = tiles > 0 ? (i32)(start[1] - first) : 0;
  w.at = (const GLOBAL i32x2 *)map->runs + first;
  w.run = *w.at;
  w.tile = w.stop = 0;
  walk_run(&w, map->inner, tiles);
  return w;
}
INL struct step walk_step(struct walk *w, const flyi_cuda_map *map, i32 tiles) {
  struct step s = {w->tile, w->kind};
  if (w->kind != EMPTY && ++w->tile >= w->stop) walk_run(w, map->inner, tiles);
  return s;
}

/* ---- tiles in shared memory -------------------------------------------------------------------------------------- */

INL i32 tile_pitch(i32 width) { return (width + 63) / 64 * 128; } /* bytes */

/* Addresses that ldmatrix takes: a lane's part in four registers, the rest constants. Chunk 2j + half of a row whose
 * low bits are x lies at ((2j + half) ^ x) * 16 = (half ^ x) * 16 ^ j * 32 for j < 4, and 128 bytes on for every 4
 * steps of j. */
struct pattern {
  u32 at[4];
};
INL struct pattern pattern_of(i32 row, i32 half, i32 pitch) {
  struct pattern p;
  u32 first = (u32)(row * pitch) + (u32)((half ^ (row & 7)) << 4);
  UNROLL for (i32 j = 0; j < 4; j++) p.at[j] = first ^ (u32)(j * 32);
  return p;
}
/* A operands, and B operands that are read transposed: rows lane & 15, half lane >> 4. */
INL struct pattern pattern_rows(i32 lane, i32 pitch) { return pattern_of(lane & 15, lane >> 4, pitch); }
/* B operands whose columns are rows of the tile. */
INL struct pattern pattern_columns(i32 lane, i32 pitch) {
  return pattern_of((lane & 7) + (lane >> 4 << 3), lane >> 3 & 1, pitch);
}
/* From row `row` (a multiple of 8) and column 16 j on, of the tile at `base`. */
INL u32 matrix_at(const struct pattern *p, u32 base, i32 pitch, i32 row, i32 j) {
  return p->at[j & 3] + base + (u32)(row * pitch + (j >> 2) * 128);
}

/* ---- gathering rows ---------------------------------------------------------------------------------------------- */

/* How the threads of a block share out a tile: a row to `lanes` threads (a power of two), one chunk each, the next row
 * to the next. */
struct share {
  i32 width;   /* columns of the tile, of 16 bits; at least so many that a pass copies no more rows than a tile has */
  i32 columns; /* that the tensor has; the rest is zero */
  i32 warps;
};
INL i32 share_lanes(struct share s) {
  return s.width <= 16 ? 2 : s.width <= 32 ? 4 : s.width <= 64 ? 8 : s.width <= 128 ? 16 : 32;
}
INL i32 share_rows(struct share s) { return s.warps * 32 / share_lanes(s); } /* that the block copies in one pass */
INL i32 share_chunk(struct share s) { return thread_index() % share_lanes(s); }
INL i32 share_row(struct share s) { return thread_index() / share_lanes(s); }
/* Bytes of its chunk that a thread copies, where the row exists. */
INL i32 share_bytes(struct share s) {
  i32 bytes = (s.columns - share_chunk(s) * 8) * 2;
  return s.columns == s.width ? 16 : bytes < 0 ? 0 : bytes > 16 ? 16 : bytes;
}
INL u32 share_at(struct share s) {
  i32 row = share_row(s), chunk = share_chunk(s);
  return (u32)(row * tile_pitch(s.width) + ((chunk ^ (row & 7)) << 4));
}

/* The memory rows of a tile to come are held one a lane and dealt by shuffles: one register instead of one for each
 * pass. This is the row of the tile whose memory row this lane holds. */
INL i32 dealt_row(struct share s, i32 rows) {
  i32 each = 32 / share_lanes(s); /* rows that one pass of a warp copies */
  i32 lane = thread_index() & 31, l = lane % (rows / share_rows(s) * each);
  return thread_index() / 32 * each + l % each + l / each * share_rows(s);
}
/* Rows at or behind `length` repeat the last one, of which nothing will be read. */
INL i32 deal_rows(struct share s, struct rows r, i32 first, i32 rows, i32 length) {
  i32 i = first + dealt_row(s, rows);
  return row_at(r, i < length ? i : length - 1);
}

/* A tensor's plane as a thread copies it: from its own chunk on. */
struct source {
  u64 column;
  u32 pitch;
};
INL struct source source_of(struct share s, const flyi_cuda_tensor *t, i32 b, i32 h) {
  return (struct source){plane_of(t, b, h, 2) + (u64)share_chunk(s) * 16, pitch_of(t, 2)};
}

/* One chunk of a row that need not be aligned: element by element, at once. */
INL void copy_elements(u32 to, u64 from, i32 bytes) {
  u32 x[4];
  UNROLL for (i32 i = 0; i < 4; i++) {
    const GLOBAL u16 *e = (const GLOBAL u16 *)from + 2 * i;
    u32 low = 4 * i < bytes ? e[0] : 0, high = 4 * i + 2 < bytes ? e[1] : 0;
    x[i] = low | high << 16;
  }
  store_shared4(to, x);
}

/* Where pass i of a tile at `to` (with share_at added) puts this thread's chunk. Rows of other passes differ in row & 7
 * where a pass has fewer than eight of them, a power of two. */
INL u32 pass_at(struct share s, u32 to, i32 i) {
  u32 flip = (u32)(i * share_rows(s) & 7) << 4;
  return (to ^ flip) + (u32)(i * share_rows(s) * tile_pitch(s.width));
}

/* Pass i of a tile: this thread's chunk, if it has one. */
INL void copy_pass(struct share s, u32 to, struct source from, i32 dealt, i32 i, i32 left, i32 aligned) {
  const i32 row = of_lane(dealt, i * (32 / share_lanes(s)) + (thread_index() & 31) / share_lanes(s));
  const i32 size = i * share_rows(s) < left ? share_bytes(s) : 0;
  if (share_lanes(s) * 8 > s.width && share_chunk(s) * 8 >= s.width) return;
  if (aligned)
    copy16(pass_at(s, to, i), row_address(from.column, from.pitch, row), (u32)size);
  else
    copy_elements(pass_at(s, to, i), row_address(from.column, from.pitch, row), size);
}

/* Copies rows first .. first + rows - 1 of the call, of which those below `length` exist, the others become zeros. Of
 * wide rows that are not aligned, a few passes at a time: loads of more would need registers that sums have. */
INL void copy_tile(struct share s, u32 to, struct source from, i32 dealt, i32 first, i32 rows, i32 length,
                   i32 aligned) {
  const i32 left = length - first - share_row(s), passes = rows / share_rows(s);
  const i32 together = aligned || s.width <= 128 ? passes : 4;
  ROLLED for (i32 i = 0; i < passes; i += together)
      UNROLL for (i32 j = 0; j < together; j++) if (i + j < passes)
          copy_pass(s, to, from, dealt, i + j, left, aligned);
}

/* ---- the mask ---------------------------------------------------------------------------------------------------- */

/* A mask of many instructions, with loops or locals, or one that reads captured data for each pair: not inlined for all
 * pairs at once, which takes registers, but in a loop that gives a bit a pair, so many pairs a round: 1 or, where only
 * data are waited for, 8. 0: inlined. */
CONSTANT mask_in_loop;
/* 1: the mask reads its query's token, 2: its key's. */
CONSTANT mask_tokens;
/* What is worked out once for a call, a row, a column or a diagonal (q - kv): the mask takes it from these, which
 * become locals of each kernel. */
extern i32 flyi_row_token, flyi_column_token, flyi_difference, flyi_queries, flyi_keys;

_Bool mask(i32 b, i32 h, i32 q, i32 kv); /* of the module that is joined with this one */

/* A (batch, head) as the mask sees it. */
struct scene {
  i32 b, h, offset; /* offset: of queries */
  struct span queries, keys;
  struct rows query_rows, key_rows;
};
INL struct scene scene_of(call_t call, i32 b, i32 h) {
  struct span queries = queries_of(call, b), keys = keys_of(call, b);
  return (struct scene){
      b, h, (i32)args_of(call)->q_offset, queries, keys, query_rows(call, queries, b, h), key_rows(call, keys, b, h)};
}
INL _Bool visible_on(const struct scene *s, i32 d, i32 q, i32 kv, i32 row_token, i32 column_token) { /* d: q - kv */
  flyi_difference = d, flyi_queries = s->queries.length, flyi_keys = s->keys.length;
  if (mask_tokens & 1) flyi_row_token = row_token;
  if (mask_tokens & 2) flyi_column_token = column_token;
  return mask(s->b, s->h, q, kv);
}
/* Of rows first + i * step of the call, of which those behind the last one are not looked at. */
INL void tokens_of(i32 *tokens, i32 count, struct rows r, struct span s, i32 first, i32 step, i32 add) {
  const GLOBAL i32 *from = r.map + first;
  UNROLL for (i32 i = 0; i < count; i++) tokens[i] = from[i * step] + (add - s.start);
}
INL i32 token_of(struct rows r, struct span s, i32 i, i32 add) {
  i32 token;
  tokens_of(&token, 1, r, s, i, 0, add);
  return token;
}
/* Query and key by their rows in the call. */
INL _Bool visible_pair(const struct scene *s, i32 query, i32 key) {
  const i32 q = query + s->offset;
  return visible_on(s, q - key, q, key, mask_tokens & 1 ? token_of(s->query_rows, s->queries, query, s->offset) : 0,
                    mask_tokens & 2 ? token_of(s->key_rows, s->keys, key, 0) : 0);
}

/* The bit of s[a][i][j]. */
INL i32 bit_of(i32 columns, i32 a, i32 i, i32 j) { return 4 * (columns * a + i) + j; }

/* Who sees whom, as bit_of says; rows are queries or, by_key, keys. A round's pairs are neighbours. */
INL u64 mask_bits(const struct scene *s, i32 blocks, i32 columns, i32 query, i32 key, i32 by_key) {
  const _Bool few = blocks * columns <= 8; /* one register of bits */
  u64 many_bits = 0;
  u32 few_bits = 0;
  ROLLED for (i32 first = 0; first < blocks * columns * 4; first += mask_in_loop) {
    const i32 a = first / (4 * columns), i = first / 4 % columns;
    u32 round = 0;
    UNROLL for (i32 m = 0; m < mask_in_loop; m++) {
      const i32 j = mask_in_loop == 1 ? first % 4 : m % 4, row = a * 16 + (j >> 1) * 8,
                column = (i + m / 4) * 8 + (j & 1);
      const _Bool keep = visible_pair(s, query + (by_key ? column : row), key + (by_key ? row : column));
      round |= (u32)keep << m;
    }
    if (few)
      few_bits |= round << first;
    else
      many_bits |= (u64)round << first;
  }
  return few ? few_bits : many_bits;
}

/* Scores of `blocks` x 16 rows (queries) and `columns` x 8 keys, as C operands lie: what is masked becomes `masked`.
 * query and key: of this lane's first element; rows: tokens of its queries. Scores of one diagonal come one after
 * another: so what depends on q - kv alone is worked out once for all of them, and kept no longer. */
INL void mask_scores_of(const struct scene *s, const i32 rows[2 * MAX_BLOCKS], float x[MAX_BLOCKS][MAX_INNER / 8][4],
                        i32 blocks, i32 columns, i32 query, i32 key, float masked) {
  const u64 bits = mask_in_loop ? mask_bits(s, blocks, columns, query, key, 0) : 0;
  const i32 d0 = opaque(query + s->offset - key); /* or each difference would be taken from a row and a column */
  i32 keys[2][MAX_INNER / 8] = {{0}};             /* tokens */
  if (!mask_in_loop && mask_tokens & 2)
    UNROLL for (i32 e = 0; e < 2; e++) tokens_of(keys[e], columns, s->key_rows, s->keys, key + e, 8, 0);
  UNROLL for (i32 g = 0; g < columns + 2 * blocks - 1; g++) UNROLL for (i32 y = 0; y < 2 * blocks; y++) {
    i32 i = y - g + columns - 1;
    if (i < 0 || i >= columns) continue;
    UNROLL for (i32 e = 0; e < 2; e++) {
      i32 kv = key + i * 8 + e, d = d0 + y * 8 - i * 8 - e;
      float *at = &x[y / 2][i][2 * (y % 2) + e];
      _Bool keep = mask_in_loop ? bits >> bit_of(columns, y / 2, i, 2 * (y % 2) + e) & 1
                                : visible_on(s, d, query + s->offset + y * 8, kv, rows[y], keys[e][i]);
      *at = choose(keep, *at, masked);
    }
  }
}

INL void mask_scores(const struct scene *s, float x[MAX_BLOCKS][MAX_INNER / 8][4], i32 blocks, i32 columns, i32 query,
                     i32 key, float masked) {
  i32 rows[2 * MAX_BLOCKS] = {0};
  if (!mask_in_loop && mask_tokens & 1) tokens_of(rows, 2 * blocks, s->query_rows, s->queries, query, 8, s->offset);
  mask_scores_of(s, rows, x, blocks, columns, query, key, masked);
}

/* ---- the end of a softmax ---------------------------------------------------------------------------------------- */

/* Of a row whose weights are 2^(score - top) and have `sum`: with its sink's weight, where it has one. The output is
 * what was summed up, times factor / sum; nothing where sum is 0. */
struct total {
  float factor, sum, lse;
};
INL struct total total_of(call_t call, i32 h, float top, float sum) {
  const struct total none = {1, sum, sum == 0 ? -infinity() : (top + log2_of(sum)) * 0.69314718056f};
  if (!call->sink.data) return none;
  const float z = ((const GLOBAL float *)call->sink.data)[h * call->sink.stride_h], sink = z * 1.44269504089f;
  if (z == -infinity()) return none;
  if (sum == 0) return (struct total){1, z < infinity() ? 1 : __builtin_nanf(""), z};
  const float most = greater(top, sink), factor = exp2_of(top - most);
  const float all = multiply_plus(sum, factor, exp2_of(sink - most));
  return (struct total){factor, all, (most + log2_of(all)) * 0.69314718056f};
}

/* Keys at or behind `left` (from this lane's first column on) do not exist. */
INL void mask_tail(float s[MAX_BLOCKS][MAX_INNER / 8][4], i32 blocks, i32 columns, i32 left) {
  UNROLL for (i32 i = 0; i < columns; i++) UNROLL for (i32 a = 0; a < blocks; a++)
      UNROLL for (i32 j = 0; j < 4; j++) if (i * 8 + (j & 1) >= left) s[a][i][j] = -infinity();
}

#endif
