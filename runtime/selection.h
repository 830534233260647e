/* selection.h: selected blocks of keys on their way to one grouped attention call. */
#ifndef FLYMASK_SELECTION_H
#define FLYMASK_SELECTION_H

#include "call.h"

/* A row of the grouped call is a query and a tile of keys that it sees something of. Rows of a (batch, head) ascend by
 * tile, then by query; rows behind the last see nothing. */
struct fly_selection {
  atomic_int references;
  int64_t batch, heads, len_q, len_kv, q_offset;
  int64_t key_blocks;
  int block, tile_blocks; /* keys of a block; blocks of a tile, at most 64 */
  bool causal;
  int64_t rows;     /* of each (batch, head); at least 1 where there are queries */
  int64_t parts;    /* the most rows of a query */
  int32_t *query;   /* [batch, heads, rows]: the row map; 0 behind the last */
  int32_t *order;   /* [rows]: 0, 1, ..: partial outputs stay in the order of the call */
  int32_t *where;   /* [parts][batch, heads, len_q]: a query's rows, -1 behind the last */
  fly_bound *bound; /* captures each row's tile, and its blocks in it */
  fly_map *map;
  fly_geometry geometry; /* of the grouped call */

  /* Packed documents: one selection each, NULL for an empty one; the fields above from q_offset on are not used but for
   * key_blocks and rows, the most of any document, and block. */
  int64_t documents; /* 0: this is no pack */
  int32_t *cu;       /* [documents + 1] */
  fly_selection **document;
};

/* A query's selected blocks, tile by tile (selection_read.c). */
typedef struct flyi_selected {
  int32_t *tile;  /* ascending */
  uint64_t *bits; /* of the same place: its blocks; only where a tile has several */
  int64_t count;
  uint64_t *seen; /* scratch for lists that do not ascend: [tiles], zero between calls */
} flyi_selected;

/* Room for one query of the selection. */
bool flyi_selected_create(const fly_selection *s, flyi_selected *out) FLYI_MUST_CHECK;
void flyi_selected_free(flyi_selected *selected);
/* What query `i` of (b, h) selects, but for blocks that it may not see at all. An error for a block that does not
 * exist. */
fly_status flyi_selected_read(const fly_selection *s, const fly_selection_desc *desc, int64_t b, int64_t h, int64_t i,
                              flyi_selected *out, fly_error *error);

/* The forward pass on a GPU (cuda_selection.c): `bytes` for the grouped call's outputs and,
 * from lse_at on, its LSEs. */
fly_status flyi_cuda_selection(const fly_selection *s, const fly_attention *whole, fly_attention *grouped,
                               size_t lse_at, size_t bytes, fly_error *error);

/* MoBA's choice on a GPU, whole blocks of keys: lists[batch, heads, len_q][desc->top], as desc->cuda's device has made
 * them when this returns (cuda_moba.c). */
fly_status flyi_cuda_choose(const fly_moba_desc *desc, int64_t blocks, int32_t *lists, fly_error *error);

/* ---- packed documents (selection_packed.c) ----------------------------------------------------------------------- */

typedef struct flyi_packing {
  int64_t documents, heads;
  const int32_t *cu_seqlens;
  int block;
  fly_status (*select)(void *context, int64_t document, fly_selection **out, fly_error *error);
  void *context;
} flyi_packing;

fly_status flyi_selection_pack(const flyi_packing *packing, fly_selection **out, fly_error *error);
/* Rows first .. last - 1 of a tensor's sequence. */
fly_tensor flyi_document_rows(const fly_tensor *t, int64_t first, int64_t last);

/* Runs each document's call; the workspace is for each in turn. */
typedef fly_status (*flyi_selection_run)(const fly_selection *s, const fly_attention *call, fly_error *error);
fly_status flyi_packed_run(const fly_selection *s, const fly_attention *call, flyi_selection_run run, fly_error *error);
/* The most that a document needs. */
typedef fly_status (*flyi_selection_size)(const fly_selection *s, const fly_attention *call, size_t *bytes,
                                          fly_error *error);
fly_status flyi_packed_workspace(const fly_selection *s, const fly_attention *call, flyi_selection_size size,
                                 size_t *bytes, fly_error *error);
void flyi_packed_bitmap(const fly_selection *s, uint8_t *bitmap);
/* What the queries of plane (batch, head) selected: rows of `stride` bytes, zero before. */
void flyi_selection_plane_bitmap(const fly_selection *s, int64_t plane, uint8_t *bitmap, int64_t stride);

#endif
