/* findings.c: looking for a finding. */
#include "findings.h"

const fly_finding *finding_of(const fly_findings *findings, fly_finding_kind kind, int line) {
  for (int i = 0; i < findings->count; i++)
    if (findings->finding[i].kind == kind && (!line || findings->finding[i].line == line)) return &findings->finding[i];
  return NULL;
}
