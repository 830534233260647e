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

#endif
