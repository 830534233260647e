/* question.h: questions about a watched mask or score modifier: whether something happens for
 * any pair of a geometry. */
#ifndef FLYMASK_QUESTION_H
#define FLYMASK_QUESTION_H

#include "../runtime/search.h"
#include "watch.h"

typedef enum flyi_question_kind {
  FLYI_ASK_HAPPENS,     /* at the place: what it is watched for */
  FLYI_ASK_HAPPENS_NOT, /* it is reached, and that does not happen */
  FLYI_ASK_BELOW,       /* it is reached with a value below `limit` */
  FLYI_ASK_ABOVE,
  FLYI_ASK_NOT_FINITE /* a modifier returns NaN or +infinity; no place */
} flyi_question_kind;

typedef struct flyi_question {
  flyi_question_kind kind;
  int place; /* of the watch; -1: any place but clauses */
  int64_t limit;
} flyi_question;

/* A watched mask or modifier with its values. */
typedef struct flyi_subject {
  LLVMModuleRef module; /* from flyi_verify_watched */
  bool is_score;
  const fly_bound *seen; /* a mask: only pairs that it sees count. NULL: all do */
  const flyi_declarations *declarations;
  const flyi_watch *watch;
  const fly_bound *bound; /* of the subject itself: the same parameters and buffers */
  flyi_isa isa;
  int64_t until; /* of flyi_nanoseconds: no question is looked into after that, */
  int64_t most;  /* and none longer than so many nanoseconds, for analysis and for code */
} flyi_subject;

typedef struct flyi_witness {
  int64_t b, h, q, kv;
  bool reads_s; /* the answer may depend on the score: */
  float s;
} flyi_witness;

/* The first pair found for which the answer is yes. FLYI_FOUND_OPEN: too much to look at. FLYI_FOUND_ERROR: *error says
 * why. Where the answer may depend on the score (reads_s), a few scores are tried: FLYI_FOUND_NONE is then of these. */
flyi_found flyi_ask(const flyi_subject *subject, const flyi_question *question, const fly_geometry *geometry,
                    flyi_witness *witness, fly_error *error);

/* Whether the condition at a place depends on the query or the key, and on no captured data: other data might decide
 * otherwise. */
bool flyi_depends_on_pair_alone(const flyi_subject *subject, int place);
/* Whether what a modifier returns depends on the score. */
fly_status flyi_result_reads_score(const flyi_subject *subject, bool *reads, fly_error *error);

#endif
