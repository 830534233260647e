/* watch.h: places of a mask or modifier that its author may want to hear of. While a mask is
 * verified, watch.c plants a call
 *
 *     void fly_watch(i32 place, i1 happens, i64 value)
 *
 * at each of them, before the guards make everything total: it is reached where the source's own operation is, and
 * `happens` says whether what the place is watched for happens there (an overflow, a divisor of zero, ...; for a
 * clause, whether it is true). diagnose.c turns the calls into questions. */
#ifndef FLYMASK_WATCH_H
#define FLYMASK_WATCH_H

#include "verify.h"

typedef enum flyi_watch_kind {
  FLYI_WATCH_OVERFLOW, /* value: the exact result, where 64 bits hold it */
  FLYI_WATCH_ZERO,
  FLYI_WATCH_NEGATIVE, /* the result differs from that of a division that floors */
  FLYI_WATCH_SHIFT,    /* value: the count */
  FLYI_WATCH_INDEX,    /* value: the index */
  FLYI_WATCH_CLAUSE
} flyi_watch_kind;

typedef struct flyi_place {
  flyi_watch_kind kind;
  int line, column;
  char name[80]; /* of the operator, buffer or array */
} flyi_place;

typedef struct flyi_watch {
  flyi_place *place;
  int count, capacity;
} flyi_watch;
void flyi_watch_free(flyi_watch *watch);

/* The name of the planted function; verification lets it pass as one of our own. */
#define FLYI_WATCH_FUNCTION "fly_watch"

/* As flyi_verify or, with is_score, flyi_verify_score: the symbolic form with the planted calls. */
fly_status flyi_verify_watched(LLVMContextRef context, flyi_section ir, const char *name, bool is_score,
                               LLVMModuleRef *out, flyi_declarations *declarations, flyi_watch *watch,
                               fly_error *error);

/* The steps of verification call these where v->watch is set: for each function of the source, before its guards; and
 * for each index of `count` elements (an i64) of an object, before it is clamped. */
fly_status flyi_watch_function(flyi_verifier *v, LLVMValueRef function);
fly_status flyi_watch_index(flyi_verifier *v, LLVMValueRef at, const char *object, LLVMValueRef index,
                            LLVMValueRef count);

#endif
