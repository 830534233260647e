/* score_formulas.h: the library of score modifiers (scores/) as formulas of their own from the papers, in double
 * precision, and the data that they read. */
#ifndef TEST_SCORE_FORMULAS_H
#define TEST_SCORE_FORMULAS_H

#include "support.h"

/* What the data are made for: calls of no more. */
enum { FORMULA_BATCH = 2, FORMULA_HEADS = 4, FORMULA_QUERIES = 200, FORMULA_KEYS = 300, FORMULA_OFFSET = 7 };

typedef double score_formula(double s, int b, int h, int q, int kv, double *slope);

typedef struct score_library {
  const char *name; /* of a file of scores/ */
  score_formula *formula;
  fly_arg values[5]; /* parameters, then buffers */
  int value_count;
  fly_buffer *buffers[2];
  double tolerance; /* of the score, relative to 1 + its size */
} score_library;

/* The name of entry `index`; NULL: there are no more. */
const char *score_library_name(int index);
/* The entry with its buffers. */
void score_library_open(score_library *out, int index);
void score_library_close(score_library *entry);

#endif
