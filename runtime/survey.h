/* survey.h: deciding the tiles of one plane of a block map: what quadtree.c, settle.c, blockmap.c and maplists.c
 * share. */
#ifndef FLYMASK_SURVEY_H
#define FLYMASK_SURVEY_H

#include "nodes.h"

/* One (b, h) of a map, and how its tiles are decided. */
typedef struct flyi_survey {
  const flyi_nodes *nodes; /* NULL: there are no tiles, or only pairs are asked for */
  const flyi_mask_args *args;
  flyi_tile_fn *tile;
  int32_t b, h;
  int64_t q_offset, len_q, len_kv;
  int64_t tile_q, tile_kv;
  int32_t rows, columns; /* tiles */
  bool fast;
  int64_t until; /* of flyi_nanoseconds; 0: as long as it takes */
} flyi_survey;

/* rows x columns tiles of one kind. */
typedef struct flyi_rectangle {
  int32_t row, rows, column, columns;
  fly_tile_kind kind;
} flyi_rectangle;

int64_t flyi_nanoseconds(void); /* of a clock that only goes on (search.c) */

/* How often a step of settling was tried, and helped. */
typedef struct flyi_steps {
  int64_t tried, helped;
} flyi_steps;

/* What a worker needs. */
typedef struct flyi_scratch {
  flyi_interval *value; /* of all nodes */
  flyi_interval *kept;  /* of the nodes that depend on kv alone: for each level of the quadtree, for both halves */
  flyi_rectangle *rectangle;
  int64_t rectangles, capacity;
  int64_t undecided;
  flyi_steps step[3]; /* of settle.c, in this band: what is skipped does not depend on the number of threads */
  bool failed;        /* memory was short, */
  bool late;          /* or the time is up */
} flyi_scratch;

/* Room for nodes of any of the surveys. */
bool flyi_scratch_create(flyi_scratch *scratch, const flyi_survey *survey, int64_t count) FLYI_MUST_CHECK;
void flyi_scratch_free(flyi_scratch *scratch);

/* The rows [row, row + rows) of a plane: their runs, and how many each has. */
typedef struct flyi_band {
  const flyi_survey *survey;
  int32_t row, rows;
  fly_run *runs;
  int64_t *count; /* [rows] */
  int64_t full, partial, undecided;
} flyi_band;

/* quadtree.c: fills the band. False where memory is short, or (late) the time is up. */
bool flyi_band_build(flyi_band *band, flyi_scratch *scratch) FLYI_MUST_CHECK;
void flyi_band_free(flyi_band *band);

/* settle.c. Boxes hold positions: q has the offset added. */
fly_tile_kind flyi_settle(const flyi_survey *survey, flyi_scratch *scratch, const flyi_box *box);
/* By the compiled mask alone. */
fly_tile_kind flyi_settle_pairs(const flyi_survey *survey, const flyi_box *box);
/* The visible pairs in a box, by the compiled mask. */
int64_t flyi_visible_pairs(const flyi_survey *survey, const flyi_box *box);

/* The distinct planes of a map: which (b, h) have tiles of their own, and the nodes of each. */
typedef struct flyi_plan {
  flyi_program program;
  flyi_arrays arrays;
  flyi_nodes *nodes; /* of each (b, h) of the map */
  int64_t planes;
  flyi_survey *survey; /* of the distinct ones: map->plane_count */
} flyi_plan;

/* survey.c: decodes the mask of a map whose bound, args, geometry and tile sizes are set; sets its batch, heads,
 * plane_of and plane_count. The caller frees *out, also after a failure. */
fly_status flyi_plan_create(fly_map *map, bool fast, int64_t until, const flyi_threads *threads, flyi_plan *out,
                            fly_error *error);
void flyi_plan_free(flyi_plan *plan);

/* One (b, h) of a map. nodes: NULL, or what is decoded for it. */
flyi_survey flyi_survey_of(const fly_map *map, int64_t b, int64_t h, const flyi_nodes *nodes);

void flyi_planes_free(flyi_plane *planes, int32_t count);

/* The nodes' verdict over a box. */
static inline fly_tile_kind flyi_verdict(const flyi_nodes *nodes, const flyi_interval *value) {
  flyi_interval answer = value[nodes->answer];
  return answer.lo ? FLY_FULL : answer.hi ? FLY_PARTIAL : FLY_EMPTY;
}

#endif
