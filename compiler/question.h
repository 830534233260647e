/* question.h: questions about a watched mask: whether something happens for any pair of a geometry. */
#ifndef FLYMASK_QUESTION_H
#define FLYMASK_QUESTION_H

#include "../runtime/search.h"
#include "watch.h"

typedef enum flyi_question_kind {
  FLYI_ASK_HAPPENS,     /* at the place: what it is watched for */
  FLYI_ASK_HAPPENS_NOT, /* it is reached, and that does not happen */
  FLYI_ASK_BELOW,       /* it is reached with a value below `limit` */
  FLYI_ASK_ABOVE
} flyi_question_kind;

typedef struct flyi_question {
  flyi_question_kind kind;
  int place; /* of the watch; -1: any place but clauses */
  int64_t limit;
} flyi_question;

/* A watched mask with its values. */
typedef struct flyi_subject {
  LLVMModuleRef module; /* from flyi_verify_watched */
  const flyi_declarations *declarations;
  const flyi_watch *watch;
  const fly_bound *bound; /* of the mask itself: the same parameters and buffers */
  flyi_isa isa;
  int64_t until; /* of flyi_nanoseconds: no question is looked into after that */
} flyi_subject;

typedef struct flyi_witness {
  int64_t b, h, q, kv;
} flyi_witness;

/* The first pair found for which the answer is yes. FLYI_FOUND_OPEN: too much to look at. FLYI_FOUND_ERROR: *error says
 * why. */
flyi_found flyi_ask(const flyi_subject *subject, const flyi_question *question, const fly_geometry *geometry,
                    flyi_witness *witness, fly_error *error);

/* Whether the condition at a place depends on the query or the key. */
bool flyi_depends_on_pair(const flyi_subject *subject, int place);

#endif
