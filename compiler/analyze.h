/* analyze.h: what analyze.c and analyze_load.c share: a mask program under construction. */
#ifndef FLYMASK_ANALYZE_H
#define FLYMASK_ANALYZE_H

#include "../runtime/program.h"
#include "order.h"

typedef struct flyi_translation {
  LLVMModuleRef module;
  LLVMTargetDataRef layout;
  const flyi_declarations *declarations;
  flyi_program program;
  struct flyi_numbered { /* a hash table: values of the program; of constant tables: their index */
    LLVMValueRef value;
    int32_t number;
  } *slot;
  size_t slots, used;
  bool failed; /* memory was short */
} flyi_translation;

/* All return a value of the program. */
int32_t flyi_put(flyi_translation *t, flyi_instruction instruction);
int32_t flyi_put_constant(flyi_translation *t, int width, int64_t k);
int32_t flyi_put_unknown(flyi_translation *t, int width);
int32_t flyi_put_binary(flyi_translation *t, flyi_op op, int width, int32_t a, int32_t b);
/* The value of an LLVM value of integer type; unknown where it has none. */
int32_t flyi_value(flyi_translation *t, LLVMValueRef value);
/* The slot of a value; NULL where memory is short. number is -1 in a new one. */
struct flyi_numbered *flyi_number(flyi_translation *t, LLVMValueRef value);
/* 1 to 64 for an integer type that programs have, otherwise 0. */
int flyi_int_width(LLVMTypeRef type);

/* analyze_load.c: a load of an integer. */
int32_t flyi_translate_load(flyi_translation *t, LLVMValueRef load);

#endif
