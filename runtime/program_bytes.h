/* program_bytes.h: what writing and reading a program's bytes share. */
#ifndef FLYMASK_PROGRAM_BYTES_H
#define FLYMASK_PROGRAM_BYTES_H

#include "program.h"

#define FLYI_PROGRAM_MAGIC "FLYP"

/* Whether an instruction's k is written. */
bool flyi_op_has_constant(flyi_op op);

#endif
