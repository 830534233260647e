/* tables.h: names: instructions with their decoders, special registers; and what calls and indirect branches
 * carry. */
#ifndef SIMCUDA_TABLES_H
#define SIMCUDA_TABLES_H

#include "sim.h"

typedef enum special {
  SR_TID_X,
  SR_TID_Y,
  SR_TID_Z,
  SR_NTID_X,
  SR_NTID_Y,
  SR_NTID_Z,
  SR_CTAID_X,
  SR_CTAID_Y,
  SR_CTAID_Z,
  SR_NCTAID_X,
  SR_NCTAID_Y,
  SR_NCTAID_Z,
  SR_LANEID,
  SR_WARPID,
  SR_NWARPID,
  SR_SMID,
  SR_NSMID,
  SR_GRIDID,
  SR_LANEMASK_EQ,
  SR_LANEMASK_LT,
  SR_LANEMASK_LE,
  SR_LANEMASK_GT,
  SR_LANEMASK_GE,
  SR_DYNAMIC_SMEM,
  SR_TOTAL_SMEM,
  SR_CLOCK,
  SR_CLOCK_HI,
  SR_CLOCK64,
  SR_GLOBALTIMER, /* these change while a block runs */
  SPECIALS
} special;
extern const char *const special_names[SPECIALS];

decode_fn *decoder_of(const char *op); /* NULL: unknown */

enum { CALL_PARAMS = 16 };
typedef struct call_info {
  uint32_t function; /* of the program */
  uint32_t count, result_count;
  struct {
    uint32_t from, to, bytes; /* places in a lane's local memory */
  } params[CALL_PARAMS], results[CALL_PARAMS];
} call_info;
typedef struct brx_info {
  uint32_t count;
  uint32_t targets[];
} brx_info;
run_fn run_call, run_brx, run_bra;
uint32_t call_target(decoder *d, const char *name);

#endif
