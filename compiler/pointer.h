/* pointer.h: what a pointer of the flattened mask is made of (pointer.c). */
#ifndef FLYMASK_POINTER_H
#define FLYMASK_POINTER_H

#include "verify.h"

typedef enum flyi_base_kind {
  FLYI_BASE_FOUND,
  FLYI_BASE_LOADED, /* comes out of memory or a struct: known after SROA, perhaps */
  FLYI_BASE_MIXED,  /* different objects, depending on the path */
  FLYI_BASE_NULL
} flyi_base_kind;

/* The object a pointer points into: an alloca, a constant table, a parameter's global, or the global of a buffer. */
flyi_base_kind flyi_pointer_base(const flyi_verifier *v, LLVMValueRef pointer, LLVMValueRef *base);

enum { FLYI_MOST_TERMS = 16 };

typedef struct flyi_term {
  LLVMValueRef value; /* an integer of up to 64 bits, signed */
  int64_t stride;
} flyi_term;

/* base + offset + sum of value * stride, in bytes. */
typedef struct flyi_address {
  int64_t offset;
  int64_t unit; /* the greatest common divisor of all array strides on the way, also of constant indices; 0: none */
  int term_count;
  flyi_term terms[FLYI_MOST_TERMS];
} flyi_address;

/* Phis and selects of pointers into one object, each with the phi or select of indices that takes its place. */
typedef struct flyi_indices {
  struct flyi_index {
    LLVMValueRef pointer, index;
    int64_t unit;
  } *entries;
  int count, capacity, depth;
} flyi_indices;

/* The address of a pointer whose base was found. Builds index phis and selects where it needs them. */
fly_status flyi_pointer_address(flyi_verifier *v, flyi_indices *indices, LLVMValueRef pointer, flyi_address *out);

/* The address in units, as an i64 built at the builder's place: `unit` divides every stride, and the offset less
 * `rest`. */
LLVMValueRef flyi_address_index(flyi_verifier *v, const flyi_address *address, int64_t unit, int64_t rest);

int64_t flyi_gcd(int64_t a, int64_t b);

#endif
