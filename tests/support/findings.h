/* findings.h: looking for one of the findings of fly_mask_check and fly_score_check. */
#ifndef TEST_FINDINGS_H
#define TEST_FINDINGS_H

#include <flymask/flymask.h>

/* The first of a kind at a line, at any line for 0; NULL: there is none. */
const fly_finding *finding_of(const fly_findings *findings, fly_finding_kind kind, int line);

#endif
