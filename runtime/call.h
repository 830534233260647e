/* call.h: an attention call on its way from the caller's struct to the kernels. */
#ifndef FLYMASK_CALL_H
#define FLYMASK_CALL_H

#include "runtime.h"

/* ---- the builds of templates/attn_fwd_cpu.c and attn_split_cpu.c (cpu.c) ----------------------------------------- */

const flyi_forward_code *flyi_forward_code_of(flyi_isa isa, fly_type type);
const flyi_split_code *flyi_split_code_of(flyi_isa isa, fly_type type);

/* ---- a checked call (check_call.c, check_tensors.c) -------------------------------------------------------------- */

/* The caller's struct, complete: geometry filled in from the tensors, scale and out_rows set. Row maps have a stride of
 * 0 over a batch or heads of 1; in a ragged batch, whose tensors are packed into one entry, the tensors' batch strides
 * are 0. */
typedef struct flyi_call {
  fly_attention c;
  flyi_domain domain;
  const flyi_known_rows *known; /* the call's geometry is the one of these; or NULL */
  int64_t kv_heads;
  fly_cpu_sizes sizes; /* those that the caller chose, else 0: flyi_sizes_check */
  flyi_mask_args *score_args; /* what the modifier reads: flyi_call_score */
} flyi_call;

/* Everything that can be wrong with a call, but for its workspace. */
fly_status flyi_call_check(const fly_attention *call, flyi_call *out, fly_error *error);
/* The same for a call that only reads out and lse: out_rows may name a row twice. */
fly_status flyi_call_check_read(const fly_attention *call, flyi_call *out, fly_error *error);
/* Whether a row map of the call is a known one. */
bool flyi_call_knows(const flyi_call *call, const fly_row_map *map);
/* Types, shapes and strides of one tensor: shape[3] must be dim. `written`: no two elements may share memory. */
fly_status flyi_tensor_check(const char *name, const fly_tensor *tensor, fly_type type, int64_t dim, bool written,
                             fly_error *error);
/* Whether two tensors may share a byte. Exact where they are parts of one array, as of [batch, token, q k v, head, dim]
 * in any order of these. */
bool flyi_tensors_overlap(const fly_tensor *a, const fly_tensor *b);

/* ---- what both directions use (call.c) --------------------------------------------------------------------------- */

static inline int64_t flyi_min64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t flyi_max64(int64_t a, int64_t b) { return a > b ? a : b; }
/* Blocks of 64 rows. */
static inline int64_t flyi_blocks(int64_t rows) { return (rows + FLYI_BLOCK - 1) / FLYI_BLOCK; }
/* The first row of batch entry b. */
static inline int64_t flyi_start_of(const int32_t *cu, int64_t b) { return cu ? cu[b] : 0; }
/* Row `row` of a plane of a tensor; the entries of a row map from `row` on, null where it is the identity. */
char *flyi_plane_row(const fly_tensor *t, int64_t b, int64_t h, int64_t row);
const int32_t *flyi_map_rows(const fly_row_map *map, int64_t b, int64_t h, int64_t row);
/* Rows of the call in a plane of a tensor, over the packed sequence in a ragged batch. */
int64_t flyi_rows_of(const fly_geometry *g, bool queries);

/* A group is what shares keys and values: a (batch, key/value head) with all its query heads, or a (batch, query
 * head) where heads have key rows of their own. */
typedef struct flyi_group {
  int64_t b, h, kv_head; /* h: the first of its query heads */
} flyi_group;
int64_t flyi_group_heads(const flyi_call *call);
flyi_group flyi_group_of(const flyi_call *call, int64_t group_heads, int64_t g);

/* Whether a row map, checked and with entries below `limit`, names a row of its tensor twice: within a (batch, head),
 * in a ragged batch, whose tensors have one batch entry, within a head. */
typedef struct flyi_repeat {
  int64_t b, h, row; /* the second time */
} flyi_repeat;
fly_status flyi_rows_repeat(const fly_row_map *map, const fly_geometry *g, bool queries, int64_t limit, bool *repeat,
                            flyi_repeat *where, fly_error *error);

/* Whether kernels can read rows of f32 where they are, or copies would only be the same: whole vectors, aligned
 * (loads that straddle cache lines cost a product 5 %), and rows side by side (a power of two apart, they would meet
 * in the same sets of the cache). */
bool flyi_in_place(const fly_tensor *t, const fly_row_map *rows, int lanes);
/* All elements; from the first row of a (batch, head) to the end of its last one. */
int64_t flyi_tensor_bytes(const fly_tensor *t);
int64_t flyi_plane_bytes(const fly_tensor *t);
/* Whether rows are whole lines of the cache: they may then be written past it. Worth it for tensors of more bytes than
 * a core's second-level cache has. */
bool flyi_is_lines(const fly_tensor *t);
enum { FLYI_STREAM_BYTES = 1 << 20 };
/* How many workers a call can keep busy with `items`, at so many multiply-adds a pair: fewer where waking a thread
 * would cost more than it does. */
int64_t flyi_worth_sharing(const flyi_call *call, int products, int64_t items);

/* Makes a checked call's score_args, where it has a modifier: to be freed by the caller, also on failure. */
fly_status flyi_call_score(flyi_call *call, fly_error *error);
/* A map for a call that brings none. */
fly_status flyi_call_map(const flyi_call *call, fly_map **out, fly_error *error);
fly_status flyi_workspace_check(const fly_attention *call, int64_t need, fly_error *error);
/* A workspace for a call that brings none, and its end: the last one is kept for the next call. */
void *flyi_workspace_take(size_t bytes) FLYI_MUST_CHECK;
void flyi_workspace_give(void *workspace);

/* ---- places (places.c) ------------------------------------------------------------------------------------------- */

/* Parts of a workspace that are taken, given back, and taken again while they are in the cache: the one that was given
 * back last comes first. after[places]: 1 + the next one of those that are free; 0: none. */
typedef struct flyi_places {
  _Atomic uint64_t top; /* of those that were given back, 1 + place; 0: none. Above, a count of changes */
  atomic_uint fresh;    /* the first of those that never were taken */
} flyi_places;

void flyi_places_init(flyi_places *places);
int32_t flyi_place_take(flyi_places *places, atomic_uint *after);
void flyi_place_give(flyi_places *places, atomic_uint *after, int32_t place);

/* ---- the sizes it works in (sizes.c) ----------------------------------------------------------------------------- */

/* Copies the call's own sizes, or zeros, and refuses what cannot be. */
fly_status flyi_sizes_check(const fly_attention *call, fly_cpu_sizes *out, fly_error *error);
/* The model: fills in what is 0. items: of 128 queries; workers: who share them. */
void flyi_sizes_complete(fly_cpu_sizes *sizes, int64_t tile_q, int64_t items, int workers);

/* ---- its schedule (schedule.c) ----------------------------------------------------------------------------------- */

/* Work is done in phases: as many groups (flyi_group) as phase_bytes holds the packed keys and values of. */
typedef struct flyi_item {
  int32_t head, index; /* query head of the group; which item_queries of it */
} flyi_item;

/* Called for rows [row, row + count) of (b, h) of out as soon as they are written, by the worker that has them in its
 * cache; only for calls whose output rows are in order. In a ragged batch, b is 0 and rows count over the packed
 * sequence. */
typedef struct flyi_after {
  void (*rows)(void *context, int64_t b, int64_t h, int64_t row, int64_t count, int worker);
  /* Which rows of other tensors that will be about: they come near meanwhile. Returns how many tensors. */
  int (*beside)(void *context, int64_t b, int64_t h, int64_t row, int64_t count, flyi_beside_cpu out[FLYI_BESIDE]);
  void *context;
} flyi_after;
/* fly_attention_forward; after may be NULL. */
fly_status flyi_attention_forward(const fly_attention *call, const flyi_after *after, fly_error *error);

typedef struct flyi_schedule {
  const flyi_call *call;
  const flyi_after *after;
  const fly_map *map;
  const flyi_forward_code *code;
  flyi_threads threads;
  int workers;
  int64_t groups, group_heads, phase_groups;
  int64_t query_blocks, key_blocks; /* of 64, of the longest entry */
  int64_t item_queries;             /* of one work item, all of one map tile */
  fly_cpu_sizes sizes;
  int64_t k_floats, v_floats;       /* of a packed block; v_floats 0: V is used where it is */
  int64_t scratch_bytes, bytes;
  bool streams;  /* rows of out go past the cache */
  int64_t first; /* group of the current phase */
  /* The workspace, [phase_groups] each: */
  float *k, *v;        /* [key_blocks, ...], a place each */
  flyi_places *places; /* one for all groups */
  atomic_uint *next_place; /* [key_blocks]: of places */
  atomic_int *place;   /* [key_blocks]: where a block is packed, FLYI_NOWHERE: nobody needed it yet */
  atomic_int *users;   /* [key_blocks + 1]: items that see the block and are not done */
  uint8_t *state;      /* [key_blocks]: FLYI_UNPACKED and so on */
  uint8_t *ahead;      /* whether the group's keys are packed before anything else */
  flyi_item *items;    /* [group_heads * query_blocks], the most expensive first */
  int64_t *item_start; /* [phase_groups + 1]; after prepare the counts, then their sums */
  char *scratch;       /* [workers] */
} flyi_schedule;

/* Sizes only: the map need not exist yet. */
void flyi_schedule_plan(flyi_schedule *s, const flyi_call *call);
void flyi_schedule_use_map(flyi_schedule *s, const fly_map *map);
/* Where the arrays are in `workspace`, which has s->bytes. */
void flyi_schedule_cut(flyi_schedule *s, void *workspace);
/* Fills items and users of the phase's group g. */
void flyi_schedule_group(flyi_schedule *s, int64_t g);
/* Before an item runs: a place for each block of keys that it sees (or for one block). When it is done: places back
 * whose blocks no other item needs. */
void flyi_schedule_claim_block(const flyi_schedule *s, int64_t g, int64_t block);
void flyi_schedule_claim_runs(const flyi_schedule *s, int64_t g, const fly_run *runs, int64_t count, int64_t blocks);
void flyi_schedule_done(const flyi_schedule *s, int64_t g, const fly_run *runs, int64_t count, int64_t blocks);

/* Group g of the call. */
flyi_group flyi_schedule_of(const flyi_schedule *s, int64_t g);
/* The runs that the queries from `query` on see, none where the map has no such row. */
int64_t flyi_schedule_runs(const flyi_schedule *s, int64_t b, int64_t h, int64_t query, const fly_run **runs);

/* ---- few queries and many keys (split.c) ------------------------------------------------------------------------- */

typedef struct flyi_split {
  const flyi_call *call;
  const flyi_after *after;
  const fly_map *map;
  const flyi_split_code *code;
  flyi_threads threads;
  int workers;
  int64_t groups, group_heads;
  int64_t range_keys;
  int64_t ranges, rows, width; /* of keys and queries of the longest entry; value_dim padded to the lanes */
  int64_t scratch_bytes, bytes;
  /* The workspace: */
  float *out;    /* [groups, ranges, rows, width] */
  float *state;  /* [groups, ranges, rows, 2] */
  char *scratch; /* [workers] */
} flyi_split;

/* Whether the call is one of few queries and many keys: decided by its longest entry and its heads alone. */
bool flyi_split_suits(const flyi_call *call);
void flyi_split_plan(flyi_split *s, const flyi_call *call);
void flyi_split_run(flyi_split *s, void *workspace);

/* ---- backward (backward.h), the builds of templates/attn_bwd_cpu.c (cpu.c) --------------------------------------- */

const flyi_backward_code *flyi_backward_code_of(flyi_isa isa, fly_type type);

#endif
