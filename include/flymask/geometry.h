/* geometry.h: what a mask is evaluated over, and what its author should know before it runs. A part of flymask.h. */
#ifndef FLYMASK_API_GEOMETRY_H
#define FLYMASK_API_GEOMETRY_H

#include <flymask/compile.h>

#ifdef __cplusplus
extern "C" {
#endif

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
 * flash-attention's bottom-right alignment. It is -2^31 to 2^31 - 1 - the query rows (with cu_seqlens, of the longest
 * entry): every q is an int. Where q is negative, q - kv and kv - q may not be, and wrap, as all of a mask's
 * arithmetic does.
 *
 * len_q and len_kv are the call's lengths and may differ from the tensors' when there are row maps (a paged cache, a
 * selection of rows).
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

#ifdef __cplusplus
}
#endif
#endif
