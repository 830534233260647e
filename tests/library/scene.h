/* scene.h: one call of a library mask: its geometry, the values of its parameters and buffers, and the pairs that it
 * must show, marked by a formulation of its own (windows.c, blocks.c, documents.c, images.c). What says which pairs
 * a mask does show is a library_source: the mask compiled as ordinary C, or by the library under test. */
#ifndef TEST_SCENE_H
#define TEST_SCENE_H

#include "support.h"

typedef struct scene_arg {
  const char *name;
  int value; /* of a parameter; data is NULL */
  fly_type type;
  int rank;
  int64_t shape[4], count;
  void *data;
} scene_arg;

enum { SCENE_BATCH = 3, SCENE_ARGS = 10 };

typedef struct scene {
  test_random random;
  bool zero; /* divisors may be 0, which only compiled masks survive */

  /* The call. Row maps are NULL, or [batch, heads, rows], in a ragged batch [heads, rows of all entries]. */
  int batch, heads, len_q, len_kv, q_offset; /* of the longest entry */
  int entry_q[SCENE_BATCH], entry_kv[SCENE_BATCH];
  bool ragged;
  int32_t cu_q[SCENE_BATCH + 1], cu_kv[SCENE_BATCH + 1];
  int32_t *q_rows, *kv_rows;

  scene_arg args[SCENE_ARGS];
  int arg_count;

  uint8_t *seen; /* [batch, heads, len_q, len_kv] */
} scene;

/* The k-th geometry, with values drawn from `seed`; NULL behind the last. The caller frees it. */
scene *scene_create(int k, uint64_t seed, bool zero, bool negative);
void scene_free(scene *s);

/* ---- for the formulations ---------------------------------------------------------------------------------------- */

/* A parameter with a value from lo to hi; scene_divisor may choose 0 instead where the scene allows that. */
int scene_int(scene *s, const char *name, int lo, int hi);
int scene_divisor(scene *s, const char *name, int lo, int hi);
/* A buffer, zeroed, for the caller to fill. Unused dimensions are 0. */
void *scene_buffer(scene *s, const char *name, fly_type type, int rank, const int64_t *shape);
/* For a buffer of one dimension: its index for a position, which is clamped. */
int scene_clamp(int position, int count);
bool scene_chance(scene *s, int percent);
/* A byte that is not 0: often 1, often without bit 0. */
uint8_t scene_true(scene *s);

/* Positions (rows, with q_offset added to those of queries) begin at or before scene_begin and end at scene_end. */
int scene_begin(const scene *s);
int scene_end(const scene *s);

/* Tokens behind positions, which must exist. */
int scene_token_q(const scene *s, int b, int h, int q);
int scene_token_kv(const scene *s, int b, int h, int kv);

/* Marks a pair of positions, or a rectangle of them (ends are exclusive), as visible; what is outside is left out. b
 * and h may be ALL. */
enum { ALL = -1 };
void scene_show(scene *s, int b, int h, int q, int kv);
void scene_show_rectangle(scene *s, int b, int h, int q_begin, int q_end, int kv_begin, int kv_end);

/* ---- for the suites ---------------------------------------------------------------------------------------------- */

typedef struct library_mask {
  const char *name;
  void (*draw)(scene *s); /* chooses the values and marks what they make visible */
  bool negative;          /* positions below 0, from a negative q_offset, have a meaning */
} library_mask;

/* Ends with a NULL name. */
extern const library_mask library_windows[], library_blocks[], library_documents[], library_images[];
const library_mask *library_mask_at(int i); /* of all of them, NULL behind the last */

typedef struct library_source {
  void *context;
  bool (*see)(void *context, int b, int h, int q_row, int kv_row);
} library_source;

/* Compares every pair. */
void library_compare(const char *mask, const scene *s, library_source source);

#endif
