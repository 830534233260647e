/* diagnose.h: what the files that look for findings share:
 *
 *   diagnose.c          fly_mask_check and fly_score_check; what is wrong with the source as a whole
 *   diagnose_places.c   its operations and conditions, by the places of watch.h
 *   findings.c          the list of findings
 *
 * A finding is never a guess: it is asked about by questions (question.c), and only a pair that was found, or a proof
 * that there is none, makes one. */
#ifndef FLYMASK_DIAGNOSE_H
#define FLYMASK_DIAGNOSE_H

#include "question.h"

typedef struct flyi_diagnosis {
  flyi_subject subject;
  flyi_declarations declarations;
  flyi_watch watch;
  LLVMContextRef context;
  fly_mask *mask; /* or score modifier */
  const fly_arg *args;
  int arg_count;
  fly_geometry geometry; /* of the call */
  fly_geometry wide;     /* for clauses: what is true here is true for other lengths and offsets too */
  int line, column;      /* of the function */
  fly_findings *out;
  int capacity;
  fly_error *error;
} flyi_diagnosis;

/* All return false after an error: *error says which. */

/* findings.c. w NULL: no pair shows it. The message is to be set; NULL: memory is short. */
fly_finding *flyi_finding_add(flyi_diagnosis *d, fly_finding_kind kind, int line, int column, const flyi_witness *w);
void flyi_finding_say(fly_finding *finding, const char *format, ...) FLYI_PRINTF(2, 3);
/* "for one at b = 0, ...": at[160] */
void flyi_finding_where(const flyi_diagnosis *d, const flyi_witness *w, char *at, size_t size);
void flyi_findings_sort(fly_findings *findings);

/* Asks a question; what is not decided in time counts in d->out. */
bool flyi_diagnosis_ask(flyi_diagnosis *d, flyi_question_kind kind, int place, const fly_geometry *geometry,
                        flyi_found *found, flyi_witness *w);

/* diagnose_places.c */
bool flyi_check_operations(flyi_diagnosis *d);
bool flyi_check_clauses(flyi_diagnosis *d);

#endif
